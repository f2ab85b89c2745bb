"""The list of operator signatures: each is well formed and has a function that serves it."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from engine.jit.archive import operators, schemas

LINES = schemas.lines()
# what a call with plain arguments is written as, without a function
SIGNS = {f"aten::{name}" for name in (*operators.INFIX, *operators.COMPARED, *operators.PREFIX)}


def test_how_many_there_are() -> None:
    assert (sum(map(len, LINES.values())), len(LINES)) == (2414, 1023)
    assert {name.partition("::")[0] for name in LINES} == {"aten", "prim", "torchvision"}
    assert len({text for texts in LINES.values() for text in texts}) == 2414


@pytest.mark.parametrize("name", LINES)
def test_every_line_parses_and_names_an_operator_that_is_there(name: str) -> None:
    """Parsed by the parser of `torch.library`'s signatures; the function takes as many arguments by position."""
    forms = schemas.find(name)
    assert [form.text for form in forms] == LINES[name]
    assert all(form.name.partition(".")[0] == name for form in forms)
    found = operators.find(*name.split("::"))
    assert callable(found) or name in SIGNS
    if found is None:
        return
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):  # of numpy's and of those that choose among forms
        return
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return
    needed = sum(p.default is p.empty for p in parameters)
    most = max(len(form.parameters) for form in forms)
    assert needed <= most, f"{name} needs {needed} arguments, its widest form has {most}"


def test_comments_at_its_head_are_no_signatures() -> None:
    text = (Path(schemas.__file__).parent / "schemas.txt").read_text(encoding="utf-8")
    head = [line for line in text.splitlines() if line.startswith("#")]
    assert head
    assert text.startswith("\n".join(head) + "\n")
    assert not any("#" in one for texts in LINES.values() for one in texts)


def test_a_signature_that_is_malformed_is_told() -> None:
    with pytest.raises((RuntimeError, ValueError)):
        schemas._signature("aten::add(Tensor self, Tensor other")
