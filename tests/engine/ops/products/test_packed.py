"""Products with weights as files have them, generated and by blocks, against numpy in float64."""

from __future__ import annotations

import ml_dtypes  # noqa: F401  numpy knows bfloat16 by its name then
import numpy as np
import pytest

from engine.kernels import processor
from engine.kernels.products import FORMS
from engine.ops.generated import launch
from engine.ops.products import packed
from engine.ops.products.packed import PackedMatrix
from engine.serialization.gguf_blocks import TYPES, dequantized, group_layout, group_values, quantized

FLOAT32 = np.dtype(np.float32)
# Sums of K products in float32 differ from exact ones by rounding alone, of each of some partial sums of K / 16.
NEAR = 1e-6  # of the sum of the products' sizes
GENERATED = pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}")


@pytest.fixture(params=["blocks", pytest.param("generated", marks=GENERATED)])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With generated code from the first call, and without any."""
    monkeypatch.setattr(packed, "_routes", {})
    if request.param == "generated":
        monkeypatch.setattr(processor, "always", lambda: True)
        monkeypatch.setattr(launch.trials, "trusted", True)
    else:
        monkeypatch.setattr(processor, "available", lambda: False)
    return str(request.param)


def matrix(form: str, outputs: int, inputs: int) -> tuple[PackedMatrix, np.ndarray]:
    """A weight and its values as float32."""
    values = np.random.default_rng(outputs).standard_normal((outputs, inputs), FLOAT32)
    if form in ("q8_0", "q4_0"):
        kind = TYPES[form.upper()]
        data = quantized(kind, values)
        widen = lambda raw: dequantized(kind, raw, FLOAT32)
    elif form.startswith("groups"):
        size = int(form[7:])
        groups = np.zeros(outputs * inputs // size, group_layout(size))
        generator = np.random.default_rng(inputs)
        halves = generator.standard_normal((2, len(groups)), FLOAT32).astype(np.float16)
        groups["scale"], groups["shift"] = halves  # so that products with bytes are exact, as those of the types are
        groups["q"] = generator.integers(-128, 128, groups["q"].shape)
        data = groups.view(np.uint8)
        widen = lambda raw: group_values(size, raw)
    else:
        data = values.astype(form).reshape(-1).view(np.uint8)
        widen = lambda raw: raw.view(form).astype(np.float32)
    return PackedMatrix(form, (outputs, inputs), data, widen), widen(data).reshape(outputs, inputs)


def check(found: np.ndarray, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None) -> None:
    exact = x.astype(np.float64) @ weight.astype(np.float64).T + (0 if bias is None else bias)
    sizes = np.abs(x.astype(np.float64)) @ np.abs(weight.astype(np.float64)).T + 1
    assert found.dtype == np.float32 and found.shape == exact.shape
    assert np.all(np.abs(found - exact) <= NEAR * sizes)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 9, 40])
@pytest.mark.parametrize("form", FORMS)
def test_it_is_the_product_with_the_widened_weight(way: str, form: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    for outputs, inputs in ((1, 32), (7, 96), (150, 320)) if form[0] in "qg" else ((1, 1), (7, 37), (150, 333)):
        weight, values = matrix(form, outputs, inputs)
        x, bias = rng.standard_normal((rows, inputs), FLOAT32), rng.standard_normal(outputs, FLOAT32)
        first, second = packed.multiply(x, [weight, weight], [None, bias])
        check(first, x, values, None)
        check(second, x, values, bias)


@pytest.mark.parametrize("form", FORMS)
def test_rows_are_those_of_the_file(way: str, form: str) -> None:
    weight, values = matrix(form, 70, 64)
    assert np.array_equal(weight.rows([69, 0, 3, 3]), values[[69, 0, 3, 3]])
    assert np.array_equal(weight.widened(), values)
    part = weight.part(5, 68)
    assert part.shape == (63, 64) and np.shares_memory(part.data, weight.data)
    assert np.array_equal(part.widened(2, 60), values[7:65])
    assert weight.nbytes == len(weight.data)


def test_weights_of_several_forms_read_the_same_rows(way: str) -> None:
    x = np.random.default_rng(0).standard_normal((2, 64), FLOAT32)
    weights = [matrix(form, 33 + n, 64) for n, form in enumerate(FORMS)]
    for found, (_, values) in zip(packed.multiply(x, [weight for weight, _ in weights]), weights):
        check(found, x, values, None)


@pytest.mark.parametrize("form", ["q8_0", "q4_0"])
def test_scales_of_any_kind(way: str, form: str) -> None:
    """Negative, subnormal and infinite ones: what they make of a number is what the file says."""
    weight, _ = matrix(form, 8, 64)
    blocks = weight.data.reshape(-1, packed.products.BLOCKS[form][1])
    scales = np.array([-2.0, 6e-8, np.inf, np.nan, 0.0, -0.0, 65504.0, 1e-5] * 2, np.float16)
    blocks[:, :2] = scales.view(np.uint8).reshape(-1, 2)
    with np.errstate(all="ignore"):
        want = weight.widen(weight.data).reshape(weight.shape)
        found = weight.widened()
        assert np.array_equal(found[np.isfinite(want)], want[np.isfinite(want)])
        assert not np.isfinite(found[~np.isfinite(want)]).any()  # of an infinite scale: inf or nan
        x = np.ones((1, 64), np.float32)
        exact = want.astype(np.float64).sum(1)
        (found,) = packed.multiply(x, [weight])
    finite = np.isfinite(exact)
    np.testing.assert_allclose(found[0][finite], exact[finite], rtol=1e-5)
    assert not np.isfinite(found[0][~finite]).any()


def test_sizes_that_do_not_fit_are_refused() -> None:
    data = np.zeros(68, np.uint8)
    with pytest.raises(ValueError, match="68 bytes of q8_0 are no matrix of 2 rows of 33"):
        PackedMatrix("q8_0", (2, 33), data, lambda raw: raw)
    with pytest.raises(ValueError, match="68 bytes of q8_0 are no matrix of 3 rows of 32"):
        PackedMatrix("q8_0", (3, 32), data, lambda raw: raw)


@GENERATED
def test_code_that_computes_something_else_is_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_routes", {})
    monkeypatch.setattr(launch, "_warned", set())
    monkeypatch.setattr(processor, "always", lambda: False)  # which would have no trial
    weight, values = matrix("bfloat16", 256, 64)
    x = np.ones((1, 64), np.float32)
    wrong = lambda x, weights, biases, made: [out.fill(3.0) for out in made]
    monkeypatch.setattr(packed, "_few", wrong)
    with pytest.warns(RuntimeWarning, match="a product with a packed weight"):
        (found,) = packed.multiply(x, [weight])
    check(found, x, values, None)
    assert packed._routes["bfloat16", 1].disabled
