"""Sequences against labels: the transducer loss and the forced alignment of torchaudio's compiled extension."""

from __future__ import annotations

from engine.core import dtypes
from engine.dispatch import derivative, op, samples
from engine.tensor import Tensor

_MINUS = float("-inf")


def _skewed(xp, table, steps):
    """table (B, T, U) -> (B, T + U - 1, U): its diagonals t + u as rows, -inf beside it."""
    width = table.shape[2]
    u = xp.arange(width)
    t = xp.arange(steps + width - 1)[:, None] - u
    inside = (t >= 0) & (t < steps)
    return xp.where(inside, table[:, xp.where(inside, t, 0), u], xp.asarray(_MINUS, dtype=table.dtype))


def _upright(xp, skewed, steps):
    """Undo `_skewed`."""
    u = xp.arange(skewed.shape[2])
    return skewed[:, xp.arange(steps)[:, None] + u, u]


def _grid(xp, blanks, emits, logit_lengths, target_lengths):
    """log alpha, log beta (B, T, U) and the log likelihood (B) of a transducer's grid.

    blanks, emits (B, T, U): the log-probabilities of a step in time and of the next label, the latter -inf at the end.
    """
    _, steps, width = blanks.shape
    minus = xp.asarray(_MINUS, dtype=blanks.dtype)
    t, u = xp.arange(steps)[:, None], xp.arange(width)
    last_t, last_u = (logit_lengths - 1).reshape(-1, 1, 1), target_lengths.reshape(-1, 1, 1)
    inside = (t <= last_t) & (u <= last_u)
    end = (t == last_t) & (u == last_u)
    onward = _skewed(xp, xp.where(inside & (t < last_t), blanks, minus), steps)
    upward = _skewed(xp, xp.where(inside & (u < last_u), emits, minus), steps)
    finish = _skewed(xp, xp.where(end, blanks, minus), steps)
    alpha, beta = xp.full_like(onward, _MINUS), finish.copy()
    alpha[:, 0, 0] = 0
    for d in range(1, steps + width - 1):
        alpha[:, d] = alpha[:, d - 1] + onward[:, d - 1]
        alpha[:, d, 1:] = xp.logaddexp(alpha[:, d, 1:], alpha[:, d - 1, :-1] + upward[:, d - 1, :-1])
    for d in range(steps + width - 3, -1, -1):
        paths = beta[:, d + 1] + onward[:, d]
        paths[:, :-1] = xp.logaddexp(paths[:, :-1], beta[:, d + 1, 1:] + upward[:, d, :-1])
        beta[:, d] = xp.logaddexp(beta[:, d], paths)
    alpha, beta = _upright(xp, alpha, steps), _upright(xp, beta, steps)
    return xp.where(inside, alpha, minus), beta, beta[:, 0, 0], end


@op(
    method=False,
    public=False,
    out=False,
    returns=("costs", "gradients"),
    nondifferentiable=("gradients",),
    tensors=("targets", "logit_lengths", "target_lengths"),
    gradgrad=False,
    why="torchaudio's gradient is a saved tensor; it has no second one",
)
@derivative(input=lambda grad0, result1: result1 * grad0.reshape(-1, 1, 1, 1))
@samples(
    lambda t: [
        (t(2, 3, 3, 4), t.of([[1, 2], [3, 1]]), t.of([3, 2]), t.of([2, 1]), 0, 0.0, True),
        (t(1, 4, 1, 3), t.of([[0]])[:, :0], t.of([4]), t.of([0]), 2, 0.0, True),
        (t(2, 2, 3, 4), t.of([[3, 2], [1, 1]]), t.of([2, 1]), t.of([2, 2]), 0, 0.0, False),
    ]
)
def transducer_loss(xp, input, targets, logit_lengths, target_lengths, blank: int, clamp: float, fused: bool):
    """-log p(targets) of each row, summed over the alignments, and its gradient (Graves 2012).

    input (B, T, U + 1, V) logits, or log-probabilities without `fused`, targets (B, U), lengths (B) ->
    (costs (B), gradients (B, T, U + 1, V), clipped to +-clamp where that is positive).
    """
    half = input.dtype.itemsize == 2
    scores = input.astype("float32") if half else input
    if fused:
        scores = scores - scores.max(-1, keepdims=True)
        scores = scores - xp.log(xp.exp(scores).sum(-1, keepdims=True))
    count, steps, width, _ = scores.shape
    blanks = scores[..., blank]
    rows, t, u = xp.arange(count)[:, None, None], xp.arange(steps)[:, None], xp.arange(width - 1)
    labels = targets[:, None, : width - 1].astype("int64")
    emits = xp.full_like(blanks, _MINUS)
    emits[..., :-1] = scores[rows, t, u, labels]
    alpha, beta, likelihood, end = _grid(xp, blanks, emits, logit_lengths, target_lengths)
    share = alpha - likelihood.reshape(-1, 1, 1)
    gradients = xp.exp(scores + (share + beta)[..., None]) if fused else xp.zeros_like(scores)
    later = xp.full_like(beta, _MINUS)
    later[:, :-1] = beta[:, 1:]
    later[end] = 0
    gradients[..., blank] -= xp.exp(share + blanks + later)
    gradients[rows, t, u, labels] -= xp.exp(share[..., :-1] + emits[..., :-1] + beta[..., 1:])
    if clamp > 0:
        gradients = xp.clip(gradients, -clamp, clamp)
    return (-likelihood).astype(input.dtype), gradients.astype(input.dtype)


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise RuntimeError(sentence)


def rnnt_loss_forward(
    logits: Tensor,
    targets: Tensor,
    logit_lengths: Tensor,
    target_lengths: Tensor,
    blank: int,
    clamp: float,
    fused_log_softmax: bool = True,
) -> tuple[Tensor, Tensor]:
    """(costs, gradients) of `transducer_loss`, its arguments checked as torchaudio does."""
    _require(logits.dtype in (dtypes.float32, dtypes.float16), "logits must be float32 or float16 (half) type")
    for name, given, dims in (
        ("targets", targets, 2),
        ("logit_lengths", logit_lengths, 1),
        ("target_lengths", target_lengths, 1),
    ):
        _require(given.dtype == dtypes.int32, f"{name} must be int32 type")
        _require(given.dim() == dims, f"{name} must be {dims}-D")
    _require(logits.dim() == 4, "logits must be 4-D (batch, time, target, class)")
    for name, given in (("logit_lengths", logit_lengths), ("target_lengths", target_lengths), ("targets", targets)):
        _require(given.shape[0] == logits.shape[0], f"batch dimension mismatch between logits and {name}")
    _require(0 <= blank < logits.shape[3], "blank must be within [0, logits.shape[-1])")
    _require(logits.shape[1] == int(logit_lengths.max()), "input length mismatch")
    _require(logits.shape[2] == int(target_lengths.max()) + 1, "output length mismatch")
    _require(targets.shape[1] + 1 == logits.shape[2], "target length mismatch")
    result = transducer_loss(
        logits, targets, logit_lengths, target_lengths, int(blank), float(clamp), bool(fused_log_softmax)
    )
    return result[0], result[1]


@op(method=False, public=False, out=False, tensors=("log_probs", "targets"), why="labels: nothing to differentiate")
@samples(lambda t: [(t.constant(t(7, 4)), t.of([1, 2, 2]), 0), (t.constant(t(3, 3)), t.of([0]), 2)])
def best_alignment(xp, log_probs, targets, blank: int):
    """The likeliest label of each step in time among the alignments of a CTC target (Viterbi).

    log_probs (T, C), targets (L) -> (T) of the type of targets.
    """
    steps, count = log_probs.shape[0], targets.shape[0]
    labels = xp.full(2 * count + 1, blank, "int64")
    labels[1::2] = targets
    states = 2 * count + 1
    skips = xp.zeros(states, bool)
    skips[3::2] = targets[1:] != targets[:-1]
    emitted = log_probs[:, labels]
    score = xp.full(states, _MINUS, log_probs.dtype)
    score[:2] = emitted[0, :2]
    one, two = xp.full_like(score, _MINUS), xp.full_like(score, _MINUS)
    moves = xp.zeros((steps, states), "int64")
    for t in range(1, steps):
        one[1:] = score[:-1]
        two[2:] = xp.where(skips[2:], score[:-2], xp.asarray(_MINUS, dtype=score.dtype))
        jump, step = (two > one) & (two > score), (one > score) & (one > two)
        moves[t] = 2 * jump + step
        score = emitted[t] + xp.where(jump, two, xp.where(step, one, score))
    path = xp.zeros(steps, "int64")
    if steps:
        last = score[states - 1] > score[states - 2] if count else True
        state = states - 1 if bool(last) else states - 2
        for t in range(steps - 1, -1, -1):
            path[t] = state
            state = state - int(moves[t, state])
    return labels[path].astype(targets.dtype)


def forced_align(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int = 0
) -> tuple[Tensor, Tensor]:
    """(labels of the best alignment, log_probs).  log_probs (1, T, C), targets (1, L) -> ((1, T), (1, T, C))."""
    _require(
        log_probs.dtype in (dtypes.float64, dtypes.float32, dtypes.float16),
        "log_probs must be float64, float32 or float16 (half) type",
    )
    _require(targets.dtype in (dtypes.int32, dtypes.int64), "targets must be int32 or int64 type")
    _require(log_probs.dim() == 3, "log_probs must be 3-D (batch_size, input length, num classes)")
    _require(targets.dim() == 2, "targets must be 2-D (batch_size, target length,)")
    _require(input_lengths.dim() == 1, "input_lengths must be 1-D")
    _require(target_lengths.dim() == 1, "target_lengths must be 1-D")
    _require(log_probs.shape[0] == 1, "The batch dimension for log_probs must be 1 at the current version.")
    _require(targets.shape[0] == 1, "The batch dimension for targets must be 1 at the current version.")
    _require(0 <= blank < log_probs.shape[2], "blank must be within [0, num classes)")
    _require(log_probs.shape[1] == int(input_lengths.max()), "input length mismatch")
    _require(targets.shape[1] == int(target_lengths.max()), "target length mismatch")
    row = targets[0]
    repeats = int((row[1:] == row[:-1]).sum())
    _require(
        log_probs.shape[1] >= row.shape[0] + repeats,
        f"targets length is too long for CTC. Found log_probs length: {log_probs.shape[1]}, targets length: "
        f"{row.shape[0]}, and number of repeats: {repeats}",
    )
    return best_alignment(log_probs.detach()[0], row, int(blank)).unsqueeze(0), log_probs
