"""Direct calls: which launch serves which arguments, what is offered, what happens to memory."""

from __future__ import annotations

import gc
import sys
from typing import Any

import numpy as np
import pytest

from engine.kernels import cpu, direct, processor, team
from engine.kernels.elementwise import Layout, recorded

pytestmark = pytest.mark.skipif(
    not processor.available() or not direct.readable(), reason=f"generated code is {processor.describe()}"
)
F32 = np.dtype("float32")


def built(code: Any, operands: int, count: int) -> tuple[cpu.Built, list[int]]:
    """The kernel of `code(xp, *arrays)` over vectors, and the numbers that follow the arrays in its words."""
    layout = Layout((count,), tuple([(1,)] * (operands + 1)))
    made = recorded("direct", code, [F32] * operands, {}, layout.classes, True, [F32])
    return cpu.build(made.kernel), layout.numbers()


def add_launch(
    kept: direct.Direct, args: tuple[Any, ...], code: Any, temporaries: int = 0, results: int = 0, pieces: int = 0
) -> int:
    """Keep `code` of the arrays of `args`, all vectors of one length."""
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    count = arrays[0].size
    kernel, told = built(code, len(arrays), count)
    packed = kernel.pack(*[0] * (len(arrays) + 1), *told)
    steps = [(kernel.address, count, list(range(len(arrays) + 1)), packed, pieces)]
    return kept.add(args, [((count,), F32)] * (1 + temporaries), steps, results)


def offered(*args: Any) -> Any:
    return "offered", args


def vectors(*sizes: int) -> list[Any]:
    return [np.random.default_rng(n).standard_normal(n).astype("float32") for n in sizes]


def test_a_launch_serves_arrays_of_its_type_shape_and_strides_alone() -> None:
    kept = direct.Direct("both", offered)
    x, y = vectors(70, 71)
    y = y[:70]
    add_launch(kept, (x, y), lambda xp, a, b: a * b + a)
    f = kept.function
    np.testing.assert_allclose(f(x, y), x * y + x, rtol=1e-6)
    np.testing.assert_allclose(f(y, x), x * y + y, rtol=1e-6)
    wide = np.zeros(140, "float32")
    others = [
        (x, y[:69]),
        (x, y.astype("float64")),
        (x, wide[::2]),
        (x, y.reshape(70, 1)),
        (x,),
        (x, y, y),
        (x, 1.0),
        (x, None),
        (x, y.view(type("Own", (np.ndarray,), {}))),
    ]
    assert all(f(*args) is NotImplemented for args in others)


def test_numbers_are_compared_by_their_bits_and_other_objects_by_identity() -> None:
    kept = direct.Direct("numbers", offered, 1 << 20)
    (x,) = vectors(8)
    known = (x, 0.0, 2000, None, (8, -(1 << 40)), True, "a")
    add_launch(kept, known, lambda xp, a: a + a)
    f = kept.function
    assert np.array_equal(f(*known), x + x)
    assert np.array_equal(f(x, -0.0 + 0.0, int("2000"), None, tuple([int("8"), -(2**40)]), True, "a"), x + x)
    others = [
        (1, -0.0),
        (1, 0),
        (2, 2000.0),
        (2, 2001),
        (2, 1 << 70),
        (2, np.int64(2000)),
        (3, 0),
        (4, (8,)),
        (4, [8, 1]),
        (4, (8, 1)),
        (4, (8.0, -(1 << 40))),
        (4, (8, x)),
        (5, 1),
        (6, "b"),
    ]
    for place, other in others:
        args = list(known)
        args[place] = other
        assert f(*args) is NotImplemented, (place, other)


@pytest.mark.parametrize("kept_for", [-1, (3, -1)])
def test_an_int_that_is_no_64_bit_one_is_not_minus_one(kept_for: Any) -> None:
    """To which the conversion sets what it cannot convert."""
    kept = direct.Direct("minus", offered, 1 << 20)
    (x,) = vectors(8)
    add_launch(kept, (x, kept_for), lambda xp, a: a + a)
    assert np.array_equal(kept.function(x, kept_for), x + x)
    for other in (1 << 64, -(1 << 64), 1 << 200):
        given = other if kept_for == -1 else (3, other)
        assert kept.function(x, given) is NotImplemented
        assert kept.function(x, kept_for) is not NotImplemented  # and no error is left behind


def test_one_of_so_many_calls_without_a_launch_is_offered() -> None:
    kept = direct.Direct("offers", offered, 4)
    found = [kept.function("a") for _ in range(8)]
    assert found == [NotImplemented] * 3 + [("offered", ("a",))] + [NotImplemented] * 3 + [("offered", ("a",))]

    def refuse(*args: Any) -> Any:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        direct.Direct("errors", refuse, 1).function(1)


def test_many_launches_and_those_that_were_given_up() -> None:
    kept = direct.Direct("many", offered, 1 << 20)
    xs = vectors(*range(1, direct.LAUNCHES + 9))
    names = [add_launch(kept, (x,), lambda xp, a: a * a) for x in xs]
    served = [x for x in xs if kept.function(x) is not NotImplemented]
    assert len(served) == direct.LAUNCHES and served[-1] is xs[-1]
    assert all(np.array_equal(kept.function(x), x * x) for x in served)
    kept.remove(names[-1])
    assert kept.function(xs[-1]) is NotImplemented
    assert sum(kept.function(x) is not NotImplemented for x in xs) == direct.LAUNCHES - 1


@pytest.mark.onednn
@pytest.mark.parametrize("members", [0, 1, 2, 3])
def test_large_launches_are_shared_among_threads(members: int) -> None:
    kept = direct.Direct("shared", offered)
    for count in (1, 5, 300, 100_003):  # of few elements some pieces are empty
        x, y = vectors(count), np.ones(count, "f4")
        add_launch(kept, (x[0], y), lambda xp, a, b: a + b, pieces=4)
        if not team.shared[1]:
            pytest.skip("there are no OpenMP threads to share with")
        before, team.shared[0] = int(team.shared[0]), members
        try:
            np.testing.assert_array_equal(kept.function(x[0], y), x[0] + 1)
        finally:
            team.shared[0] = before


def test_nothing_leaks() -> None:
    kept = direct.Direct("leaks", offered, 1 << 20)
    x, y = vectors(5, 6)
    add_launch(kept, (x,), lambda xp, a: a + a, temporaries=2)
    add_launch(kept, (y,), lambda xp, a: a + a, temporaries=1, results=2)
    one, two = kept.function(x), kept.function(y)
    assert sys.getrefcount(one) == 2 and isinstance(two, tuple) and len(two) == 2
    assert sys.getrefcount(two) == 2 and [sys.getrefcount(r) for r in two] == [3, 3]
    counted = lambda: [sys.getrefcount(o) for o in (x, y, F32, NotImplemented)]
    before = counted()
    for _ in range(1000):
        kept.function(x), kept.function(y), kept.function(None)
    assert counted() == before


def test_memory_that_cannot_be_had_is_an_error_and_what_was_made_is_dropped() -> None:
    kept = direct.Direct("memory", offered)
    (x,) = vectors(3)
    kernel, told = built(lambda xp, a: a + a, 1, 3)
    steps = [(kernel.address, 3, [0, 1], kernel.pack(0, 0, *told), 0)]
    kept.add((x,), [((3,), F32), ((1 << 60,), F32)], steps, 0)
    gc.collect()
    before = sys.getrefcount(F32)
    for _ in range(50):
        with pytest.raises((MemoryError, ValueError)):
            kept.function(x)
    assert sys.getrefcount(F32) == before


def test_what_cannot_be_kept_is_refused() -> None:
    kept = direct.Direct("room", offered)
    (x,) = vectors(3)
    assert not kept.add((x, *range(direct.ARGUMENTS)), [((3,), F32)], [], 0)
    assert not kept.add((x,), [((3,), F32)] * direct.ARRAYS, [], 0)
