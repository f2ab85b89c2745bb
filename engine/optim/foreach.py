"""torch's `_foreach_*` functions: one operation over lists of tensors, which optimizers of other packages use.

`_foreach_NAME(tensors, ...)` gives a tuple, `_foreach_NAME_(tensors, ...)` writes in place and returns the tensors;
shapes are NAME's.  A second operand is a number, a tensor, or a list with one for each tensor.  Here each is a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine import linalg
from engine.ops import functions as torch
from engine.tensor import Tensor
from engine.torch_names._names import FOREACH, FOREACH_BINARY, FOREACH_TERNARY, FOREACH_UNARY

__all__ = FOREACH


_BOUNDS = ("maximum", "minimum")  # what has no form with a number of its own


def _each(value: Any, count: int) -> Sequence[Any]:
    """One operand for each of `count` tensors."""
    if not isinstance(value, list | tuple):
        return [value] * count
    if len(value) != count:
        raise RuntimeError(f"Tensor lists must have the same number of tensors, got {count} and {len(value)}")
    return value


def _some(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """The list, of at least one tensor."""
    if not len(tensors):
        raise RuntimeError("Tensor list must have at least one tensor.")
    return tensors


def _apply(name: str, operands: str) -> Callable[..., Any]:
    """The loop over NAME: `operands` "" none, "2" one beside the tensors, "3" two and perhaps a factor."""
    inplace = name.endswith("_")
    plain = name.rstrip("_")

    def call(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if args and plain in _BOUNDS and not isinstance(args[0], Tensor):
            args = (tensor.new_full((), args[0]),)
        if not inplace:
            return getattr(torch, name)(tensor, *args, **kwargs)
        if hasattr(tensor, name):
            return getattr(tensor, name)(*args, **kwargs)
        return tensor.copy_(getattr(torch, name[:-1])(tensor, *args, **kwargs))  # maximum_ and the like

    def unary(self: Sequence[Tensor]) -> Any:
        made = tuple([call(t) for t in _some(self)])
        return self if inplace else made

    def binary(self: Any, other: Any, *, alpha: Any = None) -> Any:
        if isinstance(self, Tensor | int | float):  # only pow: a number to the power of each tensor
            return tuple([torch.pow(self, t) for t in other])
        more = {} if alpha is None else {"alpha": alpha}
        made = tuple([call(t, x, **more) for t, x in zip(_some(self), _each(other, len(self)))])
        return self if inplace else made

    def ternary(self: Any, tensor1: Any, tensor2: Any, scalars: Any = 1, *, value: Any = None) -> Any:
        n = len(_some(self))
        factors = scalars if value is None else value
        if isinstance(factors, Tensor):  # one for each, or one for all
            factors = factors.tolist()
        rows = zip(self, _each(tensor1, n), _each(tensor2, n), _each(factors, n))
        made = tuple([call(t, x, y, value=f) for t, x, y, f in rows])
        return self if inplace else made

    def lerp(self: Any, tensors1: Any, weights: Any = None, *, weight: Any = None) -> Any:
        n = len(_some(self))
        rows = zip(self, _each(tensors1, n), _each(weight if weights is None else weights, n))
        made = tuple([call(t, x, w) for t, x, w in rows])
        return self if inplace else made

    function = {"": unary, "2": binary, "3": lerp if name.startswith("lerp") else ternary}[operands]
    function.__name__ = function.__qualname__ = f"_foreach_{name}"
    function.__doc__ = f"`{name}` of each tensor{', in place; the list' if inplace else '; a tuple'}."
    return function


for _names, _operands in ((FOREACH_UNARY, ""), (FOREACH_BINARY, "2"), (FOREACH_TERNARY, "3")):
    for _name in _names.split():
        for _form in (_name, f"{_name}_"):
            globals()[f"_foreach_{_form}"] = _apply(_form, _operands)


def _foreach_copy_(self: Sequence[Tensor], src: Sequence[Tensor], non_blocking: bool = False) -> Sequence[Tensor]:
    """`copy_` of each tensor of `src` into that of `self`; `self`."""
    for target, source in zip(_some(self), _each(src, len(self))):
        target.copy_(source)
    return self


def _foreach_zero_(self: Sequence[Tensor]) -> Sequence[Tensor]:
    """`zero_` of each tensor; `self`."""
    for tensor in _some(self):
        tensor.zero_()
    return self


def _foreach_clone(self: Sequence[Tensor], *, memory_format: Any = None) -> tuple[Tensor, ...]:
    """A copy of each tensor; a tuple."""
    more = {} if memory_format is None else {"memory_format": memory_format}
    return tuple([tensor.clone(**more) for tensor in _some(self)])


def _foreach_max(self: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The largest element of each tensor; a tuple of ()."""
    return tuple([tensor.max() for tensor in _some(self)])


def _foreach_mm(self: Sequence[Tensor], mat2: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The product of each pair of matrices; a tuple of (n, p) for (n, m) and (m, p)."""
    return tuple([torch.mm(first, second) for first, second in zip(_some(self), _each(mat2, len(self)))])


def _foreach_norm(self: Sequence[Tensor], ord: Any = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The vector norm of each tensor; a tuple of ()."""
    return tuple([linalg.vector_norm(tensor, ord, dtype=dtype) for tensor in _some(self)])


def _foreach_powsum(self: Sequence[Tensor], ord: Any = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The sum of |x| ** ord over each tensor; a tuple of ()."""
    return tuple([(tensor.abs() ** ord).sum(dtype=dtype) for tensor in _some(self)])


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
