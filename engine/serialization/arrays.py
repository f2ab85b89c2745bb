"""A builder that keeps tensors as numpy arrays: what `hub convert` and inspection need, without the engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from .records import RawStorage

__all__ = ["ArrayBuilder"]


class ArrayBuilder:
    """Tensors and parameters become strided arrays over their storages; requires_grad is dropped."""

    def tensor(self, array: np.ndarray, storage: RawStorage | None, requires_grad: bool) -> np.ndarray:
        return array

    def parameter(self, data: Any, requires_grad: bool) -> Any:
        return data

    def storage(self, storage: RawStorage) -> np.ndarray:
        return storage.numpy()

    def set_data(self, tensor: Any, data: Any) -> Any:
        return data

    def set_requires_grad(self, tensor: Any, requires_grad: bool) -> None:
        pass

    def set_attributes(self, tensor: Any, state: dict) -> None:
        pass

    def is_tensor(self, obj: Any) -> bool:
        return isinstance(obj, np.ndarray)

    def to_numpy(self, tensor: Any) -> np.ndarray:
        return tensor

    def device(self, *args: Any) -> str:
        return ":".join(str(a) for a in args if a is not None)

    def size(self, sizes: tuple) -> tuple:
        return sizes
