"""The interpreter reads what pickle writes, in all protocols, and says what it refuses."""

from __future__ import annotations

import pickle
from collections import Counter, OrderedDict, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.serialization import UnpicklingError
from engine.serialization.arrays import ArrayBuilder
from engine.serialization.globals import InertResolver, SafeResolver
from engine.serialization.pickler import Pickler
from engine.serialization.unpickler import Unpickler


def read(data: bytes, **options):
    u = Unpickler(data, resolver=SafeResolver(ArrayBuilder()), **options)
    result = u.load()
    assert u.position == len(data)
    return result


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.complex_numbers(allow_nan=False),
)
keys = st.one_of(st.text(), st.integers(-(1 << 40), 1 << 40), st.booleans(), st.tuples(st.text(), st.integers(0, 9)))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.tuples(inner),
        st.tuples(inner, inner, inner, inner),
        st.dictionaries(keys, inner, max_size=5),
        st.sets(keys, max_size=5),
        st.frozensets(keys, max_size=3),
        st.dictionaries(keys, inner, max_size=3).map(OrderedDict),
        st.binary().map(bytearray),
    ),
    max_leaves=20,
)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(values, st.integers(0, 5))
def test_reads_what_pickle_writes(value, protocol):
    found = read(pickle.dumps(value, protocol))
    assert found == value and type(found) is type(value)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(values)
def test_pickle_and_the_interpreter_read_what_the_pickler_writes(value):
    data = Pickler().dump(value)
    assert pickle.loads(data) == value == read(data)


@pytest.mark.parametrize("protocol", range(6))
def test_standard_containers(protocol):
    shared = [1]
    cycle: list = [1]
    cycle.append(cycle)
    value = {
        "list": list(range(2500)),
        "dict": {i: str(i) for i in range(2500)},
        "tuple": tuple(range(300)),
        "shared": [shared, shared],
        "counter": Counter("hello"),
        "default": defaultdict(list, a=[1]),
        "range": {"x" * 300: b"y" * 300},
    }
    found = read(pickle.dumps(value, protocol))
    assert found == value and found["shared"][0] is found["shared"][1]
    assert type(found["default"]) is defaultdict and found["default"]["new"] == []
    found = read(pickle.dumps(cycle, protocol))
    assert found[1] is found


@pytest.mark.parametrize("protocol", range(6))
def test_numpy(protocol):
    arrays = [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.array([True]),
        np.array(2 + 1j),
        np.array(["ab", "c"]),
        np.array([b"ab"]),
        np.zeros((0, 3), np.uint8),
        np.arange(3, dtype=">i4"),
    ]
    for array in arrays:
        found = read(pickle.dumps(array, protocol))
        assert found.dtype.newbyteorder("=") == array.dtype.newbyteorder("=") and found.shape == array.shape
        assert (found == array).all()
        found = read(Pickler().dump(array))
        assert found.dtype.newbyteorder("=") == array.dtype.newbyteorder("=") and (found == array).all()
    for scalar in (np.float32(2.5), np.int8(-3), np.bool_(True), np.complex64(1j)):
        found = read(pickle.dumps(scalar, protocol))
        assert found == scalar and type(found) is type(scalar)
        assert pickle.loads(Pickler().dump(scalar)) == scalar
    with pytest.raises(UnpicklingError, match="numpy dtype O8 is refused"):
        read(pickle.dumps(np.array([object], object), 2))


def test_python2_classes_and_old_opcodes():
    body = b"c__builtin__\nset\n((lp0\nI1\naI01\naI00\naL5L\naF1.5\naS'a\\x41\\n'\naVb\\u00e9\natR."
    assert read(body) == {1, False, 5, 1.5, "aA\n", "bé"}
    assert read(b"(lp0\n.") == [] and read(b"(dp0\nS'k'\nI7\ns.") == {"k": 7}
    assert read(b"\x80\x02(K\x01K\x021K\x03.") == 3 and read(b"\x80\x02K\x012\x86.") == (1, 1)
    assert read(b"\x80\x02T\x02\x00\x00\x00hi.") == "hi" and read(b"\x80\x02U\x01\xff.") == b"\xff"
    assert read(b"\x80\x02U\x01\xff.", encoding="latin1") == "ÿ" and read(b"\x80\x02U\x01a.", encoding="bytes") == b"a"
    assert read(b"\x80\x02c__builtin__\nunicode\n.") is str


def test_inert_reading_lists_names():
    resolver = InertResolver()
    body = pickle.dumps({"x": [pickle.PickleError("a"), OrderedDict(a=1), complex(1, 2)]}, 2)
    Unpickler(body, resolver=resolver).load()
    assert list(resolver.paths) == ["pickle.PickleError", "collections.OrderedDict", "builtins.complex"]


def test_memory_views_are_read_in_place():
    data = b"junk" + pickle.dumps([1, "a"], 4) + b"more"
    u = Unpickler(memoryview(data), 4, resolver=SafeResolver(ArrayBuilder()))
    assert u.load() == [1, "a"] and data[u.position :] == b"more"


def test_pickler_refusals():
    for value, reason in [(lambda: 0, "<lambda>"), (np.array([object()]), "numpy dtype object")]:
        with pytest.raises(pickle.PicklingError, match=reason):
            Pickler().dump(value)
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(pickle.PicklingError, match="nested too deeply"):
        Pickler().dump(deep)


def test_pickler_writes_cycles_and_objects():
    cycle: list = []
    cycle.append((cycle, 1, 2, 3))
    cycle.append((cycle,))
    found = pickle.loads(Pickler().dump(cycle))
    assert found[0][0] is found and found[1][0] is found
    value = [Counter("aab"), defaultdict(list, a=[1]), slice(1, 2), ValueError("x"), len, int]
    found = pickle.loads(Pickler().dump(value))
    assert found[:3] == value[:3] and found[3].args == ("x",) and found[4:] == [len, int]
