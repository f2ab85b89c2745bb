"""An operation saves what torch's formula saves: `saved.json` (see writes.py) against the engine."""

from __future__ import annotations

import json
from typing import Any

import pytest

import engine
from tests.engine.ops import saved_programs, writes
from tests.engine.samples import cases

TABLE = json.loads(writes.FILE.read_text("utf-8"))
# What differs still, and why: docs/reference/deviations.md.  Where ours is 1 and torch's 0, the write would falsify our
# gradient.
OTHERWISE = {
    "linalg_householder_product": "of reflections; torch's formula saves the gradient",
    "linalg_svdvals": "the op alone; `linalg.svdvals` that needs a gradient computes the vectors in the forward pass",
    "logcumsumexp-3-0x2,0": "empty",
    "max_pool2d_with_indices_backward": "torch's formula saves the gradient",
    "max_pool3d_with_indices_backward": "the same",
    "native_group_norm": "the statistics are functions of the input; torch's formula saves the gradient",
    "program lstsq": "torch's formula saves the gradient",
    "program lstsq vector": "the same",
    "program native_group_norm": "as the samples",
    "matmul-5-3,2x3x4": "the gradient of a vector times a batch",
    "ormqr": "of reflections; torch's formula saves the gradient",
    "polar": "by the operands; torch's formula reads the result",
    "prod_all-4-1": "one element",
    "prod_dim-4-3x1,1": "one element",
    "scatter_reduce-1": "torch's formula of the mean saves the gradient",
    "scatter_reduce-4": "the same",
    "triangular_solve": "torch's formula saves the gradient",
    "trunc_divide-3-0,0": "empty",
}
CASES = [c for c in cases() if str(c) in TABLE]


def differs(found: Any, expected: str) -> bool:
    """Whether one of the writes that torch answered is answered otherwise."""
    return found is None or len(found) != len(expected) or any(e in "01" and f != e for f, e in zip(found, expected))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted({c.name for c in CASES}))
def test_samples(name: str) -> None:
    for case in (c for c in CASES if c.name == name and not str(c).startswith(tuple(OTHERWISE))):
        found = writes.answers(engine, writes.of_case(case))
        assert not differs(found, TABLE[str(case)]), f"{case}: {found}, torch {TABLE[str(case)]}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [n for n in saved_programs.PROGRAMS if f"program {n}" not in OTHERWISE])
def test_programs(name: str) -> None:
    found = writes.answers(engine, lambda: saved_programs.PROGRAMS[name](engine))
    expected = TABLE["program " + name]
    assert not differs(found, expected), f"{found}, torch {expected}"


def test_every_line_is_a_case() -> None:
    known = {str(c) for c in cases()} | {f"program {name}" for name in saved_programs.PROGRAMS}
    assert not TABLE.keys() - known
    assert len(CASES) > 1000
