"""One direction of one LSTM or GRU layer, without gradients: all steps in one call.

Sequences are (T, N, features), states (N, H), weights (gates H, features) with torch's order of gates.  Each function
writes into arrays the caller made and returns False, nothing written, where oneDNN has no fast kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends.onednn import _abi
from engine.backends.onednn.packing import Packing
from engine.backends.onednn.primitives import (
    Desc,
    Primitive,
    PrimitiveDesc,
    address,
    any_desc,
    attributes,
    desc_of,
    null,
    primitive,
)
from engine.core.layouts import ChannelsLast

_OFTEN = 8  # rows that pay for packing weights
_LARGE = 1 << 16  # of as many elements


def lstm(
    x: np.ndarray,
    h0: np.ndarray,
    c0: np.ndarray,
    weight_ih: np.ndarray,
    weight_hh: np.ndarray,
    bias: np.ndarray,
    out: np.ndarray,
    h: np.ndarray,
    c: np.ndarray,
    reverse: bool,
) -> bool:
    """out (T, N, H), h and c (N, H): the outputs and last states.  bias (4H): the sum of both."""
    return _run("lstm", 4, x, (h0, c0), weight_ih, weight_hh, bias, out, (h, c), reverse)


def gru(
    x: np.ndarray,
    h0: np.ndarray,
    weight_ih: np.ndarray,
    weight_hh: np.ndarray,
    bias_ih: np.ndarray,
    bias_hh: np.ndarray,
    out: np.ndarray,
    h: np.ndarray,
    reverse: bool,
) -> bool:
    """out (T, N, H), h (N, H): the outputs and the last state, of torch's GRU (the reset gate after the product)."""
    both, new = _update_first(bias_ih + bias_hh), 2 * h.shape[1]
    bias = np.concatenate((both[:new], bias_ih[new:], bias_hh[new:]))
    return _run("lbr_gru", 3, x, (h0,), weight_ih, weight_hh, bias, out, (h,), reverse)


def _update_first(rows: np.ndarray) -> np.ndarray:
    """The rows of the gates reset, update, new in oneDNN's order: update, reset, new."""
    size = len(rows) // 3
    return np.concatenate((rows[size : 2 * size], rows[:size], rows[2 * size :]))


def _run(
    kind: str,
    gates: int,
    x: np.ndarray,
    states: Any,
    weight_ih: np.ndarray,
    weight_hh: np.ndarray,
    bias: np.ndarray,
    out: np.ndarray,
    last: Any,
    reverse: bool,
) -> bool:
    if not all(a.flags.c_contiguous for a in (x, *states, weight_ih, weight_hh, out, *last)):
        return False
    (length, count, features), size = x.shape, out.shape[2]
    kept = type(weight_ih) is type(weight_hh) is ChannelsLast
    if length * count < _OFTEN and gates * size * (features + size) > _LARGE and not kept:
        return False
    key = (kind, x.shape, size, reverse)
    found = primitive(key, lambda: _Layer(key, gates))
    if found is None:
        return False
    found(x, states, weight_ih, weight_hh, np.ascontiguousarray(bias), out, last)
    return True


class _Layer:
    """The primitive of one geometry, and those that bring the weights into the order it wants."""

    def __init__(self, key: Any, gates: int) -> None:
        self.used, self._key = True, key
        kind, (length, count, features), size, reverse = key
        cells = kind == "lstm"
        source, target = _dense(length, count, features), _dense(length, count, size)
        states = [_dense(1, 1, count, size)] * (2 if cells else 1)
        widths, bias = (features, size), _dense(1, 1, 4, size)
        chosen = [any_desc((1, 1, n, gates, size)) for n in widths]
        if cells:
            chosen += [null()] * 2  # no peepholes, no projection
        plan = PrimitiveDesc(
            f"{kind}_forward",
            _abi.INFERENCE,
            _abi.BACKWARDS if reverse else _abi.FORWARDS,
            source,
            *states,
            *chosen,
            bias,
            target,
            *states,
            0,
            attributes(),
            work=count * size * size / 2,
            reference=True,
        )
        packed = [plan.desc(_abi.ARGUMENT_MD, n) for n in (_abi.WEIGHTS, _abi.WEIGHTS_1)]
        self._packings = []
        for i, (n, to) in enumerate(zip(widths, packed)):
            whole = gates * size * n
            plain = desc_of((1, 1, n, gates, size), (whole, whole, 1, size * n, n))  # a row a gate and output
            arranged = None if cells else _update_first
            self._packings.append(Packing(plain, to, arranged=arranged, role=f"weights {i}"))
        descs = {_abi.SRC: source, _abi.SRC_1: states[0], _abi.SRC_2: states[-1]}
        descs |= {_abi.WEIGHTS: packed[0], _abi.WEIGHTS_1: packed[1], _abi.BIAS: bias}
        descs |= {_abi.DST: target, _abi.DST_1: states[0], _abi.DST_2: states[-1]}
        if not cells:
            del descs[_abi.SRC_2], descs[_abi.DST_2]
        self._run = Primitive(plan, descs)

    def __call__(
        self,
        x: np.ndarray,
        states: Any,
        weight_ih: np.ndarray,
        weight_hh: np.ndarray,
        bias: np.ndarray,
        out: np.ndarray,
        last: Any,
    ) -> None:
        of_input, of_state = self._packings
        weights = of_input.place(weight_ih, self._key), of_state.place(weight_hh, self._key)
        self._run(*map(address, (x, *states)), *weights, *map(address, (bias, out, *last)))


def _dense(*shape: int) -> Desc:
    strides, step = [0] * len(shape), 1
    for d in range(len(shape) - 1, -1, -1):
        strides[d] = step
        step *= shape[d]
    return desc_of(shape, strides)
