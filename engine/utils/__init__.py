"""Data loading, recomputation of activations, DLPack, trees of values.

Imported at first use: `utils.data`, `utils.checkpoint`, `utils.dlpack`, `utils._pytree`.
"""

import importlib as _importlib

_MODULES = frozenset(["_pytree", "checkpoint", "data", "dlpack"])


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return _importlib.import_module(f"engine.utils.{name}")
    raise AttributeError(f"module 'engine.utils' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
