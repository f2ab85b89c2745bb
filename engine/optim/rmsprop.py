"""RMSprop (Tieleman and Hinton 2012; centered: Graves, https://arxiv.org/abs/1308.0850)."""

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

__all__ = ["RMSprop"]


class RMSprop(BlockOptimizer):
    """p -= lr * grad / (sqrt(mean of grad^2) + eps), with momentum; centered: the mean's square is taken off.

    https://docs.pytorch.org/docs/2.13/generated/torch.optim.RMSprop.html
    """

    sparse_message = "RMSprop does not support sparse gradients"
    newer_options = {
        "momentum": 0,
        "centered": False,
        "foreach": None,
        "maximize": False,
        "differentiable": False,
        "capturable": False,
    }

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check_not_negative(eps=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        super().__init__(
            params,
            dict(
                lr=lr,
                momentum=momentum,
                alpha=alpha,
                eps=eps,
                centered=centered,
                weight_decay=weight_decay,
                capturable=capturable,
                foreach=foreach,
                maximize=maximize,
                differentiable=differentiable,
            ),
        )

    def init_state(self, group: dict, p: Tensor, state: dict) -> None:
        state["step"] = self.new_counter(group, p)
        state["square_avg"] = zeros_like(p)
        if group["momentum"] > 0:
            state["momentum_buffer"] = zeros_like(p)
        if group["centered"]:
            state["grad_avg"] = zeros_like(p)

    def prepare(self, group: dict, p: Tensor, state: dict) -> tuple[tuple[str, ...], tuple]:
        advance(state["step"])
        names = ["square_avg"]
        if group["momentum"] > 0:
            names.append("momentum_buffer")
        if group["centered"]:
            names.append("grad_avg")
        return tuple(names), (
            number(group["lr"]),
            group["alpha"],
            group["eps"],
            group["weight_decay"],
            group["momentum"],
            group["centered"],
            group["maximize"],
        )

    @staticmethod
    def kernel(xp: Any, scratch: list, numbers: tuple, p: Any, g: Any, square: Any, *more: Any) -> None:
        lr, alpha, eps, decay, momentum, centered, maximize = numbers
        t, u = scratch
        g = effective(xp, p, g, decay, maximize, u)
        xp.multiply(g, g, out=t)
        average(xp, square, t, alpha, t)
        if centered:
            mean = more[-1]
            average(xp, mean, g, alpha, t)
            xp.multiply(mean, mean, out=t)
            xp.subtract(square, t, out=t)
            xp.sqrt(t, out=t)
        else:
            xp.sqrt(square, out=t)
        xp.add(t, eps, out=t)
        xp.divide(g, t, out=t)
        if momentum > 0:
            buf = more[0]
            xp.multiply(buf, momentum, out=buf)
            xp.add(buf, t, out=buf)
            xp.multiply(buf, lr, out=t)
        else:
            xp.multiply(t, lr, out=t)
        xp.subtract(p, t, out=p)
