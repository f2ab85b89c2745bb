"""In-place writes: what is refused, and how history is rebased.  See Note [Views and in-place] in graph.py."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from engine.autograd.graph import Edge, Node, View, edge_of, registered, replay, requires_grad_of
from engine.autograd.versions import second_time
from engine.core.grad_mode import mode

_MULTIPLE = (
    " This view is the output of a function that returns multiple views. Such functions do not allow the output views "
    "to be modified inplace. You should replace the inplace operation by an out-of-place one."
)
_NO_GRAD = (
    " Given that this use case "
    "is ambiguous and error-prone, it is forbidden. You can clarify your code by moving both the view and the inplace "
    "either both inside the no_grad block (if you don't want the inplace to be tracked) or both outside (if you want "
    "the inplace to be tracked)."
)


def check_writable(tensor: Any, expanded: str = "") -> None:
    """Raise for a write that may not happen: a leaf that requires grad, a view of one, cells that overlap.

    Called before anything is computed, so that a refused operation leaves the values as they were.  expanded: as the
    option of `op`, whether cells that overlap may be written.
    """
    array = tensor._array if tensor._channels_last is None else tensor._channels_last
    _check_history(tensor)
    if (
        0 in array.strides
        and expanded != "allowed"
        and array.size
        and any(s == 0 and n > 1 for s, n in zip(array.strides, array.shape))
    ):
        if expanded:
            warnings.warn(
                f"Use of {expanded} on expanded tensors is deprecated. Please clone() the tensor before performing "
                "this operation.",
                stacklevel=3,
            )
            return
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
            "Please clone() the tensor before performing the operation."
        )


def _check_history(tensor: Any) -> None:
    """Raise for a leaf that requires grad, a view of one, and memory that may not be written."""
    if tensor._vc.__class__ is not list:
        tensor._vc.check_writable()
    if not (tensor._requires_grad and mode.enabled and requires_grad_of(tensor)):
        return
    view: View | None = tensor._view
    if view is None:
        if tensor._edge is None:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        if tensor._edge[0].guarded:
            _refuse_guarded(*tensor._edge)
    else:
        _check_view(view)
        base = tensor._base
        if base._edge is None and base._view is None:
            raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")
        if base._edge is not None and base._edge[0].guarded:
            _refuse_guarded(*base._edge)


def _refuse_guarded(node: Node, number: int) -> None:
    raise RuntimeError(
        f"Output {number} of {node.name().removesuffix('Backward')} is a view and is being modified inplace. This view "
        "was created inside a custom Function (or because an input was returned as-is) and the autograd logic to "
        "handle view+inplace would override the custom backward associated with the custom Function, leading "
        "to incorrect gradients. This behavior is forbidden. You can fix this by cloning the output of the custom "
        "Function."
    )


def _check_view(view: View) -> None:
    """Raise where the view, or the nearest one that it was taken from, was made in a way that forbids the write."""
    made: View | None = view
    while made is not None and made.recorded and not made.multiple:
        made = made.step[0]
    if made is None:
        return
    if view.edge is None:
        message = "A view was created in no_grad mode and is being modified inplace with grad mode enabled."
    else:
        node, number = view.edge
        message = f"Output {number} of {node.name().partition('Backward')[0]} is a view and is being modified inplace."
    raise RuntimeError(message + (_MULTIPLE if made.recorded else _NO_GRAD))


def rebase(tensor: Any, node: Node) -> None:
    """Make `node` (already run on the data, version already raised) the history of `tensor` and of its aliases."""
    view: View | None = tensor._view
    if view is None:
        tensor._edge = (node, 0)
        tensor._requires_grad = True
        return
    _check_view(view)
    base = tensor._base
    base_edge = edge_of(base) if requires_grad_of(base) else None
    copy = CopySlices(base_edge, view, node, base._array.shape, base._array.strides)
    base._edge = (copy, 0)
    base._requires_grad = True
    tensor._requires_grad = True
    view.version = -1  # its own edge leads past the write: taken anew from the base when it is next asked for


class CopySlices(Node):
    """The history of a base after a write through one of its views.

    The gradient of the base, but for the slice that was overwritten, passes on to the base's old history; the
    slice goes through the node of the write.
    """

    __slots__ = ("node", "shape", "steps", "strides")

    def __init__(self, base: Edge | None, view: View, node: Node, shape: Any, strides: Any) -> None:
        super().__init__((base, *node.next_edges[1:]))
        # the steps, not the View: its edge leads back here
        self.node, self.steps, self.shape, self.strides = node, tuple(view.steps()), shape, strides

    def apply(self, grads: list[Any], needs: Sequence[bool]) -> Sequence[Any]:
        node = self.node
        if node is None:
            second_time()
        result = registered.clone_strided(grads[0], self.shape, self.strides)
        piece = replay(self.steps, result)
        inner = node.apply([registered.clone(piece)], needs)
        if needs[0]:
            if inner[0] is None:
                registered.zero_(piece)
            else:
                registered.copy_(piece, inner[0])
        return (result if needs[0] else None, *inner[1:])

    def name(self) -> str:
        return "torch::autograd::CopySlices"

    def release(self) -> None:
        """Free what the write saved; a later pass is an error even where that was nothing, as in torch.

        Not of operations that are made of a write here and are none in torch, which have names of their own.
        """
        if self.node is not None:
            self.node.release()
            if self.__class__ is CopySlices:
                self.node = None  # type: ignore[assignment]
