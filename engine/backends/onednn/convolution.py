"""Convolution on arrays: forward, and its gradients for the input and the weight.

Activations are (N, C, *size) arrays with any strides; fast are channels-last ones.  Weights are packed for each call in
the layout oneDNN wants, unless they are converted.  The gradients return False, nothing written, where oneDNN has no
fast kernel.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from engine.backends.onednn import _abi
from engine.backends.onednn.packing import Packing
from engine.backends.onednn.primitives import (
    Primitive,
    PrimitiveDesc,
    Unsupported,
    activation_desc,
    address,
    any_desc,
    attributes,
    desc_of,
    null,
    primitive,
    strides_of,
)
from engine.layouts import empty_channels_last, lies_channels_last, to_channels_last

_F32 = np.dtype("float32")


def _weight_view(w: np.ndarray, groups: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of (O, C/G, *kernel) as oneDNN sees them: (G, O/G, C/G, *kernel) where there are groups."""
    strides = strides_of(w)
    if groups == 1:
        return w.shape, strides
    per = w.shape[0] // groups
    return (groups, per, *w.shape[1:]), (per * strides[0], *strides)


def _right_padding(
    size: Sequence[int], out: Sequence[int], kernel: Sequence[int], stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int],
) -> list[int]:  # fmt: skip
    return [
        (m - 1) * s + d * (k - 1) + 1 - n - p for n, m, k, s, p, d in zip(size, out, kernel, stride, padding, dilation)
    ]


class _Geometry:
    """What the three directions share: descriptors and window arithmetic as oneDNN counts it (dilation from 0)."""

    def __init__(self, x: np.ndarray, y: np.ndarray, shape: Any, stride: Any, padding: Any, dilation: Any) -> None:
        self.x, self.y = activation_desc(x), activation_desc(y)
        kernel = shape[-(x.ndim - 2) :]
        right = _right_padding(x.shape[2:], y.shape[2:], kernel, stride, padding, dilation)
        self.windows = (list(stride), [d - 1 for d in dilation], list(padding), right)


def work(y: np.ndarray, w: np.ndarray) -> float:
    """What `use_threads` asks of a convolution with the result y (N, O, *out) and the weight w (O, C/G, *kernel)."""
    return y.size * w.size / (32 * max(1, w.shape[0]))


_FEW_OUTPUTS = 6  # of a group: below, AVX2's code writes each pixel through a mask, at a hundredth of its speed


def refuse_few(plan: PrimitiveDesc, outputs: int, groups: int) -> None:
    """Raises Unsupported for a convolution to few channels that only oneDNN's slow code for AVX2 would serve."""
    if plan.implementation.startswith("brgconv:avx2") and outputs // groups < _FEW_OUTPUTS:
        raise Unsupported(f"oneDNN: {plan.implementation} is slow for {outputs // groups} output channels")


def over_frames(w: np.ndarray, groups: int) -> bool:
    """Whether a weight (C, 1, *kernel) of as many groups slides over three dims: oneDNN has fast code for two alone."""
    return w.ndim == 5 and w.shape[1] == 1 < groups == w.shape[0]


class Forward:
    """The convolution of one geometry, called with x (N, C, *size), w (O, C/G, *kernel) and a bias (O) or None.

    The result (N, O, *out) is channels-last, `converted` or of numpy's own class.  x, w and bias give the geometry;
    `key` is what packed weights are kept under.  Raises Unsupported where oneDNN has no fast kernel.
    """

    __slots__ = ("_channels_last", "_key", "_lies", "_run", "_shape", "used")

    def __init__(
        self, key: Hashable, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None, out: Sequence[int], converted: bool,
        stride: Any, padding: Any, dilation: Any, groups: int,
    ) -> None:  # fmt: skip
        self.used, self._key, self._channels_last = True, key, converted
        self._lies = lies_channels_last(x)
        self._shape = (x.shape[0], w.shape[0], *out)
        shape, strides = _weight_view(w, groups)
        y = empty_channels_last(self._shape, np.float32)
        g = _Geometry(x if self._lies else to_channels_last(x), y, shape, stride, padding, dilation)
        b = None if bias is None else desc_of(bias.shape, (1,))
        plan = PrimitiveDesc(
            "convolution_forward", _abi.INFERENCE, _abi.CONVOLUTION_DIRECT, g.x, any_desc(shape),
            null() if b is None else b, g.y, *g.windows, attributes(), work=work(y, w),
        )  # fmt: skip
        refuse_few(plan, w.shape[0], groups)
        packed = plan.desc(_abi.WEIGHTS_MD)
        descs = {_abi.SRC: g.x, _abi.WEIGHTS: packed, _abi.DST: g.y}
        if b is not None:
            descs[_abi.BIAS] = b
        self._run = Primitive(plan, descs, packing=Packing(desc_of(shape, strides), packed))

    def __call__(self, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        made = empty_channels_last(self._shape, _F32)
        run = self._run
        source = address(x if self._lies else to_channels_last(x))
        weights = run.extra["packing"].place(w, self._key)
        if bias is None:
            run(source, weights, address(made))
        else:
            run(source, weights, address(made), address(np.ascontiguousarray(bias)))
        return made if self._channels_last else made.view(np.ndarray)


def backward_input(
    g: np.ndarray, w: np.ndarray, out: np.ndarray, stride: Any, padding: Any, dilation: Any, groups: int
) -> bool:  # fmt: skip
    """out (N, C, *size) = the gradient of the input, g (N, O, *out) that of the result, w (O, C/G, *kernel)."""
    key = ("conv_x", g.shape, g.strides, w.shape, w.strides, out.shape, out.strides, stride, padding, dilation,
           groups)  # fmt: skip

    def make() -> Primitive:
        shape, strides = _weight_view(w, groups)
        geometry = _Geometry(out, g, shape, stride, padding, dilation)
        x, y = geometry.x, geometry.y
        hint = _hint(geometry, shape)
        plan = PrimitiveDesc(
            "convolution_backward_data", _abi.CONVOLUTION_DIRECT, x, any_desc(shape), y, *geometry.windows,
            hint, attributes(), work=work(g, w),
        )  # fmt: skip
        packed = plan.desc(_abi.WEIGHTS_MD)
        descs = {_abi.DIFF_DST: y, _abi.WEIGHTS: packed, _abi.DIFF_SRC: x}
        return Primitive(plan, descs, packing=Packing(desc_of(shape, strides), packed))

    found = primitive(key, make)
    if found is None:
        return False
    found(address(g), found.extra["packing"].place(w), address(out))
    return True


def backward_weight(
    g: np.ndarray, x: np.ndarray, out: np.ndarray, stride: Any, padding: Any, dilation: Any, groups: int,
    bias: np.ndarray | None = None,
) -> bool:  # fmt: skip
    """out (O, C/G, *kernel) = the gradient of the weight; `bias` (O), if given, receives that of the bias."""
    key = ("conv_w", g.shape, g.strides, x.shape, x.strides, out.shape, out.strides, stride, padding, dilation,
           groups, bias is None)  # fmt: skip

    def make() -> Primitive:
        shape, strides = _weight_view(out, groups)
        geometry = _Geometry(x, g, shape, stride, padding, dilation)
        b = None if bias is None else desc_of(bias.shape, (1,))
        hint = _hint(geometry, shape)
        plan = PrimitiveDesc(
            "convolution_backward_weights", _abi.CONVOLUTION_DIRECT, geometry.x, any_desc(shape),
            null() if b is None else b, geometry.y, *geometry.windows, hint, attributes(), work=work(g, out),
        )  # fmt: skip
        packed = plan.desc(_abi.DIFF_WEIGHTS_MD)
        descs = {_abi.SRC: geometry.x, _abi.DIFF_DST: geometry.y, _abi.DIFF_WEIGHTS: packed}
        if b is not None:
            descs[_abi.DIFF_BIAS] = b
        plain = desc_of(shape, strides)
        return Primitive(plan, descs, packing=Packing(plain, packed, back=True))

    found = primitive(key, make)
    if found is None:
        return False
    packing = found.extra["packing"]
    more = [] if bias is None else [address(bias)]
    if packing.reorder is None:
        found(address(x), address(g), address(out), *more)
    else:
        target = packing.buffer()
        found(address(x), address(g), target, *more)
        packing.reorder(target, address(out))
    return True


def _hint(geometry: _Geometry, shape: Any) -> PrimitiveDesc:
    """The forward descriptor that a backward one asks for."""
    return PrimitiveDesc(
        "convolution_forward", _abi.TRAINING, _abi.CONVOLUTION_DIRECT, geometry.x, any_desc(shape), null(),
        geometry.y, *geometry.windows, attributes(), hint=True,
    )  # fmt: skip
