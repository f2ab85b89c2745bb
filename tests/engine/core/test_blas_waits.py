"""numpy is loaded with short waits of BLAS's threads, and nothing of that stays in the environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.core import blas_waits

PROGRAM = """
import importlib.util, os, sys
spec = importlib.util.spec_from_file_location("blas_waits", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
if sys.argv[2] == "early":
    import numpy
module.import_numpy()
import numpy
print(numpy.SEEN, os.environ.get(module.NAME))
"""


@pytest.mark.parametrize(
    "given, when, seen", [(None, "late", "18 None"), ("22", "late", "22 22"), (None, "early", "None None")]
)
def test_numpy_is_loaded_with_short_waits(given: str | None, when: str, seen: str, tmp_path: Path) -> None:
    """What the user set stands, and so does a numpy that is there already."""
    (tmp_path / "numpy.py").write_text(f"import os\nSEEN = os.environ.get({blas_waits.NAME!r})\n")
    environment = {k: v for k, v in os.environ.items() if k != blas_waits.NAME} | {"PYTHONPATH": str(tmp_path)}
    environment |= {blas_waits.NAME: given} if given else {}
    command = [sys.executable, "-c", PROGRAM, blas_waits.__file__, when]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environment)
    assert done.stdout.strip() == seen


def test_the_engine_loads_numpy_so() -> None:
    """The first line that needs numpy comes after it."""
    program = (
        "import sys, builtins\n"
        "plain = builtins.__import__\n"
        "def watched(name, *args, **kwargs):\n"
        "    if name == 'numpy' and 'numpy' not in sys.modules: print(__import__('os').environ.get(sys.argv[1]))\n"
        "    return plain(name, *args, **kwargs)\n"
        "builtins.__import__ = watched\n"
        "import engine\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != blas_waits.NAME}
    command = [sys.executable, "-c", program, blas_waits.NAME]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60, env=environment, cwd=Path(__file__).parents[3]
    )
    assert done.stdout.split()[0] == "18"
