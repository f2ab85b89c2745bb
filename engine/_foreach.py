"""torch's `_foreach_*` functions: one operation over lists of tensors, which optimizers of other packages use.

`_foreach_NAME(tensors, ...)` gives a list, `_foreach_NAME_(tensors, ...)` writes in place; shapes are NAME's.  A second
operand is a number, a tensor, or a list with one for each tensor.  Here each is a plain loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import engine
from engine.tensor import Tensor
from engine.torch_names._names import FOREACH, FOREACH_BINARY, FOREACH_TERNARY, FOREACH_UNARY

__all__ = FOREACH


def _each(value: Any, count: int) -> Sequence[Any]:
    """One operand for each of `count` tensors."""
    if not isinstance(value, list | tuple):
        return [value] * count
    if len(value) != count:
        raise RuntimeError(f"Tensor lists must have the same number of tensors, got {count} and {len(value)}")
    return value


def _apply(name: str, operands: str) -> Callable[..., Any]:
    """The loop over NAME: `operands` "" none, "2" one beside the tensors, "3" two and perhaps a factor."""
    inplace = name.endswith("_")

    def call(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if not inplace:
            return getattr(engine, name)(tensor, *args, **kwargs)
        if hasattr(tensor, name):
            return getattr(tensor, name)(*args, **kwargs)
        return tensor.copy_(getattr(engine, name[:-1])(tensor, *args, **kwargs))  # maximum_ and the like

    def unary(self: Sequence[Tensor]) -> Any:
        made = [call(t) for t in self]
        return None if inplace else made

    def binary(self: Any, other: Any, *, alpha: Any = None) -> Any:
        if isinstance(self, Tensor | int | float):  # only pow: a number to the power of each tensor
            return [engine.pow(self, t) for t in other]
        more = {} if alpha is None else {"alpha": alpha}
        made = [call(t, x, **more) for t, x in zip(self, _each(other, len(self)))]
        return None if inplace else made

    def ternary(self: Any, tensor1: Any, tensor2: Any, scalars: Any = 1, *, value: Any = None) -> Any:
        n = len(self)
        rows = zip(self, _each(tensor1, n), _each(tensor2, n), _each(scalars if value is None else value, n))
        made = [call(t, x, y, value=float(f)) for t, x, y, f in rows]
        return None if inplace else made

    def lerp(self: Any, tensors1: Any, weights: Any = None, *, weight: Any = None) -> Any:
        n = len(self)
        rows = zip(self, _each(tensors1, n), _each(weight if weights is None else weights, n))
        made = [call(t, x, w) for t, x, w in rows]
        return None if inplace else made

    function = {"": unary, "2": binary, "3": lerp if name.startswith("lerp") else ternary}[operands]
    function.__name__ = function.__qualname__ = f"_foreach_{name}"
    function.__doc__ = f"`{name}` of each tensor{', in place' if inplace else '; a list'}."
    return function


for _names, _operands in ((FOREACH_UNARY, ""), (FOREACH_BINARY, "2"), (FOREACH_TERNARY, "3")):
    for _name in _names.split():
        for _form in (_name, f"{_name}_"):
            globals()[f"_foreach_{_form}"] = _apply(_form, _operands)


def _foreach_copy_(self: Sequence[Tensor], src: Sequence[Tensor], non_blocking: bool = False) -> None:
    """`copy_` of each tensor of `src` into that of `self`."""
    for target, source in zip(self, _each(src, len(self))):
        target.copy_(source)


def _foreach_zero_(self: Sequence[Tensor]) -> None:
    """`zero_` of each tensor."""
    for tensor in self:
        tensor.zero_()


def _foreach_max(self: Sequence[Tensor]) -> list[Tensor]:
    """The largest element of each tensor; a list of ()."""
    return [tensor.max() for tensor in self]


def _foreach_norm(self: Sequence[Tensor], ord: Any = 2, dtype: Any = None) -> list[Tensor]:
    """The vector norm of each tensor; a list of ()."""
    return [engine.linalg.vector_norm(tensor, ord, dtype=dtype) for tensor in self]


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Any]], with_indices: bool = False
) -> dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]]:
    """The lists by device and dtype of the first one's tensors: {(device, dtype): (lists, places in the first)}.

    The places are there with `with_indices`, else the list of them is empty.
    """
    found: dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]] = {}
    for at, first in enumerate(tensorlistlist[0]):
        lists, places = found.setdefault((first.device, first.dtype), ([[] for _ in tensorlistlist], []))
        for kept, given in zip(lists, tensorlistlist):
            if given:
                kept.append(given[at])
        if with_indices:
            places.append(at)
    return found
