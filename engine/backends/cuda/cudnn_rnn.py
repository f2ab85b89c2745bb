"""Recurrent networks by cuDNN's C functions: all layers and directions of one network in a call.

Sequences are packed, as the engine's rows are: step t has the rows of the sequences that are that long.  Weights come
as one vector in torch's order and are laid where cuDNN says that each gate's matrix and bias lie.
"""

from __future__ import annotations

import contextlib
import weakref
from ctypes import byref, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from typing import Any

from engine.backends.cuda import runtime
from engine.backends.cuda.cudnn import DATA, Cudnn, CudnnError, ints

__all__ = ["GATES", "Network", "Plan", "plan_of"]

MODES = {"relu": 0, "tanh": 1, "lstm": 2, "gru": 3}  # cudnnRNNMode_t
GATES = {"relu": 1, "tanh": 1, "lstm": 4, "gru": 3}
STANDARD, LINEAR_INPUT, PACKED, PADDED_IO_DISABLED, WGRAD_ADD = 0, 0, 1, 0, 0
NO_BIAS, DOUBLE_BIAS = 0, 2
DEFAULT_MATH, TENSOR_OP_MATH, FMA_MATH = 0, 1, 3
INFERENCE, TRAINING = 0, 1
PROJECTION = 8  # the number of an LSTM's projection among its linear layers


@dataclass(frozen=True, slots=True)
class Network:
    """All that a plan depends on.  projected: the width of the hidden state, 0 where it is `hidden`."""

    mode: str
    type: str
    inputs: int
    hidden: int
    projected: int
    layers: int
    directions: int
    biases: bool
    batch_sizes: tuple[int, ...]
    train: bool
    tf32: bool

    @property
    def out(self) -> int:
        """The width of the hidden state."""
        return self.projected or self.hidden

    @property
    def math(self) -> int:
        """cudnnMathType_t."""
        if self.type in ("float16", "bfloat16"):
            return TENSOR_OP_MATH
        return DEFAULT_MATH if self.type == "float32" and self.tf32 else FMA_MATH


@dataclass(frozen=True, slots=True)
class Segment:
    """`count` elements from `start` of torch's vector lie from `place` of cuDNN's, in elements."""

    start: int
    count: int
    place: int


class Plan:
    """The descriptors of a network for one choice of sequence lengths, and the sizes of what it needs."""

    def __init__(self, cudnn: Cudnn, network: Network) -> None:
        self.cudnn, self.network = cudnn, network
        self._made: list[tuple[str, int]] = []
        self._last: tuple[Any, int, Any] = _NOTHING  # (weak reference to a vector, stream, the same laid out)
        n, handle = network, cudnn.handle()
        code, wide = DATA[n.type], DATA["float64" if n.type == "float64" else "float32"]
        dropout = self._create("Dropout")  # what is between layers is the engine's own: the same bits as on the CPU
        cudnn.call("cudnnSetDropoutDescriptor", dropout, handle, 0.0, None, 0, 0)
        self.rnn = self._create("RNN")
        cudnn.call(
            "cudnnSetRNNDescriptor_v8",
            self.rnn,
            STANDARD,
            MODES[n.mode],
            DOUBLE_BIAS if n.biases else NO_BIAS,
            n.directions - 1,
            LINEAR_INPUT,
            code,
            wide,
            n.math,
            n.inputs,
            n.hidden,
            n.out,
            n.layers,
            dropout,
            PADDED_IO_DISABLED,
        )
        count = n.batch_sizes[0]
        lengths = [sum(size > i for size in n.batch_sizes) for i in range(count)]
        self.x, self.y = self._create("RNNData"), self._create("RNNData")
        for made, width in ((self.x, n.inputs), (self.y, n.out * n.directions)):
            cudnn.call(
                "cudnnSetRNNDataDescriptor", made, code, PACKED, len(n.batch_sizes), count, width, ints(lengths), None
            )
        self.h, self.c = self._create("Tensor"), self._create("Tensor")
        for made, width in ((self.h, n.out), (self.c, n.hidden)):
            shape = n.layers * n.directions, count, width
            cudnn.call("cudnnSetTensorNdDescriptor", made, code, 3, ints(shape), ints((count * width, width, 1)))
        sizes = c_size_t(), c_size_t(), c_size_t()
        cudnn.call("cudnnGetRNNWeightSpaceSize", handle, self.rnn, byref(sizes[0]))
        mode = TRAINING if n.train else INFERENCE
        cudnn.call("cudnnGetRNNTempSpaceSizes", handle, self.rnn, mode, self.x, byref(sizes[1]), byref(sizes[2]))
        self.weights, self.work, self.reserve = (int(s.value) for s in sizes)
        self.segments, self.length = self._segments(handle)

    def _create(self, kind: str) -> int:
        made = self.cudnn.create(kind)
        self._made.append((kind, made))
        return made

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the library may be gone when the interpreter ends
            for kind, made in reversed(self._made):
                self.cudnn.call(f"cudnnDestroy{kind}Descriptor", made)

    def _segments(self, handle: int) -> tuple[tuple[Segment, ...], int]:
        """Return the segments of cuDNN's weight memory, and its size.  Torch's order: for each layer and direction the
        input weight, the hidden weight, both biases, the projection."""
        n, gates = self.network, GATES[self.network.mode]
        found: list[Segment] = []
        start = 0
        with self.cudnn.descriptor("Tensor") as of_matrix, self.cudnn.descriptor("Tensor") as of_bias:

            def ask(cell: int, number: int) -> tuple[int, int, int, int]:
                matrix, bias = c_void_p(), c_void_p()
                self.cudnn.call(
                    "cudnnGetRNNWeightParams",
                    handle,
                    self.rnn,
                    cell,
                    self.weights,
                    _BASE,
                    number,
                    of_matrix,
                    byref(matrix),
                    of_bias,
                    byref(bias),
                )
                return matrix.value or 0, self._count(of_matrix), bias.value or 0, self._count(of_bias)

            for cell in range(n.layers * n.directions):
                inputs = n.inputs if cell < n.directions else n.out * n.directions
                parameters = [ask(cell, number) for number in range(2 * gates)]
                parts = [
                    (at, count, n.hidden * (inputs if i < gates else n.out))
                    for i, (at, count, *_) in enumerate(parameters)
                ]
                if n.biases:
                    parts += [(at, count, n.hidden) for *_, at, count in parameters]
                if n.projected:
                    parts.append((*ask(cell, PROJECTION)[:2], n.projected * n.hidden))
                for address, count, wanted in parts:
                    if count != wanted:
                        raise CudnnError(f"cuDNN has {count} weights where the network has {wanted}")
                    found.append(Segment(start, wanted, (address - _BASE) // self._item))
                    start += wanted
        return _joined(found), start

    @property
    def _item(self) -> int:
        return {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}[self.network.type]

    def _count(self, tensor: int) -> int:
        """The elements of a tensor descriptor."""
        kind, dims = c_int(), c_int()
        shape, strides = (c_int * 8)(), (c_int * 8)()
        self.cudnn.call("cudnnGetTensorNdDescriptor", tensor, 8, byref(kind), byref(dims), shape, strides)
        count = 1
        for size in shape[: dims.value]:
            count *= size
        return count

    # --- calls; arrays are contiguous

    def laid(self, xp: Any, flat: Any) -> Any:
        """Torch's vector of weights where cuDNN wants them.  The vector is a copy that nobody writes to, so that what a
        forward laid out serves its backward, on the same stream."""
        stream = int(runtime.library().cuda.get_current_stream().ptr)
        vector, where, space = self._last
        if space is not None and vector() is flat and where == stream:
            return space
        space = xp.empty((-(-self.weights // self._item),), flat.dtype)
        for s in self.segments:
            space[s.place : s.place + s.count] = flat[s.start : s.start + s.count]
        self._last = weakref.ref(flat, self._forget), stream, space
        return space

    def _forget(self, gone: Any) -> None:
        if self._last[0] is gone:
            self._last = _NOTHING

    def taken(self, xp: Any, space: Any) -> Any:
        """The inverse of `laid`."""
        flat = xp.empty((self.length,), space.dtype)
        for s in self.segments:
            flat[s.start : s.start + s.count] = space[s.place : s.place + s.count]
        return flat

    def forward(self, xp: Any, x: Any, h: Any, c: Any, space: Any) -> tuple[Any, Any, Any, Any]:
        """(output, final h, final c or None, reserve)."""
        n = self.network
        output = xp.empty((x.shape[0], n.out * n.directions), x.dtype)
        last_h, last_c = xp.empty(h.shape, h.dtype), None if c is None else xp.empty(c.shape, c.dtype)
        work, reserve = self.cudnn.workspace(self.work), xp.empty((self.reserve if n.train else 0,), "uint8")
        self.cudnn.call(
            "cudnnRNNForward",
            self.cudnn.handle(),
            self.rnn,
            TRAINING if n.train else INFERENCE,
            None,
            self.x,
            _at(x),
            self.y,
            _at(output),
            self.h,
            _at(h),
            _at(last_h),
            self.c,
            _at(c),
            _at(last_c),
            self.weights,
            _at(space),
            self.work,
            _at(work),
            reserve.nbytes,
            _at(reserve) if n.train else None,
        )
        return output, last_h, last_c, reserve

    def backward(
        self,
        xp: Any,
        grads: tuple[Any, Any, Any],
        x: Any,
        h: Any,
        c: Any,
        space: Any,
        output: Any,
        reserve: Any,
        weights_too: bool,
    ) -> tuple[Any, Any, Any, Any]:
        """The gradients of x, h, c (None without one) and of the weights where they lie (None if not `weights_too`)."""
        of_output, of_h, of_c = grads
        to_x, to_h = xp.empty(x.shape, x.dtype), xp.empty(h.shape, h.dtype)
        to_c = None if c is None else xp.empty(c.shape, c.dtype)
        work = self.cudnn.workspace(self.work)
        ends = self.work, _at(work), reserve.nbytes, _at(reserve)
        self.cudnn.call(
            "cudnnRNNBackwardData_v8",
            self.cudnn.handle(),
            self.rnn,
            None,
            self.y,
            _at(output),
            _at(of_output),
            self.x,
            _at(to_x),
            self.h,
            _at(h),
            _at(of_h),
            _at(to_h),
            self.c,
            _at(c),
            _at(of_c),
            _at(to_c),
            self.weights,
            _at(space),
            *ends,
        )
        to_weights = None
        if weights_too:
            to_weights = xp.zeros(space.shape, space.dtype)  # cuDNN adds to it
            self.cudnn.call(
                "cudnnRNNBackwardWeights_v8",
                self.cudnn.handle(),
                self.rnn,
                WGRAD_ADD,
                None,
                self.x,
                _at(x),
                self.h,
                _at(h),
                self.y,
                _at(output),
                self.weights,
                _at(to_weights),
                *ends,
            )
        return to_x, to_h, to_c, to_weights


_NOTHING = (lambda: None), 0, None
_BASE = 1 << 20  # an address to ask with: only distances from it are used


def _at(array: Any) -> int | None:
    return None if array is None else int(array.data.ptr)


def _joined(segments: list[Segment]) -> tuple[Segment, ...]:
    """Neighbours in both vectors as one."""
    found: list[Segment] = []
    for s in segments:
        last = found[-1] if found else None
        if last and last.start + last.count == s.start and last.place + last.count == s.place:
            found[-1] = Segment(last.start, last.count + s.count, last.place)
        else:
            found.append(s)
    return tuple(found)


def plan_of(cudnn: Cudnn, network: Network) -> Plan:
    """Return the plan of a network, made or cached."""
    found: Plan = cudnn.plan(network, lambda: Plan(cudnn, network))
    return found
