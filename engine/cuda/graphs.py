"""torch.cuda.graphs: a sequence of kernels recorded once and launched at one go.

    static = torch.zeros(64, 10, device="cuda")
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        result = model(static)
    static.copy_(batch)
    g.replay()              # `result` has the answer for `batch`

Note [Captured graphs]
While a stream captures, nothing is computed: launches are recorded with the addresses of their operands.  So memory
that the block allocates comes from a pool of the graph's own, which nobody else is given as long as the graph lives;
inputs are written into the same tensors before each replay; and nothing inside may wait for the GPU (`item()`,
`tolist()`, printing, `nonzero()`, copies to or from the host): that raises, and the capture is given up.  Work that
CuPy refuses in a capture (cuBLAS by its own wrapper, for complex numbers) raises as well.  Random numbers are others at
each replay, those of the same draws without a graph: Note [Random numbers in graphs] in engine/ops/random/cuda.py.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.cuda._device import library, runtime
from engine.cuda.streams import Stream, current_stream, stream

__all__ = ["CUDAGraph", "graph", "graph_pool_handle", "is_current_stream_capturing", "make_graphed_callables"]


def is_current_stream_capturing() -> bool:
    """Return whether the current stream records a graph; False before a GPU is used."""
    from engine.backends.cuda import runtime as quiet

    return quiet.capturing()


def graph_pool_handle() -> Any:
    """A pool that several graphs may share, if they are replayed in the order of their capture."""
    return library().cuda.MemoryPool()


class CUDAGraph:
    """A recorded graph.  RuntimeError without a GPU."""

    def __init__(self, keep_graph: bool = False) -> None:
        library()
        self._graph: Any = None
        self._pool: Any = None
        self._inside: Any = None
        self._held: list[Any] = []
        self._recording: Any = None  # `runtime.Recording`

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        """Record from here on what the current stream is given.  RuntimeError on the default stream."""
        here = library().cuda.get_current_stream()
        if here.ptr == 0:
            raise RuntimeError(
                "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them "
                "on the default stream.)"
            )
        if here.is_capturing():
            raise RuntimeError("the current stream is capturing already; graphs do not nest")
        if isinstance(pool, CUDAGraph):
            pool = pool.pool()
        self._pool = library().cuda.MemoryPool() if pool is None else pool
        self._held = []
        self._inside = runtime().memory.private(self._pool, self._held)
        self._inside.__enter__()
        self._recording = runtime().memory.recording()
        try:
            here.begin_capture()
        except BaseException:
            self._inside.__exit__(None, None, None)
            raise

    def capture_end(self) -> None:
        """End the recording."""
        if self._inside is None:
            raise RuntimeError("capture_end() without capture_begin()")
        inside, self._inside = self._inside, None
        try:
            self._graph = library().cuda.get_current_stream().end_capture()
        finally:
            inside.__exit__(None, None, None)

    def replay(self) -> None:
        """Launch the recorded work on the current stream."""
        if self._graph is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        undo: list[Callable[[], None]] = []
        try:
            for step in self._recording.before:
                undo.append(step())
        except BaseException:
            for back in reversed(undo):
                back()
            raise
        for generator, (state, blocks) in self._recording.drawn.items():
            seed, first = generator.take(blocks * 4)
            state[:1], state[1:] = np.uint64(seed), np.uint64(first)
        self._graph.launch()

    def reset(self) -> None:
        """Forget what was recorded, and its memory."""
        self._graph = self._pool = None
        self._held, self._recording = [], None

    def pool(self) -> Any:
        """The pool of the graph's memory, for `graph(..., pool=...)` of another."""
        return self._pool


class graph:
    """A context whose GPU work is recorded into `cuda_graph`, on a stream of its own.  Note [Captured graphs]."""

    default_capture_stream: Stream | None = None

    def __init__(
        self, cuda_graph: CUDAGraph, pool: Any = None, stream: Stream | None = None, capture_error_mode: str = "global"
    ) -> None:
        self.cuda_graph, self._pool_given = cuda_graph, pool
        self._stream = stream
        self._context: Any = None

    def __enter__(self) -> None:
        self.capture_stream = self._stream or Stream()
        outer = current_stream()
        library().cuda.Device().synchronize()
        gc.collect()
        self.capture_stream.wait_stream(outer)
        self._context = stream(self.capture_stream)
        self._context.__enter__()
        try:
            self.cuda_graph.capture_begin(self._pool_given)
        except BaseException:
            self._context.__exit__(None, None, None)
            raise

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self.cuda_graph.capture_end()
        except RuntimeError:
            if error is None:  # else the block's own error is the one to tell
                raise
        finally:
            if error is not None:
                self.cuda_graph.reset()
            self._context.__exit__(kind, error, trace)


def make_graphed_callables(
    callables: Any, sample_args: Any, num_warmup_iters: int = 3, allow_unused_input: bool = False, pool: Any = None
) -> Any:
    """Functions or Modules whose forward and backward are replays of graphs, for inputs like `sample_args`.

    One callable with a tuple of Tensors, or tuples of both.  Inputs keep their shapes, dtypes and `requires_grad`;
    results are overwritten by the next call.  A Module without hooks keeps its parameters; in the other mode
    (train, eval) than at capture it computes as before.
    """
    single = not isinstance(callables, tuple)
    functions = (callables,) if single else callables
    samples = (sample_args,) if single else sample_args
    pool = graph_pool_handle() if pool is None else pool
    made = tuple(
        _graphed(function, tuple(args), num_warmup_iters, allow_unused_input, pool)
        for function, args in zip(functions, samples, strict=True)
    )
    return made[0] if single else made


def _graphed(function: Any, args: tuple, warmups: int, allow_unused: bool, pool: Any) -> Any:
    from engine.nn.modules.module import Module

    parameters: tuple = ()
    if isinstance(function, Module):
        if function._forward_hooks or function._forward_pre_hooks or function._backward_hooks:
            raise RuntimeError("Modules must not have hooks registered at the time they are passed.")
        parameters = tuple(p for p in function.parameters() if p.requires_grad)
    replaying = _Graphed(function, args, parameters, warmups, allow_unused, pool)
    if not isinstance(function, Module):
        return replaying
    plain, training = function.forward, function.training

    def forward(*given: Any, **options: Any) -> Any:
        return replaying(*given) if function.training == training and not options else plain(*given, **options)

    function.forward = forward  # type: ignore[method-assign]
    return function


class _Graphed:
    """One callable's two graphs and the tensors they read and write."""

    def __init__(
        self, function: Callable[..., Any], args: tuple, parameters: tuple, warmups: int, allow_unused: bool, pool: Any
    ) -> None:
        from engine.autograd import grad

        self.args = tuple(a.detach().clone().requires_grad_(a.requires_grad) for a in args)
        self.wanted = tuple(a for a in self.args if a.requires_grad) + parameters
        self.parameters = parameters
        side = Stream()
        side.wait_stream(current_stream())
        with stream(side):
            for _ in range(warmups):
                results = self._results(function)
                needing = [r for r in results if r.requires_grad]
                if needing and self.wanted:
                    grad(needing, self.wanted, [r.detach().clone() for r in needing], allow_unused=allow_unused)
            del results
        current_stream().wait_stream(side)
        self.forward, self.backward = CUDAGraph(), CUDAGraph()
        with graph(self.forward, pool, side):
            self.results = self._results(function)
        self.grads: tuple = ()
        self.incoming: tuple = ()
        needing = [r for r in self.results if r.requires_grad]
        self.differentiable = bool(needing and self.wanted)
        if self.differentiable:
            self.incoming = tuple(r.detach().clone() for r in needing)
            with graph(self.backward, pool, side):
                self.grads = tuple(grad(needing, self.wanted, self.incoming, allow_unused=allow_unused))
        self.needing = [r.requires_grad for r in self.results]
        self.results = tuple(r.detach() for r in self.results)
        self.function = self._function()

    def _results(self, function: Callable[..., Any]) -> tuple:
        found = function(*self.args)
        self.single = not isinstance(found, tuple | list)
        return (found,) if self.single else tuple(found)

    def _function(self) -> Any:
        from engine.autograd import Function

        me = self

        class Graphed(Function):
            """Replays the forward graph; backward replays the other."""

            @staticmethod
            def forward(ctx: Any, *given: Any) -> Any:
                me.feed(me.args, given[: len(me.args)])
                me.forward.replay()
                return tuple(r.detach() for r in me.results)

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                me.feed(me.incoming, [g for g, needed in zip(grads, me.needing) if needed])
                me.backward.replay()
                found = iter(me.grads)
                by_input = [next(found) if a.requires_grad else None for a in me.args]
                return tuple(g if g is None else g.detach() for g in (*by_input, *found))

        return Graphed

    @staticmethod
    def feed(targets: Any, values: Any) -> None:
        """Write values into the tensors that the graph reads."""
        from engine.core.grad_mode import no_grad

        with no_grad():
            for target, value in zip(targets, values):
                if value is None:
                    target.detach().zero_()
                elif target.shape != value.shape or target.dtype is not value.dtype:
                    raise RuntimeError(
                        f"the graph was captured for {tuple(target.shape)} ({target.dtype}), and is given "
                        f"{tuple(value.shape)} ({value.dtype})"
                    )
                elif target.data_ptr() != value.data_ptr():
                    target.detach().copy_(value.detach())

    def __call__(self, *given: Any) -> Any:
        if self.differentiable:
            results = self.function.apply(*given, *self.parameters)
        else:
            self.feed(self.args, given)
            self.forward.replay()
            results = self.results
        results = results if isinstance(results, tuple) else (results,)
        return results[0] if self.single else results
