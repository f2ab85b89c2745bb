"""Adamax: Adam with the infinity norm (https://arxiv.org/abs/1412.6980, section 7.1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.optim.optimizer import (
    BlockOptimizer,
    advance,
    average,
    check_betas,
    check_lr,
    check_not_negative,
    effective,
    number,
    zeros_like,
)
from engine.tensor import Tensor

__all__ = ["Adamax"]


class Adamax(BlockOptimizer):
    """p -= lr * m / u, u = max(beta2 * u, |grad| + eps), m being the bias-corrected running mean of the gradient.

    https://docs.pytorch.org/docs/2.13/generated/torch.optim.Adamax.html
    """

    sparse_message = "Adamax does not support sparse gradients"
    newer_options = {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 2e-3,
        betas: tuple = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_lr(lr)
        check_not_negative(eps=eps)
        check_betas(betas)
        check_not_negative(weight_decay=weight_decay)
        super().__init__(
            params,
            dict(
                lr=lr,
                betas=betas,
                eps=eps,
                weight_decay=weight_decay,
                foreach=foreach,
                maximize=maximize,
                differentiable=differentiable,
                capturable=capturable,
            ),
        )

    def init_state(self, group: dict, p: Tensor, state: dict) -> None:
        state["step"] = self.new_counter(group, p)
        state["exp_avg"] = zeros_like(p)
        state["exp_inf"] = zeros_like(p)

    def prepare(self, group: dict, p: Tensor, state: dict) -> tuple[tuple[str, ...], tuple]:
        step = advance(state["step"])
        beta1, beta2 = group["betas"]
        size = number(group["lr"]) / (1 - beta1**step)
        return ("exp_avg", "exp_inf"), (
            beta1,
            beta2,
            size,
            group["eps"],
            group["weight_decay"],
            group["maximize"],
        )

    @staticmethod
    def kernel(xp: Any, scratch: list, numbers: tuple, p: Any, g: Any, m: Any, most: Any) -> None:
        beta1, beta2, size, eps, decay, maximize = numbers
        t, u = scratch
        g = effective(xp, p, g, decay, maximize, u)
        average(xp, m, g, beta1, t)
        xp.absolute(g, out=t)
        xp.add(t, eps, out=t)
        xp.multiply(most, beta2, out=most)
        xp.maximum(most, t, out=most)
        xp.divide(m, most, out=t)
        xp.multiply(t, size, out=t)
        xp.subtract(p, t, out=p)
