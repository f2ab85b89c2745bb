"""The kernels that oneDNN has on this processor, as the library itself reports them.

Its fast kernels are written for instruction sets; where it has none for a processor it offers a `ref` one, which the
binding declines, and numpy computes.  No op calls this module: it is for reports and tests.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.backends.cpu.relayout import empty_channels_last
from engine.backends.onednn import _abi, arrays, convolution, prepared, recurrent
from engine.backends.onednn.library import instructions
from engine.backends.onednn.primitives import Unsupported, _context, ready
from engine.core.geometry import ConvGeometry

__all__ = ["declined", "implementation", "implementations", "instructions", "maps", "summary"]


def implementation(call: Callable[[], Any]) -> str | None:
    """The library's name for what `call`, a function of this package with its arrays, runs on; None if it declines."""
    if not ready():
        return None
    kept, _context.primitives = _context.primitives, {}
    try:
        found = call()
        made = list(_context.primitives.values())
    except Unsupported:
        return None
    finally:
        _context.primitives = kept
    if found is None or found is False:
        return None
    made += [p for p in (getattr(found, "_primitive", None), getattr(found, "_run", None)) if p is not None]
    if not made:
        return "gemm"
    last = getattr(made[-1], "_run", made[-1])
    return str(last.plan.implementation)


@functools.cache
def implementations() -> dict[str, str | None]:
    """Of every kind of kernel that ops ask for: its implementation at an ordinary size, None where numpy computes."""
    return {name: implementation(call) for name, call in _calls().items()} if ready() else {}


def declined() -> tuple[str, ...]:
    """The kinds of kernels that oneDNN has no fast implementation of on this processor."""
    return tuple(name for name, found in implementations().items() if found is None)


def summary() -> str:
    """One line: the instruction set, and what numpy computes for the lack of a kernel."""
    lacking = ", ".join(declined()) or "nothing"
    return f"oneDNN's instructions: {instructions()}; left to numpy: {lacking}"


def _calls() -> dict[str, Callable[[], Any]]:
    """A call of every kind, on float32 arrays as a network has them."""
    x, y, pooled = maps(2, 16, 12, 12), maps(2, 16, 12, 12), maps(2, 16, 6, 6)
    weight, each = np.zeros((16, 16, 3, 3), np.float32), [np.ones(16, np.float32) for _ in range(6)]
    rows, made, wide = (np.ones((64, 256), np.float32) for _ in range(3))
    long = [np.ones(256, np.float32) for _ in range(4)]
    line = [np.ones(64, np.float32) for _ in range(2)]
    same, halving = ((1, 1), (1, 1), (1, 1)), ((2, 2), (2, 2), (0, 0), (1, 1))
    sequence, state, gates = (
        np.ones((5, 4, 16), np.float32),
        np.ones((4, 16), np.float32),
        np.ones((64, 16), np.float32),
    )
    last = [np.ones((4, 16), np.float32) for _ in range(2)]
    outputs = np.ones((5, 4, 16), np.float32)
    relu, add = ("eltwise", _abi.RELU, 0.0, 0.0), ("binary", _abi.BINARY_ADD)

    def pool_backward() -> Any:
        kept = arrays.pooling(x, pooled, _abi.POOLING_MAX, *halving, keep=True)
        return kept is not False and arrays.pooling_backward(pooled, y, _abi.POOLING_MAX, *halving, kept)

    return {
        "product": lambda: arrays.matmul(rows, wide.T, np.ones((64, 64), np.float32)),
        "convolution": lambda: convolution.Forward("asked", x, weight, each[0], (12, 12), True, ConvGeometry(*same)),
        "convolution_backward_input": lambda: convolution.backward_input(y, weight, x, ConvGeometry(*same)),
        "convolution_backward_weight": lambda: convolution.backward_weight(y, x, weight, ConvGeometry(*same), each[0]),
        "convolution+relu": lambda: prepared.convolution(x, weight, None, y, *same, 1, (relu,)),
        "convolution+sum+relu": lambda: prepared.convolution(x, weight, None, y, *same, 1, (("sum", 1.0), relu)),
        "convolution+add+relu": lambda: prepared.convolution(x, weight, None, y, *same, 1, (add, relu)),
        "batch_norm": lambda: arrays.batch_norm(x, y, *each[:4], 1e-5, False),
        "batch_norm_backward": lambda: arrays.batch_norm_backward(y, x, *each[:3], x.copy("K"), *each[3:5], 1e-5),
        "layer_norm": lambda: arrays.layer_norm(rows, made, *line, *long[:2], 1e-5),
        "layer_norm_backward": lambda: arrays.layer_norm_backward(rows, wide, *line, long[0], made, *long[1:3], 1e-5),
        "max_pool": lambda: arrays.pooling(x, pooled, _abi.POOLING_MAX, *halving),
        "max_pool_backward": pool_backward,
        "avg_pool": lambda: arrays.pooling(x, pooled, _abi.AVERAGE_WITH_PADDING, *halving),
        "avg_pool_backward": lambda: arrays.pooling_backward(pooled, y, _abi.AVERAGE_WITH_PADDING, *halving),
        "softmax": lambda: arrays.softmax(rows, made, 1, False),
        "softmax_backward": lambda: arrays.softmax_backward(rows, wide, made, 1, False),
        "log_softmax": lambda: arrays.softmax(rows, made, 1, True),
        "log_softmax_backward": lambda: arrays.softmax_backward(rows, wide, made, 1, True),
        "activation": lambda: arrays.eltwise(rows, made, _abi.GELU_ERF),
        "activation_backward": lambda: arrays.eltwise_backward(rows, wide, made, _abi.GELU_ERF),
        "sum_or_product": lambda: arrays.binary(rows, wide, made, _abi.BINARY_ADD),
        "concatenation": lambda: arrays.concat([rows, wide], np.ones((128, 256), np.float32), 0),
        "lstm": lambda: recurrent.lstm(
            sequence, state, state, gates, gates, np.ones(64, np.float32), outputs, *last, False
        ),
        "gru": lambda: recurrent.gru(
            sequence,
            state,
            gates[:48],
            gates[:48],
            np.ones(48, np.float32),
            np.ones(48, np.float32),
            outputs,
            last[0],
            False,
        ),
    }


def maps(*shape: int) -> np.ndarray:
    """Ones (N, C, *size) in channels-last memory."""
    made = empty_channels_last(shape, np.float32).view(np.ndarray)
    made[...] = 1
    return made
