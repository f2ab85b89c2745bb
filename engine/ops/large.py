"""How ops run on large CPU arrays: in blocks, on a few threads, results in memory from a cache.

Imported at the first large array.  Ops that broadcast are pointwise; the others that are stand in `POINTWISE`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from engine._checks import wrap_dims
from engine.backends.cpu.blocks import pointwise
from engine.backends.cpu.fast import Steps, fast
from engine.backends.cpu.reduce import reduced, rows
from engine.dispatch import Op
from engine.layouts import Laid, plain
from engine.ops.reduction import int64_if_integer, summed_dims, wide

__all__ = ["DIRECT", "POINTWISE", "ROWS", "kernel_of"]

# Each element of the result depends on the same element of each operand, and on numbers.
POINTWISE = frozenset(
    """
    keep_where neg positive square reciprocal sqrt rsqrt isnan isinf isfinite isposinf isneginf isreal close_within
    clamp_numbers clamp_min clamp_max where_tensors nan_to_num bitwise_not logical_not
    exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh asinh acosh atanh deg2rad rad2deg sinc
    abs sign sgn signbit floor ceil trunc round frac angle conjugate
    erf erfc erfinv special_erfcx special_ndtri special_log_ndtr special_entr logit
    lgamma digamma i0 special_i0e special_i1 special_i1e
    tanh_backward tanh sigmoid_backward sigmoid threshold_backward relu threshold leaky_relu_backward leaky_relu
    elu_backward elu silu_backward silu mish_backward mish gelu_backward gelu softplus_backward softplus logsigmoid
    inside_backward outside_backward hardtanh hardsigmoid hardswish_backward hardswish hardshrink softshrink
    masked_fill_value plus_noisy
    """.split()
)

# In place: no operand is read after the step that makes the result.
DIRECT = frozenset(
    """
    add sub mul div neg square sqrt rsqrt reciprocal abs exp log tanh relu clamp_min clamp_max maximum minimum addcmul
    addcdiv floor ceil trunc sin cos
    """.split()
)

# Results for one index of a dim that is not `dim` depend on nothing else.
ROWS = frozenset(
    """
    softmax_backward softmax log_softmax_backward log_softmax logsumexp var_of std_of max_dim min_dim argmax argmin
    prod_dim cumsum cumprod median_dim sort argsort
    """.split()
)


def kernel_of(record: Op) -> Callable[..., Any]:
    """The kernel of an op for large arrays: `kernel(xp, *args, into=None, **options)`.

    `into` is the target of an in-place op; a kernel that writes there returns it.
    """
    if record.name == "clone":
        return _clone(record)
    if record.broadcast or record.name in POINTWISE:
        return pointwise(record.kernel, fast, record.name in DIRECT)
    special = _REDUCTIONS.get(record.name)
    in_rows = record.name in ROWS

    def large(xp: Any, *args: Any, into: Any = None, **options: Any) -> Any:
        found = NotImplemented
        if special is not None and args[0].ndim:
            given = [a.view(np.ndarray) if type(a) is Laid else a for a in args]
            found = special(*given, **options)
            if found is not NotImplemented:
                return found
        if not record.laid or "onednn" in record.kernels:
            args = tuple([[plain(x) for x in a] if type(a) is list else plain(a) for a in args])
            options = {name: plain(value) for name, value in options.items()}
        if in_rows:
            found = _in_rows(record, args, options)
        return record.kernel(fast, *args, **options) if found is NotImplemented else found

    return large


def _clone(record: Op) -> Callable[..., Any]:
    copied = pointwise(lambda xp, input: input if isinstance(xp, Steps) else record.kernel(xp, input), fast)

    def clone(xp: Any, input: Any, *, memory_format: Any = None, into: Any = None) -> Any:
        if memory_format is not None:
            return record.kernel(fast, input, memory_format=memory_format)
        return copied(xp, input)

    return clone


def _in_rows(record: Op, args: tuple, options: dict) -> Any:
    dim = options.get("dim", record.defaults.get("dim"))
    if "dim" in record.positional:
        at = record.positional.index("dim")
        dim = args[at] if at < len(args) else dim
    ndim = args[0].ndim
    if dim is None or dim == ():
        return NotImplemented
    try:
        dims = tuple(wrap_dims(dim, ndim))
    except (IndexError, RuntimeError, TypeError):
        return NotImplemented  # the kernel says it better
    return rows(record.kernel, fast, args, options, dims)


def _sum(input: Any, dim: Any = None, keepdim: Any = False, *, dtype: Any = None) -> Any:
    if dtype is not None or wide(input) is not None:
        return NotImplemented
    dims = None if dim is None else tuple(wrap_dims(dim, input.ndim))
    return reduced(np.add, input, dims, keepdim, int64_if_integer(input))


def _mean(input: Any, dim: Any = None, keepdim: Any = False, *, dtype: Any = None) -> Any:
    if dtype is not None or wide(input) is not None or input.dtype.kind not in "fc":
        return NotImplemented
    found = _sum(input, dim, keepdim)
    return np.true_divide(found, found.dtype.type(input.size // max(1, found.size)))


def _sum_to_size(input: Any, size: Any) -> Any:
    if wide(input) is not None:
        return NotImplemented
    lead, ones = summed_dims(input.shape, size)
    if not lead and not ones:
        return NotImplemented
    to = input.dtype if int64_if_integer(input) else None
    return reduced(np.add, input, lead + ones, True, to).reshape(size)


def _extreme(ufunc: np.ufunc) -> Callable[..., Any]:
    def extreme(input: Any, dim: Any = None, keepdim: Any = False) -> Any:
        if input.dtype.kind == "c":
            return NotImplemented
        dims = None if dim is None or dim == () else tuple(wrap_dims(dim, input.ndim))
        return reduced(ufunc, input, dims, keepdim)

    return extreme


_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": _sum, "mean": _mean, "sum_to_size": _sum_to_size, "amax": _extreme(np.maximum),
    "amin": _extreme(np.minimum), "max_all": _extreme(np.maximum), "min_all": _extreme(np.minimum),
}  # fmt: skip
