"""Functions in LLVM's language, written line by line: what the printers of products and of convolutions share."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["Text"]


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
        """What follows stands under a label."""
        if jump:
            self(f"br label %{label}")
        self.lines.append(f"{label}:")
        self.here = label

    def loop(
        self, begin: str, end: str, step: int | str, body: Callable[[str, list[str]], list[str]],
        held: list[tuple[str, str]] | None = None,
    ) -> list[str]:  # fmt: skip
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
