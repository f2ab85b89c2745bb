"""Kernels of channels-last pictures where there is no oneDNN (the extra `jit`), in the place of those that call it.

Winograd's convolutions (winograd.py) and those of windows (windows.py) read and give channels-last pictures, Note
[Channels-last tensors] in layouts.py; pooling and batch norm keep them so.  What is left goes to the op's own kernel in
torch's order.  Each geometry of a convolution is tried: Winograd's way against the windows, these against the op's own.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.backends.cpu import dot, threads
from engine.backends.cpu.fast import fast
from engine.dispatch import OPS, kernel, providers
from engine.dispatch.choosing import large_kernel
from engine.kernels import processor
from engine.layouts import (
    INNER,
    ChannelsLast,
    asks_channels_last,
    empty_channels_last,
    follow,
    in_torch_order,
    lies_channels_last,
    to_channels_last,
)
from engine.ops.generated import channels, windows, winograd
from engine.ops.nn import _conv, _pool, norm, pooling
from engine.ops.nn import conv as convolution

_FEWEST = 1 << 17  # multiplications below which another layout is not worth its calls
_TURNED = 128  # multiplications an element for which a picture in torch's order is turned
_MANY = 1024  # geometries, then all are forgotten
_F32 = np.dtype("float32")

_known: dict[Any, Any] = {}
providers["dot"] = dot.dot


def _usable(*arrays: Any) -> bool:
    return all(a is None or (isinstance(a, np.ndarray) and a.dtype == _F32) for a in arrays)


def _picture(array: Any) -> Any:
    """The array in channels-last memory; a copy unless it lies so."""
    return array if lies_channels_last(array) else to_channels_last(array)


def _result(shape: Any, *operands: Any) -> Any:
    """A channels-last array for a result: converted, or the user's own layout where an operand has it."""
    made = empty_channels_last(shape, _F32)
    return made.view(np.ndarray) if any(asks_channels_last(a) for a in operands) else made


def _own(op: Any, *args: Any) -> Any:
    """What the op's own kernel gives of arrays in torch's order."""
    given = [in_torch_order(a) if isinstance(a, np.ndarray) and a.ndim > 2 else a for a in args]
    return OPS[op.__name__].kernel(fast, *given)


def _remembered(key: Any, make: Callable[[], Any]) -> Any:
    found = _known.get(key, _known)
    if found is _known:
        if len(_known) >= _MANY:
            _known.clear()
        found = _known[key] = make()
    return found


# --- convolution


def _worth(outputs: int, multiplications: int, groups: int) -> bool:
    """Whether windows may serve a convolution that makes so many channels."""
    enough = multiplications >= _FEWEST or (processor.always() and multiplications > 0)
    return groups == 1 and enough and windows.serves(outputs)


def _taken(picture: Any, weight: Sequence[int], multiplications: int) -> bool:
    """Whether a picture lies channels-last, or there is much to do with it.

    One in torch's order may be wanted so: by convolutions in groups, between which 1x1 ones stand.
    """
    much = tuple(weight[2:]) != (1, 1) and multiplications >= _TURNED * picture.size
    return much or lies_channels_last(picture) or processor.always()


@kernel(convolution.convolution, "pictures")
def _convolution(xp, input, weight, bias=None, stride=(1,), padding=(0,), dilation=(1,), transposed=False,
                 output_padding=(0,), groups=1):  # fmt: skip
    if not _usable(input, weight, bias) or input.ndim != 4 or weight.ndim != 4:
        return NotImplemented
    geometry, output_padding = (tuple(stride), tuple(padding), tuple(dilation)), tuple(output_padding)
    converted = not asks_channels_last(input) and not asks_channels_last(weight)
    biased = bias is None or bias.shape
    lies = lies_channels_last(input)
    key = "forward", lies, input.shape, weight.shape, biased, geometry, transposed, output_padding, groups, converted
    make = lambda: _layer(input, weight, bias, geometry, transposed, output_padding, groups, converted)
    found = _remembered((*key, threads.get_num_threads()), make)
    return NotImplemented if found is None else found(input, weight, bias)


def _layer(
    x: Any, w: Any, bias: Any, geometry: Any, transposed: bool, output_padding: Any, groups: int, converted: bool
) -> Any:
    """What computes a convolution; None where the op's own kernel does."""
    convolution.check(x, w, bias, *geometry, transposed, output_padding, groups)
    if transposed:
        shape = convolution.transposed_shape(x, w, *geometry, output_padding, groups)
        return functools.partial(_transposed, shape, geometry) if groups == 1 else None
    out = _conv.output_size(x.shape[2:], w.shape[2:], *geometry)
    multiplications = x.shape[0] * math.prod(out) * w.size
    if not _worth(w.shape[0], multiplications, groups):
        return None
    if not _taken(x, w.shape, multiplications) and not winograd.serves(x.shape, w.shape, *geometry, groups):
        return None
    return _Layer(x.shape, w.shape, out, geometry, converted)


class _Layer:
    """A convolution by windows once they have proved themselves, by Winograd's way once that has."""

    used = True

    def __init__(self, x: Sequence[int], w: Sequence[int], out: Sequence[int], geometry: Any, converted: bool) -> None:
        self.shape, self.converted = (x[0], w[0], *out), converted
        self.windows, self.geometry = windows.Forward(x, w, out, geometry), geometry
        self.first = self._by_windows
        if winograd.serves(x, w, *geometry, 1):
            self.first = winograd.Forward(self._by_windows, x, w, geometry[1], converted)

    def __call__(self, x: Any, w: Any, bias: Any) -> Any:
        return self.first(x, w, bias)

    def _by_windows(self, x: Any, w: Any, bias: Any) -> Any:
        trial = self.windows
        if trial.proven:
            return self._run(x, w, bias)
        if trial.off:
            return _own(convolution.convolution, x, w, bias, *self.geometry, False, (0, 0), 1)
        other = w.view(ChannelsLast) if type(w) is ChannelsLast else w  # what each way keeps of it is its own
        return trial.chosen(lambda: self._run(x, w, bias), lambda: self._plain(x, other, bias), (x, w), w)

    def _plain(self, x: Any, w: Any, bias: Any) -> Any:
        """By numpy: the products of tiles have a trial of their own, which windows would make vain."""
        return follow(fast, _conv._plain(fast, in_torch_order(x), w, bias, *self.geometry, 1), x, w)

    def _run(self, x: Any, w: Any, bias: Any) -> Any:
        made = self.windows.run(_picture(x), w, bias, empty_channels_last(self.shape, _F32))
        return made if self.converted else made.view(np.ndarray)


def _transposed(shape: Any, geometry: Any, x: Any, w: Any, bias: Any) -> Any:
    made = _convolution_backward_input(np, x, w, shape, *geometry, 1)
    if made is not NotImplemented and bias is not None:
        made += bias.reshape(-1, 1, 1)
    return made


def _first(ways: Sequence[tuple[Any, Any]], plain: Any, operands: Sequence[Any], layer: Any = None) -> Any:
    """The result of the first way, (its trial, what it does), that serves; each is tried against those after it."""
    if not ways:
        return plain()
    (trial, run), *rest = ways
    if trial.proven:
        return run()
    others = lambda: _first(rest, plain, operands, layer)
    return others() if trial.off else trial.chosen(run, others, operands, layer)


@kernel(convolution.convolution_backward_input, "pictures")
def _convolution_backward_input(xp, grad_output, weight, size, stride, padding, dilation, groups):
    geometry = tuple(stride), tuple(padding), tuple(dilation)
    if not _usable(grad_output, weight) or grad_output.ndim != 4 or weight.ndim != 4 or not math.prod(size):
        return NotImplemented
    g, w, size = grad_output, weight, tuple(size)
    multiplications = g.size // g.shape[1] * w.size
    if not windows.Input.fits(geometry) or not _worth(size[1], multiplications, groups):
        return NotImplemented
    by_winograd = winograd.serves(size, w.shape, *geometry, groups)
    if not by_winograd and not _taken(g, w.shape, multiplications):
        return NotImplemented
    key = "input", size, w.shape, g.shape, geometry, threads.get_num_threads()
    tried = [_remembered(key, lambda: windows.Input(size, w.shape, g.shape, geometry))]
    if by_winograd:
        tried.insert(0, winograd.tried(winograd.Input, g.shape, w.shape, geometry[1]))
    ways = [(t, lambda t=t: t.run(_picture(g), w, _result(size, g, w))) for t in tried]  # type: ignore[misc]
    own = lambda: _own(convolution.convolution_backward_input, g, w, size, *geometry, groups)
    return _first(ways, own, (g, w), w)


@kernel(convolution.convolution_backward_weight, "pictures")
def _convolution_backward_weight(xp, grad_output, input, size, stride, padding, dilation, groups):
    geometry = tuple(stride), tuple(padding), tuple(dilation)
    if not _usable(grad_output, input) or grad_output.ndim != 4 or input.ndim != 4 or not math.prod(size):
        return NotImplemented
    g, x, size = grad_output, input, tuple(size)
    if not _worth(size[0], g.size // g.shape[1] * math.prod(size), groups):
        return NotImplemented
    key = "weight", x.shape, size, g.shape, geometry, threads.get_num_threads()
    tried = [_remembered(key, lambda: windows.Weight(x.shape, size, g.shape, geometry))]
    if winograd.serves(x.shape, size, *geometry, groups):
        tried.insert(0, winograd.tried(winograd.Weight, x.shape, g.shape, geometry[1]))
    ways = [(t, lambda t=t: t.run(_picture(x), _picture(g), np.empty(size, _F32))) for t in tried]  # type: ignore[misc]
    own = lambda: _own(convolution.convolution_backward_weight, g, x, size, *geometry, groups)
    return _first(ways, own, (x, g))


# --- pooling


def _pictures(*arrays: Any) -> bool:
    """Whether the first is a converted picture, and all are float32."""
    return type(arrays[0]) is ChannelsLast and _usable(*arrays) and lies_channels_last(arrays[0])


@kernel(pooling.max_pool2d_values, "pictures")
def _max_pool(xp, input, kernel_size, stride, padding, dilation, ceil_mode):
    if not _pictures(input):
        return NotImplemented
    geometry = tuple(kernel_size), tuple(stride), tuple(padding), tuple(dilation)
    out = [_pool.out_size(n, *g, ceil_mode) for n, g in zip(input.shape[2:], zip(*geometry))]
    shape = (*input.shape[:2], *out)
    own = lambda: _own(pooling.max_pool2d_values, input, *geometry, ceil_mode)
    return channels.pooled(input, shape, lambda: empty_channels_last(shape, _F32), geometry, own)


@kernel(pooling.max_pool_gradient, "pictures")
def _max_pool_gradient(xp, grad_output, input, output, kernel_size, stride, padding, dilation):
    if not _pictures(input, grad_output, output):
        return NotImplemented
    geometry = tuple(kernel_size), tuple(stride), tuple(padding), tuple(dilation)
    g = _picture(grad_output)
    own = lambda: _own(pooling.max_pool_gradient, grad_output, input, output, *geometry)
    return channels.unpooled(g, input, lambda: empty_channels_last(input.shape, _F32), geometry, own)


# --- batch norm: of rows, the pixels


def _rows(picture: Any) -> Any:
    """(N * size, C), the memory of a picture."""
    return _picture(picture).view(np.ndarray).transpose(INNER[picture.ndim]).reshape(-1, picture.shape[1])


def _of_rows(rows: Any, shape: Sequence[int]) -> Any:
    back = 0, len(shape) - 1, *range(1, len(shape) - 1)
    return rows.reshape(shape[0], *shape[2:], shape[1]).transpose(back).view(ChannelsLast)


def _normalizing(op: Any, count: int) -> None:
    """The kernel of an op whose first `count` operands are pictures, and whose (first) result is one."""

    @functools.cache
    def of_rows() -> Any:
        return large_kernel(OPS[op.__name__])

    @kernel(op, "pictures")
    def _(xp: Any, *args: Any, **options: Any) -> Any:
        pictures = args[:count]
        if not any(type(a) is ChannelsLast and lies_channels_last(a) for a in pictures) or not _usable(*pictures):
            return NotImplemented
        shape = args[0].shape
        made = of_rows()(np, *map(_rows, pictures), *args[count:], **options)
        return (_of_rows(made[0], shape), *made[1:]) if isinstance(made, tuple) else _of_rows(made, shape)


_normalizing(norm.batch_norm_train, 1)
_normalizing(norm.batch_norm_backward, 2)
_normalizing(norm.batch_norm_eval, 1)
_normalizing(norm.batch_norm_eval_backward, 2)
