"""The multiplications and additions of products, convolutions and attention, from the result and the arguments.

Option `flops` of an op: the operator of aten that it counts as, or a function of the arguments that returns it, and
one of these.  `utils.flop_counter` and, for `with_flops=True`, the profiler read it.
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
    "gru_inference",
    "lstm_backward",
    "lstm_inference",
    "lstm_layer",
    "of_batches",
    "product",
    "recurrent_backward",
    "recurrent_layer",
]


def product(result: Any, x: Any, other: Any, *_: Any, **__: Any) -> int:
    return int(2 * prod(result.shape) * x.shape[-1])


def of_batches(input: Any, other: Any, *_: Any, **__: Any) -> str:
    """Return the operator that torch takes for a product of batches: one matrix for all is a product of all rows."""
    return "mm" if other.ndim == 2 else "bmm"


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


def _rows(array: Any, *weights: Any) -> int:
    """Of the product of an array's rows with these weights; None for one that is not there."""
    return int(2 * prod(array.shape[:-1]) * sum(prod(weight.shape) for weight in weights if weight is not None))


def lstm_layer(
    result: Any, gates: Any, h0: Any, c0: Any, weight: Any, projection: Any = None, *_: Any, **__: Any
) -> int:
    return _rows(gates, weight, projection)


def lstm_backward(
    result: Any,
    grad_output: Any,
    grad_h: Any,
    grad_c: Any,
    gates: Any,
    h0: Any,
    c0: Any,
    weight: Any,
    output: Any,
    activations: Any,
    cells: Any,
    projection: Any = None,
    *_: Any,
    **__: Any,
) -> int:
    return 2 * _rows(gates, weight, projection)


def lstm_inference(result: Any, rows: Any, h0: Any, c0: Any, weight_ih: Any, weight_hh: Any, *_: Any, **__: Any) -> int:
    return _rows(rows, weight_ih, weight_hh)


def recurrent_layer(result: Any, gates: Any, h0: Any, weight: Any, *_: Any, **__: Any) -> int:
    return _rows(gates, weight)


def recurrent_backward(
    result: Any, grad_output: Any, grad_h: Any, gates: Any, h0: Any, weight: Any, *_: Any, **__: Any
) -> int:
    return 2 * _rows(gates, weight)


def gru_inference(result: Any, rows: Any, h0: Any, weight_ih: Any, weight_hh: Any, *_: Any, **__: Any) -> int:
    return _rows(rows, weight_ih, weight_hh)
