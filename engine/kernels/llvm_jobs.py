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
        elif isinstance(s, form.Loop):

            def turn(register: str) -> None:
                self.bound[s.index.name] = register
                self._block(s.body)

            self._for(self._text(s.begin), self._text(s.end), turn, self._text(s.step))
        else:
            super()._statement(s)

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
        raise FormError(f"no {s.op} of vectors of {form.element(kind)} in generated code for processors")
