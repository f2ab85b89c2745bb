"""Layers of a plan that oneDNN computes, and the calls after them that become a part of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.dispatch import Op
from engine.fx.node import Node
from engine.ops import activation as activations
from engine.ops import convolution as conv
from engine.ops import pooling as pools
from engine.ops import products, reduction
from engine.ops.activation import elu
from engine.programs.graph import bound, op

__all__ = ["LAYERS", "MEANS", "POOLS", "Fused", "activation", "pooling"]


def activation(call: Node) -> tuple[Any, ...] | None:
    """An element-wise op as ("eltwise", algorithm, alpha, beta); None if it is none of oneDNN's."""
    from engine.backends.onednn import _abi

    found = _ACTIVATIONS.get(op(call))
    if found is None:
        return None
    given = bound(call)
    algorithm, alpha, beta = found(given)
    if algorithm is None or any(isinstance(v, Node) for k, v in given.items() if k != "input"):
        return None
    return "eltwise", getattr(_abi, algorithm), float(alpha), float(beta)


_ACTIVATIONS: dict[Op, Callable[[dict[str, Any]], tuple[Any, ...]]] = {
    activations.relu.op: lambda a: ("RELU", 0, 0),
    activations.leaky_relu.op: lambda a: ("RELU", a["negative_slope"], 0),
    activations.hardtanh.op: lambda a: ("CLIP", a["min_val"], a["max_val"]),
    activations.sigmoid.op: lambda a: ("LOGISTIC", 0, 0),
    activations.tanh.op: lambda a: ("TANH", 0, 0),
    activations.silu.op: lambda a: ("SWISH", 1, 0),
    activations.hardswish.op: lambda a: ("HARDSWISH", 1 / 6, 0.5),
    activations.gelu.op: lambda a: ("GELU_TANH" if a["approximate"] == "tanh" else "GELU_ERF", 0, 0),
    elu.elu.op: lambda a: ("ELU" if a["scale"] == a["input_scale"] == 1 else None, a["alpha"], 0),
}
LAYERS = frozenset([conv.convolution.op, products.linear.op])
MEANS = frozenset([reduction.mean.op])  # over all of *size, of (N, C, *size)
MAX_POOLS = frozenset([pools.max_pool2d_values.op, pools.max_pool3d_values.op])
POOLS = MAX_POOLS | {pools.avg_pool2d_values.op, pools.avg_pool3d_values.op}


def pooling(call: Node) -> tuple[Any, ...] | None:
    """The arguments of `arrays.pooling` after its arrays; None where oneDNN counts otherwise."""
    from engine.backends.onednn import _abi
    from engine.ops.pooling.onednn import average

    given = bound(call)
    kernel, stride, padding = (tuple(given[n]) for n in ("kernel_size", "stride", "padding"))
    if op(call) in MAX_POOLS:
        return _abi.POOLING_MAX, kernel, stride, padding, tuple(given["dilation"])
    how = (given[n] for n in ("ceil_mode", "count_include_pad", "divisor_override"))
    algorithm = average(kernel, padding, *how)  # type: ignore[no-untyped-call]  # of the ops
    return None if algorithm is None else (algorithm, kernel, stride, padding, (1,) * len(kernel))


class Fused:
    """A layer and what follows it: `post` a chain of ("eltwise", ...) and ("add", the other operand)."""

    def __init__(self, call: Node, position: int) -> None:
        self.call, self.position, self.post = call, position, list[tuple[Any, ...]]()
        self.out = call
        self.image = op(call).name != "linear"  # it reads (N, C, *size), channels-last; else rows
        self.makes_image = self.image and op(call) not in MEANS

    @property
    def others(self) -> list[Node]:
        return [p[1] for p in self.post if p[0] == "add"]

    @property
    def reads(self) -> list[Node]:
        return [bound(self.call)["input"], *self.others]
