"""Prints the source form as CUDA C, for NVRTC and for the shim.

A map: each thread takes every (threads in all)-th element, or that many times VECTOR neighbours with one load of 16
bytes where arrays lie as the elements are counted.  Rows, by `group`:
- "warp": a warp a row, blockDim (32, warps): short rows;
- "block": a block a row, blockDim (threads): long ones;
- "columns": neighbouring threads take neighbouring rows, blockDim (32, parts): where the elements of *different* rows
  lie side by side, as in sums over the first dim.
"""

from __future__ import annotations

import math

from engine.kernels import form
from engine.kernels.form import ITEMSIZE, Array, Kernel, Pointers, Value

NAMES = {"index": "index", "bool": "bool", "float32": "float", "float64": "double"}
UNSIGNED = {"int8": "uint8", "int16": "uint16", "int32": "uint32", "int64": "uint64"}
MATHS = frozenset([
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "floor", "ceil", "trunc", "rint", "pow", "fmod",
    "atan2", "hypot", "copysign", "nextafter", "cbrt",
])  # fmt: skip
INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "quotient": "/",
    "rest": "%",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
    "land": "&&",
    "lor": "||",
    "and": "&",
    "or": "|",
    "xor": "^",
}
CALLS = {
    "max": "nan_max",
    "min": "nan_min",
    "fmax": "plain_max",
    "fmin": "plain_min",
    "sign": "sign_of",
    "isinf": "is_inf",
    "isfinite": "is_finite",
    "high": "high_product",
}
IDENTITY = {"sum": 0, "product": 1, "max": -math.inf, "min": math.inf, "any": False, "all": True}
THREADS = 256  # of a block
COLUMNS = (32, 8)  # a block of "columns"
SCRATCH = {"warp": 0, "block": 32, "columns": COLUMNS[0] * COLUMNS[1]}


def type_name(type: str) -> str:
    """The C name of a type."""
    return NAMES.get(type, type)


def printed(kernel: Kernel, *, group: str = "block", wide: bool = False, vector: int = 1) -> str:
    """The CUDA C source of a kernel, whose entry point has its name.

    group: how a row is shared.  wide: counts and offsets of 64 bits.  vector: neighbouring elements per thread takes at
    once (arrays marked dense are then loaded 16 bytes at a time and must be aligned so).
    """
    if kernel.shape == "jobs":  # of one thread each, too long for those of a GPU
        raise form.FormError(f"{kernel.name}: no jobs in CUDA C")
    return _Printer(kernel, group, wide, vector).text()


def vector_of(kernel: Kernel) -> int:
    """Return the number of neighbours in 16 bytes of the widest dense array; 1 if an array is not dense."""
    dense = [p for p in kernel.parameters if isinstance(p, Array) and p.dense]
    if kernel.shape != "map" or not dense:
        return 1
    return max(1, 16 // max(ITEMSIZE[p.type] for p in dense))


class _Printer:
    def __init__(self, kernel: Kernel, group: str, wide: bool, vector: int) -> None:
        self.kernel, self.group, self.wide = kernel, group, wide
        self.vector = vector if kernel.shape == "map" else 1
        self.lines: list[str] = []
        self.depth = 0
        self.lane = ""  # within the vector loop: the number of the neighbour

    def __call__(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def text(self) -> str:
        k = self.kernel
        self('#include "prelude.cuh"')
        if k.shape == "rows":
            self('#include "group.cuh"')
        self("#undef index")
        self(f"#define index {'int64' if self.wide else 'int32'}")
        parts = [self._parameter(p) for p in k.parameters]
        limit = COLUMNS[0] * COLUMNS[1] if self.group == "columns" else THREADS
        self(f'extern "C" __global__ void __launch_bounds__({limit}) {k.name}({", ".join([*parts, "index count"])}) {{')
        self.depth = 1
        if k.shape == "map":
            self._map()
        else:
            self._rows()
        self.depth = 0
        self("}")
        return "\n".join(self.lines) + "\n"

    @staticmethod
    def _parameter(p: Array | Pointers | form.Scalar) -> str:
        name = type_name(p.type)
        if isinstance(p, Array):
            return f"{name} *{p.name}" if p.written else f"const {name} *__restrict__ {p.name}"
        if isinstance(p, Pointers):
            return f"{name} *const *__restrict__ {p.name}"
        return f"{name} {p.name}"

    # --- maps

    def _map(self) -> None:
        step = "(index)gridDim.x * blockDim.x"
        first = "(index)blockIdx.x * blockDim.x + threadIdx.x"
        v = self.vector
        if v == 1:
            self(f"for (index i = {first}; i < count; i += {step}) {{")
            self._block(self.kernel.body)
            self("}")
            return
        self(f"for (index base = ({first}) * {v}; base < count; base += {step} * {v}) {{")
        self.depth += 1
        self(f"if (base + {v} <= count) {{")
        self.depth += 1
        dense = [p for p in self.kernel.parameters if isinstance(p, Array) and p.dense]
        for p in dense:
            kind = f"several<{type_name(p.type)}, {v}>"
            read = f" = *(const {kind} *)({p.name} + base)" if self._reads(p) else ""
            self(f"{kind} all_{p.name}{read};")
        self("#pragma unroll")
        self(f"for (int lane = 0; lane < {v}; ++lane) {{")
        self.depth += 1
        self("index i = base + lane;")
        self.lane = "lane"
        self.depth -= 1
        self._block(self.kernel.body)
        self.lane = ""
        self("}")
        for p in dense:
            if p.written:
                self(f"*(several<{type_name(p.type)}, {v}> *)({p.name} + base) = all_{p.name};")
        self.depth -= 1
        self("} else {")
        self.depth += 1
        self("for (index i = base; i < count; ++i) {")
        self._block(self.kernel.body)
        self("}")
        self.depth -= 1
        self("}")
        self.depth -= 1
        self("}")

    def _reads(self, array: Array) -> bool:
        """Return whether the map loads from a dense array at its own index, or may leave a place of it unwritten."""
        stores = [s for s in self.kernel.body if isinstance(s, form.Store) and s.array is array]
        return (
            not array.written
            or not stores
            or any(isinstance(s, form.Load) and s.array is array for s in self.kernel.body)
        )

    # --- rows

    def _rows(self) -> None:
        kinds = sorted({self._kept(s) for s in self.kernel.body if isinstance(s, form.Reduce)})
        if SCRATCH[self.group]:
            for kind in kinds:
                self(f"__shared__ {kind} {self._scratch(kind)}[{SCRATCH[self.group]}];")
        if self.group == "columns":
            self("for (index first = blockIdx.x * blockDim.x; first < count; first += (index)gridDim.x * blockDim.x) {")
            self.depth += 1
            self("const bool active = first + threadIdx.x < count;")
            self("const index i = active ? first + threadIdx.x : count - 1;")
            self("const index part = threadIdx.y, parts = blockDim.y;")
        elif self.group == "warp":
            self(
                "for (index i = blockIdx.x * blockDim.y + threadIdx.y; i < count; i += (index)gridDim.x * blockDim.y) {"
            )
            self.depth += 1
            self("const bool active = true;")
            self("const index part = threadIdx.x, parts = 32;")
        else:
            self("for (index i = blockIdx.x; i < count; i += gridDim.x) {")
            self.depth += 1
            self("const bool active = true;")
            self("const index part = threadIdx.x, parts = blockDim.x;")
        self.depth -= 1
        self._block(self.kernel.body)
        self("}")

    @staticmethod
    def _kept(s: form.Reduce) -> str:
        name = type_name(s.value.type)
        return f"placed<{name}>" if s.by.startswith("arg") else name

    @staticmethod
    def _scratch(kind: str) -> str:
        return "scratch_" + kind.replace("<", "_").replace(">", "")

    def _reduce(self, s: form.Reduce) -> None:
        kind, name = self._kept(s), s.results[0].name
        by_place = s.by.startswith("arg")
        state = f"at_{name}"
        if by_place:  # what has no place loses against all: nan against nan, then the later place
            self(f"{kind} {state};")
            self(f"{state}.value = {self._worst(s)}; {state}.place = 0x7fffffffffffffffLL;")
        else:
            self(f"{kind} {state} = {self._number(self._identity(s), s.value.type)};")
        self("#pragma unroll 4")  # several loads are under way at once; the order of what is added is the same
        self(self._shared(s.index, s.count) + " {")
        self._block(s.body)
        self.depth += 1
        by = f"by_{s.by}"
        if by_place:
            self(f"{kind} one; one.value = {self._text(s.value)}; one.place = {s.index.name};")
            self(f"{state} = {by}::of({state}, one);")
        else:
            self(f"{state} = {by}::of({state}, {self._text(s.value)});")
        self.depth -= 1
        self("}")
        how = {"warp": "warp_reduce", "block": "block_reduce", "columns": "column_reduce"}[self.group]
        more = f", {self._scratch(kind)}" if SCRATCH[self.group] else ""
        self(f"{state} = {how}<{by}>({state}{more});")
        if by_place:
            self(f"const {type_name(s.value.type)} {name} = {state}.value;")
            self(f"const int64 {s.results[1].name} = {state}.place;")
        else:
            self(f"const {kind} {name} = {state};")

    @staticmethod
    def _identity(s: form.Reduce) -> form.Number:
        if s.by in ("max", "min") and s.value.type not in form.FLOATS:
            return _limit(s.value.type, s.by == "min")
        return IDENTITY[s.by]

    def _worst(self, s: form.Reduce) -> str:
        high = s.by == "argmin"
        if s.value.type in form.FLOATS:
            return self._number(math.inf if high else -math.inf, s.value.type)
        return self._number(_limit(s.value.type, high), s.value.type)

    # --- statements

    def _block(self, body: list[form.Statement]) -> None:
        self.depth += 1
        for s in body:
            self._statement(s)
        self.depth -= 1

    def _statement(self, s: form.Statement) -> None:
        if isinstance(s, form.Do):
            self(f"const {type_name(s.result.type)} {s.result.name} = {self._expression(s)};")
        elif isinstance(s, form.Load):
            self(f"const {type_name(s.result.type)} {s.result.name} = widened({self._place(s)});")
        elif isinstance(s, form.Store):
            self._store(s)
        elif isinstance(s, form.Variable):
            self(f"{type_name(s.result.type)} {s.result.name} = {self._text(s.start)};")
        elif isinstance(s, form.Set):
            self(f"{s.variable.name} = {self._text(s.value)};")
        elif isinstance(s, form.Reduce):
            self._reduce(s)
        elif isinstance(s, form.Loop | form.When | form.Each | form.Once):  # the others are of jobs
            self(self._head(s) + " {")
            self._block(s.body)
            self("}")

    def _head(self, s: form.Loop | form.When | form.Each | form.Once) -> str:
        if isinstance(s, form.Loop):
            j = s.index.name
            step = f"++{j}" if s.step.constant == 1 else f"{j} += {self._text(s.step)}"
            return f"for (index {j} = {self._text(s.begin)}; {j} < {self._text(s.end)}; {step})"
        if isinstance(s, form.When):
            return f"if ({self._text(s.condition)})"
        if isinstance(s, form.Each):
            return self._shared(s.index, s.count)
        return "if (active && part == 0)"  # Once

    def _shared(self, index: Value, count: Value) -> str:
        """The loop over a row's places that threads share."""
        j, n = index.name, self._text(count)
        return f"for (index {j} = active ? part : {n}; {j} < {n}; {j} += parts)"

    def _place(self, s: form.Load | form.Store) -> str:
        array = s.array
        if isinstance(array, Pointers):
            return f"{array.name}[{self._text(s.which)}][{self._text(s.index)}]"
        if self.lane and array.dense and s.index is self.kernel.index:
            return f"all_{array.name}.at[lane]"
        return f"{array.name}[{self._text(s.index)}]"

    def _store(self, s: form.Store) -> None:
        value = f"narrowed<{type_name(s.array.type)}>::of({self._text(s.value)})"
        if s.add:
            self(f"add_atomically({s.array.name} + {self._text(s.index)}, {value});")
        else:
            self(f"{self._place(s)} = {value};")

    # --- expressions

    def _text(self, value: Value | None) -> str:
        assert value is not None
        if value.constant is not None:
            return self._number(value.constant, value.type)
        return value.name

    @staticmethod
    def _number(number: form.Number, type: str) -> str:
        if type == "bool":
            return "true" if number else "false"
        if type in form.FLOATS:
            number = float(number)
            suffix = "f" if type == "float32" else ""
            if math.isnan(number):
                return f"(infinite(0.0{suffix}) - infinite(0.0{suffix}))"
            if math.isinf(number):
                return f"{'-' if number < 0 else ''}infinite(0.0{suffix})"
            if suffix:
                import numpy as np

                with np.errstate(over="ignore"):
                    rounded = np.float32(number)
                if np.isinf(rounded):
                    return f"{'-' if number < 0 else ''}infinite(0.0f)"
                return f"({float(rounded)!r}f)"
            return f"({number!r})"
        number = int(number)
        if type in ("uint64", "uint32"):
            return f"{number}ull" if type == "uint64" else f"{number}u"
        if number == -(2**63):
            return "(-9223372036854775807LL - 1)"
        return f"(({type_name(type)}){number}{'LL' if abs(number) >= 2**31 else ''})"

    def _expression(self, s: form.Do) -> str:
        args = [self._text(a) for a in s.args]
        type, operand = s.result.type, s.args[0].type
        name = type_name(type)
        op = s.op
        if op == "cast":
            return f"({args[0]} != 0)" if type == "bool" else f"({name}){args[0]}"
        if op == "where":
            return f"{args[0]} ? {args[1]} : {args[2]}"
        if (
            op in UNSIGNED_OPS and operand in UNSIGNED
        ):  # numpy's integers wrap; C's signed ones must not be relied on to
            wide = UNSIGNED[operand]
            if op == "neg":
                return f"({name})(0u - ({wide}){args[0]})"
            return f"({name})(({wide}){args[0]} {INFIX[op]} ({wide}){args[1]})"
        if op in INFIX:
            text = f"{args[0]} {INFIX[op]} {args[1]}"
            return text if type in ("bool", "index", *form.FLOATS) else f"({name})({text})"
        if op in MATHS:
            if operand not in form.FLOATS:
                raise form.FormError(f"{op} of {operand}")
            return f"{op}{'f' if operand == 'float32' else ''}({', '.join(args)})"
        if op in CALLS:
            return f"{CALLS[op]}({', '.join(args)})"
        return _special(op, args, operand, name)


UNSIGNED_OPS = frozenset(["add", "sub", "mul", "neg"])


def _special(op: str, args: list[str], operand: str, name: str) -> str:
    suffix = "f" if operand == "float32" else ""
    floating = operand in form.FLOATS
    if op == "neg":
        return f"-{args[0]}" if floating or operand == "index" else f"({name})-{args[0]}"
    if op == "rsqrt":
        return f"1.0{suffix} / sqrt{suffix}({args[0]})"
    if op == "abs":
        if floating:
            return f"fabs{suffix}({args[0]})"
        return args[0] if operand.startswith("uint") else f"({name})({args[0]} < 0 ? 0u - {args[0]} : {args[0]})"
    if op == "isnan":
        return f"({args[0]} != {args[0]})"
    if op == "not":
        return f"!{args[0]}"
    if op == "invert":
        return f"!{args[0]}" if operand == "bool" else f"({name})~{args[0]}"
    if op == "signbit" and floating:
        return f"(copysign{suffix}(1.0{suffix}, {args[0]}) < 0)"
    if op == "remainder" and floating:
        return f"float_remainder({args[0]}, {args[1]}, fmod{suffix}({args[0]}, {args[1]}))"
    if op == "shl":
        return f"({name})({args[0]} << {args[1]})"
    if op == "shr":
        return f"({name})({args[0]} >> {args[1]})"
    raise form.FormError(f"no {op} of {operand} in CUDA C")


def _limit(type: str, high: bool) -> int:
    if type == "bool":
        return int(high)
    bits = 8 * ITEMSIZE["int64" if type == "index" else type]
    if type.startswith("uint"):
        return (1 << bits) - 1 if high else 0
    return (1 << bits - 1) - 1 if high else -(1 << bits - 1)
