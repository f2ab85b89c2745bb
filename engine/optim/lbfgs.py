"""L-BFGS with an optional strong Wolfe line search (Nocedal and Wright, Numerical Optimization, chapters 3 and 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from engine.core.grad_mode import enable_grad, no_grad
from engine.ops import functions as torch
from engine.optim.optimizer import Optimizer, check_lr, number
from engine.tensor import Tensor

__all__ = ["LBFGS"]


class LBFGS(Optimizer):
    """Quasi-Newton steps from the last `history_size` changes; `step(closure)` calls the closure many times.

    One parameter group only.  line_search_fn: None or "strong_wolfe".
    https://docs.pytorch.org/docs/2.13/generated/torch.optim.LBFGS.html
    """

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_lr(lr)
        if max_eval is None:
            max_eval = max_iter * 5 // 4
        super().__init__(
            params,
            dict(
                lr=lr,
                max_iter=max_iter,
                max_eval=max_eval,
                tolerance_grad=tolerance_grad,
                tolerance_change=tolerance_change,
                history_size=history_size,
                line_search_fn=line_search_fn,
            ),
        )
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    @property
    def _params(self) -> list[Tensor]:
        return self.param_groups[0]["params"]

    def _gather_flat_grad(self) -> Tensor:
        """All gradients as one vector; zeros where there is none."""
        views = []
        for p in self._params:
            grad = p.grad
            if grad is None:
                view = torch.zeros_like(p).reshape(-1)
            else:
                view = (grad.to_dense() if grad.is_sparse else grad).reshape(-1)
            views.append(torch.view_as_real(view).reshape(-1) if view.is_complex() else view)
        return torch.cat(views, 0)

    def _add_grad(self, step_size: Any, update: Tensor) -> None:
        """params += step_size * update."""
        offset = 0
        for p in self._params:
            real = torch.view_as_real(p) if p.is_complex() else p
            count = real.numel()
            real.add_(update[offset : offset + count].reshape(real.shape), alpha=number(step_size))
            offset += count

    def _evaluate(self, closure: Callable, start: list[Tensor], t: Any, d: Tensor) -> tuple[float, Tensor]:
        """Loss and gradient at start + t * d; the parameters go back to start."""
        self._add_grad(t, d)
        loss = number(closure())
        grad = self._gather_flat_grad()
        for p, value in zip(self._params, start):
            p.copy_(value)
        return loss, grad

    @no_grad()
    def step(self, closure: Callable) -> Any:  # type: ignore[override]
        """Up to `max_iter` iterations.  closure: computes the loss anew, with gradients, and returns it."""
        group = self.param_groups[0]
        lr, search = number(group["lr"]), group["line_search_fn"]
        change = group["tolerance_change"]
        run = enable_grad()(closure)
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = run()
        loss = number(first)
        evals = 1
        state["func_evals"] += 1
        grad = self._gather_flat_grad()
        if grad.abs().max() <= group["tolerance_grad"]:
            return first
        prev_grad, prev_loss, t = state.get("prev_flat_grad"), state.get("prev_loss"), state.get("t")
        n = 0
        while n < group["max_iter"]:
            n += 1
            state["n_iter"] += 1
            if state["n_iter"] == 1:
                state["old_dirs"], state["old_stps"], state["ro"], state["H_diag"] = [], [], [], 1
                d = grad.neg()
            else:
                d = _direction(state, grad, prev_grad, state["d"] * t, group["history_size"])
            state["d"] = d
            if prev_grad is None:
                prev_grad = grad.clone()
            else:
                prev_grad.copy_(grad)
            prev_loss = loss
            t = min(1.0, 1.0 / grad.abs().sum()) * lr if state["n_iter"] == 1 else lr
            slope = grad.dot(d)
            if slope > -change:
                break
            more = 0
            if search is not None:
                if search != "strong_wolfe":
                    raise RuntimeError("only 'strong_wolfe' is supported")
                start = [p.clone() for p in self._params]
                loss, grad, t, more = _strong_wolfe(
                    lambda t, d: self._evaluate(run, start, t, d),  # noqa: B023
                    t,
                    d,
                    loss,
                    grad,
                    slope,
                    tolerance_change=1e-9,
                    max_ls=group["max_eval"] - evals,
                )
                self._add_grad(t, d)
            else:
                self._add_grad(t, d)
                if n != group["max_iter"]:
                    loss = number(run())
                    grad = self._gather_flat_grad()
                    more = 1
            evals += more
            state["func_evals"] += more
            if (
                n == group["max_iter"]
                or evals >= group["max_eval"]
                or grad.abs().max() <= group["tolerance_grad"]
                or (d * t).abs().max() <= change
                or abs(loss - prev_loss) < change
            ):
                break
        state["t"], state["prev_flat_grad"], state["prev_loss"] = t, prev_grad, prev_loss
        return first


def _direction(state: dict, grad: Tensor, prev_grad: Tensor, s: Tensor, history: int) -> Tensor:
    """The two-loop recursion: minus the approximate inverse Hessian times the gradient."""
    dirs, steps, ro = state["old_dirs"], state["old_stps"], state["ro"]
    y = grad - prev_grad
    ys = y.dot(s)
    if ys > 1e-10:
        if len(dirs) == history:
            for old in (dirs, steps, ro):
                old.pop(0)
        dirs.append(y)
        steps.append(s)
        ro.append(1.0 / ys)
        state["H_diag"] = ys / y.dot(y)
    al = state.setdefault("al", [None] * history)
    q = grad.neg()
    for i in range(len(dirs) - 1, -1, -1):
        al[i] = steps[i].dot(q) * ro[i]
        q.add_(dirs[i], alpha=-number(al[i]))
    r = q * state["H_diag"]
    for i in range(len(dirs)):
        r.add_(steps[i], alpha=number(al[i] - dirs[i].dot(r) * ro[i]))
    return r


def _cubic(x1: Any, f1: Any, g1: Any, x2: Any, f2: Any, g2: Any, bounds: tuple | None = None) -> Any:
    """The minimum of the cubic with these values and slopes at x1 and x2, kept within bounds."""
    low, high = bounds if bounds is not None else (x1, x2) if x1 <= x2 else (x2, x1)
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1**2 - g1 * g2
    if square < 0:
        return (low + high) / 2.0
    d2 = square**0.5
    if x1 <= x2:
        at = x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
    else:
        at = x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2))
    return min(max(at, low), high)


def _strong_wolfe(
    at: Callable,
    t: Any,
    d: Tensor,
    f: float,
    g: Tensor,
    slope: Any,
    c1: float = 1e-4,
    c2: float = 0.9,
    tolerance_change: float = 1e-9,
    max_ls: int = 25,
) -> tuple[float, Tensor, Any, int]:
    """A step length that meets the strong Wolfe conditions: (loss, gradient, t, evaluations)."""
    # Points are (t, loss, gradient, slope along d).
    reach = number(d.abs().max())
    t, slope = number(t), number(slope)

    def point(t: float) -> tuple:
        loss, grad = at(t, d)
        return t, loss, grad, number(grad.dot(d))

    previous = (0, f, g.clone(), slope)
    new = point(t)
    evals, rounds, done = 1, 0, False
    bracket: list[tuple] = []
    while rounds < max_ls:
        if new[1] > f + c1 * new[0] * slope or (rounds > 1 and new[1] >= previous[1]):
            bracket = [previous, new]
            break
        if abs(new[3]) <= -c2 * slope:
            bracket, done = [new], True
            break
        if new[3] >= 0:
            bracket = [previous, new]
            break
        bounds = (new[0] + 0.01 * (new[0] - previous[0]), new[0] * 10)
        t = _cubic(previous[0], previous[1], previous[3], new[0], new[1], new[3], bounds)
        previous, new = new, point(t)
        evals += 1
        rounds += 1
    if rounds == max_ls:
        bracket = [(0, f, g, slope), new]
    stalled = False
    low, high = (0, 1) if bracket[0][1] <= bracket[-1][1] else (1, 0)
    while not done and rounds < max_ls:
        a, b = bracket
        if abs(b[0] - a[0]) * reach < tolerance_change:
            break
        t = _cubic(a[0], a[1], a[3], b[0], b[1], b[3])
        left, right = min(a[0], b[0]), max(a[0], b[0])
        margin = 0.1 * (right - left)
        if min(right - t, t - left) < margin:  # too near an end: once is let pass
            if stalled or t >= right or t <= left:
                t = right - margin if abs(t - right) < abs(t - left) else left + margin
                stalled = False
            else:
                stalled = True
        else:
            stalled = False
        new = point(t)
        evals += 1
        rounds += 1
        if new[1] > f + c1 * t * slope or new[1] >= bracket[low][1]:
            bracket[high] = new
            low, high = (0, 1) if bracket[0][1] <= bracket[1][1] else (1, 0)
        else:
            if abs(new[3]) <= -c2 * slope:
                done = True
            elif new[3] * (bracket[high][0] - bracket[low][0]) >= 0:
                bracket[high] = bracket[low]
            bracket[low] = new
    found = bracket[low]
    return found[1], found[2], found[0], evals
