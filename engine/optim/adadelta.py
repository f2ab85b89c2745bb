"""Adadelta (Zeiler, https://arxiv.org/abs/1212.5701)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.optim.optimizer import (
    BlockOptimizer,
    advance,
    average,
    check_lr,
    check_not_negative,
    effective,
    number,
    zeros_like,
)
from engine.tensor import Tensor

__all__ = ["Adadelta"]


class Adadelta(BlockOptimizer):
    """p -= lr * delta, delta = sqrt(mean of delta^2 + eps) / sqrt(mean of grad^2 + eps) * grad.

    https://docs.pytorch.org/docs/2.13/generated/torch.optim.Adadelta.html
    """

    sparse_message = "Adadelta does not support sparse gradients"
    newer_options = {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        check_not_negative(eps=eps, weight_decay=weight_decay)
        super().__init__(
            params,
            dict(
                lr=lr,
                rho=rho,
                eps=eps,
                weight_decay=weight_decay,
                maximize=maximize,
                capturable=capturable,
                foreach=foreach,
                differentiable=differentiable,
            ),
        )

    def init_state(self, group: dict, p: Tensor, state: dict) -> None:
        state["step"] = self.new_counter(group, p)
        state["square_avg"] = zeros_like(p)
        state["acc_delta"] = zeros_like(p)

    def prepare(self, group: dict, p: Tensor, state: dict) -> tuple[tuple[str, ...], tuple]:
        advance(state["step"])
        return ("square_avg", "acc_delta"), (
            number(group["lr"]),
            group["rho"],
            group["eps"],
            group["weight_decay"],
            group["maximize"],
        )

    @staticmethod
    def kernel(xp: Any, scratch: list, numbers: tuple, p: Any, g: Any, square: Any, delta: Any) -> None:
        lr, rho, eps, decay, maximize = numbers
        t, u = scratch
        g = effective(xp, p, g, decay, maximize, u)
        xp.multiply(g, g, out=t)
        average(xp, square, t, rho, t)
        xp.add(square, eps, out=t)
        xp.sqrt(t, out=t)
        xp.divide(g, t, out=u)
        xp.add(delta, eps, out=t)
        xp.sqrt(t, out=t)
        xp.multiply(u, t, out=u)
        xp.multiply(u, u, out=t)
        average(xp, delta, t, rho, t)
        xp.multiply(u, lr, out=u)
        xp.subtract(p, u, out=p)
