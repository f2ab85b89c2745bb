"""Functions in LLVM's language, written line by line: what Winograd's convolutions are put together of."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

__all__ = ["Text", "Vectors"]


class Text:
    """Lines of a function, and names for its values and labels."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.made = 0
        self.here = "entry"

    def __call__(self, line: str) -> None:
        self.lines.append("  " + line)

    def emit(self, expression: str) -> str:
        """An instruction; the register that holds its result."""
        self.made += 1
        self(f"%t{self.made} = {expression}")
        return f"%t{self.made}"

    def plus(self, a: object, b: object) -> str:
        """a + b."""
        return self.emit(f"add nsw i64 {a}, {b}")

    def minus(self, a: object, b: object) -> str:
        """a - b."""
        return self.emit(f"sub nsw i64 {a}, {b}")

    def times(self, a: object, b: object) -> str:
        """a * b."""
        return self.emit(f"mul nsw i64 {a}, {b}")

    def place(self, type: str, base: str, index: object) -> str:
        """The address of base[index]."""
        return self.emit(f"getelementptr {type}, ptr {base}, i64 {index}")

    def load(self, type: str, base: str, index: object, align: int) -> str:
        """base[index]."""
        return self.emit(f"load {type}, ptr {self.place(type, base, index)}, align {align}")

    def label(self) -> str:
        """A name for a place."""
        self.made += 1
        return f"l{self.made}"

    def at(self, label: str, jump: bool = True) -> None:
        """Begin a block under a label, with a jump to it unless `jump` is False."""
        if jump:
            self(f"br label %{label}")
        self.lines.append(f"{label}:")
        self.here = label

    def loop(
        self,
        begin: str,
        end: str,
        step: int | str,
        body: Callable[[str, list[str]], list[str]],
        held: list[tuple[str, str]] | None = None,
    ) -> list[str]:
        """`for i in range(begin, end, step)`; `held`: (type, first value) of what turns hand on, `body(i, values)`
        gives the next ones.  What they are at the end is returned."""
        held = held or []
        head, inner, after = self.label(), self.label(), self.label()
        before = self.here
        self.at(head)
        index = f"%i{head}"
        names = [f"%h{head}.{n}" for n in range(len(held))]
        place = len(self.lines)
        more = self.emit(f"icmp slt i64 {index}, {end}")
        self(f"br i1 {more}, label %{inner}, label %{after}")
        self.at(inner, jump=False)
        given = body(index, names)
        following = self.emit(f"add nsw i64 {index}, {step}")
        last = self.here
        self(f"br label %{head}")
        phis = [f"  {index} = phi i64 [ {begin}, %{before} ], [ {following}, %{last} ]"]
        for name, (type, first), value in zip(names, held, given):
            phis.append(f"  {name} = phi {type} [ {first}, %{before} ], [ {value}, %{last} ]")
        self.lines[place:place] = phis
        self.at(after, jump=False)
        return names


class Vectors(Text):
    """Arithmetic on vectors of float32."""

    def __init__(self, parameters: Sequence[str], lanes: int) -> None:
        super().__init__()
        self.lanes, self.type = lanes, f"<{lanes} x float>"
        self.args = {p: self.load("i64", "%args", n, 8) for n, p in enumerate(parameters)}

    def pointer(self, name: str) -> str:
        """A parameter that is an address."""
        return self.emit(f"inttoptr i64 {self.args[name]} to ptr")

    def number(self, value: float) -> str:
        """A vector of a constant."""
        (near,) = struct.unpack("f", struct.pack("f", value))
        bits = struct.unpack("Q", struct.pack("d", near))[0]
        return "<" + ", ".join([f"float 0x{bits:016X}"] * self.lanes) + ">"

    def add(self, a: str, b: str) -> str:
        return self.emit(f"fadd contract {self.type} {a}, {b}")

    def sub(self, a: str, b: str) -> str:
        return self.emit(f"fsub contract {self.type} {a}, {b}")

    def scale(self, factor: float, a: str) -> str:
        return self.emit(f"fmul contract {self.type} {self.number(factor)}, {a}")

    def fma(self, factor: float, a: str, b: str) -> str:
        """factor * a + b."""
        return self.add(self.scale(factor, a), b)

    def vector(self, base: str, index: object = 0) -> str:
        """The vector that begins at base[index]."""
        return self.emit(f"load {self.type}, ptr {self.place('float', base, index)}, align 4")

    def store(self, value: str, base: str, index: object = 0) -> None:
        self(f"store {self.type} {value}, ptr {self.place('float', base, index)}, align 4")

    def spread(self, base: str, index: object) -> str:
        """A vector of the number base[index]."""
        value = self.load("float", base, index, 4)
        one = self.emit(f"insertelement {self.type} poison, float {value}, i64 0")
        return self.emit(f"shufflevector {self.type} {one}, {self.type} poison, <{self.lanes} x i32> zeroinitializer")

    def begun(self, spots: Sequence[str], added: str) -> list[str]:
        """Emit the initial values of sums: the vectors at these addresses where `added`, an i1, else zeros."""
        load, ready = self.label(), self.label()
        origin = self.here
        self(f"br i1 {added}, label %{load}, label %{ready}")
        self.at(load, jump=False)
        earlier = [self.vector(spot) for spot in spots]
        self.at(ready)
        return [self.emit(f"phi {self.type} [ zeroinitializer, %{origin} ], [ {e}, %{load} ]") for e in earlier]

    def products(
        self,
        rows: int,
        vectors: int,
        depth: str,
        left: str,
        steps: tuple[str, str],
        right: str,
        stride: str,
        begun: Sequence[str],
    ) -> list[str]:
        """begun (rows, vectors) + the sum over k < depth of left[i * steps[0] + k * steps[1]] times the vectors from
        right[k * stride] on."""
        lines = [self.place("float", left, self.times(steps[0], i)) for i in range(rows)]

        def step(k: str, sums: list[str]) -> list[str]:
            line, along = self.place("float", right, self.times(k, stride)), self.times(k, steps[1])
            loaded = [self.vector(line, j * self.lanes) for j in range(vectors)]
            found = []
            for i, own in enumerate(lines):
                factor = self.spread(own, along)
                for j in range(vectors):
                    product = self.emit(f"fmul contract {self.type} {factor}, {loaded[j]}")
                    found.append(self.add(sums[i * vectors + j], product))
            return found

        return self.loop("0", depth, 1, step, [(self.type, b) for b in begun])

    def finished(self, name: str, attributes: str) -> str:
        """The module."""
        self("ret void")
        head = f"define void @{name}(ptr noalias readonly %args, i64 %begin, i64 %end) #0 {{\nentry:"
        tail = [
            "}",
            "declare i64 @llvm.smin.i64(i64, i64)",
            f"attributes #0 = {{ nounwind {attributes} }}",
            "",
        ]
        return "\n".join([head, *self.lines, *tail])
