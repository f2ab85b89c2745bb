"""Every optimizer and option follows torch's trajectory on a fixed problem; state dicts continue on either side."""

from __future__ import annotations

import copy
import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine.optim import _update
from tests.engine.optim import problems

HERE = Path(__file__).parent
EXPECTED = json.loads((HERE / "expected.json").read_text())


# Loading turns their float32 counts (mu_product, eta, mu) into the parameters' float64, in torch too.
ROUNDED = [n for n in problems.STATES if n.startswith(("NAdam", "ASGD"))]


@pytest.fixture(scope="module")
def torch_states() -> Any:
    """What torch 2.13 saved."""
    return engine.load(HERE / "torch_states.pth")


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
@pytest.mark.parametrize("name", problems.OPTIMIZERS)
def test_trajectory(name: str, dtype: str) -> None:
    """12 steps end where torch's end."""
    if name not in EXPECTED[dtype]:
        pytest.skip("no stored numbers: torch's answer depends on rounding")
    # a line search amplifies float32's rounding
    tolerance = 1e-10 if dtype != "float32" else 1e-4 if "LBFGS" in name else 1e-5
    np.testing.assert_allclose(
        problems.trajectory(engine, name, dtype), EXPECTED[dtype][name], rtol=tolerance, atol=tolerance
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam"])
def test_half_precision_stays_in_its_type(kind: str, dtype: str) -> None:
    """float16 and bfloat16 parameters and states keep their type and follow float32 within their rounding."""
    name = next(n for n, (k, _) in problems.OPTIMIZERS.items() if k == kind)
    kind, options = problems.OPTIMIZERS[name]
    params, wide = problems.start(engine, dtype), problems.start(engine, "float32")
    half, full = (getattr(engine.optim, kind)(p, **options) for p in (params, wide))
    for _ in range(5):
        for p, q in zip(params, wide):
            q.grad = engine.sin(q.detach() * 3)
            p.grad = q.grad.to(p.dtype)
        half.step()
        full.step()
    for p, q in zip(params, wide):
        assert p.dtype is getattr(engine, dtype)
        assert all(v.dtype is p.dtype for k, v in half.state[p].items() if k not in ("step", "mu_product"))
        difference = (p.detach().float() - q.detach()).abs().max()
        assert difference < (0.02 if dtype == "float16" else 0.1)


@pytest.mark.parametrize("name", problems.STATES)
def test_torch_state_continues_here(name: str, torch_states: Any) -> None:
    """A state dict that torch saved after 5 steps ends, after 7 more, where torch ended."""
    kind, options = problems.OPTIMIZERS[name]
    saved = torch_states[name]
    params = [p.clone().requires_grad_() for p in saved["params"]]
    optimizer = getattr(engine.optim, kind)(params, **{**options, "lr": 123.0})
    optimizer.load_state_dict(copy.deepcopy(saved["state"]))
    problems.train(engine, optimizer, params, range(5, 12))
    tolerance = 1e-5 if name in ROUNDED else 1e-10
    for p, q in zip(params, saved["after"]):
        np.testing.assert_allclose(p.detach().numpy(), q.numpy(), rtol=tolerance, atol=tolerance)


def shape_of(value: Any) -> Any:
    """Keys, types, dtypes and shapes, without the numbers."""
    if isinstance(value, dict):
        return {k: shape_of(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [shape_of(v) for v in value]
    return (value.dtype, tuple(value.shape)) if isinstance(value, engine.Tensor) else type(value)


@pytest.mark.parametrize("name", [n for n in problems.STATES if "LBFGS" not in n])
def test_state_dict_is_laid_out_as_torchs(name: str, torch_states: Any) -> None:
    """The state dict has torch's keys, in torch's order, with torch's types: so torch loads it."""
    here, there = problems.halfway(engine, name)["state"], torch_states[name]["state"]
    assert shape_of(here) == shape_of(there)
    assert list(here["state"][0]) == list(there["state"][0])
    assert list(here["param_groups"][0]) == list(there["param_groups"][0])
    assert here["param_groups"] == there["param_groups"]


@pytest.mark.parametrize("name", problems.STATES)
def test_own_state_through_a_file(name: str) -> None:
    """save, load and continue gives the same numbers as going on."""
    kind, options = problems.OPTIMIZERS[name]
    saved = problems.halfway(engine, name)
    file = io.BytesIO()
    engine.save(saved["state"], file)
    file.seek(0)
    params = [p.clone().requires_grad_() for p in saved["params"]]
    optimizer = getattr(engine.optim, kind)(params, **options)
    optimizer.load_state_dict(engine.load(file))
    problems.train(engine, optimizer, params, range(5, 12))
    for p, q in zip(params, saved["after"]):
        np.testing.assert_allclose(p.detach().numpy(), q.numpy(), rtol=1e-5 if name in ROUNDED else 0)


@pytest.mark.parametrize("how", ["pickle", "deepcopy"])
def test_an_optimizer_is_copied_with_its_parameters(how: str) -> None:
    """A pickled or deep-copied optimizer goes on like the first."""
    params = problems.start(engine, "float64")
    optimizer = engine.optim.Adam(params, lr=0.1)
    problems.train(engine, optimizer, params, range(3))
    pair = (optimizer, params)
    other, copies = pickle.loads(pickle.dumps(pair)) if how == "pickle" else copy.deepcopy(pair)
    problems.train(engine, optimizer, params, range(3, 6))
    problems.train(engine, other, copies, range(3, 6))
    assert problems.numbers(params) == problems.numbers(copies)
    assert str(other) == str(optimizer)


KINDS = sorted({k for k, _ in problems.OPTIMIZERS.values()} - {"LBFGS"})


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_and_threads_change_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers do not depend on the size of the blocks nor on the number of threads."""

    def final(block: int, threads: int, many: int) -> list[np.ndarray]:
        monkeypatch.setattr(_update, "BLOCK", block)
        monkeypatch.setattr(_update, "MANY", many)
        monkeypatch.setattr(_update.threads, "_count", threads)
        rng = np.random.default_rng(0)
        params = [engine.tensor(rng.standard_normal(n)).requires_grad_() for n in (1000, 7, 129)]
        optimizer = getattr(engine.optim, kind)(params)
        for _ in range(3):
            for p in params:
                p.grad = engine.tensor(rng.standard_normal(p.shape))
            optimizer.step()
        return [p.detach().numpy() for p in params]

    whole = final(1 << 16, 1, 1 << 18)
    for settings in ((64, 1, 1 << 18), (64, 3, 0)):
        for a, b in zip(whole, final(*settings)):
            assert np.array_equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["transposed", "channels_last", "sliced", "mixed"])
def test_layouts(kind: str, layout: str) -> None:
    """Parameters that are not contiguous are updated as contiguous ones are."""
    rng = np.random.default_rng(1)
    values, gradients = rng.standard_normal((2, 6, 4, 2)), rng.standard_normal((3, 2, 6, 4, 2))
    plain = engine.tensor(values).requires_grad_()
    if layout == "transposed":
        odd = engine.tensor(values.transpose(3, 2, 1, 0).copy()).permute(3, 2, 1, 0)
    elif layout == "sliced":
        odd = engine.tensor(np.repeat(values, 2, axis=1))[:, ::2]
    else:
        odd = engine.tensor(values.transpose(0, 2, 3, 1).copy()).permute(0, 3, 1, 2)
    odd = odd.detach().requires_grad_()
    assert not odd.is_contiguous()
    first, second = (
        getattr(engine.optim, kind)([p], weight_decay=0.1) if kind != "Rprop" else engine.optim.Rprop([p])
        for p in (plain, odd)
    )
    for g in gradients:
        plain.grad = engine.tensor(g)
        odd.grad = engine.tensor(g) if layout == "mixed" else engine.zeros_like(odd).copy_(engine.tensor(g))
        first.step()
        second.step()
    np.testing.assert_allclose(odd.detach().numpy(), plain.detach().numpy(), rtol=1e-13)
