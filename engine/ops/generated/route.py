"""Code generated as a whole for a geometry: its threads, and its standing against the route there was.

engine/kernels/README.md says what is tried and when.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.backends.cpu import threads
from engine.core.trials import Standing
from engine.kernels import compiler, processor, team
from engine.ops.generated import comparison, launch

__all__ = ["GeneratedRoute", "address", "finite", "lanes", "linked", "packed", "registers", "run", "several", "shared"]

# A program that runs a model once does not wait for a trial.  One is made in the third call of a layer, or in the ninth
# of all where layers are not known; calls of other layers that are alike count little.
MANY, AGAIN, ALIKE = 9, 3, 0.1
SHARE = 1 << 21  # multiplications, or as much work, that another thread is woken for


def lanes(count: int | None = None) -> int:
    """Float32 elements of a vector; count: of the widest that so many fill, 1 if none."""
    found = processor.target()
    most = {"AVX-512": 16, "AVX2": 8}.get(found.level if found else "", 4)
    if count is None:
        return most
    return next((n for n in (16, 8, 4) if n <= most and count % n == 0), 1)


def registers() -> int:
    """Of vectors."""
    found = processor.target()
    return 32 if found and found.level in ("AVX-512", "NEON") else 16


def linked(function: Callable[..., str], *options: Any) -> Any:
    """The machine code of what `function(name, *options, attributes)` prints."""
    found = processor.target()
    if found is None:
        raise ImportError(processor.describe())
    return compiler.linked(function("KERNEL", *options, found.attributes))


def packed(parameters: Sequence[str], **given: int) -> bytes:
    """Arguments of 8 bytes each, in the order of the parameters."""
    return struct.pack(f"<{len(parameters)}q", *[given[p] for p in parameters])


def address(array: Any) -> int:
    """Of its first element."""
    return int(array.ctypes.data)


def several(work: int) -> int:
    """Return the number of threads that this amount of work is worth."""
    return threads.get_num_threads() if work > SHARE else 1


def run(code: Any, pieces: Sequence[tuple[bytes, int, int]]) -> None:
    """Pieces (arguments, begin, end), by as many threads."""
    if len(pieces) == 1:
        code(*pieces[0])
    elif not team.run(compiler.address(code), pieces):
        threads.run(lambda piece: code(*piece), pieces)


def shared(code: Any, args: bytes, begin: int, end: int, pieces: int) -> None:
    """Cut the range begin..end into `count` pieces."""
    step = -(-(end - begin) // pieces)
    run(code, [(args, at, min(at + step, end)) for at in range(begin, end, step)])


def finite(result: Any) -> bool:
    """Return whether a result (an array, or several) decides a trial: where one is not finite, nan may reach further by
    the generated kernel."""
    if isinstance(result, tuple):
        return all(map(finite, result))
    return bool(np.isfinite(result.view(np.ndarray)).all())


class GeneratedRoute(Standing):
    """The choice between a generated kernel and the existing one, for one geometry.

    entry: what is known of the machine code, which geometries may share; work: of a call, in elements.
    """

    margin = 1.05  # of the time of the other kernel, beyond which this one is slower

    def __init__(self, name: str, entry: launch.Entry, work: int, build: Callable[[], Any]) -> None:
        super().__init__()
        self.name, self.entry, self.work, self.build = name, entry, work, build
        self.proven = processor.always()
        self.calls = 0.0
        self.layer: Any = None  # a weak reference

    def chosen(
        self, mine: Callable[[], Any], plain: Callable[[], Any], operands: Sequence[Any], layer: Any = None
    ) -> Any:
        """The result of a call: of `plain` until this kernel is worth compiling, then of a trial, then of what won.

        layer: an array that each layer has one of, by which it is known that a program runs its layers again.
        """
        if self.proven:
            return mine()
        if layer is None:
            self.calls += 1
        else:
            known = self.layer and self.layer()
            if known is None:  # the first, or it is no more
                self.layer = weakref.ref(layer)
                self.calls += 1 if self.calls else AGAIN
            else:
                self.calls += AGAIN if known is layer else ALIKE
        if self.disabled or self.calls < MANY or not self.ready():
            return plain()
        want = plain()
        if want is NotImplemented or not finite(want):  # nothing to compare with
            return want
        made = mine()
        return made if self.decide(made, want, mine, plain, operands) else want

    def ready(self, paid: bool = False) -> bool:
        """Return whether the code is there, compiled if this pays; paid: it does."""
        launch.trials.paid = paid
        try:
            launch.ready(self.entry, self.work, self.build)
        except launch.Unfit:
            self.disabled = self.entry.disabled
            return False
        finally:
            launch.trials.fresh.clear()
        return True

    def decide(
        self, made: Any, want: Any, mine: Callable[[], Any], plain: Callable[[], Any], operands: Sequence[Any]
    ) -> bool:
        """Return whether this kernel serves from now on, after results of both; what rounding may leave is the product
        of the operands' sizes."""
        largest = 1.0
        for array in operands:
            largest *= comparison.size_of(array.view(np.ndarray))
        right = launch.proven(self.name, [self.entry], comparison.difference(want, made, largest))
        self.proven = right and not launch.slower(mine, plain, self.margin, [self])
        self.disabled = not right
        if not self.proven:
            if right:
                self.lost()
            self.calls = -float(self.REST)  # the machine may have been busy
        return self.proven
