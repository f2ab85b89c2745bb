"""Convolution on arrays: forward, and its gradients for the input and the weight.

Activations are (N, C, *size) arrays with any strides; fast are channels-last ones.  Weights are packed for each call in
the layout oneDNN wants, unless they are converted.  The gradients return False, nothing written, where oneDNN has no
fast kernel.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from engine.backends.cpu.relayout import empty_channels_last, to_channels_last
from engine.backends.onednn import _abi
from engine.backends.onednn.packing import Packing
from engine.backends.onednn.primitives import (
    Desc,
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
from engine.core.geometry import ConvGeometry
from engine.core.layouts import lies_channels_last

_F32 = np.dtype("float32")


def weight_view(w: np.ndarray, groups: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of (O, C/G, *kernel) as oneDNN sees them: (G, O/G, C/G, *kernel) where there are groups."""
    strides = strides_of(w)
    if groups == 1:
        return w.shape, strides
    per = w.shape[0] // groups
    return (groups, per, *w.shape[1:]), (per * strides[0], *strides)


def _right_padding(
    size: Sequence[int],
    out: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> list[int]:
    return [
        (m - 1) * s + d * (k - 1) + 1 - n - p for n, m, k, s, p, d in zip(size, out, kernel, stride, padding, dilation)
    ]


class Geometry:
    """The geometry shared by the three directions: descriptors and window arithmetic as oneDNN counts it (dilation from
    0).

    `shape` and `strides` are the weight's, as oneDNN sees it; `depthwise`: each channel is a group; `patches`: windows
    do not overlap.  The same memory may be described by two geometries.  An image of one column is described as one
    row, since oneDNN's products are of a row's pixels (Crepe's kernels of 64 x 1: 0.15 of the time); depthwise
    sequences are rows of images, for which alone it has code."""

    def __init__(
        self, x: np.ndarray, y: np.ndarray, shape: Any, strides: Any, stride: Any, padding: Any, dilation: Any
    ) -> None:
        self._column = x.ndim == 4 and x.shape[3] == y.shape[3] == 1 < x.shape[2]
        self.dims = x.ndim - 2
        self.grouped = len(shape) > x.ndim
        self.depthwise = self.grouped and shape[1] == shape[2] == 1
        self.patches = all(s >= k for s, k in zip(stride, shape[-self.dims :]))
        self._sequence = self.dims == 1 and self.depthwise
        if self._column:
            shape, strides, stride, padding, dilation = (
                (*one[:-2], one[-1], one[-2]) for one in (shape, strides, stride, padding, dilation)
            )
        if self._sequence:
            shape, strides = (*shape[:-1], 1, shape[-1]), (*strides[:-1], *strides[-2:])
            stride, padding, dilation = (1, *stride), (0, *padding), (1, *dilation)
        self.shape, self.strides = tuple(shape), tuple(strides)
        (self.x, size), (self.y, out) = ((self.desc(a), self._as_described(a).shape[2:]) for a in (x, y))
        right = _right_padding(size, out, self.shape[-len(size) :], stride, padding, dilation)
        self.windows = (list(stride), [d - 1 for d in dilation], list(padding), right)

    def desc(self, array: np.ndarray) -> Desc:
        """The descriptor of images (N, C, *size)."""
        return activation_desc(self._as_described(array))

    def _as_described(self, array: np.ndarray) -> np.ndarray:
        if self._sequence:
            return array.reshape(*array.shape[:2], 1, array.shape[2])
        return array.swapaxes(2, 3) if self._column else array


def work(y: np.ndarray, w: np.ndarray) -> float:
    """Estimate the work of a convolution, as `use_threads` counts it, with the result y (N, O, *out) and the weight w
    (O, C/G, *kernel)."""
    return y.size * w.size / (32 * max(1, w.shape[0]))


# channels of a group's result: below, AVX2's code writes each pixel through a mask, at a hundredth of its speed
_FEW = 6
_WEIGHTS = ("jit:avx2", "jit_1x1:avx2", "jit_dw:avx2", "x64:gemm:jit")  # slow for the gradient of a sequence's weights


def refuse_slow(plan: PrimitiveDesc, geometry: Geometry, made: int | None = None) -> None:
    """Raises Unsupported for a convolution that numpy does faster than the only code that oneDNN has for it.

    made: channels of a group's result; of the gradient of a weight None.  Figures: docs/explanation/measurements.md.
    """
    name, dims = plan.implementation, geometry.dims
    slow = geometry.depthwise and name == "x64:gemm:jit" and dims < 3
    if made is None:
        slow = slow or (dims == 1 and name in _WEIGHTS and (geometry.depthwise or not geometry.grouped))
    elif made < _FEW and dims < 3:
        separate = dims == 1 or geometry.patches  # windows hardly overlap
        slow = slow or name.startswith("brgconv:avx2") or name.startswith("brg_fwd:avx2+brgconv:")
        slow = slow or (name.endswith("brgconv_strided:avx2") and separate)
    if slow:
        raise Unsupported(f"oneDNN: {name} is slow for this convolution")


def _inference(g: Geometry, bias: np.ndarray | None, made: int, effort: float, post: Sequence[tuple] = ()) -> Primitive:
    """The forward pass of a geometry to `made` channels a group, with what `post` adds; effort: as of `work`.

    Raises Unsupported.
    """
    b = None if bias is None else desc_of(bias.shape, (1,))
    plan = PrimitiveDesc(
        "convolution_forward",
        _abi.INFERENCE,
        _abi.CONVOLUTION_DIRECT,
        g.x,
        any_desc(g.shape),
        null() if b is None else b,
        g.y,
        *g.windows,
        attributes(post),
        work=effort,
    )
    refuse_slow(plan, g, made)
    packed = plan.desc(_abi.WEIGHTS_MD)
    descs = {_abi.SRC: g.x, _abi.WEIGHTS: packed, _abi.DST: g.y}
    if b is not None:
        descs[_abi.BIAS] = b
    return Primitive(plan, descs, packing=Packing(desc_of(g.shape, g.strides), packed))


class Forward:
    """The convolution of one geometry, called with x (N, C, *size), w (O, C/G, *kernel) and a bias (O) or None.

    The result (N, O, *out) is channels-last, `converted` or of numpy's own class.  x, w and bias give the geometry;
    `key` is the key under which packed weights are cached.  Raises Unsupported where oneDNN has no fast kernel.
    """

    __slots__ = ("_channels_last", "_key", "_lies", "_run", "_shape", "used")

    def __init__(
        self,
        key: Hashable,
        x: np.ndarray,
        w: np.ndarray,
        bias: np.ndarray | None,
        out: Sequence[int],
        converted: bool,
        geometry: ConvGeometry,
    ) -> None:
        self.used, self._key, self._channels_last = True, key, converted
        self._lies = lies_channels_last(x)
        self._shape = (x.shape[0], w.shape[0], *out)
        y = empty_channels_last(self._shape, np.float32)
        relaid = x if self._lies else to_channels_last(x)
        g = Geometry(relaid, y, *weight_view(w, geometry.groups), *geometry[:3])
        self._run = _inference(g, bias, w.shape[0] // geometry.groups, work(y, w))

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


def depthwise_3d(w: np.ndarray, groups: int) -> bool:
    """Return whether a weight (C, 1, *kernel) of as many groups has three dims: oneDNN has fast code for two alone."""
    return w.ndim == 5 and w.shape[1] == 1 < groups == w.shape[0]


def forward(key: Hashable, x: np.ndarray, w: np.ndarray, *given: Any) -> Forward | Slices:
    """Build the object that computes a convolution, of arguments as `Forward` has them.  Raises Unsupported."""
    return Slices(x, w, *given) if depthwise_3d(w, given[-1].groups) else Forward(key, x, w, *given)


class Slices:
    """`Forward` of three dims that are depthwise: convolutions of images, added up over the kernel's depth.

    oneDNN has code for images alone (3.2; ten times the time otherwise).
    """

    __slots__ = ("_channels_last", "_pieces", "_shape", "_step", "_whole", "used")

    def __init__(
        self,
        x: np.ndarray,
        w: np.ndarray,
        bias: np.ndarray | None,
        out: Sequence[int],
        converted: bool,
        geometry: ConvGeometry,
    ) -> None:
        stride, padding, dilation, groups = geometry
        self.used, self._channels_last, self._step = True, converted, stride[0]
        self._shape = (count, _, deep, *_) = x.shape[0], w.shape[0], *out
        overlaps = []  # (element of the kernel's depth, images of the result that it overlaps, the first that it reads)
        for k in range(w.shape[2]):
            ahead = k * dilation[0] - padding[0]
            first = max(0, -(ahead // self._step))
            last = min(deep, (x.shape[2] - 1 - ahead) // self._step + 1)
            if first < last:
                overlaps.append((k, first, last, first * self._step + ahead))
        overlaps.sort(key=lambda one: one[2] - one[1] < deep)
        self._whole = bool(overlaps) and overlaps[0][2] - overlaps[0][1] == deep  # the first writes all, with the bias
        self._pieces = []
        window = stride, padding, dilation
        for i, (k, first, last, at) in enumerate(overlaps):
            new = i == 0 and self._whole
            samples = 1 if new and first == at and x.shape[2] == deep and self._step == 1 else count  # 1: all at once
            images = (last - first) * count // samples
            run = _added(x, w, bias if new else None, images, out[1:], window, groups, not new)
            self._pieces.append((k, range(samples), first, last - first, at, run))

    def __call__(self, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        made = empty_channels_last(self._shape, _F32)
        rows, target = (a.view(np.ndarray).transpose(0, 2, 3, 4, 1) for a in (to_channels_last(x), made))
        each = () if bias is None else (address(np.ascontiguousarray(bias)),)
        if not self._whole:
            target[...] = 0 if bias is None else bias
        for i, (k, samples, first, count, at, run) in enumerate(self._pieces):
            weights = run.extra["packing"].place(w[:, :, k])
            for n in samples:
                read = rows[n, at:]
                if self._step > 1:
                    read = np.ascontiguousarray(read[:: self._step][:count])
                run(address(read), weights, address(target[n, first:]), *(each if i == 0 and self._whole else ()))
        return made if self._channels_last else made.view(np.ndarray)


def _added(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray | None,
    count: int,
    out: Sequence[int],
    window: Any,
    groups: int,
    more: bool,
) -> Primitive:
    """The convolution of `count` images (C, H, W) of x (N, C, D, H, W); more: added to what is there."""
    source, made = (empty_channels_last((count, w.shape[0], *size), _F32) for size in (x.shape[3:], out))
    g = Geometry(source, made, *weight_view(w[:, :, 0], groups), *(values[1:] for values in window))
    return _inference(g, bias, w.shape[0] // groups, work(made, w), (("sum", 1.0),) if more else ())


def backward_input(g: np.ndarray, w: np.ndarray, out: np.ndarray, windows: ConvGeometry) -> bool:
    """out (N, C, *size) = the gradient of the input, g (N, O, *out) that of the result, w (O, C/G, *kernel)."""
    key = ("conv_x", g.shape, g.strides, w.shape, w.strides, out.shape, out.strides, windows)

    def make() -> Primitive:
        geometry = Geometry(out, g, *weight_view(w, windows.groups), *windows[:3])
        x, y = geometry.x, geometry.y
        hint = _hint(geometry)
        plan = PrimitiveDesc(
            "convolution_backward_data",
            _abi.CONVOLUTION_DIRECT,
            x,
            any_desc(geometry.shape),
            y,
            *geometry.windows,
            hint,
            attributes(),
            work=work(g, w),
        )
        refuse_slow(plan, geometry, out.shape[1] // windows.groups)
        packed = plan.desc(_abi.WEIGHTS_MD)
        descs = {_abi.DIFF_DST: y, _abi.WEIGHTS: packed, _abi.DIFF_SRC: x}
        return Primitive(plan, descs, packing=Packing(desc_of(geometry.shape, geometry.strides), packed))

    found = primitive(key, make)
    if found is None:
        return False
    found(address(g), found.extra["packing"].place(w), address(out))
    return True


def backward_weight(
    g: np.ndarray,
    x: np.ndarray,
    out: np.ndarray,
    windows: ConvGeometry,
    bias: np.ndarray | None = None,
) -> bool:
    """out (O, C/G, *kernel) = the gradient of the weight; `bias` (O), if given, receives that of the bias."""
    key = (
        "conv_w",
        g.shape,
        g.strides,
        x.shape,
        x.strides,
        out.shape,
        out.strides,
        windows,
        bias is None,
    )

    def make() -> Primitive:
        geometry = Geometry(x, g, *weight_view(out, windows.groups), *windows[:3])
        b = None if bias is None else desc_of(bias.shape, (1,))
        hint = _hint(geometry)
        plan = PrimitiveDesc(
            "convolution_backward_weights",
            _abi.CONVOLUTION_DIRECT,
            geometry.x,
            any_desc(geometry.shape),
            null() if b is None else b,
            geometry.y,
            *geometry.windows,
            hint,
            attributes(),
            work=work(g, out),
        )
        refuse_slow(plan, geometry)
        packed = plan.desc(_abi.DIFF_WEIGHTS_MD)
        descs = {_abi.SRC: geometry.x, _abi.DIFF_DST: geometry.y, _abi.DIFF_WEIGHTS: packed}
        if b is not None:
            descs[_abi.DIFF_BIAS] = b
        plain = desc_of(geometry.shape, geometry.strides)
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


def _hint(geometry: Geometry) -> PrimitiveDesc:
    """The forward descriptor that a backward one asks for."""
    return PrimitiveDesc(
        "convolution_forward",
        _abi.TRAINING,
        _abi.CONVOLUTION_DIRECT,
        geometry.x,
        any_desc(geometry.shape),
        null(),
        geometry.y,
        *geometry.windows,
        attributes(),
        hint=True,
    )
