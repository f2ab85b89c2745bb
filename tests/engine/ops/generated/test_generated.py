"""Chains of ops as one kernel, by themselves and in plans."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import engine
from engine import nn
from engine.dispatch import OPS, choosing
from engine.kernels import processor
from engine.ops import generated
from engine.ops.generated import launch

pytestmark = pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "PAYS", 1)
    monkeypatch.setattr(launch, "_entries", {})
    monkeypatch.setattr(launch.trials, "trusted", False)
    monkeypatch.setenv("ENGINE_ROUTES", "static")


@pytest.mark.parametrize("shapes", [((40, 50), (40, 50)), ((40, 50), (50,)), ((3, 40, 5), (40, 1))])
def test_a_chain_of_array_code(shapes: Any) -> None:
    code = lambda xp, a, b: xp.exp(-(a * b)) + xp.sqrt(xp.absolute(b))
    kernel = generated.fused("chain", code)
    assert kernel is not None
    rng = np.random.default_rng(0)
    for _ in range(3):
        arrays = [rng.standard_normal(s).astype("f4") for s in shapes]
        np.testing.assert_allclose(kernel(np, *arrays), code(np, *arrays), 2e-6)


def test_code_that_cannot_be_recorded_is_left() -> None:
    kernel = generated.fused("sorted", lambda xp, a: xp.sort(a))
    assert kernel is not None
    assert kernel(np, np.array([3.0, 1.0, 2.0])) is NotImplemented


class Chains(nn.Module):
    """Two chains, one of which is read twice in its middle."""

    def forward(self, x: Any, y: Any) -> Any:
        a = nn.functional.silu(x * 2 + y).tanh()
        b = a.exp()
        return a.sum(1), (b - 1) * a


def test_plans_take_chains_as_one_step() -> None:
    model = Chains().eval()
    plan = engine.compile(model)
    with engine.no_grad():
        for turn in range(3):
            engine.manual_seed(turn)
            x, y = engine.randn(30, 40), engine.randn(40)
            for want, got in zip(model(x, y), plan(x, y)):
                np.testing.assert_allclose(got.numpy(), want.numpy(), 1e-5, 1e-6)
    (made,) = plan._plans.values()
    assert "mul+add+silu+tanh" in repr(made).splitlines()


def test_a_program_that_computes_little_does_not_load_generated_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "always", lambda: False)
    monkeypatch.setattr(choosing, "_left", [1 << 20])
    assert not choosing.worth_loading(1 << 19)
    assert [choosing.worth_loading(4) for _ in range(9)] == [False] * 7 + [True] * 2  # a call counts as 65,536 at least
    monkeypatch.setattr(choosing, "_left", [1 << 20])
    monkeypatch.setattr(processor, "always", lambda: True)
    assert choosing.worth_loading(4)


@pytest.mark.parametrize("onednn", ["0", "1"])
def test_one_pass_of_a_small_network_does_not_load_it(onednn: str) -> None:
    code = (
        "import engine, sys; from engine import nn\nlayers = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), "
        "nn.ReLU(), nn.MaxPool2d(2)\nlayers += nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(1024, 500)\nwith "
        "engine.no_grad(): nn.Sequential(*layers).eval()(engine.randn(1, 3, 64, 64))\nprint([m for m in sys.modules if "
        "'generated' in m or 'llvm' in m])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "ENGINE_JIT": "1", "ENGINE_ONEDNN": onednn},
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_a_number_to_the_power_of_a_large_tensor_before_generated_code_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choosing, "_left", [1 << 40])
    x = np.linspace(-1, 1, 1 << 17, dtype="float32")
    np.testing.assert_allclose(choosing.large_kernel(OPS["pow"])(np, 2.0, x), 2.0**x, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "uint8", "bool"])
def test_filling_under_a_mask_is_one_pass(dtype: str) -> None:
    rng = np.random.default_rng(0)
    x, mask = (rng.standard_normal((30, 40)) * 3).astype(dtype), rng.standard_normal((30, 40)) > 0
    value = {"f": -7.5, "b": True}.get(x.dtype.kind, 5)
    for given, where in ((x, mask), (x.T, mask.T), (x, mask[0]), (x[0], mask)):
        want = np.where(where, np.array(value, dtype), given)
        for name, one in (("masked_fill_value", value), ("masked_fill_tensor", np.array(value, dtype))):
            for small in (True, False):
                try:
                    got = generated.variant_of(OPS[name], small)(np, given, where, one)
                except launch.Unfit:  # a processor without float16
                    assert dtype == "float16"
                    continue
                np.testing.assert_array_equal(got, want)
                assert got.dtype == x.dtype and got.flags.c_contiguous


def test_ops_of_pairs_give_the_numbers_of_numpy() -> None:
    """To the bit and to the sign of zeros; `hypot` to its last digit, also of what overflows squared."""
    special = np.array([0, -0.0, 1, -2.5, 3, 1e30, -3e38, 1e-40, np.inf, -np.inf, np.nan], "float32")
    a, b = np.meshgrid(special, special)
    for name in ("copysign", "hypot", "nan_to_num", "frac", "deg2rad", "rad2deg"):
        given = (a, b) if name in ("copysign", "hypot") else (a,)
        with np.errstate(all="ignore"):
            want, got = OPS[name].kernel(np, *given), generated.variant_of(OPS[name])(np, *given)
        assert got is not NotImplemented
        np.testing.assert_allclose(got, want, rtol=1.2e-7 if name == "hypot" else 0, err_msg=name)
        assert np.array_equal(np.signbit(got), np.signbit(want)) or name == "frac"  # of nan of infinities
    assert generated.variant_of(OPS["hypot"])(np, a, b).dtype == np.float32
    rng = np.random.default_rng(0)
    for kind in ("int64", "int32", "uint8", "bool"):
        x, y = (rng.integers(0, 2 if kind == "bool" else 100, (50, 40)).astype(kind) for _ in range(2))
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
            assert np.array_equal(generated.variant_of(OPS[name])(np, x, y), getattr(np, name)(x, y))
