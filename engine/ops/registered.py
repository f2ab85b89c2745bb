"""The operations that the graph, the tensor and copies need and do not know: they get them here."""

from __future__ import annotations

import builtins
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from engine import backends
from engine.autograd.graph import registered
from engine.backends.cpu import relayout
from engine.core import dtypes, layouts
from engine.core.layouts import ChannelsLast
from engine.dispatch import PUBLIC
from engine.dispatch.choosing import worth_loading
from engine.ops.copying import _resize, clone, clone_strided, converted, copy_, zero_
from engine.ops.pointwise.arithmetic import add
from engine.ops.reduction import sum_to_size
from engine.tensor import Tensor, raw_array, wrap


def _add_in_place(total: Tensor, more: Tensor) -> None:
    array, other = raw_array(total), raw_array(more)
    if type(array) is not type(other):
        array, other = total._array, more._array
    elif type(array) is ChannelsLast:
        array.packed = None
    if isinstance(array, np.ndarray) or not _added_by_kernel(array, other):
        array += other
    total._vc[0] += 1


def _added_by_kernel(array: Any, other: Any) -> bool:
    """Add on a GPU by a kernel of the engine's own, which costs the host less than CuPy's does."""
    backend = backends.known(array)
    if backend is None or backend.kind != "cuda":
        return False
    from engine.ops.cuda import _launch, elementwise

    return _launch.usable("pointwise") and elementwise.add_in_place(backends.xp_of(array), array, other)


def _contiguous_copy(tensor: Tensor, like: Tensor) -> Tensor:
    array = tensor._array
    flags = like._array.flags
    xp, plain = backends.xp_of(array), flags.c_contiguous or like._array.shape != array.shape
    if plain and (xp is not np or array.nbytes < (1 << 20 if array.flags.c_contiguous else relayout.FEW)):
        return wrap(array.copy("C"))
    from engine.backends.cpu import empty

    if plain and array.__class__ is np.ndarray and not array.flags.c_contiguous:
        return wrap(relayout.contiguous(array))
    result = empty(array.shape, array.dtype) if plain else layouts.empty_preserved(xp, like._array, array.dtype)
    if xp is np and array.__class__ is np.ndarray:
        relayout.copy(result, array)  # of a transposed gradient numpy takes ten times as long
    else:
        result[...] = array
    return wrap(result)


def _copies() -> Any:
    from engine.ops.generated import copies  # for the weight

    return copies


def _transposes() -> Any:
    from engine.ops.generated import transposes  # for the weight

    return transposes


def _once_worth_loading(slot: str, code: Callable[[], Any], size: Callable[..., int], left: Any) -> Callable[..., Any]:
    """What stands in a slot of `relayout` until generated code is worth loading, whose module takes its place then.

    size(*args): the elements of a call.  left: what it returns where the call is left to numpy.
    """

    def first(*args: Any) -> Any:
        from engine.kernels import processor

        if not processor.available():
            setattr(relayout.providers, slot, None)
            return left
        return getattr(code(), slot)(*args) if worth_loading(size(*args)) else left

    return first


def _taken_elements(array: np.ndarray, index: np.ndarray, axis: int) -> int:
    return index.size * array.size // array.shape[axis]


relayout.providers.contiguous = _once_worth_loading("contiguous", _copies, lambda source: source.size, NotImplemented)
relayout.providers.placed = _once_worth_loading(
    "placed", _copies, lambda grad, shape, index, plain: math.prod(shape), NotImplemented
)
relayout.providers.added = _once_worth_loading("added", _copies, lambda array, grad, index: grad.size, False)
relayout.providers.taken = _once_worth_loading("taken", _copies, _taken_elements, NotImplemented)
relayout.providers.joined = _once_worth_loading(
    "joined", _copies, lambda arrays, axis: sum(a.size for a in arrays), NotImplemented
)
relayout.providers.written = _once_worth_loading("written", _copies, lambda target, source: target.size, False)
relayout.providers.filled = _once_worth_loading("filled", _copies, lambda target, value: target.size, False)
relayout.providers.transposed = _once_worth_loading(
    "transposed", _transposes, lambda target, source: source.size, False
)


def _cast(tensor: Tensor, dtype: Any) -> Tensor:
    target = dtype if isinstance(dtype, dtypes.dtype) else dtypes.from_numpy(dtype)
    if tensor._array.dtype.kind in "cW" and not target.is_complex:
        tensor = tensor.real
    return converted(tensor, target)


def _resize_out(target: Tensor, shape: tuple[int, ...]) -> None:
    if target._array.size:
        warnings.warn(
            f"An output with one or more elements was resized since it had shape {list(target._array.shape)}, which "
            f"does not match the required output shape {list(shape)}. This behavior is deprecated, and in a future "
            "PyTorch release outputs will not be resized unless they have zero elements. You can explicitly reuse an "
            "out tensor t by resizing it, inplace, to zero elements with t.resize_(0).",
            stacklevel=4,
        )
    version = target._vc[0]
    _resize(target, tuple(shape))
    target._vc[0] = version


def _zeros(shape: Any, dtype: Any, like: Any) -> Tensor:
    target = dtypes.to_numpy(dtype) if isinstance(dtype, dtypes.dtype) else dtype
    return wrap(backends.xp_of(like).zeros(shape, target))


registered.add = add
registered.add_ = _add_in_place
registered.clone = clone
registered.clone_strided = clone_strided
registered.contiguous_copy = _contiguous_copy
registered.copy_ = copy_
registered.zero_ = zero_
registered.cast = _cast
registered.zeros = _zeros
registered.resize_out = _resize_out
registered.sum_to_size = sum_to_size
registered.stack = lambda tensors: PUBLIC["stack"](tensors)
registered.isnan_any = lambda t: builtins.bool((t._array != t._array).any())
