"""A stand-in CUDA machine: CuPy's part that the engine uses, on host memory, with CUDA's rules kept.

`running()` is a context in which `engine` finds two GPUs; `machine` has their memory, streams and graphs, `arrays` the
array class, `module` the names of `cupy`.  With REQUIRE_CUDA=1 the tests that ask for `running()` use the real card.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

REAL = os.environ.get("REQUIRE_CUDA") == "1"


@contextlib.contextmanager
def running(real: bool = REAL) -> Iterator[Any]:
    """The CUDA backend, on the stand-in or (real) on the card that is there."""
    from engine import backends
    from engine.backends import cuda
    from engine.backends.cuda import runtime

    if not real:
        from tests.engine.standin import blas, machine, module

        machine.reset()
        runtime.use(module.cupy, blas.Cublas())
    backend = cuda.load()
    backends.register(backend)
    try:
        yield backend
    finally:
        backends.unregister(backend)
        if not real:
            runtime.use(None)
            machine.reset()
