"""SparseAdam: Adam that touches only the rows a sparse gradient names ("lazy" Adam)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from engine import backends
from engine.core.grad_mode import enable_grad
from engine.optim.optimizer import Optimizer, check_betas, check_lr, number, zeros_like
from engine.tensor import Tensor

__all__ = ["SparseAdam"]


class SparseAdam(Optimizer):
    """Adam on the elements that the gradient holds; means and parameters elsewhere stay as they are.

    https://docs.pytorch.org/docs/2.13/generated/torch.optim.SparseAdam.html
    """

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-3,
        betas: tuple = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        check_lr(lr, positive=True)
        if not eps > 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        check_betas(betas)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, maximize=maximize))
        found: dict[str, list] = {"sparse": [], "complex": []}
        for i, group in enumerate(self.param_groups):
            for j, p in enumerate(group["params"]):
                if p.is_sparse:
                    found["sparse"].append([i, j])
                if p.is_complex():
                    found["complex"].append([i, j])
        if found["sparse"]:
            raise ValueError(f"Sparse params at indices {found['sparse']}: SparseAdam requires dense parameter tensors")
        if found["complex"]:
            raise ValueError(
                f"Complex params at indices {found['complex']}: SparseAdam does not support complex parameters"
            )

    def step(self, closure: Callable | None = None) -> Any:
        """One update.  RuntimeError for a dense gradient."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                if not grad.is_sparse:
                    raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["exp_avg"], state["exp_avg_sq"] = zeros_like(p), zeros_like(p)
                state["step"] += 1
                _update(group, p, grad.coalesce(), state)
        return loss


def _update(group: dict, p: Tensor, grad: Any, state: dict) -> None:
    values = grad._values()._array
    if not values.size:
        return
    xp = backends.xp_of(values)
    at = tuple(grad._indices()._array)
    (beta1, beta2), step = group["betas"], state["step"]
    if group.get("maximize", False):
        values = -values
    m, v = state["exp_avg"]._array, state["exp_avg_sq"]._array
    new_m = m[at] + (values - m[at]) * (1 - beta1)
    new_v = v[at] + (values * values - v[at]) * (1 - beta2)
    m[at], v[at] = new_m, new_v
    size = number(group["lr"]) * (1 - beta2**step) ** 0.5 / (1 - beta1**step)
    p._array[at] = p._array[at] - size * new_m / (xp.sqrt(new_v) + group["eps"])
    p._vc[0] += 1
