"""Cross-entropy of pixels: the softmax over the classes of (N, C, L), and its losses, piece by piece in the cache; rows
are pieces of WIDTH places of an image.  Losses of given logarithms.  And connectionist temporal classification; rows
are sequences.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import inf

from engine.kernels.form import Array, Kernel, Value, both, call, where

__all__ = [
    "ALIGNED",
    "WIDTH",
    "chosen_gradient",
    "chosen_losses",
    "ctc_gradient",
    "ctc_losses",
    "softmax_losses_of_maps",
]

WIDTH = 512  # places of a piece: of 20 classes 40 kB
ALIGNED = 16  # states of a sequence are a multiple, so that no vector is left in part
_LEAST = -1e30  # finite, and less than any log of a probability that is not 0


def softmax_losses_of_maps(type: str) -> Kernel:
    """x (N, C, L), target (N, L) int64 -> the softmax (N, C, L), losses (N, L), 0 where a target is `ignored`; of each
    piece the sum of the losses, how many count, and whether a target is no class.  sums (N, L) is scratch.
    """
    k = Kernel("softmax_losses_of_maps", "rows")
    x, target = k.array("x", type), k.array("target", "int64")
    p, losses, sums = (k.array(name, type, True) for name in ("softmax", "losses", "sums"))
    total, counted, wrong = (
        k.array("total", type, True),
        k.array("counted", type, True),
        k.array("wrong", "int32", True),
    )
    classes, length, pieces = (k.scalar(name, "index") for name in ("classes", "length", "pieces"))
    ignored = k.scalar("ignored", "int64")
    image, start = k.index // pieces, k.index % pieces * WIDTH
    left = length - start
    width = where(left < WIDTH, left, k.constant(WIDTH, "index"))
    base, own = image * classes * length + start, image * length + start

    with k.each(width) as j:
        k.store(losses, own + j, k.load(x, base + j))
        k.store(sums, own + j, k.constant(0.0, type))
    with k.loop(1, classes) as c:
        line = base + c * length
        with k.each(width) as j:
            k.store(losses, own + j, call("max", k.load(x, line + j), k.load(losses, own + j)))
    with k.loop(0, classes) as c:
        line = base + c * length
        with k.each(width) as j:
            more = call("exp", k.load(x, line + j) - k.load(losses, own + j))
            k.store(p, line + j, more)
            k.store(sums, own + j, k.load(sums, own + j) + more)

    def counts(j: Value) -> Value:
        return k.op("ne", k.load(target, own + j), ignored)

    def is_class(j: Value) -> Value:
        found = k.load(target, own + j)
        return both(found >= 0, found < k.cast(classes, "int64"))

    with k.each(width) as j:
        found = where(is_class(j), k.load(target, own + j), k.constant(0, "int64"))
        at = base + k.cast(found, "index") * length + j
        loss = call("log", k.load(sums, own + j)) + (k.load(losses, own + j) - k.load(x, at))
        k.store(losses, own + j, where(counts(j), loss, k.constant(0.0, type)))
        k.store(sums, own + j, 1 / k.load(sums, own + j))
    with k.loop(0, classes) as c:
        line = base + c * length
        with k.each(width) as j:
            k.store(p, line + j, k.load(p, line + j) * k.load(sums, own + j))
    lost = k.reduce("sum", width, lambda j: k.load(losses, own + j))
    many = k.reduce("sum", width, lambda j: k.cast(k.cast(counts(j), "int32"), type))
    bad = k.reduce("any", width, lambda j: both(counts(j), k.op("not", is_class(j))))
    with k.once():
        k.store(total, k.index, lost)
        k.store(counted, k.index, many)
        k.store(wrong, k.index, k.cast(bad, "int32"))
    return k


# --- connectionist temporal classification


class _Paths:
    """What both kernels of CTC begin with: the operands, the states of the row's sequence, and log alpha of each step.

    x (T, N, C) log-probabilities, targets (N, most) int64, steps and sizes (N) int64, from 1 and from 0 on.  Scratch:
    labels (N, states) int32, skips (N, states + 2), 0 where a path may leave out the blank before a state, else -inf,
    and alpha (N, T, states + 2); two more in front of each row of alpha are -inf, two more behind skips.
    States 2 i are blank, 2 i + 1 the i-th label of the target; those from 2 size + 1 on are of no path.
    """

    def __init__(self, name: str, type: str, given: Sequence[str], made: Sequence[str]) -> None:
        k = self.k = Kernel(name, "rows")
        self.type = type
        self.x, targets = k.array("x", type), k.array("targets", "int64")
        steps, sizes = k.array("steps", "int64"), k.array("sizes", "int64")
        self.labels, self.skips, self.alpha = (
            k.array("labels", "int32", True),
            k.array("skips", type, True),
            k.array("alpha", type, True),
        )
        self.more = [k.array(one, type) for one in given] + [k.array(one, type, True) for one in made]
        names = ("count", "classes", "length", "states", "most")
        self.rows, self.classes, self.length, self.states, most = (k.scalar(f"n_{name}", "index") for name in names)
        self.blank = k.scalar("blank", "int64")
        self.never, self.wide = k.constant(-inf, type), self.states + 2
        self.steps, self.size = k.cast(k.load(steps, k.index), "index"), k.cast(k.load(sizes, k.index), "index")
        self.own, self.from_skip = k.index * self.states, k.index * self.wide
        self.from_alpha = k.index * self.length * self.wide
        target = k.index * most
        with k.each(self.wide) as j:
            k.store(self.skips, self.from_skip + j, self.never)
        with k.each(self.states) as j:
            k.store(self.labels, self.own + j, k.cast(self.blank, "int32"))
        with k.loop(0, self.size) as i:
            label, at = k.load(targets, target + i), i * 2 + 1
            k.store(self.labels, self.own + at, k.cast(label, "int32"))
            before = k.load(targets, target + where(i < 1, i, i - 1))
            free = both(k.op("ne", label, before), k.op("ne", label, self.blank))
            k.store(self.skips, self.from_skip + at, where(free, k.constant(0.0, type), self.never))
        with k.each(self.wide) as j:
            k.store(self.alpha, self.from_alpha + j, self.never)
        with k.loop(0, self.steps) as t:
            self.emit(self.alpha, self.from_alpha + t * self.wide + 2, t)
        with k.each(self.states - 2) as j:
            k.store(self.alpha, self.from_alpha + 4 + j, self.never)
        with k.loop(1, self.steps) as t:
            line = self.from_alpha + t * self.wide
            before = line - self.wide
            k.store(self.alpha, line, self.never)
            k.store(self.alpha, line + 1, self.never)
            with k.each(self.states) as j:
                two, one, here = (k.load(self.alpha, before + tap + j) for tap in range(3))
                found = self.step(here, one, two + k.load(self.skips, self.from_skip + j))
                k.store(self.alpha, line + 2 + j, found + k.load(self.alpha, line + 2 + j))

    def emit(self, into: Array, at: Value, t: Value) -> None:
        """Store the log-probabilities of the states' labels at a step; -inf of states beyond the last one."""
        k, line = self.k, (t * self.rows + self.k.index) * self.classes
        with k.each(self.states) as j:
            value = k.load(self.x, line + k.cast(k.load(self.labels, self.own + j), "index"))
            k.store(into, at + j, where(j <= self.size * 2, value, self.never))

    def step(self, *logs: Value) -> Value:
        """The log of the sum of three exponentials; -inf where all three are 0."""
        one, two, three = logs
        high, low = call("max", one, two), call("min", one, two)
        top = call("max", call("max", high, three), self.k.constant(_LEAST, self.type))
        middle, least = call("max", low, call("min", high, three)), call("min", low, three)
        return call("log", (call("exp", middle - top) + 1.0) + call("exp", least - top)) + where(
            call("max", high, three) < _LEAST, self.never, top
        )

    def end(self) -> Value:
        """The log likelihood of the target: the last two states at the last step; of no labels the first alone."""
        line = self.from_alpha + (self.steps - 1) * self.wide + self.size * 2
        return self.step(self.k.load(self.alpha, line + 2), self.k.load(self.alpha, line + 1), self.never)


def ctc_losses(type: str) -> Kernel:
    """The operands of `_Paths` -> losses (N)."""
    paths = _Paths("ctc_losses", type, (), ("losses",))
    k, (out,) = paths.k, paths.more
    with k.once():
        k.store(out, k.index, -paths.end())
    return k


def ctc_gradient(zero: bool) -> Callable[[str], Kernel]:
    """The operands of `_Paths`, grad (N) -> the gradient of x (T, N, C) behind a log_softmax.

    zero: it is 0 where no path gives the target, else nan at its labels.  Scratch: ahead (N, states + 2) and share
    (N, states).
    """
    return _zeroed if zero else _not_zeroed


def _zeroed(type: str) -> Kernel:
    return _ctc_gradient(type, True)


def _not_zeroed(type: str) -> Kernel:
    return _ctc_gradient(type, False)


def _ctc_gradient(type: str, zero: bool) -> Kernel:
    paths = _Paths("ctc_gradient", type, ("grad",), ("out", "ahead", "share"))
    k, (grad, out, ahead, share) = paths.k, paths.more
    end, given, none = paths.end(), k.load(grad, k.index), k.constant(0.0, type)
    possible = call("isfinite", end)
    factor = where(possible, given, none) if zero else given
    impossible = none if zero else k.constant(float("nan"), type)
    from_ahead, last = k.index * paths.wide, paths.size * 2
    with k.each(paths.wide) as j:  # behind the end there is one state, from which all is over
        k.store(ahead, from_ahead + j, where(both(j <= last, last <= j), none, paths.never))
    with k.loop(0, paths.steps) as back:
        t = paths.steps - 1 - back
        line, cells = paths.from_alpha + t * paths.wide + 2, (t * paths.rows + k.index) * paths.classes
        with k.each(paths.states) as j:
            skip = k.load(paths.skips, paths.from_skip + j + 2)
            here, one, two = (k.load(ahead, from_ahead + tap + j) for tap in range(3))
            k.store(share, paths.own + j, paths.step(here, one, two + skip))
        paths.emit(ahead, from_ahead, t)
        with k.each(paths.states) as j:
            beta = k.load(share, paths.own + j)
            k.store(ahead, from_ahead + j, beta + k.load(ahead, from_ahead + j))
            part = call("exp", k.load(paths.alpha, line + j) + beta - end)
            k.store(share, paths.own + j, where(possible, part, impossible))
        with k.each(paths.classes) as c:
            k.store(out, cells + c, call("exp", k.load(paths.x, cells + c)) * factor)
        with k.loop(0, last + 1) as j:
            at = cells + k.cast(k.load(paths.labels, paths.own + j), "index")
            k.store(out, at, k.load(out, at) - k.load(share, paths.own + j) * factor)
    with k.loop(paths.steps, paths.length) as t:
        cells = (t * paths.rows + k.index) * paths.classes
        with k.each(paths.classes) as c:
            k.store(out, cells + c, none)
    return k


@functools.cache
def chosen_losses(weighted: bool, mean: bool) -> Callable[[str], Kernel]:
    """x (n, classes), target (n) of int64 (, weight (classes)) -> the sum of -weight * x at the target (), or its mean,
    the sum of weights (), whether a target is no class, an int32 ().  One row."""

    def write(type: str) -> Kernel:
        k = Kernel("chosen_losses", "rows")
        x, target = k.array("x", type), k.array("target", "int64")
        weight = k.array("weight", type) if weighted else None
        out, weights = k.array("out", type, True), k.array("weights", type, True)
        wrong = k.array("wrong", "int32", True)
        n, classes, ignored = k.scalar("n", "index"), k.scalar("classes", "index"), k.scalar("ignored", "index")
        zero, one, none = k.constant(0.0, type), k.constant(1.0, type), k.constant(0, "index")

        def at(j: Value) -> tuple[Value, Value, Value]:
            place = k.cast(k.load(target, j), "index")
            good, counts = both(place >= 0, place < classes), place.differs(ignored)
            used = both(good, counts)
            return where(used, place, none), used, k.op("lor", good, k.op("not", counts))

        def share(j: Value) -> Value:
            place, used, _ = at(j)
            return where(used, one if weight is None else k.load(weight, place), zero)

        def loss(j: Value) -> Value:
            place, _, _ = at(j)
            given = share(j)
            return where(given.equals(0), zero, -k.load(x, j * classes + place) * given)

        total, count = k.reduce("sum", n, loss), k.reduce("sum", n, share)
        bad = k.reduce("max", n, lambda j: where(at(j)[2], k.constant(0, "int32"), k.constant(1, "int32")))
        with k.once():
            k.store(out, 0, total / count if mean else total)
            k.store(weights, 0, count)
            k.store(wrong, 0, bad)
        return k

    return write


@functools.cache
def chosen_gradient(weighted: bool, mean: bool) -> Callable[[str], Kernel]:
    """grad (), target (n) of int64, sum of weights () (, weight (classes)) -> (n, classes), -weight * grad at the
    target; mean: / the sum of weights.  Rows are n."""

    def write(type: str) -> Kernel:
        k = Kernel("chosen_gradient", "rows")
        grad, target, weights = k.array("grad", type), k.array("target", "int64"), k.array("weights", type)
        weight = k.array("weight", type) if weighted else None
        out = k.array("out", type, True)
        classes, ignored = k.scalar("classes", "index"), k.scalar("ignored", "index")
        base, place = k.index * classes, k.cast(k.load(target, k.index), "index")
        slope = -(k.load(grad, 0) / k.load(weights, 0) if mean else k.load(grad, 0))
        with k.each(classes) as j:
            k.store(out, base + j, k.constant(0.0, type))
        with k.when(both(both(place >= 0, place < classes), place.differs(ignored))):
            k.store(out, base + place, slope if weight is None else slope * k.load(weight, place))
        return k

    return write
