"""The multiplications and additions of products, convolutions and attention, from the result and the arguments.

Option `flops` of an op: the operator of aten that it counts as, and one of these.  `utils.flop_counter` and, for
`with_flops=True`, the profiler read it.
"""

from __future__ import annotations

from math import prod
from typing import Any

__all__ = [
    "added_product",
    "attention",
    "attention_backward",
    "convolution",
    "convolution_by_input",
    "convolution_by_weight",
    "product",
]


def product(result: Any, x: Any, other: Any, *_: Any, **__: Any) -> int:
    return int(2 * prod(result.shape) * x.shape[-1])


def added_product(result: Any, input: Any, mat1: Any, *_: Any, **__: Any) -> int:
    return int(2 * prod(result.shape) * mat1.shape[-1])


def convolution(result: Any, input: Any, weight: Any, *rest: Any, **options: Any) -> int:
    transposed = rest[4] if len(rest) > 4 else options.get("transposed", False)
    return int(2 * prod((input if transposed else result).shape) * prod(weight.shape[1:]))


def convolution_by_input(result: Any, grad_output: Any, weight: Any, *_: Any, **__: Any) -> int:
    return int(2 * prod(grad_output.shape) * prod(weight.shape[1:]))


def convolution_by_weight(result: Any, grad_output: Any, *_: Any, **__: Any) -> int:
    return int(2 * prod(grad_output.shape) * prod(result.shape[1:]))


def attention(result: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(2 * prod(query.shape[:-1]) * key.shape[-2] * (query.shape[-1] + value.shape[-1]))


def attention_backward(result: Any, grad_output: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(2 * prod(query.shape[:-1]) * key.shape[-2] * (2 * query.shape[-1] + 2 * value.shape[-1]))
