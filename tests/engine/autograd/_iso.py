"""Run a script in its own process, for tests that could crash the interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]


def isolated(script: str, timeout: float = 300.0) -> str:
    """The standard output of `script`; fails with its standard error unless it ends with status 0.

    ENGINE_TEST_PRELUDE may name a Python file that the process runs first.
    """
    prelude = os.environ.get("ENGINE_TEST_PRELUDE")
    start = f"exec(compile(open({prelude!r}).read(), {prelude!r}, 'exec'))\n" if prelude else ""
    path = os.pathsep.join(p for p in (str(_ROOT), os.environ.get("PYTHONPATH", "")) if p)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", start + textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "PYTHONPATH": path},
        cwd=_ROOT,
    )
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr[-4000:]}"
    return done.stdout
