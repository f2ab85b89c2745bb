"""Questions about tensors and dtypes that give no Tensor."""

from __future__ import annotations

from typing import Any

from engine import dispatch, dtypes
from engine.dispatch import composite
from engine.storage import UntypedStorage
from engine.tensor import Tensor


def _asked(name: str) -> Any:
    method = getattr(Tensor, name)

    def question(input):
        if not isinstance(input, Tensor):
            raise TypeError(
                f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}"
            )
        return method(input)

    question.__name__ = question.__qualname__ = name
    question.__doc__ = method.__doc__
    return composite(method=False)(question)


for _name in (
    "numel",
    "is_floating_point",
    "is_complex",
    "is_signed",
    "is_conj",
    "is_neg",
    "is_inference",
):
    _asked(_name)


@composite(method=True)
def is_nonzero(input):
    """Whether the one element is not zero.  RuntimeError unless there is exactly one."""
    return bool(input)


@composite(method=True)
def is_same_size(input, other):
    """Whether both have the same sizes."""
    return input._array.shape == other._array.shape


@composite(method=False)
def is_storage(obj):
    """Whether `obj` is a storage."""
    return isinstance(obj, UntypedStorage)


@composite(method=False)
def promote_types(type1, type2):
    """The smallest dtype that both convert to."""
    return dtypes.promote_types(type1, type2)


@composite(method=False)
def can_cast(from_, to):
    """Whether a result of dtype `from_` may be stored in `to`."""
    return dtypes.can_cast(from_, to)


@composite(method=False)
def result_type(tensor1, tensor2):
    """The dtype of an operation on two tensors or numbers."""
    for i, x in enumerate((tensor1, tensor2)):
        if not isinstance(x, Tensor) and not dispatch.is_number(x):
            raise TypeError(
                f"result_type(): argument 'tensor{i + 1}' (position {i + 1}) must be Tensor, not {type(x).__name__}"
            )
    return dispatch.result_dtype([tensor1, tensor2])
