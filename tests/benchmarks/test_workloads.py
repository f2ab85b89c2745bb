"""The limits of the table: which of several bars a row of training has."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import workloads


def rows(times: dict[str, float], floor: float | None = None) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows of the MLP's training by (ours, peer), of milliseconds by contender."""
    results = {"mlp train 128": {name: {"ms": [ms] * 3} for name, ms in times.items()}}
    found = workloads.summary(results, {} if floor is None else {"mlp train 128": floor})
    return {(row["ours"], row["peer"]): row for row in found}


def test_a_plan_that_holds_against_torch_compile_holds_against_eager() -> None:
    found = rows({"engine": 3.0, "engine plan": 2.5, "torch": 3.2, "torch compile": 3.0})
    plan, op_by_op = found["engine plan", "torch best"], found["engine", "torch best"]
    assert found["engine plan", "torch compile"]["met"] and plan["met"]
    assert plan["limit"] == pytest.approx(0.85 * 3.0 / 3.2)
    assert op_by_op["limit"] == pytest.approx(0.65) and not op_by_op["met"]  # that bar is for plans
    slower = rows({"engine": 3.0, "engine plan": 2.6, "torch": 3.2, "torch compile": 3.0})
    assert not slower["engine plan", "torch compile"]["met"] and not slower["engine plan", "torch best"]["met"]


def test_a_step_near_its_floor_holds() -> None:
    found = rows({"engine": 2.9, "engine plan": 2.6, "torch": 3.2, "torch compile": 2.0}, floor=2.6)
    assert all(found[ours, "torch best"]["met"] for ours in ("engine", "engine plan"))
    assert found["engine plan", "torch compile"]["limit"] == pytest.approx(1.15 * 2.6 / 2.0)
    assert not rows({"engine": 3.0, "engine plan": 2.6, "torch": 3.2}, floor=2.0)["engine", "torch best"]["met"]


def test_a_limit_of_its_own_is_kept_where_it_is_the_least_strict() -> None:
    found = rows({"engine": 2.0, "engine plan": 2.0, "torch": 3.2, "torch compile": 1.0}, floor=0.5)
    assert found["engine plan", "torch best"]["limit"] == found["engine", "torch best"]["limit"] == 0.65


def test_a_plan_is_never_to_be_slower_than_eager() -> None:
    found = rows({"engine": 3.0, "engine plan": 3.3, "torch": 3.2, "torch compile": 9.0})
    assert found["engine plan", "torch best"]["limit"] == 1.0 and not found["engine plan", "torch best"]["met"]
