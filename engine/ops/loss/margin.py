"""Losses that ask for a margin: hinge, ranking, cosine, triplet, and those between classes."""

from __future__ import annotations

from engine.autograd.graph import name_node
from engine.autograd.versions import guard
from engine.core import dtypes
from engine.dispatch import composite, samples
from engine.ops.loss import _single, pairwise_distance, reduced
from engine.ops.pointwise.arithmetic import not_implemented
from engine.tensor import Tensor


@composite(public=False, method=False, autocast="float32")
@samples(lambda t: [(t(3, 4), t.of([[1.0], [-1.0], [1.0]]), 0.5)])
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction="mean"):
    """Hinge of input where target is -1, input where it is 1.  input (*), target (*) -> () or (*)."""
    zero = input.new_zeros(())
    negative = (margin - input).clamp(min=0)
    return reduced(negative.where(target != 1, zero) + input.where(target != -1, zero), reduction)


@composite(public=False, method=False, autocast="float32")
@samples(lambda t: [(t.distinct(4), t.distinct(4), t.of([1.0, -1, 1, -1]), 0.33)])
def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction="mean"):
    """max(0, -target (input1 - input2) + margin).  three (*) -> () or (*)."""
    return reduced((-target * (input1 - input2) + float(margin)).clamp(min=0), reduction)


@composite(public=False, method=False, autocast="float32")
@samples(lambda t: [(t(3, 4), t(3, 4), t.of([1, -1, 1]), 0.1)])
def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction="mean"):
    """1 - cos where target is 1, max(0, cos - margin) where it is -1.  (N, D), (N, D), (N) -> () or (N)."""
    if target.dim() not in (0, 1):
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    dim, shapes = target.dim(), f"{list(input1.shape)} and {list(input2.shape)}"
    if input1.dim() != dim + 1 or input2.dim() != dim + 1:
        kind, wanted = ("1D", "2D") if dim else ("0D", "1D")
        raise RuntimeError(
            f"{kind} target tensor expects {wanted} input tensors, but found inputs with sizes {shapes}."
        )
    eps = 1e-12
    product = (input1 * input2).sum(dim)
    squares = ((input1 * input1).sum(dim) + eps) * ((input2 * input2).sum(dim) + eps)
    cos = product / squares.sqrt()
    zero = cos.new_zeros(())
    loss = (1 - cos).where(target == 1, zero) + (cos - margin).clamp(min=0).where(target == -1, zero)
    return reduced(loss, reduction)


@composite(public=False, method=False, autocast="float32")
@samples(
    lambda t: [
        (t(3, 4), t(3, 4), t(3, 4)),
        (t(3, 4), t(3, 4), t(3, 4), 2.0, 1.0, 1e-6, True, "none"),
    ]
)
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction="mean",
):
    """max(0, |anchor - positive| - |anchor - negative| + margin).  three (N, D) -> () or (N)."""
    dims = [x.dim() for x in (anchor, positive, negative)]
    if len(set(dims)) > 1:
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {dims[0]}D, positive {dims[1]}D, and negative {dims[2]}D inputs"
        )
    near, far = (
        pairwise_distance(anchor, positive, p, eps),
        pairwise_distance(anchor, negative, p, eps),
    )
    if swap:
        far = far.minimum(pairwise_distance(positive, negative, p, eps))
    return reduced((margin + near - far).clamp(min=0), reduction)


def _check_classes(input: Tensor) -> None:
    shape = list(input.shape)
    if len(shape) > 2 or (shape and shape[-1] == 0):
        raise RuntimeError(f"Expected non-empty vector or matrix with optional 0-dim batch size, but got: {shape}")


def _outside(index: Tensor, least: int, end: int) -> bool:
    """Return whether a class is not among least..end - 1; not known of meta tensors."""
    if not index.numel() or index.device.type == "meta":
        return False
    return int(index.min()) < least or int(index.max()) >= end


@composite(public=False, method=False, autocast="float32")
@samples(
    lambda t: [
        (t(3, 4), t.of([0, 3, 1])),
        (t(3, 4), t.of([0, 3, 1]), 2, 0.5, t.constant(t.positive(4)), "sum"),
    ]
)
def multi_margin_loss(
    input: Tensor, target: Tensor, p: complex = 1, margin: complex = 1.0, weight: Tensor | None = None, reduction="mean"
):
    """Sum over i of max(0, margin - input[t] + input[i]) ** p / C.  input (N, C), target (N) -> () or (N)."""
    _single(input, "multi_margin_loss_cpu_kernel")
    _check_classes(input)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    rows = input.reshape(1, -1) if input.dim() < 2 else input
    index = target.reshape(-1)
    if target.dim() > 1 or index.numel() != rows.shape[0]:
        raise RuntimeError(
            "multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples (batch "
            f"size). Expected target size [{rows.shape[0]}], but got {list(target.shape)}. Input has shape "
            f"{list(input.shape)}."
        )
    classes = rows.shape[1]
    if weight is not None:
        if weight.dim() != 1:
            raise ValueError("weight must be one-dimensional")
        if weight.numel() != classes:
            raise RuntimeError(f"inconsistent weight size, expected {classes} but got {list(weight.shape)}")
    if target.dtype is not dtypes.int64:
        raise RuntimeError(f"expected scalar type Long but found {dtypes.scalar_name(target.dtype)}")
    if _outside(index, 0, classes):
        raise RuntimeError("target out of range")
    column = index.unsqueeze(1)
    loss = (margin - rows.gather(1, column) + rows).clamp(min=0)
    if p == 2:
        loss = loss * loss
    if weight is not None:
        loss = loss * weight.gather(0, index).unsqueeze(1)
    loss = loss.scatter(1, column, 0.0).sum(1) / classes
    loss = reduced(loss if target.dim() else loss.squeeze(0).clone(), reduction)
    return guard(name_node(loss, "MultiMarginLossBackward0"), input, target, weight)


@composite(public=False, method=False, autocast="float32")
@samples(lambda t: [(t(2, 4), t.of([[1, 2, -1, 0], [3, -1, 1, 1]]))])
def multilabel_margin_loss(input: Tensor, target: Tensor, reduction="mean"):
    """Hinge between each target class (listed up to -1) and each other.  input (N, C), target (N, C) -> () or (N)."""
    if tuple(input.shape) != tuple(target.shape):
        raise RuntimeError(f"inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}")
    _check_classes(input)
    _single(input, "multilabel_margin_loss_forward_out_frame")
    if target.is_complex():
        raise not_implemented("min_all", target._array)
    if target.dtype is not dtypes.int64:
        raise RuntimeError(f"expected scalar type Long but found {dtypes.scalar_name(target.dtype)}")
    rows, listed = (input, target) if input.dim() > 1 else (input.reshape(1, -1), target.reshape(1, -1))
    classes = rows.shape[1]
    if _outside(listed, -1, classes):
        raise RuntimeError("argument #2 'target' is out of range")
    valid = (listed < 0).to(dtypes.int64).cumsum(1) == 0
    index = listed.clamp(min=0)
    is_target = rows.detach().new_zeros(rows.shape).scatter_add(1, index, valid.to(rows.dtype)) > 0
    scores = rows.gather(1, index)
    loss = (1 - scores.unsqueeze(2) + rows.unsqueeze(1)).clamp(min=0)
    loss = loss * (valid.unsqueeze(2) & ~is_target.unsqueeze(1)).to(rows.dtype)
    loss = loss.sum((1, 2)) / classes
    loss = reduced(loss if input.dim() > 1 else loss.squeeze(0).clone(), reduction)
    return guard(name_node(loss, "MultilabelMarginLossBackward0"), input, target)
