"""Operators of aten that compute gradients, as programs of torch's compilers and functions with a backward of their own
call them: `torch.ops.aten.gelu_backward`, `convolution_backward` and their like.

Each takes its arguments in the order of the operator's schema, and gives what `autograd.grad` gives of the forward
operator; with grad mode on the result is differentiable where an argument requires grad.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import engine.nn.functional as F
from engine.autograd.api import grad as gradients
from engine.core.grad_mode import enable_grad, mode
from engine.dispatch import OPS
from engine.library.aten import FUNCTIONS
from engine.ops import functions as torch
from engine.ops.convolution import convolution_grads
from engine.tensor import Tensor
from engine.torch_names.facade import facade

__all__ = ["GRADIENTS"]

Gradients = tuple[Tensor | None, ...]
GRADIENTS: dict[str, Callable[..., Any]] = {}


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    """Put a function on the list under its name without the underscore in front that all of this file have."""
    GRADIENTS[function.__name__[1:]] = function
    return function


def _of(forward: Callable[..., Tensor], grad_output: Tensor, *inputs: Tensor, wanted: Sequence[bool] = ()) -> Gradients:
    """The gradients of `forward(*inputs)` by its inputs, None for those that are not wanted."""
    recorded = mode.enabled and any(t.requires_grad for t in (grad_output, *inputs))
    given = [t if recorded and t.requires_grad else t.detach().requires_grad_() for t in inputs]
    asked = [t for t, want in zip(given, wanted or [True] * len(given)) if want]
    with enable_grad():
        output = forward(*given)
        found = iter(gradients(output, asked, grad_output, create_graph=recorded) if asked else ())
    return tuple(next(found) if want else None for want in wanted or [True] * len(given))


def _by_input(forward: Callable[..., Tensor]) -> Callable[..., Tensor | None]:
    """The operator (grad_output, self, *options) of a function (self, *options)."""

    def backward(grad_output: Tensor, input: Tensor, *options: Any, **named: Any) -> Tensor | None:
        return _of(lambda x: forward(x, *options, **named), grad_output, input)[0]

    return backward


# --- activations

for _name in ("sigmoid", "tanh", "silu", "mish", "hardswish", "threshold", "softplus", "glu"):
    GRADIENTS[f"{_name}_backward"] = OPS[f"{_name}_backward"].function
for _name in ("gelu", "hardsigmoid", "hardtanh"):
    GRADIENTS[f"{_name}_backward"] = _by_input(getattr(F, _name))


@_named
def _log_sigmoid_backward(grad_output: Tensor, input: Tensor, buffer: Tensor | None = None) -> Tensor | None:
    return _of(F.logsigmoid, grad_output, input)[0]


@_named
def _leaky_relu_backward(grad_output: Tensor, input: Tensor, negative_slope: float, self_is_result: bool) -> Tensor:
    return torch.where(input > 0, grad_output, grad_output * negative_slope)


@_named
def _elu_backward(
    grad_output: Tensor, alpha: float, scale: float, input_scale: float, is_result: bool, self_or_result: Tensor
) -> Tensor:
    value = self_or_result
    below = value + alpha * scale if is_result else torch.exp(value * input_scale) * (alpha * scale)
    return torch.where(value <= 0, grad_output * (below * input_scale), grad_output * scale)


# --- losses, with the reduction as a number

for _name in ("mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss"):

    def _loss_backward(
        grad_output: Tensor,
        input: Tensor,
        target: Tensor,
        reduction: int,
        *more: float,
        loss: Callable[..., Tensor] = FUNCTIONS[_name],
    ) -> Tensor | None:
        return _of(lambda x: loss(x, target, reduction, *more), grad_output, input)[0]

    GRADIENTS[f"{_name}_backward"] = _loss_backward


@_named
def _binary_cross_entropy_backward(
    grad_output: Tensor, input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = 1
) -> Tensor | None:
    loss = FUNCTIONS["binary_cross_entropy"]
    return _of(lambda x: loss(x, target, weight, reduction), grad_output, input)[0]


@_named
def _nll_loss_forward(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """The loss, and the sum of the weights of all targets that count (0 without a reduction)."""
    found = FUNCTIONS["nll_loss"](input, target, weight, reduction, ignore_index)
    if not reduction:
        return found, input.new_zeros(())
    counted = target[target != ignore_index]
    weights = torch.ones_like(counted, dtype=input.dtype) if weight is None else weight[counted]
    return found, weights.sum()


@_named
def _nll_loss_backward(
    grad_output: Tensor,
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor | None:
    loss = FUNCTIONS["nll_loss"]
    return _of(lambda x: loss(x, target, weight, reduction, ignore_index), grad_output, input)[0]


GRADIENTS["nll_loss2d_forward"], GRADIENTS["nll_loss2d_backward"] = _nll_loss_forward, _nll_loss_backward

# --- layers


@_named
def _convolution_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Gradients:
    """The gradients of input, weight and bias, None where `output_mask` does not ask for one."""

    def forward(x: Tensor, w: Tensor) -> Tensor:
        return torch.convolution(x, w, None, stride, padding, dilation, transposed, output_padding, groups)

    if mode.enabled and any(t.requires_grad for t in (grad_output, input, weight)):
        found = _of(forward, grad_output, input, weight, wanted=output_mask[:2])
    else:  # without the forward pass
        sizes = tuple(stride), tuple(padding), tuple(dilation), transposed, tuple(output_padding), groups
        found = convolution_grads(grad_output, input, weight, (*output_mask[:2], False), *sizes)[:2]
    others = [d for d in range(grad_output.dim()) if d != 1]
    return *found, grad_output.sum(others) if output_mask[2] else None


@_named
def _native_layer_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    output_mask: Sequence[bool],
) -> Gradients:
    """The gradients of input, weight and bias, None where `output_mask` does not ask for one."""
    dims = tuple(range(input.dim() - len(normalized_shape), input.dim()))
    lead = tuple(range(input.dim() - len(normalized_shape)))
    x = (input - mean) * rstd
    g = grad_out if weight is None else grad_out * weight
    of_input = (g - g.mean(dims, True) - x * (g * x).mean(dims, True)) * rstd
    of_weight, of_bias = ((v.sum(lead) if lead else v) for v in (grad_out * x, grad_out))
    return _asked((of_input, of_weight, of_bias), output_mask)


@_named
def _native_batch_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_invstd: Tensor | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> Gradients:
    """The gradients of input, weight and bias, None where `output_mask` does not ask for one."""
    dims = tuple(d for d in range(input.dim()) if d != 1)
    row = (1, -1, *(1,) * (input.dim() - 2))
    if train:
        assert save_mean is not None and save_invstd is not None
        mean, rstd = save_mean, save_invstd
    else:
        assert running_mean is not None and running_var is not None
        mean, rstd = running_mean, torch.rsqrt(running_var + eps)
    x = (input - mean.view(row)) * rstd.view(row)
    g = grad_out if weight is None else grad_out * weight.view(row)
    inner = g - g.mean(dims, True) - x * (g * x).mean(dims, True) if train else g
    return _asked((inner * rstd.view(row), (grad_out * x).sum(dims), grad_out.sum(dims)), output_mask)


@_named
def _native_group_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
) -> Gradients:
    """The gradients of input, weight and bias, None where `output_mask` does not ask for one."""
    x = (input.reshape(N, group, -1) - mean.view(N, group, 1)) * rstd.view(N, group, 1)
    whole = grad_out.reshape(N, C, HxW)
    g = (whole if weight is None else whole * weight.view(1, C, 1)).reshape(N, group, -1)
    of_input = (g - g.mean(2, True) - x * (g * x).mean(2, True)) * rstd.view(N, group, 1)
    of_weight = (whole * x.reshape(N, C, HxW)).sum((0, 2))
    return _asked((of_input.reshape(input.shape), of_weight, whole.sum((0, 2))), output_mask)


def _asked(found: Sequence[Tensor], output_mask: Sequence[bool]) -> Gradients:
    return tuple(g if want else None for g, want in zip(found, output_mask))


@_named
def _embedding_dense_backward(
    grad_output: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    return OPS["embedding_dense_backward"].function(grad_output, indices, num_weights, padding_idx, scale_grad_by_freq)


@_named
def _grid_sampler_2d_backward(
    grad_output: Tensor,
    input: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> Gradients:
    def forward(x: Tensor, places: Tensor) -> Any:
        return facade().grid_sampler_2d(x, places, interpolation_mode, padding_mode, align_corners)

    return _of(forward, grad_output, input, grid, wanted=output_mask)


# --- pooling, padding, resampling

for _name in ("avg_pool2d", "avg_pool3d"):
    GRADIENTS[f"{_name}_backward"] = _by_input(getattr(F, _name))
for _n in (2, 3):

    def _adaptive(grad_output: Tensor, input: Tensor, n: int = _n) -> Tensor | None:
        pool = F.adaptive_avg_pool2d if n == 2 else F.adaptive_avg_pool3d
        return _of(lambda x: pool(x, grad_output.shape[-n:]), grad_output, input)[0]

    GRADIENTS[f"_adaptive_avg_pool{_n}d_backward"] = _adaptive
for _name in ("reflection", "replication"):
    for _n in (1, 2, 3):

        def _padded(x: Tensor, padding: Sequence[int], mode: str = _name) -> Tensor:
            return F.pad(x, padding, mode="reflect" if mode == "reflection" else "replicate")

        GRADIENTS[f"{_name}_pad{_n}d_backward"] = _by_input(_padded)
for _name in (
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d"),
    *("upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d"),
):

    def _resampled(
        grad_output: Tensor, output_size: Sequence[int], input_size: Sequence[int], *options: Any, name: str = _name
    ) -> Tensor | None:
        forward = getattr(facade().ops.aten, name)
        return _of(lambda x: forward(x, output_size, *options), grad_output, grad_output.new_zeros(input_size))[0]

    GRADIENTS[f"{_name}_backward"] = _resampled

# --- views


def _by_place(view: Callable[..., Tensor]) -> Callable[..., Tensor | None]:
    """The operator (grad_output, input_sizes, *options) of a view (self, *options)."""

    def backward(grad_output: Tensor, input_sizes: Sequence[int], *options: Any) -> Tensor | None:
        return _of(lambda x: view(x, *options), grad_output, grad_output.new_zeros(input_sizes))[0]

    return backward


GRADIENTS["select_backward"] = _by_place(torch.select)
GRADIENTS["slice_backward"] = _by_place(lambda x, *at: facade().ops.aten.slice(x, *at))
GRADIENTS["diagonal_backward"] = _by_place(torch.diagonal)
GRADIENTS["index_select_backward"] = _by_place(torch.index_select)
GRADIENTS["unfold_backward"] = _by_place(lambda x, dim, size, step: x.unfold(dim, size, step))
