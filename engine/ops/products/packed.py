"""Products of rows of float32 with weights that stay in memory as their file has them.

A product with a few rows is a read of the weight: a token of a language model reads all weights once.  So those of one
to `FEW` rows are generated code (the extra `jit`, `engine/kernels/products.py`) that makes float32 of the elements in
registers.  For more rows, and where there is no such code, blocks of the weight are widened into one buffer and
multiplied like any matrix.  See engine/kernels/README.md for when a kernel computes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.backends.cpu import threads
from engine.kernels import processor, products
from engine.kernels.cpu import PIECES
from engine.kernels.program import Step
from engine.ops.generated import launch
from engine.ops.generated.route import SHARE, GeneratedRoute, address, finite, lanes, linked, packed, run

__all__ = ["FEW", "PackedMatrix", "generated", "multiply", "steps"]

FEW = 8  # rows of a product that reads the weight as it is
_BUFFER = 1 << 20  # elements of float32 that are widened at a time: 4 MB
_TRIAL = 256  # outputs of the products that are compared
_LEAST = 1 << 14  # elements of a weight from which they are
_routes: dict[tuple[str, int], GeneratedRoute] = {}
_HALF_FORMS = ("float16", "q8_0", "q4_0")  # which the processor must convert float16 for


class PackedMatrix:
    """A weight (outputs, inputs), row by row as a file has it.

    form: of `engine.kernels.products.FORMS`; inputs must be a multiple of its blocks.  data: the bytes, uint8,
    contiguous, aligned to 4 (`q8_0`, `q4_0`: 2) bytes; a mapping of the file for instance.  widen: a function of the
    bytes of some rows that returns their values as float32, of any shape.
    """

    def __init__(
        self, form: str, shape: tuple[int, int], data: np.ndarray, widen: Callable[[np.ndarray], np.ndarray]
    ) -> None:
        outputs, inputs = shape
        self.form, self.shape, self.widen = form, shape, widen
        size, nbytes = products.BLOCKS.get(form, (1, 4 if form == "float32" else 2))
        self.pitch = inputs // size * nbytes  # bytes of a row
        if inputs % size or data.nbytes != outputs * self.pitch:
            raise ValueError(f"{data.nbytes} bytes of {form} are no matrix of {outputs} rows of {inputs}")
        self.data = data.reshape(-1).view(np.uint8)
        self.address = address(self.data)

    @property
    def nbytes(self) -> int:
        """Bytes of memory or of the file."""
        return self.data.nbytes

    def part(self, begin: int, end: int) -> PackedMatrix:
        """Return the rows begin..end, which share the memory."""
        data = self.data[begin * self.pitch : end * self.pitch]
        return PackedMatrix(self.form, (end - begin, self.shape[1]), data, self.widen)

    def rows(self, indices: Sequence[int]) -> np.ndarray:
        """Return some rows as float32, (len(indices), inputs)."""
        lines = self.data.reshape(self.shape[0], self.pitch)[np.asarray(indices, np.int64)]
        return self.widen(lines.reshape(-1)).reshape(len(indices), self.shape[1])

    def widened(self, begin: int = 0, end: int | None = None, out: np.ndarray | None = None) -> np.ndarray:
        """Return the rows begin..end as float32, (end - begin, inputs), in `out` if it is given."""
        end = self.shape[0] if end is None else end
        if out is None:
            out = np.empty((end - begin, self.shape[1]), np.float32)
        if _widens(self):
            self._widen(begin, out)
        else:
            out[:] = self.widen(self.data[begin * self.pitch : end * self.pitch]).reshape(out.shape)
        return out

    def _widen(self, begin: int, out: np.ndarray) -> None:
        """Write the rows from `begin` on to `out`, by generated code."""
        place = self.address + begin * self.pitch
        args = packed(products.WIDE_PARAMETERS, right=place, scales=place, out=address(out), depth=self.shape[1])
        run(_route(self.form, 0).build(), _pieces(args, len(out), out.size * 4 > SHARE))

    def _generated(self) -> bool:
        return generated(self.form)


def generated(form: str = "float32") -> bool:
    """Return whether there is generated code for weights of a form."""
    found = processor.available() and processor.target()
    return bool(found) and (found.halves or form not in _HALF_FORMS)


def multiply(
    x: np.ndarray, weights: Sequence[PackedMatrix], biases: Sequence[np.ndarray | None] | None = None
) -> list[np.ndarray]:
    """Return x @ weight^T + bias for each weight, (n, outputs) in float32.

    x: (n, inputs), float32.  biases: (outputs) in float32 each, or None.
    """
    x = np.ascontiguousarray(x, np.float32)
    given = [None] * len(weights) if biases is None else list(biases)
    made = [np.empty((len(x), weight.shape[0]), np.float32) for weight in weights]
    if len(x) <= FEW and all(_served(weight, x) for weight in weights):
        _few(x, weights, given, made)
        return made
    for weight, bias, out in zip(weights, given, made):
        _wide(x, weight, out)
        if bias is not None:
            out += bias
    return made


def _few(x: np.ndarray, weights: Sequence[PackedMatrix], biases: Sequence[Any], made: Sequence[np.ndarray]) -> None:
    """Products of few rows by generated code, all on the same threads at once."""
    jobs: dict[str, list[tuple[bytes, int, int]]] = {}
    work, left = sum(weight.shape[0] for weight in weights) * x.size, address(x)
    for weight, bias, out in zip(weights, biases, made):
        args = _arguments(weight, left, address(out), bias, False)
        jobs.setdefault(weight.form, []).extend(_pieces(args, weight.shape[0], work > SHARE))
    for form, pieces in jobs.items():
        run(_route(form, len(x)).build(), pieces)


def steps(
    left: np.ndarray, weight: PackedMatrix, out: np.ndarray, bias: np.ndarray | None = None, added: bool = False
) -> list[Step]:
    """Return the pieces of out = [out +] left @ weight^T [+ bias], of one row each, for `Program`.

    LookupError where there is no generated code.
    """
    if _ready(weight, 1) is None:
        raise LookupError(weight.form)
    args = np.frombuffer(_arguments(weight, address(left), address(out), bias, added), np.int64)
    code = _route(weight.form, 1).build
    return [(code, args, begin, end) for _, begin, end in _pieces(b"", weight.shape[0], weight.nbytes > SHARE)]


def _arguments(weight: PackedMatrix, left: int, out: int, bias: np.ndarray | None, added: bool) -> bytes:
    return packed(
        products.PACKED_PARAMETERS,
        left=left,
        right=weight.address,
        scales=weight.address,
        bias=0 if bias is None else address(bias),
        out=out,
        depth=weight.shape[1],
        width=weight.shape[0],
        biased=bias is not None,
        added=added,
    )


def _pieces(args: bytes, count: int, several: bool) -> list[tuple[bytes, int, int]]:
    """The pieces of 0..count for threads."""
    step = -(-count // (threads.get_num_threads() * PIECES if several else 1))
    return [(args, at, min(at + step, count)) for at in range(0, count, step)]


def _route(form: str, rows: int) -> GeneratedRoute:
    """The generated product with so many rows; of 0: what widens the weight."""
    found = _routes.get((form, rows))
    if found is None:
        build = lambda: (
            linked(products.packed, form, lanes(), rows) if rows else linked(products.widened, form, lanes())
        )
        found = _routes[form, rows] = GeneratedRoute("a product with a packed weight", launch.Entry(), 0, build)
    return found


def _ready(weight: PackedMatrix, rows: int) -> GeneratedRoute | None:
    """The route of a product with so many rows (0: of widening) if there is such code."""
    route = _route(weight.form, rows)
    if route.disabled or not weight._generated():
        return None
    if not route.proven and (weight.shape[0] * weight.shape[1] < _LEAST or not route.ready(paid=True)):
        return None
    return route


def _widens(weight: PackedMatrix) -> bool:
    """Return whether generated code widens the weight; it is compared with `widen` on a part of it first."""
    route = _ready(weight, 0)
    if route is None or route.proven:
        return route is not None
    part = weight.part(0, min(weight.shape[0], _TRIAL))
    made, want = (np.empty(part.shape, np.float32) for _ in range(2))
    mine, plain = lambda: part._widen(0, made), lambda: np.copyto(want, part.widen(part.data).reshape(part.shape))
    mine(), plain()
    return finite(want) and route.decide(made, want, mine, plain, ())


def _served(weight: PackedMatrix, x: np.ndarray) -> bool:
    """Return whether generated code computes; it is compared with the other route on a part of the weight first."""
    route = _ready(weight, len(x))
    if route is None or route.proven:
        return route is not None
    part = weight.part(0, min(weight.shape[0], _TRIAL))
    made, want = (np.empty((len(x), part.shape[0]), np.float32) for _ in range(2))
    mine, plain = lambda: _few(x, [part], [None], [made]), lambda: _wide(x, part, want)
    mine(), plain()
    return finite(want) and route.decide(made, want, mine, plain, (x, part.widen(part.data)))


def _wide(x: np.ndarray, weight: PackedMatrix, out: np.ndarray) -> None:
    """out = x @ weight^T, the weight widened block by block."""
    outputs, inputs = weight.shape
    if weight.form == "float32":
        _matmul(x, weight.widen(weight.data).reshape(outputs, inputs).T, out)
        return
    step = max(1, min(outputs, _BUFFER // inputs))
    buffer = np.empty((step, inputs), np.float32)
    for at in range(0, outputs, step):
        end = min(at + step, outputs)
        block = weight.widened(at, end, buffer[: end - at])
        _matmul(x, block.T, out[:, at:end])


def _matmul(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """By oneDNN where it is there: BLAS's own threads stay asleep."""
    from engine.backends.onednn import arrays  # not before there is something to multiply

    if not arrays.sgemm(a, b, out):
        np.matmul(a, b, out=out)
