"""LSTM, GRU and RNN."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.onnx.builders.registry import builds
from engine.onnx.errors import OnnxExporterError
from engine.onnx.writer import Value, Writer

# where torch's gates stand in ONNX: input, output, forget, cell of i f g o; update, reset, new of r z n
_ORDER = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}


def _ordered(w: Writer, kind: str, weight: Value) -> Value:
    """The rows of a weight in ONNX's order of gates, with a dim for the direction."""
    order = _ORDER[kind]
    if weight.array is None:
        each = weight.static[0] // len(order)
        parts = w.op("Split", weight, w.ints([each] * len(order)), axis=0, outputs=len(order)) if len(order) > 1 else []
        joined = w.op("Concat", *(parts[i] for i in order), axis=0) if len(order) > 1 else weight
        made: Value = w.op("Unsqueeze", joined, w.ints([0]))
        return made
    parts = np.split(np.asarray(weight.array), len(order), axis=0)
    return w.initializer(f"{weight.name}.{kind}", np.concatenate([parts[i] for i in order], 0)[None])


def _both(w: Writer, values: list[Value]) -> Value:
    if len(values) == 1:
        return values[0]
    if all(v.array is not None for v in values):
        return w.initializer(f"{values[0].name}.both", np.concatenate([v.array for v in values], 0))
    made: Value = w.op("Concat", *values, axis=0)
    return made


def _bias(w: Writer, kind: str, own: list[Value]) -> Value:
    if all(v.array is not None for v in own):
        ordered = [np.split(np.asarray(v.array), len(_ORDER[kind])) for v in own]
        row = np.concatenate([part[i] for part in ordered for i in _ORDER[kind]])
        return w.initializer(f"{own[0].name}.{kind}", row[None])
    made: Value = w.op("Concat", *(_ordered(w, kind, v) for v in own), axis=1)
    return made


def _layers(w: Writer, kind: str, args: tuple, activation: str | None) -> Any:
    if len(args) != 9 or not isinstance(args[-1], bool):
        raise OnnxExporterError("packed sequences have no ONNX form")
    x, states, weights, has_biases, layers, _dropout, _train, both, batch_first = args
    states = list(states) if isinstance(states, list | tuple) else [states]
    directions = 2 if both else 1
    each = (4 if has_biases else 2) + (len(weights) > layers * directions * (4 if has_biases else 2))
    if len(weights) != layers * directions * (4 if has_biases else 2):
        raise OnnxExporterError("projections (proj_size) have no ONNX form")
    value = w.op("Transpose", x, perm=[1, 0, 2]) if batch_first else x
    size = weights[1].static[1]
    last: list[list[Value]] = [[] for _ in states]
    for layer in range(layers):
        own = [
            weights[(layer * directions + d) * each : (layer * directions + d + 1) * each] for d in range(directions)
        ]
        begin, end = layer * directions, (layer + 1) * directions
        first = [s if layers == 1 else w.op("Slice", s, w.ints([begin]), w.ints([end]), w.ints([0])) for s in states]
        given: dict[str, Any] = dict(hidden_size=size, direction="bidirectional" if both else "forward")
        if kind == "GRU":
            given["linear_before_reset"] = 1
        if activation:
            given["activations"] = [activation] * directions
        made = w.op(
            kind,
            value,
            _both(w, [_ordered(w, kind, o[0]) for o in own]),
            _both(w, [_ordered(w, kind, o[1]) for o in own]),
            _both(w, [_bias(w, kind, list(o[2:4])) for o in own]) if has_biases else None,
            None,
            *first,
            outputs=len(states) + 1,
            **given,
        )
        merged = w.op("Transpose", made[0], perm=[0, 2, 1, 3])  # (T, directions, N, H) -> (T, N, directions * H)
        value = w.op("Reshape", merged, w.ints([0, 0, size * directions]))
        for i, state in enumerate(made[1:]):
            last[i].append(state)
    if batch_first:
        value = w.op("Transpose", value, perm=[1, 0, 2])
    return [value, *(s[0] if len(s) == 1 else w.op("Concat", *s, axis=0) for s in last)]


@builds("lstm")
def _lstm(w: Writer, args: Any) -> Any:
    return _layers(w, "LSTM", args, None)


@builds("gru")
def _gru(w: Writer, args: Any) -> Any:
    return _layers(w, "GRU", args, None)


@builds("rnn_tanh")
def _rnn_tanh(w: Writer, args: Any) -> Any:
    return _layers(w, "RNN", args, "Tanh")


@builds("rnn_relu")
def _rnn_relu(w: Writer, args: Any) -> Any:
    return _layers(w, "RNN", args, "Relu")


def _gates(w: Writer, values: Value, count: int) -> list[Value]:
    """The parts of (N, count * H), one for each gate."""
    parts: list[Value] = w.op("Split", values, w.ints([values.static[1] // count] * count), axis=1, outputs=count)
    return parts


@builds("lstm_gates")
def _lstm_gates(w: Writer, inputs: Value, share: Value, cell: Value) -> Any:
    i, f, g, o = _gates(w, w.op("Add", inputs, share, shape=inputs.shape), 4)
    i, f, g, o = w.op("Sigmoid", i), w.op("Sigmoid", f), w.op("Tanh", g), w.op("Sigmoid", o)
    made = w.op("Add", w.op("Mul", f, cell), w.op("Mul", i, g))
    t = w.op("Tanh", made)
    return [w.op("Mul", o, t), made, w.op("Concat", i, f, g, o, t, axis=1)]


@builds("gru_gates")
def _gru_gates(w: Writer, inputs: Value, share: Value, state: Value) -> Any:
    (a, b, c), (d, e, inner) = _gates(w, inputs, 3), _gates(w, share, 3)
    reset, update = w.op("Sigmoid", w.op("Add", a, d)), w.op("Sigmoid", w.op("Add", b, e))
    new = w.op("Tanh", w.op("Add", c, w.op("Mul", reset, inner)))
    apart = w.op("Sub", state, new)
    made = w.op("Add", new, w.op("Mul", update, apart))
    return [made, w.op("Concat", reset, update, new, inner, apart, axis=1)]
