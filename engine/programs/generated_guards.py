"""Guards of dicts, version counters and objects, checked by generated code in one pass over their memory (extra `jit`).

A plan checks some thousand objects at each call, which the network has driven out of the caches meanwhile.  Loops
of Python's wait for each of them in turn: 300 us for MobileNetV2, a tenth of its time.  Generated code reads one word
of each, many at once.

The word of a dict is the number that CPython gives it anew with each change (`ma_version_tag`, PEP 509): up to Python
3.12, for 3.13 has it and forgets it where an attribute is set.  That of a version counter, a list of one int, is the
address of the int, which is kept alive here, so that no other has it.  Those of an object are the addresses of its
class and of its dict.  `kernels/cpython.py` has their places, and finds out by trying whether they change as they
should; where not, nothing is watched.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.kernels import cpython, processor

__all__ = ["Watch", "available"]

_TEXT = """
define void @KERNEL(ptr noalias readonly %args, i64 %begin, i64 %end) #0 {
entry:
  %words = load ptr, ptr %args
  %of_wanted = getelementptr i64, ptr %args, i64 1
  %wanted = load ptr, ptr %of_wanted
  %of_result = getelementptr i64, ptr %args, i64 2
  %result = load ptr, ptr %of_result
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %work ]
  %sum = phi i64 [ 0, %entry ], [ %more, %work ]
  %in = icmp slt i64 %i, %end
  br i1 %in, label %work, label %done
work:
  %place = getelementptr i64, ptr %words, i64 %i
  %object = load ptr, ptr %place
  %word = load i64, ptr %object
  %of_want = getelementptr i64, ptr %wanted, i64 %i
  %want = load i64, ptr %of_want
  %difference = xor i64 %word, %want
  %more = or i64 %sum, %difference
  %next = add nsw i64 %i, 1
  br label %loop
done:
  store i64 %sum, ptr %result
  ret void
}
"""


def available() -> bool:
    """Return whether code can be generated, and objects are laid out as described above."""
    return processor.available() and cpython.readable("dicts")


class Watch:
    """Dicts, version counters, and the classes and dicts of objects, as they are now."""

    def __init__(
        self, dicts: Sequence[dict[object, object]], counters: Sequence[list[int]], objects: Sequence[object] = ()
    ) -> None:
        from engine.kernels import compiler

        self._retained = dicts, counters, [c[0] for c in counters], objects
        places = cpython.words_of_dicts(dicts) + cpython.words_of_lists(counters)
        places += [place for thing in objects for place in cpython.places(thing)]
        self._words = np.array(places, np.uint64)
        self._wanted = np.array([cpython.word(p) for p in places], np.uint64)
        self._result = np.zeros(1, np.uint64)
        self._args = np.array([a.ctypes.data for a in (self._words, self._wanted, self._result)], np.uint64).tobytes()
        found = processor.target()
        assert found is not None
        self._run = compiler.linked(_TEXT + f"attributes #0 = {{ nounwind {found.attributes} }}\n")

    def same(self) -> bool:
        """Return whether nothing was changed since; what was changed and changed back counts as changed."""
        self._run(self._args, 0, self._words.size)
        return not self._result[0]
