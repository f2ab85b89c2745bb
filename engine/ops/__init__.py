"""Every operation, one `def` each, by family.  Importing this package fills the op registry with the families that
every use of a tensor needs; `lazy.py` names the others.

Add an op: one decorated function in its family's file (CONTRIBUTING.md shows it); nothing else to edit.
"""

from collections.abc import Callable, Iterable
from typing import Any

from engine import dispatch
from engine.backends import routes
from engine.ops import (  # noqa: F401
    comparison,
    copying,
    creation,
    extremes,
    from_data,
    gathering,
    indexing,
    joining,
    masking,
    pointwise,
    queries,
    random,
    ranges,
    reduction,
    registered,
    shape,
    strides,
)
from engine.ops.linalg import products  # noqa: F401


def _lazy() -> None:
    from engine.ops import lazy  # noqa: F401


def _blocks(record: dispatch.Op) -> object:
    from engine.ops import blocks

    return blocks.kernel_of(record)


def _onednn() -> None:
    from engine.ops import onednn  # noqa: F401


def _pictures() -> bool:
    from engine.ops.generated import pictures  # noqa: F401

    return True


def _cuda() -> bool:  # once an op and a builder of kernels: `CudaBackend.kernel_of`
    from engine.backends.cuda import compile as compiling
    from engine.ops import cudnn  # noqa: F401

    if compiling.in_use():
        from engine.ops import cuda  # noqa: F401
    return compiling.in_use()


def _elements(record: dispatch.Op) -> object:
    from engine.ops.cuda import elementwise

    return elementwise.kernel_of(record)


def _proved(variant: object, own: object) -> object:
    from engine.ops.cuda import _routes

    return _routes.proved(variant, own)


def _calibrate(ops: Iterable[str] | None, progress: Callable[..., None] | None) -> object:
    from engine.ops import calibration

    return calibration.run(ops, progress)


def _at_first_use(name: str) -> None:
    from engine.ops import calibration

    if name in calibration.CASES:
        calibration.run([name])


def _generated(record: dispatch.Op, present: Callable[..., Any], into: int | None = None) -> object:
    from engine.kernels import processor

    if not processor.available():
        return None
    from engine.ops import generated

    return generated.kernel_of(record, present, into)


def _direct(record: dispatch.Op, present: Callable[..., Any]) -> object:
    from engine.ops.generated import small

    return small.function_of(record, present)


dispatch.providers.update(
    lazy=_lazy, blocks=_blocks, onednn=_onednn, cuda=_cuda, elements=_elements, proved=_proved, generated=_generated,
    direct=_direct, pictures=_pictures,
)  # fmt: skip
routes.providers.update({"calibrate": _calibrate, "at first use": _at_first_use})


def __getattr__(name: str) -> object:
    """A family that is not imported yet, or what `torch.ops` holds: a namespace, `load_library`."""
    from importlib import import_module
    from importlib.util import find_spec

    if name.startswith("__"):
        raise AttributeError(f"module 'engine.ops' has no attribute '{name}'")
    if name in ("load_library", "loaded_libraries"):
        return getattr(import_module("engine._ops"), name)
    if find_spec(f"engine.ops.{name}") is not None:
        return import_module(f"engine.ops.{name}")
    return globals().setdefault(name, import_module("engine._ops").OpNamespace(name))
