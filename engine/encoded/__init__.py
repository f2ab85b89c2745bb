"""Tensors whose elements stand for something else than their bytes say: quantized ones, and those of 8-bit floats.

An `EncodedTensor` is a Tensor without an array that kernels could take: `_array` raises, and so does every operation
that its class does not define.  What is known without decoding is here: shape, strides, sizes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.core import layouts
from engine.core.checks import wrap_dim
from engine.core.device import CPU, device
from engine.dispatch.overriding import disabled
from engine.tensor import Size, Tensor

__all__ = ["EncodedTensor"]


class EncodedTensor(Tensor):
    """Elements `_q` (*) on the CPU, without gradients; subclasses say in `_array` what cannot be done with them."""

    layout = layouts.strided
    __torch_function__ = disabled
    _requires_grad = False
    _q: np.ndarray

    @property
    def shape(self) -> Size:
        return Size(self._q.shape)

    def size(self, dim: int | None = None) -> Any:
        """The sizes, or the one of `dim`."""
        return self.shape if dim is None else self._q.shape[wrap_dim(dim, self._q.ndim)]

    ndim = property(lambda self: self._q.ndim, doc="The number of dimensions.")

    def dim(self) -> int:
        """The number of dimensions."""
        return self._q.ndim

    ndimension = dim

    def numel(self) -> int:
        """The number of elements."""
        return self._q.size

    nelement = numel

    def element_size(self) -> int:
        """Bytes per element."""
        return self._q.itemsize

    itemsize = property(element_size, doc="Bytes an element.")
    nbytes = property(lambda self: self._q.nbytes, doc="Bytes of all elements.")

    @property
    def device(self) -> device:
        return CPU

    def stride(self, dim: int | None = None) -> Any:
        """Steps in elements."""
        steps = tuple(s // self._q.itemsize for s in self._q.strides)
        return steps if dim is None else steps[dim]

    def storage_offset(self) -> int:
        """0."""
        return 0

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Return whether elements lie in order."""
        return bool(self._q.flags.c_contiguous)

    def __len__(self) -> int:
        return len(self._q)
