"""Padding layers; `padding` is an int or (left, right, top, bottom, front, back) up to the dimension."""

from __future__ import annotations

from typing import Any

from engine.nn import functional as F
from engine.nn.modules.module import Module
from engine.nn.modules.utils import _ntuple
from engine.tensor import Tensor

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]


class _PadNd(Module):
    __constants__ = ["padding"]
    _spatial: int
    _mode: str

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _ntuple(2 * self._spatial)(padding)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _CircularPadNd(_PadNd):
    _mode = "circular"

    def _check_input_dim(self, input: Tensor) -> None:
        n = self._spatial
        if input.dim() not in (n + 1, n + 2):
            raise ValueError(f"expected {n + 1}D or {n + 2}D input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        return F.pad(input, self.padding, "circular")


class CircularPad1d(_CircularPadNd):
    """The other end continued.  (N, C, L) or (C, L) -> (N, C, left + L + right)."""

    _spatial = 1


class CircularPad2d(_CircularPadNd):
    """The other end continued.  (N, C, H, W) or (C, H, W) -> padded."""

    _spatial = 2


class CircularPad3d(_CircularPadNd):
    """The other end continued.  (N, C, D, H, W) or (C, D, H, W) -> padded."""

    _spatial = 3


class _ConstantPadNd(_PadNd):
    __constants__ = ["padding", "value"]

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """`value` on both sides.  (N, C, L) or (C, L) -> padded."""

    _spatial = 1


class ConstantPad2d(_ConstantPadNd):
    """`value` all round.  (N, C, H, W) or (C, H, W) -> padded."""

    _spatial = 2


class ConstantPad3d(_ConstantPadNd):
    """`value` all round.  (N, C, D, H, W) or (C, D, H, W) -> padded."""

    _spatial = 3


class _ReflectionPadNd(_PadNd):
    _mode = "reflect"


class ReflectionPad1d(_ReflectionPadNd):
    """Mirrored at the edge element.  (N, C, L) or (C, L) -> padded."""

    _spatial = 1


class ReflectionPad2d(_ReflectionPadNd):
    """Mirrored at the edge elements.  (N, C, H, W) or (C, H, W) -> padded."""

    _spatial = 2


class ReflectionPad3d(_ReflectionPadNd):
    """Mirrored at the edge elements.  (N, C, D, H, W) or (C, D, H, W) -> padded."""

    _spatial = 3


class _ReplicationPadNd(_PadNd):
    _mode = "replicate"


class ReplicationPad1d(_ReplicationPadNd):
    """The edge element repeated.  (N, C, L) or (C, L) -> padded."""

    _spatial = 1


class ReplicationPad2d(_ReplicationPadNd):
    """The edge elements repeated.  (N, C, H, W) or (C, H, W) -> padded."""

    _spatial = 2


class ReplicationPad3d(_ReplicationPadNd):
    """The edge elements repeated.  (N, C, D, H, W) or (C, D, H, W) -> padded."""

    _spatial = 3


class ZeroPad1d(ConstantPad1d):
    """Zeros on both sides.  (N, C, L) or (C, L) -> padded."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad2d(ConstantPad2d):
    """Zeros all round.  (N, C, H, W) or (C, H, W) -> padded."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad3d(ConstantPad3d):
    """Zeros all round.  (N, C, D, H, W) or (C, D, H, W) -> padded."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"
