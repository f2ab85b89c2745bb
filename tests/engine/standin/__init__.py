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
KERNELS = os.environ.get("STANDIN_KERNELS") == "1"


class Trusted(dict[Any, Any]):
    """Verdicts on routes: those not found are good, so that no test but those of the checks pays for one."""

    def get(self, key: Any, default: Any = True) -> Any:
        return super().get(key, True)


def _cudnn() -> Any:
    from engine.backends.cuda.cudnn import Cudnn
    from tests.engine.standin import cudnn_c, cudnn_graphs

    cudnn_c.reset()
    return Cudnn(cudnn_c.Library(), cudnn_graphs)


def running_here() -> bool:
    """Whether `running()` is in force in this process."""
    from engine.backends.cuda import runtime

    return runtime.loaded()


@contextlib.contextmanager
def running(real: bool = REAL, checks: bool = False, kernels: bool = KERNELS, cudnn: bool = True) -> Iterator[Any]:
    """The CUDA backend, on the stand-in or (real) on the card that is there.

    checks: routes prove themselves at their first use on the stand-in too (`engine/backends/cuda/routes.py`).
    kernels: the engine's own kernels compute, built by g++ (STANDIN_KERNELS=1, which `make test-cuda` sets), else the
    plain forms of ops.  cudnn: whether the stand-in has one.
    """
    from engine import backends
    from engine.backends import cuda
    from engine.backends.cuda import compile as compiling
    from engine.backends.cuda import runtime

    if not real:
        from tests.engine.standin import blas, ipc, machine, module

        machine.reset()
        runtime.use(module.cupy, blas.Standin(), _cudnn() if cudnn else None, ipc.Driver())
        if not checks:
            runtime.state.verdicts = Trusted()
        if not kernels:
            compiling.use(None)
    backend = cuda.load()
    backends.register(backend)
    try:
        yield backend
    finally:
        backends.unregister(backend)
        if not real:
            runtime.use(None)
            machine.reset()
