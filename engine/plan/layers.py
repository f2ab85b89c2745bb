"""Layers of a plan that oneDNN computes, and the calls after them that become a part of them."""

from __future__ import annotations

from collections.abc import Callable

from engine.plan.tracing import Call, Ref

__all__ = ["LAYERS", "MEANS", "POOLS", "Fused", "activation", "pooling"]


def activation(call: Call) -> tuple | None:
    """An element-wise op as ("eltwise", algorithm, alpha, beta); None if it is none of oneDNN's."""
    from engine.backends.onednn import _abi

    name = call.op.name
    if name not in _ACTIVATIONS:
        return None
    given = call.bound()
    algorithm, alpha, beta = _ACTIVATIONS[name](given)
    if algorithm is None or any(isinstance(v, Ref) for k, v in given.items() if k != "input"):
        return None
    return "eltwise", getattr(_abi, algorithm), float(alpha), float(beta)


_ACTIVATIONS: dict[str, Callable[[dict], tuple]] = {
    "relu": lambda a: ("RELU", 0, 0),
    "leaky_relu": lambda a: ("RELU", a["negative_slope"], 0),
    "hardtanh": lambda a: ("CLIP", a["min_val"], a["max_val"]),
    "sigmoid": lambda a: ("LOGISTIC", 0, 0),
    "tanh": lambda a: ("TANH", 0, 0),
    "silu": lambda a: ("SWISH", 1, 0),
    "hardswish": lambda a: ("HARDSWISH", 1 / 6, 0.5),
    "gelu": lambda a: ("GELU_TANH" if a["approximate"] == "tanh" else "GELU_ERF", 0, 0),
    "elu": lambda a: ("ELU" if a["scale"] == a["input_scale"] == 1 else None, a["alpha"], 0),
}
LAYERS = frozenset(["convolution", "linear"])
MEANS = frozenset(["mean"])  # over all of *size, of (N, C, *size)
POOLS = frozenset(["max_pool2d_values", "max_pool3d_values", "avg_pool2d_values", "avg_pool3d_values"])


def pooling(call: Call) -> tuple | None:
    """The arguments of `arrays.pooling` after its arrays; None where oneDNN counts otherwise."""
    from engine.backends.onednn import _abi
    from engine.ops.onednn.conv import average

    given = call.bound()
    kernel, stride, padding = (tuple(given[n]) for n in ("kernel_size", "stride", "padding"))
    if call.op.name[:3] == "max":
        return _abi.POOLING_MAX, kernel, stride, padding, tuple(given["dilation"])
    how = (given[n] for n in ("ceil_mode", "count_include_pad", "divisor_override"))
    algorithm = average(kernel, padding, *how)
    return None if algorithm is None else (algorithm, kernel, stride, padding, (1,) * len(kernel))


class Fused:
    """A layer and what follows it: `post` a chain of ("eltwise", ...) and ("add", number of the other operand)."""

    def __init__(self, call: Call, position: int) -> None:
        self.call, self.position, self.post = call, position, list[tuple]()
        self.out = call.outputs[0]
        self.image = call.op.name != "linear"  # it reads (N, C, *size), channels-last; else rows
        self.makes_image = self.image and call.op.name not in MEANS

    @property
    def others(self) -> list[int]:
        return [p[1] for p in self.post if p[0] == "add"]

    @property
    def reads(self) -> list[int]:
        return [self.call.bound()["input"].index, *self.others]
