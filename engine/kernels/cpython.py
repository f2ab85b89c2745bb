"""Objects of CPython and numpy by byte offset: the one module that reads them so, and the probe that allows it.

Generated code takes an array's memory, type and shape, a float's bits, a tuple's elements from the objects themselves,
and the check of a plan reads one word of each dict: a call of C in the place of ten lines of Python.  Python promises
nothing of that.  So nobody asks for a version: `readable` builds objects of which everything is known, on the user's
interpreter, and reads them.  Where one word differs, that use is off and calls go by Python, with the same results.

docs/explanation/python_objects.md has every place that depends on this, and what it gives.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy._core._multiarray_umath import _ARRAY_API

__all__ = ["EMPTY", "HEAD", "TYPE", "numpy_function", "places", "readable", "word", "words_of_dicts", "words_of_lists"]

HEAD = object.__basicsize__  # of every object: behind it are an array's address, a float's bits, a tuple's length
TYPE = HEAD - 8  # the class
EMPTY, _VERSION = 184, 0  # places in numpy's table of functions: PyArray_Empty, PyArray_GetNDArrayCVersion

_SECOND = HEAD + 8  # a dict's number, the address of a list's elements
_MANAGED = 1 << 4  # flag of a class: CPython has the words of an object's dict before the object
_BEFORE = 32  # bytes before such an object that are the interpreter's: of its garbage collector and its dict


def word(address: int) -> int:
    """Return the 8 bytes at an address."""
    return ctypes.c_uint64.from_address(address).value


@functools.cache
def numpy_function(place: int) -> int:
    """Return the address of a function of numpy's C interface."""
    pythonapi = ctypes.pythonapi
    pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p
    pythonapi.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return word(pythonapi.PyCapsule_GetPointer(_ARRAY_API, None) + 8 * place)


def words_of_dicts(dicts: Any) -> list[int]:
    """Return the addresses of the numbers that dicts get anew with each change (`ma_version_tag`, PEP 509)."""
    return [id(d) + _SECOND for d in dicts]


def words_of_lists(lists: Any) -> list[int]:
    """Return the addresses of the first elements of lists."""
    return [word(id(one) + _SECOND) for one in lists]


def places(thing: Any) -> list[int]:
    """Return the addresses of the words with an object's class and dict; of the class alone where the other is not
    found.

    Only what belongs to the object is read: the words before it where its class says that they are there, or the one
    in it that the class names.
    """
    own, begin, kind = id(thing.__dict__), id(thing), type(thing)
    if kind.__flags__ & _MANAGED:
        words = range(begin - _BEFORE, begin, 8)
    else:
        offset = kind.__dictoffset__
        words = range(begin + offset, begin + offset + 8, 8) if offset > 0 else range(0)
    return [begin + TYPE, *[place for place in words if word(place) == own][:1]]


# --- the probe


@functools.cache
def readable(what: str) -> bool:
    """Return whether this interpreter's objects are laid out as one of three uses expects; found out at the first call.

    what: "arrays" (the address of their memory), "calls" (arrays, floats and tuples whole, and numpy's C interface) or
    "dicts" (numbers of dicts, elements of lists, the class and the dict of objects).
    """
    if platform.python_implementation() != "CPython" or struct.calcsize("P") != 8:  # elsewhere `id` is no address
        return False
    try:
        return _PROBES[what]()
    except (AttributeError, ValueError, OSError):
        return False


def _arrays() -> bool:
    probe = np.zeros(3)[1:]
    return bool(word(id(probe) + HEAD) == probe.__array_interface__["data"][0])


def _calls() -> bool:
    import sysconfig  # for the weight: `arrays` is probed at the first op of a program

    if sysconfig.get_config_var("Py_GIL_DISABLED"):  # the lock is what keeps objects as they are meanwhile
        return False
    probe = np.zeros((3, 5), np.float32)[1:, ::2]
    fields = (ctypes.c_uint64 * 6).from_address(id(probe) + HEAD)
    row: Callable[[int], list[int]] = lambda address: list((ctypes.c_int64 * 2).from_address(address))
    number, pair = 0.1, (probe, None)
    return (
        word(id(probe) + TYPE) == id(np.ndarray)
        and fields[1] & 0xFFFFFFFF == probe.ndim
        and row(fields[2]) == list(probe.shape)
        and row(fields[3]) == list(probe.strides)
        and fields[5] == id(probe.dtype)
        and row(id(pair) + HEAD) == [2, id(pair[0])]
        and ctypes.c_double.from_address(id(number) + HEAD).value == number
        and ctypes.CFUNCTYPE(ctypes.c_uint)(numpy_function(_VERSION))() >> 24 == 2
    )


def _dicts() -> bool:
    """3.13 has the number and forgets it where an attribute is set; later versions have none."""
    seen = set()
    for kind in (dict, OrderedDict):
        probe: Any = kind(a=1)
        changes: tuple[Callable[[Any], Any], ...] = (
            lambda d: d.update(b=2),
            lambda d: d.__setitem__("a", 3),
            lambda d: d.pop("b"),
            lambda d: d.clear(),
            lambda d: d.setdefault("c", 4),
            lambda d: d.__delitem__("c"),
        )
        (place,) = words_of_dicts([probe])
        seen.add(word(place))
        for change in changes:
            if word(place) not in seen:  # nothing has changed
                return False
            change(probe)
            seen.add(word(place))
    element = [object()]
    if len(seen) != 14 or word(*words_of_lists([element])) != id(element[0]):
        return False
    return all(map(_notes, _CHANGES)) and all(map(_moves, ("__dict__", "__class__"), ({}, _Other)))


class _Probe:
    def __init__(self) -> None:
        self.a = 1


class _Other:
    pass


# what changes an attribute: CPython 3.13 does that in the object, and gives its dict no new number
_CHANGES: tuple[Callable[[Any], None], ...] = (
    lambda thing: setattr(thing, "a", 1000),
    lambda thing: setattr(thing, "b", 1),
    lambda thing: delattr(thing, "a"),
    lambda thing: object.__setattr__(thing, "a", 1000),
    lambda thing: thing.__dict__.update(a=1000),
)


def _notes(change: Callable[[Any], None]) -> bool:
    """Return whether the number of an object's dict shows a change."""
    thing = _Probe()
    (place,) = words_of_dicts([thing.__dict__])
    before = word(place)
    change(thing)
    return word(place) != before


def _moves(name: str, other: Any) -> bool:
    """Return whether the words of an object show another dict or class."""
    thing = _Probe()
    found = places(thing)
    before = [*map(word, found)]
    setattr(thing, name, other)
    return [*map(word, found)] != before


_PROBES = {"arrays": _arrays, "calls": _calls, "dicts": _dicts}
