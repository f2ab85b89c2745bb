"""The geometry of windows that slide over images: of convolutions and of pooling.  Tuples have a number per dim."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

__all__ = ["ConvGeometry", "PoolGeometry", "Sizes"]

Sizes = tuple[int, ...]


class ConvGeometry(NamedTuple):
    """How the kernel of a convolution slides, and the groups that its channels are in."""

    stride: Sizes
    padding: Sizes
    dilation: Sizes
    groups: int = 1

    @classmethod
    def of(cls, stride: Iterable[int], padding: Iterable[int], dilation: Iterable[int], groups: int) -> ConvGeometry:
        """Return the geometry of an op's arguments."""
        return cls(tuple(stride), tuple(padding), tuple(dilation), groups)

    def output_size(self, size: Sequence[int], kernel: Sequence[int]) -> Sizes:
        """floor((size + 2 padding - dilation (kernel - 1) - 1) / stride) + 1 for each dim."""
        stride, padding, dilation, _ = self
        return tuple(
            [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(size, kernel, stride, padding, dilation)]
        )

    def transposed_size(self, size: Sequence[int], kernel: Sequence[int], output_padding: Sequence[int]) -> Sizes:
        """(size - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1 for each dim."""
        stride, padding, dilation, _ = self
        return tuple(
            [
                (n - 1) * s - 2 * p + d * (k - 1) + o + 1
                for n, k, s, p, d, o in zip(size, kernel, stride, padding, dilation, output_padding)
            ]
        )

    def pointwise(self, kernel: Sequence[int]) -> bool:
        """Return whether each result is of one element of each channel."""
        return prod(kernel) == 1 and not any(self.padding)


class PoolGeometry(NamedTuple):
    """The windows of pooling, and how they slide."""

    kernel: Sizes
    stride: Sizes
    padding: Sizes
    dilation: Sizes

    @classmethod
    def of(
        cls,
        kernel: Iterable[int],
        stride: Iterable[int],
        padding: Iterable[int],
        dilation: Iterable[int] | None = None,
    ) -> PoolGeometry:
        """Return the geometry of an op's arguments; dilation: 1 without it."""
        kernel = tuple(kernel)
        return cls(kernel, tuple(stride), tuple(padding), (1,) * len(kernel) if dilation is None else tuple(dilation))

    def output_size(self, size: Sequence[int], ceil_mode: bool = False) -> Sizes:
        """The windows along each dim; with ceil_mode also a last one that starts inside the input or left padding."""
        out = []
        for n, k, s, p, d in zip(size, *self):
            span = n + 2 * p - d * (k - 1) - 1
            if ceil_mode:
                count = 1 - -span // s
                out.append(count - 1 if (count - 1) * s >= n + p else count)
            else:
                out.append(span // s + 1)
        return tuple(out)
