"""What a tensor says of attributes that are read or set, in torch's words."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

__all__ = ["GRAD_OF_NON_LEAF", "read_only", "refuse_deletion", "warn_of_conversion"]

GRAD_OF_NON_LEAF = (
    "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
    "populated during autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf Tensor, "
    "use .retain_grad() on the non-leaf Tensor. If you access the non-leaf Tensor by mistake, make sure you access "
    "the leaf Tensor instead. See github.com/pytorch/pytorch/pull/30531 for more informations."
)
_CONVERSION = (
    "Converting a tensor with requires_grad=True to a scalar may lead to unexpected behavior.\n"
    "Consider using tensor.detach() first."
)
_warned: set[str] = set()  # what is said once a process


def read_only(name: str, get: Callable[[Any], Any], doc: str | None = None) -> property:
    """Return an attribute of Tensor that can be neither assigned nor deleted: AttributeError with torch's sentence."""

    def refuse(*_: Any) -> None:
        raise AttributeError(f"attribute '{name}' of 'torch._C.TensorBase' objects is not writable")

    return property(get, refuse, refuse, doc)


def warn_of_conversion() -> None:
    if "conversion" not in _warned:
        _warned.add("conversion")
        warnings.warn(_CONVERSION, stacklevel=3)


def refuse_deletion(tensor: Any) -> None:
    """Refuse `del tensor._grad_fn`."""
    raise RuntimeError("Deletion of _grad_fn not allowed. Detach tensor instead!")
