"""The routes of the kernels for CUDA, one a family, each with the check of its first use on a card
(`engine/backends/cuda/routes.py`): a few small problems against the ops' own code on the CPU.

A kernel belongs to the route of its family (`norm/cuda.py`) or module (`cuda/indexing.py`), those recorded from ops'
own code to "pointwise".
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from engine import random
from engine.backends.cuda import compile as compiling
from engine.backends.cuda import routes
from engine.dispatch import OPS


def proved(variant: Any, own: Any) -> Any:
    """A kernel that leaves to `own` what it does not serve, all while its route is disabled, and disables it where it
    cannot be compiled; None for one of another folder, or one that asks its route itself."""
    family = variant.__module__.removesuffix(".cuda").rpartition(".")[2]
    found = routes.ROUTES.get(getattr(variant, "route", None) or family)
    if found is None:
        return None
    on, fail = found.on, found.fail
    variant, unfit = getattr(variant, "served", (variant, ()))

    @functools.wraps(own)
    def kernel(xp: Any, *args: Any, **kwargs: Any) -> Any:
        if on():
            try:
                result = variant(xp, *args, **kwargs)
                if result is not NotImplemented:
                    return result
            except unfit:
                pass
            except compiling.CompileError as error:
                fail(error)
        return own(xp, *args, **kwargs)

    kernel.route = found  # type: ignore[attr-defined]
    return kernel


def _variant(name: str) -> Callable[..., Any]:
    from engine.ops.cuda import elementwise

    record = OPS[name]
    found: Callable[..., Any] = record.kernels.get("cuda") or elementwise.kernel_of(record)
    return found


def _compared(xp: Any, name: str, *args: Any) -> Iterator[tuple[Any, Any]]:
    """Yield pairs of an op's result by its kernel on the GPU and by its own code on the CPU in the next wider type."""
    given = [xp.asarray(a) if isinstance(a, np.ndarray) else a for a in args]
    found = _variant(name)(xp, *given)
    if found is NotImplemented:
        raise RuntimeError(f"the kernel of {name} does not serve its check")
    wanted = OPS[name].kernel(np, *[_wide(a) for a in args])
    pairs = zip(found, wanted) if isinstance(found, tuple) else ((found, wanted),)
    for f, w in pairs:
        yield f, np.asarray(w).astype(f.dtype)


def _wide(a: Any) -> Any:
    return a.astype(np.float64) if isinstance(a, np.ndarray) and a.dtype.kind in "fV" else a


def _real(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    return routes.numbers(*shape, seed=seed, dtype=dtype) * dtype(2)


def _family(name: str, tolerance: float, *cases: Callable[[], tuple[Any, ...]]) -> None:
    """A route that is checked by calls of ops: (name, arguments), made when the check runs."""

    def check(xp: Any) -> Iterator[tuple[Any, Any]]:
        for case in cases:
            yield from _compared(xp, *case())

    routes.route(name, check=check, fallback="CuPy", tolerance=tolerance, ready=compiling.in_use)


_family(
    "pointwise",
    2e-5,
    lambda: ("gelu", _real(33, 8)),
    lambda: ("add", _real(7, 5, 6).transpose(2, 0, 1), _real(5, seed=1)),
    lambda: ("where_tensors", _real(9, 4) > 0, _real(9, 4, seed=1), _real(4, seed=2)),
    lambda: ("remainder", np.arange(-40, 40) / np.float32(8), np.full(1, 3, np.float32)),
)
_family(
    "reduction",
    2e-5,
    lambda: ("sum", _real(5, 700), 1),
    lambda: ("mean", _real(300, 70), 0),
    lambda: ("max_dim", _real(40, 33), 1),
    lambda: ("all", _real(6, 50) > -9),
)
_family(
    "softmax",
    2e-5,
    lambda: ("softmax", _real(6, 70), 1),
    lambda: ("log_softmax", _real(4, 900), 1),
    lambda: ("softmax_backward", _real(6, 70), _real(6, 70, seed=1), 1),
)
_family(
    "norm",
    1e-4,
    lambda: ("native_layer_norm", _real(6, 130), (130,), _real(130, seed=1), _real(130, seed=2)),
    lambda: ("batch_norm_train", _real(6, 3, 7, 5), _real(3, seed=1), _real(3, seed=2), 1e-5),
    lambda: ("normalize_groups", _real(2, 6, 7), 2, _real(6, seed=1), _real(6, seed=2)),
)
_family(
    "loss",
    2e-5,
    lambda: ("softmax_nll_rows", _real(9, 40), np.arange(9) * 4),
)
_family(
    "indexing",
    2e-5,
    lambda: ("embedding", _real(11, 6), np.array([[3, 0, 10], [3, 3, 7]])),
    lambda: ("gather", _real(4, 9), 1, np.array([[8, 0], [1, 1], [5, 2], [0, 8]])),
    lambda: ("embedding_dense_backward", _real(5, 6), np.array([3, 0, 3, 3, 10]), 11),
)


def _check_random(xp: Any) -> Iterator[tuple[Any, Any]]:
    from engine.ops.random import cuda as on_device
    from engine.ops.random import draw

    generator = random.Generator().manual_seed(2**63 + 5)
    generator.set_offset(28)
    yield on_device.words(xp, generator, 41), random.philox(2**63 + 5, 7).random_raw(44)[:41]
    for dtype in (np.float32, np.float64):
        ours, theirs = random.Generator().manual_seed(3), random.Generator().manual_seed(3)
        yield on_device.uniform(xp, ours, 101, dtype), draw.uniform(np, theirs, 101, np.dtype(dtype))


def _check_optimizer(xp: Any) -> Iterator[tuple[Any, Any]]:
    from engine.ops.optimizer import cuda as optimizer

    sizes = (5, 3000, 1)
    parameters, grads = ([_real(n, seed=n + k) for n in sizes] for k in (0, 1))
    jobs = [((xp.asarray(p), xp.asarray(g)), (0.25, 3)) for p, g in zip(parameters, grads)]
    left = optimizer.run(_decayed, jobs, 1)
    if left:
        raise RuntimeError("the kernel of optimizers does not serve its check")
    for (found, _), _ in jobs:
        n = sizes.index(found.size)
        yield found, (parameters[n] - grads[n] * np.float32(0.25)) * np.float32(3)


def _decayed(xp: Any, scratch: Any, numbers: Any, param: Any, grad: Any) -> None:
    """An update such as those of engine/optim."""
    rate, decay = numbers
    (t,) = scratch
    xp.multiply(grad, rate, out=t)
    xp.subtract(param, t, out=param)
    xp.multiply(param, decay, out=param)


routes.route("random", check=_check_random, fallback="numbers made on the host", tolerance=0, ready=compiling.in_use)
routes.route("optimizer", check=_check_optimizer, fallback="CuPy, a launch or more a parameter", ready=compiling.in_use)
