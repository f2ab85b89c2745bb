"""Small functions of torch's top level: assertions, names of types, and settings that have one value here."""

from __future__ import annotations

from typing import Any

from engine import compiler, dtypes
from engine._names import TOP_LEVEL
from engine.tensor import Tensor

__all__ = TOP_LEVEL.split()


def _assert(condition: Any, message: str) -> None:
    """`assert condition, message`."""
    assert condition, message


def _has_compatible_shallow_copy_type(input: Tensor, other: Tensor) -> bool:
    """Whether `input.data = other` is possible: both are tensors of this engine."""
    return True


def _shape_as_tensor(input: Tensor) -> Tensor:
    """The sizes as int64: (*a) -> (n)."""
    import engine

    return engine.tensor(list(input.shape), dtype=dtypes.int64)


def typename(obj: Any) -> str:
    """`torch.FloatTensor` for a tensor, the dotted name of anything else's class."""
    if isinstance(obj, Tensor):
        return obj.type()
    owner = obj if hasattr(obj, "__qualname__") else type(obj)
    module = (getattr(owner, "__module__", None) or "").replace("engine", "torch", 1)
    return owner.__qualname__ if module in ("", "builtins") else f"{module}.{owner.__qualname__}"


def compile(model: Any = None, **kwargs: Any) -> Any:
    """`model` itself; without one, a decorator that does the same.  Nothing is compiled."""
    return compiler.compile(model, **kwargs)


# --- threads: BLAS's own


def get_num_threads() -> int:
    """The threads that BLAS uses, 1 where that is not known."""
    import threadpoolctl

    return max((pool["num_threads"] for pool in threadpoolctl.threadpool_info()), default=1)


def set_num_threads(int: int) -> None:
    """Let BLAS use so many threads.  RuntimeError unless positive."""
    import threadpoolctl

    if int <= 0:
        raise RuntimeError("set_num_threads expects a positive integer")
    threadpoolctl.threadpool_limits(int)


def get_num_interop_threads() -> int:
    """1: operations run one after another."""
    return 1


def set_num_interop_threads(int: int) -> None:
    """Without effect."""


# --- settings with one value: results are deterministic, float32 is computed as such, dtypes are never changed


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Without effect: operations are deterministic."""


def are_deterministic_algorithms_enabled() -> bool:
    """False."""
    return False


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """False."""
    return False


def get_deterministic_debug_mode() -> int:
    """0."""
    return 0


def set_deterministic_debug_mode(debug_mode: Any) -> None:
    """Without effect."""


def get_float32_matmul_precision() -> str:
    """`highest`."""
    return "highest"


def set_float32_matmul_precision(precision: str) -> None:
    """Without effect."""


def set_flush_denormal(mode: bool) -> bool:
    """False: denormal numbers are kept."""
    return False


def is_warn_always_enabled() -> bool:
    """False."""
    return False


def set_warn_always(b: bool) -> None:
    """Without effect."""


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """False: see `engine.amp` for the rule."""
    return False


is_autocast_cpu_enabled = is_autocast_cache_enabled = is_autocast_enabled


def set_autocast_enabled(*args: Any) -> None:
    """Without effect."""


set_autocast_dtype = set_autocast_cache_enabled = set_autocast_gpu_dtype = set_autocast_cpu_dtype = set_autocast_enabled
set_autocast_cpu_enabled = clear_autocast_cache = set_autocast_enabled


def get_autocast_dtype(device_type: str = "cuda") -> Any:
    """The dtype torch would choose."""
    return dtypes.float16 if device_type == "cuda" else dtypes.bfloat16


def get_autocast_gpu_dtype() -> Any:
    """float16."""
    return dtypes.float16


def get_autocast_cpu_dtype() -> Any:
    """bfloat16."""
    return dtypes.bfloat16


# --- symbolic sizes: sizes are numbers


class SymInt:
    """A size that is not known yet; none is."""


class SymFloat:
    """A number that is not known yet; none is."""


class SymBool:
    """A condition that is not known yet; none is."""


sym_int, sym_float = int, float
sym_max, sym_min = max, min


def sym_not(a: Any) -> bool:
    """`not a`."""
    return not a


def sym_sqrt(a: Any) -> float:
    """The square root of a number."""
    return a**0.5


def get_device(input: Tensor) -> int:
    """`input.get_device()`."""
    return input.get_device()


def get_device_module(device: Any = None) -> Any:
    """The module of a device: `torch.cuda` or `torch.cpu`."""
    import importlib

    from engine.device import device as make

    return importlib.import_module(f"engine.{'cpu' if device is None else make(device).type}")


def unify_type_list(types: Any) -> Any:
    """The first."""
    return types[0]


def vmap(func: Any, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: Any = None) -> Any:
    """A function that raises NotImplementedError when called: see `torch.func`."""
    from engine.func import vmap as refuse

    return refuse(func)
