"""How often an annotation says `Any`, which tells a reader nothing; and mypy checks what is said instead."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# how often 1,000 lines may say it: lower a number with each that goes
LIMITS = {
    "engine/core": 11,
    "engine/dispatch": 13,
    "engine/kernels": 6,
    "engine/ops/convolution": 13,
    "engine/programs": 18,
}


def said(text: str) -> int:
    """Return how often a file says `Any`, imports apart."""
    imports = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom))
    apart = {line for node in imports for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    return sum(len(re.findall(r"\bAny\b", line)) for n, line in enumerate(text.splitlines(), start=1) if n not in apart)


@pytest.mark.parametrize("folder", LIMITS)
def test_annotations_say_what_a_thing_is(folder: str) -> None:
    texts = [path.read_text(encoding="utf-8") for path in sorted((ROOT / folder).rglob("*.py"))]
    rate = 1000 * sum(map(said, texts)) / sum(len(text.splitlines()) for text in texts)
    assert rate <= LIMITS[folder], f"1,000 lines of {folder} say Any {rate:.1f} times"


@pytest.mark.parametrize("folder", LIMITS)
def test_no_name_hides_an_any(folder: str) -> None:
    """An alias of `Any` would say as little by another word."""
    hidden = re.compile(r"^\s*\w+(: TypeAlias)? = (Any|Optional\[Any\]|Any \| None)\s*(#.*)?$", re.MULTILINE)
    found = [str(path) for path in (ROOT / folder).rglob("*.py") if hidden.search(path.read_text(encoding="utf-8"))]
    assert not found


@pytest.mark.parametrize("folder", LIMITS)
def test_mypy_checks_the_folder_strictly(folder: str) -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    strict = [row for row in settings["overrides"] if row.get("strict")]
    assert folder in settings["files"]
    assert any(f"{folder.replace('/', '.')}.*" in row["module"] for row in strict)


def test_counting() -> None:
    text = "from typing import (\n    Any,\n)\n\n\ndef f(x: Any) -> list[Any]: ...\n\n\ny: Anything = 0\n"
    assert said(text) == 2
