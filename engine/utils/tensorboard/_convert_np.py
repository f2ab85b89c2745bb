"""Numbers, arrays and tensors as numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.core import dtypes
from engine.tensor import Tensor

__all__ = ["make_np"]


def make_np(x: Any) -> np.ndarray:
    """A number as an array (1), an array itself, a tensor as an array out of the graph.

    NotImplementedError for other objects.
    """
    if isinstance(x, np.ndarray):
        return x
    if np.isscalar(x):
        return np.array([x])
    if isinstance(x, Tensor):
        found = x.detach().cpu()
        return np.asarray((found.float() if found.dtype is dtypes.bfloat16 else found).numpy())
    raise NotImplementedError(f"Got {type(x)}, but numpy array or torch tensor are expected.")
