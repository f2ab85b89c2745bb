"""Interpolation and adaptive average pooling: one kernel under the names of torch's ops."""

from __future__ import annotations

import warnings
from math import floor

from engine.dispatch import composite, derivative, op, samples
from engine.ops import _resample


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


def _named(name, node, entries):
    """The resampling op under one of torch's names."""

    def kernel(xp, input, spec):
        """input resampled by one `spec` entry a dim (`_resample.py`).  input (N, C, *) -> (N, C, *out)."""
        return _resample.resample(xp, input, spec)

    kernel.__name__ = kernel.__qualname__ = name
    kernel = samples(lambda t: [(t(2, 2, *(e[1] for e in spec)), spec) for spec in entries])(kernel)
    kernel = derivative(input=lambda grad, spec: resampled_backward(grad, spec))(kernel)
    return op(public=False, out=False, method=False, node=node)(kernel)


def _specs(kind, n, pairs=((4, 7), (5, 3))):
    corners = (False, True) if kind in ("linear", "cubic") else (False,)
    return [
        tuple((kind, a, b, c, None) for _ in range(n))
        for a, b in pairs[: 3 - n + 1]
        for c in corners
    ]


_OPS = {}
for _n, _linear in ((1, "linear1d"), (2, "bilinear2d"), (3, "trilinear3d")):
    _OPS["nearest", _n] = _named(
        f"upsample_nearest{_n}d", f"UpsampleNearest{_n}DBackward0", _specs("nearest", _n)
    )
    _OPS["nearest-exact", _n] = _named(
        f"_upsample_nearest_exact{_n}d",
        f"UpsampleNearestExact{_n}DBackward0",
        _specs("nearest-exact", _n),
    )
    _OPS["linear", _n] = _named(
        f"upsample_{_linear}",
        f"Upsample{_linear[:-1].capitalize()}DBackward0",
        _specs("linear", _n),
    )
    _OPS["adaptive", _n] = _named(
        f"adaptive_average{_n}d", f"AdaptiveAvgPool{_n}DBackward0", _specs("adaptive", _n)
    )
_OPS["cubic", 2] = _named("upsample_bicubic2d", "UpsampleBicubic2DBackward0", _specs("cubic", 2))
_OPS["linear-aa", 2] = _named(
    "_upsample_bilinear2d_aa", "UpsampleBilinear2DAaBackward0", _specs("linear-aa", 2)
)
_OPS["cubic-aa", 2] = _named(
    "_upsample_bicubic2d_aa", "UpsampleBicubic2DAaBackward0", _specs("cubic-aa", 2)
)
resampled = _OPS["linear", 2]


def adaptive_average(n):
    """The op of adaptive average pooling over n dims."""
    return _OPS["adaptive", n]


_DIMS = {"linear": 3, "bilinear": 4, "bicubic": 4, "trilinear": 5}
_KINDS = {"linear": "linear", "bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


def _sizes(input, dim, size, scale_factor):
    """(output size or None, scale factors or None) as torch checks them."""
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
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
    from engine.ops import pooling

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
    if antialias and not (mode in ("bilinear", "bicubic", "lanczos") and ndim == 4):
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor as input"
        )
    if output is None:
        output = [floor(n * float(f)) for n, f in zip(input.shape[2:], factors)]
    output = [int(n) for n in output]
    if mode == "area" and ndim in (3, 4, 5):
        name = f"adaptive_avg_pool{dim}d"
        return getattr(pooling, name)(input, output if dim > 1 else output[0])
    if mode in ("nearest", "nearest-exact") and ndim in (3, 4, 5):
        return _upsample(mode, input, output, False, factors)
    if _DIMS.get(mode) == ndim:
        kind = _KINDS[mode] + "-aa" * antialias
        return _upsample(kind, input, output, align_corners, factors)
    if mode in ("linear", "bilinear", "trilinear") and ndim in (3, 4, 5):
        raise NotImplementedError(f"Got {ndim}D input, but {mode} mode needs {_DIMS[mode]}D input")
    raise NotImplementedError(
        f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {ndim}D) for the modes: nearest | linear | "
        f"bilinear | bicubic | trilinear | lanczos | area | nearest-exact (got {mode})"
    )


def _upsample(kind, input, output, align_corners, factors):
    size = input.shape[2:]
    if any(n <= 0 for n in (*size, *output)):
        names = ("D", "H", "W")[-len(size) :]
        ins = ", ".join(f"{x}: {n}" for x, n in zip(names, size))
        outs = ", ".join(f"{x}: {n}" for x, n in zip(names, output))
        raise RuntimeError(
            f"Input and output sizes should be greater than 0, but got input ({ins}) output ({outs})"
        )
    if input.shape[1] == 0:
        raise RuntimeError(
            f"Non-empty {len(size) + 2}D data tensor expected but got a tensor with sizes {list(input.shape)}"
        )
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
