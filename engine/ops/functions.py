"""torch's functions for the modules of the engine: `from engine.ops import functions as torch`.

What `import torch` gives is `engine`, which stands above all: it knows `nn`, `jit`, `onnx` and every other public
module.  A module of the engine that computes with tensors needs less: the functions, and what they take (dtypes,
devices, layouts, grad modes, generators).  All of that is known once `engine.ops` is imported, so it is collected here,
and `engine` takes it from here: `functions.add is engine.add`, one object, whoever listens to it.

The module is the lowest that sees every family, hence its place in `ops`.  Its names are set once, at import, so that
`torch.add` is a read of this module's dict; a function of the families that are imported lazily
(`engine/dispatch/README.md`) is set at its first use.
`functions.pyi` tells type checkers what is served; `scripts/stubs.py` writes it.
"""

from engine import dispatch as _dispatch
from engine.core import dtypes as _dtypes
from engine.core.device import device  # noqa: F401
from engine.core.grad_mode import (  # noqa: F401
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from engine.core.layouts import (  # noqa: F401
    channels_last,
    channels_last_3d,
    contiguous_format,
    jagged,
    layout,
    memory_format,
    preserve_format,
    sparse_coo,
    sparse_csr,
    strided,
)
from engine.random import (  # noqa: F401
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from engine.tensor import Size, Tensor, is_tensor  # noqa: F401


def __getattr__(name: str) -> object:
    """A function of the lazy families, imported at first use."""
    if name[:2] != "__":
        _dispatch.import_lazy()
        if name in _dispatch.PUBLIC:
            value: object = _dispatch.PUBLIC[name]
            globals()[name] = value
            return value
    raise AttributeError(f"module 'engine.ops.functions' has no attribute '{name}'")


globals().update(_dispatch.PUBLIC)
globals().update({_name: getattr(_dtypes, _name) for _name in _dtypes.__all__})
inf, nan, pi, e, newaxis = _dtypes._float("inf"), _dtypes._float("nan"), 3.141592653589793, 2.718281828459045, None
