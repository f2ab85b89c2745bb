"""torch.types' names, for annotations."""

from __future__ import annotations

import os
from builtins import bool as _bool
from builtins import float as _float
from builtins import int as _int
from builtins import str as _str
from collections.abc import Sequence
from typing import Any, Union

from engine.core.device import device as _device
from engine.core.dtypes import dtype as _dtype  # noqa: F401
from engine.core.layouts import layout as _layout  # noqa: F401
from engine.core.storage import Storage
from engine.tensor import Size, Tensor

__all__ = ["Device", "FileLike", "IntLikeType", "Number", "Size", "Storage", "Tensor", "TensorOrTensors"]

Number = Union[_int, _float, _bool]  # noqa: UP007  # a typing object, as in torch
Device = Union[_device, _str, _int, None]  # noqa: UP007
FileLike = Union[_str, os.PathLike, Any]  # noqa: UP007
IntLikeType, FloatLikeType, BoolLikeType = _int, _float, _bool
TensorOrTensors = Union[Tensor, Sequence[Tensor]]  # noqa: UP007
_TensorOrTensors = TensorOrTensors
_size = Union[Size, list[_int], tuple[_int, ...]]  # noqa: UP007
_symsize = _size
_dispatchkey = Union[_str, Any]  # noqa: UP007
