"""What a node saves is saved in every respect: hooks pack what may not be written to, a second pass finds it freed."""

from __future__ import annotations

from typing import Any

import pytest

import engine
from tests.engine.ops import saved_programs, writes
from tests.engine.ops.test_saved import CASES, OTHERWISE, TABLE


def _refused(table: str) -> list[int]:
    return [i for i, answer in enumerate(table.partition("|")[0]) if answer == "1"]


def _run(build: Any) -> tuple[list[Any], list[Any], list[Any]]:
    inputs, run = build()
    results = list(writes.tensors(run(), engine.Tensor))
    roots = [r for r in results if r.requires_grad and r.grad_fn is not None]
    return inputs, results, roots


def check(build: Any, table: str) -> None:
    packed: list[int] = []

    def pack(tensor: Any) -> Any:
        packed.append(tensor.untyped_storage().data_ptr())
        return tensor

    with engine.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        inputs, _, roots = _run(build)
    for i in _refused(table):
        where = inputs[i].untyped_storage().data_ptr()
        assert not inputs[i].numel() or where in packed, f"input {i} is saved past the hooks"
    inputs, _, roots = _run(build)
    leaves = [i for i in inputs if i.requires_grad]
    ones = [engine.ones_like(r) for r in roots]
    engine.autograd.grad(roots, leaves, ones, allow_unused=True)
    if "1" in "".join(table.split("|")[:2]):
        with pytest.raises(RuntimeError, match="second time"):
            engine.autograd.grad(roots, leaves, ones, allow_unused=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted({c.name for c in CASES}))
def test_samples(name: str) -> None:
    for case in (c for c in CASES if c.name == name and not str(c).startswith(tuple(OTHERWISE))):
        check(writes.of_case(case), TABLE[str(case)])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [n for n in saved_programs.PROGRAMS if f"program {n}" not in OTHERWISE])
def test_programs(name: str) -> None:
    check(lambda: saved_programs.PROGRAMS[name](engine), TABLE["program " + name])
