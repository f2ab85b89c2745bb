"""The filters of torchaudio's compiled extension: recursive filters and overdrive.

`torch.ops.torchaudio` serves those whose names begin with an underscore; `alignment.py` has the others.
"""

from __future__ import annotations

from engine.core.grad_mode import no_grad
from engine.dispatch import joint_derivative, op, samples
from engine.ops.convolution import conv1d
from engine.ops.joining import cat
from engine.ops.nn.padding import constant_pad_nd
from engine.ops.products import matmul
from engine.ops.rearranging import flip
from engine.ops.strides import unfold
from engine.tensor import Tensor

_BLOCK = 64  # samples whose recursion is one product with a triangular matrix
_LEAK = 0.995  # how much of the last output an overdrive keeps


def _one_by_one(xp, signal, weights):
    """The recursion as it is written: signal (B, C, T), weights (C, order) -> (B, C, T)."""
    order = weights.shape[1]
    result = xp.zeros((*signal.shape[:2], signal.shape[2] + order), signal.dtype)
    backwards = weights[:, ::-1]
    for t in range(signal.shape[2]):
        result[:, :, t + order] = signal[:, :, t] - (result[:, :, t : t + order] * backwards).sum(-1)
    return result[:, :, order:]


def _impulse_response(xp, weights, length):
    """The answer to 1, 0, 0, ...: weights (C, order) -> (C, length)."""
    order = weights.shape[1]
    response = xp.zeros((weights.shape[0], length), weights.dtype)
    response[:, 0] = 1
    for t in range(1, length):
        few = t if t < order else order
        response[:, t] = -(weights[:, :few] * response[:, t - few : t][:, ::-1]).sum(-1)
    return response


def _in_blocks(xp, signal, weights):
    """`_one_by_one` by matrix products: the answer of each block at rest, then what the samples before it add."""
    (count, channels, steps), order = signal.shape, weights.shape[1]
    block = _BLOCK if order < _BLOCK else order
    number = -(-steps // block)
    padded = xp.zeros((count, channels, number * block), signal.dtype)
    padded[:, :, :steps] = signal
    # (C, block, block): row t holds the response back from t
    response = _impulse_response(xp, weights, block)
    reversed_response = xp.concatenate([xp.zeros_like(response[:, 1:]), response], axis=1)
    t = xp.arange(block)
    triangle = reversed_response[:, t[:, None] - t[None, :] + block - 1]
    # (C, block, order): what the latest samples before the block, the newest first, push into its first inputs
    push = xp.zeros((channels, block, order), weights.dtype)
    for t in range(order):
        push[:, t, : order - t] = -weights[:, t:]
    carried = triangle @ push
    answer = padded.reshape(count, channels, number, block).transpose(1, 0, 2, 3) @ triangle.transpose(0, 2, 1)[:, None]
    ends = answer[:, :, :, block - order :][..., ::-1]  # the newest first
    step = carried[:, block - order :][:, ::-1].transpose(0, 2, 1)
    before = xp.zeros((channels, number, count, order), signal.dtype)
    for k in range(1, number):
        before[:, k] = ends[:, :, k - 1] + before[:, k - 1] @ step
    answer = answer + before.transpose(0, 2, 1, 3) @ carried.transpose(0, 2, 1)[:, None]
    return answer.transpose(1, 0, 2, 3).reshape(count, channels, number * block)[:, :, :steps]


def _recursion_grads(grad, input, coefficients, result, needs):
    """The recursion run backwards in time, and its products with the earlier results."""
    back = flip(recursion(flip(grad, (2,)), coefficients), (2,))
    if not needs[1]:
        return back, None
    channels, order = coefficients.shape
    before = unfold(constant_pad_nd(result, (order, -1)), 2, order, 1).transpose(0, 1)
    rows = back.transpose(0, 1).reshape(channels, 1, -1)
    return back if needs[0] else None, -flip(matmul(rows, before.reshape(channels, -1, order))[:, 0], (1,))


@op(method=False, public=False, out=False, tensors=("coefficients",), refuse="c")
@joint_derivative("input", "coefficients", by=_recursion_grads)
@samples(
    lambda t: [
        (t(2, 3, 9), t.uniform(-0.4, 0.4, 3, 2)),
        (t(1, 1, 150), t.uniform(-0.4, 0.4, 1, 3)),
        (t(2, 1, 3), t.uniform(-0.3, 0.3, 1, 5)),
    ]
)
def recursion(xp, input, coefficients):
    """y[t] = input[t] - sum over k of coefficients[k - 1] y[t - k].

    input (B, C, T), coefficients (C, order) -> (B, C, T).  Computed in float64:
    filters of audio have their poles next to the unit circle.
    """
    if not input.size or not coefficients.shape[1]:
        return input.copy()
    signal, weights = input.astype("float64"), coefficients.astype("float64")
    result = _in_blocks(xp, signal, weights)
    if not bool(
        xp.isfinite(result).all()
    ):  # a product spreads what is not finite over the block; the recursion, forwards
        result = _one_by_one(xp, signal, weights)
    return result.astype(input.dtype, order="C")


def _of_channels(coefficients: Tensor, name: str, channels: int) -> Tensor:
    if coefficients.dim() != 2 or coefficients.shape[0] != channels:
        raise RuntimeError(
            f"{name} must be (channels, order) with {channels} channels, got {tuple(coefficients.shape)}"
        )
    return coefficients


def _lfilter(waveform: Tensor, a_coeffs: Tensor, b_coeffs: Tensor) -> Tensor:
    """The difference equation a * y = b * x.  waveform (B, C, T), coefficients (C, order + 1) -> (B, C, T)."""
    if waveform.dim() != 3:
        raise RuntimeError(f"Expected waveform to be 3 dimensional. Found: {waveform.dim()}")
    channels = waveform.shape[1]
    a_coeffs = _of_channels(a_coeffs, "a_coeffs", channels)
    b_coeffs = _of_channels(b_coeffs, "b_coeffs", channels)
    first = a_coeffs[:, :1]
    padded = constant_pad_nd(waveform, (b_coeffs.shape[1] - 1, 0))
    driven = conv1d(padded, flip(b_coeffs / first, (1,)).unsqueeze(1), groups=channels)
    return recursion(driven, (a_coeffs / first)[:, 1:])


def _lfilter_core_loop(input_signal_windows: Tensor, a_coeff_flipped: Tensor, padded_output_waveform: Tensor) -> Tensor:
    """Fill in the recursion behind the samples that `padded_output_waveform` starts with, and return it; no gradient.

    windows (B, C, T), a_coeff_flipped (C, order + 1), output (B, C, T + order) -> the last.
    """
    weights = flip(_of_channels(a_coeff_flipped, "a_coeff_flipped", input_signal_windows.shape[1]), (1,))[:, 1:]
    order = weights.shape[1]
    with no_grad():
        driven, start = input_signal_windows.clone(), padded_output_waveform[:, :, :order].clone()
        if bool(start.any()):
            for t in range(min(order, driven.shape[2])):
                driven[:, :, t] -= (start[:, :, t:] * flip(weights[:, t:], (1,))).sum(-1)
        padded_output_waveform[:, :, order:] = recursion(driven, weights)
    return padded_output_waveform


def _overdrive_core_loop(
    waveform: Tensor, temp: Tensor, last_in: Tensor, last_out: Tensor, output_waveform: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Half the waveform and three quarters of `temp` behind a filter against its mean, written to the last three.

    waveform, temp, output_waveform (C, T), last_in, last_out (C) -> (last_in, last_out, output_waveform).
    """
    if waveform.shape[-1]:
        before = cat([last_in.unsqueeze(-1), temp[:, :-1]], -1)
        differences = temp - before
        first = differences[:, :1] + _LEAK * last_out.unsqueeze(-1)
        leak = waveform.new_full((1, 1), -_LEAK)
        filtered = recursion(cat([first, differences[:, 1:]], -1).unsqueeze(1), leak)[:, 0]
        output_waveform.copy_(waveform * 0.5 + filtered * 0.75)
        last_in.copy_(temp[:, -1])
        last_out.copy_(filtered[:, -1])
    return last_in, last_out, output_waveform
