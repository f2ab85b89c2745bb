"""Clipping of gradients, in place."""

from __future__ import annotations

import types
import warnings
from collections.abc import Iterable

from engine.core.grad_mode import no_grad
from engine.core.hooks import noted
from engine.ops import functions as torch
from engine.tensor import Tensor

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_"]


_no_grad = no_grad
_tensor_or_tensors = Tensor | Iterable[Tensor]


def _listed(tensors: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


@no_grad()
def _get_total_norm(
    tensors: Tensor | Iterable[Tensor],
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The norm of all tensors taken as one vector.  -> ()."""
    tensors, norm_type = _listed(tensors), float(norm_type)
    if not tensors:
        return torch.tensor(0.0)
    device = tensors[0].device
    norms = [t.flatten().norm(norm_type).to(device) for t in tensors]
    total = torch.stack(norms).norm(norm_type)
    if error_if_nonfinite and not bool(torch.isfinite(total)):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be "
            "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`"
        )
    return total


@no_grad()
def _clip_grads_with_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    total_norm: Tensor,
    foreach: bool | None = None,
) -> None:
    """Scale the gradients by max_norm / total_norm where that is below 1."""
    grads = [p.grad for p in _listed(parameters) if p.grad is not None]
    if not grads:
        return
    factor = (float(max_norm) / (total_norm + 1e-6)).clamp(max=1.0)
    for g in grads:
        g.mul_(factor.to(g.device))


@noted
@no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scale the gradients in place so that their common norm is at most max_norm.  -> ().

    Args:
        parameters: A tensor or several; those without a gradient are left out.
        max_norm: The largest norm.
        norm_type: The order of the norm, `inf` included.
        error_if_nonfinite: Raise where the norm is nan or infinite.
        foreach: Accepted.

    Returns:
        The norm before, of no dims.

    Raises:
        RuntimeError: the norm is not finite, with error_if_nonfinite.
    """
    empty = isinstance(parameters, types.GeneratorType)
    parameters = _listed(parameters)
    if empty and not parameters:
        warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=3)
    total = _get_total_norm([p.grad for p in parameters if p.grad is not None], norm_type, error_if_nonfinite, foreach)
    _clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_norm(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Deprecated name of `clip_grad_norm_`.  -> ()."""
    warnings.warn(
        "`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.",
        FutureWarning,
        stacklevel=2,
    )
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


@noted
@no_grad()
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Clip each gradient element to +-clip_value, in place; gradients (*)."""
    clip_value = float(clip_value)
    for p in _listed(parameters):
        if p.grad is not None:
            p.grad.clamp_(min=-clip_value, max=clip_value)
