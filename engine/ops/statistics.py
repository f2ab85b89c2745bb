"""Norms of differences, histograms, quantiles, covariance."""

from __future__ import annotations

import builtins
import math
import warnings
from typing import Any, NamedTuple

from engine import backends
from engine.autograd.graph import name_node, requires_grad_of
from engine.autograd.inplace import check_writable
from engine.autograd.versions import guard
from engine.core import dtypes
from engine.core.checks import wrap_dim, wrap_dims
from engine.core.grad_mode import mode
from engine.core.tensor_messages import outside
from engine.dispatch import PUBLIC, composite, op, samples
from engine.dispatch.out import store
from engine.ops.extremes import take_along
from engine.ops.linalg.norms import linalg_vector_norm
from engine.ops.pointwise.arithmetic import not_implemented, refuse
from engine.ops.sorting import sort
from engine.tensor import Tensor, wrap

# --- norms


@composite(out_as="graph")
@samples(
    lambda t: [
        (t(3, 4),),
        (t(3, 4), 1),
        (t(3, 4), "fro", (0, 1), True),
        (t(3, 4), 3, 1),
        (t(3, 4), math.inf, 0),
    ]
)
def norm(input, p="fro", dim=None, keepdim=False, out=None, dtype=None):
    """The p-norm over `dim` (None: of all elements); "fro" the 2-norm, "nuc" the sum of singular values.

    input (*) -> (* without dim).
    """
    if not isinstance(input, Tensor):
        raise TypeError(f"norm(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    if p is None or p == "fro":
        p = 2.0
    elif p == "nuc":
        if out is not None:
            return store(out, "norm", norm, input, p, dim, keepdim, dtype=dtype)
        return _nuclear(input if dtype is None else input.to(dtype), dim, keepdim)
    elif isinstance(p, str):
        raise RuntimeError(f"linalg.matrix_norm: Order {p} not supported.")
    if isinstance(dim, tuple | list):
        dim = tuple(dim) or None
    return linalg_vector_norm(input, p, dim, keepdim, dtype=dtype, out=out)


def _nuclear(input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    dims = wrap_dims((-2, -1) if dim is None else dim, input._array.ndim)
    if len(dims) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {', '.join(map(str, dims))}")
    matrix = input.movedim(dims, (-2, -1))
    found = PUBLIC["svd"](matrix)[1].sum(-1)
    if keepdim:
        for d in builtins.sorted(dims):
            found = found.unsqueeze(d)
    return found


@composite()
@samples(lambda t: [(t(3, 4), t(3, 4)), (t(3, 4), t(4), 1)])
def dist(input: Tensor, other: Tensor, p: complex = 2):
    """The p-norm of input - other.  input (*a), other (*b) -> ()."""
    gap = input - other
    if gap._array.dtype.kind in "iub":
        raise RuntimeError(
            f"norm(): input dtype should be either floating point or complex. Got {dtypes.scalar_name(gap.dtype)} "
            "instead."
        )
    return guard(name_node(linalg_vector_norm(gap, p), "DistBackward0"), input, other)


def _renorm_factor(input: Tensor, p: Any, dim: int, maxnorm: Any) -> Tensor:
    ndim = input._array.ndim
    if p <= 0:
        raise RuntimeError("renorm: non-positive-norm not supported")
    if maxnorm < 0:
        raise RuntimeError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm:g}")
    if ndim < 2:
        raise RuntimeError(f"renorm: input needs at least 2 dimensions, got {ndim} dimensions")
    axis = wrap_dim(dim, ndim)
    size = linalg_vector_norm(input, p, tuple(d for d in range(ndim) if d != axis), True)
    return PUBLIC["where"](size > maxnorm, maxnorm / (size + 1e-7), 1.0)


@composite()
@samples(lambda t: [(t(3, 4), 2, 0, 1.0), (t(2, 3, 4), 1, 1, 2.5)])
def renorm(input: Tensor, p: complex, dim: int, maxnorm: complex, *, out=None):
    """Each slice along `dim` scaled down to a p-norm of at most `maxnorm`.  input (*) -> (*)."""
    if out is not None:
        return store(out, "renorm", renorm, input, p, dim, maxnorm)
    return name_node(input * _renorm_factor(input, p, dim, maxnorm), "RenormBackward0")


@composite(public=False)
def renorm_(input: Tensor, p: complex, dim: int, maxnorm: complex):
    """In place: see `renorm`."""
    if not (mode.enabled and requires_grad_of(input)):
        return input.mul_(_renorm_factor(input, p, dim, maxnorm))
    check_writable(input)
    return name_node(input.copy_(renorm(input.clone(), p, dim, maxnorm)), "RenormBackward0")  # its formulas read input


# --- counts


@op(tensors=("weights",), size_by_values=True)
@samples(
    lambda t: [
        (t.integers(0, 5, 9),),
        (t.integers(0, 5, 9), None, 8),
        (t.integers(0, 5, 9), t.constant(t(9))),
    ]
)
def bincount(xp, input, weights=None, minlength: int = 0):
    """Count the occurrences of each number, or sum its `weights`. input (n) not negative, weights (n) -> (max + 1)."""
    if input.dtype.kind not in "iu":
        raise not_implemented("bincount_cpu", input)
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if input.ndim != 1 or (input.size and (input < 0).any()):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is not None and weights.shape != input.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    found = xp.bincount(input, weights, minlength)
    if weights is None:
        return found.astype("int64")
    return found.astype(weights.dtype if weights.dtype == "float32" else "float64")


def range_of(input: Any, low: float, high: float) -> tuple[float, float]:
    """The range of a histogram: that of the values where low == high."""
    if low == high and input.size:
        low, high = float(input.min()), float(input.max())
    if low == high:
        low, high = low - 1, high + 1
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"torch.histc: range of [{low}, {high}] is not finite".replace("torch.histc", "histc"))
    if low > high:
        raise RuntimeError("torch.histc: max must be larger than min")
    return low, high


def _histogram(xp: Any, input: Any, bins: int, low: float, high: float, weights: Any = None) -> Any:
    values = input.reshape(-1).astype("float64")
    inside = (values >= low) & (values <= high)
    place = xp.minimum(((values[inside] - low) / (high - low) * bins).astype("int64"), bins - 1)
    if weights is not None:
        weights = weights.reshape(-1)[inside]
    return xp.bincount(place, weights, bins).astype(input.dtype)


@op(generated="many")
@samples(lambda t: [(t(9), 5), (t.uniform(0, 4, 9), 4, 0, 4), (t(0), 3)])
def histc(xp, input, bins: int = 100, min: complex = 0, max: complex = 0):
    """Counts in `bins` equal intervals of [min, max] (of the values where both are 0).  input (*) -> (bins)."""
    if input.dtype.kind not in "fV":
        raise not_implemented("histogram_cpu", input)
    if bins <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")
    return _histogram(xp, input, bins, *range_of(input, min, max))


@composite(several=((1, 6), (2, 5)), arrays=True, recorded="arrays")
@samples(lambda t: [(t.constant(t(9)), 5), (t.constant(t(9)), 4, {"range": (-1, 1), "density": True})])
def histogram(
    input: Tensor,
    bins: Tensor | int = 100,
    *,
    range: tuple[float, ...] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
    out=None,
) -> Any:
    """(hist, bin_edges): counts, or a density, in `bins` equal intervals or between given edges.

    input (*) -> (bins), (bins + 1).
    """
    if out is not None:
        return store(out, "histogram", histogram, input, bins, range=range, weight=weight, density=density)
    array = input._array
    if isinstance(bins, Tensor) and bins.dim() != 1:
        if bins.dim() or bins.dtype.category >= dtypes.FLOATING:
            raise RuntimeError(
                f"torch.histogramdd(): bins tensor should have one dimension, but got {bins.dim()} dimensions in the "
                "bins tensor for dimension 0"
            )
        bins = int(bins)
    if isinstance(bins, int) and bins <= 0:
        raise RuntimeError(f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")
    refuse("histogramdd" if isinstance(bins, Tensor) else "histogram_cpu", array, "iubc")
    xp = backends.xp_of(array)
    heights = None if weight is None else weight._array
    if isinstance(bins, Tensor):
        edges = bins._array
        place = xp.searchsorted(edges, array.reshape(-1), side="right") - 1
        place = xp.where(array.reshape(-1) == edges[-1], edges.shape[0] - 2, place)
        inside = (place >= 0) & (place < edges.shape[0] - 1)
        heights = None if heights is None else heights.reshape(-1)[inside]
        counts = xp.bincount(place[inside], heights, edges.shape[0] - 1).astype(array.dtype)
    else:
        low, high = range if range is not None else (0, 0)
        if low == high and array.size and input.device.type != "meta":
            low, high = float(array.min()), float(array.max())
        if low == high:
            low, high = (low - 0.5, high + 0.5) if array.size else (0, 1)
        low, high = range_of(array, low, high)
        edges = xp.linspace(low, high, bins + 1).astype(array.dtype)
        counts = _histogram(xp, array, bins, low, high, heights)
    if density:
        counts = counts / (xp.diff(edges) * counts.sum())
    return _Histogram(wrap(counts), wrap(edges))


@composite(method=False, arrays=True, recorded="arrays")
@samples(
    lambda t: [
        (t.constant(t(9, 2)), [3, 2]),
        (t.constant(t(9, 2)), 2, {"range": [-1, 1, -2, 2], "density": True}),
    ]
)
def histogramdd(input: Tensor, bins, *, range=None, weight: Tensor | None = None, density: bool = False) -> Any:
    """(hist, bin_edges): points counted, or their density, in a grid of intervals.

    input (*, n), bins n numbers or one, or n tensors of edges -> (bins 0, ..., bins n - 1), n of (bins + 1).
    """
    array = input._array
    if array.ndim < 2:
        raise RuntimeError(f"torch.histogramdd: input tensor should have at least 2 dimensions, but got {array.ndim}")
    refuse("histogramdd", array, "iubc")
    points = array.reshape(-1, array.shape[-1])
    n = points.shape[1]
    given = [bins] * n if isinstance(bins, int) else list(bins)
    if len(given) != n:
        raise RuntimeError("torch.histogramdd: The size of bins must be equal to the innermost dimension of the input.")
    limits = None if range is None else list(zip(range[::2], range[1::2]))
    xp = backends.xp_of(array)
    hist, edges = xp.histogramdd(
        points,
        [b._array if isinstance(b, Tensor) else b for b in given],
        limits,
        weights=None if weight is None else weight._array.reshape(-1),
        density=density,
    )
    kind = array.dtype
    return _Histogram(wrap(hist.astype(kind)), tuple(wrap(e.astype(kind)) for e in edges))


class _Histogram(NamedTuple):
    """The counts and the edges of the bins."""

    hist: Tensor
    bin_edges: Any


# --- quantiles


_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


@backends.follows
def _quantile(name: str, input: Tensor, q: Any, dim: Any, keepdim: bool, interpolation: str, skip: bool) -> Tensor:
    kind = input._array.dtype
    if kind not in ("float32", "float64"):
        raise RuntimeError("quantile() input tensor must be either float or double dtype")
    xp = backends.xp_of(input._array)
    if isinstance(q, Tensor):
        if q._array.ndim > 1:
            raise RuntimeError("quantile() q must be a scalar or 1D tensor")
        if q._array.dtype != kind:
            raise RuntimeError("quantile() q tensor must be same dtype as the input tensor")
        points = q._array
    else:
        if not 0 <= q <= 1:
            raise RuntimeError(f"quantile() q must be in the range [0, 1] but got {q:g}")
        points = xp.asarray(q, kind)
    if isinstance(q, Tensor) and q.device.type != "meta" and bool(((points < 0) | (points > 1)).any()):
        raise RuntimeError("quantile() q values must be in the range [0, 1]")
    if interpolation not in _INTERPOLATIONS:
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {interpolation}"
        )
    if not input._array.size:
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    ndim = input._array.ndim
    axis = None if dim is None else wrap_dim(dim, ndim)
    rows = input.reshape(-1) if axis is None or not ndim else input.movedim(axis, -1)
    values = sort(rows, -1)[0]
    array = values._array
    n = array.shape[-1]
    flat_points = points.reshape(-1)
    nans = (array != array).sum(axis=-1, keepdims=True)
    if skip:
        ranks = flat_points * xp.maximum(n - nans - 1, 0).astype(kind)
    else:
        ranks = xp.where(nans > 0, kind.type(n - 1), flat_points * kind.type(n - 1))
    if interpolation in ("lower", "higher", "nearest"):
        ranks = {"lower": xp.floor, "higher": xp.ceil, "nearest": xp.rint}[interpolation](ranks)
    low = wrap(ranks.astype("int64"))
    found = take_along(values, low, -1)
    if interpolation in ("linear", "midpoint"):
        share = wrap(xp.full_like(ranks, 0.5) if interpolation == "midpoint" else ranks - ranks.astype("int64"))
        share = share.to(values.dtype)
        if interpolation == "linear" and isinstance(q, Tensor) and q.requires_grad:
            counts = xp.maximum(n - nans - 1, 0) if skip else xp.where(nans > 0, 0, n - 1)
            moved = q.reshape(-1)
            share = share + (moved - moved.detach()) * wrap(counts.astype(kind))
        high = wrap(xp.ceil(ranks).astype("int64"))
        found = found.lerp(take_along(values, high, -1), share)
    found = found.movedim(-1, 0)  # (points, rows...)
    if keepdim and ndim:
        shape = [1] * ndim if axis is None else [1 if d == axis else s for d, s in enumerate(input._array.shape)]
        found = found.reshape((flat_points.shape[0], *shape))
    found = found if points.ndim else found.squeeze(0)
    return name_node(found, "SqueezeBackward4")  # torch takes the last dim away in place


@composite(several=((2, 6), (2, 6)), autocast={"cpu": "float32"}, out_as="graph")
@samples(
    lambda t: [
        (t.distinct(9), 0.3),
        (t.distinct(3, 5), 0.5, 1, True),
        (t.distinct(3, 5), t.of([0.1, 0.9]), 0),
        (t.distinct(9), 0.3, {"interpolation": "nearest"}),
    ]
)
def quantile(
    input: Tensor,
    q: Tensor | float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    out=None,
):
    """The q-th quantiles (q in [0, 1]) along `dim`, or of all elements.

    input (*), q () or (k) -> (k, * without dim).
    """
    if out is not None:
        return store(out, "quantile", quantile, input, q, dim, keepdim, interpolation=interpolation)
    return _quantile("quantile", input, q, dim, keepdim, interpolation, False)


@composite(several=((2, 6), (2, 6)), autocast={"cpu": "float32"}, out_as="graph")
@samples(lambda t: [(t.distinct(9), 0.3), (t.distinct(3, 5), t.of([0.1, 0.9]), 0)])
def nanquantile(
    input: Tensor,
    q: Tensor | float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    out=None,
):
    """`quantile` of what is not nan.  input (*), q () or (k) -> (k, * without dim)."""
    if out is not None:
        return store(out, "nanquantile", nanquantile, input, q, dim, keepdim, interpolation=interpolation)
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation, True)


# --- covariance


def _check_weights(w: Tensor, name: str, count: int) -> None:
    """RuntimeError unless `w` holds one number, not below 0, of a kind for each of `count` observations."""
    kinds, kind = ("iu", "integral") if name == "fweights" else ("fV", "floating point")
    if w._array.ndim > 1:
        raise RuntimeError(
            f"cov(): expected {name} to have one or fewer dimensions but got {name} with {w._array.ndim} dimensions"
        )
    if w._array.dtype.kind not in kinds:
        raise RuntimeError(
            f"cov(): expected {name} to have {kind} dtype but got {name} with {dtypes.scalar_name(w.dtype)} dtype"
        )
    if w._array.size != count:
        raise RuntimeError(
            f"cov(): expected {name} to have the same numel as there are observations in the input but got "
            f"{w._array.size} != {count}"
        )
    if w.device.type != "meta" and w._array.size and builtins.bool((w._array < 0).any()):
        raise RuntimeError(f"cov(): {name} cannot be negative")


@composite(arrays=True)
@samples(lambda t: [(t(3, 5),), (t(5), {"correction": 0}), (t(2, 4), {"fweights": t.of([1, 2, 3, 1])})])
def cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None):
    """The covariance matrix of variables in rows.

    input (variables, observations) or (observations) -> (variables, variables).
    """
    if input._array.ndim > 2:
        raise RuntimeError(
            f"cov(): expected input to have two or fewer dimensions but got an input with {input._array.ndim} "
            "dimensions"
        )
    if input._array.dtype.kind == "b":
        raise RuntimeError("cov(): bool dtype is not supported for input")
    if input._array.dtype.kind in "iu":
        input = input.to(dtypes.get_default_dtype())
    rows = input if input._array.ndim == 2 else input.reshape(1, -1)
    n = rows._array.shape[1]
    weights = None
    for w, name in ((fweights, "fweights"), (aweights, "aweights")):
        if w is not None:
            _check_weights(w, name, n)
            weights = w if weights is None else weights * w
    if weights is None:
        total: Any = n
        center = rows.mean(1, True) if n else rows.sum(1, True)
    else:
        total = weights.sum()
        if total.device.type != "meta" and not total:
            raise RuntimeError("cov(): weights sum to zero, can't be normalized")
        center = (rows * weights).sum(1, True) / total
    if aweights is None or not correction:
        factor = total - correction
    else:
        factor = total - correction * (weights * aweights).sum() / total
    gap = rows - center
    weighted = gap if weights is None else gap * weights
    found = PUBLIC["matmul"](weighted, gap.to(weighted.dtype).conj().transpose(0, 1))
    if isinstance(factor, Tensor) and factor.is_complex():
        factor = factor.real
    if not (isinstance(factor, Tensor) and factor.is_meta) and factor <= 0:
        warnings.warn(
            "cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations.",
            stacklevel=outside(),
        )
    factor = factor.clamp(min=0) if isinstance(factor, Tensor) else builtins.max(factor, 0)
    return guard((found / factor).squeeze(), fweights)


@composite()
@samples(lambda t: [(t(3, 5),)])
def corrcoef(input: Tensor):
    """The correlation matrix of variables in rows.  input (variables, observations) -> (variables, variables)."""
    c = cov(input)
    if not c._array.ndim:
        return c / c
    d = c.diagonal()
    scale = (d.real if c.is_complex() else d).sqrt()
    found = c / scale.unsqueeze(1) / scale.unsqueeze(0)
    return found if c.is_complex() else found.clamp(-1, 1)
