"""The messages for attributes of a tensor that are read or set, in torch's words."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

from engine.core import dtypes

__all__ = [
    "GRAD_OF_NON_LEAF",
    "always",
    "outside",
    "read_only",
    "refuse_data",
    "refuse_deletion",
    "refuse_gradient",
    "warn_of_conversion",
    "warn_of_typed_storage",
    "warn_once",
]

GRAD_OF_NON_LEAF = (
    "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
    "populated during autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf Tensor, "
    "use .retain_grad() on the non-leaf Tensor. If you access the non-leaf Tensor by mistake, make sure you access "
    "the leaf Tensor instead. See github.com/pytorch/pytorch/pull/30531 for more information."
)
_CONVERSION = (
    "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.\n"
    "Consider using tensor.detach() first."
)
_TYPED_STORAGE = (
    "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only storage class. "
    "This should only matter to you if you are using storages directly.  To access UntypedStorage directly, use "
    "tensor.untyped_storage() instead of tensor.storage()"
)
_warned: set[str] = set()  # what is said once per process
_OURS = (os.path.dirname(os.path.dirname(__file__)) + os.sep, "<engine ")
always = [False]  # `set_warn_always`: said each time


def read_only(name: str, get: Callable[[Any], object], doc: str | None = None) -> property:
    """Return an attribute of Tensor that can be neither assigned nor deleted: AttributeError with torch's sentence."""

    def refuse(*_: object) -> None:
        raise AttributeError(f"attribute '{name}' of 'torch._C.TensorBase' objects is not writable")

    return property(get, refuse, refuse, doc)


def outside() -> int:
    """The `stacklevel` for a warning: the first frame above the caller's that is neither the engine's nor generated."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame, level = frame.f_back, level + 1
    return level


def warn_once(subject: str, text: str) -> None:
    """Warn of a subject, once per process as torch does; each time after `set_warn_always(True)`."""
    if always[0] or subject not in _warned:
        _warned.add(subject)
        warnings.warn(text, stacklevel=outside())


def warn_of_conversion() -> None:
    """Warn of a scalar made of a tensor that requires grad."""
    warn_once("conversion", _CONVERSION)


def warn_of_typed_storage() -> None:
    """Warn that typed storages are deprecated: once per process as torch does, whatever `set_warn_always` says."""
    if "typed storage" not in _warned:
        _warned.add("typed storage")
        warnings.warn(_TYPED_STORAGE, stacklevel=outside())


def refuse_gradient(dtype: dtypes.dtype, own: dtypes.dtype) -> None:
    """Refuse a `.grad` of another dtype than the tensor's."""
    raise RuntimeError(
        f"attempting to assign a gradient with dtype '{dtypes.cpp_name(dtype)}' to a tensor with grad_dtype "
        f"'{dtypes.scalar_name(own)}'. The gradient must match the tensor's grad_dtype (defaults to the tensor's "
        "dtype). You can set the tensor's grad_dtype attribute with a specific dtype, or None to allow any dtype. Set "
        "grad_dtype with caution. Diverging the dtypes of a tensor and its gradient may break downstream systems that "
        "assume they match."
    )


def refuse_data() -> None:
    """Refuse `x.data = y` where only one of both is sparse."""
    raise RuntimeError(
        "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible tensor type."
    )


def refuse_deletion(tensor: object) -> None:
    """Refuse `del tensor._grad_fn`."""
    raise RuntimeError("Deletion of _grad_fn not allowed. Detach tensor instead!")


def check_data(source: Any, requires_grad: bool) -> None:
    """Raise torch's errors of `x.data = source`, where x may require grad."""
    if requires_grad and not (source.is_floating_point() or source.is_complex()):
        raise RuntimeError("data set to a tensor that requires gradients must be floating point or complex dtype")
    if source.is_sparse:
        refuse_data()
