"""Losses as torch.nn.functional has them: with the deprecated `size_average` and `reduce`."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any

from engine.core.checks import broadcast_shapes
from engine.dispatch import autocast
from engine.dispatch.arguments import checked
from engine.dispatch.gate import without_listeners
from engine.nn import _reduction as _Reduction
from engine.nn._functional_linear_cross_entropy import check_options, of_one_row
from engine.ops import functions as torch
from engine.ops import loss as L
from engine.ops import products
from engine.ops.loss import margin as M
from engine.ops.loss import reduced, warn_sizes
from engine.ops.loss.cross_entropy import cross_entropy_loss, nll_loss_nd
from engine.tensor import Tensor


def _how(size_average: Any, reduce: Any, reduction: str) -> str:
    """The reduction, checked; the deprecated arguments win."""
    if size_average is not None or reduce is not None:
        return _Reduction.legacy_get_string(size_average, reduce)
    return ("none", "mean", "sum")[_Reduction.get_enum(reduction)]


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """-weight[target] * input[target].  input (N, C, *), target (N, *) -> ()."""
    return nll_loss_nd(input, target, weight, ignore_index, _how(size_average, reduce, reduction))


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """nll_loss of log_softmax(input); target may be probabilities.  input (N, C, *), target (N, *) -> ()."""
    how = _how(size_average, reduce, reduction)
    return cross_entropy_loss(input, target, weight, ignore_index, how, label_smoothing)


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Any = None,
    weight: Any = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """cross_entropy of linear(input).  input (N, D), linear_weight (C, D), target (N) -> ()."""
    if input.dim() < 1 or input.dim() > 2:
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.dim()}")
    if linear_weight.dim() < 2:
        raise RuntimeError(f"expected linear_weight with dimensionality at least 2, got {linear_weight.dim()}")
    features, wanted = input.shape[-1], linear_weight.shape[-1]
    if features != wanted:
        raise RuntimeError(
            f"expected equal input and linear_weight last dimensions (in_features), got {features} and {wanted}, "
            "respectively"
        )
    if linear_weight.dim() > 2 and input.dim() == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} requires batched input, "
            f"(N, {features}), got unbatched input with shape {tuple(input.shape)}"
        )
    shape = tuple(linear_weight.shape[:-1])
    if linear_bias is not None and tuple(linear_bias.shape) != shape:
        raise RuntimeError(f"expected linear_bias shape {shape}, got {tuple(linear_bias.shape)}")
    pieces = options is not None and check_options(
        options, input, linear_weight, linear_bias, target, reduction, label_smoothing
    )
    logits = products.linear(
        input,
        linear_weight.reshape(-1, linear_weight.shape[-1]),
        None if linear_bias is None else linear_bias.reshape(-1),
    )
    logits = logits.reshape(*input.shape[:-1], *linear_weight.shape[:-1])
    loss = cross_entropy(
        logits,
        target,
        weight=weight,
        reduction=reduction,
        label_smoothing=label_smoothing,
        ignore_index=-100 if ignore_index is None else ignore_index,
    )
    return of_one_row(loss) if pieces and reduction == "none" and input.dim() == 1 else loss


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: Any = None,
    eps: float = 1e-8,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """exp(input) - target * input (log_input), else input - target * log(input + eps).  input (*), target (*) -> ()."""
    if size_average is None and reduce is None and reduction not in ("none", "mean", "sum"):
        raise ValueError(reduction + " is not a valid value for reduction")
    return L.poisson_nll_loss(input, target, log_input, full, eps, _how(size_average, reduce, reduction))


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """(log(var) + (input - target)^2 / var) / 2.  input, target, var (N, *) -> ()."""
    if isinstance(var, float):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = var * torch.ones_like(input)
    elif torch.any(var < 0):
        raise ValueError("var has negative entry/entries")
    if var.size() != input.size():
        if input.size()[:-1] == var.size():
            var = var.unsqueeze(-1)
        elif not (input.dim() == var.dim() and sum(y for x, y in zip(input.size(), var.size()) if x != y) == 1):
            raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(reduction + " is not valid")
    var = var.clone()
    with torch.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduced(loss, reduction)


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """target * (log(target) - input), input in log space; also "batchmean".  input (*), target (*) -> ()."""
    legacy = size_average is not None or reduce is not None
    if not legacy and reduction == "mean":
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size.'batchmean' divides "
            "only by the batch size, and aligns with the KL div math definition.'mean' will be changed to behave the "
            "same as 'batchmean' in the next major release.",
            stacklevel=2,
        )
    batchmean = reduction == "batchmean"
    how = _how(size_average, reduce, "sum" if batchmean else reduction)
    result = L.kl_div(input, target, how, log_target)
    return result / input.size()[0] if batchmean and input.dim() != 0 else result


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Any = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """-weight (target log(input) + (1 - target) log(1 - input)).  input (*), target (*) -> ()."""
    how = _how(size_average, reduce, reduction)
    if target.size() != input.size():
        raise ValueError(
            f"Using a target size ({target.size()}) that is different to the input size ({input.size()}) is "
            "deprecated. Please ensure they have the same size."
        )
    if weight is not None:
        weight = weight.expand(torch.broadcast_shapes(target.size(), weight.size()))
    return L.binary_cross_entropy(input, target, weight, how)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Any = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    pos_weight: Any = None,
) -> Tensor:
    """binary_cross_entropy of sigmoid(input), stably.  input (*), target (*) -> ()."""
    how = _how(size_average, reduce, reduction)
    if target.size() != input.size():
        raise ValueError(f"Target size ({target.size()}) must be the same as input size ({input.size()})")
    return L.binary_cross_entropy_with_logits(input, target, weight, pos_weight, how)


def _weighted(loss: Tensor, weight: Tensor, input: Tensor, reduction: str, by_weight: bool) -> Tensor:
    if weight.size() != input.size():
        raise ValueError("Weights and input must have the same size.")
    if reduction not in ("none", "sum", "mean"):
        raise ValueError(f"Invalid reduction mode: {reduction}. Expected one of 'none', 'mean', 'sum'.")
    loss = loss * weight
    if reduction == "mean" and by_weight:
        return loss.sum() / weight.sum()
    return reduced(loss, reduction)


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    weight: Any = None,
) -> Tensor:
    """(input - target)^2.  input (*), target (*) -> ()."""
    warn_sizes(input, target)
    how = reduction if weight is not None and size_average is reduce is None else _how(size_average, reduce, reduction)
    a, b = torch.broadcast_tensors(input, target)
    if weight is not None:
        return _weighted((a - b) ** 2, weight, input, how, True)
    return L.mse_loss(a, b, how)


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    weight: Any = None,
) -> Tensor:
    """|input - target|.  input (*), target (*) -> ()."""
    warn_sizes(input, target)
    how = reduction if weight is not None and size_average is reduce is None else _how(size_average, reduce, reduction)
    if autocast.state.on:
        input, target = autocast.cast_operands("l1_loss", (input, target), "float32")
    a, b = torch.broadcast_tensors(input, target)
    if weight is not None:
        return _weighted((a - b).abs(), weight, input, how, True)
    return reduced((a - b).abs(), how)


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """d^2 / (2 beta) where d = |input - target| < beta, else d - beta / 2.  input (*), target (*) -> ()."""
    warn_sizes(input, target)
    how = _how(size_average, reduce, reduction)
    a, b = torch.broadcast_tensors(input, target)
    return reduced((a - b).abs(), how) if beta == 0.0 else L.smooth_l1_loss(a, b, how, beta)


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Any = None
) -> Tensor:
    """d^2 / 2 where d = |input - target| <= delta, else delta (d - delta / 2).  input (*), target (*) -> ()."""
    warn_sizes(input, target)
    a, b = torch.broadcast_tensors(input, target)
    if weight is not None:
        return _weighted(L.huber_loss(a, b, "none", delta), weight, input, reduction, False)
    return L.huber_loss(a, b, _how(None, None, reduction), delta)


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, -target (input1 - input2) + margin).  three (N) -> ()."""
    how = _how(size_average, reduce, reduction)
    if input1.dim() != input2.dim() or input1.dim() != target.dim():
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: "
            f"{input1.size()}, input2: {input2.size()}, target: {target.size()} "
        )
    return M.margin_ranking_loss(input1, input2, target, margin, how)


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """input where target is 1, max(0, margin - input) where it is -1.  input (*), target (*) -> ()."""
    return M.hinge_embedding_loss(input, target, margin, _how(size_average, reduce, reduction))


def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """Hinge between every target class and every other one.  input (N, C), target (N, C) padded by -1 -> ()."""
    return M.multilabel_margin_loss(input, target, _how(size_average, reduce, reduction))


@checked
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """log(1 + exp(-target * input)).  input (*), target (*) of +-1 -> ()."""
    how = _how(size_average, reduce, reduction)
    shape = broadcast_shapes(input.shape, target.shape)
    if shape != input.shape:
        raise RuntimeError(f"output with shape {list(input.shape)} doesn't match the broadcast shape {list(shape)}")
    if input.dtype.is_floating_point:
        target = target.to(input.dtype)
    return L.soft_margin_loss(input, target.expand(shape), how)


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Any = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """binary_cross_entropy_with_logits averaged over classes.  input (N, C), target (N, C) -> ()."""
    from engine.nn._functional_activation import logsigmoid

    if size_average is not None or reduce is not None:
        reduction = _Reduction.legacy_get_string(size_average, reduce)
    loss = -(target * logsigmoid(input) + (1 - target) * logsigmoid(-input))
    if weight is not None:
        loss = loss * weight
    dim = input.dim() - 1
    loss = loss.sum(dim=dim) / input.size(dim)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(reduction + " is not valid")
    return reduced(loss, reduction)


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """1 - cos where target is 1, max(0, cos - margin) where it is -1.  (N, D), (N, D), (N) -> ()."""
    return M.cosine_embedding_loss(input1, input2, target, margin, _how(size_average, reduce, reduction))


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Any = None,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """Sum over i of max(0, margin - input[t] + input[i]) ** p / C.  input (N, C), target (N) -> ()."""
    how = _how(size_average, reduce, reduction)
    if p != 1 and p != 2:
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.dim() != 1:
        raise ValueError("weight must be one-dimensional")
    return M.multi_margin_loss(input, target, p, margin, weight, how)


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """max(0, |anchor - positive| - |anchor - negative| + margin).  three (N, D) -> ()."""
    how = _how(size_average, reduce, reduction)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    return M.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, how)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin).  three (N, *) -> ()."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    distance = L.pairwise_distance if distance_function is None else distance_function
    dims = (anchor.dim(), positive.dim(), negative.dim())
    if len(set(dims)) > 1:
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {dims[0]}D, positive {dims[1]}D, and negative {dims[2]}D inputs"
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = torch.minimum(far, distance(positive, negative))
    return reduced((margin + near - far).clamp(min=0), reduction)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Connectionist temporal classification.  log_probs (T, N, C), targets (N, S) or (sum lengths) -> ()."""
    from engine.ops.loss.ctc import ctc

    how = _how(None, None, reduction)
    return ctc(log_probs, targets, input_lengths, target_lengths, blank, how, zero_infinity)


def by_number(loss: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The loss as torch's top level and aten have it: the reduction a number (0 none, 1 mean, 2 sum), and not the
    deprecated arguments; behind the weights, before what is ignored.
    """
    parameters = inspect.signature(without_listeners(loss)).parameters
    remaining = [p for p in parameters if p not in ("size_average", "reduce", "reduction")]
    place = [p for p in parameters if p not in ("size_average", "reduce")].index("reduction")
    if "ignore_index" in remaining:
        place = remaining.index("ignore_index")
    elif "pos_weight" in remaining:
        place = len(remaining)
    names = (*remaining[:place], "reduction", *remaining[place:])

    def call(*args: Any, **kwargs: Any) -> Tensor:
        if len(args) > len(names):
            raise TypeError(f"{call.__name__}() takes {len(names)} positional arguments but {len(args)} were given")
        given = dict(zip(names, args), **kwargs)
        if "self" in given:
            given["input"] = given.pop("self")
        given["reduction"] = ("none", "mean", "sum")[given.get("reduction", 1)]
        return loss(**given)

    call.__name__ = call.__qualname__ = loss.__name__
    call.__doc__ = by_number.__doc__
    number = inspect.Parameter("reduction", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=1, annotation="int")
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [number if name == "reduction" else parameters[name] for name in names], return_annotation="Tensor"
    )
    return call
