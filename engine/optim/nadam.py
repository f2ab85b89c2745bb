"""NAdam: Adam with Nesterov momentum (Dozat 2016)."""

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

__all__ = ["NAdam"]


class NAdam(BlockOptimizer):
    """Adam whose step mixes the new gradient and the mean, by a momentum that grows with the step.

    https://docs.pytorch.org/docs/2.13/generated/torch.optim.NAdam.html
    """

    sparse_message = "NAdam does not support sparse gradients"
    newer_options = {
        "maximize": False,
        "foreach": None,
        "capturable": False,
        "differentiable": False,
        "decoupled_weight_decay": False,
    }
    counters = ("step", "mu_product")
    counted = "params, mu_products and state_steps"

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 2e-3,
        betas: tuple = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
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
        check_not_negative(weight_decay=weight_decay, momentum_decay=momentum_decay)
        super().__init__(
            params,
            dict(
                lr=lr,
                betas=betas,
                eps=eps,
                weight_decay=weight_decay,
                momentum_decay=momentum_decay,
                decoupled_weight_decay=decoupled_weight_decay,
                maximize=maximize,
                foreach=foreach,
                capturable=capturable,
                differentiable=differentiable,
            ),
        )

    def init_state(self, group: dict, p: Tensor, state: dict) -> None:
        state["step"] = self.new_counter(group, p)
        state["mu_product"] = self.new_counter(group, p, 1.0)
        state["exp_avg"] = zeros_like(p)
        state["exp_avg_sq"] = zeros_like(p)

    def prepare(self, group: dict, p: Tensor, state: dict) -> tuple[tuple[str, ...], tuple]:
        step = advance(state["step"])
        lr, (beta1, beta2), decay = number(group["lr"]), group["betas"], group["weight_decay"]
        rate = group["momentum_decay"]
        mu = beta1 * (1.0 - 0.5 * 0.96 ** (step * rate))
        mu_next = beta1 * (1.0 - 0.5 * 0.96 ** ((step + 1) * rate))
        product = state["mu_product"]._array
        product *= mu
        past = product.item()
        of_g, of_m = lr * (1.0 - mu) / (1.0 - past), lr * mu_next / (1.0 - past * mu_next)
        keep = 1
        if group["decoupled_weight_decay"]:
            keep, decay = 1 - lr * decay, 0
        return ("exp_avg", "exp_avg_sq"), (
            beta1,
            beta2,
            of_g,
            of_m,
            1 / (1 - beta2**step),
            group["eps"],
            decay,
            keep,
            group["maximize"],
        )

    @staticmethod
    def kernel(xp: Any, scratch: list, numbers: tuple, p: Any, g: Any, m: Any, v: Any) -> None:
        beta1, beta2, of_g, of_m, correction, eps, decay, keep, maximize = numbers
        t, u = scratch
        if keep != 1:
            xp.multiply(p, keep, out=p)
        g = effective(xp, p, g, decay, maximize, u)
        average(xp, m, g, beta1, t)
        xp.multiply(g, g, out=t)
        average(xp, v, t, beta2, t)
        xp.multiply(g, of_g, out=u)
        xp.multiply(m, of_m, out=t)
        xp.add(u, t, out=u)
        xp.multiply(v, correction, out=t)
        xp.sqrt(t, out=t)
        xp.add(t, eps, out=t)
        xp.divide(u, t, out=u)
        xp.subtract(p, u, out=p)
