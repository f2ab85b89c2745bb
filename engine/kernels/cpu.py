"""Kernels in the source form as machine code of this processor, by llvmlite (the extra `jit`).

`build(kernel)` gives a function of arrays and numbers.  `compiler.py` makes its machine code.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine.backends.cpu import threads
from engine.kernels import cpython, llvm_columns, llvm_ir, llvm_jobs, processor, team
from engine.kernels.compiler import Entry, address, linked
from engine.kernels.form import Array, Do, Each, FormError, Kernel, Loop, Once, Pointers, Reduce, Statement, When
from engine.kernels.tiles import pack, product

__all__ = ["Built", "build", "tiles"]

_CODES = {
    "bool": "?",
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float32": "f",
    "float64": "d",
    "index": "q",
}
SHARE = 1 << 15  # elements' worth of much work (some hundred operations each) that another thread is woken for
# The same of any work, in operations and arrays: 2 to 4 us.  A thread that has waited for 200 us takes 20 more, but
# what one thread wrote another reads slowly: gelu(x * 2 + 1) * x of 65,536 elements takes 55 us with twice as many,
# 35 so.
OPERATIONS = 1 << 18
LINE = 12  # operations of a loop over one line of a map
PIECES = 4  # a thread, so that one that is held up leaves little


class Built:
    """A kernel ready to run: `built(arrays and numbers, count)`, in the order of its parameters.

    Arrays must have the memory that the kernel reads and writes, and live until it has done so.
    """

    def __init__(self, kernel: Kernel, entry: Entry, known: Mapping[str, int]) -> None:
        self.kernel, self.entry = kernel, entry
        self.address = address(entry)
        self.operations = operations(kernel, known)  # of an element
        wide = ("int64", "uint64", "float64", "index")  # of which a line of the cache has half as many
        arrays = sum(1 + (p.type in wide) for p in kernel.parameters if isinstance(p, Array))
        self.alone = OPERATIONS // (
            self.operations + arrays
        )  # elements too few to be shared; memory is half of the time
        if llvm_ir.serial(kernel):
            self.alone = 1 << 62
        parts = []
        for p in kernel.parameters:
            code = "Q" if isinstance(p, Array | Pointers) else _CODES[p.type]
            parts.append(code + "x" * (8 - struct.calcsize("<" + code)))
        self.pack = struct.Struct("<" + "".join(parts)).pack

    def __call__(self, given: Sequence[Any], count: int, each: int = 1) -> None:
        """Do all `count` elements or rows; `each` is how much work one of them is, in elements."""
        args = self.pack(*[id(a) if isinstance(a, np.ndarray) else a for a in given])
        if count * each <= self.alone:
            self.entry(args, 0, count)
        else:
            self.shared(args, count, each)

    def rounded(self, numbers: Sequence[Any]) -> list[Any]:
        """The numbers that follow the arrays as their types have them: infinite where float32 has no such number."""
        types = [p.type for p in self.kernel.parameters][-len(numbers) :]
        with np.errstate(over="ignore"):
            return [float(np.float32(n)) if type == "float32" else n for n, type in zip(numbers, types)]

    def shared(self, args: bytes, count: int, each: int) -> None:
        """Among threads, in pieces that begin at multiples of 64."""
        entry, several = self.entry, threads.get_num_threads()
        if several == 1 or count == 1:
            entry(args, 0, count)
        elif not team.split(self.address, args, count, several, PIECES):
            step = team.step_of(count, several * PIECES)
            threads.run(lambda at: entry(args, at, min(at + step, count)), list(range(0, count, step)))


def operations(kernel: Kernel, known: Mapping[str, int] | None = None) -> int:
    """About how many additions take the time of one element; of rows: of one place of a row, in the innermost loops.

    Of a map over coordinates, what is done once for a line of them is left out (`line_operations`), and so are offsets
    of neighbours, whose stride is among the `known` numbers.
    """
    if kernel.operations:
        return kernel.operations
    found: dict[int, int] = {0: 0}
    once = {**_of_lines(kernel)}
    if once:
        offsets = [s for s in kernel.body if isinstance(s, Do) and s.result.type == "index"]
        for s in offsets:
            if s.op == "add" or any(a.name in (known or {}) for a in s.args if a.constant is None):
                once[id(s)] = s

    def cost(s: Statement) -> int:
        offset = isinstance(s, Do) and s.result.type == "index" and kernel.shape != "map"  # a loop's own work
        return 0 if isinstance(s, Once) or offset or id(s) in once else _COSTS.get(getattr(s, "op", ""), 1)

    def count(body: Sequence[Statement], depth: int) -> None:
        beside, ends = any(isinstance(s, Each) for s in body), 0
        for s in body:
            if beside and isinstance(s, Loop) and not any(isinstance(t, Loop | Each) for t in s.body):
                ends = max(ends, sum(map(cost, s.body)))  # of other places than `each` has
                continue
            if isinstance(s, Loop | Each | Reduce):
                count(s.body, depth + 1)
                found[depth + 1] += isinstance(s, Reduce)
            elif isinstance(s, When):
                count(s.body, depth)
            found[depth] = found.get(depth, 0) + cost(s)
        if ends:
            found[depth + 1] = max(found[depth + 1], ends)

    count(kernel.body, 0)
    return max(1, found[max(found)])


def line_operations(kernel: Kernel) -> int:
    """The operations of a map that are done once for each line of its fastest coordinate, the loop's own among them."""
    once = _of_lines(kernel)
    return LINE + sum(isinstance(s, Do) and s.op not in ("rest", "quotient") for s in once.values()) if once else 0


def _of_lines(kernel: Kernel) -> dict[int, Do]:
    """The statements of a map's index arithmetic that do not depend on the fastest coordinate, and that coordinate's
    own, which are loops of the printed code (`llvm_ir`)."""
    index = kernel.index
    rest = next((s for s in kernel.body if isinstance(s, Do) and s.op == "rest" and s.args[0] is index), None)
    if kernel.shape != "map" or rest is None:
        return {}
    fast, found = {index.name, rest.result.name}, {id(rest): rest}
    for s in kernel.body:
        if not isinstance(s, Do) or s.result.type != "index" or s is rest:
            continue
        quotient = s.op == "quotient" and s.args[0] is index and s.args[1].name == rest.args[1].name
        if quotient or not any(a.name in fast for a in s.args if a.constant is None):
            found[id(s)] = s
        else:
            fast.add(s.result.name)
    return found


_CALLS = "exp exp2 expm1 log log2 log10 log1p sin cos tan tanh sinh cosh erf erfc pow".split()
_COSTS = {"div": 4, "sqrt": 4, "rsqrt": 8, "rest": 8, "quotient": 8, **dict.fromkeys(_CALLS, 16)}


def build(
    kernel: Kernel, *, columns: bool = False, known: Mapping[str, int] | None = None, short: bool = False
) -> Built:
    """The machine code of a kernel.

    columns: rows lie side by side; short: rows are short (`llvm_ir.printed`).  known: numbers among the parameters that
    are always these; they are given in calls all the same.  Raises FormError for a kernel that has a function without
    generated code, ImportError without llvmlite.
    """
    found = processor.target()
    if found is None:
        raise ImportError(processor.describe())
    if not found.halves and any(getattr(p, "type", "") == "float16" for p in kernel.parameters):
        raise FormError("this processor does not convert float16")
    if kernel.shape == "jobs":
        text = llvm_jobs.JobPrinter(kernel, "KERNEL", dict(known or {}), found.attributes, cpython.HEAD).text()
    elif columns:
        text = llvm_columns.printed(kernel, "KERNEL", known, found.attributes, cpython.HEAD)
    else:
        text = llvm_ir.printed(
            kernel,
            "KERNEL",
            known=known,
            attributes=found.attributes,
            offset=cpython.HEAD,
            short=short and found.masks,
        )
    return Built(kernel, linked(text), known or {})


def tiles(type: str, lanes: int, rows: int, vectors: int) -> Any:
    """The product of `tiles.py` for a type: a function of its PARAMETERS, as addresses and numbers, and of how many
    tiles there are.  ImportError without llvmlite.
    """
    found = processor.target()
    if found is None:
        raise ImportError(processor.describe())
    entry = linked(product("KERNEL", type, lanes, rows, vectors, found.attributes))
    return lambda *given: entry(pack(*given[:-1]), 0, given[-1])
