"""CUDA kernels in tests: run on the CPU by g++ (`engine.backends.cuda.compile.Shim`), many to a translation unit.

`run_all(work)` does `work()` twice: first every kernel that it asks for is only noted (its outputs stay as they are, so
errors do not count), then all of them are compiled together and `work()` computes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from engine.backends.cuda import compile as compiling
from engine.tensor import Tensor

MISSING = compiling.Shim.missing()


class Noting:
    """A builder whose kernels do nothing; it keeps their sources."""

    simulates = True

    def __init__(self) -> None:
        self.sources: dict[str, str] = {}  # source: name

    def module(self, source: str, options: tuple[str, ...], name: str) -> Noting:
        self.sources[source] = name
        return self

    def function(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


class Plant:
    """Replaces text in the source of kernels: what a test must find.  `fits` tells whether there was any."""

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new, self.fits = old, new, False

    def __call__(self, text: str) -> str:
        self.fits |= self.old in text
        return text.replace(self.old, self.new)


@contextlib.contextmanager
def using(builder: Any) -> Iterator[Any]:
    """`builder` compiles kernels within the block."""
    before = compiling.use(builder)
    try:
        yield builder
    finally:
        compiling.use(before)


def noted(work: Callable[[], Any]) -> Noting:
    """The kernels that `work` asks for."""
    with using(Noting()) as notes, contextlib.suppress(Exception):
        work()
    return notes


def run_all(work: Callable[[], Any], folder: Path, **options: Any) -> Any:
    """What `work()` gives with every kernel computed by the shim."""
    shim = compiling.Shim(files=compiling.Cache(folder), **options)
    shim.prepare(list(noted(work).sources))
    with using(shim):
        return work()


def narrowed(value: Any, dtype: str) -> Any:
    """The array of a sample's Tensor with its floats in a dtype; other values as they are."""
    if not isinstance(value, Tensor):
        return value
    array = value._array
    return array.astype(dtype) if array.dtype.kind == "f" else array


TOLERANCE = {"float32": 5e-6, "float64": 1e-13, "bfloat16": 2e-2, "float16": 4e-3}


def differences(want: Any, got: Any, dtype: str) -> str:
    """What differs between two results of a kernel, or ""."""
    wants, gots = (list(v) if isinstance(v, tuple) else [v] for v in (want, got))
    if len(wants) != len(gots):
        return f"{len(gots)} results instead of {len(wants)}"
    for n, (w, g) in enumerate(zip(map(np.asarray, wants), gots)):
        if w.dtype != g.dtype or w.shape != g.shape:
            return f"result {n} is {g.dtype}{g.shape}, not {w.dtype}{w.shape}"
        near = TOLERANCE[dtype]
        with np.errstate(all="ignore"):
            a, b = (v.astype(np.float64) if v.dtype.kind in "fV" else v for v in (w, g))
            if not np.allclose(a, b, rtol=near, atol=near, equal_nan=True):
                return f"result {n} is {b.reshape(-1)[:6]}, not {a.reshape(-1)[:6]}"
    return ""
