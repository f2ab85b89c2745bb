"""Prints kernels of jobs in LLVM's language: vectors, arrays within arrays, loops as they are written.

Vectors have as many lanes as the kernel was written with: 4 (SSE, NEON), 8 (AVX2), 16 (AVX-512).  Unlike the loops of
maps and rows, those of jobs are left to no vectorizer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from engine.kernels import form
from engine.kernels.form import ITEMSIZE, FormError, Kernel
from engine.kernels.llvm_ir import ARITHMETIC, Printer, llvm_type
from engine.kernels.llvm_math import FUNCTIONS, PRECISIONS, Writer

__all__ = ["JobPrinter", "in_llvm"]


def in_llvm(write: Callable[..., Kernel], offset: int | None = None) -> Callable[..., str]:
    """Make of a function that writes a kernel one of (name, *its options, attributes) that returns the module.

    offset: as of `llvm_ir.printed`; None: arguments are addresses of memory.
    """

    @functools.wraps(write)
    def printed(name: str, *options: object) -> str:
        *own, attributes = options
        kernel = write(*own)
        printer = JobPrinter if kernel.shape == "jobs" else Printer
        return printer(kernel, name, {}, str(attributes), offset).text()

    return functools.cache(printed)


class JobPrinter(Printer):
    """Writes a kernel of jobs.

    halves: the float16 numbers that were loaded, which are converted after they are spread: the instruction for one
    leaves the rest of a register as it is, and so waits for what it was before.
    """

    def __init__(self, kernel: Kernel, name: str, known: dict[str, int], attributes: str, offset: int | None) -> None:
        super().__init__(kernel, name, known, attributes, offset)
        self.halves: dict[str, str] = {}

    def _rows(self) -> None:
        self.bound.update(begin="%begin", end="%end")
        self._block(self.kernel.body)

    def _statement(self, s: form.Statement) -> None:
        if isinstance(s, form.View):
            at = self._text(s.index)
            type = llvm_type(s.array.type)
            self.bound[s.result.name] = self.emit(f"getelementptr {type}, ptr {self.bound[s.array.name]}, i64 {at}")
        elif isinstance(s, form.Either):
            first, second = self.bound[s.first.name], self.bound[s.second.name]
            self.bound[s.result.name] = self.emit(f"select i1 {self._text(s.condition)}, ptr {first}, ptr {second}")
        elif isinstance(s, form.Gather):
            self._gather(s)
        elif isinstance(s, form.Scatter):
            self._scatter(s)
        elif isinstance(s, form.Transpose):
            self._transpose(s)
        elif isinstance(s, form.Prefetch):
            type, at = llvm_type(s.array.type), self._text(s.index)
            place = self.emit(f"getelementptr {type}, ptr {self.bound[s.array.name]}, i64 {at}")
            self(call := f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 3, i32 1)")  # to read, all caches, data
            self.declared.add(call)
        elif isinstance(s, form.Loop):

            def turn(register: str) -> None:
                self.bound[s.index.name] = register
                self._block(s.body)

            self._for(self._text(s.begin), self._text(s.end), turn, self._text(s.step))
        else:
            super()._statement(s)

    def _together(self, s: form.Gather | form.Scatter, width: int) -> tuple[str, str, list[str]]:
        """(type of the elements that are read or stored at once, that of a vector of them, their addresses)."""
        item, lanes = ITEMSIZE[s.array.type], self.kernel.lanes
        one = llvm_type(s.array.type) if width == 1 else f"i{8 * item * width}"
        base, of = self.bound[s.array.name], llvm_type(s.array.type)
        places = [self.emit(f"getelementptr {of}, ptr {base}, i64 {self._text(i)}") for i in s.indices]
        return one, f"<{lanes} x {one}>", places

    def _gather(self, s: form.Gather) -> None:
        lanes, width, align = self.kernel.lanes, len(s.results), ITEMSIZE[s.array.type]
        one, vector, places = self._together(s, width)
        if len(places) == 1:
            found = self.emit(f"load {vector}, ptr {places[0]}, align {align}")
        else:
            found = "poison"
            for lane, place in enumerate(places):
                raw = self.emit(f"load {one}, ptr {place}, align {align}")
                found = self.emit(f"insertelement {vector} {found}, {one} {raw}, i64 {lane}")
        if width == 1:
            self.bound[s.results[0].name] = found
            return
        both = f"<{width * lanes} x {llvm_type(s.array.type)}>"
        found = self.emit(f"bitcast {vector} {found} to {both}")
        for part, result in enumerate(s.results):
            chosen = ", ".join(f"i32 {lane * width + part}" for lane in range(lanes))
            self.bound[result.name] = self.emit(
                f"shufflevector {both} {found}, {both} poison, <{lanes} x i32> <{chosen}>"
            )

    def _scatter(self, s: form.Scatter) -> None:
        lanes, width, align = self.kernel.lanes, len(s.values), ITEMSIZE[s.array.type]
        one, vector, places = self._together(s, width)
        value = self._text(s.values[0])
        if width == 2:
            type, both = llvm_type(s.values[0].type), f"<{2 * lanes} x {llvm_type(s.array.type)}>"
            chosen = ", ".join(f"i32 {lane}, i32 {lane + lanes}" for lane in range(lanes))
            mixed = f"{type} {value}, {type} {self._text(s.values[1])}, <{2 * lanes} x i32> <{chosen}>"
            value = self.emit(f"bitcast {both} {self.emit(f'shufflevector {mixed}')} to {vector}")
        if len(places) == 1:
            self(f"store {vector} {value}, ptr {places[0]}, align {align}")
            return
        for lane, place in enumerate(places):
            self(f"store {one} {self.emit(f'extractelement {vector} {value}, i64 {lane}')}, ptr {place}, align {align}")

    def _transpose(self, s: form.Transpose) -> None:
        """Exchange blocks of 1, 2, 4, ... lanes between rows as far apart."""
        lanes, rows = self.kernel.lanes, [self._text(row) for row in s.rows]
        type = llvm_type(s.rows[0].type)
        apart = 1
        while apart < lanes:
            for low in range(lanes):
                if low & apart:
                    continue
                a, b = rows[low], rows[low + apart]
                for place, more in ((low, 0), (low + apart, apart)):
                    chosen = [lane + more if not lane & apart else lanes + lane - apart + more for lane in range(lanes)]
                    order = ", ".join(f"i32 {lane}" for lane in chosen)
                    rows[place] = self.emit(f"shufflevector {type} {a}, {type} {b}, <{lanes} x i32> <{order}>")
            apart *= 2
        self.bound.update({result.name: text for result, text in zip(s.results, rows)})

    def _load(self, s: form.Load) -> str:
        if "*" not in s.result.type and s.array.type != "float16":
            return super()._load(s)
        stored, at = self._address(s)
        wide, lanes = llvm_type(s.result.type), self.kernel.lanes
        if "*" not in s.result.type:
            half = self.halves[s.result.name] = self.emit(f"load half, ptr {at}, align 2")
            return self.emit(f"fpext half {half} to float")
        raw = self.emit(f"load <{lanes} x {stored}>, ptr {at}, align {ITEMSIZE[s.array.type]}")
        if s.array.type == "float16":
            return self.emit(f"fpext <{lanes} x half> {raw} to {wide}")
        if s.array.type == "bfloat16":  # the upper half of a float32
            words, half = f"<{lanes} x i32>", self._constant(16, form.wide("int32", lanes))
            moved = self.emit(f"shl {words} {self.emit(f'zext <{lanes} x i16> {raw} to {words}')}, {half}")
            return self.emit(f"bitcast {words} {moved} to {wide}")
        return raw

    def _store(self, s: form.Store) -> None:
        if "*" not in s.value.type:
            super()._store(s)
            return
        value, at = self._text(s.value), self._address(s)[1]
        self(f"store {llvm_type(s.value.type)} {value}, ptr {at}, align {ITEMSIZE[s.array.type]}")

    def _value(self, s: form.Do) -> str:
        kind, result = s.args[0].type, llvm_type(s.result.type)
        if kind == "index" and s.op in ARITHMETIC and s.op != "div":  # offsets, which do not wrap
            a, b = map(self._text, s.args)
            return self.emit(f"{ARITHMETIC[s.op]} nsw i64 {a}, {b}")
        if s.op == "below":
            a, b = map(self._text, s.args)
            return self.emit(f"icmp ult i64 {a}, {b}")
        if s.op == "spread":
            lanes, text, half = self.kernel.lanes, self._text(s.args[0]), self.halves.get(s.args[0].name)
            one, vector = (llvm_type(kind), result) if half is None else ("half", f"<{lanes} x half>")
            first = self.emit(f"insertelement {vector} poison, {one} {half or text}, i64 0")
            all_ = self.emit(f"shufflevector {vector} {first}, {vector} poison, <{lanes} x i32> zeroinitializer")
            return all_ if half is None else self.emit(f"fpext {vector} {all_} to {result}")
        if s.op == "table":
            return self.emit(f"freeze {result} <{', '.join(f'float {self._text(a)}' for a in s.args)}>")
        if s.op == "looked_up":
            table, places = self._text(s.args[1]), self._text(s.args[0])
            return self.emit(f"call {result} @llvm.x86.avx512.permvar.sf.512({result} {table}, <16 x i32> {places})")
        if s.op == "largest":
            name = f"llvm.vector.reduce.fmax.v{self.kernel.lanes}f{8 * ITEMSIZE[s.result.type]}"
            return self.emit(f"call {result} @{name}({llvm_type(kind)} {self._text(s.args[0])})")
        if s.op == "total":
            name = f"llvm.vector.reduce.fadd.v{self.kernel.lanes}f{8 * ITEMSIZE[s.result.type]}"
            return self.emit(f"call reassoc {result} @{name}({result} -0.0, {llvm_type(kind)} {self._text(s.args[0])})")
        if s.op == "fma":  # in one instruction where the processor has it
            a, b, c = map(self._text, s.args)
            return self.emit(f"fadd contract {result} {self.emit(f'fmul contract {result} {a}, {b}')}, {c}")
        return super()._value(s)

    def _floating(self, s: form.Do, args: list[str]) -> str:
        kind, x = s.args[0].type, args[0]
        if "*" not in kind:
            return super()._floating(s, args)
        type = llvm_type(kind)
        if s.op == "isnan":
            return self.emit(f"fcmp uno {type} {x}, {x}")
        if s.op == "neg":
            return self.emit(f"fneg {type} {x}")
        if s.op == "sqrt":
            bits = 8 * ITEMSIZE[form.element(kind)]
            return self.emit(f"call {type} @llvm.sqrt.v{self.kernel.lanes}f{bits}({type} {x})")
        if s.op in FUNCTIONS:
            return FUNCTIONS[s.op](Writer(self.emit, PRECISIONS[form.element(kind)], self.kernel.lanes), x)
        raise FormError(f"no {s.op} of vectors of {form.element(kind)} in generated code for processors")
