"""Rows that lie side by side, in LLVM's language: LANES of them are done together, each a lane of the vectors.

The results of a statement for a row are stored in a small array; offsets are worked out anew in each loop, so
that LLVM sees that neighbouring lanes read neighbouring elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from engine.kernels import form
from engine.kernels.form import FormError, Kernel, Value
from engine.kernels.llvm_ir import Body, Bound, Printer, identity, llvm_type

LANES = 64  # rows that are done together
SHORT_RUN = 128  # places of each that are added in float32


def printed(
    kernel: Kernel, name: str, known: Mapping[str, int] | None = None, attributes: str = "", offset: int = 16
) -> str:
    """Return the module of a kernel of rows that lie side by side; as `llvm_ir.printed`."""
    return ColumnPrinter(kernel, name, dict(known or {}), attributes, offset).text()


class ColumnPrinter(Printer):
    """Writes a kernel of rows for rows that lie side by side."""

    def __init__(self, kernel: Kernel, name: str, known: dict[str, int], attributes: str, offset: int) -> None:
        super().__init__(kernel, name, known, attributes, offset)
        self.recipes: dict[str, form.Do] = {}  # offsets of rows
        self.held: dict[str, tuple[str, str]] = {}  # a value of rows -> (array of the lanes' values, type)
        self.lane = ""  # within a loop over lanes: the register of its number
        self.lanes, self.first = "", ("", "")  # how many there are; the first one's coordinate and number
        self.rest: Value | None = None  # the coordinate that counts lanes

    def _missing(self, value: Value) -> Bound | None:
        if value.name in self.recipes:
            found = self.bound[value.name] = self._value(self.recipes[value.name])
            return found
        if value.name not in self.held:
            return None
        place, type = self.held[value.name]
        stored = "i8" if type == "i1" else type
        at = self.emit(f"getelementptr {stored}, ptr {place}, i64 {self.lane}")
        raw = self.emit(f"load {stored}, ptr {at}{self.access}")
        found = self.bound[value.name] = self.emit(f"trunc i8 {raw} to i1") if type == "i1" else raw
        return found

    def _rows(self) -> None:
        k = self.kernel
        rest = next((s for s in k.body if isinstance(s, form.Do) and s.op == "rest" and s.args[0] is k.index), None)

        def block(base: str, low: str, high: str, c: str) -> None:
            left = self.emit(f"sub nsw i64 {high}, {c}")
            self.lanes = self._clamped("smin", left, str(LANES))
            self.first = c, self.emit(f"add nsw i64 {base}, {c}")
            self._lane_statements(k.body)

        if rest is None:
            self._for("%begin", "%end", lambda c: block("0", "%begin", "%end", c), LANES)
            return
        n = self._text(rest.args[1])
        quotients = [
            s
            for s in k.body
            if isinstance(s, form.Do)
            and s.op == "quotient"
            and s.args[0] is k.index
            and s.args[1].name == rest.args[1].name
        ]
        self.given.update(map(id, (rest, *quotients)))
        self.rest = rest.result

        def outer(q: str) -> None:
            for s in quotients:
                self.bound[s.result.name] = q
            base = self.emit(f"mul nsw i64 {q}, {n}")
            low = self._clamped("smax", self.emit(f"sub nsw i64 %begin, {base}"), "0")
            high = self._clamped("smin", self.emit(f"sub nsw i64 %end, {base}"), n)
            self._for(low, high, lambda c: block(base, low, high, c), LANES)

        first = self.emit(f"sdiv i64 %begin, {n}")
        last = self.emit(f"sdiv i64 {self.emit('add i64 %end, -1')}, {n}")
        self._for(first, self.emit(f"add nsw i64 {last}, 1"), outer)

    def _each_lane(self, write: Callable[[], None], body: Body, parallel: bool = True) -> None:
        def turn(r: str) -> None:
            kept, self.lane = dict(self.bound), r
            c, i = self.first
            if self.rest is not None:
                self.bound[self.rest.name] = self.emit(f"add nsw i64 {c}, {r}")
            self.bound[self.kernel.index.name] = self.emit(f"add nsw i64 {i}, {r}")
            write()
            self.bound, self.lane = kept, ""

        self._vector("0", self.lanes, turn, body, parallel)

    def _lane_statements(self, body: Body) -> None:
        for s in body:
            if id(s) in self.given:
                continue
            if isinstance(s, form.Do) and s.result.type == "index":
                self.recipes[s.result.name] = s
            elif isinstance(s, form.Reduce):
                self._lane_reduce(s)
            elif isinstance(s, form.Each):
                count = self._text(s.count)
                lanes = lambda inner: self._each_lane(lambda: self._block(inner), inner)
                self._for_places(s.index, "0", count, s.body, lanes)
            elif isinstance(s, form.Once):
                self._each_lane(partial(self._block, s.body), s.body)
            elif isinstance(s, form.Do | form.Load):
                self._each_lane(partial(self._stored, s), [s])
            else:
                raise FormError(f"{type(s).__name__} beside rows")

    def _stored(self, s: form.Do | form.Load) -> None:
        self._statement(s)
        type = llvm_type(s.result.type)
        stored = "i8" if type == "i1" else type
        place = self._place(stored, LANES)
        value = self.bound[s.result.name]
        if type == "i1":
            value = self.emit(f"zext i1 {value} to i8")
        at = self.emit(f"getelementptr {stored}, ptr {place}, i64 {self.lane}")
        self(f"store {stored} {value}, ptr {at}{self.access}")
        self.held[s.result.name] = place, type

    def _for_places(
        self,
        index: Value,
        begin: str,
        end: str,
        body: Body,
        write: Callable[[Body], None],
    ) -> None:
        """A plain loop over places, split by coordinates as in `_over`; the lanes within it are the vectors."""
        before = self._vector
        self._vector = lambda begin, end, write, body, parallel: self._for(begin, end, write)  # type: ignore[method-assign]
        wrapped = lambda inner: self._with_vector(before, lambda: write(inner))
        self._over(index, begin, end, body, wrapped, True)
        self._vector = before  # type: ignore[method-assign]

    def _with_vector(self, vector: Callable[..., None], write: Callable[[], None]) -> None:
        now, self._vector = self._vector, vector  # type: ignore[method-assign]
        write()
        self._vector = now  # type: ignore[method-assign]

    def _lane_reduce(self, s: form.Reduce) -> None:
        if s.by.startswith("arg"):
            raise FormError(f"{s.by} of columns")
        kind = s.value.type
        type = llvm_type(kind)
        stored = "i8" if type == "i1" else type
        state = self._place(stored, LANES)

        def at(place: str, type: str = stored) -> str:
            return self.emit(f"getelementptr {type}, ptr {place}, i64 {self.lane}")

        start = self._constant(identity(s), kind)
        start = {"true": "1", "false": "0"}.get(start, start)
        wide = self._place("double", LANES) if s.by == "sum" and kind == "float32" else ""

        def fill(place: str, type: str, value: str) -> None:
            self._each_lane(lambda: self(f"store {type} {value}, ptr {at(place, type)}{self.access}"), [])

        def one() -> None:
            self._block(s.body)
            place = at(state)
            held = self.emit(f"load {stored}, ptr {place}{self.access}")
            if type == "i1":
                held = self.emit(f"trunc i8 {held} to i1")
            made = self._combined(s.by, kind, held, self._text(s.value))
            if type == "i1":
                made = self.emit(f"zext i1 {made} to i8")
            self(f"store {stored} {made}, ptr {place}{self.access}")

        count = self._text(s.count)
        lanes = lambda inner: self._each_lane(one, s.body)
        fill(state, stored, start)
        if not wide:
            self._for_places(s.index, "0", count, s.body, lanes)
        else:
            fill(wide, "double", "0.0")

            def flush() -> None:
                more = self.emit(f"fpext float {self.emit(f'load float, ptr {at(state)}{self.access}')} to double")
                place = at(wide, "double")
                held = self.emit(f"load double, ptr {place}{self.access}")
                self(f"store double {self.emit(f'fadd double {held}, {more}')}, ptr {place}{self.access}")
                self(f"store float 0.0, ptr {at(state)}{self.access}")

            def run(low: str) -> None:
                high = self._clamped("smin", self.emit(f"add nsw i64 {low}, {SHORT_RUN}"), count)
                self._for_places(s.index, low, high, s.body, lanes)
                self._each_lane(flush, [])

            self._for("0", count, run, SHORT_RUN)

            def last() -> None:
                whole = self.emit(f"load double, ptr {at(wide, 'double')}{self.access}")
                self(f"store float {self.emit(f'fptrunc double {whole} to float')}, ptr {at(state)}{self.access}")

            self._each_lane(last, [])
        self.held[s.results[0].name] = state, type
