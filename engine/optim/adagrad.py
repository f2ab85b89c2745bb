"""Adagrad (Duchi et al. 2011, http://jmlr.org/papers/v12/duchi11a.html)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine import backends
from engine.optim.optimizer import (
    BlockOptimizer,
    advance,
    check_lr,
    check_not_negative,
    effective,
    number,
)
from engine.tensor import Tensor, wrap

__all__ = ["Adagrad"]


class Adagrad(BlockOptimizer):
    """p -= lr / (1 + (step - 1) * lr_decay) * grad / (sqrt(sum of squared gradients) + eps).

    https://docs.pytorch.org/docs/2.13/generated/torch.optim.Adagrad.html
    """

    sparse_message = None  # type: ignore[assignment]
    newer_options = {"foreach": None, "maximize": False, "differentiable": False, "fused": None}

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr)
        check_not_negative(
            lr_decay=lr_decay,
            weight_decay=weight_decay,
            initial_accumulator_value=initial_accumulator_value,
            eps=eps,
        )
        super().__init__(
            params,
            dict(
                lr=lr,
                lr_decay=lr_decay,
                eps=eps,
                weight_decay=weight_decay,
                initial_accumulator_value=initial_accumulator_value,
                foreach=foreach,
                maximize=maximize,
                differentiable=differentiable,
                fused=fused,
            ),
        )
        self.accept_fused(fused, foreach, differentiable)
        for group in self.param_groups:
            for p in group["params"]:
                self.init_state(group, p, self.state[p])

    def init_state(self, group: dict, p: Tensor, state: dict) -> None:
        value = self.defaults["initial_accumulator_value"]
        array = p._array
        full = backends.xp_of(array).full_like(array, complex(value, value) if p.is_complex() else value)
        state["step"] = self.new_counter(group, p)
        state["sum"] = wrap(full)

    def share_memory(self) -> None:
        """Move the sums to shared memory."""
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"].share_memory_()

    def prepare(self, group: dict, p: Tensor, state: dict) -> tuple[tuple[str, ...], tuple]:
        step = advance(state["step"])
        size = number(group["lr"]) / (1 + (step - 1) * group["lr_decay"])
        return ("sum",), (size, group["eps"], group["weight_decay"], group["maximize"])

    @staticmethod
    def kernel(xp: Any, scratch: list, numbers: tuple, p: Any, g: Any, total: Any) -> None:
        size, eps, decay, maximize = numbers
        t, u = scratch
        g = effective(xp, p, g, decay, maximize, u)
        xp.multiply(g, g, out=t)
        xp.add(total, t, out=total)
        xp.sqrt(total, out=t)
        xp.add(t, eps, out=t)
        xp.divide(g, t, out=t)
        xp.multiply(t, size, out=t)
        xp.subtract(p, t, out=p)
