"""Autocast's casts as calls of a recorded program, before the op that asks for them."""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

from engine.dispatch import autocast
from engine.programs.values import mapped, tensors_in
from engine.tensor import Tensor

if TYPE_CHECKING:
    from engine.programs.recorder import Recorder

__all__ = ["Casts"]

# functions that stay whole, and the op in them that says how autocast casts their operands
_CAST_AS = {
    **{f"conv{kind}{d}d": "convolution" for kind in ("", "_transpose") for d in (1, 2, 3)},
    "lstm": "lstm_layer",
    "cross_entropy": "softmax_nll_rows",
    "nll_loss": "nll_loss_rows",
    "binary_cross_entropy_with_logits": "bce_with_logits",
}
# those with steps between, some of which it casts: under autocast they do not stay whole
_CAST_INSIDE = frozenset(["einsum", "tensordot"])


class Casts:
    """Casts that are calls, also those of parameters: these stay in the program."""

    @staticmethod
    def dissolves(function: FunctionType) -> bool:
        """Return whether the calls inside of a function are noted instead of its own."""
        return autocast.state.on and function.__name__ in _CAST_INSIDE

    @staticmethod
    def cast(
        recorder: Recorder, function: FunctionType, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[tuple[object, ...], dict[str, Any]]:
        """The operands of a call as autocast has them."""
        op = getattr(function, "op", None)
        name = _CAST_AS.get(function.__name__, function.__name__) if op is None else op.name
        if function.__name__[-1] == "_":
            return args, kwargs
        target = autocast.target_of(name, tuple(tensors_in((args, kwargs))))
        if target is None:
            return args, kwargs

        def one(tensor: Tensor) -> Tensor:
            if not autocast.changes(tensor, target):
                return tensor
            made = tensor.to(target)
            number = recorder.numbers.get(id(made))
            if number is not None:
                recorder.derived[number] = True
            return made

        return mapped(args, one, Tensor), mapped(kwargs, one, Tensor)
