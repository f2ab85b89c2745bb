"""Kernels of jobs while they are written: what windows, tiles, products and passes over channels share.

Their arrays are addresses of memory, their numbers counts of elements.  A function that writes one is decorated by
`in_llvm`; of its parameters, which are named in a tuple, the first are arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.kernels.form import Array, Do, Gather, Kernel, Prefetch, Scatter, Transpose, Value, call, element, where

__all__ = ["Jobs", "clamped", "inside", "least", "most"]


class Jobs(Kernel):
    """A kernel of jobs.  types: of the parameters that are not float32 arrays, if they are among the first `arrays`, or
    not counts."""

    def __init__(
        self, name: str, lanes: int, parameters: Sequence[str], arrays: int, types: dict[str, str] | None = None
    ) -> None:
        super().__init__(name, "jobs", lanes)
        types = types or {}
        self.arrays = [self.array(p, types.get(p, "float32"), True) for p in parameters[:arrays]]
        self.numbers = {p: self.scalar(p, types.get(p, "index")) for p in parameters[arrays:]}

    def number(self, value: float, type: str = "float32") -> Value:
        """A vector of a constant."""
        return self.constant(value, f"{type}*{self.lanes}")

    def vector_of(self, numbers: Sequence[float]) -> Value:
        """A vector of given numbers."""
        values = tuple([self.constant(number, "float32") for number in numbers])
        self._add(Do(made := self._new(f"float32*{self.lanes}"), "table", values))
        return made

    def looked_up(self, table: Value, places: Value) -> Value:
        """The numbers of a table of 16 at the places that the lowest four bits of 16 lanes of int32 say (AVX-512)."""
        self._add(Do(made := self._new(table.type), "looked_up", (places, table)))
        return made

    def total(self, vector: Value) -> Value:
        """The sum of the lanes of a vector, in any order."""
        self._add(Do(made := self._new(element(vector.type)), "total", (vector,)))
        return made

    def largest(self, vector: Value) -> Value:
        """The largest lane of a vector; nan counts for nothing."""
        self._add(Do(made := self._new(element(vector.type)), "largest", (vector,)))
        return made

    def pairs(self, array: Array, indices: Sequence[Value]) -> tuple[Value, Value]:
        """Vectors of the numbers at the indices and of those behind them; one index: of all pairs from there on."""
        type = f"{array.type}*{self.lanes}"
        self._add(Gather(made := (self._new(type), self._new(type)), array, tuple(indices)))
        return made

    def gathered(self, array: Array, indices: Sequence[Value]) -> Value:
        """A vector of the numbers at the indices."""
        self._add(Gather((made := self._new(f"{array.type}*{self.lanes}"),), array, tuple(indices)))
        return made

    def store_pairs(self, array: Array, indices: Sequence[Value], values: tuple[Value, Value]) -> None:
        """Store two vectors as `pairs` reads them."""
        self._add(Scatter(array, tuple(indices), values))

    def scatter(self, array: Array, indices: Sequence[Value], value: Value) -> None:
        """Store a vector's numbers at the indices."""
        self._add(Scatter(array, tuple(indices), (value,)))

    def transposed(self, rows: Sequence[Value]) -> tuple[Value, ...]:
        """As many vectors as each has lanes, with rows and columns exchanged."""
        self._add(Transpose(made := tuple([self._new(row.type) for row in rows]), tuple(rows)))
        return made

    def variables(self, starts: Sequence[Value]) -> list[Value]:
        """Variables, as sums that stay in registers."""
        return [self.variable(start) for start in starts]

    def add_products(
        self,
        sums: Sequence[Value],
        lines: Sequence[Array],
        depth: Value | int,
        pace: Value | int,
        right: Array,
        stride: Value | int,
        ahead: int = 0,
    ) -> None:
        """sums (lines, vectors) += the sum over k < depth of line[k * pace] times the vectors from right[k * stride]
        on, those of k + `ahead` being asked for."""
        count = len(sums) // len(lines)
        with self.loop(0, depth) as k:
            row, along = self.view(right, k * stride), k * pace
            loaded = [self.vector(row, j * self.lanes) for j in range(count)]
            if ahead:
                later = self.view(row, self._counted(stride) * ahead)
                for j in range(count):
                    self._add(Prefetch(later, self.constant(j * self.lanes, "index")))
            for i, line in enumerate(lines):
                factor = self.spread(self.load(line, along))
                for total, value in zip(sums[i * count :], loaded):
                    self.set(total, call("fma", factor, value, total))

    def vectors(self, lines: Sequence[Array], count: int) -> list[Array]:
        """The places of `count` vectors of each line."""
        return [self.view(line, j * self.lanes) for line in lines for j in range(count)]

    def load_where(self, condition: Value, places: Sequence[Array]) -> list[Value]:
        """Variables: the vectors at these places where the condition holds, else zeros."""
        made = self.variables([self.number(0.0, places[0].type)] * len(places))
        with self.when(condition):
            for variable, place in zip(made, places):
                self.set(variable, self.vector(place))
        return made

    def store_all(self, places: Sequence[Array], values: Sequence[Value]) -> None:
        """Store a vector at each place."""
        for place, value in zip(places, values):
            self.store(place, 0, value)

    def cut(self, count: Value, sizes: Sequence[int]) -> Iterator[tuple[int, Value]]:
        """(size, its first) of pieces of 0..count, the body written for each size: as many of the first size as there
        are, then of the next.  Loops; `for size, at in k.cut(...)`."""
        done = self.constant(0, "index")
        for size in sizes:
            until = count - (count - done) % size
            with self.loop(done, until, size) as at:
                yield size, at
            done = until


def least(a: Value, b: Value | int) -> Value:
    """The smaller of two counts."""
    return a.kernel.op("min", a, b)


def inside(place: Value, size: Value) -> Value:
    """Return whether 0 <= place < size."""
    return place.kernel.op("below", place, size)


def most(a: Value, b: Value | int) -> Value:
    """The larger of two counts."""
    return a.kernel.op("max", a, b)


def clamped(value: Value, low: Value, high: Value) -> Value:
    """A value between two; nan stays nan."""
    value = where(value < low, low, value)
    return where(value > high, high, value)
