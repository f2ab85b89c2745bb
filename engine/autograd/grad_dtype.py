"""`Tensor.grad_dtype`: the dtype to which the gradients of a leaf are cast, by a hook that is the first of all."""

from __future__ import annotations

import functools
from typing import Any

from engine.core import dtypes
from engine.core.hooks import HookDict
from engine.tensor import Tensor

_CAST = -1  # the id of that hook: those of others are not negative


def _cast(dtype: dtypes.dtype, gradient: Any) -> Any:
    return None if gradient is None else gradient.to(dtype)


def _get(self: Tensor) -> dtypes.dtype | None:
    """The dtype to which a leaf's gradients are cast: by default that of the leaf; None leaves them as they are."""
    if self.grad_fn is not None:
        raise RuntimeError("grad_dtype can only be accessed on leaf tensors.")
    return self.dtype if self._grad_dtype is ... else self._grad_dtype


def _set(self: Tensor, value: dtypes.dtype | None) -> None:
    if value is not None and not isinstance(value, dtypes.dtype):
        raise RuntimeError(f"grad_dtype must be a torch.dtype or None, but got {type(value).__name__}")
    if self.grad_fn is not None:
        raise RuntimeError("grad_dtype can only be set on leaf tensors.")
    if value is not None and self._grad is not None and self._grad.dtype is not value:
        raise RuntimeError(
            f"Cannot set grad_dtype to '{dtypes.scalar_name(value)}' because there is already a gradient with dtype "
            f"'{self._grad.dtype}'. Please clear the gradient (.grad = None) before changing grad_dtype, or ensure the "
            "new grad_dtype matches the existing gradient's dtype."
        )
    self._grad_dtype = value
    if self._hooks is not None:
        self._hooks.pop(_CAST, None)
    if value is not None and value is not self.dtype:
        self._hooks = hooks = HookDict() if self._hooks is None else self._hooks
        hooks[_CAST] = cast = functools.partial(_cast, value)
        cast.__torch_unserializable__ = True  # type: ignore[attr-defined]  # no warning when the tensor is saved
        hooks.move_to_end(_CAST, last=False)  # other hooks see the gradient as it is accumulated


Tensor.grad_dtype = property(_get, _set)  # type: ignore[method-assign, assignment]
