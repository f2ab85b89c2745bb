"""Muon (Jordan 2024, https://kellerjordan.github.io/posts/muon/): momentum made orthogonal, for matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from engine.core import dtypes
from engine.core.grad_mode import enable_grad, no_grad
from engine.ops.products.addmm import addmm
from engine.optim.optimizer import Optimizer, check_rate, dense_real, number, zeros_like
from engine.tensor import Tensor

__all__ = ["Muon"]

_COEFFICIENTS = (3.4445, -4.775, 2.0315)  # Jordan's: steep at zero rather than exact
_RATES = ("original", "match_rms_adamw")


class Muon(Optimizer):
    """p -= lr * r * O, where O is the matrix of momentum with its singular values brought near 1, in bfloat16.

    r is sqrt(max(1, rows / columns)), or 0.2 sqrt(max(rows, columns)) with adjust_lr_fn="match_rms_adamw"
    (https://arxiv.org/abs/2502.16982).  Other parameters than matrices want another optimizer.
    https://docs.pytorch.org/docs/2.13/generated/torch.optim.Muon.html
    """

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = _COEFFICIENTS,
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        check_rate(lr)
        if not momentum >= 0.0:
            raise ValueError(f"momentum should be >= 0 but is: {momentum}")
        if not weight_decay >= 0.0:
            raise ValueError(f"weight decay should be >= 0 but is: {weight_decay}")
        if adjust_lr_fn is not None and adjust_lr_fn not in _RATES:
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(
            params,
            dict(
                lr=lr,
                weight_decay=weight_decay,
                momentum=momentum,
                nesterov=nesterov,
                ns_coefficients=ns_coefficients,
                eps=eps,
                ns_steps=ns_steps,
                adjust_lr_fn=adjust_lr_fn,
            ),
        )
        for group in self.param_groups:
            for p in group["params"]:
                if p.dim() != 2:
                    raise ValueError(
                        f"Muon only supports 2D parameters whereas we found a parameter with size: {p.size()}"
                    )

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
                        self._update(group, p, dense_real("Muon", p))
        return loss

    def _update(self, group: dict, p: Tensor, grad: Tensor) -> None:
        state = self.state[p]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = zeros_like(p)
        momentum, lr = group["momentum"], number(group["lr"])
        mean = state["momentum_buffer"].lerp_(grad, 1 - momentum)
        update = grad.lerp(mean, momentum) if group["nesterov"] else mean
        update = orthogonal(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
        n, m = p.shape
        ratio = 0.2 * math.sqrt(max(n, m)) if group["adjust_lr_fn"] == "match_rms_adamw" else math.sqrt(max(1, n / m))
        p.mul_(1 - lr * group["weight_decay"])
        p.add_(update, alpha=-lr * ratio)


def orthogonal(matrix: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Newton and Schulz's iteration x -> a x + (b g + c g g) x with g = x x^T.  matrix (n, m) -> (n, m) bfloat16."""
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    tall = matrix.size(0) > matrix.size(1)
    x = matrix.to(dtypes.bfloat16)
    if tall:
        x = x.T
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = addmm(x, addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x
