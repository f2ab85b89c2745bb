"""torch.backends.cudnn's names: the settings of what cuDNN computes (`engine/backends/cuda/cudnn.py`).

`enabled`: whether it is used at all.  `benchmark`: the first call of a convolution tries up to `benchmark_limit` (0:
all) engines and keeps the fastest.  `deterministic`: only engines that give the same bits each time.  `allow_tf32`:
whether float32 convolutions and recurrent networks may round their operands to 10 bits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["flags", "is_acceptable", "is_available", "set_flags", "version"]

enabled = True
benchmark = False
benchmark_limit: int | None = 10
deterministic = False
allow_tf32 = True


def _found() -> Any:
    from engine.backends.cuda import cudnn, runtime  # for the weight: nothing of CUDA is needed before it is asked for

    if not runtime.loaded() and not runtime.device_count():
        return None
    found = runtime.state.cudnn if runtime.state.stand_in else cudnn.loaded()
    return None if isinstance(found, str) else found


def is_available() -> bool:
    """Return whether there is a GPU and cuDNN."""
    return _found() is not None


def version() -> int | None:
    """cuDNN's version, 92700 for 9.27.0; None without it or without a GPU."""
    found = _found()
    return None if found is None else int(found.version())


def is_acceptable(tensor: Any) -> bool:
    """Return whether cuDNN takes a tensor: on a GPU, of a floating type, while `enabled`."""
    from engine.core import dtypes

    types = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)
    return bool(enabled and tensor.device.type == "cuda" and tensor.dtype in types and is_available())


def set_flags(
    _enabled: bool | None = None,
    _benchmark: bool | None = None,
    _benchmark_limit: int | None = None,
    _deterministic: bool | None = None,
    _allow_tf32: bool | None = None,
) -> tuple[Any, ...]:
    """Set what is not None; the settings that stood before."""
    names = ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32")
    here = globals()
    before = tuple(here[n] for n in names)
    for name, value in zip(names, (_enabled, _benchmark, _benchmark_limit, _deterministic, _allow_tf32)):
        if value is not None:
            here[name] = value
    return before


@contextlib.contextmanager
def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
    fp32_precision: str = "none",
) -> Iterator[None]:
    """A context with other settings; those not given are torch's defaults: `enabled` is False."""
    if fp32_precision not in ("none", "ieee", "tf32"):
        raise RuntimeError(f"Invalid precision: {fp32_precision}")
    tf32 = allow_tf32 if fp32_precision == "none" else fp32_precision == "tf32"
    before = set_flags(enabled, benchmark, benchmark_limit, deterministic, tf32)
    try:
        yield
    finally:
        set_flags(*before)
