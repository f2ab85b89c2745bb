"""Layers that a model writes out in elementary ops, as the call there is for them.

The first BERT and GPT-2 in PyTorch, which much published code repeats, have their own layer norm, gelu and product with
a bias.  A layer norm of ten ops is one pass then, and gelu a part of the layer before it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.dispatch import OPS
from engine.plan.graph import Graph
from engine.plan.tracing import Call, Ref

__all__ = ["as_gelus", "as_layer_norms", "as_linears"]

_F32 = np.dtype("float32")


def as_linears(graph: Graph) -> None:
    """Products with a constant matrix and a bias (`addmm`, as GPT-2 has them): linear layers."""
    for call in graph.calls:
        if call.op.name != "addmm":
            continue
        given = call.bound()
        source, weight, bias = given["mat1"], graph.array(given["mat2"]), graph.array(given["input"])
        if not isinstance(source, Ref) or weight is None or bias is None or (given["beta"], given["alpha"]) != (1, 1):
            continue
        if bias.shape == weight.shape[1:] and {weight.dtype, bias.dtype, graph.kinds[source.index][1]} == {_F32}:
            call.function = OPS["linear"].function
            call.args = source, graph.constant(np.ascontiguousarray(weight.T)), graph.constant(bias)
            call.kwargs = {}


class _Written:
    """What a value is made of: the calls behind it, which are collected as they are looked at."""

    def __init__(self, graph: Graph, makers: dict[int, Call]) -> None:
        self.graph, self.makers = graph, makers
        self.calls: list[Call] = []

    def made(self, value: Any, *names: str) -> dict[str, Any] | None:
        """The arguments of the call that makes a value, which is one of these ops, not in place."""
        call = self.makers.get(value.index) if isinstance(value, Ref) else None
        if call is None or call.inplace or call.op.name not in names:
            return None
        self.calls.append(call)
        return call.bound()

    def scaled(self, value: Any) -> tuple[Any, float]:
        """(what a value is a multiple of, by what number)."""
        by = 1.0
        while isinstance(value, Ref) and value.index in self.makers:
            call = self.makers[value.index]
            number = call.bound()["other"] if call.op.name in ("mul", "true_div") and not call.inplace else None
            if not isinstance(number, int | float) or not number:
                break
            by = by * number if call.op.name == "mul" else by / number
            self.calls.append(call)
            value = call.bound()["input"]
        return value, by

    def alone(self, last: Call) -> bool:
        """Whether nobody else reads what lies between."""
        inside = {out for call in self.calls for out in call.outputs} - set(last.outputs)
        others = [call for call in self.graph.calls if call not in self.calls]
        return not inside & self.graph.outputs and not any(n in inside for call in others for n in call.refs)

    def become(self, last: Call, name: str, args: tuple, kwargs: dict[str, Any]) -> None:
        """The last of the calls is another op, the others are gone."""
        last.function, last.args, last.kwargs = OPS[name].function, args, kwargs
        self.graph.calls = [call for call in self.graph.calls if call is last or call not in self.calls]


def as_gelus(graph: Graph) -> None:
    """x / 2 * (1 + erf(x / sqrt 2)), and tanh(sqrt(2 / pi) * (x + 0.044715 x^3)) in that place: gelu."""
    makers = {call.outputs[0]: call for call in graph.calls if len(call.outputs) == 1}
    for last in list(graph.calls):
        if last.op.name not in ("mul", "true_div") or last.inplace:
            continue
        written = _Written(graph, makers)
        whole, factor = written.scaled(Ref(last.outputs[0]))
        product = written.made(whole, "mul")
        if product is None:
            continue
        for one, other in ((product["input"], product["other"]), (product["other"], product["input"])):
            found = _Written(graph, makers)
            found.calls += written.calls
            (x, half), (gate, by) = found.scaled(one), found.scaled(other)
            form = _gate(found, gate, x) if isinstance(x, Ref) and graph.single(x.index) else None
            if form is None or not math.isclose(factor * half * by, 0.5) or not found.alone(last):
                continue
            if not graph.written(x.index, found.calls):
                found.become(last, "gelu", (x,), {"approximate": form})
                break


def _gate(written: _Written, value: Any, x: Ref) -> str | None:
    """How gelu's second factor of x is computed, "none" or "tanh"; None if a value is none."""
    same = lambda value: isinstance(value, Ref) and value.index == x.index
    total = written.made(value, "add")
    if total is None or total["other"] != 1 or isinstance(total["other"], Ref) or total["alpha"] != 1:
        return None
    given = written.made(total["input"], "erf")
    if given is not None:
        inner, by = written.scaled(given["input"])
        return "none" if same(inner) and math.isclose(by, 0.5**0.5, rel_tol=1e-6) else None
    given = written.made(total["input"], "tanh")
    if given is None:
        return None
    inner, by = written.scaled(given["input"])
    total = written.made(inner, "add")
    if total is None or total["alpha"] != 1 or not math.isclose(by, (2 / math.pi) ** 0.5, rel_tol=1e-6):
        return None
    sides = total["input"], total["other"]
    cube, part = written.scaled(sides[1] if same(sides[0]) else sides[0])
    power = written.made(cube, "pow")
    right = power is not None and power["exponent"] == 3 and same(power["input"]) and any(map(same, sides))
    return "tanh" if right and math.isclose(part, 0.044715, rel_tol=1e-6) else None


def as_layer_norms(graph: Graph) -> None:
    """(x - mean) / sqrt(mean of squares of that + eps) * weight + bias over the last dim: a layer norm."""
    makers = {call.outputs[0]: call for call in graph.calls if len(call.outputs) == 1}
    for last in list(graph.calls):
        if last.op.name == "add" and not last.inplace:
            written = _Written(graph, makers)
            args = _layer_norm(written, Ref(last.outputs[0]))
            if args is not None and written.alone(last) and not graph.written(args[0].index, written.calls):
                written.become(last, "layer_norm_inference", args, {})


def _layer_norm(written: _Written, value: Ref) -> tuple | None:
    """The arguments of the layer norm that a value is; None if it is none."""
    graph, made = written.graph, written.made

    def row(value: Any) -> Any:
        """A constant of the last dim."""
        array = graph.array(value)
        return array if array is not None and array.ndim == 1 and array.dtype == _F32 else None

    def parted(given: dict[str, Any] | None) -> tuple[Any, Any]:
        """(such a constant, the other operand)."""
        sides = (None, None) if given is None else (given["input"], given["other"])
        return sides if row(sides[0]) is not None else sides[::-1]

    def mean(value: Any) -> int | None:
        """The value that one is the mean of, over the last dim, which stays."""
        given = made(value, "mean")
        if given is None or not given["keepdim"] or given["dtype"] is not None or not isinstance(given["input"], Ref):
            return None
        dims = given["dim"] if isinstance(given["dim"], tuple | list) else (given["dim"],)
        ndim = len(graph.shape(given["input"].index))
        return given["input"].index if len(dims) == 1 and dims[0] in (-1, ndim - 1) else None

    def less_mean(value: Any) -> int | None:
        """The value that one is, but for its mean."""
        given = made(value, "sub")
        if given is None or given["alpha"] != 1 or not isinstance(given["input"], Ref):
            return None
        source: int = given["input"].index
        return source if mean(given["other"]) == source else None

    total = made(value, "add")
    bias, scaled = parted(total)
    weight, normed = parted(made(scaled, "mul"))
    if total is None or total["alpha"] != 1 or row(bias) is None or row(weight) is None:
        return None
    quotient = made(normed, "true_div")
    root = made(quotient["other"], "sqrt") if quotient is not None else None
    inner = made(root["input"], "add") if root is not None else None
    if quotient is None or inner is None or not isinstance(inner["other"], float) or inner["alpha"] != 1:
        return None
    squares = mean(inner["input"])
    square = made(Ref(squares), "pow", "mul") if squares is not None else None
    if square is None:
        return None
    factor = square.get("other", square["input"])
    if square.get("exponent", 2) != 2 or getattr(factor, "index", None) != square["input"].index:
        return None
    source = less_mean(quotient["input"])
    if source is None or less_mean(square["input"]) != source or not graph.single(source):
        return None
    width = graph.shape(source)[-1:]
    if {row(weight).shape, row(bias).shape} != {width}:
        return None
    return Ref(source), width, weight, bias, inner["other"]
