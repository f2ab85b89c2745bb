"""The `options` of `linear_cross_entropy`: what of them shows in results, errors and warnings."""

from __future__ import annotations

import warnings
from typing import Any

from engine.autograd.function import Function
from engine.core import dtypes
from engine.core.grad_mode import is_grad_enabled
from engine.core.tensor_messages import outside
from engine.tensor import Tensor

__all__ = ["check_options", "of_one_row"]


def _check_sizes(options: Any, rows: int, features: int, classes: int) -> None:
    method, size = options.chunking_method, options.batch_chunk_size
    if size is None or method in (None, "auto"):
        return
    wanted = -(-rows // max(1, -(-classes // max(1, features))))  # pieces of logits as large as the input
    found = min((1 << max(0, wanted - 1).bit_length()) // int(method.partition(":")[2] or 1), rows)
    if size != found:
        raise ValueError(
            f"batch_chunk_size (={size}) and chunking_method ('{method}') give different chunk sizes "
            f"({size} vs {found}); pass only one."
        )


def check_options(
    options: Any, input: Tensor, weight: Tensor, bias: Any, target: Tensor, reduction: str, smoothing: float
) -> bool:
    """Return whether torch would compute the loss in pieces; else warn that the options are ignored.

    ValueError for `batch_chunk_size` and `chunking_method` that differ.
    """
    known = reduction in ("mean", "sum", "none") and smoothing == 0 and target.dtype is dtypes.int64
    if known and weight.dim() == 2:
        rows = input.shape[0] if input.dim() == 2 else 1
        _check_sizes(options, rows, weight.shape[1], weight.shape[0])
        return True
    warnings.warn(
        "linear_cross_entropy: ``options`` ignored; chunked path needs reduction in {'mean','sum','none'}, "
        "label_smoothing == 0, target.dtype == int64, out_features == (). Got "
        f"reduction={reduction!r}, label_smoothing={smoothing}, target.dtype={target.dtype}, "
        f"out_features={tuple(weight.shape[1:-1])}, tracing=False, "
        f"linear_bias.shape={None if bias is None else tuple(bias.shape)}.",
        stacklevel=outside(),
    )
    return False


class _OfOneRow(Function):
    @staticmethod
    def forward(ctx: Any, loss: Tensor) -> Tensor:
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        if is_grad_enabled():
            raise RuntimeError(
                "linear_cross_entropy: the loss of one row (input of one dim) with options and reduction='none' has no "
                "second derivative, as in torch: create_graph=True needs options=None or a batch"
            )
        return grad


def of_one_row(loss: Tensor) -> Tensor:
    """Return the loss with a backward that refuses `create_graph`: torch's pieces fail there."""
    return _OfOneRow.apply(loss)  # type: ignore[no-any-return]
