"""Recognise layers that a model writes out in elementary ops, and replace them by one call.

The first BERT and GPT-2 in PyTorch, which much published code repeats, have their own layer norm, gelu and product with
a bias.  A layer norm of ten ops is one pass then, and gelu a part of the layer before it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.dispatch import OPS
from engine.fx.graph import Graph
from engine.fx.node import Node
from engine.programs.graph import array, bound, constant, kind, name, reset, shape, single
from engine.programs.graph import written as written_between

if TYPE_CHECKING:
    pass

__all__ = ["as_gelus", "as_layer_norms", "as_linears"]

_F32 = np.dtype("float32")


def as_linears(graph: Graph) -> None:
    """Products with a constant matrix and a bias (`addmm`, as GPT-2 has them): linear layers."""
    for node in graph.nodes:
        if name(node) != "addmm":
            continue
        given = bound(node)
        source, weight, bias = given["mat1"], array(given["mat2"]), array(given["input"])
        if not isinstance(source, Node) or weight is None or bias is None or (given["beta"], given["alpha"]) != (1, 1):
            continue
        if bias.shape == weight.shape[1:] and {weight.dtype, bias.dtype, kind(source)[1]} == {_F32}:
            before = given["mat2"]
            transposed = constant(graph, np.ascontiguousarray(weight.T), before)
            reset(node, OPS["linear"].function, (source, transposed, constant(graph, bias, before)))


class _Written:
    """The calls behind a value, collected while its expression is matched."""

    def __init__(self) -> None:
        self.calls: list[Node] = []

    def made(self, value: Any, *names: str) -> dict[str, Any] | None:
        """The arguments of the call that makes a value, which is one of these ops, not in place."""
        if name(value) not in names or value.meta["inplace"]:
            return None
        self.calls.append(value)
        return bound(value)

    def scaled(self, value: Any) -> tuple[Any, float]:
        """(what a value is a multiple of, by what number)."""
        by = 1.0
        while name(value) in ("mul", "true_div") and not value.meta["inplace"]:
            given = bound(value)
            number = given["other"]
            if not isinstance(number, int | float) or not number:
                break
            by = by * number if name(value) == "mul" else by / number
            self.calls.append(value)
            value = given["input"]
        return value, by

    def alone(self, last: Node) -> bool:
        """Return whether what is between has no other reader."""
        inside = set(self.calls)
        return all(user in inside for node in inside - {last} for user in node.users)

    def become(self, last: Node, function: str, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        """The last of the calls is another op, the others are gone."""
        reset(last, OPS[function].function, args, kwargs)
        left = set(self.calls) - {last}
        while gone := [node for node in left if not node.users]:
            for node in gone:
                last.graph.erase_node(node)
            left.difference_update(gone)


def as_gelus(graph: Graph) -> None:
    """x / 2 * (1 + erf(x / sqrt 2)), and tanh(sqrt(2 / pi) * (x + 0.044715 x^3)) in that place: gelu."""
    for last in graph.nodes:
        if name(last) not in ("mul", "true_div") or last.meta["inplace"]:
            continue
        written = _Written()
        whole, factor = written.scaled(last)
        product = written.made(whole, "mul")
        if product is None:
            continue
        for one, other in ((product["input"], product["other"]), (product["other"], product["input"])):
            found = _Written()
            found.calls += written.calls
            (x, half), (gate, by) = found.scaled(one), found.scaled(other)
            form = _gate(found, gate, x) if isinstance(x, Node) and single(x) else None
            if form is None or not math.isclose(factor * half * by, 0.5) or not found.alone(last):
                continue
            if not written_between(graph, x, found.calls):
                found.become(last, "gelu", (x,), {"approximate": form})
                break


def _gate(written: _Written, value: object, x: Node) -> str | None:
    """Return the approximation of gelu's factor of x, "none" or "tanh"; None if a value is no such factor."""

    def same(value: object) -> bool:
        return value is x

    total = written.made(value, "add")
    if total is None or total["other"] != 1 or isinstance(total["other"], Node) or total["alpha"] != 1:
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
    for last in graph.nodes:
        if name(last) == "add" and not last.meta["inplace"]:
            written = _Written()
            args = _layer_norm(written, last)
            if args is not None and written.alone(last) and not written_between(graph, args[0], written.calls):
                written.become(last, "layer_norm_inference", args, {})


def _layer_norm(written: _Written, value: Node) -> tuple[Node, tuple[int, ...], Node, Node, float] | None:
    """The arguments of the layer norm that a value is; None if it is none."""
    made = written.made

    def row(value: object) -> Any:
        """A constant of the last dim."""
        found = array(value)
        return found if found is not None and found.ndim == 1 and found.dtype == _F32 else None

    def parted(given: dict[str, Any] | None) -> tuple[Any, Any]:
        """(such a constant, the other operand)."""
        sides = (None, None) if given is None else (given["input"], given["other"])
        return sides if row(sides[0]) is not None else sides[::-1]

    def mean(value: object) -> Node | None:
        """The value that one is the mean of, over the last dim, which stays."""
        given = made(value, "mean")
        if given is None or not given["keepdim"] or given["dtype"] is not None or not isinstance(given["input"], Node):
            return None
        dims = given["dim"] if isinstance(given["dim"], tuple | list) else (given["dim"],)
        return given["input"] if len(dims) == 1 and dims[0] in (-1, len(shape(given["input"])) - 1) else None

    def less_mean(value: object) -> Node | None:
        """The value that one is, but for its mean."""
        given = made(value, "sub")
        if given is None or given["alpha"] != 1 or not isinstance(given["input"], Node):
            return None
        source: Node = given["input"]
        return source if mean(given["other"]) is source else None

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
    square = made(squares, "pow", "mul") if squares is not None else None
    if square is None:
        return None
    factor = square.get("other", square["input"])
    if square.get("exponent", 2) != 2 or factor is not square["input"]:
        return None
    source = less_mean(quotient["input"])
    if source is None or less_mean(square["input"]) is not source or not single(source):
        return None
    width = shape(source)[-1:]
    if {row(weight).shape, row(bias).shape} != {width}:
        return None
    return source, width, weight, bias, inner["other"]
