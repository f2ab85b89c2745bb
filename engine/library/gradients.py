"""Gradient formulas that `torch.library.register_autograd` gave: a call of the operator as an `autograd.Function`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.autograd.function import Function
from engine.autograd.graph import requires_grad_of
from engine.tensor import Tensor

__all__ = ["Formula", "call"]


@dataclass(frozen=True)
class Formula:
    """`backward(ctx, *grads)` and `setup_context(ctx, inputs, output)` of an operator."""

    backward: Callable[..., Any]
    setup_context: Callable[..., Any] | None
    function: type[Function]


def _flat(args: tuple[Any, ...]) -> tuple[list[Any], list[int | None]]:
    """Arguments with lists of tensors opened; of each argument its length, None for what is no such list."""
    flat: list[Any] = []
    lengths: list[int | None] = []
    for value in args:
        if isinstance(value, list | tuple) and any(isinstance(v, Tensor) for v in value):
            flat += value
            lengths.append(len(value))
        else:
            flat.append(value)
            lengths.append(None)
    return flat, lengths


def _nested(flat: Any, lengths: list[int | None]) -> list[Any]:
    left = iter(flat)
    return [next(left) if n is None else [next(left) for _ in range(n)] for n in lengths]


class _Operator(Function):
    """forward(ctx, op, shape, named, *flat): the operator below autograd, then its setup_context."""

    @staticmethod
    def forward(ctx: Any, op: Any, shape: _Shape, named: dict[str, Any], *flat: Any) -> Any:
        """Run the kernel."""
        args = _nested(flat, shape.lengths)
        result = op.below(args, named)
        whole, named = op.filled(args, named)
        needs = [isinstance(v, Tensor) and requires_grad_of(v) for v in flat]
        ctx.needs_input_grad = tuple(_nested(needs, shape.lengths)) + (False,) * (len(whole) - len(args))
        ctx.shape, ctx.op = shape, op
        formula = op.formula
        if formula is not None and formula.setup_context is not None:
            if named:
                formula.setup_context(ctx=ctx, inputs=whole, keyword_only_inputs=named, output=result)
            else:
                formula.setup_context(ctx=ctx, inputs=whole, output=result)
        many = result if isinstance(result, tuple | list) else (result,)
        flat_result, shape.outputs = _flat(tuple(many))
        shape.kind = type(result) if isinstance(result, tuple | list) else None
        if shape.kind is list:
            flat_result, shape.outputs = list(result), [len(result)]
        return tuple(flat_result)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The formula's gradients, in the order of forward's arguments."""
        if ctx.op.formula is None:
            raise RuntimeError(
                f"Trying to backward through {ctx.op} but no autograd formula was registered. Please use "
                "register_autograd to add one."
            )
        shape = ctx.shape
        found = ctx.op.formula.backward(ctx, *_nested(grads, shape.outputs))
        found = tuple(found) if isinstance(found, tuple | list) else (found,)
        if len(shape.lengths) == 1 and shape.lengths[0] is not None and len(found) == shape.lengths[0] != 1:
            found = (list(found),)  # the one argument is a list: its gradients may come without another
        if len(found) < len(shape.lengths) or any(g is not None for g in found[len(shape.lengths) :]):
            raise RuntimeError(
                f"Expected the return from backward of {ctx.op} to be of the same structure as the inputs: got "
                f"{len(found)} gradients for {len(shape.lengths)} inputs"
            )
        flat: list[Any] = []
        for value, length in zip(found, shape.lengths):
            if length is None:
                flat.append(value)
            elif value is None:
                flat += [None] * length
            elif isinstance(value, list | tuple) and len(value) == length:
                flat += value
            else:
                raise RuntimeError(f"Expected backward of {ctx.op} to return a list of {length} gradients, got {value}")
        return (None, None, None, *flat)


class _Shape:
    """The nesting of the flat arguments and results of one call."""

    lengths: list[int | None]
    outputs: list[int | None]
    kind: type | None


def made_for(name: str) -> type[Function]:
    """The Function of one operator; its nodes bear torch's name for them."""
    mangled = "".join(c if c.isalnum() else "_" for c in name.replace("::", "_"))
    return type(f"GeneratedBackwardFor_{mangled}", (_Operator,), {})


_without: dict[str, type[Function]] = {}


def call(op: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Call an operator and record its formula (or that there is none)."""
    if op.formula is not None:
        function = op.formula.function
    else:
        full = f"{op.namespace}::{op._opname}.{op._overloadname}"
        function = _without.get(full) or _without.setdefault(full, made_for(full))
    shape = _Shape()
    flat, shape.lengths = _flat(args)
    result = function.apply(op, shape, named, *flat)
    if shape.kind is None:
        return result[0]
    nested = _nested(result, shape.outputs)
    return nested[0] if shape.kind is list else tuple(nested)
