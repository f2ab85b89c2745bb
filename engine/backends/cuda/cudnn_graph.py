"""Convolution and attention as graphs of cudnn-frontend: described once, planned, cached, and run with addresses.

`describe` makes a graph and validates it, which needs no GPU; `Plan` builds what executes.  Arrays go in as they lie,
by their strides: channels-last convolutions, heads that are views of one packed projection.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.backends import cudnn as settings
from engine.backends.cuda import runtime
from engine.backends.cuda.cudnn import Cudnn, Unsupported

__all__ = ["Attention", "Convolution", "Layout", "Plan", "describe", "layout", "run"]

X, W, Y, BIAS = 1, 2, 3, 4  # uids of a convolution
Q, K, V, O, STATS, MASK, D_O, D_Q, D_K, D_V = range(1, 11)  # of attention
ALIGNMENT = 16  # bytes: what the frontend says of every tensor
_NAMES = {"float16": "HALF", "bfloat16": "BFLOAT16", "float32": "FLOAT"}


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes, and strides in elements."""

    dims: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Convolution:
    """kind: "forward" (x, w -> y), "input" (y, w -> x) or "weight" (x, y -> w).  A bias is added by "forward" alone."""

    kind: str
    type: str
    x: Layout
    w: Layout
    y: Layout
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    bias: bool
    tf32: bool
    deterministic: bool


@dataclass(frozen=True, slots=True)
class Attention:
    """softmax(q k' scale + mask) v with the logarithms of the softmax's sums, or (backward) its gradients."""

    type: str
    q: Layout
    k: Layout
    v: Layout
    o: Layout
    mask: Layout | None
    grad: Layout | None
    d_q: Layout | None
    d_k: Layout | None
    d_v: Layout | None
    causal: bool
    scale: float
    deterministic: bool


def layout(array: Any, last: bool = False) -> Layout:
    """Return the layout of an array: sizes and strides in elements; last: it is dense and channels-last.

    Dims of size 1 may have any stride in an array, 0 too; here they have the one that a dense array would.
    """
    dims, item = tuple(array.shape), array.itemsize
    strides = [s // item for s in array.strides]
    if last:
        step = 1
        for d in (1, *range(len(dims) - 1, 1, -1), 0):
            strides[d], step = step, step * dims[d]
    else:
        for d in range(len(dims) - 1, -1, -1):
            if dims[d] == 1:
                strides[d] = strides[d + 1] * dims[d + 1] if d + 1 < len(dims) else 1
    return Layout(dims, tuple(strides))


def describe(frontend: Any, handle: Any, problem: Convolution | Attention) -> Any:
    """The graph of a problem, validated."""
    types = frontend.data_type
    io = getattr(types, _NAMES[problem.type])
    wide = types.FLOAT
    graph = frontend.pygraph(io_data_type=io, intermediate_data_type=wide, compute_data_type=wide, handle=handle)

    def given(uid: int, how: Layout, type: Any = io) -> Any:
        return graph.tensor(dim=list(how.dims), stride=list(how.strides), data_type=type, uid=uid)

    def result(tensor: Any, uid: int, how: Layout, type: Any = io) -> None:
        tensor.set_output(True).set_uid(uid).set_dim(list(how.dims)).set_stride(list(how.strides)).set_data_type(type)

    if isinstance(problem, Convolution):
        _convolution(graph, problem, given, result)
    elif problem.grad is None:
        _attention(graph, frontend, problem, given, result)
    else:
        _attention_backward(graph, frontend, problem, given, result)
    graph.validate()
    return graph


def _convolution(graph: Any, p: Convolution, given: Any, result: Any) -> None:
    geometry = {"padding": list(p.padding), "stride": list(p.stride), "dilation": list(p.dilation)}
    if p.kind == "forward":
        made = graph.conv_fprop(image=given(X, p.x), weight=given(W, p.w), **geometry)
        if p.bias:
            channels = p.w.dims[0]
            bias_layout = Layout((1, channels, *(1,) * len(p.stride)), (channels, 1, *(1,) * len(p.stride)))
            made = graph.bias(input=made, bias=given(BIAS, bias_layout))
        result(made, Y, p.y)
    elif p.kind == "input":
        result(graph.conv_dgrad(loss=given(Y, p.y), filter=given(W, p.w), **geometry), X, p.x)
    else:
        result(graph.conv_wgrad(image=given(X, p.x), loss=given(Y, p.y), **geometry), W, p.w)


def _masks(frontend: Any, p: Attention, given: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"attn_scale": p.scale}
    if p.mask is not None:
        found["bias"] = given(MASK, p.mask)
    if p.causal:  # as torch's: the first query sees the first key
        found["diagonal_alignment"] = frontend.diagonal_alignment.TOP_LEFT
        found["diagonal_band_right_bound"] = 0
    return found


def _rows(p: Attention) -> Layout:
    """The sums of the softmax: (N, heads, L, 1)."""
    n, heads, length, _ = p.q.dims
    return Layout((n, heads, length, 1), (heads * length, length, 1, 1))


def _attention(graph: Any, frontend: Any, p: Attention, given: Any, result: Any) -> None:
    q, k, v = given(Q, p.q), given(K, p.k), given(V, p.v)
    o, stats = graph.sdpa(q=q, k=k, v=v, generate_stats=True, **_masks(frontend, p, given))
    result(o, O, p.o)
    result(stats, STATS, _rows(p), frontend.data_type.FLOAT)


def _attention_backward(graph: Any, frontend: Any, p: Attention, given: Any, result: Any) -> None:
    made = graph.sdpa_backward(
        q=given(Q, p.q),
        k=given(K, p.k),
        v=given(V, p.v),
        o=given(O, p.o),
        dO=given(D_O, p.grad),
        stats=given(STATS, _rows(p), frontend.data_type.FLOAT),
        use_deterministic_algorithm=p.deterministic,
        **_masks(frontend, p, given),
    )
    for tensor, uid, how in zip(made, (D_Q, D_K, D_V), (p.d_q, p.d_k, p.d_v)):
        result(tensor, uid, how)


class Plan:
    """An executable graph: the plan that cuDNN's heuristics choose, or with `torch.backends.cudnn.benchmark` the
    fastest."""

    def __init__(self, cudnn: Cudnn, problem: Convolution | Attention, pack: dict[int, int]) -> None:
        fe, handle = cudnn.frontend, cudnn.handle()
        self.index = -1
        try:
            self.graph = graph = describe(fe, handle, problem)
            graph.build_operation_graph()
            graph.create_execution_plans([fe.heur_mode.A, fe.heur_mode.FALLBACK])
            if isinstance(problem, Convolution):
                graph.deselect_numeric_notes([getattr(fe.numerical_note, n) for n in _notes(problem)])
            graph.check_support()
            if settings.benchmark and isinstance(problem, Convolution) and not runtime.capturing():
                graph.build_plans(fe.build_plan_policy.ALL)
                self.index = _fastest(cudnn, graph, pack, handle)
                self.size = int(graph.get_workspace_size_plan_at_index(self.index))
            else:
                graph.build_plans(fe.build_plan_policy.HEURISTICS_CHOICE)
                self.size = int(graph.get_workspace_size())
        except (fe.cudnnGraphNotSupportedError, ValueError, RuntimeError) as error:
            # what has no engine is refused in several ways, and nothing has been computed yet
            if "out of memory" in str(error).lower():
                raise
            raise Unsupported(str(error)) from None

    def execute(self, cudnn: Cudnn, pack: dict[int, int]) -> None:
        """Run on the current stream; pack: the address of every tensor by uid."""
        handle, space = cudnn.handle(), cudnn.workspace(self.size)
        if self.index < 0:
            own = getattr(self.graph, "_execute", None)  # the library's: its Python module's looks at each address
            if own is None:
                self.graph.execute(pack, int(space.data.ptr), handle=handle)
            else:
                own(pack, int(space.data.ptr), handle)
        else:
            self.graph.execute_plan_at_index(pack, int(space.data.ptr), self.index, handle=handle)


def _notes(problem: Convolution) -> list[str]:
    """Kinds of engines that are not wanted: torch's choice."""
    found = ["DOWN_CONVERT_INPUTS"]
    if problem.deterministic:
        found.append("NONDETERMINISTIC")
    if problem.type == "float32" and not problem.tf32:
        found.append("TENSOR_CORE")
    return found


def _fastest(cudnn: Cudnn, graph: Any, pack: dict[int, int], handle: int) -> int:
    """The plan that took the least time, the second time it ran."""
    module = runtime.library()
    count = int(graph.get_execution_plan_count())
    if settings.benchmark_limit:
        count = min(count, int(settings.benchmark_limit))
    best, least = -1, float("inf")
    for index in range(count):
        try:
            space = cudnn.workspace(int(graph.get_workspace_size_plan_at_index(index)))
            for _ in range(2):
                begin, end = module.cuda.Event(), module.cuda.Event()
                begin.record()
                graph.execute_plan_at_index(pack, int(space.data.ptr), index, handle=handle)
                end.record()
            end.synchronize()
        except (RuntimeError, MemoryError):  # this engine cannot, others may
            continue
        took = module.cuda.get_elapsed_time(begin, end)
        if took < least:
            best, least = index, took
    if best < 0:
        raise Unsupported("no engine of cuDNN ran")
    return best


def run(cudnn: Cudnn, problem: Convolution | Attention, arrays: dict[int, Any], key: Any = None) -> bool:
    """Compute a problem with arrays by uid; False where cuDNN has no engine for it.

    key: what the problem was made of, so that `run_again` finds its plan.
    """
    pack = {uid: int(a.data.ptr) for uid, a in arrays.items()}
    full = problem, bool(settings.benchmark) and isinstance(problem, Convolution) and not runtime.capturing()
    plan = cudnn.plan(full, lambda: Plan(cudnn, problem, pack))
    if plan is None:
        return False
    plan.execute(cudnn, pack)
    if key is not None and not settings.benchmark:
        cudnn.known[_full(key)] = weakref.ref(plan)
    return True


def _full(key: Any) -> Any:
    return int(runtime.library().cuda.runtime.getDevice()), key


def run_again(cudnn: Cudnn, key: Any, arrays: dict[int, Any]) -> bool:
    """Compute what `run` did with the same key; False where it did not, or where an array is not aligned."""
    if settings.benchmark:
        return False
    known = cudnn.known.get(_full(key))
    plan = None if known is None else known()
    if plan is None:
        return False
    pack = {uid: a.data.ptr for uid, a in arrays.items()}
    if any(address % ALIGNMENT for address in pack.values()):
        return False
    cudnn.found += 1
    plan.execute(cudnn, pack)
    return True


def spatial(how: Layout) -> Layout:
    """A layout of one spatial dim as that of two: cuDNN has no convolution of one."""
    (n, c, size), (by_n, by_c, by) = how.dims, how.strides
    return Layout((n, c, 1, size), (by_n, by_c, by * size, by))


def each(values: Sequence[int], first: int) -> tuple[int, ...]:
    """The geometry of one spatial dim as that of two."""
    return (first, *values) if len(values) == 1 else tuple(values)
