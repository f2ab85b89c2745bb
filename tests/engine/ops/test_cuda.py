"""Kernels for CUDA: the source that a GPU gets, computed on the CPU by the shim and compared with the op's own code.

Every sample of the registry whose op has one; strides, broadcasting and sizes that the samples lack; planted faults,
each of which a check here must find; bounds of memory under AddressSanitizer, in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import engine.ops.cuda.elementwise as elementwise
from engine import random
from engine.backends.cuda import compile as compiling
from engine.dispatch import OPS
from engine.ops.optimizer import cuda as optimizer
from engine.ops.random import cuda as device_random
from engine.ops.random import draw
from tests.engine import shim
from tests.engine.samples import cases

pytestmark = pytest.mark.skipif(bool(shim.MISSING), reason=shim.MISSING)

# recorded from their own code, or served by a kernel under engine/ops/cuda: none of these may fall back unseen
SERVED = """
abs add addcdiv addcmul all amax amin any argmax argmin batch_norm_eval batch_norm_train bitwise_and ceil
clamp_max clamp_min clamp_numbers clamp_tensors cos count_nonzero deg2rad digamma elu elu_backward embedding
embedding_dense_backward eq erf erfc exp expm1 floor fmax fmin fmod frac gather ge gelu gelu_backward gt
hardshrink hardsigmoid hardswish hardswish_backward hardtanh index_select isfinite isinf isnan
layer_norm_inference le leaky_relu leaky_relu_backward lerp_number lerp_tensor lgamma log log10 log1p log2
log_softmax log_softmax_backward logaddexp logical_and logical_not logical_or logical_xor logit logsigmoid lt
masked_fill_value max_all max_dim maximum mean min_all min_dim minimum mish mish_backward mul
native_layer_norm ne neg normalize_groups plus_noisy pow prod_all prod_dim reciprocal relu remainder round
rms_norm_train rsqrt sgn sigmoid sigmoid_backward sign silu silu_backward sin softmax softmax_backward
softmax_nll_backward
softmax_nll_maps softmax_nll_rows softmax_nll_smoothed softplus softplus_backward softshrink sqrt square
std_of sub sum tan tanh tanh_backward threshold threshold_backward true_div trunc var_of where_tensors xlogy
""".split()

WIDENED = {"rms_norm_train"}  # asked with float32 and float64 alone: `rms_norm` widens what is narrower


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled kernels, shared by the workers of this run."""
    return tmp_path_factory.getbasetemp().parent / "kernels"


@cache
def kernel_of(name: str) -> Any:
    """The CUDA kernel of an op, or None."""
    record = OPS[name]
    found = record.kernels.get("cuda")
    if found is None and record.blocks == "elements":
        found = elementwise.kernel_from(record.name, record.kernel, not (record.outputs or record.many))
    return found


def on_samples(dtypes: tuple[str, ...], names: Any = None) -> tuple[set[str], list[str]]:
    """(ops that were computed by a kernel, what differed) over the samples of the registry."""
    served, wrong = set(), []
    for case in cases():
        if case.op is None or (names is not None and case.name not in names) or kernel_of(case.name) is None:
            continue
        given, named = case.arguments()
        for dtype in dtypes:
            args = [shim.narrowed(a, dtype) for a in given]
            keywords = {k: shim.narrowed(v, dtype) for k, v in named.items()}
            with np.errstate(all="ignore"):
                try:
                    want = case.op.kernel(np, *args, **keywords)
                except Exception as error:
                    want = error
                try:
                    got = kernel_of(case.name)(np, *args, **keywords)
                except compiling.CompileError:
                    raise
                except Exception as error:
                    got = error
            if got is NotImplemented or (isinstance(want, Exception) and type(want) is type(got)):
                continue
            served.add(case.name)
            if isinstance(want, Exception) or isinstance(got, Exception):
                wrong.append(f"{case} {dtype}: {got!r} instead of {want!r}")
            elif found := shim.differences(want, got, dtype):
                wrong.append(f"{case} {dtype}: {found}")
    return served, wrong


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_sample_agrees_with_the_code_of_its_op(dtype: str, folder: Path) -> None:
    served, wrong = shim.run_all(lambda: on_samples((dtype,)), folder)
    assert not wrong
    assert not sorted(set(SERVED) - served - (WIDENED if dtype == "bfloat16" else set()))


@pytest.mark.long
def test_float64_and_float16_of_the_hand_written_ones(folder: Path) -> None:
    import engine.ops.cuda  # noqa: F401

    names = {name for name, record in OPS.items() if "cuda" in record.kernels}
    served, wrong = shim.run_all(lambda: on_samples(("float64", "float16"), names), folder)
    assert not wrong and len(served) > 30


def _norm_gradients() -> list[str]:
    """The gradients of norms, which have no samples of their own, against float64."""
    rng = np.random.default_rng(11)
    wrong = []
    cases = [
        ("native_layer_norm", "native_layer_norm_backward", shape, ((shape[-1],),), weighted)
        for shape in ((6, 40), (2, 3, 700))
        for weighted in (True, False)
    ]
    cases += [
        ("normalize_groups", "native_group_norm_backward", shape, (2,), weighted)
        for shape in ((2, 6, 7, 9),)
        for weighted in (True, False)
    ]
    cases += [
        ("batch_norm_train", "batch_norm_backward", shape, (), weighted)
        for shape in ((5, 3), (3, 40, 5, 7), (70, 2, 300))
        for weighted in (True, False)
    ]
    for forward, backward, shape, more, weighted in cases:
        size = shape[-1] if forward == "native_layer_norm" else shape[1]
        values = [rng.standard_normal(shape) for _ in range(2)] + [rng.standard_normal(size)]
        for dtype in ("float32", "float64", "bfloat16"):
            g, x, w = (v.astype(dtype) for v in values)
            w = w if weighted else None
            wide = [None if v is None else v.astype(np.float64) for v in (g, x, w)]
            _, mean, rstd, *_ = OPS[forward].kernel(np, wide[1], *more, wide[2], None, 1e-5)
            stats = [a.astype("float32" if dtype == "bfloat16" else dtype) for a in (mean, rstd)]
            order = (*more, 1e-5) if forward != "native_layer_norm" else (more[0], 1e-5)
            want = OPS[backward].kernel(np, wide[0], wide[1], mean, rstd, wide[2], *order)
            for layout in (lambda a: a, np.asfortranarray):
                got = kernel_of(backward)(np, layout(g), layout(x), *stats, w, *order)
                if got is NotImplemented:
                    wrong.append(f"{backward} {shape} {dtype}: not served")
                    continue
                for n, (a, b) in enumerate(zip(want, got)):
                    near = {"float32": 2e-4, "float64": 1e-10, "bfloat16": 6e-2}[dtype]
                    scale = max(1.0, float(np.abs(a).max()))
                    if b.dtype != np.dtype(g.dtype) or not np.allclose(
                        a, b.astype(np.float64), rtol=near, atol=near * scale
                    ):
                        wrong.append(
                            f"{backward} {shape} {dtype} {n} {b.dtype}: {b.reshape(-1)[:3]} {a.reshape(-1)[:3]}"
                        )
    return wrong


@pytest.mark.long
def test_gradients_of_norms(folder: Path) -> None:
    assert not shim.run_all(_norm_gradients, folder)


# --- strides, sizes, types


def _arrays(dtype: Any) -> dict[str, Any]:
    rng = np.random.default_rng(3)

    def make(*shape: int) -> Any:
        return (rng.standard_normal(shape) * 4).astype(dtype)

    dense = make(6, 5, 4, 3)
    return {
        "dense": dense,
        "transposed": make(3, 4, 5, 6).transpose(3, 2, 1, 0),
        "inner": make(6, 5, 4, 1),
        "outer": make(5, 1, 3),
        "stepped": make(12, 5, 8, 3)[::2, :, ::-2],
        "one": make(1),
        "spread": np.broadcast_to(make(4, 3), (6, 5, 4, 3)),
        "channels": make(6, 4, 3, 5).transpose(0, 3, 1, 2),
        "row": make(3),
    }


def _layouts(dtypes: tuple[Any, ...], some: Any = None) -> list[str]:
    wrong = []
    add, where = OPS["add"], OPS["where_tensors"]
    for dtype in dtypes:
        arrays = _arrays(dtype)
        label = {"bfloat16": "bfloat16", "float16": "float16"}.get(np.dtype(dtype).name, "float32")
        for first, a in arrays.items():
            for second, b in arrays.items():
                if np.broadcast_shapes(a.shape, b.shape) != (6, 5, 4, 3) or (some and not {first, second} <= set(some)):
                    continue
                with np.errstate(all="ignore"):
                    want = [add.kernel(np, a, b), where.kernel(np, a < b, a, b)]
                    got = [kernel_of("add")(np, a, b), kernel_of("where_tensors")(np, a < b, a, b)]
                for w, g in zip(want, got):
                    if g is NotImplemented or (found := shim.differences(w, g, label)):
                        wrong.append(f"{dtype} {first} {second}: {found if g is not NotImplemented else 'not served'}")
    return wrong


@pytest.mark.long
def test_every_layout_and_type(folder: Path) -> None:
    types = ("float64", "float16", ml_dtypes.bfloat16, "int64", "int32", "int16", "int8", "uint8")
    assert not shim.run_all(lambda: _layouts(("float32",)) + _layouts(types, ("dense", "transposed", "row")), folder)


def test_results_lie_as_the_first_operand(folder: Path) -> None:
    x = np.zeros((2, 5, 3, 4), np.float32).transpose(0, 3, 1, 2)
    got = shim.run_all(lambda: kernel_of("add")(np, x, x), folder)
    assert got.strides == x.strides


SHAPES = (
    ((300, 70), (0, 1, None)),
    ((3, 40000), (1, None)),
    ((2, 3, 5, 7), ((0, 2), (1, 3), (0, 1, 2, 3))),
    ((1, 65537), (1,)),
    ((2000, 33), (0, 1)),
    ((4, 8, 17000), ((0, 2),)),
)
FEW = (((70, 700), (0, 1)), ((3, 5, 7), ((0, 2),)))


def _reductions(shapes: Any = FEW, names: Any = ("sum", "mean")) -> list[str]:
    rng = np.random.default_rng(5)
    wrong = []
    for shape, dims in shapes:
        x = rng.standard_normal(shape).astype(np.float32)
        for array, kind in ((x, "plain"), (np.asfortranarray(x), "turned"), (x[..., ::-1], "backwards")):
            for dim in dims:
                for name in names:
                    if name == "argmax" and not isinstance(dim, int):
                        continue
                    over = () if name == "amax" and dim is None else dim
                    want = OPS[name].kernel(np, array.astype(np.float64), over)
                    got = kernel_of(name)(np, array, over)
                    if got is NotImplemented:
                        wrong.append(f"{name} {shape} {kind} {dim}: not served")
                        continue
                    want = np.asarray(want).astype(got.dtype)
                    if not np.allclose(want, got, rtol=2e-5, atol=2e-3):
                        wrong.append(f"{name} {shape} {kind} {dim}: {got.reshape(-1)[:3]} {want.reshape(-1)[:3]}")
    return wrong


@pytest.mark.long
@pytest.mark.parametrize("backwards", [False, True])
def test_reductions_of_long_rows_many_rows_and_odd_sizes(backwards: bool, folder: Path) -> None:
    names = ("sum", "amax", "mean", "any", "var_of", "argmax")
    assert not shim.run_all(lambda: _reductions(SHAPES, names), folder, backwards=backwards)


def test_a_reduction_of_a_nan_is_nan(folder: Path) -> None:
    x = np.array([[1, np.nan, 3], [4, 5, np.inf]], np.float32)

    def work() -> Any:
        return [kernel_of(n)(np, x, 1) for n in ("amax", "amin", "sum", "softmax")], kernel_of("argmax")(np, x, 1)

    (top, low, total, soft), place = shim.run_all(work, folder)
    assert np.isnan([top[0], low[0], total[0]]).all() and np.isnan(soft).all()
    assert (top[1], low[1], total[1]) == (np.inf, 4, np.inf) and place.tolist() == [1, 2]


# --- numbers


def test_another_number_needs_no_other_kernel(folder: Path) -> None:
    with shim.using(shim.Noting()) as notes:
        run = elementwise.kernel_from("leaky_relu", OPS["leaky_relu"].kernel)
        for slope in (0.01, 0.02, 0.5, 0.75):
            run(np, np.ones(5, np.float32), slope)
    assert len(notes.sources) == 1


def test_a_number_that_changes_the_code_gets_its_own_kernel(folder: Path) -> None:
    x = np.array([-2, 0.5, 3], np.float32)

    def work() -> list[Any]:
        return [kernel_of("pow")(np, x, n) for n in (2, 3, 0.5, 2.0, -1)]

    with np.errstate(all="ignore"):
        for got, n in zip(shim.run_all(work, folder), (2, 3, 0.5, 2.0, -1)):
            assert np.allclose(got, x**n, equal_nan=True)


# --- lookups


def test_an_index_out_of_range_is_an_error(folder: Path) -> None:
    table, bad = np.ones((4, 3), np.float32), np.array([0, 4])
    x, target = np.zeros((2, 3), np.float32), np.array([1, 3])

    def work() -> None:
        for index in (bad, np.array([-1])):
            with pytest.raises(IndexError, match="index out of range in self"):
                kernel_of("embedding")(np, table, index)
        with pytest.raises(RuntimeError, match="index 4 is out of bounds for dimension 0 with size 4"):
            kernel_of("gather")(np, table, 0, bad.reshape(2, 1))
        with pytest.raises(IndexError, match=r"Target 3 is out of bounds\."):
            kernel_of("softmax_nll_rows")(np, x, target)

    def collect() -> None:
        for name, args in (("embedding", (table, bad)), ("gather", (table, 0, bad.reshape(2, 1)))):
            kernel_of(name)(np, *args)
        kernel_of("softmax_nll_rows")(np, x, target)

    builder = compiling.Shim(files=compiling.Cache(folder))
    builder.prepare(list(shim.noted(collect).sources))
    with shim.using(builder):
        work()


# --- random numbers: Note [Random bits] in engine/random.py


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_random_bits_are_the_cpus(dtype: str, folder: Path) -> None:
    kind = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    ours, theirs = random.Generator().manual_seed(2**63 + 5), random.Generator().manual_seed(2**63 + 5)

    def work() -> list[Any]:
        theirs.manual_seed(2**63 + 5)
        drawn = device_random._launch("words", None, np, np.empty(1003, np.uint64), theirs, 1003, 4)
        made = [drawn, device_random.uniform(np, theirs, 501, kind)]
        return [
            *made,
            device_random.kept(np, theirs, (7, 9), 0.7, kind),
            device_random.kept(np, theirs, (5,), 1.0, kind),
        ]

    want = [
        ours.words(np, 1003),
        draw.uniform(np, ours, 501, kind),
        draw.kept(np, ours, (7, 9), 0.7, kind),
        draw.kept(np, ours, (5,), 1.0, kind),
    ]
    for w, g in zip(want, shim.run_all(work, folder)):
        assert w.dtype == g.dtype and w.shape == g.shape and (w == g).all()
    assert ours.get_offset() == theirs.get_offset()


# --- optimizers


def _trained(optimizer_class: Any, dtype: str, on_kernels: bool, **options: Any) -> list[Any]:
    from engine.optim import _update

    rng = np.random.default_rng(0)
    made = [rng.standard_normal(shape).astype(np.float32) for shape in ((5,), (300, 70), (1,), (0, 3))]
    parameters = [engine_tensor(a, dtype) for a in made]
    steps = optimizer_class(parameters, **options)
    plain = _update.run

    def run(kernel: Any, jobs: Any, temporaries: int) -> None:
        flat = [(tuple([x.reshape(-1) for x in arrays]), numbers) for arrays, numbers in jobs]
        left = optimizer.run(kernel, flat, temporaries)
        assert not left

    try:
        if on_kernels:
            _update.run = run
        for step in range(4):
            for p in parameters:
                p.grad = engine_tensor(rng.standard_normal(tuple(p.shape)).astype(np.float32), dtype).detach()
            if step == 2:
                steps.param_groups[0]["lr"] *= 0.5
            steps.step()
    finally:
        _update.run = plain
    return [p.detach()._array.astype(np.float64) for p in parameters]


def engine_tensor(array: Any, dtype: str) -> Any:
    import engine

    return engine.tensor(array).to(getattr(engine, dtype)).requires_grad_()


OPTIMIZERS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
    ("Adam", {}),
    ("Adam", {"amsgrad": True, "maximize": True, "weight_decay": 0.1}),
    ("AdamW", {}),
    ("RMSprop", {"momentum": 0.5}),
    ("Adagrad", {}),
    ("Adadelta", {}),
    ("Adamax", {}),
    ("NAdam", {}),
    ("RAdam", {}),
    ("ASGD", {}),
    ("Rprop", {}),
]


@pytest.mark.long
def test_optimizers_update_all_parameters_in_one_kernel(folder: Path) -> None:
    import engine.optim as optim

    def work() -> list[Any]:
        return [
            _trained(getattr(optim, name), dtype, True, **options)
            for name, options in OPTIMIZERS
            for dtype in ("float32", "bfloat16")
        ]

    got = shim.run_all(work, folder)
    for (name, options), pair in zip(OPTIMIZERS, zip(got[::2], got[1::2])):
        for dtype, made in zip(("float32", "bfloat16"), pair):
            for w, g in zip(_trained(getattr(optim, name), dtype, False, **options), made):
                assert np.allclose(w, g, rtol=1e-5 if dtype == "float32" else 2e-2, atol=1e-6), (name, dtype)


# --- planted faults: each must be found by one of the checks above

PLANTS: dict[str, tuple[Callable[[], Any], str, str]] = {
    "a wrong index": (lambda: _layouts(("float32",)), "widened(x0[", "widened(x0[1 + "),
    "a wrong stride": (lambda: _layouts(("float32",)), "* s0_0", "* s0_1"),
    "a wrong size": (lambda: _layouts(("float32",)), "% n2", "% (n2 - 1)"),
    "a wrong stride of rows": (_reductions, "* rs0_0", "* (rs0_0 + 1)"),
    "threads that skip elements": (_reductions, "+= parts", "+= parts + 1"),
    "no barrier before shared memory is read": (
        _reductions,
        "__syncthreads();\n    x = scratch[0];",
        "x = scratch[0];",
    ),
    "no barrier before shared memory is written again": (lambda: _long_softmax(), "__syncthreads();  // who", "// who"),
    "no barrier among columns": (
        _reductions,
        "__syncthreads();\n    x = scratch[threadIdx.x];",
        "x = scratch[threadIdx.x];",
    ),
    "a shuffle too few": (_reductions, "int mask = 16", "int mask = 8"),
    "a sum that a warp does not share": (_reductions, "if (lane == 0) scratch", "if (lane == 0 && warp) scratch"),
    "bfloat16 cut instead of rounded": (lambda: _rounding(), "+ 0x7fff + ((u >> 16) & 1)", ""),
    "a max that loses nan": (lambda: _nan_lost(), "a != a ? a : b != b ? b : a > b", "a > b"),
    "a mean by the wrong count": (_reductions, "(double)width", "(double)(width + 1)"),
    "an optimizer that writes its gradient": (lambda: _gradient_kept(), "first[", "1 + first["),
}


def _long_softmax() -> list[str]:
    x = np.random.default_rng(1).standard_normal((3, 3000)).astype(np.float32)
    found = shim.differences(OPS["softmax"].kernel(np, x, 1), kernel_of("softmax")(np, x, 1), "float32")
    return [found] if found else []


def _rounding() -> list[str]:
    x = np.random.default_rng(1).standard_normal(200).astype(ml_dtypes.bfloat16)
    got = kernel_of("mul")(np, x, x)
    want = (x.astype(np.float32) * x.astype(np.float32)).astype(ml_dtypes.bfloat16)
    return [] if (got == want).all() else ["rounding"]


def _nan_lost() -> list[str]:
    x = np.array([[3, np.nan, 1], [np.nan, 2, 2]], np.float32)
    return [] if np.isnan(kernel_of("amax")(np, x, 1)).all() else ["nan"]


def _gradient_kept() -> list[str]:
    import engine.optim as optim

    want, got = _trained(optim.SGD, "float32", False, lr=0.1), _trained(optim.SGD, "float32", True, lr=0.1)
    return [n for n, (w, g) in enumerate(zip(want, got)) if not np.allclose(w, g)]


@pytest.mark.long
@pytest.mark.parametrize("plant", list(PLANTS))
def test_a_planted_fault_is_found(plant: str, folder: Path) -> None:
    check, old, new = PLANTS[plant]
    change = shim.Plant(old, new)
    try:
        found = shim.run_all(check, folder, change=change)
    except (RuntimeError, IndexError) as error:
        found = [str(error)]
    assert change.fits, "the plant fits nowhere"
    assert found


@pytest.mark.long
def test_the_checks_find_nothing_where_nothing_is_planted(folder: Path) -> None:
    checks = {check for check, _, _ in PLANTS.values()}
    assert not shim.run_all(lambda: [found for check in checks for found in check()], folder)


# --- memory


def _asan(*args: str, folder: Path) -> subprocess.CompletedProcess[str]:
    library = subprocess.run(
        ["g++", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not Path(library).is_absolute():
        pytest.skip("g++ has no AddressSanitizer")
    env = {
        "PATH": "/usr/bin:/bin",
        "LD_PRELOAD": library,
        "ASAN_OPTIONS": "detect_leaks=0",
        "ENGINE_KERNEL_CACHE": str(folder),
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "ENGINE_ONEDNN": "0",
        "OPENBLAS_NUM_THREADS": "1",
        "HOME": str(folder),
    }
    command = [sys.executable, "-m", "tests.engine.ops.cuda_bounds", *args]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


@pytest.mark.long
def test_no_kernel_leaves_its_arrays(folder: Path) -> None:
    done = _asan(folder=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split()[-1] == "ok"


def test_a_planted_write_behind_an_array_is_found(folder: Path) -> None:
    done = _asan("<= count)", "<= count + 3)", folder=folder)
    assert done.returncode != 0 and "heap-buffer-overflow" in done.stderr
