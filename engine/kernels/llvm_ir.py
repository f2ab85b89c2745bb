"""Prints the source form in LLVM's language, for processors.

The function is `void NAME(ptr args, i64 begin, i64 end)`: it does the elements or rows begin..end; args has 8 bytes
for each parameter, in order: a number in its own type, or the address of an array object, whose memory's address stands
`offset` bytes further on (numpy's PyArrayObject_fields; in Python, asking arrays for it is most of a small call), or
where offset is None the memory's address.  What is printed are plain loops that LLVM's vectorizer takes: without
branches, with reductions that may be regrouped, and marked as independent from turn to turn.

- A loop over an index whose rest and quotient by one number are asked for (the coordinates of `elementwise.Walk`)
  becomes two loops, one over each, and the one over quotients likewise: nothing is divided within.
- Sums of float32 are added in runs of RUN places, runs in float64: long rows lose nothing.
- Jobs, which have vectors and loops of their own, are for `llvm_jobs`.
- Neighbouring rows together, where elements of *different* rows lie side by side, are for `llvm_columns`.
- `known`: parameters that are numbers known at compile time (a stride of 1).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from engine.kernels import form
from engine.kernels.form import ITEMSIZE, Array, FormError, Kernel, Pointers, Scalar, Value
from engine.kernels.llvm_math import FUNCTIONS, PRECISIONS, Writer, literal

Body = list[form.Statement]
Bound = str | tuple[str, str]  # a register, or ("variable", place)
TYPES = {"index": "i64", "bool": "i1", "float32": "float", "float64": "double"}
STORED = {"bool": "i8", "float16": "half", "bfloat16": "i16"}
RUN = 512  # places whose float32 terms are added before the sum goes to float64
FLOAT_TESTS = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
ARITHMETIC = {"add": "add", "sub": "sub", "mul": "mul", "div": "div"}
BITS = {"and": "and", "or": "or", "xor": "xor", "land": "and", "lor": "or", "shl": "shl"}
ROUNDINGS = frozenset(["sqrt", "floor", "ceil", "trunc", "rint"])
IDENTITY = {"sum": 0, "product": 1, "max": -math.inf, "min": math.inf, "any": False, "all": True}


def printed(
    kernel: Kernel,
    name: str,
    *,
    known: Mapping[str, int] | None = None,
    attributes: str = "",
    offset: int | None = 16,
    short: bool = False,
) -> str:
    """The module of a kernel, whose function is `name`.

    attributes: of the function, as LLVM writes them.  short: loops are of few turns, so that what is left of them is
    done as one vector with masked lanes.  Raises FormError for functions that are not known here.
    """
    printer = Printer(kernel, name, dict(known or {}), attributes, offset)
    printer.short = short
    return printer.text()


def serial(kernel: Kernel) -> bool:
    """Return whether elements of a kernel meet at one place, so that one thread must do them all, in order."""

    def adds(body: Body) -> bool:
        return any((isinstance(s, form.Store) and s.add) or adds(getattr(s, "body", [])) for s in body)

    return adds(kernel.body)


def llvm_type(type: str) -> str:
    """LLVM's type of values of a type."""
    type, _, lanes = type.partition("*")
    if lanes:
        return f"<{lanes} x {llvm_type(type)}>"
    return TYPES.get(type) or f"i{8 * ITEMSIZE[type]}"


def _unsigned(type: str) -> bool:
    return type.startswith("uint") or type == "bool"


class Printer:
    """Writes one kernel."""

    def __init__(self, kernel: Kernel, name: str, known: dict[str, int], attributes: str, offset: int | None) -> None:
        self.kernel, self.name, self.known, self.offset = kernel, name, known, offset
        self.attributes = attributes
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.meta: list[str] = []
        self.made = 0
        self.bound: dict[str, Bound] = {}  # by the name of a value
        self.given: set[int] = set()  # statements whose results loops give
        self.access = ""
        self.short = False
        self.declared: set[str] = set()
        self.products: dict[tuple[str, str], tuple[str, str]] = {}  # of 64-bit numbers in this block: see `_high`
        self.constant_tables = any(isinstance(p, Pointers) for p in kernel.parameters)

    # --- pieces of text

    def __call__(self, line: str) -> None:
        self.lines.append("  " + line)

    def emit(self, expression: str) -> str:
        """An instruction; the register that holds its result."""
        self.made += 1
        name = f"%t{self.made}"
        self.lines.append(f"  {name} = {expression}")
        if "@llvm." in expression:
            self.declared.add(expression[expression.find("call ") :])
        return name

    def _place(self, type: str, count: int = 1) -> str:
        self.made += 1
        name = f"%s{self.made}"
        self.allocas.append(f"  {name} = alloca {type}, i64 {count}, align 64")
        return name

    def _label(self) -> str:
        self.made += 1
        return f"l{self.made}"

    def _at(self, label: str) -> None:
        self(f"br label %{label}")
        self.lines.append(f"{label}:")
        self.products.clear()

    def _node(self, text: str) -> str:
        self.meta.append(text)
        return f"!{len(self.meta) - 1}"

    def text(self) -> str:
        k = self.kernel
        for n, p in enumerate(k.parameters):
            at = self.emit(f"getelementptr i64, ptr %args, i64 {n}")
            if isinstance(p, Scalar):
                if p.name in self.known:
                    self.bound[p.name] = str(self.known[p.name])
                else:
                    stored = "i8" if p.type == "bool" else llvm_type(p.type)
                    value = self.emit(f"load {stored}, ptr {at}, align 8")
                    self.bound[p.name] = self.emit(f"trunc i8 {value} to i1") if p.type == "bool" else value
            else:
                array = self.emit(f"load ptr, ptr {at}, align 8")
                if self.offset is not None:
                    held = self.emit(f"getelementptr i8, ptr {array}, i64 {self.offset}")
                    array = self.emit(f"load ptr, ptr {held}, align 8")
                self.bound[p.name] = array
        self.bound["count"] = "%end"
        if k.shape == "map":
            self._over(k.index, "%begin", "%end", k.body, self._block, parallel=not serial(k))
        else:
            self._rows()
        self("ret void")
        declarations = sorted({_declaration(d) for d in self.declared})
        head = f"define void @{self.name}(ptr noalias readonly %args, i64 %begin, i64 %end) #0 {{\nentry:"
        parts = [head, *self.allocas, *self.lines, "}", *declarations]
        parts.append(f"attributes #0 = {{ nounwind {self.attributes} }}")
        parts += [f"!{n} = {text}" for n, text in enumerate(self.meta)]
        return "\n".join(parts) + "\n"

    def _rows(self) -> None:
        self._nested(self.kernel.index, "%begin", "%end", self.kernel.body, self._row, self._for)

    def _row(self, register: str) -> None:
        self.bound[self.kernel.index.name] = register
        self._block(self.kernel.body)

    # --- loops

    def _for(
        self, begin: str, end: str, write: Callable[[str], None], step: int | str = 1, notes: tuple[str, ...] = ()
    ) -> None:
        """for register in range(begin, end, step): write(register)."""
        counter = self._place("i64")
        head, body, leave = self._label(), self._label(), self._label()
        self(f"store i64 {begin}, ptr {counter}")
        self._at(head)
        now = self.emit(f"load i64, ptr {counter}")
        self(f"br i1 {self.emit(f'icmp slt i64 {now}, {end}')}, label %{body}, label %{leave}")
        self.lines.append(f"{body}:")
        write(now)
        self(f"store i64 {self.emit(f'add nsw i64 {now}, {step}')}, ptr {counter}")
        loop = ""
        if notes:
            number = len(self.meta)
            self.meta.append("")
            self.meta[number] = f"distinct !{{!{number}, {', '.join(notes)}}}"
            loop = f", !llvm.loop !{number}"
        self(f"br label %{head}{loop}")
        self.lines.append(f"{leave}:")
        self.products.clear()

    def _vector(self, begin: str, end: str, write: Callable[[str], None], body: Body, parallel: bool) -> None:
        """A loop of independent turns (parallel), or a reduction: for the vectorizer, if nothing loops within and no
        variable is carried on.  Other loops that store are not marked: LLVM prints a warning for one that it cannot
        vectorize."""
        if any(isinstance(s, form.Loop | form.Each) or (isinstance(s, form.Set) and not parallel) for s in _all(body)):
            self._for(begin, end, write)
            return
        wanted = parallel or (self.access == "" and not any(isinstance(s, form.Store) for s in _all(body)))
        notes = [self._node('!{!"llvm.loop.vectorize.enable", i1 true}')] if wanted else []
        if notes and self.short:
            notes.append(self._node('!{!"llvm.loop.vectorize.predicate.enable", i1 true}'))
        before = self.access
        if parallel:
            group = self._node("distinct !{}")
            notes.append(self._node(f'!{{!"llvm.loop.parallel_accesses", {group}}}'))
            self.access = f", !llvm.access.group {group}"
        self._for(begin, end, write, notes=tuple(notes))
        self.access = before

    def _over(
        self,
        index: Value,
        begin: str,
        end: str,
        body: Body,
        write: Callable[[Body], None],
        parallel: bool,
    ) -> None:
        """For index in begin..end: write(body); a loop for each coordinate of the index that the body asks for."""

        def turn(register: str) -> None:
            self.bound[index.name] = register
            write(body)

        self._nested(index, begin, end, body, turn, lambda low, high, one: self._vector(low, high, one, body, parallel))

    def _nested(
        self,
        index: Value,
        begin: str,
        end: str,
        body: Body,
        turn: Callable[[str], None],
        loop: Callable[[str, str, Callable[[str], None]], None],
    ) -> None:
        """For index in begin..end: turn(register).

        Where the body has rest and quotient of the index by one number, the loops are one over quotients, which is
        nested likewise, and within it `loop(low, high, turn)` over rests; else there is only the latter.  Of a number
        known at compile time the loop over all rests has that many turns, and those that begin or end elsewhere are
        done by a loop of its own, without vectors.
        """
        rest = next((s for s in body if isinstance(s, form.Do) and s.op == "rest" and s.args[0] is index), None)
        if rest is None or not (rest.args[1].name in self.bound or rest.args[1].constant):
            loop(begin, end, turn)
            return
        by = rest.args[1]
        n = self._text(by)
        if not n.isdigit():
            n = self._clamped("smax", n, "1")  # there may be no turn at all
        quotients = [
            s
            for s in body
            if isinstance(s, form.Do)
            and s.op == "quotient"
            and s.args[0] is index
            and s.args[1].name == by.name
            and s.args[1].constant == by.constant
        ]
        self.given.update(map(id, (rest, *quotients)))
        after = self.emit(f"add i64 {end}, -1")

        def outer(q: str) -> None:
            for s in quotients:
                self.bound[s.result.name] = q
            base = self.emit(f"mul nsw i64 {q}, {n}")
            low = self.emit(f"sub nsw i64 {begin}, {base}")
            high = self.emit(f"sub nsw i64 {end}, {base}")
            low, high = self._clamped("smax", low, "0"), self._clamped("smin", high, n)

            def inner(c: str) -> None:
                self.bound[rest.result.name] = c
                turn(self.emit(f"add nsw i64 {base}, {c}"))

            if not n.isdigit() or index is not self.kernel.index:
                loop(low, high, inner)
                return
            whole, part, leave = self._label(), self._label(), self._label()
            turns = self.emit(f"sub nsw i64 {high}, {low}")
            self(f"br i1 {self.emit(f'icmp eq i64 {turns}, {n}')}, label %{whole}, label %{part}")
            self.lines.append(f"{whole}:")
            loop("0", n, inner)
            self(f"br label %{leave}")
            self.lines.append(f"{part}:")
            self._for(low, high, inner)
            self._at(leave)

        first, last = self.emit(f"sdiv i64 {begin}, {n}"), self.emit(f"sdiv i64 {after}, {n}")
        stop = self.emit(f"select i1 {self.emit(f'icmp slt i64 {begin}, {end}')}, i64 {last}, i64 -1")
        stop = self.emit(f"add nsw i64 {stop}, 1")
        if quotients:
            self._nested(quotients[0].result, first, stop, body, outer, self._for)
        else:
            self._for(first, stop, outer)

    def _clamped(self, how: str, a: str, b: str) -> str:
        return self.emit(f"call i64 @llvm.{how}.i64(i64 {a}, i64 {b})")

    # --- reductions of one row

    def _reduce(self, s: form.Reduce) -> None:
        kind = s.value.type
        type, count = llvm_type(kind), self._text(s.count)
        state = self._place(type)
        self(f"store {type} {self._constant(identity(s), kind)}, ptr {state}")
        if s.by.startswith("arg"):
            self._placed(s, state, type, count)
            return

        def one(body: Body) -> None:
            self._block(body)
            held = self.emit(f"load {type}, ptr {state}")
            self(f"store {type} {self._combined(s.by, kind, held, self._text(s.value), 'reassoc nsz ')}, ptr {state}")

        if s.by != "sum" or kind != "float32":
            self._over(s.index, "0", count, s.body, one, False)
            self.bound[s.results[0].name] = self.emit(f"load {type}, ptr {state}")
            return
        wide = self._place("double")
        self(f"store double 0.0, ptr {wide}")

        def run(low: str) -> None:
            high = self._clamped("smin", self.emit(f"add nsw i64 {low}, {RUN}"), count)
            self(f"store float 0.0, ptr {state}")
            self._over(s.index, low, high, s.body, one, False)
            more = self.emit(f"fpext float {self.emit(f'load float, ptr {state}')} to double")
            self(f"store double {self._sum_of(wide, more)}, ptr {wide}")

        self._for("0", count, run, RUN)
        self.bound[s.results[0].name] = self.emit(f"fptrunc double {self.emit(f'load double, ptr {wide}')} to float")

    def _sum_of(self, place: str, more: str) -> str:
        held = self.emit(f"load double, ptr {place}")
        return self.emit(f"fadd double {held}, {more}")

    def _placed(self, s: form.Reduce, state: str, type: str, count: str) -> None:
        """argmax, argmin: of equal values the first place; nan before all."""
        place = self._place("i64")
        self(f"store i64 -1, ptr {place}")
        more = "gt" if s.by == "argmax" else "lt"

        def one(body: Body) -> None:
            self._block(body)
            value, held = self._text(s.value), self.emit(f"load {type}, ptr {state}")
            where = self.emit(f"load i64, ptr {place}")
            better = self._compared(more, s.value.type, value, held)
            if s.value.type in form.FLOATS:
                nan = self.emit(f"fcmp uno {type} {value}, {value}")
                known = self.emit(f"fcmp ord {type} {held}, {held}")
                better = self.emit(f"or i1 {better}, {self.emit(f'and i1 {nan}, {known}')}")
            better = self.emit(f"or i1 {better}, {self.emit(f'icmp slt i64 {where}, 0')}")
            self(f"store {type} {self.emit(f'select i1 {better}, {type} {value}, {type} {held}')}, ptr {state}")
            j = self.bound[s.index.name]
            self(f"store i64 {self.emit(f'select i1 {better}, i64 {j}, i64 {where}')}, ptr {place}")

        self._over(s.index, "0", count, s.body, one, False)
        self.bound[s.results[0].name] = self.emit(f"load {type}, ptr {state}")
        self.bound[s.results[1].name] = self.emit(f"load i64, ptr {place}")

    def _combined(self, by: str, kind: str, a: str, b: str, flags: str = "") -> str:
        type = llvm_type(kind)
        floating = kind in form.FLOATS
        if by in ("max", "min"):
            return self._extreme(by, kind, a, b)
        if by in ("any", "all"):
            return self.emit(f"{'or' if by == 'any' else 'and'} {type} {a}, {b}")
        op = "add" if by == "sum" else "mul"
        return self.emit(f"f{op} {flags}{type} {a}, {b}" if floating else f"{op} {type} {a}, {b}")

    def _extreme(self, by: str, kind: str, a: str, b: str) -> str:
        type = llvm_type(kind)
        if kind == "bool":
            return self.emit(f"{'or' if by == 'max' else 'and'} i1 {a}, {b}")
        if kind in form.FLOATS:
            name = f"{by}imum.{'f32' if kind == 'float32' else 'f64'}"
            return self.emit(f"call nsz {type} @llvm.{name}({type} {a}, {type} {b})")
        sign = "u" if _unsigned(kind) else "s"
        return self.emit(f"call {type} @llvm.{sign}{by}.{type}({type} {a}, {type} {b})")

    # --- statements

    def _block(self, body: Body) -> None:
        for s in body:
            if id(s) not in self.given:
                self._statement(s)

    def _statement(self, s: form.Statement) -> None:
        if isinstance(s, form.Do):
            self.bound[s.result.name] = self._value(s)
        elif isinstance(s, form.Load):
            self.bound[s.result.name] = self._load(s)
        elif isinstance(s, form.Store):
            self._store(s)
        elif isinstance(s, form.Variable):
            place = self._place(llvm_type(s.result.type))
            self(f"store {llvm_type(s.result.type)} {self._text(s.start)}, ptr {place}")
            self.bound[s.result.name] = ("variable", place)
        elif isinstance(s, form.Set):
            place = self.bound[s.variable.name][1]
            self(f"store {llvm_type(s.variable.type)} {self._text(s.value)}, ptr {place}")
        elif isinstance(s, form.Reduce):
            self._reduce(s)
        elif isinstance(s, form.Loop):
            if s.step.constant != 1:
                raise FormError(f"a loop in steps in {self.kernel.name}: those are for jobs")
            self._over(s.index, self._text(s.begin), self._text(s.end), s.body, self._block, False)
        elif isinstance(s, form.When):
            inside, after = self._label(), self._label()
            self(f"br i1 {self._text(s.condition)}, label %{inside}, label %{after}")
            self.lines.append(f"{inside}:")
            self._block(s.body)
            self._at(after)
        elif isinstance(s, form.Each):
            self._over(s.index, "0", self._text(s.count), s.body, self._block, True)
        elif isinstance(s, form.Once):
            self._block(s.body)
        else:
            raise FormError(f"{type(s).__name__} in {self.kernel.name}")

    def _address(self, s: form.Load | form.Store) -> tuple[str, str]:
        array = s.array
        stored = STORED.get(array.type) or llvm_type(array.type)
        base = self.bound[array.name]
        if isinstance(array, Pointers):
            at = self.emit(f"getelementptr ptr, ptr {base}, i64 {self._text(s.which)}")
            base = self.emit(f"load ptr, ptr {at}, align 8, !invariant.load {self._node('!{}')}")
        return stored, self.emit(f"getelementptr {stored}, ptr {base}, i64 {self._text(s.index)}")

    def _load(self, s: form.Load) -> str:
        stored, at = self._address(s)
        fixed = self.constant_tables and isinstance(s.array, Array) and not s.array.written
        note = f", !invariant.load {self._node('!{}')}" if fixed else self.access
        raw = self.emit(f"load {stored}, ptr {at}, align {ITEMSIZE[s.array.type]}{note}")
        if s.array.type == "bool":
            return self.emit(f"icmp ne i8 {raw}, 0")
        if s.array.type == "float16":
            return self.emit(f"fpext half {raw} to float")
        if s.array.type == "bfloat16":
            wide = self.emit(f"shl i32 {self.emit(f'zext i16 {raw} to i32')}, 16")
            return self.emit(f"bitcast i32 {wide} to float")
        return raw

    def _store(self, s: form.Store) -> None:
        stored, at = self._address(s)
        value, align = self._text(s.value), ITEMSIZE[s.array.type]
        if s.array.type == "bool":
            value = self.emit(f"zext i1 {value} to i8")
        elif s.array.type == "float16":
            value = self.emit(f"fptrunc float {value} to half")
        elif s.array.type == "bfloat16":
            value = self._rounded(value)
        if s.add:
            held = self.emit(f"load {stored}, ptr {at}, align {align}")
            op = "fadd" if s.array.type in form.FLOATS else "add"
            value = self.emit(f"{op} {stored} {held}, {value}")
        self(f"store {stored} {value}, ptr {at}, align {align}{self.access}")

    def _rounded(self, value: str) -> str:
        """The upper half of a float32, rounded to nearest, ties to even."""
        bits = self.emit(f"bitcast float {value} to i32")
        odd = self.emit(f"and i32 {self.emit(f'lshr i32 {bits}, 16')}, 1")
        up = self.emit(f"add i32 {self.emit(f'add i32 {bits}, 32767')}, {odd}")
        nan = self.emit(f"fcmp uno float {value}, {value}")
        chosen = self.emit(f"select i1 {nan}, i32 {self.emit(f'or i32 {bits}, 4194304')}, i32 {up}")
        return self.emit(f"trunc i32 {self.emit(f'lshr i32 {chosen}, 16')} to i16")

    # --- values

    def _text(self, value: Value | None) -> str:
        assert value is not None
        if value.constant is not None:
            return self._constant(value.constant, value.type)
        found = self.bound.get(value.name)
        if found is None:
            found = self._missing(value)
        if found is None:
            raise FormError(f"{value!r} of {self.kernel.name} is not known here")
        if isinstance(found, str):
            return found
        return self.emit(f"load {llvm_type(value.type)}, ptr {found[1]}")

    def _missing(self, value: Value) -> Bound | None:
        """A value that no statement bound here."""
        return None

    @staticmethod
    def _constant(number: form.Number, type: str) -> str:
        if "*" in type:
            one, _, lanes = type.partition("*")
            text = f"{llvm_type(one)} {Printer._constant(number, one)}"
            return f"<{', '.join([text] * int(lanes))}>"
        if type == "bool":
            return "true" if number else "false"
        if type in form.FLOATS:
            return literal(float(number), type == "float32")
        return str(int(number))

    def _compared(self, op: str, kind: str, a: str, b: str) -> str:
        type = llvm_type(kind)
        if form.element(kind) in form.FLOATS:
            return self.emit(f"fcmp {FLOAT_TESTS[op]} {type} {a}, {b}")
        sign = "" if op in ("eq", "ne") else "u" if _unsigned(kind) else "s"
        return self.emit(f"icmp {sign}{op} {type} {a}, {b}")

    def _value(self, s: form.Do) -> str:
        op, kind = s.op, s.args[0].type
        args = [self._text(a) for a in s.args]
        type = llvm_type(kind)
        floating = form.element(kind) in form.FLOATS
        if op == "cast":
            return self._cast(args[0], kind, s.result.type)
        if op == "where":
            where, type = type, llvm_type(s.result.type)
            return self.emit(f"select {where} {args[0]}, {type} {args[1]}, {type} {args[2]}")
        if op in form.COMPARISONS:
            return self._compared(op, kind, args[0], args[1])
        if op in ("max", "min"):
            return self._extreme(op, kind, args[0], args[1])
        if op == "mul" and kind == "uint64" and (args[0], args[1]) in self.products:
            low, middle = self.products[args[0], args[1]]
            return self.emit(f"or i64 {self.emit(f'shl i64 {middle}, 32')}, {self._half(low, 0)}")
        if op in ARITHMETIC and (floating or op != "div") and kind != "bool":
            return self.emit(f"{'f' if floating else ''}{ARITHMETIC[op]} {type} {args[0]}, {args[1]}")
        if op in BITS and not floating:
            return self.emit(f"{BITS[op]} {type} {args[0]}, {args[1]}")
        if floating:
            return self._floating(s, args)
        return self._whole(op, kind, args)

    def _floating(self, s: form.Do, args: list[str]) -> str:
        op, kind = s.op, s.args[0].type
        w = Writer(self.emit, PRECISIONS[kind])
        x = args[0]
        if op in FUNCTIONS:
            return FUNCTIONS[op](w, x)
        if op in ROUNDINGS:
            return w.call(op, x)
        if op == "rsqrt":
            return w.div(1.0, w.call("sqrt", x))
        if op == "neg":
            return self.emit(f"fneg {w.t} {x}")
        if op == "abs":
            return w.call("fabs", x)
        if op == "copysign":
            return w.call("copysign", *args)
        if op == "hypot" and kind == "float32":
            return self._hypotenuse(args)
        if op in ("fmax", "fmin"):
            return w.select(w.compare("ogt" if op == "fmax" else "olt", x, args[1]), x, args[1])
        if op == "isnan":
            return w.compare("uno", x, x)
        if op == "isinf":
            return w.compare("oeq", w.call("fabs", x), math.inf)
        if op == "isfinite":
            return w.compare("olt", w.call("fabs", x), math.inf)
        if op == "signbit":
            return self.emit(f"icmp slt {w.i} {w.bits(x)}, 0")
        if op == "sign":
            one = w.select(w.compare("olt", x, 0.0), -1.0, w.select(w.compare("ogt", x, 0.0), 1.0, 0.0))
            return w.select(w.compare("uno", x, x), x, one)
        if op == "pow" and s.args[1].constant in (1, 2, 3, 4):
            found = x
            for _ in range(int(s.args[1].constant) - 1):
                found = w.mul(found, x)
            return found
        raise FormError(f"no {op} of {kind} in generated code for processors")

    def _hypotenuse(self, args: list[str]) -> str:
        """sqrt(a^2 + b^2) of float32 in float64, whose squares are exact and do not overflow; inf beside nan is inf."""
        w, wide = Writer(self.emit, PRECISIONS["float32"]), Writer(self.emit, PRECISIONS["float64"])
        a, b = (self._cast(x, "float32", "float64") for x in args)
        found = self._cast(wide.call("sqrt", wide.fma(a, a, wide.mul(b, b))), "float64", "float32")
        for x in args:
            found = w.select(w.compare("oeq", w.call("fabs", x), math.inf), math.inf, found)
        return found

    def _whole(self, op: str, kind: str, args: list[str]) -> str:
        type = llvm_type(kind)
        x = args[0]
        if op in ("quotient", "rest"):
            return self.emit(f"{'udiv' if op == 'quotient' else 'urem'} {type} {x}, {args[1]}")
        if op == "neg":
            return self.emit(f"sub {type} 0, {x}")
        if op == "not" or (op == "invert" and kind == "bool"):
            return self.emit(f"xor i1 {x}, true") if kind == "bool" else self._compared("eq", kind, x, "0")
        if op == "invert":
            return self.emit(f"xor {type} {x}, -1")
        if op == "abs":
            return x if _unsigned(kind) else self.emit(f"call {type} @llvm.abs.{type}({type} {x}, i1 false)")
        if op == "sign":
            positive = self.emit(f"zext i1 {self._compared('gt', kind, x, '0')} to {type}")
            return self.emit(f"sub {type} {positive}, {self.emit(f'zext i1 {self._negative(kind, x)} to {type}')}")
        if op == "shr":
            return self.emit(f"{'lshr' if _unsigned(kind) else 'ashr'} {type} {x}, {args[1]}")
        if op == "high" and kind == "uint64":
            return self._high(args[0], args[1])
        raise FormError(f"no {op} of {kind} in generated code for processors")

    def _negative(self, kind: str, x: str) -> str:
        return "false" if _unsigned(kind) else self._compared("lt", kind, x, "0")

    def _high(self, a: str, b: str) -> str:
        """The upper half of a product of 64-bit numbers: of halves where there are vectors of their products, since
        LLVM would take vectors apart for the instruction of scalars.
        """
        if "x86-64-v" not in self.attributes:
            a, b = (self.emit(f"zext i64 {v} to i128") for v in (a, b))
            product = self.emit(f"mul i128 {a}, {b}")
            return self.emit(f"trunc i128 {self.emit(f'lshr i128 {product}, 64')} to i64")
        (a0, a1), (b0, b1) = ([self._half(v, n) for n in (0, 1)] for v in (a, b))
        times: Callable[[str, str], str] = lambda x, y: self.emit(f"mul i64 {x}, {y}")
        plus: Callable[[str, str], str] = lambda x, y: self.emit(f"add i64 {x}, {y}")
        low = times(a0, b0)
        inner = plus(times(a1, b0), self._half(low, 1))
        middle = plus(times(a0, b1), self._half(inner, 0))
        self.products[a, b] = low, middle
        return plus(plus(times(a1, b1), self._half(inner, 1)), self._half(middle, 1))

    def _half(self, x: str, n: int) -> str:
        """The lower (0) or upper half of a 64-bit number, as one of 64 bits."""
        if x.isdigit():
            return str(int(x) >> 32 if n else int(x) & 0xFFFFFFFF)
        return self.emit(f"lshr i64 {x}, 32" if n else f"and i64 {x}, 4294967295")

    def _cast(self, x: str, source: str, target: str) -> str:
        a, b = llvm_type(source), llvm_type(target)
        if target == "bool":
            return self._compared("ne", source, x, literal(0.0, source == "float32") if source in form.FLOATS else "0")
        if form.element(source) in form.FLOATS:
            if form.element(target) in form.FLOATS:
                return x if a == b else self.emit(f"{'fpext' if a == 'float' else 'fptrunc'} {a} {x} to {b}")
            return self.emit(f"{'fptoui' if _unsigned(target) else 'fptosi'} {a} {x} to {b}")
        if form.element(target) in form.FLOATS:
            return self.emit(f"{'uitofp' if _unsigned(source) else 'sitofp'} {a} {x} to {b}")
        if a == b:
            return x
        if _bits(a) > _bits(b):
            return self.emit(f"trunc {a} {x} to {b}")
        return self.emit(f"{'zext' if _unsigned(source) else 'sext'} {a} {x} to {b}")


def _bits(type: str) -> int:
    """Of an integer type of LLVM's, or of one lane of a vector of them."""
    return int(type.rpartition("i")[2].rstrip(">"))


def identity(s: form.Reduce) -> form.Number:
    by = {"argmax": "max", "argmin": "min"}.get(s.by, s.by)
    if by in ("max", "min") and s.value.type not in form.FLOATS:
        return limit(s.value.type, by == "min")
    return IDENTITY[by]


def limit(type: str, high: bool) -> int:
    """The largest or least number of an integer type."""
    if type == "bool":
        return int(high)
    bits = 8 * ITEMSIZE["int64" if type == "index" else type]
    if type.startswith("uint"):
        return (1 << bits) - 1 if high else 0
    return (1 << bits - 1) - 1 if high else -(1 << bits - 1)


def _all(body: Body) -> Body:
    """The statements of a body and of what stands within it."""
    found: Body = []
    for s in body:
        found.append(s)
        found += _all(getattr(s, "body", []))
    return found


def _declaration(call: str) -> str:
    """The declaration of the function that a call names."""
    head, _, rest = call.partition("@")
    name, _, args = rest.partition("(")
    types = re.findall(r"(?:^|, )(<[^>]*>|\w+) (?:<[^>]*>|[^,<]+)", args.rstrip(")"))
    result = head[head.index("<") :].strip() if "<" in head else head.split()[-1]
    return f"declare {result} @{name}({', '.join(types)})"
