"""Stochastic gradient descent, with (Nesterov) momentum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.optim.optimizer import BlockOptimizer, check_lr, effective, number, zeros_like
from engine.tensor import Tensor

__all__ = ["SGD"]


class SGD(BlockOptimizer):
    """p -= lr * buf, buf = momentum * buf + (1 - dampening) * grad; the first buf is the gradient.

    https://docs.pytorch.org/docs/2.13/generated/torch.optim.SGD.html
    """

    sparse_message = None  # type: ignore[assignment]
    newer_options = {"nesterov": False, "maximize": False, "foreach": None, "differentiable": False, "fused": False}
    counters = ()

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr)
        if momentum < 0.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        if weight_decay < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(
            params,
            dict(
                lr=lr,
                momentum=momentum,
                dampening=dampening,
                weight_decay=weight_decay,
                nesterov=nesterov,
                maximize=maximize,
                foreach=foreach,
                differentiable=differentiable,
                fused=fused,
            ),
        )
        self.accept_fused(fused, foreach, differentiable)

    def prepare(self, group: dict, p: Tensor, state: dict) -> tuple[tuple[str, ...], tuple]:
        momentum = group["momentum"]
        first = False
        if momentum != 0 and state.get("momentum_buffer") is None:
            state["momentum_buffer"] = zeros_like(p)
            first = True
        elif momentum == 0 and not state:
            del self.state[p]  # torch keeps no entry for a parameter without momentum
        numbers = (
            number(group["lr"]),
            momentum,
            group["dampening"],
            number(group["weight_decay"]),
            group["nesterov"],
            group["maximize"],
            first,
        )
        return ("momentum_buffer",) if momentum != 0 else (), numbers

    @staticmethod
    def kernel(xp: Any, scratch: list, numbers: tuple, p: Any, g: Any, buf: Any = None) -> None:
        lr, momentum, dampening, weight_decay, nesterov, maximize, first = numbers
        t, u = scratch
        if weight_decay:
            g = effective(xp, p, g, weight_decay, maximize, u)
            maximize = False  # done; else the sign is flipped where the gradient is added
        if buf is None:
            xp.multiply(g, lr, out=t)
        else:
            if first:
                xp.multiply(g, -1 if maximize else 1, out=buf)
            else:
                xp.multiply(buf, momentum, out=buf)
                if dampening:
                    g = xp.multiply(g, 1 - dampening, out=u)
                (xp.subtract if maximize else xp.add)(buf, g, out=buf)
            if nesterov:
                xp.multiply(buf, momentum, out=t)
                (xp.subtract if maximize else xp.add)(t, g, out=t)
                xp.multiply(t, lr, out=t)
            else:
                xp.multiply(buf, lr, out=t)
            maximize = False
        (xp.add if maximize else xp.subtract)(p, t, out=p)
