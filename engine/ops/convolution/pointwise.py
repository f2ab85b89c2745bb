"""Convolutions of single elements and their gradients: products of what is read, without the path of every geometry.

Arrays in torch's order, a product for each image: all by one launch of generated code, or one after the other by oneDNN
or BLAS.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from engine.backends.cpu import empty
from engine.core.arrays import Array
from engine.core.geometry import ConvGeometry
from engine.core.lru import LRU
from engine.dispatch.choosing import generated, run_on_arrays
from engine.ops.convolution import numpy as by_numpy
from engine.ops.products import mm
from engine.ops.products.images import products_of_places

__all__ = ["Steps", "few", "gradients", "in_steps", "of_gradient"]

_IMAGES = 4  # of which code that makes all at once is no faster where libraries multiply one after the other
_PLACES = 4  # of an image, of which generated code has no products of fewer
# Multiplications up to which products of images in torch's order are faster than oneDNN's convolution, which converts
# them; of steps, where what is read is copied first, and of all elements.
_IN_STEPS, _OF_ALL = 1 << 23, 1 << 27
_known: LRU[Hashable, Steps | bool] = LRU(1024)  # False where they do not serve


def _run(function: Any, *args: Array | None) -> Array:
    """Run an op of products, which has one result."""
    found = run_on_arrays(function, *args)
    assert isinstance(found, np.ndarray)
    return found


def in_steps(geometry: ConvGeometry, kernel: Sequence[int]) -> bool:
    """Return whether a convolution of single elements leaves some out: oneDNN has no fast code for it."""
    return geometry.pointwise(kernel) and any(s > 1 for s in geometry.stride)


class Steps:
    """A convolution of single elements, and its gradients."""

    used = True

    def __init__(self, size: Sequence[int], stride: Sequence[int], outputs: int) -> None:
        """`size` is the shape of the input."""
        out = tuple([(n - 1) // s + 1 for n, s in zip(size[2:], stride)])
        every = tuple([slice(0, (n - 1) * s + 1, s) for n, s in zip(out, stride)])
        self.out, self._read = out, (slice(None), slice(None), *every)
        self._size, self._shape = tuple(size), (size[0], outputs, *out)
        self._rows, self._columns = (size[0], size[1], math.prod(out)), (size[0], outputs, math.prod(out))
        self._matrix = outputs, size[1]

    @staticmethod
    def serve(size: Sequence[int], stride: Sequence[int], outputs: int, groups: int, *arrays: Array) -> bool:
        """Return whether arrays are in torch's order, and the products of few multiplications."""
        steps = math.prod(stride)
        if steps == 1 and size[0] > _IMAGES and (math.prod(size[2:]) < _PLACES or not generated(products_of_places.op)):
            return False
        work = math.prod(size) // steps * outputs
        fits = groups == 1 and 0 < work <= (_OF_ALL if steps == 1 else _IN_STEPS)
        return fits and all(a.flags.c_contiguous for a in arrays)

    def _taken(self, x: Array) -> Array:
        """What is read, a contiguous matrix for each image: BLAS serves no steps between the elements of a signal."""
        return np.ascontiguousarray(x[self._read]).reshape(self._rows)

    def __call__(self, x: Array, w: Array, bias: Array | None) -> Array:
        found = _run(products_of_places, w.reshape(self._matrix), self._taken(x), bias)
        return found.reshape(self._shape)

    def input(self, g: Array, w: Array) -> Array:
        """The gradient with respect to the input."""
        part = _run(products_of_places, w.reshape(self._matrix).T, g.reshape(self._columns), None)
        if self.out == self._size[2:]:  # all is read
            return part.reshape(self._size)
        made = empty(self._size, g.dtype)
        made.fill(0)
        read = made[self._read]
        read[...] = part.reshape(read.shape)
        return made

    def weight(self, g: Array, x: Array) -> Array:
        """The gradient with respect to the weight: the sum of the images' products."""
        made: Array | None = None
        for left, right in zip(g.reshape(self._columns), self._taken(x)):
            part = _run(mm, left, right.T)
            made = part if made is None else np.add(made, part, made)
        assert made is not None
        return made.reshape(*self._matrix, *(1,) * (len(self._size) - 2))


def _steps(size: Sequence[int], outputs: int, kernel: Sequence[int], geometry: Sequence[Any]) -> Steps | None:
    """The `Steps` of a convolution of an input of a shape; None where they do not serve."""
    key = tuple(size), outputs, tuple(kernel), *geometry
    if (found := _known.get(key)) is None:
        checked = ConvGeometry.of(*geometry)
        valid = len(kernel) == len(size) - 2 == len(checked.stride) == len(checked.padding) == len(checked.dilation)
        few = valid and min(*checked.stride, *checked.dilation) > 0 and checked.pointwise(kernel)
        fits = few and Steps.serve(size, checked.stride, outputs, checked.groups)
        found = _known[key] = Steps(size, checked.stride, outputs) if fits else False
    return found if isinstance(found, Steps) else None


def _alike(a: Array, b: Array) -> bool:
    """Return whether arrays are plain ones of one float type, in torch's order."""
    plain = a.__class__ is np.ndarray and b.__class__ is np.ndarray and a.dtype == b.dtype and a.dtype.char in "fd"
    return plain and a.flags.c_contiguous and b.flags.c_contiguous


def few(
    x: Array,
    w: Array,
    bias: Array | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Steps | None:
    """The `Steps` of a convolution, None where they do not serve or something does not fit."""
    shape = w.shape
    if math.prod(shape[2:]) != 1 or shape[1:2] != x.shape[1:2] or not _alike(x, w):
        return None
    if bias is not None and (bias.shape != shape[:1] or bias.dtype != x.dtype):
        return None
    return _steps(x.shape, shape[0], shape[2:], (tuple(stride), tuple(padding), tuple(dilation), groups))


def of_gradient(
    g: Array, other: Array, size: Sequence[int], outputs: int, kernel: Sequence[int], geometry: Sequence[Any]
) -> Steps | None:
    """The `Steps` of a gradient, made of that of the result (g) and another array; None where they do not serve.

    size: of the input."""
    if math.prod(kernel) != 1 or not _alike(g, other):
        return None
    found = _steps(size, outputs, kernel, geometry)
    return found if found is not None and found.out == g.shape[2:] else None


def gradients(
    grad: Array,
    input: Array,
    weight: Array,
    needs: Sequence[bool],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
) -> Any:
    """The gradients of input, weight and bias, None where `needs` has none; NotImplemented where others serve."""
    shape, size = input.shape, weight.shape
    if transposed or groups != 1 or math.prod(size[2:]) != 1 or any(padding):
        return NotImplemented
    if by_numpy.gradients_of_one_place(grad, weight, shape, padding, groups):
        of_input = by_numpy.input_of_one_place(np, grad, weight) if needs[0] else None
        of_weight = by_numpy.weight_of_one_place(np, grad, input) if needs[1] else None
        return of_input, of_weight, _sums(grad) if needs[2] else None
    found = of_gradient(grad, input, shape, size[0], size[2:], (stride, padding, dilation, groups))
    if found is None or not weight.flags.c_contiguous:
        return NotImplemented
    of_input = found.input(grad, weight) if needs[0] else None
    of_weight = found.weight(grad, input) if needs[1] else None
    return of_input, of_weight, _sums(grad) if needs[2] else None


def _sums(grad: Array) -> Array:
    """The sums over all but the channels, over the dims first that lie together."""
    made: Array = grad.reshape(*grad.shape[:2], -1).sum(2).sum(0)
    return made
