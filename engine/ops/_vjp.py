"""Gradients of fused backward ops, by differentiating the same arithmetic written with small ops.

A fused backward (of a norm, of an LSTM) is one op for speed; its own gradient, needed only for double backward, is
that of a composite twin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine.autograd.engine import run_backward
from engine.autograd.graph import edge_of, requires_grad_of
from engine.core.grad_mode import mode
from engine.tensor import Tensor


def vjp(
    twin: Callable[..., Any],
    inputs: Sequence[Tensor | None],
    grads: Sequence[Tensor | None],
    needs: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """The gradients of `twin(*inputs)` weighted by `grads`, for the inputs in `needs`; differentiable in grad mode."""
    from engine.dispatch import OPS

    alias = OPS["alias"].function
    create_graph, mode.enabled = mode.enabled, True
    try:
        fresh = [alias(x) if need and x is not None else x for x, need in zip(inputs, needs)]
        outputs = twin(*fresh)
        if isinstance(outputs, Tensor):
            outputs = (outputs,)
        roots = [
            (edge_of(y), g) for y, g in zip(outputs, grads) if y is not None and g is not None and requires_grad_of(y)
        ]
        wanted = [i for i, need in enumerate(needs) if need and fresh[i] is not None and requires_grad_of(fresh[i])]
        found = run_backward(roots, create_graph, create_graph, [edge_of(fresh[i]) for i in wanted])
    finally:
        mode.enabled = create_graph
    result: list[Tensor | None] = [None] * len(inputs)
    for i, g in zip(wanted, found):
        result[i] = g
    return tuple(result)


WHY = "a function of the input also through what the forward saved: checked by gradgradcheck of the forward"
