"""Builders of CUDA kernels: the cache on disk, the CPU shim, and NVRTC for architectures that are not here."""

from __future__ import annotations

import importlib.util
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends.cuda import compile as compiling
from engine.dispatch import OPS
from engine.kernels import cuda_c, tables
from engine.kernels.elementwise import collapsed, recorded
from engine.ops.cuda._launch import built
from tests.engine import shim

needs_gxx = pytest.mark.skipif(bool(shim.MISSING), reason=shim.MISSING)
needs_nvrtc = pytest.mark.skipif(
    importlib.util.find_spec("cuda") is None or importlib.util.find_spec("nvidia") is None,
    reason="compiling for GPUs needs NVRTC: pip install '.[cudatest]'",
)

REVERSE = """
extern "C" __global__ void reverse(const float *x, float *out, int n) {
    __shared__ float kept[64];
    kept[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = kept[n - 1 - threadIdx.x];
}
"""


@pytest.fixture
def builder(tmp_path: Path) -> compiling.Shim:
    return compiling.Shim(files=compiling.Cache(tmp_path))


# --- the cache


def test_what_was_made_is_not_made_again(tmp_path: Path) -> None:
    made: list[Path] = []
    cache = compiling.Cache(tmp_path / "kept")

    def make(path: Path) -> None:
        made.append(path)
        path.write_text("kernel")

    first = cache.get(["source", "option"], ".x", make)
    assert first.read_text() == "kernel" and cache.get(["source", "option"], ".x", make) == first
    assert len(made) == 1
    assert cache.get(["sourceo", "ption"], ".x", make) != first and len(made) == 2
    assert sorted(p.suffix for p in (tmp_path / "kept").iterdir()) == [".x", ".x"]  # nothing half made is left


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    def make(path: Path) -> None:
        path.write_text("half")
        raise compiling.CompileError("no")

    with pytest.raises(compiling.CompileError):
        compiling.Cache(tmp_path / "kept").get(["a"], ".x", make)
    assert not list((tmp_path / "kept").iterdir())


def test_a_folder_that_cannot_be_written_is_replaced_with_one_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = compiling.Cache(tmp_path / "file" / "below")
    with pytest.warns(RuntimeWarning, match=r"compiled kernels are not stored: .* set ENGINE_KERNEL_CACHE"):
        first = cache.get(["a"], ".x", lambda path: path.write_text("a") and None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.get(["a"], ".x", lambda path: pytest.fail("made twice")) == first


def test_the_folder_is_the_users_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KERNEL_CACHE", str(tmp_path / "mine"))
    assert compiling.Cache().folder == tmp_path / "mine"
    monkeypatch.delenv("ENGINE_KERNEL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    assert compiling.Cache().folder == tmp_path / "home" / "engine" / "kernels"


# --- the builder in use


def test_without_a_builder_a_kernel_says_so() -> None:
    with shim.using(None), pytest.raises(RuntimeError, match="no builder of CUDA kernels is in use"):
        compiling.module(REVERSE)


def test_includes_come_once_and_only_from_kernels() -> None:
    text = compiling.expanded('#include "group.cuh"\n#include "group.cuh"\n#include "prelude.cuh"\nint x;\n')
    assert text.count("warp_reduce(T x)") == 1 and text.count("struct bfloat16") == 1 and "#include" not in text
    with pytest.raises(FileNotFoundError):
        compiling.expanded('#include "absent.cuh"\n')


# --- the shim


@needs_gxx
def test_threads_share_memory_and_wait(builder: compiling.Shim) -> None:
    x, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    builder.module(REVERSE).function("reverse")((1,), (64,), [x, out, np.int32(64)])
    assert (out == x[::-1]).all()


@needs_gxx
def test_shared_memory_is_poisoned_before_each_block(builder: compiling.Shim) -> None:
    """So that what is read before it is written shows, also in the second block."""
    source = REVERSE.replace("__syncthreads();", "")
    out = np.zeros(64, np.float32)
    function = builder.module(source + "// __syncthreads\n").function("reverse")
    for _ in range(2):
        function((2,), (64,), [np.ones(64, np.float32), out, np.int32(64)])
        assert np.isnan(out).any()


@needs_gxx
def test_a_barrier_and_a_shuffle_that_wait_for_each_other_are_an_error(builder: compiling.Shim) -> None:
    source = """
    extern "C" __global__ void split(float *out) {
        if (threadIdx.x & 1) __syncthreads();
        else out[0] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
    }
    """
    function = builder.module(source).function("split")
    with pytest.raises(RuntimeError, match="kernel split: threads of one block wait at different barriers"):
        function((1,), (32,), [np.zeros(1, np.float32)])


@needs_gxx
@pytest.mark.parametrize("args", [[], [np.zeros(64, np.float32)] * 2, [np.zeros(64, np.float32)] * 2 + [np.int64(64)]])
def test_arguments_of_other_sizes_are_refused(builder: compiling.Shim, args: list[Any]) -> None:
    with pytest.raises(TypeError, match="kernel reverse takes arguments of"):
        builder.module(REVERSE).function("reverse")((1,), (64,), args)


@needs_gxx
def test_a_python_number_is_no_argument(builder: compiling.Shim) -> None:
    x = np.zeros(64, np.float32)
    with pytest.raises(TypeError, match="an array or a numpy scalar, not int"):
        builder.module(REVERSE).function("reverse")((1,), (64,), [x, x, 64])


@needs_gxx
def test_blocks_of_too_many_threads_are_refused(builder: compiling.Shim) -> None:
    x = np.zeros(64, np.float32)
    with pytest.raises(RuntimeError, match="1 to 1024 threads"):
        builder.module(REVERSE).function("reverse")((1,), (2048,), [x, x, np.int32(64)])


@needs_gxx
def test_a_kernel_that_is_not_there_and_one_that_does_not_compile(builder: compiling.Shim) -> None:
    with pytest.raises(KeyError):
        builder.module(REVERSE).function("forward")
    with pytest.raises(compiling.CompileError, match="g\\+\\+ refused broken"):
        builder.module('extern "C" __global__ void broken() { return 1; }', (), "broken")


@needs_gxx
def test_sixteen_bit_floats_are_converted_as_numpy_does(builder: compiling.Shim) -> None:
    import ml_dtypes

    each = """
    extern "C" __global__ void wide_TYPE(const TYPE *x, float *out) {
        int i = blockIdx.x * 256 + threadIdx.x;
        out[i] = widened(x[i]);
    }
    extern "C" __global__ void narrow_TYPE(const float *x, TYPE *out) {
        int i = blockIdx.x * 256 + threadIdx.x;
        out[i] = narrowed<TYPE>::of(x[i]);
    }
    """
    source = '#include "prelude.cuh"\n' + "".join(each.replace("TYPE", t) for t in ("float16", "bfloat16"))
    module = builder.module(source)
    rng = np.random.default_rng(0)
    many = rng.integers(0, 2**32, 1 << 16, dtype=np.uint32).view(np.float32)
    near = (rng.standard_normal(1 << 16) * 10.0 ** rng.integers(-9, 6, 1 << 16)).astype(np.float32)
    for name, kind in (("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)):
        every = np.arange(1 << 16, dtype=np.uint16).view(kind)
        wide = np.zeros(1 << 16, np.float32)
        module.function(f"wide_{name}")((256,), (256,), [every, wide])
        with np.errstate(all="ignore"):
            assert np.array_equal(wide, every.astype(np.float32), equal_nan=True)
            for values in (many, near, wide):
                narrow = np.zeros(1 << 16, kind)
                module.function(f"narrow_{name}")((256,), (256,), [values, narrow])
                want = values.astype(kind)
                assert np.array_equal(narrow.astype(np.float32), want.astype(np.float32), equal_nan=True)


# --- NVRTC

FLOATS, OTHERS = ("float32", "float64", "float16", "bfloat16"), ("int64", "int32", "int16", "int8", "uint8", "bool")


def _chain(xp: Any, a: Any, b: Any, c: Any) -> Any:
    return xp.where(a > b, xp.exp(-a) * c + b, xp.tanh(b) / (c * c + 1))


def _plain(xp: Any, a: Any, b: Any, c: Any) -> Any:
    return xp.where(a > b, a | c, xp.maximum(b, c))


def _by_layout() -> Iterator[str]:
    """Maps of every type, rank and class of strides, with 32 and 64 bit offsets, one and several elements a thread."""
    import ml_dtypes  # noqa: F401

    for rank in range(1, 6):
        shape = tuple(range(2, 2 + rank))
        dense = tuple(int(np.prod(shape[d + 1 :])) for d in range(rank))
        turned = tuple(int(np.prod(shape[:d])) for d in range(rank))
        spread = tuple(0 if d % 2 else s for d, s in enumerate(dense))
        for rows in ((dense, dense, dense), (dense, turned, spread), (spread, (0,) * rank, turned)):
            layout = collapsed(shape, [*rows, dense])
            for dtype in FLOATS + OTHERS:
                code = _chain if dtype in FLOATS else _plain
                made = recorded("corpus", code, [np.dtype(dtype)] * 3, {}, layout.classes, True, [np.dtype(dtype)])
                for wide in (False, True) if dtype == "float32" else (rank % 2 == 0,):
                    for vector in {1, cuda_c.vector_of(made.kernel)}:
                        yield made.kernel, {"wide": wide, "vector": vector}


def _by_row() -> Iterator[Any]:
    from engine.kernels import rows

    for dtype in FLOATS:
        number = "float64" if dtype == "float64" else "float32"
        for group in ("warp", "block", "columns"):
            for wide in (False, True):
                for write, inputs in (
                    (rows.softmax, 1),
                    (rows.log_softmax, 1),
                    (rows.softmax_backward, 2),
                    (rows.log_softmax_backward, 2),
                ):
                    made = rows.Rows("row", [dtype] * (inputs + 1), 1, [(True,)] * 3, ["dense"] * 3)
                    write(made)
                    yield made.kernel, {"group": group, "wide": wide}
                made = rows.Rows("norm", [dtype] * 4 + [number] * 2, 3, [(True,)] * 6, [(True, True)] * 6, [number])
                rows.normalized(made, True, True)
                yield made.kernel, {"group": group, "wide": wide}


def _lookups() -> Iterator[Any]:
    for dtype in FLOATS + OTHERS:
        yield tables.taken(dtype, "int64", [(True, False), (False, True), "dense"], False), {}
    for dtype in FLOATS:
        yield tables.summed_rows(dtype, dtype), {}
        yield tables.uniform(dtype), {"wide": True}
        yield tables.kept(dtype), {}
    yield tables.words(), {}


def _ops() -> list[str]:
    """The kernels of the samples of the registry and of the optimizers."""
    from tests.engine.ops import test_cuda as on_ops

    found = dict(shim.noted(lambda: on_ops.on_samples(("float32", "bfloat16"))).sources)
    found.update(shim.noted(on_ops._norm_gradients).sources)
    return list(found)


@pytest.fixture(scope="module")
def corpus() -> list[str]:
    """The sources, each with a name of its own."""
    with shim.using(shim.Noting()) as notes:
        for kernel, options in (*_by_layout(), *_by_row(), *_lookups()):
            built(kernel, **options)
    return list(notes.sources)


def _compiled(sources: list[str], architecture: str, folder: Path, each: int = 60) -> int:
    """Compile, `each` in one unit; the number of kernels in the cubins."""
    nvrtc = compiling.Nvrtc(architecture, compiling.Cache(folder))
    count = 0
    for start in range(0, len(sources), each):
        part = sources[start : start + each]
        cubin = nvrtc.compile("\n".join(part), (), "corpus")
        assert cubin[:4] == b"\x7fELF"
        names = [name for source in part for name in compiling.entries(source)]
        assert all(name.encode() in cubin for name in names)
        count += len(names)
    return count


@needs_nvrtc
def test_nvrtc_compiles_every_type_rank_and_class_of_strides(corpus: list[str], tmp_path: Path) -> None:
    assert _compiled(corpus, "sm_90a", tmp_path) == len(corpus) > 250


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_100"])
def test_nvrtc_compiles_a_part_of_it_for_other_architectures(
    corpus: list[str], architecture: str, tmp_path: Path
) -> None:
    assert _compiled(corpus[::6], architecture, tmp_path) > 40


@needs_nvrtc
def test_nvrtc_compiles_the_kernels_of_the_registry(tmp_path: Path) -> None:
    sources = _ops()
    for n, architecture in enumerate(compiling.ARCHITECTURES):
        assert _compiled(sources[n::3], architecture, tmp_path) > 100


@needs_nvrtc
def test_nvrtcs_words_reach_the_caller(tmp_path: Path) -> None:
    nvrtc = compiling.Nvrtc("sm_90a", compiling.Cache(tmp_path))
    with pytest.raises(compiling.CompileError, match=r"(?s)NVRTC refused broken for sm_90a:.*absent"):
        nvrtc.compile('extern "C" __global__ void broken() { absent(); }', (), "broken")
    with pytest.raises(compiling.CompileError):
        compiling.Nvrtc("sm_1", compiling.Cache(tmp_path)).compile(REVERSE)


def test_without_the_wheels_nvrtc_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cuda.bindings", None)
    with pytest.raises(ImportError, match=r"pip install 'hubcli\[cudatest\]'"):
        compiling.Nvrtc("sm_90a", compiling.Cache(tmp_path)).compile(REVERSE)


def test_names_of_kernels_are_found() -> None:
    assert compiling.entries("__global__ void a(int x) {}\n__global__ void __launch_bounds__(256) b_2 (int y) {}") == [
        "a",
        "b_2",
    ]
    assert re.fullmatch(r"sm_\d+a?", compiling.ARCHITECTURES[1]) and os.name in ("posix", "nt") and "mul" in OPS


def test_a_forked_child_leaves_the_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    cache = compiling.Cache(tmp_path / "file" / "below")
    with pytest.warns(RuntimeWarning, match="are not stored"):
        private = cache.folder
    monkeypatch.setattr(os, "getpid", lambda: -1)  # as in a child, whose finalizers run when it ends
    del cache
    assert private.is_dir()
    private.rmdir()
