"""Layers of plans in generated code against sums in float64, and what has no code."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import inf
from typing import Any

import numpy as np
import pytest

from engine.backends.cpu import threads
from engine.backends.cpu.relayout import to_channels_last
from engine.backends.onednn import _abi
from engine.core.geometry import ConvGeometry
from engine.kernels import processor
from engine.kernels.program import Program
from engine.ops.convolution import numpy as by_numpy
from engine.ops.generated import stages
from engine.ops.generated.stages import Place

pytestmark = pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}")

CLIP, RELU = ("eltwise", _abi.CLIP, 0.0, 6.0), ("eltwise", _abi.RELU, 0.0, 0.0)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two threads."""
    monkeypatch.setattr(threads, "get_num_threads", lambda: 2)
    yield


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((*shape, seed)).standard_normal(shape).astype("float32")


def image(array: np.ndarray) -> np.ndarray:
    return to_channels_last(array).view(np.ndarray)


def run(layer: Any) -> None:
    assert layer is not None
    Program(layer.stages, 2, layer.retained)()


def near(found: np.ndarray, wanted: np.ndarray, largest: float = 1.0) -> None:
    np.testing.assert_allclose(found, wanted, rtol=0, atol=4e-6 * max(largest, float(abs(wanted).max())))


def convolved(x: Any, w: Any, bias: Any, *geometry: Any) -> Any:
    wide = [None if a is None else np.ascontiguousarray(a, "float64") for a in (x, w, bias)]
    return by_numpy.plain(np, *wide, ConvGeometry(*geometry))


GEOMETRIES = [  # N, C, O, size, kernel, stride, padding, dilation, groups
    (1, 16, 32, (7, 7), (1, 1), (1, 1), (0, 0), (1, 1), 1),
    (2, 24, 40, (5, 9), (1, 1), (1, 1), (0, 0), (1, 1), 1),  # vectors of 8
    (1, 12, 20, (3, 3), (1, 1), (1, 1), (0, 0), (1, 1), 1),  # of 4
    (3, 32, 80, (14, 14), (1, 1), (2, 2), (0, 0), (1, 1), 1),
    (1, 16, 208, (1, 1), (1, 1), (1, 1), (0, 0), (1, 1), 1),  # one result of many outputs: panels and a rest
    (1, 16, 16, (40, 41), (1, 1), (1, 1), (0, 0), (1, 1), 1),  # lines that are not whole
    (2, 8, 16, (9, 8), (3, 3), (2, 1), (1, 1), (1, 1), 1),
    (1, 16, 144, (8, 7), (3, 3), (1, 1), (1, 2), (1, 1), 1),
    (2, 4, 32, (12, 11), (5, 3), (1, 2), (2, 0), (2, 1), 1),
    (1, 32, 96, (7, 7), (7, 7), (1, 1), (3, 3), (1, 1), 1),
    (1, 3, 16, (15, 15), (1, 1), (2, 2), (1, 1), (1, 1), 1),
    (2, 32, 32, (9, 7), (3, 3), (1, 1), (1, 1), (1, 1), 32),
    (1, 48, 48, (10, 12), (5, 5), (2, 2), (2, 2), (1, 1), 48),
    (1, 24, 24, (3, 2), (5, 5), (1, 1), (2, 2), (1, 1), 24),  # a kernel larger than the picture
    (1, 4, 4, (30, 31), (3, 2), (1, 3), (0, 1), (1, 1), 4),
    (1, 16, 16, (6, 6), (3, 3), (1, 1), (0, 0), (1, 1), 16),
]


@pytest.mark.parametrize("post", [(), (CLIP,), (RELU,)], ids=["", "clip", "relu"])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_convolutions(geometry: Any, post: Any) -> None:
    count, channels, outputs, size, kernel, stride, padding, dilation, groups = geometry
    x, w = drawn(count, channels, *size), drawn(outputs, channels // groups, *kernel, seed=1)
    bias = drawn(outputs, seed=2) if post else None
    want = convolved(x, w, bias, stride, padding, dilation, groups)
    largest = float(abs(want).max())
    want = want.clip(*{"": (-inf, inf), CLIP: (0, 6), RELU: (0, inf)}[post[0] if post else ""])
    out = image(np.full(want.shape, np.nan, "float32"))
    run(
        stages.of_convolution(
            Place(image(x)),
            x.shape,
            False,
            w,
            bias,
            Place(out),
            want.shape,
            stride,
            padding,
            dilation,
            groups,
            None,
            post,
        )
    )
    near(out, want, largest)


@pytest.mark.parametrize("padding", [(0, 0), (3, 2)])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_pictures_in_torchs_order(channels: int, padding: Any) -> None:
    x, w = drawn(2, channels, 19, 23), drawn(16, channels, 5, 3, seed=1)
    want = convolved(x, w, None, (2, 3), padding, (1, 1), 1)
    out = image(np.full(want.shape, np.nan, "float32"))
    given = w, None, Place(out), want.shape, (2, 3), padding, (1, 1), 1, None, ()
    run(stages.of_convolution(Place(x), x.shape, True, *given))
    near(out, want)


def test_what_is_added_may_lie_where_the_result_goes() -> None:
    x, w, other = drawn(1, 16, 7, 9), drawn(64, 16, 1, 1, seed=1), drawn(1, 64, 7, 9, seed=2)
    want = (convolved(x, w, None, (1, 1), (0, 0), (1, 1), 1) + other).clip(0, None)
    out, added = image(np.zeros_like(other)), image(other)
    given = (1, 1), (0, 0), (1, 1), 1
    post = (("binary", _abi.BINARY_ADD, added), RELU)
    rest = *given, Place(added), post
    run(stages.of_convolution(Place(image(x)), x.shape, False, w, None, Place(out), out.shape, *rest))
    near(out, want)
    at = Place(added)
    run(
        stages.of_convolution(Place(image(x)), x.shape, False, w, None, at, out.shape, *given, at, (("sum", 1.0), RELU))
    )
    near(added, want)


@pytest.mark.parametrize("rows", [1, 2, 5, 13, 50, 300])
@pytest.mark.parametrize("outputs", [8, 48, 1000, 1024])
def test_linear(rows: int, outputs: int) -> None:
    x, w, bias = drawn(rows, 33), drawn(outputs, 33, seed=1), drawn(outputs, seed=2)
    out = np.full((rows, outputs), np.nan, "float32")
    run(stages.of_linear(rows, Place(x), w, bias, Place(out), None, ()))
    near(out, x.astype(float) @ w.astype(float).T + bias)


def test_pooling_and_means() -> None:
    x = drawn(2, 24, 9, 10)
    x[0, 3, 4, 5], x[1] = np.nan, -abs(x[1]) - 5  # nan wins; padding does not
    windows = np.full((2, 24, 5, 5), -np.inf, "float32")
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    for i, j in itertools.product(range(3), range(3)):
        windows = np.maximum(windows, padded[:, :, i : i + 9 : 2, j : j + 9 : 2])
    out = image(np.zeros_like(windows))
    how = _abi.POOLING_MAX, (3, 3), (2, 2), (1, 1), (1, 1)
    run(stages.of_pooling(Place(image(x)), x.shape, Place(out), out.shape, how))
    np.testing.assert_array_equal(out, windows)

    x, flat, whole = drawn(3, 40, 7, 6), np.zeros((3, 40), "float32"), np.zeros((3, 40, 1, 1), "float32")
    run(stages.of_mean(Place(image(x)), x.shape, Place(flat)))
    how = _abi.AVERAGE_WITH_PADDING, (7, 6), (7, 6), (0, 0), (1, 1)
    run(stages.of_pooling(Place(image(x)), x.shape, Place(whole), whole.shape, how))
    near(flat, x.astype(float).mean((2, 3)))
    np.testing.assert_array_equal(whole[:, :, 0, 0], flat)


@pytest.mark.parametrize("band", [1, 1 << 11, 1 << 20])
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("expanded", [True, False])
def test_joined_layers_are_the_same_layers(
    band: int, step: int, kernel: int, expanded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "_BAND", band)
    x, wide = drawn(2, 8 if expanded else 48, 11, 13), 48
    pad, ones, flat = (kernel // 2,) * 2, (1, 1), (0, 0)
    weights = [drawn(wide, 8, 1, 1, seed=1), drawn(wide, 1, kernel, kernel, seed=2), drawn(16, wide, 1, 1, seed=3)]
    source, added = image(x), image(drawn(2, 16, -(-11 // step), -(-13 // step), seed=4))
    middle = image(np.zeros((2, wide, 11, 13), "float32")) if expanded else source
    after, out = image(np.zeros((2, wide, *added.shape[2:]), "float32")), image(np.zeros_like(added))
    first = (
        stages.of_convolution(
            Place(source),
            x.shape,
            False,
            weights[0],
            None,
            Place(middle),
            middle.shape,
            ones,
            flat,
            ones,
            1,
            None,
            (CLIP,),
        )
        if expanded
        else None
    )
    each = stages.of_convolution(
        Place(middle),
        middle.shape,
        False,
        weights[1],
        drawn(wide, seed=5),
        Place(after),
        after.shape,
        (step, step),
        pad,
        ones,
        wide,
        None,
        (CLIP,),
    )
    last = stages.of_convolution(
        Place(after),
        after.shape,
        False,
        weights[2],
        drawn(16, seed=6),
        Place(out),
        out.shape,
        ones,
        flat,
        ones,
        1,
        Place(added),
        (("binary", _abi.BINARY_ADD, added),),
    )
    for layer in (first, each, last):
        if layer is not None:
            run(layer)
    want = out.copy()
    for array in (out, after, *([middle] if expanded else [])):
        array[...] = np.nan
    run(stages.joined(first, each, last))
    np.testing.assert_array_equal(out, want)
    assert np.isnan(after).all()  # nothing lies between them


def test_what_is_not_joined() -> None:
    x, ones, flat = image(drawn(1, 16, 5, 5)), (1, 1), (0, 0)
    made = [image(np.zeros((1, 16, 5, 5), "float32")) for _ in range(3)]

    def product(a: Any, b: Any, stride: Any = ones) -> Any:
        shape = (1, 16, *[-(-5 // n) for n in stride])
        return stages.of_convolution(
            Place(a), (1, 16, 5, 5), False, drawn(16, 16, 1, 1), None, Place(b), shape, stride, flat, ones, 1, None, ()
        )

    each = stages.of_convolution(
        Place(made[0]),
        x.shape,
        False,
        drawn(16, 1, 3, 3),
        None,
        Place(made[1]),
        x.shape,
        ones,
        ones,
        ones,
        16,
        None,
        (),
    )
    assert stages.joined(product(x, made[0]), each, product(made[1], made[2])) is not None
    assert stages.joined(None, product(x, made[0]), product(made[0], made[1])) is None
    assert stages.joined(product(x, made[0]), each, product(made[1], made[2], (2, 2))) is None
    assert stages.joined(product(None, made[0]), each, product(made[1], made[2])) is None  # elsewhere in each call
    # a band writes lines that its neighbours still read
    assert stages.joined(product(x, made[0]), each, product(made[1], x)) is None
    assert stages.joined(None, each, product(made[1], made[0])) is None
    assert stages.joined(product(x, made[0]), each, product(made[1], made[0])) is not None  # of which nothing is there


def test_limits_keep_nan() -> None:
    x = drawn(1, 16, 4, 4)
    x[0, 0, 1, 2] = np.nan
    w = drawn(16, 1, 1, 1, seed=1)
    out = image(np.zeros_like(x))
    run(
        stages.of_convolution(
            Place(image(x)), x.shape, False, w, None, Place(out), x.shape, (1, 1), (0, 0), (1, 1), 16, None, (CLIP,)
        )
    )
    assert np.argwhere(np.isnan(out)).tolist() == [[0, 0, 1, 2]]


def test_operands_and_results_may_move() -> None:
    w = drawn(16, 8, seed=1)
    x, out = Place(None), Place(None)
    layer = stages.of_linear(2, x, w, None, out, None, ())
    program = Program(layer.stages, 2, layer.retained)
    for seed in range(3):
        given, made = drawn(2, 8, seed=seed), np.zeros((2, 16), "float32")
        x.move(given)
        out.move(made)
        program()
        near(made, given.astype(float) @ w.astype(float).T)


@pytest.mark.parametrize(
    ("shape", "weight", "options"),
    [
        ((1, 16, 5, 5), (17, 16, 3, 3), {}),  # outputs that fill no vectors
        ((1, 16, 5, 5), (16, 8, 3, 3), {"groups": 2}),
        ((1, 16, 5, 5), (16, 1, 3, 3), {"groups": 16, "dilation": (2, 2)}),
        ((1, 16, 5, 5), (16, 16, 3, 3), {"dilation": (1, 2)}),
        ((1, 16, 5, 5), (16, 16, 3, 3), {"post": (("eltwise", _abi.TANH, 0.0, 0.0),)}),
        ((1, 16, 5, 5), (16, 16, 3, 3), {"post": (("eltwise", _abi.RELU, 0.1, 0.0),)}),
        ((1, 16, 5, 5), (16, 16, 3, 3), {"post": (RELU, ("sum", 1.0))}),
        ((1, 16, 5), (16, 16, 3), {}),
    ],
)
def test_what_has_no_code(shape: Any, weight: Any, options: Any) -> None:
    given = {"dilation": (1, 1), "groups": 1, "post": (), **options}
    w = np.zeros(weight, "float32")
    made = stages.of_convolution(
        Place(None),
        shape,
        False,
        w,
        None,
        Place(None),
        (1, 16, 3, 3),
        (1, 1),
        (0, 0),
        given["dilation"],
        given["groups"],
        None,
        given["post"],
    )
    assert made is None


def test_sums_of_products_reach_no_further_than_they_are() -> None:
    """What lies around operands and results is neither read into them nor written to."""
    guard = np.full(4096, np.nan, "float32")

    def within(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        room = np.full(array.size + 2 * guard.size, np.nan, "float32")
        inner = room[guard.size : -guard.size].reshape(array.shape)
        inner[...] = array
        return room, inner

    for channels, outputs, groups, kernel, step in [(16, 48, 1, 1, 1), (16, 16, 16, 3, 2), (8, 24, 1, 3, 1)]:
        x = drawn(2, 7, 9, channels)
        w = drawn(outputs, channels // groups, kernel, kernel, seed=1)
        pad = kernel // 2
        geometry = (step, step), (pad, pad), (1, 1), groups
        want = convolved(x.transpose(0, 3, 1, 2), w, None, *geometry)
        _, source = within(x)
        room, made = within(np.zeros((2, *want.shape[2:], outputs), "float32"))
        out = made.transpose(0, 3, 1, 2)
        given = w, None, Place(out), want.shape, *geometry, None, ()
        run(stages.of_convolution(Place(source.transpose(0, 3, 1, 2)), (2, channels, 7, 9), False, *given))
        near(out, want)
        assert np.isnan(room[: guard.size]).all() and np.isnan(room[-guard.size :]).all()
