"""Cells of recurrent layers in the source form: what one step does to the gates of N sequences, and its gradient.

The formulas are those of `torch.nn.LSTM` and `torch.nn.GRU`
(https://docs.pytorch.org/docs/2.13/nn.html#recurrent-layers).  Rows are sequences, places along a row the H units; the
gates of a row lie one after the other.  What goes into a gate is the sum of two shares: the input's, made for all steps
at once, and the state's, made for each step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from engine.kernels.form import Array, Kernel, Value, call

CELLS: dict[str, Callable[[str], Kernel]] = {}


def _cell(write: Callable[[Kernel, Callable[[str, bool], Array], Value], None]) -> Callable[[str], Kernel]:
    """`write` as a function of the type of all arrays, listed by its name."""

    def made(type: str) -> Kernel:
        k = Kernel(write.__name__, "rows")

        def array(name: str, written: bool = False) -> Array:
            return k.array(name, type, written)

        write(k, array, k.index)
        return k

    CELLS[write.__name__] = made
    return made


def _sigmoid(x: Value) -> Value:
    return 1 / (call("exp", -x) + 1)


@_cell
def lstm_cell(k, array, row):  # type: ignore[no-untyped-def]
    """inputs and share (N, 4H): i, f, g, o; cell (N, H), read and written -> gates (N, 4H) after their functions.

    saved (N, H): the cell once more, for the gradient; hidden and output (N, H): both the new state.
    """
    inputs, share, cell = array("inputs"), array("share"), array("cell", True)
    gates, saved, hidden, output = (array(name, True) for name in ("gates", "saved", "hidden", "output"))
    size = k.scalar("size", "index")
    base, start = row * size, row * size * 4
    with k.each(size) as j:
        places = [start + size * n + j for n in range(4)]
        i, f, g, o = (k.load(inputs, p) + k.load(share, p) for p in places)
        i, f, g, o = _sigmoid(i), _sigmoid(f), call("tanh", g), _sigmoid(o)
        c = k.load(cell, base + j) * f + i * g
        h = call("tanh", c) * o
        for p, value in zip(places, (i, f, g, o)):
            k.store(gates, p, value)
        for target, value in ((cell, c), (saved, c), (hidden, h), (output, h)):
            k.store(target, base + j, value)


@_cell
def lstm_cell_backward(k, array, row):  # type: ignore[no-untyped-def]
    """gates (N, 4H) after their functions, cells (N, H) after and before the step, the gradients of the output, of the
    hidden state and of the cell (N, H) -> the gradient of the gates (N, 4H); that of the cell becomes the one before.
    """
    gates, cells, before = array("gates"), array("cells"), array("before")
    of_output, of_hidden, of_cell = array("of_output"), array("of_hidden"), array("of_cell", True)
    out, size = array("out", True), k.scalar("size", "index")
    base, start = row * size, row * size * 4
    with k.each(size) as j:
        places = [start + size * n + j for n in range(4)]
        i, f, g, o = (k.load(gates, p) for p in places)
        d = k.load(of_output, base + j) + k.load(of_hidden, base + j)
        t = call("tanh", k.load(cells, base + j))
        dc = k.load(of_cell, base + j) + (1 - t * t) * o * d
        found = (
            (i - i * i) * g * dc,
            (f - f * f) * k.load(before, base + j) * dc,
            (1 - g * g) * i * dc,
            (o - o * o) * t * d,
        )
        for p, value in zip(places, found):
            k.store(out, p, value)
        k.store(of_cell, base + j, dc * f)


@_cell
def gru_cell(k, array, row):  # type: ignore[no-untyped-def]
    """inputs and share (N, 3H): r, z, n, the share without its bias (3H); state (N, H), read and written -> gates
    (N, 3H) after their functions; inner (N, H), the state's share of n; output (N, H), the state.
    """
    inputs, share, bias, state = array("inputs"), array("share"), array("bias"), array("state", True)
    gates, inner, output = (array(name, True) for name in ("gates", "inner", "output"))
    size = k.scalar("size", "index")
    base, start = row * size, row * size * 3
    with k.each(size) as j:
        offsets = [size * n + j for n in range(3)]
        own = [k.load(share, start + p) + k.load(bias, p) for p in offsets]
        r, z, n = (k.load(inputs, start + p) for p in offsets)
        r, z = _sigmoid(r + own[0]), _sigmoid(z + own[1])
        n = call("tanh", n + r * own[2])
        h = (k.load(state, base + j) - n) * z + n
        for p, value in zip(offsets, (r, z, n)):
            k.store(gates, start + p, value)
        for target, value in ((inner, own[2]), (state, h), (output, h)):
            k.store(target, base + j, value)


@_cell
def gru_cell_backward(k, array, row):  # type: ignore[no-untyped-def]
    """gates (N, 3H) after their functions, inner and the state before (N, H), the gradients of output and state (N, H)
    -> the gradients of the input's and the state's shares (N, 3H), and what goes to the state before past the gates.
    """
    gates, inner, before = array("gates"), array("inner"), array("before")
    of_output, of_state = array("of_output"), array("of_state")
    of_input, of_share, past = (array(name, True) for name in ("of_input", "of_share", "past"))
    size = k.scalar("size", "index")
    base, start = row * size, row * size * 3
    with k.each(size) as j:
        places = [start + size * n + j for n in range(3)]
        r, z, n = (k.load(gates, p) for p in places)
        d = k.load(of_output, base + j) + k.load(of_state, base + j)
        keep = d * z
        dn = (1 - n * n) * (d - keep)
        dz = (z - z * z) * (k.load(before, base + j) - n) * d
        dr = (r - r * r) * k.load(inner, base + j) * dn
        for p, mine, theirs in zip(places, (dr, dz, dn), (dr, dz, dn * r)):
            k.store(of_input, p, mine)
            k.store(of_share, p, theirs)
        k.store(past, base + j, keep)


# --- all steps of a layer
#
# A row is a group of sequences, which one thread takes through all steps side by side: a pass over the weight, which is
# larger than the fastest caches, serves up to _TOGETHER of them.

_ROWS = 4  # of a weight, that one pass over a sum adds up
_TOGETHER = (4, 3, 2, 1)  # sequences that a pass over the weight serves
_WALK = ("size", "sequences", "group", "steps", "start", "step")


class _Walk:
    """The sequences and steps of a row of a kernel of layers, and the numbers that say so, which are parameters."""

    def __init__(self, k: Kernel) -> None:
        self.k = k
        self.size, self.count, self.group, self.steps, self.start, self.pace = (k.scalar(n, "index") for n in _WALK)
        self.first = k.index * self.group
        self.mine = k.op("min", self.group, self.count - self.first)

    def step(self, t: Value) -> Value:
        """The first sequence's row among those of all steps, of the t-th step of this walk."""
        return (self.start + t * self.pace) * self.count + self.first

    def sequences(self) -> contextlib.AbstractContextManager[Value]:
        """`with walk.sequences() as s`: for each sequence of the group."""
        return self.k.loop(0, self.mine)

    def _together(self) -> Iterator[tuple[int, Value]]:
        """(how many, the first) of sequences that are taken together, the body written for each number of them."""
        done = self.k.constant(0, "index")
        for together in _TOGETHER:
            times = (self.mine - done) // together
            with self.k.loop(0, times) as turn:
                yield together, done + turn * together
            done = done + times * together

    def add_products(
        self, weight: Array, depth: Value, width: Value, factors: Array, first: Value, out: Array, at: Value
    ) -> None:
        """out[at + s width + j] += the sum over i of factors[first + s depth + i] * weight[i, j], of each sequence s.

        weight (depth, width), depth a multiple of _ROWS.
        """
        k = self.k
        for together, s in self._together():
            own = [first + (s + n) * depth for n in range(together)]
            targets = [at + (s + n) * width for n in range(together)]
            with k.loop(0, depth // _ROWS) as block:
                rows = [block * _ROWS + n for n in range(_ROWS)]
                scales = [[k.load(factors, start + row) for row in rows] for start in own]
                lines = [row * width for row in rows]
                with k.each(width) as j:
                    totals = [k.load(out, target + j) for target in targets]
                    for n, line in enumerate(lines):
                        value = k.load(weight, line + j)
                        totals = [total + mine[n] * value for total, mine in zip(totals, scales)]
                    for target, total in zip(targets, totals):
                        k.store(out, target + j, total)


def lstm_layer(type: str) -> Kernel:
    """inputs (T, N, 4H), weight (H, 4H), hidden and cell (N, H), read and written -> output (T, N, H), gates (T, N, 4H)
    after their functions, cells (T, N, H).

    saved: 1, or 0 where gates (then N, 4H) and cells (N, H) are not asked for; step: 1, or -1 from the end on.
    """
    k = Kernel("lstm_layer", "rows")
    inputs, weight = k.array("inputs", type), k.array("weight", type)
    hidden, cell = k.array("hidden", type, True), k.array("cell", type, True)
    output, gates, cells = (k.array(name, type, True) for name in ("output", "gates", "cells"))
    walk, saved = _Walk(k), k.scalar("saved", "index")
    size = walk.size
    wide = size * 4
    with k.loop(0, walk.steps) as t:
        rows = walk.step(t)
        held = (rows - walk.first) * saved + walk.first
        with walk.sequences() as s, k.each(wide) as j:
            k.store(gates, (held + s) * wide + j, k.load(inputs, (rows + s) * wide + j))
        walk.add_products(weight, size, wide, hidden, walk.first * size, gates, held * wide)
        with walk.sequences() as s:
            start, state = (held + s) * wide, (walk.first + s) * size
            base, own = (rows + s) * size, (held + s) * size
            with k.each(size) as j:
                places = [start + size * n + j for n in range(4)]
                i, f, g, o = (k.load(gates, p) for p in places)
                i, f, g, o = _sigmoid(i), _sigmoid(f), call("tanh", g), _sigmoid(o)
                c = k.load(cell, state + j) * f + i * g
                h = call("tanh", c) * o
                for p, value in zip(places, (i, f, g, o)):
                    k.store(gates, p, value)
                for target, place, value in ((cell, state, c), (cells, own, c), (hidden, state, h), (output, base, h)):
                    k.store(target, place + j, value)
    return k


def lstm_layer_backward(type: str) -> Kernel:
    """gates (T, N, 4H) after their functions, cells (T, N, H) after and before each step, weight (4H, H), the gradient
    of the output (T, N, H), those of the last state and cell (N, H), which become those of the first -> the gradient
    of the gates (T, N, 4H).  step: that of the layer.
    """
    k = Kernel("lstm_layer_backward", "rows")
    gates, cells, before, weight = (k.array(name, type) for name in ("gates", "cells", "before", "weight"))
    of_output = k.array("of_output", type)
    of_hidden, of_cell, out = (k.array(name, type, True) for name in ("of_hidden", "of_cell", "out"))
    walk = _Walk(k)
    size = walk.size
    wide = size * 4
    with k.loop(0, walk.steps) as t:
        rows = walk.step(walk.steps - 1 - t)
        with walk.sequences() as s:
            start, base, state = (rows + s) * wide, (rows + s) * size, (walk.first + s) * size
            with k.each(size) as j:
                places = [start + size * n + j for n in range(4)]
                i, f, g, o = (k.load(gates, p) for p in places)
                d = k.load(of_output, base + j) + k.load(of_hidden, state + j)
                through = call("tanh", k.load(cells, base + j))
                dc = k.load(of_cell, state + j) + (1 - through * through) * o * d
                found = (
                    (i - i * i) * g * dc,
                    (f - f * f) * k.load(before, base + j) * dc,
                    (1 - g * g) * i * dc,
                    (o - o * o) * through * d,
                )
                for p, value in zip(places, found):
                    k.store(out, p, value)
                k.store(of_cell, state + j, dc * f)
                k.store(of_hidden, state + j, k.constant(0.0, type))
        walk.add_products(weight, wide, size, out, rows * wide, of_hidden, walk.first * size)
    return k


# --- one step, whose gradient needs neither the shares nor the new states

SAVED = 5  # arrays (H) of a row that the gradient of a step reads


def lstm_gates(type: str) -> Kernel:
    """inputs and share (N, 4H): i, f, g, o; cell (N, H) -> hidden, new cell (N, H), saved (N, 5H): the gates after
    their functions and the tanh of the new cell."""
    k = Kernel("lstm_gates", "rows")
    inputs, share, cell = (k.array(name, type) for name in ("inputs", "share", "cell"))
    hidden, made, saved = (k.array(name, type, True) for name in ("hidden", "made", "saved"))
    size = k.scalar("size", "index")
    base, start, own = k.index * size, k.index * size * 4, k.index * size * SAVED
    with k.each(size) as j:
        i, f, g, o = (k.load(inputs, start + size * n + j) + k.load(share, start + size * n + j) for n in range(4))
        i, f, g, o = _sigmoid(i), _sigmoid(f), call("tanh", g), _sigmoid(o)
        c = f * k.load(cell, base + j) + i * g
        t = call("tanh", c)
        k.store(hidden, base + j, o * t)
        k.store(made, base + j, c)
        for n, value in enumerate((i, f, g, o, t)):
            k.store(saved, own + size * n + j, value)
    return k


def lstm_gates_backward(type: str) -> Kernel:
    """The gradients of hidden and new cell (N, H), saved (N, 5H), cell (N, H) -> those of the gates (N, 4H) and
    of cell (N, H)."""
    k = Kernel("lstm_gates_backward", "rows")
    of_hidden, of_made, saved, cell = (k.array(name, type) for name in ("of_hidden", "of_made", "saved", "cell"))
    of_gates, of_cell, size = k.array("of_gates", type, True), k.array("of_cell", type, True), k.scalar("size", "index")
    base, start, own = k.index * size, k.index * size * 4, k.index * size * SAVED
    with k.each(size) as j:
        i, f, g, o, t = (k.load(saved, own + size * n + j) for n in range(SAVED))
        d = k.load(of_hidden, base + j)
        dc = k.load(of_made, base + j) + (1 - t * t) * o * d
        found = (
            (1 - i) * i * g * dc,
            (1 - f) * f * k.load(cell, base + j) * dc,
            (1 - g * g) * i * dc,
            (1 - o) * o * t * d,
        )
        for n, value in enumerate(found):
            k.store(of_gates, start + size * n + j, value)
        k.store(of_cell, base + j, dc * f)
    return k


def gru_gates(type: str) -> Kernel:
    """inputs and share (N, 3H): r, z, n; state (N, H) -> the new state (N, H), saved (N, 5H): the gates after their
    functions, the share of n, and state - n."""
    k = Kernel("gru_gates", "rows")
    inputs, share, state = (k.array(name, type) for name in ("inputs", "share", "state"))
    made, saved, size = k.array("made", type, True), k.array("saved", type, True), k.scalar("size", "index")
    base, start, own = k.index * size, k.index * size * 3, k.index * size * SAVED
    with k.each(size) as j:
        places = [start + size * n + j for n in range(3)]
        inner = k.load(share, places[2])
        r, z = (_sigmoid(k.load(inputs, p) + k.load(share, p)) for p in places[:2])
        n = call("tanh", k.load(inputs, places[2]) + r * inner)
        apart = k.load(state, base + j) - n
        k.store(made, base + j, n + z * apart)
        for at, value in enumerate((r, z, n, inner, apart)):
            k.store(saved, own + size * at + j, value)
    return k


def gru_gates_backward(type: str) -> Kernel:
    """The gradient of the new state (N, H), saved (N, 5H) -> those of inputs and share (N, 3H), of state (N, H)."""
    k = Kernel("gru_gates_backward", "rows")
    of_made, saved = k.array("of_made", type), k.array("saved", type)
    of_inputs, of_share, of_state = (k.array(name, type, True) for name in ("of_inputs", "of_share", "of_state"))
    size = k.scalar("size", "index")
    base, start, own = k.index * size, k.index * size * 3, k.index * size * SAVED
    with k.each(size) as j:
        r, z, n, inner, apart = (k.load(saved, own + size * at + j) for at in range(SAVED))
        d = k.load(of_made, base + j)
        keep = d * z
        dn = (1 - n * n) * (d - keep)
        dz = (1 - z) * z * apart * d
        dr = (1 - r) * r * inner * dn
        for at, (mine, theirs) in enumerate(((dr, dr), (dz, dz), (dn, dn * r))):
            k.store(of_inputs, start + size * at + j, mine)
            k.store(of_share, start + size * at + j, theirs)
        k.store(of_state, base + j, keep)
    return k
