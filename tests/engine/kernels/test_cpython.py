"""Objects by byte offset: in one module, behind a probe that turns off whatever differs."""

from __future__ import annotations

import ast
import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine.kernels import cpython, direct, processor

ROOT = Path(engine.__file__).parent


def test_one_module_reads_objects_by_their_place() -> None:
    """`from_address` elsewhere only of what a documented protocol (DLPack) gives the address of."""

    def reads(path: Path) -> bool:
        text, wanted = path.read_text("utf-8"), {"from_address", "__basicsize__", "__dictoffset__"}
        if not any(name in text for name in wanted):
            return False
        return bool(wanted & {n.attr for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Attribute)})

    found = [p.relative_to(ROOT).as_posix() for p in sorted(ROOT.rglob("*.py")) if reads(p)]
    assert found == ["kernels/cpython.py", "utils/dlpack.py"]


def test_this_interpreter_is_read() -> None:
    """On the versions that are supported; dicts have no numbers from 3.13 on, and then plans check in Python."""
    import sys

    if sys.implementation.name != "cpython":
        pytest.skip("identities are no addresses")
    assert cpython.readable("arrays") and cpython.readable("calls")
    assert cpython.readable("dicts") is (sys.version_info < (3, 13))


def test_words_are_where_they_are_said_to_be() -> None:
    if not cpython.readable("arrays"):
        pytest.skip("another layout")
    x, value = np.arange(6.0), 0.25
    assert cpython.word(id(x) + cpython.HEAD) == x.ctypes.data
    assert cpython.word(id(x) + cpython.TYPE) == id(np.ndarray)
    assert ctypes.c_double.from_address(id(value) + cpython.HEAD).value == value
    if not cpython.readable("dicts"):
        return
    counter = [1000]
    assert cpython.word(*cpython.words_of_lists([counter])) == id(counter[0])
    (place,) = cpython.words_of_dicts([found := {"a": 1}])
    before = cpython.word(place)
    found["a"] = 2
    assert cpython.word(place) != before


@pytest.mark.parametrize("what", ["arrays", "calls", "dicts"])
def test_what_differs_is_off(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head of another length, as of a build for debugging, and numbers that do not change."""
    probe = cpython.readable.__wrapped__
    if not probe(what):
        pytest.skip("off here")
    own = cpython.word
    monkeypatch.setattr(cpython, "word", lambda address: own(address) ^ 1 if what != "dicts" else 7)
    assert not probe(what)


@pytest.mark.parametrize("error", [AttributeError, ValueError, OSError])
def test_a_probe_that_cannot_be_made_turns_off(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> bool:
        raise error("no such table")

    monkeypatch.setitem(cpython._PROBES, "calls", broken)
    assert cpython.readable.__wrapped__("calls") is False


def test_without_it_calls_take_the_plain_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is generated where arrays differ; no direct calls where floats or tuples do; results are the same."""
    if not processor.available():
        pytest.skip(processor.describe())
    from engine.dispatch import OPS, choosing
    from engine.ops.generated import small

    def without(*names: str) -> Any:
        return lambda what: what not in names

    monkeypatch.setattr(cpython, "readable", without("calls"))
    assert not direct.readable() and small.function_of(OPS["mul"], OPS["mul"].kernel) is None
    x = engine.linspace(-1, 1, 64)
    assert all(engine.equal(x * x, x**2) for _ in range(600))
    monkeypatch.setattr(cpython, "readable", without("arrays", "calls", "dicts"))
    processor.available.cache_clear()
    try:
        assert not processor.available() and not choosing.generated(OPS["mul"])
    finally:
        monkeypatch.undo()
        processor.available.cache_clear()
    assert processor.available()
