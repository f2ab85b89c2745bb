"""Kernels of the source form as machine code of this processor."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.file_cache import Cache
from engine.kernels import compiler, cpu, llvm_ir, processor, rows
from engine.kernels.elementwise import collapsed, recorded
from engine.kernels.form import FormError, Kernel, call, where
from engine.kernels.llvm_math import BOUNDS

pytestmark = pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}")


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder of the test's own."""
    monkeypatch.setattr(compiler, "cache", Cache(tmp_path))
    yield tmp_path


def function_of(name: str, type: str) -> cpu.Built:
    k = Kernel("f", "map")
    x, out = k.array("x", type, dense=True), k.array("out", type, True, True)
    k.store(out, k.index, call(name, k.load(x, k.index)))
    return cpu.build(k)


def applied(name: str, x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    function_of(name, x.dtype.name)([x, out], x.size)
    return out


def _points(name: str, type: str) -> np.ndarray:
    """Numbers of all magnitudes at which the function is an ordinary number, and where it bends."""
    rng = np.random.default_rng(7)
    info = np.finfo(type)
    low, high = np.log2(float(info.smallest_normal)), np.log2(float(info.max))
    if name.startswith("log"):
        x = 2.0 ** rng.uniform(low, high, 100_000)
        near = 1 + rng.uniform(-0.4, 0.8, 100_000)
        return np.concatenate([x, near - 1 if name == "log1p" else near]).astype(type)
    edge = {"exp": np.log(2) * high, "exp2": high, "expm1": np.log(2) * high, "tanh": 25.0}[name]
    least = {"exp": np.log(2) * low, "exp2": low, "expm1": -50.0, "tanh": -25.0}[name]
    small = 2.0 ** rng.uniform(-30, 0, 50_000) * rng.choice([-1, 1], 50_000)
    return np.concatenate([rng.uniform(least * 0.999, edge * 0.999, 150_000), small]).astype(type)


@pytest.mark.parametrize("type", ["float32", "float64"])
@pytest.mark.parametrize("name", BOUNDS)
def test_functions_against_mathematics(name: str, type: str) -> None:
    """The stated bounds, in ulp, beside numbers of 64 bits' mantissa."""
    x = _points(name, type)
    want = getattr(np, name)(x.astype(np.longdouble))
    got = applied(name, x)
    error = np.abs(got - want) / np.spacing(np.abs(want).astype(type))
    assert error.max() <= BOUNDS[name][type == "float64"], (x[error.argmax()], got[error.argmax()])


@pytest.mark.parametrize("type", ["float32", "float64"])
@pytest.mark.parametrize("name", BOUNDS)
def test_functions_at_the_ends(name: str, type: str) -> None:
    least = np.finfo(type).smallest_subnormal
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e30, -1e30, least, 1e-30, -2.0], type)
    with np.errstate(all="ignore"):
        want = getattr(np, name)(x)
    got = applied(name, x)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got) * np.sign(got), np.isinf(want) * np.sign(want))
    np.testing.assert_allclose(got, want, 1e-6)
    np.testing.assert_array_equal(np.signbit(got)[:2], np.signbit(want)[:2])


def test_a_function_without_code_is_refused() -> None:
    with pytest.raises(FormError, match="no sinh of float32 in generated code"):
        function_of("sinh", "float32")


@pytest.mark.parametrize("type", ["float16", "bfloat16"])
def test_sixteen_bits_are_rounded_once(type: str) -> None:
    import ml_dtypes

    dtype = np.dtype(getattr(ml_dtypes, type) if type == "bfloat16" else type)
    k = Kernel("half", "map")
    x, out = k.array("x", "float32", dense=True), k.array("out", type, True, True)
    k.store(out, k.index, k.load(x, k.index))
    values = np.random.default_rng(0).integers(0, 2**32, 100_000, np.uint32).view(np.float32)
    values = np.concatenate([values, np.float32([0, -0.0, np.inf, np.nan, 65519, 65520, 1 + 2**-8, 1 + 3 * 2**-8])])
    got = np.empty(values.shape, dtype)
    if type == "float16" and not processor.target().halves:
        with pytest.raises(FormError, match="float16"):
            cpu.build(k)
        return
    cpu.build(k)([values, got], values.size)
    with np.errstate(all="ignore"):
        want = values.astype(dtype)
    same = got.view(np.uint16) == want.view(np.uint16)
    assert np.all(same | (np.isnan(got.astype("f4")) & np.isnan(want.astype("f4"))))


# --- layouts


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("shape", [(7,), (5, 6), (3, 4, 5), (2, 3, 1, 4), (2, 3, 2, 5, 3), (300, 7)])
def test_maps_over_any_strides(shape: tuple[int, ...], fixed: bool) -> None:
    """Operands transposed, broadcast, in steps: with parts that begin anywhere."""
    rng = np.random.default_rng(1)
    wide = rng.standard_normal([2 * n for n in shape[::-1]])
    x = wide[tuple([slice(None, None, 2)] * len(shape))].transpose()
    y = np.broadcast_to(rng.standard_normal(shape[-1]), shape)
    out = np.empty(shape)
    arrays = [x, y, out]
    layout = collapsed(shape, [[s // 8 for s in a.strides] for a in arrays])
    code = recorded("f", lambda xp, a, b: xp.exp(a) * b + a, [x.dtype, y.dtype], {}, layout.classes, True)
    known = {f"n{len(layout.sizes) - 1}": layout.sizes[-1]} if fixed and len(layout.sizes) > 1 else {}
    built = cpu.build(code.kernel, known=known)
    built([*arrays, *layout.numbers()], layout.count)
    np.testing.assert_allclose(out, np.exp(x) * y + x, 1e-14, 1e-14)
    out[...] = 0
    args = built.pack(*[id(a) for a in arrays], *layout.numbers())
    for begin in range(0, layout.count, 5):
        built.entry(args, begin, min(begin + 5, layout.count))
    np.testing.assert_allclose(out, np.exp(x) * y + x, 1e-14, 1e-14)


def row_kernel(write: Any, arrays: list[np.ndarray], results: int, dims: tuple[int, ...], columns: bool) -> None:
    shape = arrays[0].shape
    kept = [d for d in range(len(shape)) if d not in dims]
    strides = [[s // a.itemsize if n > 1 else 0 for s, n in zip(a.strides, a.shape)] for a in arrays]
    by_row = collapsed([shape[d] for d in kept], [[s[d] for d in kept] for s in strides])
    by_place = collapsed([shape[d] for d in dims], [[s[d] for d in dims] for s in strides])
    made = rows.Rows("r", [a.dtype for a in arrays], results, by_row.classes, by_place.classes)
    write(made)
    told = [*by_row.numbers(), *by_place.numbers(), by_place.count]
    names = [p.name for p in made.kernel.parameters][len(arrays) :]
    built = cpu.build(made.kernel, columns=columns, known={n: v for n, v in zip(names, told) if v == 1})
    built([*arrays, *told], by_row.count, by_place.count)


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (0, 2), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("shape", [(3, 5, 7), (2, 70, 130), (9, 1, 4)])
def test_rows_of_any_dims(shape: tuple[int, ...], dims: tuple[int, ...], columns: bool) -> None:
    x = np.random.default_rng(2).standard_normal(shape).astype("f4")
    got = np.empty_like(x)
    row_kernel(rows.softmax, [x, got], 1, dims, columns)
    e = np.exp(x.astype("f8") - x.max(dims, keepdims=True))
    np.testing.assert_allclose(got, e / e.sum(dims, keepdims=True), 1e-5)


@pytest.mark.parametrize("columns", [False, True])
def test_long_sums_lose_nothing(columns: bool) -> None:
    x = np.full((300_000, 3), 0.1, "f4")
    got = np.empty((1, 3), "f4")

    def total(made: rows.Rows) -> None:
        found = made.sum(lambda j: made.load(0, j))
        with made.kernel.once():
            made.store(1, found)

    row_kernel(total, [x, got], 1, (0,), columns)
    np.testing.assert_allclose(got[0], 300_000 * float(np.float32(0.1)), 1e-5)


@pytest.mark.parametrize("by", ["sum", "product", "max", "min", "any", "all", "argmax", "argmin"])
def test_reductions_see_nan_and_the_first_of_equals(by: str) -> None:
    x = np.array([[1, 5, 5, -2], [np.nan, 1, np.nan, 0], [0, 0, -0.0, 0]])
    got = np.empty((3, 1), "i8" if by.startswith("arg") else "f8")
    placed = by.startswith("arg")

    def write(made: rows.Rows) -> None:
        k = made.kernel
        truth = by in ("any", "all")
        found = k.reduce(by, made.width, lambda j: k.cast(made.load(0, j), "bool") if truth else made.load(0, j))
        with k.once():
            made.store(1, found[1] if placed else k.cast(found, "float64"))

    row_kernel(write, [x, got], 1, (1,), False)
    name = {"product": "prod"}.get(by, by)
    np.testing.assert_array_equal(got[:, 0], getattr(np, name)(x, 1))


def test_integers_wrap_and_compare_by_their_sign() -> None:
    k = Kernel("whole", "map")
    x, y = k.array("x", "int8"), k.array("y", "uint8")
    out, more = k.array("out", "int8", True), k.array("more", "bool", True)
    a, b = k.load(x, k.index), k.load(y, k.index)
    k.store(out, k.index, where(a < 0, a * 3, a + 100))
    k.store(more, k.index, b > 127)
    left, right = np.arange(-128, 128).astype("i1"), np.arange(256).astype("u1")
    got, large = np.empty(256, "i1"), np.empty(256, bool)
    cpu.build(k)([left, right, got, large], 256)
    np.testing.assert_array_equal(got, np.where(left < 0, left * np.int8(3), left + np.int8(100)))
    np.testing.assert_array_equal(large, right > 127)


LEVELS = {"SSE4.1": "x86-64", "AVX2": "x86-64-v3", "AVX-512": "x86-64-v4"}


@pytest.mark.parametrize("level", LEVELS)
def test_products_of_long_numbers(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both halves, also of one product that is asked for twice: in the same block, and in one that may be left out."""
    target = processor.target()
    assert target is not None
    if target.level not in LEVELS or [*LEVELS].index(level) > [*LEVELS].index(target.level):
        pytest.skip("not the instructions of this processor")
    other = processor.Target(level, LEVELS[level], "", True, level == "AVX-512")
    monkeypatch.setattr(processor, "target", lambda: other)
    k = Kernel("long", "map")
    x, y = k.array("x", "uint64"), k.array("y", "uint64")
    outs = [k.array(f"out{n}", "uint64", True) for n in range(4)]
    a, b = k.load(x, k.index), k.load(y, k.index)
    fixed = 0xD2E7470EE14C6C93
    with k.when(b > 1):
        k.store(outs[0], k.index, k.op("high", a, b))
    k.store(outs[1], k.index, k.op("mul", a, b))
    for n, how in ((2, "high"), (3, "mul")):
        k.store(outs[n], k.index, k.op(how, a, fixed))
    edges = [0, 1, 2, 2**32 - 1, 2**32, 2**32 + 1, 2**63, 2**64 - 1, 0xCA5A826395121157]
    pairs = [(p, q) for p in edges for q in edges]
    left, right = (np.array(v, np.uint64) for v in zip(*pairs))
    got = [np.zeros(len(pairs), np.uint64) for _ in outs]
    cpu.build(k)([left, right, *got], len(pairs))
    assert got[0].tolist() == [p * q >> 64 if q > 1 else 0 for p, q in pairs]
    assert got[1].tolist() == [p * q % 2**64 for p, q in pairs]
    assert got[2].tolist() == [p * fixed >> 64 for p, _ in pairs]
    assert got[3].tolist() == [p * fixed % 2**64 for p, _ in pairs]


def test_elements_that_meet_at_one_place_are_done_by_one_thread() -> None:
    k = Kernel("meet", "map")
    at, out = k.array("at", "int64"), k.array("out", "float64", True)
    k.add_to(out, k.cast(k.load(at, k.index), "index"), k.constant(1.0, "float64"))
    assert llvm_ir.serial(k)
    index = np.random.default_rng(3).integers(0, 10, 200_000)
    got = np.zeros(10)
    cpu.build(k)([index, got], index.size)
    np.testing.assert_array_equal(got, np.bincount(index, minlength=10))


# --- the cache


def test_code_is_kept_and_a_damaged_file_is_made_again(kept: Path) -> None:
    compiler.linked.cache_clear()
    x = np.linspace(-1, 1, 50)
    np.testing.assert_allclose(applied("exp", x), np.exp(x), 1e-15)
    (file,) = kept.glob("*.o")
    whole = file.read_bytes()
    linked: list[bytes] = []
    for damage in (whole[:-5], whole[:40] + bytes([whole[40] ^ 1]) + whole[41:], b""):
        file.write_bytes(damage)
        compiler.linked.cache_clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compiler.compiler, "link", lambda code, name: linked.append(code) or 0)
            function_of("exp", "float64")
        assert linked.pop() == whole[32:] and file.read_bytes() == whole
    compiler.linked.cache_clear()  # what was not linked is not called by others


PROGRAM = """
import os, sys, numpy as np
from engine.kernels import cpu, processor
from engine.kernels.form import Kernel, call
def run(n):
    k = Kernel("f", "map")
    x, out = k.array("x", "float64", dense=True), k.array("out", "float64", True, True)
    k.store(out, k.index, call("exp", k.load(x, k.index)) + float(n))
    a = np.linspace(-1, 1, 100_000); b = np.empty_like(a)
    cpu.build(k)([a, b], a.size)
    assert np.allclose(b, np.exp(a) + n)
run(1)
child = os.fork()
run(2); run(1)
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("done")
"""


def _started(folder: Path, **more: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ENGINE_KERNEL_CACHE": str(folder), **more}
    root = Path(__file__).parents[3]
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM], env=environment, cwd=root, text=True, stdout=subprocess.PIPE
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_two_processes_and_their_children_at_once(tmp_path: Path) -> None:
    both = [_started(tmp_path / "shared") for _ in range(2)]
    for process in both:
        assert process.communicate(timeout=120)[0] == "done\n" and process.returncode == 0
    assert len(list((tmp_path / "shared").iterdir())) == 2  # nothing half-written is left


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_folder_that_cannot_be_written_is_not_needed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    process = _started(tmp_path / "file" / "below")
    assert process.communicate(timeout=120)[0] == "done\n" and process.returncode == 0


def test_instructions_are_limited_as_onednns() -> None:
    for level, names in (("SSE41", ("SSE4.1", "NEON")), ("AVX2", ("AVX2", "SSE4.1", "NEON"))):
        code = "from engine.kernels import cpu, processor; print(processor.target().level)"
        found = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "ONEDNN_MAX_CPU_ISA": level},
            text=True,
            capture_output=True,
            check=True,
            cwd=Path(__file__).parents[3],
        ).stdout.strip()
        assert found in names
