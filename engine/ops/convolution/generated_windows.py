"""Convolutions of channels-last images and their gradients where no library serves (the extra `jit`).

Any kernel, stride and dilation, one group: engine/kernels/windows.py.  Each class here is the route of a geometry;
engine/kernels/README.md says how they are tried.  The gradient of the input is a convolution of
the result's gradient for each place in a step (`stride`), with the places of the kernel that meet it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import prod
from typing import Any

import numpy as np

from engine.backends.cpu import empty, packing
from engine.core.arrays import Array
from engine.core.geometry import ConvGeometry
from engine.kernels import llvm_winograd
from engine.kernels.windows import FORWARD, GRADIENT, forward, gradient
from engine.ops.convolution import generated_taps
from engine.ops.generated import launch
from engine.ops.generated.route import GeneratedRoute, address, lanes, linked, packed, registers, several, shared

__all__ = ["Forward", "Input", "Weight", "serves"]

_BLOCK = 96  # pixels of a job
_PART = 1 << 16  # weights of a panel that are read for a block before others are: what the second-level cache holds
_SUMMED = 512  # products that a gradient of the weight sums by themselves
_WORK = 32  # multiplications that take the time of one element of other kernels
_F32 = np.dtype("float32")

_entries: dict[Hashable, launch.Entry] = {}


def serves(outputs: int) -> bool:
    """Return whether `outputs` channels fill vectors, half of one at least."""
    return 2 * lanes(outputs) >= lanes()


class _Route(GeneratedRoute):
    """The kernel for a number of output channels."""

    margin = 2.0  # a busy machine says little of less: quiet, it was faster of all geometries, and the layout is kept

    def __init__(self, name: str, function: Any, rows: int, vectors: int, outputs: int, work: int) -> None:
        self.lanes, self.rows, self.vectors = lanes(outputs), rows, vectors
        self.panel = self.lanes * vectors
        entry = _entries.setdefault((function, self.lanes, rows, vectors), launch.Entry())
        super().__init__(name, entry, work // _WORK, self.built)
        self.function, self.multiplications = function, work
        self._code: Any = None

    def built(self) -> Any:
        """The machine code."""
        if self._code is None:
            self._code = linked(self.function, self.lanes, self.rows, self.vectors)
        return self._code


class _Products(_Route):
    """Convolutions with (outputs, channels, tall, wide) weights, to as many results in all as `made` has pixels."""

    def __init__(self, name: str, made: Sequence[int], channels: int, taps: int) -> None:
        self.made, self.channels, self.outputs = tuple(made), channels, made[1]
        rows, vectors = llvm_winograd.shape(lanes(self.outputs), registers(), self.outputs)
        super().__init__(name, forward, rows, vectors, self.outputs, prod(made) * channels * taps)
        self.zeros = np.zeros(max(channels, self.outputs), _F32)

    def arranged(self, w: Array, buffer: Array, of_input: bool = False) -> Array:
        """A weight (O, C, tall, wide) in panels, (outputs / panel, tall, wide, depth, panel), in `buffer`.

        of_input: for the gradient of the input."""
        generated_taps.spread(w, buffer.view(_F32), self.panel, of_input)
        return buffer

    def convolve(
        self,
        x: Array,
        weights: int,
        kernel: Sequence[int],
        out: Array,
        shift: Array | None,
        size: Sequence[int],
        windows: Sequence[Sequence[int]],
        phase: Sequence[int],
        phases: Sequence[int],
        steps: Sequence[int],
    ) -> None:
        """`size` (rows, columns) results of x, both channels-last, every phases-th from `phase` on in both dims of out.

        weights: the address of those of the first place of the kernel; steps: to the next panel, the next place down
        and across.  windows: (step, padding, dilation), each of both dims.
        """
        step, padding, dilation = windows
        pixels = x.shape[0] * prod(size)
        if not pixels:
            return
        block = -(-pixels // -(-pixels // _BLOCK))
        block = -(-block // self.rows) * self.rows
        args = packed(
            FORWARD,
            image=address(x),
            weights=weights,
            result=address(out),
            bias=address(shift),
            zeros=address(self.zeros),
            height=x.shape[2],
            width=x.shape[3],
            channels=self.channels,
            rows=size[0],
            columns=size[1],
            outputs=self.outputs,
            tall=kernel[0],
            wide=kernel[1],
            step_down=step[0],
            step_across=step[1],
            above=padding[0],
            left=padding[1],
            dilation_down=dilation[0],
            dilation_across=dilation[1],
            pixels=pixels,
            block=block,
            part=max(1, _PART // (kernel[1] * self.channels * self.panel)),
            made_rows=out.shape[2],
            made_columns=out.shape[3],
            made_down=phases[0],
            made_across=phases[1],
            made_top=phase[0],
            made_side=phase[1],
            next_panel=steps[0],
            next_down=steps[1],
            next_across=steps[2],
        )
        jobs = -(-pixels // block) * (self.outputs // self.panel)
        shared(self.built(), args, 0, jobs, several(self.multiplications))


class Forward(_Products):
    """The convolution: x (N, C, H, W) and w (O, C, kH, kW) to (N, O, P, Q)."""

    def __init__(self, x: Sequence[int], w: Sequence[int], out: Sequence[int], geometry: ConvGeometry) -> None:
        super().__init__("convolution", (x[0], w[0], *out), x[1], prod(w[2:]))
        self.windows = geometry[:3]

    def run(self, x: Array, w: Array, bias: Array | None, out: Array) -> Array:
        """out of x, both channels-last; the packed form of a converted w is cached with it."""
        fill: Callable[[Array], Array] = lambda buffer: self.arranged(w.view(np.ndarray), buffer)
        found = packing.packed_with(w, ("windows", self.panel), 4 * w.size, fill)
        weights = fill(empty((w.size,), _F32)) if found is None else found.buffer
        shift = self.zeros if bias is None else np.ascontiguousarray(bias)
        spot = self.channels * self.panel
        steps = w.shape[2] * w.shape[3] * spot, w.shape[3] * spot, spot
        size, given = out.shape[2:], address(weights)
        self.convolve(x, given, w.shape[2:], out, shift, size, self.windows, (0, 0), (1, 1), steps)
        return out


class Input(_Products):
    """The gradient of the input: g (N, O, P, Q) and w (O, C, kH, kW) to (N, C, H, W)."""

    def __init__(self, size: Sequence[int], w: Sequence[int], g: Sequence[int], geometry: ConvGeometry) -> None:
        super().__init__("the gradient of a convolution's input", size, w[0], 1)
        self.multiplications = prod(g[2:]) * g[0] * prod(w)
        self.work = self.multiplications // _WORK
        self.geometry = geometry

    @staticmethod
    def fits(geometry: ConvGeometry) -> bool:
        """Return whether windows reach every place of the kernel, or follow one another."""
        return all(s == 1 or d == 1 for s, d in zip(geometry.stride, geometry.dilation))

    def run(self, g: Array, w: Array, out: Array) -> Array:
        """out of g, both channels-last."""
        stride, padding, dilation, _ = self.geometry
        kernel, spot = w.shape[2:], self.channels * self.panel
        if any(k < s for k, s in zip(kernel, stride)):
            out[...] = 0  # some places meet no window
        weights = self.arranged(w, empty((w.size,), _F32), True)
        steps = kernel[0] * kernel[1] * spot, -stride[0] * kernel[1] * spot, -stride[1] * spot
        for top in range(stride[0]):
            for side in range(stride[1]):
                phase, size, count, last, above = (top, side), [], [], [], []
                for d in (0, 1):
                    quotient, first = divmod(phase[d] + padding[d], stride[d])
                    taps = range(first, kernel[d], stride[d])
                    count.append(len(taps))
                    last.append(first + (len(taps) - 1) * stride[d])
                    above.append((len(taps) - 1) * dilation[d] - quotient)
                    size.append(-(-(out.shape[2 + d] - phase[d]) // stride[d]) if taps else 0)
                if not all(size):
                    continue
                given = address(weights) + 4 * (last[0] * kernel[1] + last[1]) * spot
                windows = (1, 1), above, dilation
                self.convolve(g, given, count, out, self.zeros, size, windows, phase, stride, steps)
        return out


class Weight(_Route):
    """The gradient of the weight: x (N, C, H, W) and g (N, O, P, Q) to (O, C, kH, kW)."""

    def __init__(self, x: Sequence[int], w: Sequence[int], g: Sequence[int], geometry: ConvGeometry) -> None:
        outputs, channels = w[:2]
        rows, vectors = llvm_winograd.shape(lanes(outputs), registers(), outputs)
        rows = next((n for n in range(rows, 2, -1) if channels % n == 0), rows)
        name, function = "the gradient of a convolution's weight", gradient
        super().__init__(name, function, rows, vectors, outputs, prod(g[2:]) * g[0] * prod(w))
        self.shape = tuple(w)
        stride, padding, dilation, _ = geometry
        pieces = several(self.multiplications)
        jobs = prod(w[2:]) * (outputs // self.panel)
        chunk = -(-channels // -(-pieces * 4 // jobs)) if pieces > 1 else channels
        chunk = -(-chunk // rows) * rows
        self.pieces, self.jobs = pieces, jobs * -(-channels // chunk)
        self.places = dict(
            height=x[2],
            width=x[3],
            channels=channels,
            rows=g[2],
            columns=g[3],
            outputs=outputs,
            tall=w[2],
            wide=w[3],
            step_down=stride[0],
            step_across=stride[1],
            above=padding[0],
            left=padding[1],
            dilation_down=dilation[0],
            dilation_across=dilation[1],
            images=x[0],
            chunk=chunk,
            block=max(1, _SUMMED // g[3]),
        )

    def run(self, x: Array, g: Array, out: Array) -> Array:
        """out of x and g, which are channels-last."""
        outputs, channels, tall, wide = self.shape
        made = empty((tall, wide, channels, outputs), _F32)
        args = packed(GRADIENT, **self.places, image=address(x), slope=address(g), made=address(made))
        shared(self.built(), args, 0, self.jobs, self.pieces)
        generated_taps.join(made, out)
        return out
