"""Weights of convolutions by places of the kernel (taps), as kernels of channels-last images read them, and back.

The names of parameters:
  taps: how many places a kernel has, `lanes` at least; whole: which have the places of a kernel beside each other.
  step_depth, step_outputs: elements from a channel that is summed over, or that is made, to the next.
"""

from __future__ import annotations

from engine.kernels.jobs import Jobs, least
from engine.kernels.llvm_jobs import in_llvm

__all__ = ["JOINED", "SPREAD", "joined", "spread"]

SPREAD = ("whole", "parts", "depth", "outputs", "taps", "panel", "step_depth", "step_outputs")
JOINED = ("parts", "whole", "depth", "outputs", "taps")


@in_llvm
def spread(lanes: int) -> Jobs:
    """Of the channels begin..end that are summed over: whole -> parts (outputs / panel, taps, depth, panel).

    Squares of `lanes` outputs and as many places, of which the last overlap the ones before.
    """
    k = Jobs("spread_taps", lanes, SPREAD, 2)
    (whole, parts), a = k.arrays, k.numbers
    panel, taps, step = a["panel"], a["taps"], a["step_outputs"]
    row = a["depth"] * panel
    with k.loop(k.begin, k.end) as i, k.loop(0, a["outputs"], lanes) as j:
        given = k.view(whole, i * a["step_depth"] + j * step)
        own = k.view(parts, j // panel * taps * row + i * panel + j % panel)
        with k.loop(0, taps, lanes) as t:
            first = least(t, taps - lanes)
            square = k.transposed([k.vector(given, step * n + first) for n in range(lanes)])
            for n, values in enumerate(square):
                k.store(own, (first + n) * row, values)
    return k


@in_llvm
def joined(lanes: int) -> Jobs:
    """Of the channels begin..end of the depth: parts (taps, depth, outputs) -> whole (outputs, depth, taps)."""
    k = Jobs("joined_taps", lanes, JOINED, 2)
    (parts, whole), a = k.arrays, k.numbers
    taps, row, step = a["taps"], a["depth"] * a["outputs"], a["depth"] * a["taps"]
    with k.loop(k.begin, k.end) as i, k.loop(0, a["outputs"], lanes) as j:
        given, own = k.view(parts, i * a["outputs"] + j), k.view(whole, i * taps + j * step)
        with k.loop(0, taps, lanes) as t:
            first = least(t, taps - lanes)
            square = k.transposed([k.vector(given, (first + n) * row) for n in range(lanes)])
            for n, values in enumerate(square):
                k.store(own, step * n + first, values)
    return k
