"""`saved_tensors_hooks` and what is made of it: what backward needs, handed to functions of the user's.

Nothing in an operation asks for such hooks.  While a context of them is open the functions of the op table are
listened to (`dispatch/gate.py`): the listener runs the operation and hands what the new node saved to the innermost
hooks of the thread.  The node's class becomes one that unpacks before it runs and whose gradients are never taken over
arrays.  Versions are not checked: what the hook returns is the user's.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType
from typing import Any

from engine import dispatch
from engine.autograd import versions
from engine.autograd.graph import Node, accumulate_edge, edge_of, next_seq, requires_grad_of
from engine.autograd.inplace import CopySlices
from engine.autograd.versions import SavedResult, second_time
from engine.core.grad_mode import no_grad
from engine.dispatch.gate import Listener
from engine.tensor import Tensor, wrap, wrap_alias

__all__ = ["allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks", "save_on_cpu", "saved_tensors_hooks"]


class _Stack(threading.local):
    def __init__(self) -> None:
        self.hooks: list[tuple[Callable[..., Any], Callable[..., Any]]] = []
        self.disabled: str | None = None
        self.mutable = False


_stack = _Stack()


class _Packed:
    """The values that a node saved, packed by the hooks."""

    def __init__(
        self, saved: Sequence[Any], hooks: tuple[Callable[..., Any], Callable[..., Any]], kept: frozenset[int]
    ) -> None:
        self.unpack = hooks[1]
        self.entries: list[Any] = []
        with no_grad():
            for entry in saved:
                if isinstance(entry, Tensor):
                    self.entries.append(("tensor", _packed(hooks[0], entry.detach()), _edge(entry)))
                elif isinstance(entry, SavedResult):
                    # the user may write to a result that torch does not save: what is unpacked stays as it was
                    array = entry.array.copy() if entry.nr in kept else entry.array
                    self.entries.append(("result", _packed(hooks[0], wrap(array)), entry.nr))
                elif isinstance(entry, tuple) and entry and isinstance(entry[0], Tensor):
                    made = [("tensor", _packed(hooks[0], t.detach()), _edge(t)) for t in entry]
                    self.entries.append(("list", made, None))
                else:
                    self.entries.append(("plain", entry, None))

    def _tensor(self, packed: Any, edge: Any) -> Tensor:
        with no_grad():
            given = self.unpack(packed)
        if not isinstance(given, Tensor):
            raise TypeError("Output of saved tensor unpack_hook expected to be a Tensor")
        found = wrap_alias(given)
        if edge is not None:
            found._requires_grad, found._edge = True, edge
        return found

    def saved(self) -> tuple[Any, ...]:
        """As the node's `apply` reads it; versions are those of what was unpacked."""
        found: list[Any] = []
        for kind, value, more in self.entries:
            if kind == "tensor":
                found.append(self._tensor(value, more))
            elif kind == "result":
                found.append(SavedResult(self._tensor(value, None)._array, [0], 0, more))
            elif kind == "list":
                found.append(tuple(self._tensor(v, e) for _, v, e in value))
            elif found and value is not None and isinstance(found[-1], Tensor):
                found.append(found[-1]._vc[0])
            elif (
                found and value is not None and isinstance(found[-1], tuple) and not isinstance(found[-1], SavedResult)
            ):
                found.append(tuple(t._vc[0] for t in found[-1]))
            else:
                found.append(value)
        return tuple(found)


def _packed(pack: Callable[..., Any], tensor: Tensor) -> Any:
    before = tensor._version
    found = pack(tensor)
    if tensor._version != before:
        raise RuntimeError(
            "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook cannot "
            "be modified by in-place operations as this can lead to unexpected side-effects. Please open an issue if "
            "you need to perform in-place operations on the input to a pack hook."
        )
    return found


def _pack(tensor: Tensor) -> Callable[[], Any] | None:
    """Pack a tensor that a node saves beside the operands of its formula, by the innermost hooks; None without any."""
    if not _stack.hooks:
        return None
    pack, unpack = _stack.hooks[-1]
    with no_grad():
        packed = _packed(pack, tensor.detach())
    return lambda: unpack(packed)


versions.registered.pack = _pack


def _edge(tensor: Tensor) -> Any:
    if not requires_grad_of(tensor):
        return None
    return accumulate_edge(tensor) if tensor.is_leaf else edge_of(tensor)


_classes: dict[type[Node], type[Node]] = {}


def _packing(kind: type[Node]) -> type[Node]:
    """The node class `kind` for packed saved values."""
    found = _classes.get(kind)
    if found is None:

        def apply(self: Node, grads: list[Any], needs: Sequence[bool]) -> Sequence[Any]:
            packed = self.saved
            if packed is None:
                second_time()
            self.saved = packed[0].saved()
            try:
                return kind.apply(self, grads, needs)
            finally:
                self.saved = packed

        body = {"__slots__": (), "apply": apply, "arrays": None, "__module__": "engine"}
        found = _classes[kind] = type(kind.__name__, (kind,), body)
        _classes[found] = found
    return found


def _nodes(result: Any) -> Iterator[Node]:
    for t in (result,) if isinstance(result, Tensor) else result if isinstance(result, tuple | list) else ():
        if isinstance(t, Tensor):
            view = t._view
            edge = t._edge if view is None else view.edge
            if edge is None and t._base is not None:
                edge = t._base._edge
            if edge is not None:
                node = edge[0].node if edge[0].__class__ is CopySlices else edge[0]
                if node is not None:  # of a graph that was freed
                    yield node


def _heard(function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Callable[..., Any]) -> Any:
    hooks = _stack.hooks
    if not hooks:
        return proceed(*args, **kwargs)
    start = next_seq()
    result = proceed(*args, **kwargs)
    for node in _nodes(result):
        if node.saved and node.sequence_nr > start and node.__class__ not in _classes.values():
            node.saved = (_Packed(node.saved, hooks[-1], node.kept_results),)
            node.__class__ = _packing(node.__class__)
    return result


_listener = Listener(_heard)


class saved_tensors_hooks:
    """`with saved_tensors_hooks(pack, unpack):` what operations inside save goes through `pack`, and through `unpack`
    when backward needs it.

    pack(tensor) -> anything, unpack(that) -> a tensor of the same values.  The innermost context counts.
    https://docs.pytorch.org/docs/2.13/autograd.html#torch.autograd.graph.saved_tensors_hooks
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        if _stack.disabled is not None:
            raise RuntimeError(_stack.disabled)
        _listener.begin(dispatch.FUNCTIONS)
        _stack.hooks.append((self.pack_hook, self.unpack_hook))

    def __exit__(self, *exc: object) -> None:
        _stack.hooks.pop()
        _listener.end()


class save_on_cpu(saved_tensors_hooks):
    """Save the tensors that backward needs as copies on the CPU; reading one copies it back to its device."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(tensor: Tensor) -> Any:
            return tensor.device, tensor.clone().cpu() if tensor.device.type == "cpu" else tensor.cpu()

        super().__init__(pack, lambda packed: packed[1].to(packed[0]))


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """A context in which `saved_tensors_hooks` raises RuntimeError with that message."""
    before, _stack.disabled = _stack.disabled, error_message
    try:
        yield
    finally:
        _stack.disabled = before


class _Copies:
    """The result of `allow_mutation_on_saved_tensors`: it holds nothing, since copies belong to the graph."""

    def clear(self) -> None:
        """Nothing."""


@contextlib.contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[_Copies]:
    """A context in which tensors that backward needs may be written to: it keeps copies.

    torch copies when a tensor is written to, here all are copied when they are saved.
    """
    if _stack.mutable:
        raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
    _stack.mutable = True
    try:
        with saved_tensors_hooks(lambda tensor: tensor.clone(), lambda kept: kept):
            yield _Copies()
    finally:
        _stack.mutable = False
