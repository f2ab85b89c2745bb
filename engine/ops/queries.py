"""Questions about tensors and dtypes, and what Python does element by element (`apply_`, `map_`)."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from engine.core import dtypes
from engine.core.checks import numel as count_of
from engine.core.checks import size_of
from engine.core.storage import Memory, UntypedStorage, registered
from engine.dispatch import composite, promotion
from engine.tensor import Tensor


@composite(method=False)
def numel(input: Tensor) -> int:
    """The number of elements.  input (*)."""
    return input.numel()


@composite(method=False)
def is_floating_point(input: Tensor) -> bool:
    """Return whether the dtype is a floating point one.  input (*)."""
    return input.is_floating_point()


@composite(method=False)
def is_complex(input: Tensor) -> bool:
    """Return whether the dtype is complex.  input (*)."""
    return input.is_complex()


@composite(method=False)
def is_signed(input: Tensor) -> bool:
    """Return whether the dtype has negative numbers.  input (*)."""
    return input.is_signed()


@composite(method=False)
def is_conj(input: Tensor) -> bool:
    """False: conjugation is never lazy.  input (*)."""
    return input.is_conj()


@composite(method=False)
def is_neg(input: Tensor) -> bool:
    """False: negation is never lazy.  input (*)."""
    return input.is_neg()


@composite(method=False)
def is_inference(input: Tensor) -> bool:
    """False: inference mode makes ordinary tensors.  input (*)."""
    return input.is_inference()


@composite(method=True)
def is_nonzero(input: Tensor) -> bool:
    """Return whether the one element is not zero.  RuntimeError unless there is exactly one."""
    return bool(input)


@composite(method=True)
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Return whether both have the same sizes."""
    return input._array.shape == other._array.shape


@composite(method=False)
def is_storage(obj) -> bool:
    """Return whether `obj` is a storage."""
    return isinstance(obj, UntypedStorage)


@composite(method=False)
def promote_types(type1, type2) -> dtypes.dtype:
    """The smallest dtype that both convert to."""
    return dtypes.promote_types(type1, type2)


@composite(method=False)
def can_cast(from_, to) -> bool:
    """Return whether a result of dtype `from_` may be stored in `to`."""
    return dtypes.can_cast(from_, to)


@composite(method=False)
def result_type(tensor1, tensor2) -> dtypes.dtype:
    """The dtype of an operation on two tensors or numbers."""
    for i, x in enumerate((tensor1, tensor2)):
        if not isinstance(x, Tensor) and not promotion.is_number(x):
            raise TypeError(
                f"result_type(): argument 'tensor{i + 1}' (position {i + 1}) must be Tensor, not {type(x).__name__}"
            )
    return promotion.result_dtype([tensor1, tensor2])


@composite(method=False)
def set_flush_denormal(mode) -> bool:
    """False: numpy gives no control over denormal numbers."""
    return False


@composite(method=False)
def compiled_with_cxx11_abi() -> bool:
    """True, for code that asks."""
    return True


def _refuse_grad(tensor: Tensor, name: str) -> None:
    if tensor.requires_grad:
        raise RuntimeError(f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead.")
    if not tensor.is_cpu:
        raise TypeError(f"{name} is only implemented on CPU tensors")


def apply_(self: Tensor, callable: Any) -> Tensor:
    """Replace each element by `callable(element)`, in Python; for small CPU tensors.  (*) -> (*)."""
    _refuse_grad(self, "apply_")
    array = self._array
    for place, value in enumerate(array.reshape(-1).tolist()):
        array.flat[place] = _number(array, callable(value))
    self._vc[0] += 1
    return self


def _number(array: Any, value: Any) -> Any:
    """Check that a user's function returned a number that an array of this dtype takes, and return it."""
    if isinstance(value, int | float | complex | np.number | np.bool_ | Tensor):
        return value.item() if isinstance(value, Tensor) else value
    if array.dtype.kind in "iub":
        raise TypeError(f"'{type(value).__name__}' object cannot be interpreted as an integer")
    raise TypeError(f"must be real number, not {type(value).__name__}")


def map_(self: Tensor, tensor: Tensor, callable: Any) -> Tensor:
    """Replace each element a by `callable(a, b)`, b from `tensor`, in Python.  (*), tensor (*b) -> (*)."""
    _refuse_grad(self, "map_")
    _refuse_grad(tensor, "map_")
    array, other = self._array, tensor.expand(self.shape)._array
    for place, (a, b) in enumerate(zip(array.reshape(-1).tolist(), other.reshape(-1).tolist())):
        array.flat[place] = _number(array, callable(a, b))
    self._vc[0] += 1
    return self


def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Any) -> Tensor:
    """Replace each element a by `callable(a, b, c)`, b from `x` and c from `y`, in Python.  (*), (*b), (*c) -> (*)."""
    for tensor in (self, x, y):
        _refuse_grad(tensor, "map2_")
    array, *others = self._array, x.expand(self.shape)._array, y.expand(self.shape)._array
    columns = [a.reshape(-1).tolist() for a in (array, *others)]
    for place, values in enumerate(zip(*columns)):
        array.flat[place] = _number(array, callable(*values))
    self._vc[0] += 1
    return self


def _resized(self: Tensor, shape: tuple[int, ...]) -> Tensor:
    warnings.warn("non-inplace resize is deprecated", stacklevel=3)
    if count_of(shape) != self.numel():
        raise RuntimeError(
            f"requested resize to {'x'.join(map(str, shape))} ({count_of(shape)} elements in total), but the given "
            f"tensor has a size of {'x'.join(map(str, self.shape))} ({self.numel()} elements). autograd's resize can "
            "only change the shape of a given tensor, while preserving the number of elements. "
        )
    return self.contiguous().view(shape)


def resize(self: Tensor, *sizes: Any) -> Tensor:
    """As `reshape`, the deprecated name of torch 0.2: the number of elements must stay.  (*) -> (*sizes)."""
    return _resized(self, size_of(*sizes))


def resize_as(self: Tensor, tensor: Tensor) -> Tensor:
    """As `resize` to the sizes of another tensor.  (*), tensor (*b) -> (*b)."""
    return _resized(self, tuple(tensor.shape))


@composite(method=False)
def _debug_has_internal_overlap(input: Tensor) -> int:
    """Return 0 if all elements are in different places, 1 if some share one, 2 if that is hard to say."""
    pairs = [(s, n) for s, n in zip(input.stride(), input.shape) if n != 1]
    if not input.numel() or input.is_contiguous():
        return 0
    if any(s == 0 for s, _ in pairs):
        return 1
    expected = 1
    for stride, size in sorted(pairs):
        if stride != expected:
            return 2
        expected *= size
    return 0


def share_memory_(self: Tensor) -> Tensor:
    """Move the memory, and every tensor over it, to where other processes can map it; nothing on CUDA.  (*) -> (*)."""
    if not self.is_cuda:
        registered.share(Memory.of(self._array), self)
    return self


def storage_type(self: Tensor) -> Any:
    """The class of its typed storage: `torch.FloatStorage`."""
    return registered.type_named(f"{dtypes.scalar_name(self.dtype)}Storage")


Tensor.storage_type = storage_type  # type: ignore[attr-defined]
Tensor.apply_, Tensor.map_, Tensor.map2_, Tensor.share_memory_ = apply_, map_, map2_, share_memory_
Tensor.resize, Tensor.resize_as = resize, resize_as
