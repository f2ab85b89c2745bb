"""Weights whose packed form is cached: see Note [Channels-last tensors] in layouts.py."""

from __future__ import annotations

import functools
import sys

import numpy as np

from engine.backends.cpu.allocator import Lease
from engine.backends.references import LOCAL_AND_ONE
from engine.core.layouts import ChannelsLast
from engine.dispatch.binder import onednn_kernels
from engine.tensor import Tensor, hold_converted


@functools.cache
def _tiles() -> bool:
    """Return whether convolutions may be generated: they keep packed weights."""
    from engine.kernels import processor

    return processor.available()


def lay_weight(weight: Tensor, worth: int) -> None:
    """Without gradients a weight is used again and again: the form that kernels of convolution pack of a converted one
    is cached.

    It is converted in its own memory, unless somebody else holds its array or a part of it, or it has fewer than
    `worth` elements.
    """
    array = weight._array
    if (
        type(array) is np.ndarray
        and array.size >= worth
        and array.dtype == np.float32
        and array.flags.c_contiguous
        # the tensor's attribute and the name hold a private array; a view would have it as its base
        and sys.getrefcount(array) == LOCAL_AND_ONE
        and (array.base is None or isinstance(array.base, Lease))
        and (array.shape[2:] == (3, 3) or onednn_kernels() or (array.ndim > 2 and _tiles()))
    ):
        hold_converted(weight, array.view(ChannelsLast))
        del weight._array
