"""Normalizations with the statistics that they used, under the names of torch's compiled functions."""

from __future__ import annotations

import builtins
from typing import Any

from engine.autograd.graph import name_node, requires_grad_of
from engine.autograd.versions import guard, guard_again
from engine.core import dtypes
from engine.core.grad_mode import mode
from engine.dispatch import composite, samples
from engine.dispatch.out import store, store_result
from engine.ops.norm import batch_norm, batch_norm_train, track
from engine.ops.norm.groups import normalize_groups
from engine.ops.reduction import var_of
from engine.tensor import Tensor


@composite(method=False)
@samples(lambda t: [(t(2, 4, 3), t(4), t(4), 2, 4, 3, 2, 1e-5), (t(3, 2, 2), None, None, 3, 2, 2, 1, 0.1)])
def native_group_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Group norm with its statistics.  input (N, C, *) -> (N, C, *), mean (N, group), rstd (N, group)."""
    output, mean, rstd = normalize_groups(input, group, weight, bias, eps)
    like = input.dtype if weight is None else weight.dtype
    if mode.enabled and requires_grad_of(input):  # the statistics once more, as functions of the input
        rows = input.reshape(N, group, C // group * HxW)
        mean = name_node(rows.mean(-1), "NativeGroupNormBackward0")
        rstd = name_node((var_of(rows, -1, 0, False) + eps).rsqrt(), "NativeGroupNormBackward0")
        guard(mean, mean)
        guard_again(rstd, mean, grad=True)
    return output, mean.to(like), rstd.to(like)


@composite(method=False)
@samples(lambda t: [(t(4, 3, 2), t(3), t(3), None, None, True, 0.1, 1e-5)])
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    *,
    out: tuple[Tensor, ...] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch norm with its statistics.  input (N, C, *) -> (N, C, *), mean (C), rstd (C); empty ones in evaluation."""
    arguments = (input, weight, bias, running_mean, running_var, training, momentum, eps)
    return _named("native_batch_norm", arguments, out)


def _named(name: str, arguments: tuple[Any, ...], out: Any = None) -> Any:
    """Batch norm as the function of that name; in evaluation the statistics of `out` are not written."""
    if out is None:
        return _batch_norm(name, *arguments)
    write = store_result if name == "_native_batch_norm_legit" else store  # torch copies its results
    if arguments[5]:
        return write(out, name, _batch_norm, name, *arguments)
    write(out[:1], name, lambda *given: _batch_norm(name, *given)[0], *arguments)
    return out


def _batch_norm(
    name: str, input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, *more: float
) -> tuple[Tensor, Tensor, Tensor]:
    momentum, eps = more
    like = next((p.dtype for p in (weight, bias, running_mean, running_var) if p is not None), input.dtype)
    if not training:
        empty = input.new_empty(0, dtype=like)
        output, mean, rstd = batch_norm(input, weight, bias, running_mean, running_var, False, *more), empty, empty * 0
    else:
        output, mean, rstd, var = batch_norm_train(input, weight, bias, eps)
        track(running_mean, running_var, mean, var, input.numel() // builtins.max(1, input.size(1)), momentum)
    if training:
        guard_again(output, running_mean, running_var, mean, rstd)
    else:
        guard_again(output, mean, rstd)
    title = "".join(part.title() for part in name.split("_"))
    return name_node(output, f"{title}Backward0"), mean.to(like), rstd.to(like)


@composite(method=False)
@samples(lambda t: [(t(4, 3, 2), t(3), t(3), True, 0.1, 1e-5)])
def _native_batch_norm_legit(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, *more, out=None
) -> tuple[Tensor, Tensor, Tensor]:
    """`native_batch_norm`; the running statistics are left out, or both are tensors, which are updated.

    more: [running_mean, running_var,] training, momentum, eps.  input (N, C, *) -> (N, C, *), mean (C), rstd (C).
    """
    if len(more) not in (3, 5):
        raise TypeError(
            "_native_batch_norm_legit() takes (input, weight, bias, training, momentum, eps), with running_mean and "
            f"running_var before training or without; got {len(more) + 3} arguments"
        )
    if len(more) == 3:
        more = (None, None, *more)
    return _named("_native_batch_norm_legit", (input, weight, bias, *more), out)


@composite(method=False)
def _native_batch_norm_legit_no_training(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch norm in evaluation.  input (N, C, *), others (C) -> (N, C, *), (0), (0)."""
    name = "_native_batch_norm_legit_no_training"
    return _batch_norm(name, input, weight, bias, running_mean, running_var, False, momentum, eps)


@composite(public=False, method=False)
def _batch_norm_with_update(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Batch norm in training.  input (N, C, *), others (C) -> (N, C, *), mean (C), rstd (C), no bytes (0)."""
    found = _batch_norm("_batch_norm_with_update", input, weight, bias, running_mean, running_var, True, momentum, eps)
    reserve = input.new_empty(0, dtype=dtypes.uint8)
    guard(found[0], reserve)
    return (*found, reserve)


@composite(public=False, method=False)
def _batch_norm_no_update(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Batch norm in evaluation.  input (N, C, *), others (C) -> (N, C, *), (0), (0), no bytes (0)."""
    found = _batch_norm("_batch_norm_no_update", input, weight, bias, running_mean, running_var, False, momentum, eps)
    return (*found, input.new_empty(0, dtype=dtypes.uint8))
