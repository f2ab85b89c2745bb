"""Making batches of items: `default_collate`, `default_convert`.

https://docs.pytorch.org/docs/2.13/data.html#dataloader-collate-fn
"""

from __future__ import annotations

import collections.abc
import copy
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.ops import functions as torch
from engine.tensor import Tensor

__all__ = ["collate", "default_collate", "default_collate_err_msg_format", "default_collate_fn_map", "default_convert"]

np_str_obj_array_pattern = re.compile(r"[SaUO]")
default_collate_err_msg_format = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
)


def _rebuilt(container: Any, values: list[Any]) -> Any:
    """A sequence of the type of `container` with other values; a list where that cannot be made."""
    try:
        if isinstance(container, collections.abc.MutableSequence):
            clone = copy.copy(container)
            for i, value in enumerate(values):
                clone[i] = value
            return clone
        return type(container)(values)
    except TypeError:
        return values


def _rebuilt_mapping(container: Any, values: dict[Any, Any]) -> Any:
    try:
        if isinstance(container, collections.abc.MutableMapping):
            clone = copy.copy(container)
            clone.update(values)
            return clone
        return type(container)(values)
    except TypeError:
        return values


def default_convert(data: Any) -> Any:
    """numpy arrays and scalars in nested containers as Tensors (they share memory); all else as it is."""
    if isinstance(data, Tensor):
        return data
    if isinstance(data, np.ndarray | np.generic):
        if isinstance(data, np.ndarray) and np_str_obj_array_pattern.search(data.dtype.str) is not None:
            return data
        if isinstance(data, np.str_ | np.bytes_):
            return data
        return torch.as_tensor(data)
    if isinstance(data, collections.abc.Mapping):
        return _rebuilt_mapping(data, {key: default_convert(data[key]) for key in data})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(d) for d in data))
    if isinstance(data, tuple):
        return [default_convert(d) for d in data]
    if isinstance(data, collections.abc.Sequence) and not isinstance(data, str | bytes):
        return _rebuilt(data, [default_convert(d) for d in data])
    return data


def collate(batch: Any, *, collate_fn_map: dict[Any, Callable[..., Any]] | None = None) -> Any:
    """Items as a batch, by functions of their type: `collate_fn_map` {type or types: f(batch, collate_fn_map=)}.

    Mappings are collated key by key, tuples and sequences element by element.  RuntimeError for sequences of different
    lengths, TypeError for a type without a function.
    """
    elem = batch[0]
    kind = type(elem)
    if collate_fn_map is not None:
        if kind in collate_fn_map:
            return collate_fn_map[kind](batch, collate_fn_map=collate_fn_map)
        for types, function in collate_fn_map.items():
            if isinstance(elem, types):
                return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(elem, collections.abc.Mapping):
        return _rebuilt_mapping(
            elem, {key: collate([d[key] for d in batch], collate_fn_map=collate_fn_map) for key in elem}
        )
    if isinstance(elem, tuple) and hasattr(elem, "_fields"):
        return kind(*(collate(samples, collate_fn_map=collate_fn_map) for samples in zip(*batch)))
    if isinstance(elem, collections.abc.Sequence):
        size = len(elem)
        if not all(len(e) == size for e in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [collate(samples, collate_fn_map=collate_fn_map) for samples in zip(*batch)]
        return columns if isinstance(elem, tuple) else _rebuilt(elem, columns)
    raise TypeError(default_collate_err_msg_format.format(kind))


def collate_tensor_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    """Tensors (*) -> (N, *)."""
    return torch.stack(list(batch), 0)  # type: ignore[no-any-return]


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Arrays (*) -> Tensor (N, *).  TypeError for arrays of strings or objects."""
    elem = batch[0]
    if np_str_obj_array_pattern.search(elem.dtype.str) is not None:
        raise TypeError(default_collate_err_msg_format.format(elem.dtype))
    return collate([torch.as_tensor(b) for b in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    """numpy scalars -> Tensor (N)."""
    return torch.as_tensor(np.asarray(batch))  # type: ignore[no-any-return]


def collate_float_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    """Python floats -> float64 Tensor (N)."""
    return torch.tensor(list(batch), dtype=torch.float64)  # type: ignore[no-any-return]


def collate_int_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    """Python ints (or bools) -> Tensor (N)."""
    return torch.tensor(list(batch))  # type: ignore[no-any-return]


def collate_str_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Strings stay a list."""
    return batch


default_collate_fn_map: dict[Any, Callable[..., Any]] = {
    Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}


def default_collate(batch: Any) -> Any:
    """A list of N items as a batch: Tensors and arrays (*) -> (N, *), numbers -> (N), strings a list; containers too.

    TypeError for items of other types, RuntimeError for sizes that differ.
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)
