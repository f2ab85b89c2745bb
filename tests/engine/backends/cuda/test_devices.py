"""Every sample on a GPU that is not the current one: results and gradients are there, as on the current one."""

from __future__ import annotations

from typing import Any

import pytest

import engine
from engine import backends
from engine.tensor import Tensor, wrap
from tests.engine.backends.cuda.test_everything import ALL, has_tensors, outcome
from tests.engine.samples import Case

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::RuntimeWarning"),
]
OTHER = engine.device("cuda", 1)
PARTS = 24


def _moved(t: Tensor) -> Tensor:
    made = wrap(backends.of_device(OTHER).from_host(t._array, OTHER))
    made._requires_grad = t.requires_grad
    return made


def _problem(case: Case) -> str:
    try:
        found, gradients = outcome(case, _moved)
    except Exception as error:
        return f"{case}: {type(error).__name__}: {error}"
    places = {str(t.device) for t in (*found, *gradients) if t is not None}
    return "" if places <= {"cuda:1"} else f"{case}: results on {places}"


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_samples_on_another_device_than_the_current_one(part: int, two: Any) -> None:
    problems = [_problem(case) for case in ALL[part::PARTS] if has_tensors(case)]
    assert engine.cuda.current_device() == 0
    assert [p for p in problems if p] == []


def test_what_follows_its_operands_leaves_the_current_device(two: Any) -> None:
    x = engine.tensor([3, 1, 3], device="cuda:1")
    assert engine.unique(x).device == OTHER and engine.cuda.current_device() == 0
    with pytest.raises(RuntimeError, match=r"two devices, cuda:0 and cuda:1!|two devices, cuda:1 and cuda:0!"):
        engine.isin(x, engine.tensor([3], device="cuda:0"))
    assert engine.cuda.current_device() == 0
