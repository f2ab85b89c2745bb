"""Traced programs against PyTorch 2.13's code, graphs and errors (programs.json)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import engine
from engine import fx

from . import programs

STORED = json.loads((Path(__file__).parent / "programs.json").read_text())


@pytest.mark.parametrize("name", STORED)
def test_traced_as_torch_does(name: str) -> None:
    program = programs.of(engine)[name]
    root, concrete_args = program if isinstance(program, tuple) else (program, None)
    first, second = STORED[name]
    if not first.strip().isidentifier():
        module = fx.symbolic_trace(root, concrete_args)
        assert module.code == first
        assert str(module.graph) == second
        module.graph.lint()
        return
    with pytest.raises(Exception) as caught:
        fx.symbolic_trace(root, concrete_args)
    assert type(caught.value).__name__ == first
    assert str(caught.value) == second


def test_every_program_has_an_answer() -> None:
    assert programs.of(engine).keys() == STORED.keys()
