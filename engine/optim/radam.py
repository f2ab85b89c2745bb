"""RAdam: Adam with a rectified variance (https://arxiv.org/abs/1908.03265)."""

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

__all__ = ["RAdam"]


class RAdam(BlockOptimizer):
    """Adam that steps by the mean alone until the variance of its adaptive rate is small enough (rho > 5).

    https://docs.pytorch.org/docs/2.13/generated/torch.optim.RAdam.html
    """

    sparse_message = "RAdam does not support sparse gradients"
    newer_options = {
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "decoupled_weight_decay": False,
        "capturable": False,
    }

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-3,
        betas: tuple = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
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
                maximize=maximize,
                foreach=foreach,
                capturable=capturable,
                decoupled_weight_decay=decoupled_weight_decay,
                differentiable=differentiable,
            ),
        )

    def init_state(self, group: dict, p: Tensor, state: dict) -> None:
        state["step"] = self.new_counter(group, p)
        state["exp_avg"] = zeros_like(p)
        state["exp_avg_sq"] = zeros_like(p)

    def prepare(self, group: dict, p: Tensor, state: dict) -> tuple[tuple[str, ...], tuple]:
        step = advance(state["step"])
        lr, (beta1, beta2), decay = number(group["lr"]), group["betas"], group["weight_decay"]
        correction = 1 - beta2**step
        limit = 2 / (1 - beta2) - 1
        rho = limit - 2 * step * beta2**step / correction
        size, adaptive = lr / (1 - beta1**step), rho > 5.0
        if adaptive:
            rect = (rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho)
            size *= (rect * correction) ** 0.5
        keep = 1
        if group["decoupled_weight_decay"]:
            keep, decay = 1 - lr * decay, 0
        return ("exp_avg", "exp_avg_sq"), (
            beta1,
            beta2,
            size,
            adaptive,
            group["eps"],
            decay,
            keep,
            group["maximize"],
        )

    @staticmethod
    def kernel(xp: Any, scratch: list, numbers: tuple, p: Any, g: Any, m: Any, v: Any) -> None:
        beta1, beta2, size, adaptive, eps, decay, keep, maximize = numbers
        t, u = scratch
        if keep != 1:
            xp.multiply(p, keep, out=p)
        g = effective(xp, p, g, decay, maximize, u)
        average(xp, m, g, beta1, t)
        xp.multiply(g, g, out=t)
        average(xp, v, t, beta2, t)
        if adaptive:
            xp.sqrt(v, out=t)
            xp.add(t, eps, out=t)
            xp.divide(m, t, out=t)
            xp.multiply(t, size, out=t)
        else:
            xp.multiply(m, size, out=t)
        xp.subtract(p, t, out=p)
