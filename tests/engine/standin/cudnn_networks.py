"""Recurrent networks of the stand-in's libcudnn: descriptors, where weights lie, forward and both backwards.

Values are those of the engine's own networks on the CPU in float64, which are compared with torch's elsewhere; what
they are given comes from the descriptors and addresses alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.engine.standin.cudnn_graphs import array_at, done, room

BAD = 2000  # CUDNN_STATUS_BAD_PARAM
GAP = 64  # bytes before the weights of a cell and before its biases: nobody may rely on there being none
WORKSPACE = 768
RESERVE = 4096
GATES = {0: 1, 1: 1, 2: 4, 3: 3}
NAMES = {0: "rnn_relu", 1: "rnn_tanh", 2: "lstm", 3: "gru"}
TYPES = {0: "float32", 1: "float64", 2: "float16", 9: "bfloat16"}
MATH = {0: (0, 3), 1: (0, 3), 2: (0, 1), 9: (0, 1)}
FORWARD, DATA = 0x5A, 0xA5  # what the reserve holds after a training forward, after the gradients of the data


def dtype_of(code: int) -> np.dtype:
    import ml_dtypes

    return np.dtype(ml_dtypes.bfloat16 if code == 9 else TYPES[code])


@dataclass
class Network:
    """What cudnnSetRNNDescriptor_v8 was told."""

    mode: int
    bias: int
    directions: int
    code: int
    inputs: int
    hidden: int
    out: int
    layers: int
    places: list[list[tuple[int, tuple[int, int]]]] = field(default_factory=list)
    biases: list[list[int]] = field(default_factory=list)
    size: int = 0

    @property
    def projected(self) -> bool:
        return self.out != self.hidden

    def lay(self) -> None:
        """Decide where everything lies, in bytes."""
        gates, item, at = GATES[self.mode], dtype_of(self.code).itemsize, 0
        for cell in range(self.layers * self.directions):
            at += GAP
            width = self.inputs if cell < self.directions else self.out * self.directions
            shapes = [(self.hidden, width)] * gates + [(self.hidden, self.out)] * gates
            if self.projected:
                shapes += [(0, 0)] * (8 - 2 * gates) + [(self.out, self.hidden)]
            places = []
            for shape in shapes:
                places.append((at, shape))
                at += shape[0] * shape[1] * item
            self.places.append(places)
        for _ in range(self.layers * self.directions):
            at += GAP
            own = []
            for _ in range(2 * gates if self.bias else 0):
                own.append(at)
                at += self.hidden * item
            self.biases.append(own)
        self.size = at

    def parameters(self, raw: np.ndarray) -> list[tuple[list[np.ndarray], tuple[int, ...]]]:
        """Torch's parameters, each as the pieces of memory it is made of and its shape."""
        gates, dtype = GATES[self.mode], dtype_of(self.code)

        def piece(at: int, count: int) -> np.ndarray:
            return raw[at : at + count * dtype.itemsize].view(dtype)

        found = []
        for cell, places in enumerate(self.places):
            for part in (places[:gates], places[gates : 2 * gates]):
                pieces = [piece(at, a * b) for at, (a, b) in part]
                found.append((pieces, (gates * part[0][1][0], part[0][1][1])))
            for half in (0, gates) if self.bias else ():
                found.append(
                    ([piece(at, self.hidden) for at in self.biases[cell][half : half + gates]], (gates * self.hidden,))
                )
            if self.projected:
                at, shape = places[8]
                found.append(([piece(at, shape[0] * shape[1])], shape))
        return found


def set_network(
    algo: int,
    cell: int,
    bias: int,
    direction: int,
    input: int,
    code: int,
    precision: int,
    math: int,
    inputs: int,
    hidden: int,
    out: int,
    layers: int,
    flags: int,
) -> Network | None:
    """The network; None where cuDNN refuses one."""
    good = algo == 0 and cell in NAMES and bias in (0, 2) and direction in (0, 1) and input == 0 and flags == 0
    good = good and code in TYPES and precision == (1 if code == 1 else 0) and math in MATH[code]
    good = good and min(inputs, hidden, out, layers) > 0 and (out == hidden or (cell == 2 and out < hidden))
    if not good:
        return None
    made = Network(cell, bias, direction + 1, code, inputs, hidden, out, layers)
    made.lay()
    return made


def _tensors(network: Network, arrays: list[np.ndarray], grad: bool) -> list[Any]:
    from engine.tensor import wrap

    found = [wrap(np.array(a, np.float64)) for a in arrays]
    return [t.requires_grad_() for t in found] if grad else found


def compute(
    network: Network, lengths: list[int], x: Any, h: Any, c: Any, raw: np.ndarray, grads: Any = None
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """(output, h, c), and with `grads` of those the gradients of x, h, c and the parameters."""
    import engine
    from engine.tensor import wrap

    sizes = np.array([sum(n > t for n in lengths) for t in range(max(lengths))], np.int64)
    weights = [np.concatenate([p.reshape(-1) for p in pieces]).reshape(s) for pieces, s in network.parameters(raw)]
    states = [h] if c is None else [h, c]
    with engine.set_grad_enabled(grads is not None), engine.autocast("cuda", enabled=False):
        leaves = _tensors(network, [x, *states, *weights], grads is not None)
        data, hx, params = leaves[0], leaves[1 : 1 + len(states)], leaves[1 + len(states) :]
        call = getattr(engine, NAMES[network.mode])
        results = call(
            data,
            wrap(sizes),
            tuple(hx) if c is not None else hx[0],
            params,
            bool(network.bias),
            network.layers,
            0.0,
            False,
            network.directions == 2,
        )
        found = []
        if grads is not None:
            given = [wrap(np.array(g, np.float64)) for g in grads if g is not None]
            found = [g._array for g in engine.autograd.grad(results, leaves, given)]
    return [r.detach()._array for r in results], found


class Call:
    """The arguments that the three functions share, checked."""

    def __init__(
        self,
        network: Network,
        of_x: Any,
        of_y: Any,
        of_h: Any,
        of_c: Any,
        weights: tuple[int, int],
        work: tuple[int, int],
        reserve: tuple[int, int | None],
        train: bool,
    ) -> None:
        n = self.network = network
        self.lengths = of_x["lengths"]
        assert of_x["lengths"] == of_y["lengths"] and of_x["code"] == of_y["code"] == n.code
        assert of_x["width"] == n.inputs and of_y["width"] == n.out * n.directions, "vector sizes"
        cells, count = n.layers * n.directions, len(self.lengths)
        assert of_h["dims"] == [cells, count, n.out] and of_h["dtype"] == dtype_of(n.code)
        if n.mode == 2:
            assert of_c["dims"] == [cells, count, n.hidden] and of_c["dtype"] == dtype_of(n.code)
        for how in (of_h, of_c):
            assert how["strides"] == [how["dims"][1] * how["dims"][2], how["dims"][2], 1], "states are packed"
        self.h, self.c = of_h, of_c
        self.rows = sum(self.lengths)
        assert weights[0] == n.size and work[0] >= WORKSPACE
        self.space = room(weights[1], n.size)
        self.at = weights[1] - self.space.ptr
        self.work = work[1]
        self.work_memory = room(work[1], WORKSPACE)
        self.reserve_memory: Any = None
        if train:
            assert reserve[0] >= RESERVE and reserve[1], "no reserve space"
            self.reserve_memory = room(reserve[1], RESERVE)
            self.reserve_at = reserve[1] - self.reserve_memory.ptr

    def raw(self) -> np.ndarray:
        return self.space.chunk.raw[self.at : self.at + self.network.size]

    def data(self, address: int, width: int, output: bool = False) -> Any:
        return array_at(address, (self.rows, width), (width, 1), dtype_of(self.network.code), output)

    def state(self, address: int | None, how: Any, output: bool = False) -> Any:
        if address is None:
            return None, None
        return array_at(address, how["dims"], how["strides"], how["dtype"], output)

    def mark(self, stage: int, token: int) -> None:
        """What a call leaves in the reserve: which forward it is of, and how far it has come."""
        held = self.reserve_memory.chunk.raw[self.reserve_at : self.reserve_at + RESERVE]
        held[:] = stage
        held[:8].view(np.int64)[0] = token

    def marked(self, stage: int) -> int:
        """The token of a reserve at a stage; -1 for any other."""
        held = self.reserve_memory.chunk.raw[self.reserve_at : self.reserve_at + RESERVE]
        token = int(held[:8].view(np.int64)[0])
        return token if (held[8:] == stage).all() and token in inputs else -1

    def run(self, work: Callable[[], None], reads: list[Any], writes: list[Any]) -> None:
        kept = [self.reserve_memory] if self.reserve_memory is not None else []
        present = [m for m in reads if m is not None]
        done(
            work,
            [*present, self.space],
            [m for m in [*writes, *kept, self.work_memory] if m is not None],
            self.work,
            WORKSPACE,
        )


def forward(call: Call, mode: int, x: int, y: int, h: Any, hy: Any, c: Any, cy: Any) -> int:
    """cudnnRNNForward."""
    n = call.network
    (xs, m1), (ys, w1) = call.data(x, n.inputs), call.data(y, n.out * n.directions, True)
    (hs, m2), (hys, w2) = call.state(h, call.h), call.state(hy, call.h, True)
    (cs, m3), (cys, w3) = call.state(c, call.c), call.state(cy, call.c, True)
    assert (n.mode == 2) == (cs is not None), "the state of the cells is an LSTM's"
    token = next(tokens)

    def work() -> None:
        found, _ = compute(n, call.lengths, xs, hs, cs, call.raw())
        for target, value in zip((ys, hys, cys), found):
            if target is not None:
                target[...] = value
        if mode:
            inputs[token] = xs.copy()
            call.mark(FORWARD, token)

    call.run(work, [m1, m2, m3], [w1, w2, w3])
    return 0


def backward_data(call: Call, y: int, dy: int, dx: int, h: Any, dhy: Any, dhx: Any, c: Any, dcy: Any, dcx: Any) -> int:
    """cudnnRNNBackwardData_v8.  The input it needs was kept in the reserve by the forward; here it is looked up."""
    n = call.network
    width = n.out * n.directions
    (_, m1), (dys, m2), (dxs, w1) = call.data(y, width), call.data(dy, width), call.data(dx, n.inputs, True)
    (hs, m3), (dhys, m4), (dhxs, w2) = call.state(h, call.h), call.state(dhy, call.h), call.state(dhx, call.h, True)
    (cs, m5), (dcys, m6), (dcxs, w3) = call.state(c, call.c), call.state(dcy, call.c), call.state(dcx, call.c, True)

    def work() -> None:
        token = call.marked(FORWARD)
        assert token >= 0, "the reserve is not that of a training forward"
        xs = inputs[token]
        grads = [dys, dhys] if cs is None else [dys, dhys, dcys]
        _, found = compute(n, call.lengths, xs, hs, cs, call.raw(), grads)
        for target, value in zip((dxs, dhxs, dcxs), found):
            if target is not None:
                target[...] = value
        call.mark(DATA, token)
        pending[token] = found[2 if cs is None else 3 :]

    call.run(work, [m1, m2, m3, m4, m5, m6], [w1, w2, w3])
    return 0


def backward_weights(call: Call, x: int, h: Any, y: int) -> int:
    """cudnnRNNBackwardWeights_v8: adds to what is there."""
    n = call.network
    (_, m1), (_, m2), (_, m3) = call.data(x, n.inputs), call.state(h, call.h), call.data(y, n.out * n.directions)

    def work() -> None:
        token = call.marked(DATA)
        assert token >= 0, "the gradients of the weights come after those of the data"
        found = pending.pop(token)
        for (pieces, _), value in zip(n.parameters(call.raw()), found):
            at = 0
            flat = value.reshape(-1)
            for piece in pieces:
                piece += flat[at : at + piece.size].astype(piece.dtype)
                at += piece.size

    call.run(work, [m1, m2, m3], [call.space])
    return 0


tokens = itertools.count(1)
inputs: dict[int, np.ndarray] = {}  # what a forward was computed from, by the token in its reserve
pending: dict[int, list[np.ndarray]] = {}  # gradients of weights, likewise
