"""More of `nn.functional` as TorchScript has it: losses, power-average pooling and its like (`library`)."""

from __future__ import annotations

import types
from typing import Any

from engine import ops
from engine.jit.scripting.annotations import BroadcastingList1, BroadcastingList2, BroadcastingList3
from engine.nn import functional as F
from engine.ops import functions as torch
from engine.tensor import Tensor

__all__ = ["FUNCTIONS"]


def _reduced(reduction: str) -> int:
    if reduction == "none":
        return 0
    if reduction == "mean":
        return 1
    if reduction == "sum":
        return 2
    raise ValueError(f"{reduction} is not a valid value for reduction")


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    return ops.aten.cosine_embedding_loss(input1, input2, target, margin, _reduced(reduction))


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    return ops.aten.hinge_embedding_loss(input, target, margin, _reduced(reduction))


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    return ops.aten.margin_ranking_loss(input1, input2, target, margin, _reduced(reduction))


def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    return ops.aten.multilabel_margin_loss(input, target, _reduced(reduction))


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    return ops.aten.multi_margin_loss(input, target, p, margin, weight, _reduced(reduction))


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    loss = -(target * F.logsigmoid(input) + (1 - target) * F.logsigmoid(-input))
    if weight is not None:
        loss = loss * weight
    loss = loss.mean(-1)
    if reduction == "none":
        return loss
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    raise ValueError(f"{reduction} is not valid")


def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    return ops.aten.soft_margin_loss(input, target, _reduced(reduction))


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return ops.aten.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, _reduced(reduction))


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    return ops.aten.poisson_nll_loss(input, target, log_input, full, eps, _reduced(reduction))


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    return ops.aten.ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank, _reduced(reduction), zero_infinity
    )


def _mode(mode: str) -> int:
    if mode == "sum":
        return 0
    if mode == "mean":
        return 1
    if mode == "max":
        return 2
    raise ValueError(f"mode has to be one of sum, mean or max, not {mode}")


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    if max_norm is not None:
        raise RuntimeError("max_norm of embedding_bag is not compiled")
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError("if input is 2D, then offsets has to be None, as input is treated is a mini-batch")
        start = torch.arange(0, input.numel(), input.size(1), dtype=torch.int64, device=input.device)
        flat = input.reshape(-1)
        factors = per_sample_weights
        if factors is not None:
            factors = factors.reshape(-1)
    elif input.dim() == 1:
        if offsets is None:
            raise ValueError("offsets has to be a 1D Tensor but got None")
        start, flat, factors = offsets, input, per_sample_weights
    else:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}")
    found, _, _, _ = ops.aten.embedding_bag(
        weight, flat, start, scale_grad_by_freq, _mode(mode), sparse, factors, include_last_offset, padding_idx
    )
    return found


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if inplace:
        return ops.aten.feature_alpha_dropout_(input, p, training)
    return ops.aten.feature_alpha_dropout(input, p, training)


def _root(average: Tensor, count: int, norm_type: float) -> Tensor:
    return (torch.sign(average) * torch.relu(torch.abs(average))).mul(count).pow(1.0 / norm_type)


def lp_pool1d(
    input: Tensor,
    norm_type: float,
    kernel_size: int,
    stride: BroadcastingList1[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    powers = torch.pow(input, norm_type)
    if stride is not None:
        average = torch.avg_pool1d(powers, kernel_size, stride, 0, ceil_mode)
    else:
        average = torch.avg_pool1d(powers, kernel_size, padding=0, ceil_mode=ceil_mode)
    return _root(average, kernel_size, norm_type)


def lp_pool2d(
    input: Tensor,
    norm_type: float,
    kernel_size: BroadcastingList2[int],
    stride: BroadcastingList2[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    powers = torch.pow(input, norm_type)
    if stride is not None:
        average = ops.aten.avg_pool2d(powers, kernel_size, stride, [0, 0], ceil_mode)
    else:
        average = ops.aten.avg_pool2d(powers, kernel_size, kernel_size, [0, 0], ceil_mode)
    return _root(average, kernel_size[0] * kernel_size[1], norm_type)


def lp_pool3d(
    input: Tensor,
    norm_type: float,
    kernel_size: BroadcastingList3[int],
    stride: BroadcastingList3[int] | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    powers = torch.pow(input, norm_type)
    if stride is not None:
        average = ops.aten.avg_pool3d(powers, kernel_size, stride, [0, 0, 0], ceil_mode)
    else:
        average = ops.aten.avg_pool3d(powers, kernel_size, kernel_size, [0, 0, 0], ceil_mode)
    return _root(average, kernel_size[0] * kernel_size[1] * kernel_size[2], norm_type)


FUNCTIONS: dict[str, Any] = {
    name: value
    for name, value in list(vars().items())
    if isinstance(value, types.FunctionType) and value.__module__ == __name__ and name[0] != "_"
}
