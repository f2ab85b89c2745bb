"""torch.nested's names: tensors whose rows have lengths of their own.  Each function raises NotImplementedError.

What to use instead: `nn.utils.rnn.pad_sequence` and a mask.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "as_nested_tensor", "masked_select", "narrow", "nested_tensor", "nested_tensor_from_jagged", "to_padded_tensor",
]  # fmt: skip


def _refuse(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"torch.nested.{name} is not supported: use nn.utils.rnn.pad_sequence and a mask instead"
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "NotImplementedError."
    return function


as_nested_tensor, nested_tensor, nested_tensor_from_jagged = map(
    _refuse, ["as_nested_tensor", "nested_tensor", "nested_tensor_from_jagged"]
)
masked_select, narrow, to_padded_tensor = map(_refuse, ["masked_select", "narrow", "to_padded_tensor"])
