"""Functions whose family of ops nobody has imported yet: each is called first in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import inspect, os, warnings
import engine, engine.nn.functional as F

warnings.simplefilter("ignore")
x = engine.ones(2, 4)
calls = {f"F.{n}": getattr(F, n) for n in dir(F) if n[0] != "_" and inspect.isfunction(getattr(F, n))}
calls |= {f"Tensor.{n}": getattr(engine.Tensor, n) for n in dir(engine.Tensor) if n[0] != "_"}
calls = {n: f for n, f in calls.items() if callable(f)}
assert len(calls) > 500
for name, call in calls.items():
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        continue
    for arguments in ((x,), (x, x), (x, 1), (x, x, x)):
        try:
            call(*arguments)
        except (KeyError, ImportError, NameError) as error:
            print(name, repr(error), flush=True)
        except BaseException:
            pass
    os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_any_function_may_be_the_first() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert not done.stdout
