"""cublasLt's binding, against a library that checks every argument (`tests/engine/cublaslt.py`)."""

from __future__ import annotations

import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from engine.backends.cuda import blaslt, routes
from tests.engine.cublaslt import CublasLt, Refused

TYPES = ("float32", "float64", "float16", ml_dtypes.bfloat16)
NEAR = {"float32": 1e-5, "float64": 1e-12, "float16": 5e-3, "bfloat16": 3e-2}


class Recorded:
    """numpy whose new arrays the library may touch."""

    def __init__(self, library: CublasLt) -> None:
        self.library = library

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if name not in ("empty", "ascontiguousarray"):
            return found

        def make(*args: Any, **kwargs: Any) -> Any:
            made = found(*args, **kwargs)
            self.library.within(made)
            return made

        return make


def _blas(module: Any = blaslt, workspace: int = 0) -> tuple[Any, CublasLt, Any]:
    library = CublasLt(workspace)
    memory = np.zeros((64 << 20) // 8, np.float64)
    at = -(-memory.__array_interface__["data"][0] // 256) * 256
    made = module.Blas(library, lambda: 0, lambda: 0x57, lambda size: at)
    made.memory = memory
    return made, library, Recorded(library)


def _array(rng: Any, kind: Any, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(kind)


def _matrices(kind: Any) -> Iterator[tuple[str, Any, Any]]:
    rng = np.random.default_rng(2)
    for n, k, m in ((3, 4, 5), (1, 7, 6), (6, 1, 2), (8, 5, 1), (1, 1, 1)):
        for left in ("plain", "turned", "cut", "stepped"):
            for right in ("plain", "turned", "cut", "odd"):
                a = {
                    "plain": _array(rng, kind, n, k),
                    "turned": _array(rng, kind, k, n).T,
                    "cut": _array(rng, kind, n + 2, k + 3)[1:-1, 1 : k + 1],
                    "stepped": _array(rng, kind, 2 * n, 2 * k)[::2, ::2],
                }[left]
                b = {
                    "plain": _array(rng, kind, k, m),
                    "turned": _array(rng, kind, m, k).T,
                    "cut": _array(rng, kind, k, m + 8)[:, 8:],
                    "odd": _array(rng, kind, k * m + 1)[1:].reshape(k, m),
                }[right]
                yield f"{n}x{k}x{m} {left} {right}", a, b


def check_products(module: Any) -> list[str]:
    """What differs from numpy, over layouts and types; Refused where an argument is wrong."""
    wrong = []
    for kind in TYPES:
        blas, library, xp = _blas(module)
        for label, a, b in _matrices(kind):
            library.within(a, b)
            got = module.product(blas, xp, a, b)
            want = a.astype(np.float64) @ b.astype(np.float64)
            if not np.allclose(want, got.astype(np.float64), rtol=NEAR[a.dtype.name], atol=NEAR[a.dtype.name]):
                wrong.append(f"{a.dtype} {label}")
        rng = np.random.default_rng(4)
        a, b = _array(rng, kind, 3, 2, 4, 5), _array(rng, kind, 3, 2, 5, 6)
        one = np.broadcast_to(_array(rng, kind, 5, 6), (3, 2, 5, 6))
        heads = _array(rng, kind, 3, 5, 2, 6).transpose(0, 2, 1, 3)  # two batch dims that no one stride walks
        batches = {
            "batches": (a, b),
            "one for all": (a, one),
            "heads": (a, heads),
            "cut": (a[:, :, 1:3], b[..., 1:4]),
            "turned": (b.swapaxes(2, 3), a.swapaxes(2, 3)),
            "packed": (a[:, 0], b[:, 1]),
        }
        for label, (x, y) in batches.items():
            library.within(x, y)
            got, near = module.product(blas, xp, x, y), NEAR[x.dtype.name]
            want = x.astype(np.float64) @ y.astype(np.float64)
            if not np.allclose(want, got.astype(np.float64), rtol=near, atol=near):
                wrong.append(f"{x.dtype} {label}")
    return wrong


def test_products_of_every_layout_and_type() -> None:
    assert not check_products(blaslt)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return Operand(m, n, ld)", "return Operand(m, n, max(1, m))"),  # a wrong leading dimension
        ("return Operand(n, m, ld, transposed=True)", "return Operand(n, m, ld, transposed=False)"),
        ("result = Operand(m, n, m, stride", "result = Operand(m, n, n, stride"),
        ("prod(copy.shape[-2:]) if", "prod(copy.shape[-1:]) if"),  # a wrong stride of batches
        ("elif s != found * span:", "elif False:"),
        ("min(256, address & -address) or 256", "256"),
        ("COMPUTE_64F if type", "COMPUTE_32F if type"),
        ("number = c_double if problem.type", "number = c_float if problem.type"),
    ],
)
def test_a_planted_fault_is_found(old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "ROUTES", dict(routes.ROUTES))  # the copy registers its own
    text = Path(blaslt.__file__).read_text()
    assert old in text
    planted = types.ModuleType("planted_blaslt")
    __import__("sys").modules["planted_blaslt"] = planted
    exec(compile(text.replace(old, new), "planted_blaslt", "exec"), planted.__dict__)
    try:
        assert check_products(planted)
    except Refused:
        pass
    finally:
        del __import__("sys").modules["planted_blaslt"]


@pytest.mark.parametrize("kind", ["float32", "float16", ml_dtypes.bfloat16])
def test_biases(kind: Any) -> None:
    blas, library, xp = _blas()
    rng = np.random.default_rng(0)
    a, b, bias = _array(rng, kind, 5, 7), _array(rng, kind, 3, 7).T, _array(rng, kind, 3)
    library.within(a, b, bias)
    for vector in (bias, None):
        want = a.astype(np.float64) @ b.astype(np.float64) + (0 if vector is None else vector.astype(np.float64))
        got = blaslt.product(blas, xp, a, b, vector)
        assert np.allclose(want, got.astype(np.float64), rtol=NEAR[a.dtype.name], atol=NEAR[a.dtype.name])


def test_a_plan_is_made_once_and_forgotten_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blaslt, "PLANS", 3)
    blas, library, xp = _blas(workspace=1 << 20)
    for n in (2, 3, 4, 5, 5, 5):
        a = np.ones((n, 4), np.float32)
        library.within(a)
        blaslt.product(blas, xp, a, a.T)
    assert library.calls == 6 and blas.made >= 4
    assert sum(thing.kind == "layout" for thing in library.things.values()) == 9
    blas.clear()
    assert not library.things


def test_errors_of_the_library_name_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    blas, library, xp = _blas()
    a = np.ones((2, 2), np.float32)
    library.within(a)
    monkeypatch.setattr(library, "cublasLtMatmul", lambda *args: 13)
    with pytest.raises(blaslt.BlasError, match="cublasLtMatmul failed with status 13"):
        blaslt.product(blas, xp, a, a)
