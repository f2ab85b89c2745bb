"""Fourier transforms of many lines at once, as jobs: each lane of the vectors has a line of its own.

A vector's lines are read into a buffer with the real and the imaginary parts apart, pass through the factors of their
length from one half of the buffer to the other, in Stockham's order, and are written from there.  One kernel serves all
lengths whose factors are in `RADICES`: what a pass does is in `plan`.  Real lines of an even length are transformed as
half as many complex numbers: even places the real parts, odd ones the imaginary parts.

https://doi.org/10.1137/1.9781611970999 (Van Loan, "Computational Frameworks for the Fast Fourier Transform")
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from engine.kernels import cpython
from engine.kernels.form import Array, Value, both, call, where
from engine.kernels.jobs import Jobs, least
from engine.kernels.llvm_jobs import in_llvm

__all__ = ["COLUMNS", "COMPLEX", "HALF", "PARAMETERS", "PLAN", "RADICES", "REAL", "factors", "spectrum"]

RADICES = (8, 4, 2, 3, 5, 7, 11, 13)
# How lines are laid out: complex numbers `after` apart; neighbouring lines side by side, so that vectors of them are
# read as they are; real numbers of an odd count; the first half of a spectrum, of which the rest is the conjugate.
COMPLEX, COLUMNS, REAL, HALF = range(4)
PARAMETERS = (
    *("source", "target", "plan", "twiddles", "ends", "buffer"),
    *("lines", "span", "groups", "step", "size", "rows", "passes", "inverse", "after", "outer_read", "outer_written"),
    *("read", "written", "given", "results", "full", "scale", "middle"),
)
PLAN = 4  # numbers of a pass: its radix, the product of those before, how many there are in each line, its twiddles

Complex = tuple[Value, Value]


def factors(size: int) -> list[int] | None:
    """The radices of the passes of a transform of that many points; None if it has another prime factor."""
    found = []
    for radix in RADICES:
        while size % radix == 0:
            found.append(radix)
            size //= radix
    return found if size == 1 else None


def _spectrum(lanes: int) -> Jobs:
    """Transform lines, `step` vectors of them each job.

    source, target: lines of complex numbers, of real ones, or half spectra; line i begins at number (i // after) *
    outer + i % after of them, and its numbers are `after` apart.  `span` lines follow one another before vectors begin
    anew.  given, results: how many numbers of a line are read and written; size: of the transform; rows: the most of
    the three.  inverse: with the other sign.  full: real lines give all of their spectrum; a half spectrum is spread to
    all of it (an odd number of real results).  scale: of the results; middle: of the frequencies of half a spectrum
    other than the first (and the last of an even length).
    """
    return Spectrum(lanes).written()


class Spectrum(Jobs):
    """The kernel while it is written: `held` and `hold` are a complex number of each lane in the buffer."""

    def __init__(self, lanes: int) -> None:
        types = {"plan": "int64", "scale": "float64", "middle": "float64"}
        super().__init__("spectrum", lanes, PARAMETERS, 6, types)
        self.source, self.target, self.plan, self.twiddles, self.ends, self.buffer = self.arrays
        n = self.n = self.numbers
        self.none, self.zero = self.constant(0, "index"), self.number(0.0)
        self.plane = n["rows"] * lanes  # of real or imaginary parts
        self.first = where(n["inverse"].differs(0), self.plane, self.none)
        self.factor = self.spread(self.cast(n["scale"], "float32"))
        self.middle = self.spread(self.cast(n["middle"], "float32"))

    def held(self, half: Value, at: Value) -> Complex:
        """The numbers at a place of one half of the buffer."""
        place = half + at * self.lanes
        return self.vector(self.buffer, place + self.first), self.vector(self.buffer, place + self.plane - self.first)

    def hold(self, half: Value, at: Value, value: Complex) -> None:
        """Store such numbers."""
        place = half + at * self.lanes
        self.store(self.buffer, place + self.first, value[0])
        self.store(self.buffer, place + self.plane - self.first, value[1])

    def table(self, table: Array, at: Value) -> Complex:
        """A complex number for all lanes."""
        return self.spread(self.load(table, at * 2)), self.spread(self.load(table, at * 2 + 1))

    def written(self) -> Spectrum:
        """Write the kernel."""
        n, whole = self.n, self.buffer
        with self.loop(self.begin, self.end) as job:
            self.buffer = self.view(whole, job * self.plane * 4)
            last = least(n["groups"], (job + 1) * n["step"])
            with self.loop(job * n["step"], last) as group:
                per = (n["span"] + self.lanes - 1) // self.lanes
                block = group // per
                limit = least((block + 1) * n["span"], n["lines"])
                self._group(block * n["span"] + group % per * self.lanes, limit)
        return self

    def _group(self, begin: Value, limit: Value) -> None:
        n, other = self.n, self.plane * 2
        reads, writes = self._offsets(begin, limit)
        together = begin + self.lanes - 1 < limit
        self._read(reads, both(n["read"].equals(COLUMNS), together))
        now = self.variable(self.none)
        with self.when(n["read"].equals(HALF)):
            self._from_half(other)
            self.set(now, other)
        with self.loop(0, n["passes"]) as number:
            source = now + 0
            self._pass(number, self.view(self.buffer, source), self.view(self.buffer, other - source))
            self.set(now, other - source)
        done = self.variable(now + 0)
        with self.when(n["written"].equals(HALF)):
            self._to_half(now + 0, other - now)
            self.set(done, other - now)
        with self.when(both(n["read"].equals(REAL), n["middle"].differs(1.0))), self.loop(1, n["results"]) as at:
            re, im = self.held(done + 0, at)
            self.hold(done + 0, at, (re * self.middle, im * self.middle))
        self._write(done + 0, writes, both(n["written"].equals(COLUMNS), together))

    def _offsets(self, first: Value, limit: Value) -> tuple[list[Value], list[Value]]:
        """The places where the lines of a vector begin in source and target; the last line again after the last."""
        n, one = self.n, self.constant(1, "index")
        quotient, rest = first // n["after"], first % n["after"]
        reads, writes = [], []
        for lane in range(self.lanes):
            reads.append(quotient * n["outer_read"] + rest)
            writes.append(quotient * n["outer_written"] + rest)
            more = first + lane + 1 < limit
            over = (rest + 1).equals(n["after"])
            quotient = quotient + where(both(more, over), one, self.none)
            rest = where(more, where(over, self.none, rest + 1), rest)
        return reads, writes

    # --- between memory and the buffer

    def _blocks(self, count: Value, of: int) -> Iterator[Value]:
        """Places from which `of` numbers are moved at once, the last ones those before the end."""
        with self.loop(0, count, of) as at:
            yield least(at, count - of)

    def _read(self, places: list[Value], columns: Value) -> None:
        n, pairs, source = self.n, self.lanes // 2, self.source
        count, real = n["given"], n["read"].equals(REAL)
        alone = both(self.op("not", columns), self.op("not", real))
        along = both(n["after"].equals(1), count >= pairs)
        with self.when(columns), self.loop(0, count) as at:
            self.hold(self.none, at, self.pairs(source, [(places[0] + at * n["after"]) * 2]))
        with self.when(both(alone, along)):
            for at in self._blocks(count, pairs):
                rows = self.transposed([self.vector(source, (place + at) * 2) for place in places])
                for pair in range(pairs):
                    self.hold(self.none, at + pair, (rows[2 * pair], rows[2 * pair + 1]))
        with self.when(both(alone, self.op("not", along))), self.loop(0, count) as at:
            self.hold(self.none, at, self.pairs(source, [(place + at * n["after"]) * 2 for place in places]))
        with self.when(both(real, count >= self.lanes)):
            for at in self._blocks(count, self.lanes):
                rows = self.transposed([self.vector(source, place + at) for place in places])
                for number, row in enumerate(rows):
                    self.hold(self.none, at + number, (row, self.zero))
        with self.when(both(real, count < self.lanes)), self.loop(0, count) as at:
            self.hold(self.none, at, (self.gathered(source, [place + at for place in places]), self.zero))

    def _write(self, half: Value, places: list[Value], columns: Value) -> None:
        n, pairs, target, factor = self.n, self.lanes // 2, self.target, self.factor
        count, real = n["results"], n["written"].equals(REAL)
        alone = both(self.op("not", columns), self.op("not", real))
        along = both(n["after"].equals(1), count >= pairs)

        def scaled(at: Value) -> Complex:
            re, im = self.held(half, at)
            return re * factor, im * factor

        with self.when(columns), self.loop(0, count) as at:
            self.store_pairs(target, [(places[0] + at * n["after"]) * 2], scaled(at))
        with self.when(both(alone, along)):
            for at in self._blocks(count, pairs):
                rows = self.transposed([part for pair in range(pairs) for part in scaled(at + pair)])
                for place, row in zip(places, rows):
                    self.store(target, (place + at) * 2, row)
        with self.when(both(alone, self.op("not", along))), self.loop(0, count) as at:
            self.store_pairs(target, [(place + at * n["after"]) * 2 for place in places], scaled(at))
        with self.when(both(real, count >= self.lanes)):
            for at in self._blocks(count, self.lanes):
                rows = self.transposed([scaled(at + number)[0] for number in range(self.lanes)])
                for place, row in zip(places, rows):
                    self.store(target, place + at, row)
        with self.when(both(real, count < self.lanes)), self.loop(0, count) as at:
            self.scatter(target, [place + at for place in places], scaled(at)[0])

    # --- halves of spectra

    def _from_half(self, to: Value) -> None:
        """Of half a spectrum the whole one of an odd length, or what becomes pairs of real numbers of an even one."""
        n, size, middle = self.n, self.n["size"], self.middle
        odd, one = n["full"].differs(0), self.held(self.none, self.none)
        with self.when(odd):
            self.hold(to, self.none, (one[0], self.zero))
            with self.loop(1, n["given"]) as at:
                re, im = self.held(self.none, at)
                re, im = re * middle, im * middle
                self.hold(to, at, (re, im))
                self.hold(to, size - at, (re, -im))
        with self.when(self.op("not", odd)):
            last = self.held(self.none, size)[0]
            self.hold(to, self.none, (one[0] + last, one[0] - last))
            with self.loop(1, size // 2 + 1) as at:
                a, b, w = self.held(self.none, at), self.held(self.none, size - at), self.table(self.ends, at)
                e = (a[0] + b[0]) * middle, (a[1] - b[1]) * middle
                d = (a[0] - b[0]) * middle, (a[1] + b[1]) * middle
                t = -(d[0] * w[1]) - d[1] * w[0], call("fma", d[0], w[0], -(d[1] * w[1]))  # i w d
                self.hold(to, at, (e[0] + t[0], e[1] + t[1]))
                self.hold(to, size - at, (e[0] - t[0], t[1] - e[1]))

    def _to_half(self, source: Value, to: Value) -> None:
        """Of the transform of pairs of real numbers half of their spectrum, or all of it."""
        n, size, half = self.n, self.n["size"], self.middle * self.number(0.5)
        re, im = self.held(source, self.none)
        self.hold(to, self.none, (re + im, self.zero))
        self.hold(to, size, (re - im, self.zero))
        with self.loop(1, size // 2 + 1) as at:
            a, b, w = self.held(source, at), self.held(source, size - at), self.table(self.ends, at)
            e, d = (a[0] + b[0], a[1] - b[1]), (a[0] - b[0], a[1] + b[1])
            t = call("fma", d[1], w[0], -(d[0] * w[1])), -(d[0] * w[0]) - d[1] * w[1]  # -i times w's conjugate times d
            low = (e[0] + t[0]) * half, (e[1] + t[1]) * half
            high = (e[0] - t[0]) * half, (t[1] - e[1]) * half
            self.hold(to, at, low)
            self.hold(to, size - at, high)
            with self.when(n["full"].differs(0)):
                self.hold(to, size + at, (high[0], -high[1]))
                self.hold(to, size * 2 - at, (low[0], -low[1]))

    # --- the transform

    def _pass(self, number: Value, source: Array, target: Array) -> None:
        """One pass over all points: sums of `radix` of them, each turned first."""
        of_pass = [self.load(self.plan, number * PLAN + i) for i in range(PLAN)]
        radix, before, along, table = (self.cast(value, "index") for value in of_pass)
        for r in RADICES:
            with self.when(radix.equals(r)):
                with self.loop(0, along) as at:
                    self._sums(r, source, target, before, along, self.none, at)
                with self.loop(1, before) as p:
                    base = table + (p - 1) * (r - 1)
                    turns = [self.table(self.twiddles, base + q) for q in range(r - 1)]
                    with self.loop(0, along) as at:
                        self._sums(r, source, target, before, along, p, at, turns)

    def _sums(
        self,
        radix: int,
        source: Array,
        target: Array,
        before: Value,
        along: Value,
        turn: Value,
        at: Value,
        turns: Sequence[Complex] = (),
    ) -> None:
        """The sums of one place: of the points `along` apart, which become those `before * along` apart."""
        own = [(along * (turn * radix + q) + at) * self.lanes for q in range(radix)]
        points = [(self.vector(source, o), self.vector(source, o + self.plane)) for o in own]
        if turns:
            points[1:] = [_turned(point, w) for point, w in zip(points[1:], turns)]
        for s, (re, im) in enumerate(_sums(self, points)):
            place = (along * (before * s + turn) + at) * self.lanes
            self.store(target, place, re)
            self.store(target, place + self.plane, im)


def _turned(point: Complex, w: Complex) -> Complex:
    return call("fma", point[0], w[0], -(point[1] * w[1])), call("fma", point[0], w[1], point[1] * w[0])


def _plus(a: Complex, b: Complex) -> Complex:
    return a[0] + b[0], a[1] + b[1]


def _minus(a: Complex, b: Complex) -> Complex:
    return a[0] - b[0], a[1] - b[1]


def _sums(k: Jobs, points: list[Complex]) -> list[Complex]:
    """The transform of a few points."""
    count = len(points)
    if count == 2:
        return [_plus(*points), _minus(*points)]
    if count % 2:
        return _odd(k, points)
    even, odd = _sums(k, points[::2]), _sums(k, points[1::2])
    turned = []
    for s, (re, im) in enumerate(odd):
        if 4 * s == count:  # by -i
            turned.append((im, -re))
        elif s == 0:
            turned.append((re, im))
        else:  # of 8: by (1 - i) / sqrt(2) and (-1 - i) / sqrt(2)
            root = k.number(math.sqrt(0.5))
            turned.append(((re + im) * root, (im - re) * root) if s == 1 else ((im - re) * root, -(re + im) * root))
    return [_plus(a, b) for a, b in zip(even, turned)] + [_minus(a, b) for a, b in zip(even, turned)]


def _odd(k: Jobs, points: list[Complex]) -> list[Complex]:
    """Of an odd number of points: sums and differences of the q-th and the last but q-th have real factors."""
    count = len(points)
    pairs = range(1, count // 2 + 1)
    added = [_plus(points[q], points[-q]) for q in pairs]
    apart = [_minus(points[q], points[-q]) for q in pairs]
    total = points[0]
    for pair in added:
        total = _plus(total, pair)
    made: list[Complex] = [total] * count
    for s in pairs:
        re, im = points[0]
        across: Complex | None = None
        for q, a, d in zip(pairs, added, apart):
            angle = 2 * math.pi * (q * s % count) / count
            cosine, sine = k.number(math.cos(angle)), k.number(math.sin(angle))
            re, im = call("fma", a[0], cosine, re), call("fma", a[1], cosine, im)
            if across is None:
                across = d[0] * sine, d[1] * sine
            else:
                across = call("fma", d[0], sine, across[0]), call("fma", d[1], sine, across[1])
        assert across is not None
        made[s] = re + across[1], im - across[0]  # minus i times the differences
        made[count - s] = re - across[1], im + across[0]
    return made


spectrum = in_llvm(_spectrum, cpython.HEAD)
