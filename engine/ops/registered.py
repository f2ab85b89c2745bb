"""The operations that the graph, the tensor and copies need and do not know: they get them here."""

from __future__ import annotations

import builtins
import math
import warnings
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


def _copied_by_generated_code(source: np.ndarray) -> Any:
    """A copy in the order of dims, once generated code is worth loading: `ops/generated/copies.py` fills the slot."""
    from engine.kernels import processor

    if not processor.available():
        relayout.providers.contiguous = None
        return NotImplemented
    if not worth_loading(source.size):
        return NotImplemented
    from engine.ops.generated import copies  # for the weight

    return copies.contiguous(source)


def _placed_by_generated_code(grad: np.ndarray, shape: Any, index: Any, plain: Any) -> Any:
    """Zeros with a gradient at an index; `_copied_by_generated_code`."""
    from engine.kernels import processor

    if not processor.available():
        relayout.providers.placed = None
        return NotImplemented
    if not worth_loading(math.prod(shape)):
        return NotImplemented
    from engine.ops.generated import copies  # for the weight

    return copies.placed(grad, shape, index, plain)


def _added_by_generated_code(array: np.ndarray, grad: np.ndarray, index: Any) -> bool:
    """A gradient added to an array at an index; `_copied_by_generated_code`."""
    from engine.kernels import processor

    if not processor.available():
        relayout.providers.added = None
        return False
    if not worth_loading(grad.size):
        return False
    from engine.ops.generated import copies  # for the weight

    return copies.added(array, grad, index)


relayout.providers.added = _added_by_generated_code


def _taken_by_generated_code(array: np.ndarray, index: np.ndarray, axis: int) -> Any:
    """The entries of a dim at an index; `_copied_by_generated_code`."""
    from engine.kernels import processor

    if not processor.available():
        relayout.providers.taken = None
        return NotImplemented
    if not worth_loading(index.size * array.size // array.shape[axis]):
        return NotImplemented
    from engine.ops.generated import copies  # for the weight

    return copies.taken(array, index, axis)


def _transposed_by_generated_code(target: np.ndarray, source: np.ndarray) -> bool:
    """A copy of transposed matrices; `_copied_by_generated_code`."""
    from engine.kernels import processor

    if not processor.available():
        relayout.providers.transposed = None
        return False
    if not worth_loading(source.size):
        return False
    from engine.ops.generated import transposes  # for the weight

    return transposes.transposed(target, source)


relayout.providers.transposed = _transposed_by_generated_code
relayout.providers.taken = _taken_by_generated_code
relayout.providers.contiguous = _copied_by_generated_code
relayout.providers.placed = _placed_by_generated_code


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
