"""Gradients of parts of a tensor, added in place to the gradient of the whole: the option `adds` of views."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from engine.backends.cpu import relayout
from engine.core.checks import wrap_dim
from engine.tensor import Tensor

__all__ = ["add_indexed", "add_item", "add_selected", "at_place"]


def _added(array: Any, grad: Any, index: tuple[Any, ...]) -> bool:
    """Add `grad` to array[index] in place, where both are numpy arrays of one float type; return whether they are."""
    if grad.__class__ is Tensor:
        grad = None if grad._channels_last is not None else grad._array
    if grad.__class__ is not np.ndarray or grad.dtype is not array.dtype or grad.dtype.kind not in "fc":
        return False
    if not array.flags.c_contiguous:
        return False
    added = relayout.providers.added
    if grad.size < relayout.FEW or added is None or not added(array, grad, index):
        part = array[index]
        np.add(part, grad, out=part)
    return True


def add_indexed(args: Any, grad: Any, array: Any) -> bool:
    """The gradient of `basic_index` or `select_index` added to another."""
    return bool(array.shape == args[0]) and _added(array, grad, args[1])


def add_item(args: Any, grad: Any, array: Any) -> bool:
    """The gradient of `item_index` added to another."""
    return bool(array.shape == args[0]) and _added(array, grad, (args[1], ...))


def add_selected(args: Any, grad: Any, array: Any) -> bool:
    """The gradient of `select` added to another."""
    return bool(array.shape == args[0]) and _added(array, grad, at_place(*args))


def at_place(shape: Any, dim: int, index: Any) -> tuple[Any, ...]:
    """The index of the slice at `index` of `dim`."""
    return (*[slice(None)] * wrap_dim(dim, len(shape)), operator.index(index), ...)
