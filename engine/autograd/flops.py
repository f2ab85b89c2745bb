"""The multiplications and additions of products, convolutions and attention, from the result and the arguments.

Read by `utils.flop_counter` and, for `with_flops=True`, by the profiler.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

__all__ = ["FORMULAS"]


def _product(result: Any, x: Any, other: Any, *_: Any, **__: Any) -> int:
    return int(2 * prod(result.shape) * x.shape[-1])


def _added_product(result: Any, input: Any, mat1: Any, *_: Any, **__: Any) -> int:
    return int(2 * prod(result.shape) * mat1.shape[-1])


def _convolution(result: Any, input: Any, weight: Any, *rest: Any, **options: Any) -> int:
    transposed = rest[4] if len(rest) > 4 else options.get("transposed", False)
    return int(2 * prod((input if transposed else result).shape) * prod(weight.shape[1:]))


def _convolution_by_input(result: Any, grad_output: Any, weight: Any, *_: Any, **__: Any) -> int:
    return int(2 * prod(grad_output.shape) * prod(weight.shape[1:]))


def _convolution_by_weight(result: Any, grad_output: Any, *_: Any, **__: Any) -> int:
    return int(2 * prod(grad_output.shape) * prod(result.shape[1:]))


def _attention(result: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(2 * prod(query.shape[:-1]) * key.shape[-2] * (query.shape[-1] + value.shape[-1]))


def _attention_backward(result: Any, grad_output: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(2 * prod(query.shape[:-1]) * key.shape[-2] * (2 * query.shape[-1] + 2 * value.shape[-1]))


# op of the engine -> (operator of aten, flops of a call from the result and the arguments)
FORMULAS: dict[str, tuple[str, Callable[..., int]]] = {
    "mm": ("mm", _product),
    "bmm": ("bmm", _product),
    "linear": ("addmm", _product),
    "addmm": ("addmm", _added_product),
    "baddbmm": ("baddbmm", _added_product),
    "convolution": ("convolution", _convolution),
    "convolution_backward_input": ("convolution_backward", _convolution_by_input),
    "convolution_backward_weight": ("convolution_backward", _convolution_by_weight),
    "attention": ("_scaled_dot_product_flash_attention", _attention),
    "attention_backward": ("_scaled_dot_product_flash_attention_backward", _attention_backward),
}
