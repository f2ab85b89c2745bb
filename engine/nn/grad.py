"""Gradients of convolutions as functions (torch.nn.grad)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.ops.convolution import convolution_backward_input, convolution_backward_weight
from engine.tensor import Tensor


def _geometry(n: int, stride: Any, padding: Any, dilation: Any, groups: int) -> tuple:
    each = [tuple(v) if isinstance(v, Iterable) else (v,) * n for v in (stride, padding, dilation)]
    return *each, groups


def _input(n: int, size: Any, weight: Tensor, grad: Tensor, *rest: Any) -> Tensor:
    return convolution_backward_input(grad, weight, tuple(size), *_geometry(n, *rest))


def _weight(n: int, input: Tensor, size: Any, grad: Tensor, *rest: Any) -> Tensor:
    return convolution_backward_weight(grad, input, tuple(size), *_geometry(n, *rest))


def conv1d_input(
    input_size: Any,
    weight: Tensor,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv1d with respect to its input.  grad_output (N, O, L') -> input_size (N, C, L)."""
    return _input(1, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv1d_weight(
    input: Tensor,
    weight_size: Any,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv1d with respect to its weight.  grad_output (N, O, L') -> weight_size."""
    return _weight(1, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv2d_input(
    input_size: Any,
    weight: Tensor,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv2d with respect to its input.  grad_output (N, O, H', W') -> input_size (N, C, H, W)."""
    return _input(2, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv2d_weight(
    input: Tensor,
    weight_size: Any,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv2d with respect to its weight.  grad_output (N, O, H', W') -> weight_size."""
    return _weight(2, input, weight_size, grad_output, stride, padding, dilation, groups)


def conv3d_input(
    input_size: Any,
    weight: Tensor,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv3d with respect to its input.  grad_output (N, O, *) -> input_size (N, C, *)."""
    return _input(3, input_size, weight, grad_output, stride, padding, dilation, groups)


def conv3d_weight(
    input: Tensor,
    weight_size: Any,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of conv3d with respect to its weight.  grad_output (N, O, *) -> weight_size."""
    return _weight(3, input, weight_size, grad_output, stride, padding, dilation, groups)
