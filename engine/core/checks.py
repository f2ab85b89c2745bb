"""Argument checks shared by every layer, with torch's sentences.

Nothing here knows a Tensor: shapes are tuples, dims are ints.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Iterable, Sequence
from typing import Any


def wrap_dim(dim: int, ndim: int) -> int:
    """`dim` counted from 0.  Raises IndexError, as torch, outside [-ndim, ndim-1] (a scalar has one dim)."""
    if dim.__class__ is not int:
        try:
            dim = operator.index(dim)
        except TypeError:
            raise TypeError(f"dim must be int, not {type(dim).__name__}") from None
    if 0 <= dim < ndim:
        return dim
    limit = ndim or 1
    if not -limit <= dim < limit:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-limit}, {limit - 1}], but got {dim})")
    return dim + limit if dim < 0 else dim


def own_dim(name: str, dim: int, ndim: int) -> int:
    """As `wrap_dim` for the sizes and strides of a tensor, of which one without dims has none."""
    if not isinstance(dim, builtins.int) and not hasattr(dim, "__index__"):
        raise TypeError(f"{name}(): argument 'dim' (position 1) must be int, not {type(dim).__name__}")
    if not ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return wrap_dim(dim, ndim)


def wrap_dims(dims: int | Iterable[int] | None, ndim: int) -> tuple[int, ...]:
    """Several dims counted from 0; None or () means all.  Raises RuntimeError for a repeated dim."""
    if dims is None:
        return tuple(range(ndim))
    if not isinstance(dims, Iterable):
        return (wrap_dim(dims, ndim),)
    wrapped = tuple(wrap_dim(d, ndim) for d in dims)
    if not wrapped:
        return tuple(range(ndim))
    seen: set[int] = set()
    for d in wrapped:
        if d in seen:
            raise RuntimeError(f"dim {d} appears multiple times in the list of dims")
        seen.add(d)
    return wrapped


def numel(shape: Iterable[int]) -> int:
    """The number of elements of a shape; 1 for ()."""
    n = 1
    for s in shape:
        n *= s
    return n


def size_of(*size: Any) -> tuple[int, ...]:
    """The sizes given either as one sequence or as separate ints: `(2, 3)` or `((2, 3),)` -> (2, 3).

    Raises TypeError for anything that is not an int.
    """
    if len(size) == 1:
        first = size[0]
        kind = first.__class__
        if kind is int:
            return size
        if kind is tuple:
            size = first
        elif isinstance(first, tuple | list) or (not hasattr(first, "__index__") and isinstance(first, Sequence)):
            size = tuple(first)
    for s in size:
        if s.__class__ is not int:
            break
    else:
        return size
    try:
        if any(s.__class__ is builtins.bool for s in size):
            raise TypeError
        return tuple(operator.index(s) for s in size)
    except TypeError:
        for i, s in enumerate(size):
            if not hasattr(s, "__index__") or isinstance(s, builtins.float | builtins.bool):
                raise TypeError(
                    f"size must be a tuple of ints, but found element of type {type(s).__name__} at pos {i}"
                ) from None
        raise


def single(count: int) -> bool:
    """True; ValueError unless a tensor that a Python number is made of has one element."""
    if count != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    return True


def infer_size(shape: Sequence[int], count: int) -> tuple[int, ...]:
    """`shape` with its one -1 replaced so that it holds `count` elements.  RuntimeError if it cannot."""
    known, unknown = 1, None
    for i, s in enumerate(shape):
        if s == -1:
            if unknown is not None:
                raise RuntimeError("only one dimension can be inferred")
            unknown = i
        elif s < 0:
            raise RuntimeError(f"invalid shape dimension {s} at index {i} of shape {list(shape)}")
        else:
            known *= s
    if unknown is None:
        if known == count:
            return tuple(shape)
    elif known and count % known == 0:
        return (*shape[:unknown], count // known, *shape[unknown + 1 :])
    elif known == 0 and count == 0:
        raise RuntimeError(
            f"cannot reshape tensor of 0 elements into shape {list(shape)} because the unspecified dimension size -1 "
            "can be any value and is ambiguous"
        )
    raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {count}")


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that all broadcast to.  RuntimeError with torch's sentence when they do not fit."""
    ndim = builtins.max((len(s) for s in shapes), default=0)
    result = [1] * ndim
    for shape in shapes:
        offset = ndim - len(shape)
        for i in range(len(shape) - 1, -1, -1):
            s, have = shape[i], result[offset + i]
            if s == have or s == 1:
                continue
            if have != 1:
                raise RuntimeError(
                    f"The size of tensor a ({have}) must match the size of tensor b ({s}) at non-singleton dimension "
                    f"{offset + i}"
                )
            result[offset + i] = s
    return tuple(result)


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in elements, as torch computes them (a dim of size 0 counts as 1)."""
    strides = [1] * len(shape)
    for i in range(len(shape) - 2, -1, -1):
        strides[i] = strides[i + 1] * builtins.max(shape[i + 1], 1)
    return tuple(strides)


def names_all(index: tuple[Any, ...], shape: tuple[int, ...]) -> bool:
    """Return whether an index of full slices and `...` names a whole tensor: torch takes no view to write to it."""
    slices = [i for i in index if i is not Ellipsis]
    if len(index) - len(slices) > 1 or len(slices) > len(shape):
        return False
    lead = index.index(Ellipsis) if len(slices) < len(index) else len(slices)
    sizes = (*shape[:lead], *shape[len(shape) - len(slices) + lead :])
    for item, n in zip(slices, sizes):
        if item.__class__ is not slice or item.start not in (None, 0) or item.step not in (None, 1):
            return False
        if item.stop is not None and not (item.stop.__class__ is int and item.stop >= n):
            return False
    return True
