"""ChannelShuffle (arXiv:1707.01083)."""

from __future__ import annotations

from engine.nn import functional as F
from engine.nn.modules.module import Module
from engine.tensor import Tensor

__all__ = ["ChannelShuffle"]


class ChannelShuffle(Module):
    """Channels (g, n) transposed to (n, g).  (N, C, *) -> same."""

    __constants__ = ["groups"]

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
