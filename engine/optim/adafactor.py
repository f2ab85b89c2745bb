"""Adafactor (Shazeer and Stern, https://arxiv.org/abs/1804.04235): the second moment of a matrix as a product."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from engine.core import dtypes
from engine.core.grad_mode import enable_grad, no_grad
from engine.optim.optimizer import (
    Optimizer,
    advance,
    check_rate,
    counter,
    dense_real,
    number,
    zeros_like,
)
from engine.tensor import Tensor

__all__ = ["Adafactor"]


class Adafactor(Optimizer):
    """Steps relative to the size of the parameters; of parameters with two dims or more, running means of the squared
    gradient are kept by row and by column only.

    eps: (least variance, None for the dtype's resolution; least size of a parameter).  d: the largest root mean square
    of an update.  https://docs.pytorch.org/docs/2.13/generated/torch.optim.Adafactor.html
    """

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        check_rate(lr)
        if not beta2_decay <= 0.0:
            raise ValueError(f"beta2_decay should be <= 0 but is: {beta2_decay}")
        if eps[0] is not None and not eps[0] >= 0.0:
            raise ValueError(f"epsilon1 should be >= 0 but is: {eps[0]}")
        if not eps[1] >= 0.0:
            raise ValueError(f"epsilon2 should be >= 0 but is: {eps[1]}")
        if not d >= 1.0:
            raise ValueError(f"Clipping threshold d should be >= 1 but is: {d}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight_decay should be >= 0 but is: {weight_decay}")
        super().__init__(
            params,
            dict(
                lr=lr,
                beta2_decay=beta2_decay,
                eps=eps,
                d=d,
                weight_decay=weight_decay,
                foreach=foreach,
                maximize=maximize,
            ),
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("foreach", None)
            for p in group["params"]:
                found = self.state.get(p)
                if found and not isinstance(found["step"], Tensor):
                    found["step"] = counter(float(found["step"]))

    def step(self, closure: Callable | None = None) -> Any:
        """One update.  closure: computes the loss anew and returns it; what it returned is returned."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        self._update(group, p, dense_real("Adafactor", p))
        return loss

    def _update(self, group: dict, p: Tensor, grad: Tensor) -> None:
        state = self.state[p]
        if not state:
            state["step"] = counter()
            if grad.dim() > 1:
                *lead, n, m = grad.shape
                state["row_var"] = grad.new_zeros((*lead, n, 1))
                state["col_var"] = grad.new_zeros((*lead, 1, m))
            else:
                state["variance"] = zeros_like(p)
        step, lr = advance(state["step"]), number(group["lr"])
        if group["maximize"]:
            grad = -grad
        eps1, eps2 = group["eps"]
        if eps1 is None:
            eps1 = dtypes.finfo(p.dtype).eps
        share = step ** group["beta2_decay"]
        size = max(eps2, p.norm(2).item() / p.numel() ** 0.5) * min(lr, step**-0.5)
        if group["weight_decay"]:
            p.mul_(1 - lr * group["weight_decay"])
        if grad.dim() > 1:
            rows, columns = state["row_var"], state["col_var"]
            rows.lerp_(grad.norm(2, dim=-1, keepdim=True).square_().div_(grad.size(-1)), share)
            columns.lerp_(grad.norm(2, dim=-2, keepdim=True).square_().div_(grad.size(-2)), share)
            variance = (rows @ columns).div_(rows.mean(dim=-2, keepdim=True).clamp_(min=eps1))
        else:
            state["variance"].lerp_(grad * grad, share)
            variance = state["variance"].clone()
        update = variance.clamp_(min=eps1 * eps1).rsqrt_().mul_(grad)
        large = update.norm(2).item() / (update.numel() ** 0.5 * group["d"])
        p.add_(update, alpha=-size / max(1.0, large))
