"""`python -m tests.engine.standin.prepare`: compile, many at a time, the kernels that the samples and modules of
tests/engine/backends/cuda/test_everything.py ask for; tests then find them in build/kernels.

While they are noted they do nothing, so that what a result decides may go another way: what is lacking then is compiled
by the test that meets it.
"""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.engine import shim, standin
from tests.engine.backends.cuda import modules
from tests.engine.backends.cuda import test_everything as everything
from tests.engine.nn import record
from tests.engine.standin import kernels


def _samples() -> None:
    for case in everything.ALL:
        with contextlib.suppress(Exception):
            everything.outcome(case, everything.on_cuda)


def _modules() -> None:
    for name in record.NAMES:
        with contextlib.suppress(Exception), pytest.MonkeyPatch.context() as patch:
            everything.run_cases(name, patch)
    for name in modules.FURTHER:
        with contextlib.suppress(Exception):
            everything.further(name, "cuda")


def noted(work: Callable[[], None]) -> dict[str, str]:
    """The sources of the kernels that `work` asks for."""
    notes: Any = shim.Noting()
    kernels.other[:] = [notes]
    try:
        with standin.running(kernels=True), np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            work()
    finally:
        kernels.other.clear()
    return dict(notes.sources)


def main() -> int:
    """Compile what is not compiled yet."""
    if shim.MISSING:
        print(shim.MISSING, file=sys.stderr)
        return 0
    began = time.perf_counter()
    sources = noted(lambda: (_samples(), _modules()))  # type: ignore[func-returns-value]
    kernels.shim().prepare(list(sources))
    print(f"{len(sources)} kernels for the stand-in in {time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
