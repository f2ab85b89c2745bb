"""Adam (Kingma and Ba, https://arxiv.org/abs/1412.6980), with AMSGrad and decoupled weight decay."""

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

__all__ = ["Adam"]


class Adam(BlockOptimizer):
    """p -= lr * m / (sqrt(v) + eps), m and v being bias-corrected running means of the gradient and its square.

    https://docs.pytorch.org/docs/2.13/generated/torch.optim.Adam.html
    """

    sparse_message = "Adam does not support sparse gradients, please consider SparseAdam instead"
    newer_options = {
        "amsgrad": False,
        "maximize": False,
        "foreach": None,
        "capturable": False,
        "differentiable": False,
        "decoupled_weight_decay": False,
        "fused": None,
    }

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-3,
        betas: tuple = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        if isinstance(lr, Tensor) and foreach and not capturable:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        check_lr(lr)
        check_not_negative(eps=eps)
        check_betas(betas)
        check_not_negative(weight_decay=weight_decay)
        kinds = [isinstance(b, Tensor) for b in betas[:2]]
        if any(kinds) != all(kinds) or (not all(kinds) and not all(isinstance(b, float | int) for b in betas[:2])):
            raise ValueError("betas must be either both floats or both Tensors")
        if all(kinds):
            for i in (0, 1):
                if foreach and not capturable:
                    raise ValueError(f"betas[{i}] as a Tensor is not supported for capturable=False and foreach=True")
                if betas[i].numel() != 1:
                    raise ValueError(f"Tensor betas[{i}] must be 1-element")
        betas = tuple(b.squeeze() if isinstance(b, Tensor) and b.dim() else b for b in betas)
        super().__init__(
            params,
            dict(
                lr=lr,
                betas=betas,
                eps=eps,
                weight_decay=weight_decay,
                amsgrad=amsgrad,
                maximize=maximize,
                foreach=foreach,
                capturable=capturable,
                differentiable=differentiable,
                fused=fused,
                decoupled_weight_decay=decoupled_weight_decay,
            ),
        )
        self.accept_fused(fused, foreach, differentiable)

    def init_state(self, group: dict, p: Tensor, state: dict) -> None:
        state["step"] = self.new_counter(group, p)
        state["exp_avg"] = zeros_like(p)
        state["exp_avg_sq"] = zeros_like(p)
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = zeros_like(p)

    def prepare(self, group: dict, p: Tensor, state: dict) -> tuple[tuple[str, ...], tuple]:
        step = advance(state["step"])
        lr, (beta1, beta2), decay = number(group["lr"]), map(number, group["betas"]), number(group["weight_decay"])
        root = (1 - beta2**step) ** 0.5
        # p -= lr / c1 * m / (sqrt(v) / root + eps), with the root multiplied out
        size = lr / (1 - beta1**step) * root
        if group["decoupled_weight_decay"]:
            keep, decay = 1 - lr * decay, 0
        else:
            keep = 1
        names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if group["amsgrad"] else ("exp_avg", "exp_avg_sq")
        return names, (beta1, beta2, size, group["eps"] * root, decay, keep, group["maximize"])

    @staticmethod
    def kernel(xp: Any, scratch: list, numbers: tuple, p: Any, g: Any, m: Any, v: Any, most: Any = None) -> None:
        beta1, beta2, size, eps, decay, keep, maximize = numbers
        t, u = scratch
        if keep != 1:
            xp.multiply(p, keep, out=p)
        g = effective(xp, p, g, decay, maximize, u)
        average(xp, m, g, beta1, t)
        xp.multiply(g, g, out=t)
        average(xp, v, t, beta2, t)
        if most is not None:
            v = xp.maximum(most, v, out=most)
        xp.sqrt(v, out=t)
        xp.add(t, eps, out=t)
        xp.divide(m, t, out=t)
        xp.multiply(t, size, out=t)
        xp.subtract(p, t, out=p)
