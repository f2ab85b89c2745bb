"""Layers of inference plans as stages of one program of generated code (the extra `jit`).

`of_convolution`, `of_linear`, `of_pooling` and `of_mean` give the stages of a layer with its weights packed, or None
for what has no code here: engine/kernels/image_layers.py has the kernels, engine/kernels/program.py runs them.  The
address of an array is a `Place`, so that an operand or a result may be another array in each call.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Callable, Sequence
from math import inf, prod
from typing import Any

import numpy as np

from engine.backends.cpu import empty, threads
from engine.kernels import image_layers, llvm_winograd, pooling
from engine.kernels.program import Stage
from engine.ops.convolution import generated_winograd as winograd
from engine.ops.generated.route import address, lanes, linked, registers

__all__ = [
    "Layer",
    "Place",
    "ends",
    "joined",
    "of_convolution",
    "of_linear",
    "of_mean",
    "of_pooling",
    "points",
]

_F32 = np.dtype("float32")
_PIECES = 4  # jobs a thread, so that one which is held up leaves little
_NEAR = 1 << 16  # elements of an image that stay in the second-level cache while all outputs are made of them
_BAND = 1 << 17  # elements of a band between layers that are joined
_WIDEST = 7  # of a depthwise kernel: its row's values are in registers


class Place:
    """The address of an operand: that of `array`, or, if that is None, one that each call sets (`move`)."""

    def __init__(self, array: np.ndarray | None) -> None:
        self.array = array
        self._users: list[tuple[np.ndarray, int]] = []

    def into(self, args: np.ndarray, index: int) -> None:
        """Its address belongs at args[index]."""
        if self.array is None:
            self._users.append((args, index))
        else:
            args[index] = address(self.array)

    def move(self, array: np.ndarray) -> None:
        """It is here now; the array must live until the program has run."""
        at = address(array)
        for args, index in self._users:
            args[index] = at


def _bits(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def ends(post: Sequence[tuple]) -> tuple[bool, float, float] | None:
    """(whether an operand is added, low, high) of what follows a layer, as of `prepared.convolution`; or None."""
    from engine.backends.onednn import _abi

    steps = list(post)
    added = bool(steps) and steps[0][0] in ("sum", "binary")
    low, high = -inf, inf
    for step in steps[added:]:
        if step[0] != "eltwise" or step[1] not in (_abi.RELU, _abi.CLIP) or len(steps) > added + 1:
            return None
        low, high = (0.0, inf) if step[1] == _abi.RELU else step[2:4]
        if step[1] == _abi.RELU and step[2]:
            return None
    return added, low, high


class Layer:
    """The stages of a layer, and the memory that they name by its address."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self.retained: list[Any] = []
        self.function: Any = None  # what printed the last stage
        self.code: Any = None  # what gives its code
        self.given: dict[str, Any] = {}  # its arguments

    def arguments(self, parameters: Sequence[str], **given: Any) -> np.ndarray:
        """Numbers, arrays and places, in the order of the parameters."""
        made = np.zeros(len(parameters), np.int64)
        for n, name in enumerate(parameters):
            value = given[name]
            if isinstance(value, Place):
                value.into(made, n)
                self.retained.append(value.array)
            elif isinstance(value, np.ndarray):
                made[n] = address(value)
                self.retained.append(value)
            else:
                made[n] = value
        return made

    def stage(
        self, units: int, function: Callable[..., str], parameters: Sequence[str], *options: Any, **given: Any
    ) -> None:
        """All units of what `function` prints, in pieces."""
        args, self.given, self.function = self.arguments(parameters, **given), given, function
        code = self.code = functools.partial(linked, function, *options)
        pieces = min(units, threads.get_num_threads() * _PIECES)
        cuts = [units * n // pieces for n in range(pieces + 1)]
        self.stages.append([[[(code, args, begin, end)] for begin, end in itertools.pairwise(cuts)]])


def _packed(w: np.ndarray, width: int, step: int) -> np.ndarray:
    """w (O, *of a kernel) as panels (O / width, *of a kernel, width), the rest with `step` for width."""
    rows = w.reshape(len(w), -1)
    whole = len(w) // width * width
    made = empty((rows.size,), _F32)
    parts = (rows[:whole], width), (rows[whole:], step)
    at = 0
    for part, wide in parts:
        if len(part):
            panels = part.reshape(-1, wide, part.shape[1]).transpose(0, 2, 1)
            made[at : at + part.size].reshape(panels.shape)[...] = panels
            at += part.size
    return made


def _dense(layer: Layer, w: np.ndarray, bias: Any, out: Place, added: Any, ends: Any, **given: Any) -> None:
    """The stage of a product with w (O, *in the order of the kernel's places)."""
    outputs = len(w)
    wide = lanes(outputs)
    rows, vectors = image_layers.shape(wide, registers(), outputs)
    shift = np.zeros(outputs, _F32) if bias is None else np.ascontiguousarray(bias, _F32)
    layer.stage(
        given["lines"] * given["splits"],
        image_layers.dense,
        image_layers.DENSE,
        wide,
        rows,
        vectors,
        weights=_packed(w, wide * vectors, wide),
        result=out,
        bias=shift,
        added=added or 0,
        adds=added is not None,
        zeros=np.zeros(outputs, _F32),
        low=_bits(ends[1]),
        high=_bits(ends[2]),
        outputs=outputs,
        **given,
    )


def _splits(weights: int, image: int, outputs: int) -> int:
    """Parts of the outputs: several where there are more weights than image, so that each thread reads a part."""
    if weights < image:
        return 1
    wide = lanes(outputs)
    panels = outputs // (wide * image_layers.shape(wide, registers(), outputs)[1])
    return max(1, min(panels, threads.get_num_threads() * _PIECES))


def _parts(count: int, depth: int, outputs: int) -> tuple[int, int]:
    """(columns of a line, parts of the outputs) of a product of (count, depth) and a weight of so many outputs.

    Of the ways that give each thread four to six jobs (or fewer, where there are not so many): one that keeps the
    threads busy alike, and of these the one that reads least, as a line reads the weight and a part the image.
    """
    wide, members = lanes(outputs), threads.get_num_threads()
    rows, vectors = image_layers.shape(wide, registers(), outputs)
    tiles, panels = -(-count // rows), max(1, -(-outputs // (wide * vectors)))
    ways = []
    for splits in range(1, min(panels, 6 * members) + 1):
        for lines in range(1, min(tiles, 6 * members) + 1):
            each = -(-tiles // lines)  # tiles of a line
            jobs = lines * splits
            if jobs > 6 * members or -(-tiles // each) != lines:
                continue
            longest = -(-jobs // members) * each * -(-panels // splits)
            far = splits == 1 and each * rows * depth > _NEAR  # the image is read once for each panel
            read = lines * depth * outputs + splits * count * depth
            ways.append((jobs < _PIECES * members, longest * (1.1 if far else 1.0), read, each * rows, splits))
    few, least = min(ways)[:2]
    good = [way for way in ways if way[0] is few and way[1] <= 1.03 * least]
    columns, splits = min(good, key=lambda way: way[2])[3:]
    return min(count, columns), splits


def _product(layer: Layer, count: int, x: Place, w: np.ndarray, bias: Any, out: Place, added: Any, ends: Any) -> None:
    """x (count, K) times w (O, K)."""
    outputs, depth = w.shape
    columns, splits = _parts(count, depth, outputs)
    lines = -(-count // columns)
    _dense(
        layer,
        w,
        bias,
        out,
        added,
        ends,
        image=x,
        rows=lines,
        image_step=0,
        line_step=columns * depth,
        column_step=depth,
        planes=1,
        plane_step=0,
        tall=1,
        tall_step=0,
        depth=depth,
        columns=columns,
        total=count,
        lines=lines,
        splits=splits,
    )


def of_linear(count: int, x: Place, w: Any, bias: Any, out: Place, added: Place | None, post: Sequence[tuple]) -> Any:
    """out (count, O) = what `post` makes of x (count, K) @ w (O, K).T + bias; added: what is added, like out."""
    found = ends(post)
    if found is None or lanes(len(w)) < 4:
        return None
    layer = Layer()
    _product(layer, count, x, w, bias, out, added, found)
    return layer


def of_convolution(
    x: Place,
    size: Sequence[int],
    planar: bool,
    w: Any,
    bias: Any,
    out: Place,
    result: Sequence[int],
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    added: Place | None,
    post: Sequence[tuple],
) -> Layer | None:
    """out, of shape `result` (N, O, P, Q), = what `post` makes of x, of shape `size` (N, C, H, W), convolved with
    w (O, C/G, kh, kw).

    All lie channels-last, but x where `planar`: in torch's order then.
    """
    found = ends(post)
    if found is None or len(size) != 4:
        return None
    if groups > 1:
        return (
            None if planar else _each_channel(x, size, w, bias, out, result, stride, padding, dilation, groups, found)
        )
    if lanes(len(w)) < 4 or (dilation[1] > 1 and w.shape[3] > 1):
        return None
    layer = Layer()
    count, channels, height, width = size
    kernel = tuple(w.shape[2:])
    if kernel == (1, 1) and not any(padding) and tuple(stride) == (1, 1) and not planar:
        _product(layer, count * height * width, x, w.reshape(w.shape[:2]), bias, out, added, found)
        return layer
    # `pixel_step`: elements between neighbours of a row; planes have rows of their own, each of `length` elements
    pixel_step, planes = (1, channels) if planar else (channels, 1)
    image: Any = x
    if any(padding):
        lines, pitch = height + 2 * padding[0], (width + 2 * padding[1]) * pixel_step
        image = empty((count * planes * lines * pitch,), _F32)
        layer.stage(
            count * planes * lines,
            image_layers.padded,
            image_layers.PADDED,
            image=x,
            result=image,
            rows=height,
            length=width * pixel_step,
            above=padding[0],
            before=padding[1] * pixel_step,
            lines=lines,
            pitch=pitch,
        )
        height, width = lines, width + 2 * padding[1]
    pitch = width * pixel_step
    taps = w if planar else w.transpose(0, 2, 3, 1)
    _dense(
        layer,
        np.ascontiguousarray(taps),
        bias,
        out,
        added,
        found,
        image=image,
        rows=result[2],
        image_step=planes * height * pitch,
        line_step=stride[0] * pitch,
        column_step=stride[1] * pixel_step,
        planes=planes,
        plane_step=height * pitch,
        tall=kernel[0],
        tall_step=dilation[0] * pitch,
        depth=kernel[1] * pixel_step,
        columns=result[3],
        total=count * result[2] * result[3],
        lines=count * result[2],
        splits=_splits(w.size, count * planes * height * pitch, len(w)),
    )
    return layer


def points(x: Place, chosen: winograd.Prepared, out: Place, added: Place | None) -> Layer:
    """The same by Winograd's points, as a plan has it prepared."""
    layer, route = Layer(), chosen.route
    code, buffer, pieces = route.calls(chosen.rectified)
    layer.retained += [chosen, buffer]
    jobs = []
    for given, first, last in pieces:
        shift = given["zeros"] if chosen.bias is None else chosen.bias
        args = layer.arguments(
            llvm_winograd.FORWARD,
            **given,
            image=x,
            weights=chosen.packed_weights.buffer,
            result=out,
            bias=shift,
            added=added or 0,
        )
        jobs.append([(lambda: code, args, first, last)])
    layer.stages.append([jobs])
    return layer


def _each_channel(
    x: Place,
    size: Sequence[int],
    w: Any,
    bias: Any,
    out: Place,
    result: Sequence[int],
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    ends: Any,
) -> Layer | None:
    channels, wide = size[1], w.shape[3]
    width = lanes(channels)
    if groups != channels or len(w) != channels or ends[0] or tuple(dilation) != (1, 1) or width < 4 or wide > _WIDEST:
        return None
    layer = Layer()
    first = min(-(-padding[1] // stride[1]), result[3])
    last = max(first, min((size[3] - wide + padding[1]) // stride[1] + 1, result[3]))
    shift = np.zeros(channels, _F32) if bias is None else np.ascontiguousarray(bias, _F32)
    layer.stage(
        result[0] * result[2],
        image_layers.depthwise,
        image_layers.DEPTHWISE,
        width,
        wide,
        stride[1],
        image=x,
        weights=np.ascontiguousarray(w[:, 0].transpose(1, 2, 0), _F32),
        result=out,
        bias=shift,
        zeros=np.zeros(channels, _F32),
        low=_bits(ends[1]),
        high=_bits(ends[2]),
        height=size[2],
        width=size[3],
        channels=channels,
        rows=result[2],
        columns=result[3],
        above=padding[0],
        left=padding[1],
        tall=w.shape[2],
        step_down=stride[0],
        first=first,
        last=last,
    )
    return layer


def of_pooling(x: Place, size: Sequence[int], out: Place, result: Sequence[int], how: Sequence[Any]) -> Layer | None:
    """out (N, C, P, Q) of x (N, C, H, W), channels-last: the maxima of windows, or the mean of all there is.

    how: algorithm, kernel, stride, padding, dilation, as `arrays.pooling` takes them.
    """
    from engine.backends.onednn import _abi

    if len(size) != 4 or lanes(size[1]) < 4:
        return None
    layer = Layer()
    algorithm, kernel, stride, padding, dilation = how
    count, channels, height, width = size
    if algorithm == _abi.POOLING_MAX:
        layer.stage(
            count * result[2],
            pooling.max_pool,
            pooling.POOL,
            lanes(channels),
            image=x,
            result=out,
            height=height,
            width=width,
            channels=channels,
            rows=result[2],
            columns=result[3],
            tall=kernel[0],
            wide=kernel[1],
            step_down=stride[0],
            step_across=stride[1],
            above=padding[0],
            left=padding[1],
            dilation_down=dilation[0],
            dilation_across=dilation[1],
        )
        return layer
    if tuple(kernel) != (height, width) or any(padding):
        return None
    return of_mean(x, size, out)


def of_mean(x: Place, size: Sequence[int], out: Place) -> Layer | None:
    """out (N, C), the means over all of *size of x (N, C, *size), channels-last."""
    count, channels, pixels = size[0], size[1], prod(size[2:])
    wide = lanes(channels)
    if wide < 4:
        return None
    layer = Layer()
    layer.stage(
        count * channels // wide,
        image_layers.mean,
        image_layers.MEAN,
        wide,
        image=x,
        result=out,
        pixels=pixels,
        channels=channels,
        part=_bits(1 / pixels),
    )
    return layer


def joined(before: Layer | None, each: Layer, after: Layer) -> Layer | None:
    """A depthwise convolution, the products after it and, if given, those before it, as one stage of bands of lines.

    What is between them is a band in the cache of the thread that makes it, from rows of the layer before that
    neighbouring bands make both.  None where a layer is another thing, or is elsewhere in each call, or where the
    result would go to memory of the image: what a band writes there its neighbours still read.
    """
    parts = [layer for layer in (before, each, after) if layer is not None]
    products = [layer for layer in (before, after) if layer is not None]
    if any(len(layer.stages) != 1 for layer in parts) or each.function is not image_layers.depthwise:
        return None
    if any(layer.function is not image_layers.dense or not _rows_alone(layer.given) for layer in products):
        return None
    first, middle, last = parts[0].given, each.given, after.given
    outer = first["image"], last["result"], last["added"]
    if any(isinstance(place, Place) and place.array is None for place in outer):
        return None
    if np.may_share_memory(_array(first["image"]), _array(last["result"])):
        return None
    if before is not None and first["added"]:  # to all of its result, not to a band
        return None
    height, width, channels, lines, columns = (middle[n] for n in ("height", "width", "channels", "rows", "columns"))
    count = last["total"] // (lines * columns)
    reach, step = middle["tall"], middle["step_down"]
    made = Layer()
    made.retained += [layer.retained for layer in parts]
    several = threads.get_num_threads()
    band = max(1, min(_BAND // (channels * (step * width + columns)), -(-lines // (2 * several))))
    bands = [(n, r, min(r + band, lines)) for n in range(count) for r in range(0, lines, band)]
    inside = min(height, (band - 1) * step + reach) * width * channels if before is not None else 0
    jobs: list[Any] = []
    for _ in range(several):
        buffer = empty((inside + band * columns * channels,), _F32)
        between = address(buffer) + 4 * inside
        made.retained.append(buffer)
        jobs.append([])
        for n, top, bottom in bands:
            begin = max(0, top * step - middle["above"])
            end = min(height, (bottom - 1) * step - middle["above"] + reach)
            chain = []
            image = _at(first["image"]) + 4 * n * height * width * first.get("depth", channels)
            if before is not None:
                source = image + 4 * begin * width * first["depth"]
                chain.append(_few(made, before, (end - begin) * width, source, address(buffer), 0))
                image = address(buffer) - 4 * begin * width * channels  # of an image of which these rows are there
            args = made.arguments(
                image_layers.DEPTHWISE,
                **{**middle, "image": image, "result": between - 4 * top * columns * channels},
            )
            chain.append((each.code, args, top, bottom))
            shift = 4 * (n * lines + top) * columns * last["outputs"]
            added = _at(last["added"]) + shift if last["added"] else 0
            chain.append(_few(made, after, (bottom - top) * columns, between, _at(last["result"]) + shift, added))
            jobs[-1].append(chain)
    made.stages.append(jobs)
    return made


def _rows_alone(given: dict[str, Any]) -> bool:
    """Return whether a product's rows lie one after the other, as those of its result do."""
    return given.get("column_step", 0) == given.get("depth") and given["tall"] == given["planes"] == 1


def _few(made: Layer, layer: Layer, count: int, image: int, result: int, added: int) -> Any:
    """The step of `count` rows of a product, at these addresses."""
    changed = dict(
        image=image, result=result, added=added, adds=added != 0, rows=1, columns=count, total=count, lines=1, splits=1
    )
    return layer.code, made.arguments(image_layers.DENSE, **{**layer.given, **changed}), 0, 1


def _array(where: Any) -> Any:
    return where.array if isinstance(where, Place) else where


def _at(where: Any) -> int:
    return address(_array(where))
