"""Resampling: one kernel under the names of torch's ops of interpolation and of adaptive average pooling."""

from __future__ import annotations

from functools import lru_cache

from engine.dispatch import derivative, op, samples
from engine.ops.dependence import depending
from engine.ops.nn import _resample


@lru_cache(maxsize=512)
def adaptive_spec(size, out):
    """The entries of adaptive average pooling from `size` to `out`, tuples: one object for all calls that are alike."""
    return tuple(("adaptive", n, m, False, None) for n, m in zip(size, out))


@op(public=False, out=False, method=False, large=512, generated="many")
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


def _adaptive_gradient(grad, input, spec):
    return depending((resampled_backward(grad, spec),), (input,), zero=True)[0]


def _resampling(kind, n, node):
    """The decorator of one of torch's resampling ops: over n dims, its `spec` entries of one kind."""
    corners = (False, True) if kind in ("linear", "cubic") else (False,)
    specs = [tuple((kind, a, b, c, None) for _ in range(n)) for a, b in ((4, 7), (5, 3))[: 3 - n + 1] for c in corners]

    def register(kernel):
        kernel = samples(lambda t: [(t(2, 2, *(e[1] for e in spec)), spec) for spec in specs])(kernel)
        formula = _adaptive_gradient if kind == "adaptive" else lambda grad, spec: resampled_backward(grad, spec)
        kernel = derivative(input=formula)(kernel)
        function = OPS[kind, n] = op(public=False, out=False, method=False, node=node, large=512, generated="many")(
            kernel
        )
        return function

    return register


OPS = {}  # (kind, number of dims) -> the op


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


@_resampling("lanczos-aa", 2, "UpsampleLanczos2DAaBackward0")
def _upsample_lanczos2d_aa(xp, input, spec):
    """Lanczos' windowed sinc of 3 lobes, widened where it shrinks.  input (N, C, H, W) -> (N, C, H', W')."""
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
    return OPS["adaptive", n]
