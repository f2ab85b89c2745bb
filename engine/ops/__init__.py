"""Every operation, one `def` each, by family.  Importing this package fills the op registry with the families that
every use of a tensor needs; `lazy.py` names the others.

Add an op: one decorated function in its family's file (CONTRIBUTING.md shows it); nothing else to edit.
"""

from collections.abc import Callable, Iterable
from typing import Any

from engine import dispatch
from engine.backends import _makers, routes
from engine.ops import (  # noqa: F401
    comparison,
    copying,
    creation,
    extremes,
    from_data,
    gathering,
    indexing,
    joining,
    lazy_members,
    masking,
    pointwise,
    products,
    queries,
    random,
    ranges,
    reduction,
    registered,
    shape,
    strides,
)


def _cuda_backend() -> Any:
    from engine.backends import cuda

    return cuda.load()


def _meta_backend() -> Any:
    from engine.backends import meta

    return meta.Meta()


def _lazy() -> None:
    from engine.ops import lazy  # noqa: F401


def _blocks(record: dispatch.Op) -> object:
    from engine.ops import blocks

    return blocks.kernel_of(record)


def _onednn() -> None:
    from engine.ops import onednn  # noqa: F401


def _images() -> bool:
    import engine.ops.convolution.images
    import engine.ops.norm.images
    import engine.ops.pooling.images  # noqa: F401

    return True


def _cuda() -> bool:  # once per op and a builder of kernels: `CudaBackend.kernel_of`
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


_makers["cuda"] = _cuda_backend
_makers["meta"] = _meta_backend
dispatch.providers.lazy = _lazy
dispatch.register_lazy_members(lazy_members.METHODS.split(), lazy_members.PROPERTIES.split())
dispatch.providers.blocks = _blocks
dispatch.providers.onednn = _onednn
dispatch.providers.cuda = _cuda
dispatch.providers.elements = _elements
dispatch.providers.proved = _proved
dispatch.providers.generated = _generated
dispatch.providers.direct = _direct
dispatch.providers.images = _images
routes.providers.calibrate = _calibrate
routes.providers.at_first_use = _at_first_use


def __getattr__(name: str) -> object:
    """A family that is not imported yet, or what `torch.ops` holds: a namespace, `load_library`."""
    from importlib import import_module
    from importlib.util import find_spec

    if name.startswith("__"):
        raise AttributeError(f"module 'engine.ops' has no attribute '{name}'")
    if name in ("load_library", "loaded_libraries"):
        return getattr(import_module("engine.library.operators"), name)
    if find_spec(f"engine.ops.{name}") is not None:
        return import_module(f"engine.ops.{name}")
    return globals().setdefault(name, import_module("engine.library.operators").OpNamespace(name))
