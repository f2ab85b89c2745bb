"""Data loading, recomputation of activations, DLPack, trees of values.

Imported at first use: `utils.data`, `utils.checkpoint`, `utils.dlpack`, `utils._pytree`.
"""

import importlib as _importlib
from typing import TYPE_CHECKING, Any

_MODULES = frozenset(
    [
        "_contextlib",
        "_foreach_utils",
        "_python_dispatch",
        "_pytree",
        "benchmark",
        "checkpoint",
        "collect_env",
        "cpp_extension",
        "data",
        "dlpack",
        "file_baton",
        "flop_counter",
        "hooks",
        "tensorboard",
    ]
)


def swap_tensors(t1: Any, t2: Any) -> None:
    """Exchange all that two Tensors are: values, gradient, class, attributes; names of either go on naming it.

    A graph that accumulates into one of them no longer does.
    """
    t1.__dict__, t2.__dict__ = t2.__dict__, t1.__dict__
    t1.__class__, t2.__class__ = t2.__class__, t1.__class__
    for tensor in (t1, t2):
        tensor.__dict__.pop("_accumulator", None)


if TYPE_CHECKING:
    from engine.utils import _pytree as _pytree
    from engine.utils import benchmark as benchmark
    from engine.utils import checkpoint as checkpoint
    from engine.utils import collect_env as collect_env
    from engine.utils import cpp_extension as cpp_extension
    from engine.utils import data as data
    from engine.utils import dlpack as dlpack
    from engine.utils import file_baton as file_baton
    from engine.utils import flop_counter as flop_counter
    from engine.utils import hooks as hooks
    from engine.utils import tensorboard as tensorboard
else:

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return _importlib.import_module(f"engine.utils.{name}")
        if name == "model_zoo":  # lives elsewhere: only under the torch names
            import sys

            alias = sys.modules.get("engine.torch_alias")
            if alias is not None and alias.installed():
                return _importlib.import_module("torch.utils.model_zoo")
        raise AttributeError(f"module 'engine.utils' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
