"""Connectionist temporal classification (Graves et al. 2006)."""

from __future__ import annotations

import builtins

from engine.autograd.versions import guard
from engine.core import dtypes
from engine.dispatch import composite, derivative, op
from engine.ops.pointwise.arithmetic import no_derivative
from engine.tensor import Tensor

_WHY = "the gradient is torch's, right behind a log_softmax only: exp(input) - posterior; torch has no second one"


def _extended(targets, lengths, blank):
    """Each target with blanks round its labels, as lists."""
    return [[blank, *(x for label in row[:n] for x in (label, blank))] for row, n in zip(targets, lengths)]


def _tables(xp, targets, target_lengths, blank, dtype):
    """(labels (N, S'), 0 or -inf where two steps may be skipped (N, S'), used (N, S'))."""
    rows = _extended(targets, target_lengths, blank)
    width = 1
    for row in rows:
        width = len(row) if len(row) > width else width
    minus = float("-inf")
    labels, skips, used = [], [], []
    for row in rows:
        more = width - len(row)
        skip = [0.0 if s >= 2 and row[s] != blank and row[s] != row[s - 2] else minus for s in range(len(row))]
        labels.append(row + [blank] * more)
        skips.append(skip + [minus] * more)
        used.append([0.0] * len(row) + [minus] * more)
    return (
        xp.asarray(labels).reshape(len(rows), width),
        xp.asarray(skips, dtype=dtype).reshape(len(rows), width),
        xp.asarray(used, dtype=dtype).reshape(len(rows), width),
    )


def _log_add(xp, *arrays):
    top = arrays[0]
    for a in arrays[1:]:
        top = xp.maximum(top, a)
    safe = xp.where(top == float("-inf"), 0, top)
    total = xp.exp(arrays[0] - safe)
    for a in arrays[1:]:
        total = total + xp.exp(a - safe)
    return safe + xp.log(total)


_LEAST = -1e30  # finite, and less than any log of a probability that is not 0


def _step(xp, before, one, two, skips):
    """log(exp(before) + exp(one) + exp(two + skips)), -inf where all are."""
    two = two + skips
    top = xp.maximum(xp.maximum(before, one), two)
    xp.maximum(top, _LEAST, out=top)
    total = xp.exp(before - top)
    total += xp.exp(one - top)
    total += xp.exp(two - top)
    xp.log(total, out=total)
    total += top
    return total


def _forward(xp, log_probs, labels, skips, used, input_lengths):
    """log alpha of every step: (T, N, S')."""
    steps = log_probs.shape[0]
    emitted = xp.take_along_axis(log_probs, xp.broadcast_to(labels[None], (steps, *labels.shape)), axis=2) + used
    alpha = xp.full(emitted.shape, float("-inf"), log_probs.dtype)
    wide = xp.full((labels.shape[0], labels.shape[1] + 2), float("-inf"), log_probs.dtype)  # two more in front
    here, one, two = wide[:, 2:], wide[:, 1:-1], wide[:, :-2]
    if steps:
        alpha[0, :, :2] = emitted[0, :, :2]
        here[...] = alpha[0]
    for t in range(1, steps):
        total = _step(xp, here, one, two, skips)
        total += emitted[t]
        alpha[t] = here[...] = total
    return alpha, emitted


def _backward(xp, emitted, skips, input_lengths, target_lengths):
    """log beta of every step: (T, N, S')."""
    steps, count, width = emitted.shape
    beta = xp.full(emitted.shape, float("-inf"), emitted.dtype)
    first = [[float("-inf")] * width for _ in range(count)]
    for n, s in enumerate(target_lengths):
        for place in (2 * s, 2 * s - 1) if s else (0,):
            first[n][place] = 0.0
    start = xp.asarray(first, dtype=emitted.dtype).reshape(count, width)
    last, ends = xp.asarray(list(input_lengths)).reshape(-1, 1), set(input_lengths)
    wide = xp.full((count, width + 2), float("-inf"), emitted.dtype)  # two more behind
    ahead, one, two = wide[:, :-2], wide[:, 1:-1], wide[:, 2:]
    skip_from = xp.full((count, width), float("-inf"), emitted.dtype)
    skip_from[:, : builtins.max(width - 2, 0)] = skips[:, 2:]
    for t in range(steps - 1, -1, -1):
        if t < steps - 1:
            xp.add(beta[t + 1], emitted[t + 1], out=ahead)
            beta[t] = _step(xp, ahead, one, two, skip_from)
        if t + 1 in ends:  # before, it is all -inf
            beta[t] = xp.where(last == t + 1, start, beta[t])
    return beta


def _ends(xp, alpha, input_lengths, target_lengths):
    """log likelihood of each sequence: the last two states at its last step."""
    result = []
    for n, (t, s) in enumerate(zip(input_lengths, target_lengths)):
        if t == 0:
            result.append(0.0 if s == 0 else float("-inf"))
            continue
        last = alpha[t - 1, n]
        result.append(float(last[0]) if s == 0 else float(_log_add(xp, last[2 * s], last[2 * s - 1])))
    return xp.asarray(result, dtype=alpha.dtype)


@op(public=False, out=False, method=False, gradgrad=False, why=_WHY, generated="many", large=512, large_by=("input",))
@derivative(input=no_derivative("_ctc_loss_backward"), grad_output=no_derivative("_ctc_loss_backward"))
def ctc_backward(xp, grad_output, input, targets, input_lengths, target_lengths, blank, zero_infinity):
    """The gradient of `ctc_rows` behind a log_softmax.  grad_output (N), input (T, N, C) -> (T, N, C)."""
    labels, skips, used = _tables(xp, targets, target_lengths, blank, input.dtype)
    alpha, emitted = _forward(xp, input, labels, skips, used, input_lengths)
    ends = _ends(xp, alpha, input_lengths, target_lengths)[:, None]
    steps, count, classes = input.shape
    share = alpha + _backward(xp, emitted, skips, input_lengths, target_lengths)
    share -= ends
    possible = xp.isfinite(ends)
    share = xp.where(possible, xp.exp(share), 0 if zero_infinity else float("nan"))
    inside = xp.arange(steps).reshape(-1, 1, 1) < xp.asarray(list(input_lengths)).reshape(-1, 1)
    share = xp.where(inside, share, 0).astype(input.dtype)
    result = xp.where(inside & possible if zero_infinity else inside, xp.exp(input), 0)
    cells = xp.arange(steps * count).reshape(steps, count, 1) * classes + labels
    xp.subtract.at(result.reshape(-1), cells.reshape(-1), share.reshape(-1))
    return result * grad_output.reshape(1, -1, 1)


@op(
    public=False,
    out=False,
    method=False,
    node="CtcLossBackward0",
    gradgrad=False,
    why=_WHY,
    generated="many",
    large=512,
)
@derivative(
    input=lambda grad, input, targets, input_lengths, target_lengths, blank, zero_infinity: ctc_backward(
        grad, input, targets, input_lengths, target_lengths, blank, zero_infinity
    )
)
def ctc_rows(xp, input, targets, input_lengths, target_lengths, blank, zero_infinity):
    """-log p(target | input) of each sequence.  input (T, N, C) log-probabilities, targets tuples of labels -> (N)."""
    labels, skips, used = _tables(xp, targets, target_lengths, blank, input.dtype)
    alpha, _ = _forward(xp, input, labels, skips, used, input_lengths)
    loss = -_ends(xp, alpha, input_lengths, target_lengths)
    return xp.where(loss == float("inf"), 0, loss).astype(input.dtype) if zero_infinity else loss


def _lengths(name, values):
    if isinstance(values, Tensor):
        if values.dtype.category >= dtypes.FLOATING:
            raise RuntimeError(f"{name} must be integral")
        values = values._array.reshape(-1).tolist()
    return tuple(map(int, values))


def _check_dims(x, targets):
    which = "(while checking arguments for ctc_loss_allocate_outputs)"
    if x.dim() != 3:
        raise RuntimeError(
            f"Expected 3-dimensional tensor, but got {x.dim()}-dimensional tensor for argument #1 'log_probs' {which}"
        )
    if targets.dim() not in (1, 2):
        raise RuntimeError(
            f"Expected 1 to 2 dimensions, but got {targets.dim()}-dimensional tensor for argument #2 'targets' {which}"
        )


def _check_targets(targets, count, lengths):
    which = "for argument #2 'targets' (while checking arguments for ctc_loss_allocate_outputs)"
    if targets.dim() == 1:
        if targets.shape[0] != sum(lengths):
            raise RuntimeError(
                f"Expected tensor to have size {sum(lengths)} at dimension 0, but got size {targets.shape[0]} {which}"
            )
    elif targets.shape[0] != count:
        raise RuntimeError(
            f"Expected tensor to have size {count} at dimension 0, but got size {targets.shape[0]} {which}"
        )
    elif targets.shape[1] < max(lengths, default=0):
        raise RuntimeError(
            f"Expected tensor to have size at least {max(lengths)} at dimension 1, but got size {targets.shape[1]} "
            f"{which}"
        )


@composite(public=False, method=False, form="ctc_loss", several=((4, 7), (4, 7)))
def ctc(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | tuple[int, ...],
    target_lengths: Tensor | tuple[int, ...],
    blank: int = 0,
    reduction="mean",
    zero_infinity: bool = False,
):
    """CTC loss.  log_probs (T, N, C) or (T, C), targets (N, S) or (sum of lengths) -> () or (N)."""
    batched = log_probs.dim() == 3
    x = log_probs if log_probs.dim() != 2 else log_probs.unsqueeze(1)
    _check_dims(x, targets)
    steps, count, classes = x.shape
    input_lengths = _lengths("input_lengths", input_lengths)
    target_lengths = _lengths("target_lengths", target_lengths)
    if not 0 <= blank < classes:
        raise RuntimeError("blank must be in label range")
    if len(input_lengths) != count:
        raise RuntimeError("input_lengths must be of size batch_size")
    if len(target_lengths) != count:
        raise RuntimeError("target_lengths must be of size batch_size")
    for name, lengths in (("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        if (least := min(lengths, default=0)) < 0:
            raise RuntimeError(
                f"Expected {name} to have value at least 0, but got value {least} (while checking arguments for "
                "ctc_loss_allocate_outputs)"
            )
    if max(input_lengths, default=0) > steps:
        n = next(n for n in input_lengths if n > steps)
        raise RuntimeError(
            f"Expected input_lengths to have value at most {steps}, but got value {n} (while checking arguments for "
            "ctc_loss_cpu)"
        )
    _check_targets(targets, count, target_lengths)
    values = (targets if targets.dtype.category < dtypes.FLOATING else targets.long())._array.tolist()
    if targets.dim() == 1:
        rows, start = [], 0
        for n in target_lengths:
            rows.append(tuple(values[start : start + n]))
            start += n
    elif min(target_lengths, default=0) == targets.shape[1]:
        rows = list(map(tuple, values))
    else:
        rows = [tuple(row[:n]) for row, n in zip(values, target_lengths)]
    if not x.is_floating_point():
        raise NotImplementedError(f"\"ctc_loss_cpu\" not implemented for '{dtypes.scalar_name(x.dtype)}'")
    losses = ctc_rows(x, tuple(rows), input_lengths, target_lengths, blank, zero_infinity)
    guard(losses, targets, None if zero_infinity else losses)  # torch puts the zeros into a copy
    if reduction == "mean" and len({*target_lengths}) == 1:
        return (losses / _at_least_one(target_lengths[0])).mean()
    if reduction == "mean":
        divisor = losses.detach().new_tensor([_at_least_one(n) for n in target_lengths])
        return (losses / divisor).mean()
    if reduction == "sum":
        return losses.sum()
    return losses if batched else losses.squeeze(0)


def _at_least_one(n):
    return n if n > 1 else 1
