"""`engine.compile(step, mode="reduce-overhead")`: a training or inference step as one captured graph.

    @engine.compile(mode="reduce-overhead")
    def step(x, y):
        optimizer.zero_grad()
        loss = engine.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    for x, y in batches:
        loss = step(x, y)      # from the third call on: two copies and one launch

The first `WARM_UPS` calls for arguments of a kind (shapes, types, numbers) run as they are: they compile kernels, make
the optimizer's state and do real steps.  The next is captured with copies of its Tensors as static inputs, in memory of
all graphs of this step, and replayed; each further one copies its Tensors into those inputs and replays.  Results are
the graph's own memory, without history: the next call overwrites them.  Nothing inside may wait for the GPU; what does
raises there, and nothing has been computed.  Python inside runs at the capture only, but for what the optimizer counts
and the numbers of its step (Note [Steps in graphs] in engine/ops/optimizer/cuda.py).  Where that step becomes another
one (a weight decay from 0), it is captured anew.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from engine import backends
from engine.backends.cuda import runtime as _runtime
from engine.core.grad_mode import mode, no_grad
from engine.cuda.graphs import CUDAGraph, graph, graph_pool_handle
from engine.cuda.streams import Stream, current_stream, stream
from engine.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from engine.dispatch.gate import Call

__all__ = ["WARM_UPS", "CapturedStep"]

WARM_UPS = 2
GRAPHS = 16  # of one step: the one used longest ago goes


class CapturedStep:
    """A function that `engine.compile` captures as a CUDA graph; see the top of this file.  otherwise: the function to
    call without a GPU."""

    def __init__(self, function: Call, otherwise: Call | None = None) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._otherwise = otherwise or function
        # kind of arguments -> calls so far, or _Captured
        self._kinds: OrderedDict[Hashable, int | _Captured] = OrderedDict()
        self._pool: object = None
        self._stream: Stream | None = None

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """The function's results.  RuntimeError (CaptureError) where it cannot be captured."""
        tensors: list[Tensor] = []
        kind = _kind((args, kwargs), tensors), mode.enabled
        if not _runtime.loaded() or _runtime.capturing() or not all(t.is_cuda for t in tensors):
            return self._otherwise(*args, **kwargs)
        found = self._kinds.get(kind, 0)
        if isinstance(found, _Captured):
            self._kinds.move_to_end(kind)
            try:
                return found.replay(tensors)
            except _runtime.StaleGraph:
                found = WARM_UPS  # the optimizer's step is another one now
        if self._stream is None:
            self._stream, self._pool = Stream(), graph_pool_handle()
        if found < WARM_UPS:
            result = self._aside(args, kwargs)
            self._kinds[kind] = found + 1
            return result
        made = _Captured(self._function, args, kwargs, tensors, self._pool, self._stream)
        self._kinds[kind] = made
        if len(self._kinds) > GRAPHS:
            self._kinds.popitem(last=False)
        return made.replay(tensors)

    def _aside(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Any:
        """A call on the stream of the captures, as theirs will be."""
        outer = current_stream()
        assert self._stream is not None
        self._stream.wait_stream(outer)
        with stream(self._stream):
            result = self._function(*args, **kwargs)
        outer.wait_stream(self._stream)
        for t in _tensors(result, []):
            t.record_stream(outer)
        return result


class _Captured:
    """A graph of one kind of arguments, its inputs and its results."""

    def __init__(
        self,
        function: Call,
        args: tuple[object, ...],
        kwargs: dict[str, object],
        tensors: list[Tensor],
        pool: object,
        where: Stream,
    ) -> None:
        with no_grad():
            self.inputs = [t.detach().clone().requires_grad_(t._requires_grad) for t in tensors]
        args, kwargs = _replaced((args, kwargs), iter(self.inputs))
        self.graph = CUDAGraph()
        name = getattr(function, "__qualname__", type(function).__name__)
        try:
            with graph(self.graph, pool, where):
                result = function(*args, **kwargs)
        except RuntimeError as error:
            error.add_note(
                f"while {name} was captured as one graph (engine.compile, mode='reduce-overhead'): nothing inside may "
                "wait for the GPU or read its results"
            )
            raise
        self.result = _replaced(result, iter([t.detach() for t in _tensors(result, [])]))

    def replay(self, tensors: list[Tensor]) -> Any:
        """Write the inputs, launch; the results."""
        with no_grad():
            for target, value in zip(self.inputs, tensors):
                if target.data_ptr() != value.data_ptr():
                    target.detach().copy_(value.detach())
        self.graph.replay()
        return self.result


def _kind(value: object, tensors: list[Tensor]) -> Hashable:
    """Return the key of a graph for an argument (shapes, dtypes, devices, plain values); append its Tensors to
    `tensors`."""
    if isinstance(value, Tensor):
        tensors.append(value)
        array = value._array
        where = backends.of_array(array).device_of(array)
        return array.shape, array.dtype, where, value._requires_grad
    if isinstance(value, tuple | list):
        return type(value), *[_kind(v, tensors) for v in value]
    if isinstance(value, dict):
        return tuple([(k, _kind(v, tensors)) for k, v in value.items()])
    try:
        hash(value)
    except TypeError:
        return id(value)
    return type(value), value


def _tensors(value: object, found: list[Tensor]) -> list[Tensor]:
    _kind(value, found)
    return found


def _replaced(value: Any, tensors: Iterator[Tensor]) -> Any:
    """Nested values with the next of `tensors` for each Tensor, in the order of `_kind`."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[_replaced(v, tensors) for v in value])
    if isinstance(value, tuple | list):
        return type(value)([_replaced(v, tensors) for v in value])
    if isinstance(value, dict):
        return {k: _replaced(v, tensors) for k, v in value.items()}
    return value
