"""An operation saves what torch's formula saves: `saved.json` (see writes.py) against the engine."""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import pytest

import engine
from tests.engine.ops import saved_programs, writes
from tests.engine.samples import cases

TABLE = json.loads(writes.FILE.read_text("utf-8"))
# What differs still, and why: docs/reference/deviations.md.  Where ours is 1 and torch's 0, the write would falsify our
# gradient.
OTHERWISE = {
    "linalg_svdvals": "the op alone; `linalg.svdvals` that needs a gradient computes the vectors in the forward pass",
    "logcumsumexp-3-0x2,0": "empty",
    "max_pool2d_with_indices_backward": "torch's formula saves the gradient",
    "max_pool3d_with_indices_backward": "the same",
    "matmul-5-3,2x3x4": "the gradient of a vector times a batch",
    "polar": "by the operands; torch's formula reads the result",
    "prod_all-4-1": "one element",
    "prod_dim-4-3x1,1": "one element",
    "trunc_divide-3-0,0": "empty",
}
# The same for writes between the passes of a double backward alone: the last two parts.
BETWEEN = {
    "_weight_norm": "our formula of the second pass reads the norm",
    "cummax-3-0x2,0": "empty",
    "cummin-3-0x2,0": "empty",
    "norm_except_dim-1": "our formula reads a copy of the input",
    "where-2": "our formula reads the mask's inverse",
}
CASES = [c for c in cases() if str(c) in TABLE]


def differs(found: Any, expected: str) -> bool:
    """Whether one of the writes that torch answered is answered otherwise."""
    return found is None or len(found) != len(expected) or any(e in "01" and f != e for f, e in zip(found, expected))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted({c.name for c in CASES}))
def test_samples(name: str) -> None:
    for case in (c for c in CASES if c.name == name and not str(c).startswith(tuple(OTHERWISE))):
        found, expected = writes.answers(engine, writes.of_case(case)), TABLE[str(case)]
        if found and str(case).startswith(tuple(BETWEEN)):
            found, expected = found.rsplit("|", 2)[0], expected.rsplit("|", 2)[0]
        assert not differs(found, expected), f"{case}: {found}, torch {expected}"


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


def test_what_is_saved_ties_no_cycle() -> None:
    x = engine.ones(3, 3, requires_grad=True)
    gc.disable()
    try:
        found = engine.linalg.lu(x + 2 * engine.eye(3))
        nodes = [weakref.ref(r.grad_fn) for r in found[1:]]
        first = engine.autograd.grad(found.L.sum() + found.U.sum(), x, create_graph=True)[0]
        nodes.append(weakref.ref(first.grad_fn))
        del found, first
        assert [n() for n in nodes] == [None] * 3
    finally:
        gc.enable()


def test_a_gradient_passed_on_is_not_taken_for_ours() -> None:
    """The node of the gradient that came in, which the user made, saves nothing of ours."""
    bias = engine.ones(2, requires_grad=True)
    weight = engine.ones(2, 3, 4, requires_grad=True) * 1
    result = engine.nn.functional.bilinear(engine.ones(5, 3), engine.ones(5, 4), weight, bias)
    grad = engine.ones(5, 2, requires_grad=True) * 2
    engine.autograd.grad(result, bias, grad, create_graph=True)
    with engine.no_grad():
        weight.detach().mul_(1)
    grad.sum().backward()
