"""What kernels compute with: arrays, and the module whose functions they call."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Protocol, TypeAlias

import numpy as np

__all__ = ["Array", "ArrayModule"]

Array: TypeAlias = np.ndarray  # numpy's, or CuPy's, which has the same methods


class _Functions(Protocol):
    """Functions of arrays by numpy's names, as those of `backends.cpu.fast`."""

    def __getattr__(self, name: str) -> Any: ...


ArrayModule: TypeAlias = ModuleType | _Functions  # `xp`: numpy, CuPy, `fast`
