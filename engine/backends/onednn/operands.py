"""Operands as oneDNN takes them: of its types, dense, laid out alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends.cpu import empty, half_floats
from engine.backends.cpu.fast import fast
from engine.backends.cpu.relayout import empty_channels_last, to_channels_last
from engine.backends.onednn import library
from engine.backends.onednn.primitives import usable
from engine.core.layouts import INNER, ChannelsLast, lies_channels_last

__all__ = ["alike", "dense", "flat", "like", "rows_of_channels", "takes", "target"]


def takes(*arrays: Any) -> bool:
    """Return whether oneDNN may work on these: all float32, or all of one 16-bit type, of which it may have kernels."""
    if usable(*arrays):
        return True
    first = arrays[0]
    if first.dtype.itemsize != 2 or not first.size or not half_floats.is_half(first):
        return False
    return all(a.dtype == first.dtype for a in arrays) and library.load() is not None and library.state.enabled


def dense(array: Any) -> Any:
    """The array as it is if it is contiguous or channels-last, else a contiguous copy."""
    if array.flags.c_contiguous or (array.ndim > 2 and lies_channels_last(array)):
        return array
    return fast.ascontiguousarray(array)


def like(array: Any) -> Any:
    """Return a new array laid out as a dense one, of its class."""
    if array.flags.c_contiguous:
        return empty(array.shape, array.dtype)
    made = empty_channels_last(array.shape, array.dtype)
    return made if type(array) is ChannelsLast else made.view(np.ndarray)


def alike(array: Any, wanted: Any) -> Any:
    """Return `array`, or a copy of it, laid out as the dense array `wanted`."""
    if array.flags.c_contiguous == wanted.flags.c_contiguous and array.strides == wanted.strides:
        return array
    if wanted.flags.c_contiguous:
        return fast.ascontiguousarray(array)
    return to_channels_last(fast.ascontiguousarray(array) if 0 in array.strides else array)


def target(array: Any, into: Any) -> Any:
    """Return `into`, where it is given and laid out as the dense `array`; else a new array that is."""
    if into is not None and into.dtype == array.dtype and into.strides == array.strides:
        return into if into.shape == array.shape else like(array)
    return like(array)


def rows_of_channels(array: Any) -> Any:
    """Return a channels-last (N, C, *size) as the matrix (N * size, C) that its memory is."""
    back = array.transpose(INNER[array.ndim])
    return back.view(np.ndarray).reshape(-1, array.shape[1])


def flat(array: Any) -> Any:
    """Return a dense array as one line of its memory."""
    if not array.flags.c_contiguous:
        array = array.transpose(INNER[array.ndim])
    return array.view(np.ndarray).reshape(-1)
