"""One recorder, one form of a program, one guard, one reader of ENGINE_ROUTES: by names in the source."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ENGINE = Path(__file__).parents[3] / "engine"
SOURCES = {path.relative_to(ENGINE).as_posix(): path.read_text("utf-8") for path in ENGINE.rglob("*.py")}


def classes(pattern: str, *folders: str) -> list[str]:
    """The classes of these folders whose names fit, as file: name."""
    return sorted(
        f"{path}: {node.name}"
        for path, text in SOURCES.items()
        if path.startswith(folders)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef) and re.search(pattern, node.name)
    )


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r"Recorder$|Trace$", ["programs/recorder.py: Recorder"]),
        (r"Graph$", ["fx/graph.py: Graph"]),
        (r"Guard$", ["programs/guards.py: Guard"]),
    ],
)
def test_there_is_one(pattern: str, found: list[str]) -> None:
    assert classes(pattern, "programs/", "fx/", "onnx/", "export/") == found


def test_one_module_reads_how_routes_are_chosen() -> None:
    """`ENGINE_ROUTES` is read by `trials.mode` alone; the others ask it."""
    readers = [
        path
        for path, text in SOURCES.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and node.value == "ENGINE_ROUTES"
    ]
    assert readers == ["core/trials.py"]
