"""Interpolation and adaptive average pooling: one kernel under the names of torch's ops."""

from __future__ import annotations

import warnings
from math import floor

from engine.dispatch import composite, derivative, op, samples
from engine.ops.nn import _resample
from engine.ops.pointwise.arithmetic import not_implemented


def adaptive_spec(size, out):
    """The entries of adaptive average pooling from `size` to `out`."""
    return tuple(("adaptive", n, m, False, None) for n, m in zip(size, out))


@op(public=False, out=False, method=False)
@derivative(grad_output=lambda grad, spec: resampled(grad, spec))
@samples(
    lambda t: [
        (t(2, 1, 3, 2), (("linear", 5, 3, False, None), ("linear", 4, 2, True, None))),
        (t(2, 1, 6), (("nearest", 3, 6, False, None),)),
    ]
)
def resampled_backward(xp, grad_output, spec):
    """The gradient of a resampling.  grad_output (N, C, *out) -> (N, C, *size)."""
    return _resample.resample(xp, grad_output, spec, True)


def _resampling(kind, n, node):
    """The decorator of one of torch's resampling ops: over n dims, its `spec` entries of one kind."""
    corners = (False, True) if kind in ("linear", "cubic") else (False,)
    specs = [tuple((kind, a, b, c, None) for _ in range(n)) for a, b in ((4, 7), (5, 3))[: 3 - n + 1] for c in corners]

    def register(kernel):
        kernel = samples(lambda t: [(t(2, 2, *(e[1] for e in spec)), spec) for spec in specs])(kernel)
        kernel = derivative(input=lambda grad, spec: resampled_backward(grad, spec))(kernel)
        function = _OPS[kind, n] = op(
            public=False, out=False, method=False, node=node, keeps=("input",) if kind == "adaptive" else ()
        )(kernel)  # fmt: skip
        return function

    return register


_OPS = {}  # (kind, number of dims) -> the op


@_resampling("nearest", 1, "UpsampleNearest1DBackward0")
def upsample_nearest1d(xp, input, spec):
    """The element at floor(i * scale).  input (N, C, L) -> (N, C, L')."""
    return _resample.resample(xp, input, spec)


@_resampling("nearest", 2, "UpsampleNearest2DBackward0")
def upsample_nearest2d(xp, input, spec):
    """The element at floor(i * scale) of each dim.  input (N, C, H, W) -> (N, C, H', W')."""
    return _resample.resample(xp, input, spec)


@_resampling("nearest", 3, "UpsampleNearest3DBackward0")
def upsample_nearest3d(xp, input, spec):
    """The element at floor(i * scale) of each dim.  input (N, C, D, H, W) -> (N, C, D', H', W')."""
    return _resample.resample(xp, input, spec)


@_resampling("nearest-exact", 1, "UpsampleNearestExact1DBackward0")
def _upsample_nearest_exact1d(xp, input, spec):
    """The element whose centre is nearest.  input (N, C, L) -> (N, C, L')."""
    return _resample.resample(xp, input, spec)


@_resampling("nearest-exact", 2, "UpsampleNearestExact2DBackward0")
def _upsample_nearest_exact2d(xp, input, spec):
    """The element whose centre is nearest.  input (N, C, H, W) -> (N, C, H', W')."""
    return _resample.resample(xp, input, spec)


@_resampling("nearest-exact", 3, "UpsampleNearestExact3DBackward0")
def _upsample_nearest_exact3d(xp, input, spec):
    """The element whose centre is nearest.  input (N, C, D, H, W) -> (N, C, D', H', W')."""
    return _resample.resample(xp, input, spec)


@_resampling("linear", 1, "UpsampleLinear1DBackward0")
def upsample_linear1d(xp, input, spec):
    """Linear interpolation.  input (N, C, L) -> (N, C, L')."""
    return _resample.resample(xp, input, spec)


@_resampling("linear", 2, "UpsampleBilinear2DBackward0")
def upsample_bilinear2d(xp, input, spec):
    """Linear interpolation along both dims.  input (N, C, H, W) -> (N, C, H', W')."""
    return _resample.resample(xp, input, spec)


@_resampling("linear", 3, "UpsampleTrilinear3DBackward0")
def upsample_trilinear3d(xp, input, spec):
    """Linear interpolation along three dims.  input (N, C, D, H, W) -> (N, C, D', H', W')."""
    return _resample.resample(xp, input, spec)


@_resampling("cubic", 2, "UpsampleBicubic2DBackward0")
def upsample_bicubic2d(xp, input, spec):
    """Cubic convolution (Keys 1981, a = -0.75) along both dims.  input (N, C, H, W) -> (N, C, H', W')."""
    return _resample.resample(xp, input, spec)


@_resampling("linear-aa", 2, "UpsampleBilinear2DAaBackward0")
def _upsample_bilinear2d_aa(xp, input, spec):
    """`upsample_bilinear2d`, the triangle widened where it shrinks.  input (N, C, H, W) -> (N, C, H', W')."""
    return _resample.resample(xp, input, spec)


@_resampling("cubic-aa", 2, "UpsampleBicubic2DAaBackward0")
def _upsample_bicubic2d_aa(xp, input, spec):
    """Cubic (a = -0.5), the kernel widened where it shrinks.  input (N, C, H, W) -> (N, C, H', W')."""
    return _resample.resample(xp, input, spec)


@_resampling("adaptive", 1, "AdaptiveAvgPool1DBackward0")
def adaptive_average1d(xp, input, spec):
    """The mean of each of L' parts.  input (N, C, L) -> (N, C, L')."""
    return _resample.resample(xp, input, spec)


@_resampling("adaptive", 2, "AdaptiveAvgPool2DBackward0")
def adaptive_average2d(xp, input, spec):
    """The mean of each of H' x W' parts.  input (N, C, H, W) -> (N, C, H', W')."""
    return _resample.resample(xp, input, spec)


@_resampling("adaptive", 3, "AdaptiveAvgPool3DBackward0")
def adaptive_average3d(xp, input, spec):
    """The mean of each of D' x H' x W' parts.  input (N, C, D, H, W) -> (N, C, D', H', W')."""
    return _resample.resample(xp, input, spec)


resampled = upsample_bilinear2d  # any of them resamples by any spec


def adaptive_average(n):
    """The op of adaptive average pooling over n dims."""
    return _OPS["adaptive", n]


_DIMS = {"linear": 3, "bilinear": 4, "bicubic": 4, "trilinear": 5}
_KINDS = {"linear": "linear", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


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
    ]
)
def interpolate(
    input, size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None,
    antialias=False,
):  # fmt: skip
    """input resampled to `size` or by `scale_factor` (torch.nn.functional.interpolate).

    mode: nearest, nearest-exact, linear, bilinear, bicubic, trilinear, area.  input (N, C, *) -> (N, C, *size).
    """

    asked, mode = mode, mode if isinstance(mode, str) else ""
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
    if output is None:
        output = [floor(n * float(f)) for n, f in zip(input.shape[2:], factors)]
    output = [int(n) for n in output]
    if mode == "area" and ndim in (3, 4, 5):
        from engine.ops.nn import adaptive_pooling

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
        f"bilinear | bicubic | trilinear | lanczos | area | nearest-exact (got {asked})"
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
    spec = tuple(
        (kind, n, m, bool(align_corners), None if factors is None else float(factors[i]))
        for i, (n, m) in enumerate(zip(size, output))
    )
    return _OPS[kind, len(size)](input, spec)


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
