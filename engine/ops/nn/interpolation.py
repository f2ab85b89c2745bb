"""Interpolation as users call it: `interpolate`, its deprecated names, and aten's `upsample_*`."""

from __future__ import annotations

import warnings
from functools import lru_cache
from math import floor

from engine.dispatch import composite, samples
from engine.ops.nn.resample import OPS
from engine.ops.pointwise.arithmetic import not_implemented
from engine.ops.pooling import adaptive as adaptive_pooling

_DIMS = {"linear": 3, "bilinear": 4, "bicubic": 4, "trilinear": 5, "lanczos": 4}
_KINDS = {"linear": "linear", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic", "lanczos": "lanczos"}


def _sizes(input, dim, size, scale_factor):
    """(output size or None, scale factors or None) as torch checks them."""
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    for label, value in (("size", size), ("scale_factor", scale_factor)):
        if isinstance(value, str):
            raise TypeError(f"interpolate(): argument '{label}' must be tuple of numbers, not str")
    layout = "Please provide input tensor in (N, C, d1, d2, ...,dK) format and"
    spatial = f"but got input with spatial dimensions of {list(input.shape[2:])} and"
    if size is not None:
        if not isinstance(size, list | tuple):
            return [size] * dim, None
        if len(size) != dim:
            raise ValueError(
                f"Input and output must have the same number of spatial dimensions, {spatial} output size of {size}. "
                f"{layout} output size in (o1, o2, ...,oK) format."
            )
        if not all(hasattr(x, "__index__") for x in size):
            raise TypeError(
                "expected size to be one of int or Tuple[int] or Tuple[int, int] or Tuple[int, int, int], but got size "
                f"with types {[type(x) for x in size]}"
            )
        return list(size), None
    if scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    if not isinstance(scale_factor, list | tuple):
        return None, [scale_factor] * dim
    if len(scale_factor) != dim:
        raise ValueError(
            f"Input and scale_factor must have the same number of spatial dimensions, {spatial} scale_factor of shape "
            f"{scale_factor}. {layout} scale_factor in (s1, s2, ...,sK) format."
        )
    return None, list(scale_factor)


@composite(public=False, method=False)
@samples(
    lambda t: [
        (t(2, 2, 3, 4), None, 2, "nearest"),
        (t(1, 2, 3, 4), (5, 3), None, "bilinear", True),
        (t(1, 2, 4), 6, None, "linear"),
        (t(1, 1, 4, 5), (3, 3), None, "area"),
        (t(1, 1, 4, 5), (6, 8), None, "bicubic"),
        (t(1, 1, 6, 5), (3, 4), None, "bilinear", None, None, True),
        (t(1, 1, 6, 5), (3, 8), None, "lanczos", None, None, True),
    ]
)
def interpolate(
    input,
    size=None,
    scale_factor=None,
    mode="nearest",
    align_corners=None,
    recompute_scale_factor=None,
    antialias=False,
):
    """input resampled to `size` or by `scale_factor` (torch.nn.functional.interpolate).

    mode: nearest, nearest-exact, linear, bilinear, bicubic, trilinear, area or lanczos.

    input (N, C, *) -> (N, C, *size).
    """

    given_mode, mode = mode, mode if isinstance(mode, str) else ""
    if mode in ("nearest", "area", "nearest-exact"):
        if align_corners is not None:
            raise ValueError(
                "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | "
                "trilinear"
            )
    elif align_corners is None:
        align_corners = False
    ndim = input.dim()
    dim = ndim - 2
    output, factors = _sizes(input, dim, size, scale_factor)
    if recompute_scale_factor and size is not None:
        raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
    if factors is not None and (recompute_scale_factor or mode == "area"):
        output, factors = [floor(n * f) for n, f in zip(input.shape[2:], factors)], None
    antialias = bool(antialias)
    if antialias and not (mode in ("bilinear", "bicubic", "lanczos") and ndim == 4):
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor as input"
        )
    if mode == "lanczos" and not antialias:
        raise ValueError("Lanczos mode requires antialias=True")
    if mode == "lanczos" and align_corners:
        raise ValueError("Lanczos mode does not support align_corners=True")
    if output is None:
        output = [floor(n * float(f)) for n, f in zip(input.shape[2:], factors)]
    output = [int(n) for n in output]
    if mode == "area" and ndim in (3, 4, 5):
        name = f"adaptive_avg_pool{dim}d"
        return getattr(adaptive_pooling, name)(input, output if dim > 1 else output[0])
    if mode in ("nearest", "nearest-exact") and ndim in (3, 4, 5):
        return _upsample(mode, input, output, False, factors)
    if _DIMS.get(mode) == ndim:
        kind = _KINDS[mode] + "-aa" * antialias
        return _upsample(kind, input, output, align_corners, factors)
    if mode in ("linear", "bilinear", "trilinear") and ndim in (3, 4, 5):
        raise NotImplementedError(f"Got {ndim}D input, but {mode} mode needs {_DIMS[mode]}D input")
    raise NotImplementedError(
        f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {ndim}D) for the modes: nearest | linear | "
        f"bilinear | bicubic | trilinear | lanczos | area | nearest-exact (got {given_mode})"
    )


def _label(kind, n):
    """The name of torch's kernel."""
    if kind.endswith("-aa"):
        return "compute_index_ranges_weights"
    if n == 2 and kind in ("nearest", "nearest-exact", "linear"):
        return f"upsample_{'bilinear' if kind == 'linear' else 'nearest'}2d_channels_last"
    return f"compute_indices_weights_{kind.split('-')[0]}"


def _upsample(kind, input, output, align_corners, factors):
    size = input.shape[2:]
    if any(n <= 0 for n in (*size, *output)):
        names = ("D", "H", "W")[-len(size) :]
        ins = ", ".join(f"{x}: {n}" for x, n in zip(names, size))
        outs = ", ".join(f"{x}: {n}" for x, n in zip(names, output))
        raise RuntimeError(f"Input and output sizes should be greater than 0, but got input ({ins}) output ({outs})")
    if input.shape[1] == 0:
        raise RuntimeError(
            f"Non-empty {len(size) + 2}D data tensor expected but got a tensor with sizes {list(input.shape)}"
        )
    array = input._array
    if array.dtype.kind in "ibc" or (array.dtype.kind == "u" and array.dtype.itemsize > 1):
        raise not_implemented(_label(kind, len(size)), array)
    factors = factors if factors is None else tuple(map(float, factors))
    return OPS[kind, len(size)](input, _spec(kind, tuple(size), tuple(output), bool(align_corners), factors))


@lru_cache(maxsize=512)
def _spec(kind, size, output, align_corners, factors):
    """The entries of each dim: one object for all calls that are alike, by which direct launches recognize them."""
    return tuple(
        (kind, n, m, align_corners, None if factors is None else factors[i])
        for i, (n, m) in enumerate(zip(size, output))
    )


_SCALES = ("scales", "scales_d", "scales_h", "scales_w")


def upsampled(name, kind, cornered, input, output_size, *rest, align_corners=None, scale_factors=None, **more):
    """`NAME(input, output_size, [align_corners,] scales...)` of aten; also with a list of factors and no size.

    The factors give the places that are read, as those of `interpolate` do.
    """
    if cornered and align_corners is None:
        if not rest:
            raise TypeError(f"{name}() missing 1 required positional argument: 'align_corners'")
        align_corners, rest = rest[0], rest[1:]
    if more.keys() - set(_SCALES):
        raise TypeError(f"{name}() got an unexpected keyword argument '{min(more.keys() - set(_SCALES))}'")
    if rest and isinstance(rest[0], list | tuple):
        scale_factors = rest[0]
    factors = scale_factors or [f for f in (*rest, *map(more.get, _SCALES)) if f is not None]
    n = int(name.removesuffix("_aa")[-2])
    if input.dim() != n + 2:
        raise RuntimeError(f"{name}(): expected an input of {n + 2} dims (N, C, *), but got {list(input.shape)}")
    if output_size is None:
        output_size = [floor(size * float(f)) for size, f in zip(input.shape[2:], factors)]
    if len(output_size) != n:
        raise RuntimeError(f"It is expected output_size equals to {n}, but got size {len(output_size)}")
    return _upsample(kind, input, [int(size) for size in output_size], align_corners, factors or None)


@composite(public=False, method=False)
@samples(lambda t: [(t(2, 2, 3, 4), None, 2)])
def upsample(input, size=None, scale_factor=None, mode="nearest", align_corners=None):
    """Deprecated name of `interpolate`.  input (N, C, *) -> (N, C, *size)."""
    warnings.warn(
        "`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.",
        stacklevel=2,
    )
    return interpolate(input, size, scale_factor, mode, align_corners)


@composite(public=False, method=False)
def upsample_nearest(input, size=None, scale_factor=None):
    """Deprecated: `interpolate` with mode="nearest".  input (N, C, *) -> (N, C, *size)."""
    warnings.warn(
        "`nn.functional.upsample_nearest` is deprecated. Use `nn.functional.interpolate` instead.",
        stacklevel=2,
    )
    return interpolate(input, size, scale_factor, mode="nearest")


@composite(public=False, method=False)
def upsample_bilinear(input, size=None, scale_factor=None):
    """Deprecated: `interpolate` with mode="bilinear", align_corners=True.  input (N, C, H, W) -> (N, C, H', W')."""
    warnings.warn(
        "`nn.functional.upsample_bilinear` is deprecated. Use `nn.functional.interpolate` instead.",
        stacklevel=2,
    )
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)
