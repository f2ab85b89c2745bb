"""Resilient backpropagation (Riedmiller and Braun 1993)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine import backends
from engine.optim.optimizer import (
    BlockOptimizer,
    advance,
    check_lr,
    number,
    zeros_like,
)
from engine.tensor import Tensor, wrap

__all__ = ["Rprop"]


class Rprop(BlockOptimizer):
    """Steps by the gradient's sign; each element's step size grows while the sign holds and shrinks when it turns.

    https://docs.pytorch.org/docs/2.13/generated/torch.optim.Rprop.html
    """

    sparse_message = "Rprop does not support sparse gradients"
    newer_options = {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-2,
        etas: tuple = (0.5, 1.2),
        step_sizes: tuple = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(
            params,
            dict(
                lr=lr,
                etas=etas,
                step_sizes=step_sizes,
                foreach=foreach,
                maximize=maximize,
                differentiable=differentiable,
                capturable=capturable,
            ),
        )

    def init_state(self, group: dict, p: Tensor, state: dict) -> None:
        lr, array = number(group["lr"]), p._array
        full = backends.xp_of(array).full_like(array, complex(lr, lr) if p.is_complex() else lr)
        state["step"] = self.new_counter(group, p)
        state["prev"] = zeros_like(p)
        state["step_size"] = wrap(full)

    def prepare(self, group: dict, p: Tensor, state: dict) -> tuple[tuple[str, ...], tuple]:
        advance(state["step"])
        return ("prev", "step_size"), (*group["etas"], *group["step_sizes"], group["maximize"])

    @staticmethod
    def kernel(xp: Any, scratch: list, numbers: tuple, p: Any, g: Any, prev: Any, size: Any) -> None:
        minus, plus, least, most, maximize = numbers
        t, u = scratch
        if maximize:
            g = xp.negative(g, out=u)
        xp.multiply(g, prev, out=t)
        flipped = t < 0
        t[t > 0] = plus
        t[flipped] = minus
        t[t == 0] = 1
        xp.multiply(size, t, out=size)
        xp.clip(size, least, most, out=size)
        prev[...] = g
        prev[flipped] = 0  # a flipped sign is forgotten: no second shrinking next time
        xp.sign(prev, out=t)
        xp.multiply(t, size, out=t)
        xp.subtract(p, t, out=p)
