"""Kernels as data: parameters, and statements over typed values.

A kernel is one of three shapes.  A **map** does its statements for each of n elements, independently.  **Rows** does
them for each of n rows, where `reduce` combines values along the row and `each` walks it: what threads of a GPU, or the
lanes of a vector, do together.  Which threads take which elements, how values along a row meet, and the width of a load
are the printer's affair; nothing here knows of CUDA.  **Jobs** does its statements once for the jobs `begin` to `end`,
in one thread: it walks them, and vectors of `lanes` elements, in loops of its own (`jobs.py`).

    k = Kernel("scaled", "map")
    x, out = k.array("x", "float16"), k.array("out", "float16", written=True)
    k.store(out, k.index, k.load(x, k.index) * k.scalar("factor", "float32"))

16-bit floats are loaded as float32 and rounded when stored.  Arithmetic is between values of one type (Python numbers
take the other's); `cast` is explicit.  `index` is the type of counts and offsets: 32 or 64 bits, as the printer is
told.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

ITEMSIZE = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
}
FLOATS = ("float32", "float64")
HALVES = ("float16", "bfloat16")

COMPARISONS = frozenset(["lt", "le", "gt", "ge", "eq", "ne", "below"])  # below: 0 <= a < b, of indices
SHAPES = {"map": ("i", "count"), "rows": ("i", "count"), "jobs": ("i", "count", "begin", "end")}  # and own names
TESTS = frozenset(["isnan", "isinf", "isfinite", "not", "signbit"])  # one operand, a truth value
LOGICAL = frozenset(["land", "lor"])
REDUCTIONS = frozenset(["sum", "product", "max", "min", "any", "all", "argmax", "argmin"])


def compute_type(stored: str) -> str:
    """The type that values of a stored type are computed in."""
    return "float32" if stored in HALVES else stored


def wide(type: str, lanes: int) -> str:
    """The type of vectors of `lanes` values of a type."""
    return f"{type}*{lanes}"


def element(type: str) -> str:
    """The type of one value of a vector; of what is no vector, its own."""
    return type.partition("*")[0]


def alike(type: str, other: str) -> str:
    """The type `other`, in as many lanes as `type` has."""
    return other + type[len(element(type)) :]


Number = bool | int | float
Operand: TypeAlias = "Value | Number"  # numbers take the type of the values


class FormError(TypeError):
    """A kernel that cannot be written so: types that differ, a name used twice."""


@dataclass(frozen=True, slots=True)
class Array:
    """A parameter that points to elements.  `dense`: element i of a map is at offset i."""

    name: str
    type: str
    written: bool = False
    dense: bool = False


@dataclass(frozen=True, slots=True)
class Pointers:
    """A parameter that points to addresses of arrays of one type: many tensors in one kernel."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Scalar:
    """A parameter that is a number."""

    name: str
    type: str


class Value:
    """A typed value of a kernel: the result of one statement, a parameter, or a constant."""

    __slots__ = ("constant", "kernel", "name", "type")

    def __init__(self, kernel: Kernel, type: str, name: str, constant: Number | None = None) -> None:
        self.kernel, self.type, self.name, self.constant = kernel, type, name, constant

    def __add__(self, other: Operand) -> Value:
        return self.kernel.op("add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self.kernel.op("add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return self.kernel.op("sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self.kernel.op("sub", other, self)

    def __mul__(self, other: Operand) -> Value:
        return self.kernel.op("mul", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self.kernel.op("mul", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self.kernel.op("div", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self.kernel.op("div", other, self)

    def __floordiv__(self, other: Operand) -> Value:
        """Of indices, which are not negative."""
        return self.kernel.op("quotient", self, other)

    def __mod__(self, other: Operand) -> Value:
        """Of indices, which are not negative."""
        return self.kernel.op("rest", self, other)

    def __neg__(self) -> Value:
        return self.kernel.op("neg", self)

    def __lt__(self, other: Operand) -> Value:
        return self.kernel.op("lt", self, other)

    def __le__(self, other: Operand) -> Value:
        return self.kernel.op("le", self, other)

    def __gt__(self, other: Operand) -> Value:
        return self.kernel.op("gt", self, other)

    def __ge__(self, other: Operand) -> Value:
        return self.kernel.op("ge", self, other)

    def equals(self, other: Operand) -> Value:
        """self == other, element by element."""
        return self.kernel.op("eq", self, other)

    def differs(self, other: Operand) -> Value:
        """self != other, element by element."""
        return self.kernel.op("ne", self, other)

    def __bool__(self) -> bool:
        raise FormError("a value of a kernel is not known while the kernel is written")

    def __repr__(self) -> str:
        return f"<{self.type} {self.name}>"


# --- statements


@dataclass(slots=True)
class Do:
    """result = op(args)."""

    result: Value
    op: str
    args: tuple[Value, ...]


@dataclass(slots=True)
class View:
    """result: the array that begins at array[index]."""

    result: Array
    array: Array
    index: Value


@dataclass(slots=True)
class Either:
    """result: one array where the condition holds, else the other: of addresses, so that only one of them is read."""

    result: Array
    condition: Value
    first: Array
    second: Array


@dataclass(slots=True)
class Load:
    """result = array[index], or of the `which`-th of several arrays; a vector: array[index], array[index + 1], ..."""

    result: Value
    array: Array | Pointers
    index: Value
    which: Value | None = None


@dataclass(slots=True)
class Store:
    """array[index] = value; `add`: += in one step that no other thread divides."""

    array: Array | Pointers
    index: Value
    value: Value
    add: bool = False
    which: Value | None = None


@dataclass(slots=True)
class Gather:
    """results = vectors of what stands at the indices: a number of each for one result, of each two neighbours for two.

    One index: the vectors, or their pairs, begin there.
    """

    results: tuple[Value, ...]
    array: Array
    indices: tuple[Value, ...]


@dataclass(slots=True)
class Scatter:
    """Store vectors as `Gather` reads them."""

    array: Array
    indices: tuple[Value, ...]
    values: tuple[Value, ...]


@dataclass(slots=True)
class Transpose:
    """results: as many vectors as each has lanes, with rows and columns exchanged."""

    results: tuple[Value, ...]
    rows: tuple[Value, ...]


@dataclass(slots=True)
class Prefetch:
    """Ask for the memory at array[index], which need not be the array's."""

    array: Array
    index: Value


@dataclass(slots=True)
class Variable:
    """A value that `Set` changes."""

    result: Value
    start: Value


@dataclass(slots=True)
class Set:
    """variable = value."""

    variable: Value
    value: Value


@dataclass(slots=True)
class Loop:
    """for index in range(begin, end, step), one after another in one thread."""

    index: Value
    begin: Value
    end: Value
    step: Value
    body: list[Statement] = field(default_factory=list)


@dataclass(slots=True)
class When:
    """if condition."""

    condition: Value
    body: list[Statement] = field(default_factory=list)


@dataclass(slots=True)
class Each:
    """for index in range(count), shared by those who work on the row."""

    index: Value
    count: Value
    body: list[Statement] = field(default_factory=list)


@dataclass(slots=True)
class Once:
    """By one of those who work on the row."""

    body: list[Statement] = field(default_factory=list)


@dataclass(slots=True)
class Reduce:
    """result = values combined over index in range(count); argmax and argmin give (value, index)."""

    by: str
    results: tuple[Value, ...]
    index: Value
    count: Value
    body: list[Statement]
    value: Value


Statement = (
    Do
    | View
    | Either
    | Load
    | Store
    | Gather
    | Scatter
    | Transpose
    | Prefetch
    | Variable
    | Set
    | Loop
    | When
    | Each
    | Once
    | Reduce
)


class Kernel:
    """A kernel while it is written and afterwards.  shape: "map", "rows" or "jobs"; `index`: its element or row;
    `count`: how many there are, always the last parameter; `begin`, `end`: of its jobs; `lanes`: of its vectors."""

    def __init__(self, name: str, shape: str, lanes: int = 1) -> None:
        if shape not in SHAPES:
            raise FormError(f"a kernel is a map or rows or jobs, not {shape}")
        self.name, self.shape, self.lanes = name, shape, lanes
        self.operations = 0  # of an element, where what is written says so (`cpu.operations`)
        self.parameters: list[Array | Pointers | Scalar] = []
        self.body: list[Statement] = []
        self._open = [self.body]
        self._made = 0
        self.index = Value(self, "index", "i")
        self.count = Value(self, "index", "count")
        self.begin, self.end = Value(self, "index", "begin"), Value(self, "index", "end")

    # --- parameters

    def array(self, name: str, type: str, written: bool = False, dense: bool = False) -> Array:
        """An array parameter."""
        made = Array(name, self._known(type), written, dense)
        self._parameter(made)
        return made

    def pointers(self, name: str, type: str) -> Pointers:
        """A parameter that points to the addresses of arrays."""
        made = Pointers(name, self._known(type))
        self._parameter(made)
        return made

    def scalar(self, name: str, type: str) -> Value:
        """A number parameter."""
        self._parameter(Scalar(name, type if type == "index" else self._known(type)))
        return Value(self, type, name)

    def _parameter(self, made: Array | Pointers | Scalar) -> None:
        if made.name in SHAPES[self.shape] or any(p.name == made.name for p in self.parameters):
            raise FormError(f"kernel {self.name} has two parameters {made.name}")
        self.parameters.append(made)

    @staticmethod
    def _known(type: str) -> str:
        if type not in ITEMSIZE:
            raise FormError(f"kernels know no arrays of {type}")
        return type

    # --- values

    def _new(self, type: str) -> Value:
        self._made += 1
        return Value(self, type, f"v{self._made}")

    def constant(self, number: Number, type: str) -> Value:
        """A number known when the kernel is written."""
        return Value(self, type, "", number)

    def op(self, op: str, *args: Operand) -> Value:
        """op(args) as a new value.  Numbers among the args take the type of the values."""
        types = {a.type for a in args if isinstance(a, Value)}
        if op == "where":
            types = {a.type for a in args[1:] if isinstance(a, Value)}
        if len(types) != 1:
            raise FormError(f"{op} of {[getattr(a, 'type', a) for a in args]}")
        (type,) = types
        given = [a if isinstance(a, Value) else self.constant(a, type) for a in args]
        if op in COMPARISONS or op in TESTS or op in LOGICAL:
            type = alike(type, "bool")
        made = self._new(type)
        self._add(Do(made, op, tuple(given)))
        return made

    def cast(self, value: Value, type: str) -> Value:
        """The value in another type; to bool: whether it is not 0."""
        if value.type == type:
            return value
        made = self._new(type)
        self._add(Do(made, "cast", (value,)))
        return made

    def load(self, array: Array | Pointers, index: Value | int, which: Value | None = None) -> Value:
        """array[index], in the type it is computed in."""
        made = self._new(compute_type(array.type))
        self._add(Load(made, array, self._counted(index), which))
        return made

    def vector(self, array: Array, index: Value | int = 0) -> Value:
        """The elements of an array from an index on, as many as a vector has, in the type they are computed in."""
        self._add(Load(made := self._new(wide(compute_type(array.type), self.lanes)), array, self._counted(index)))
        return made

    def spread(self, value: Value) -> Value:
        """A vector of one number."""
        self._add(Do(made := self._new(wide(value.type, self.lanes)), "spread", (value,)))
        return made

    def view(self, array: Array, index: Value | int) -> Array:
        """The array that begins at an index of another."""
        self._add(View(made := self._named(array), array, self._counted(index)))
        return made

    def either(self, condition: Value, first: Array, second: Array) -> Array:
        """The first array where the condition holds, else the second."""
        self._add(Either(made := self._named(first), condition, first, second))
        return made

    def _named(self, array: Array) -> Array:
        return Array(self._new("index").name, array.type, array.written)

    def _counted(self, index: Value | int) -> Value:
        return index if isinstance(index, Value) else self.constant(index, "index")

    def store(self, array: Array | Pointers, index: Value | int, value: Value, which: Value | None = None) -> None:
        """array[index] = value, in the array's type; of a vector: the elements from there on."""
        self._add(Store(array, self._counted(index), self._fitting(array, value), False, which))

    def add_to(self, array: Array, index: Value, value: Value) -> None:
        """array[index] += value, where several elements may meet at one place, in any order."""
        if array.type not in ("float32", "float64", "int32", "int64"):
            raise FormError(f"no sums at one place of {array.type}")
        self._add(Store(array, index, self._fitting(array, value), True))

    def _fitting(self, array: Array | Pointers, value: Value) -> Value:
        return self.cast(value, alike(value.type, compute_type(array.type)))

    def variable(self, start: Value) -> Value:
        """A value that `set` changes, with its first."""
        made = self._new(start.type)
        self._add(Variable(made, start))
        return made

    def set(self, variable: Value, value: Value) -> None:
        """Change a variable."""
        if variable.type != value.type:
            raise FormError(f"a {variable.type} cannot be set to a {value.type}")
        self._add(Set(variable, value))

    # --- structure

    def _add(self, statement: Statement) -> None:
        self._open[-1].append(statement)

    @contextlib.contextmanager
    def _inside(self, statement: Loop | Each | When | Once) -> Iterator[None]:
        self._add(statement)
        self._open.append(statement.body)
        try:
            yield
        finally:
            self._open.pop()

    @contextlib.contextmanager
    def _counting(self, statement: Loop | Each) -> Iterator[Value]:
        with self._inside(statement):
            yield statement.index

    def loop(
        self, begin: Value | int, end: Value | int, step: Value | int = 1
    ) -> contextlib.AbstractContextManager[Value]:
        """`with k.loop(b, e) as j`: statements for each j, in order."""
        begin, end = self._counted(begin), self._counted(end)
        return self._counting(Loop(self._new("index"), begin, end, self._counted(step)))

    def when(self, condition: Value) -> contextlib.AbstractContextManager[None]:
        """`with k.when(c)`: statements where c holds."""
        return self._inside(When(condition))

    def each(self, count: Value) -> contextlib.AbstractContextManager[Value]:
        """`with k.each(n) as j`: statements for each place j of the row, in any order."""
        self._needs_rows()
        return self._counting(Each(self._new("index"), count))

    def once(self) -> contextlib.AbstractContextManager[None]:
        """`with k.once()`: statements done once per row."""
        self._needs_rows()
        return self._inside(Once())

    def reduce(self, by: str, count: Value, of: Callable[[Value], Value]) -> Any:
        """of(j) combined over the places j of the row; all who work on the row get it."""
        self._needs_rows()
        if by not in REDUCTIONS or len(self._open) != 1:
            raise FormError(f"no reduction by {by} here")
        index = self._new("index")
        body: list[Statement] = []
        self._open.append(body)
        value = of(index)
        self._open.pop()
        results = (self._new(value.type), self._new("int64")) if by.startswith("arg") else (self._new(value.type),)
        self._add(Reduce(by, results, index, count, body, value))
        return results if len(results) > 1 else results[0]

    def _needs_rows(self) -> None:
        if self.shape != "rows":
            raise FormError("a map has no rows")


def where(condition: Value, first: Operand, second: Operand) -> Value:
    """first where the condition holds, else second."""
    return condition.kernel.op("where", condition, first, second)


def both(first: Value, second: Value) -> Value:
    """Return whether both hold."""
    return first.kernel.op("land", first, second)


def call(name: str, *args: Operand) -> Value:
    """A function of values: exp, log, sqrt, rsqrt, ...: what the printers list."""
    owner = next(a for a in args if isinstance(a, Value))
    return owner.kernel.op(name, *args)
