"""In-place writes: what is refused, and how history is rebased.  See Note [Views and in-place] in graph.py."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from engine.autograd.graph import Edge, Node, edge_of, move_retained, registered, requires_grad_of, view_edge
from engine.autograd.versions import second_time
from engine.autograd.views import View, replay
from engine.core.grad_mode import mode


def check_writable(tensor: Any, expanded: str = "", others: Sequence[Any] = ()) -> None:
    """Raise for a write that may not happen: a leaf that requires grad, a view of one, cells that overlap.

    Called before anything is computed, so that a refused operation leaves the values as they were.  expanded: as the
    option of `op`, whether cells that overlap may be written.  others: the operands that the values come from.
    """
    array = tensor._array if tensor._channels_last is None else tensor._channels_last
    _check_history(tensor, others)
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


def _check_history(tensor: Any, others: Sequence[Any]) -> None:
    """Raise for a leaf that requires grad, a view of one, and memory that may not be written."""
    if tensor._vc.__class__ is not list:
        tensor._vc.check_writable()
    if not mode.enabled:
        return
    view: View | None = tensor._view
    mine = tensor._requires_grad and requires_grad_of(tensor)
    if view is None:
        if not mine:
            return
        if tensor._edge is None:
            raise RuntimeError(_LEAF)
        if tensor._edge[0].guarded:
            _refuse_guarded(*tensor._edge)
    elif mine or any(getattr(t, "_requires_grad", False) and requires_grad_of(t) for t in others):
        view.check_write()
        if not mine:
            return
        base = tensor._base
        if base._edge is None and base._view is None:
            raise RuntimeError("a view of a leaf Variable that requires grad is being used in an in-place operation.")
        if view.edge is None:  # torch does not look at what a write to its base made of it
            raise RuntimeError(_LEAF)
        if base._edge is not None and base._edge[0].guarded:
            _refuse_guarded(*base._edge)


_LEAF = "a leaf Variable that requires grad is being used in an in-place operation."


def _refuse_guarded(node: Node, number: int) -> None:
    raise RuntimeError(
        f"Output {number} of {node.name().removesuffix('Backward')} is a view and is being modified inplace. This view "
        "was created inside a custom Function (or because an input was returned as-is) and the autograd logic to "
        "handle view+inplace would override the custom backward associated with the custom Function, leading "
        "to incorrect gradients. This behavior is forbidden. You can fix this by cloning the output of the custom "
        "Function."
    )


def rebase(tensor: Any, node: Node) -> None:
    """Make `node` (already run on the data, version already raised) the history of `tensor` and of its aliases."""
    view: View | None = tensor._view
    if view is None:
        tensor._edge = (node, 0)
        tensor._requires_grad = True
        return
    view.check_write()
    base = tensor._base
    base_edge = edge_of(base) if requires_grad_of(base) else None
    copy = CopySlices(base_edge, view, node, base._array.shape, base._array.strides)
    base._edge = (copy, 0)
    base._requires_grad = True
    tensor._requires_grad = True
    before = view.edge
    view.edge, view.version = base._edge, -1 - base._vc[0]  # its own is taken from there when it is next asked for
    if base_edge is not None and base_edge[0]._extra is not None:
        move_retained(base, base_edge, base._edge)
    if before is not None and before[0]._extra is not None:
        move_retained(tensor, before, view_edge(tensor))


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
