"""Averaged stochastic gradient descent (Polyak and Juditsky 1992)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.optim.optimizer import (
    BlockOptimizer,
    advance,
    check_lr,
    check_not_negative,
    counter,
    effective,
    number,
    zeros_like,
)
from engine.tensor import Tensor

__all__ = ["ASGD"]


class ASGD(BlockOptimizer):
    """Gradient descent with rate lr / (1 + lambd * lr * step)^alpha; state `ax` is the average since step t0.

    https://docs.pytorch.org/docs/2.13/generated/torch.optim.ASGD.html
    """

    sparse_message = "ASGD does not support sparse gradients"
    newer_options = {"foreach": None, "maximize": False, "differentiable": False, "capturable": False}
    counters = ("step", "eta", "mu")
    counted = "params, mus, etas, and state_steps"

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_lr(lr)
        check_not_negative(weight_decay=weight_decay)
        super().__init__(
            params,
            dict(
                lr=lr,
                lambd=lambd,
                alpha=alpha,
                t0=t0,
                weight_decay=weight_decay,
                foreach=foreach,
                maximize=maximize,
                differentiable=differentiable,
                capturable=capturable,
            ),
        )

    def init_state(self, group: dict, p: Tensor, state: dict) -> None:
        state["step"] = counter(0.0, p)
        state["eta"] = counter(number(group["lr"]), p)
        state["mu"] = counter(1.0, p)
        state["ax"] = zeros_like(p)

    def prepare(self, group: dict, p: Tensor, state: dict) -> tuple[tuple[str, ...], tuple]:
        step = advance(state["step"])
        lr, lambd = number(group["lr"]), group["lambd"]
        eta, mu = state["eta"]._array, state["mu"]._array
        numbers = (eta.item(), mu.item(), lambd, group["weight_decay"], group["maximize"])
        eta[...] = lr / (1 + lambd * lr * step) ** group["alpha"]
        mu[...] = 1 / max(1, step - group["t0"])
        return ("ax",), numbers

    @staticmethod
    def kernel(xp: Any, scratch: list, numbers: tuple, p: Any, g: Any, ax: Any) -> None:
        eta, mu, lambd, decay, maximize = numbers
        t, u = scratch
        g = effective(xp, p, g, decay, maximize, u)
        xp.multiply(p, 1 - lambd * eta, out=p)
        xp.multiply(g, eta, out=t)
        xp.subtract(p, t, out=p)
        if mu != 1:
            xp.subtract(p, ax, out=t)
            xp.multiply(t, mu, out=t)
            xp.add(ax, t, out=ax)
        else:
            ax[...] = p
