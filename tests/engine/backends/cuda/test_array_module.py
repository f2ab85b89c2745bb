"""What the engine adds to CuPy's names: extremes at indices, joins in a capture."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import engine
from engine import cuda

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int32", "int8", "bool"])
@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_extremes_at_indices_have_all_bits_and_hand_nan_on(reduce: str, dtype: str, gpu: Any) -> None:
    kind = getattr(engine, dtype)
    draw = np.random.default_rng(3)
    old, new = (engine.tensor(draw.standard_normal(n) * 9).to(kind) for n in (5, 40))
    at = engine.tensor(draw.integers(0, 4, 40))
    if kind.is_floating_point:
        new[3], new[4], new[5], new[6] = float("nan"), float("inf"), -float("inf"), -0.0
    wanted = old.scatter_reduce(0, at, new, reduce)
    found = old.cuda().scatter_reduce(0, at.cuda(), new.cuda(), reduce).cpu()
    assert found.dtype is kind
    np.testing.assert_array_equal(found.double().numpy(), wanted.double().numpy())


def test_the_gradient_of_an_extreme_goes_to_where_it_came_from(gpu: Any) -> None:
    new = engine.tensor([1 / 3, 2 / 3, 0.1], dtype=engine.float64, device="cuda", requires_grad=True)
    at = engine.tensor([0, 0, 1], device="cuda")
    engine.zeros(2, dtype=engine.float64, device="cuda").scatter_reduce(0, at, new, "amax").sum().backward()
    assert new.grad.tolist() == [0, 1, 1]


@pytest.mark.parametrize("join", ["cat", "stack"])
def test_arrays_are_joined_in_a_capture(join: str, gpu: Any) -> None:
    parts = [engine.full((2, 3), float(i), device="cuda") for i in range(9)]
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        made = getattr(engine, join)(parts, 1)
    parts[4].fill_(40)
    graph.replay()
    wanted = getattr(engine, join)([p.cpu() for p in parts], 1)
    assert made.shape == wanted.shape and made.tolist() == wanted.tolist()


def test_types_are_joined_as_by_promotion_in_a_capture(gpu: Any) -> None:
    xp = gpu.xp
    parts = [engine.ones(2, dtype=d, device="cuda")._array for d in (engine.int32, engine.float64)]
    plain = xp.concatenate(parts)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        made = xp.concatenate(parts)
    graph.replay()
    assert made.dtype == plain.dtype and made.tolist() == plain.tolist()


@pytest.mark.parametrize("shape", [(40_001,), (3, 17_000), (20_000, 3)])
@pytest.mark.parametrize("what", ["sum", "mean", "amax", "any", "rows", "captured"])
def test_long_rows_are_reduced_in_parts_again_and_again(what: str, shape: tuple[int, ...], gpu: Any) -> None:
    dims = (len(shape) - 1,) if what == "rows" else tuple(range(len(shape)))
    call = {
        "sum": lambda t: t.sum(),
        "mean": lambda t: t.mean(),
        "amax": lambda t: t.amax(),
        "any": lambda t: (t > 3).any(),
        "rows": lambda t: t.sum(dims),
        "captured": lambda t: t.sum(),
    }[what]
    draws = [np.random.default_rng(n).standard_normal(shape) for n in range(3)]
    on_card = engine.tensor(draws[0]).cuda()
    _ = call(on_card)
    graph = cuda.CUDAGraph() if what == "captured" else None
    if graph is not None:
        with cuda.graph(graph):
            kept = call(on_card)
    for draw in draws:
        on_card.copy_(engine.tensor(draw))
        if graph is None:
            kept = call(on_card)
        else:
            graph.replay()
        np.testing.assert_allclose(kept.cpu().numpy(), call(engine.tensor(draw)).numpy(), 1e-12, 1e-10)


def test_complex_half_is_refused_in_a_sentence(gpu: Any) -> None:
    x = engine.ones(2, dtype=engine.float16, device="cuda")
    for call in (lambda: x * 2j, lambda: x.to(engine.complex32), lambda: engine.complex(x, x)):
        with pytest.raises(RuntimeError, match=r"complex32 .* is not available on CUDA: .* use complex64"):
            call()


def test_a_choice_takes_the_type_that_numpy_gives(gpu: Any) -> None:
    xp, half = gpu.xp, engine.ones(2, dtype=engine.bfloat16, device="cuda")._array
    some, whole = xp.asarray(1) == 1, engine.ones(2, dtype=engine.int32, device="cuda")._array
    assert xp.where(some, half, half).dtype == half.dtype == xp.where(some, 0.0, half).dtype
    found = xp.where(xp.logical_not(some), whole, 1.5)
    assert found.dtype == np.float64 and found.tolist() == [1.5, 1.5]


@pytest.mark.parametrize("shape", [(40_001,), (20_000, 40)])
def test_what_is_cached_of_a_reduction_holds_no_array(shape: tuple[int, ...], gpu: Any) -> None:
    x = engine.ones(shape, device="cuda")
    _ = x.sum(0), x.sum()
    gc.collect()
    before = cuda.memory_allocated()
    del x, _
    gc.collect()
    assert before - cuda.memory_allocated() >= 4 * int(np.prod(shape))
