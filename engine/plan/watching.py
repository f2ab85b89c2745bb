"""Whether dicts, version counters and objects are as they were, in one pass over their memory (the extra `jit`).

A plan asks that at each call of some thousand objects, which the network has driven out of the caches meanwhile.  Loops
of Python's wait for each of them in turn: 300 us for MobileNetV2, a tenth of its time.  Generated code reads one word
of each, many at once.

The word of a dict is the number that CPython gives it anew with each change (`ma_version_tag`, PEP 509): up to Python
3.12, for 3.13 has it and forgets it where an attribute is set.  That of a version counter, a list of one int, is the
address of the int, which is kept alive here, so that no other has it.  Those of an object are the addresses of its
class and of its dict.  `available` finds out by trying whether they lie where they should and change as they should;
where not, nothing is watched.
"""

from __future__ import annotations

import ctypes
import functools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.kernels import processor

__all__ = ["Watch", "available"]

_PLACE = 24  # bytes: of a dict's number, of the address of a list's elements
_MANAGED = 1 << 4  # flag of a class: CPython has the words of an object's dict before the object
_BEFORE = 32  # bytes before such an object that are the interpreter's: of its garbage collector and its dict

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
  %apart = xor i64 %word, %want
  %more = or i64 %sum, %apart
  %next = add nsw i64 %i, 1
  br label %loop
done:
  store i64 %sum, ptr %result
  ret void
}
"""


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


@functools.cache
def available() -> bool:
    """Whether code can be generated, and objects lie as is said above."""
    if not processor.available():
        return False
    seen = set()
    for kind in (dict, OrderedDict):
        probe: Any = kind(a=1)
        changes = (
            lambda d: d.update(b=2), lambda d: d.__setitem__("a", 3), lambda d: d.pop("b"), lambda d: d.clear(),
            lambda d: d.setdefault("c", 4), lambda d: d.__delitem__("c"),
        )  # fmt: skip
        seen.add(_word(id(probe) + _PLACE))
        for change in changes:
            if _word(id(probe) + _PLACE) not in seen:  # nothing has changed
                return False
            change(probe)
            seen.add(_word(id(probe) + _PLACE))
    element = [object()]
    if len(seen) != 14 or _word(_word(id(element) + _PLACE)) != id(element[0]):
        return False
    if not all(map(_notes, _CHANGES)):
        return False
    thing = _Probe()
    for name, other in (("__dict__", {}), ("__class__", _Other)):
        places = _places(thing)
        found = [*map(_word, places)]
        setattr(thing, name, other)
        if [*map(_word, places)] == found:
            return False
    return True


class _Probe:
    def __init__(self) -> None:
        self.a = 1


class _Other:
    pass


# what changes an attribute: CPython 3.13 does that in the object, and gives its dict no new number
_CHANGES: tuple[Callable[[Any], None], ...] = (
    lambda thing: setattr(thing, "a", 1000), lambda thing: setattr(thing, "b", 1), lambda thing: delattr(thing, "a"),
    lambda thing: object.__setattr__(thing, "a", 1000), lambda thing: thing.__dict__.update(a=1000),
)  # fmt: skip


def _notes(change: Callable[[Any], None]) -> bool:
    """Return whether the number of an object's dict shows a change."""
    thing = _Probe()
    place = id(thing.__dict__) + _PLACE
    before = _word(place)
    change(thing)
    return _word(place) != before


def _places(thing: Any) -> list[int]:
    """Where the addresses of an object's class and dict lie; of the class alone where the other is not found.

    Only what belongs to the object is read: the words before it where its class says that they are there, or the one
    in it that the class names.
    """
    own, begin, kind = id(thing.__dict__), id(thing), type(thing)
    if kind.__flags__ & _MANAGED:
        words = range(begin - _BEFORE, begin, 8)
    else:
        words = (
            range(begin + kind.__dictoffset__, begin + kind.__dictoffset__ + 8, 8) if kind.__dictoffset__ > 0 else ()
        )
    return [begin + processor.OFFSET - 8, *[place for place in words if _word(place) == own][:1]]


class Watch:
    """Dicts, version counters, and the classes and dicts of objects, as they are now."""

    def __init__(
        self, dicts: Sequence[dict[Any, Any]], counters: Sequence[list[int]], objects: Sequence[Any] = ()
    ) -> None:
        from engine.kernels import cpu

        self._kept = dicts, counters, [c[0] for c in counters], objects
        places = [id(d) + _PLACE for d in dicts] + [_word(id(c) + _PLACE) for c in counters]
        places += [place for thing in objects for place in _places(thing)]
        self._words = np.array(places, np.uint64)
        self._wanted = np.array([_word(p) for p in places], np.uint64)
        self._result = np.zeros(1, np.uint64)
        self._args = np.array([a.ctypes.data for a in (self._words, self._wanted, self._result)], np.uint64).tobytes()
        found = processor.target()
        assert found is not None
        self._run = cpu.linked(_TEXT + f"attributes #0 = {{ nounwind {found.attributes} }}\n")

    def same(self) -> bool:
        """Whether nothing was changed since; what was changed and changed back counts as changed."""
        self._run(self._args, 0, self._words.size)
        return not self._result[0]
