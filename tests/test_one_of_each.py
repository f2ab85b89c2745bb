"""Each subject has one mechanism: docs/explanation/architecture.md names them, and a second one fails here.

The text of `engine` is searched; what is found stands in the module that the row names, and in no other.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

ONE = {
    "the form of a program": (r"^class Graph\b", "engine/fx/graph.py"),
    "the recorder of calls": (r"^class Recorder\b", "engine/programs/recorder.py"),
    "the guard of a recorded program": (r"^class Guard\b", "engine/programs/guards.py"),
    "the gate of calls": (r"^def listening\b", "engine/dispatch/gate.py"),
    "the trial by time": (r"^class Trial\b", "engine/core/trials.py"),
    "the reader of ENGINE_ROUTES": (r"""(environ|getenv)\W.*["']ENGINE_ROUTES["']""", "engine/core/trials.py"),
}


@pytest.mark.parametrize("subject", ONE)
def test_one_of_each(subject: str) -> None:
    pattern, home = ONE[subject]
    found = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "engine").rglob("*.py"))
        for _ in re.finditer(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert found == [home]
