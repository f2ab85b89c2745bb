"""Adafactor and Muon end where PyTorch 2.13's end (newer.json: class, options, dtype -> parameters after 8 steps)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from tests.engine.optim import problems

EXPECTED = json.loads((Path(__file__).with_name("newer.json")).read_text("utf-8"))


def made(label: str) -> tuple[Any, list, list]:
    kind, rest = label.split(" ", 1)
    options, dtype = rest.rsplit(" ", 1)
    params = problems.start(engine, dtype)
    trained = [params[0], params[2]] if kind == "Muon" else params  # matrices only
    return getattr(engine.optim, kind)(trained, **json.loads(options)), params, trained


@pytest.mark.parametrize("label", EXPECTED)
def test_trajectory(label: str) -> None:
    optimizer, params, trained = made(label)
    problems.train(engine, optimizer, params, range(8))
    tolerance = 1e-5 if label.endswith("float32") else 1e-10
    np.testing.assert_allclose(problems.numbers(trained), EXPECTED[label], tolerance, tolerance)


@pytest.mark.parametrize("kind", ["Adafactor", "Muon"])
def test_state_continues_where_it_was_saved(kind: str) -> None:
    label = f"{kind} {{}} float64"
    optimizer, params, _ = made(label)
    problems.train(engine, optimizer, params, range(5))
    again, others, copies = made(label)
    with engine.no_grad():
        for p, q in zip(params, others):
            q.copy_(p)
    again.load_state_dict(optimizer.state_dict())
    problems.train(engine, again, others, range(5, 8))
    np.testing.assert_allclose(problems.numbers(copies), EXPECTED[label], 1e-10, 1e-10)


def test_the_second_moment_of_a_matrix_is_kept_by_row_and_column() -> None:
    p = engine.ones(2, 3, 4, requires_grad=True)
    optimizer = engine.optim.Adafactor([p])
    p.sum().backward()
    optimizer.step()
    shapes = {k: tuple(v.shape) for k, v in optimizer.state[p].items()}
    assert shapes == {"step": (), "row_var": (2, 3, 1), "col_var": (2, 1, 4)}


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("Adafactor", {"lr": -1.0}, "Learning rate should be >= 0 but is: -1.0"),
        ("Adafactor", {"beta2_decay": 0.1}, "beta2_decay should be <= 0 but is: 0.1"),
        ("Adafactor", {"eps": (-1.0, 0.1)}, "epsilon1 should be >= 0 but is: -1.0"),
        ("Adafactor", {"eps": (None, -0.1)}, "epsilon2 should be >= 0 but is: -0.1"),
        ("Adafactor", {"d": 0.5}, "Clipping threshold d should be >= 1 but is: 0.5"),
        ("Adafactor", {"weight_decay": -1.0}, "weight_decay should be >= 0 but is: -1.0"),
        ("Muon", {"lr": engine.ones(2)}, "Tensor lr must be 1-element"),
        ("Muon", {"momentum": -1.0}, "momentum should be >= 0 but is: -1.0"),
        ("Muon", {"adjust_lr_fn": "x"}, "Adjust learning rate function x is not supported"),
    ],
)
def test_options_that_are_refused(kind: str, options: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        getattr(engine.optim, kind)([engine.ones(2, 2, requires_grad=True)], **options)


def test_what_they_do_not_train() -> None:
    with pytest.raises(ValueError, match=r"Muon only supports 2D parameters .* torch.Size\(\[3\]\)"):
        engine.optim.Muon([engine.ones(3, requires_grad=True)])
    p = engine.ones(2, 2, dtype=engine.complex64, requires_grad=True)
    p.grad = engine.ones_like(p).detach()
    for kind in ("Adafactor", "Muon"):
        with pytest.raises(RuntimeError, match=f"{kind} does not support complex parameters"):
            getattr(engine.optim, kind)([p]).step()
