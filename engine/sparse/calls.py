"""The engine's functions for sparse tensors: `call` is where `SparseTensor.__torch_function__` leads.

What is neither in `FUNCTIONS` nor a method of the sparse tensor runs its own Python code; where that reaches a kernel,
`SparseTensor._array` refuses.
"""

from __future__ import annotations

import functools
from collections.abc import Set
from types import FunctionType
from typing import Any

from engine.dispatch import PUBLIC, with_fact
from engine.dispatch.overriding import plain
from engine.sparse import arithmetic, factories, products, reductions, shapes
from engine.sparse.coordinates import SparseTensor, for_writing, make
from engine.tensor import Tensor

__all__ = ["METHODS", "call", "names"]


@functools.cache
def _keeping() -> tuple[Set[str], Set[str]]:
    """Return the names of the functions of single numbers that keep zeros, and of those that are linear."""
    return with_fact("keeps_zero").keys(), with_fact("linear").keys()


def call(func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """A function called with sparse tensors among its arguments."""
    if not all(issubclass(SparseTensor, t) or issubclass(t, SparseTensor) for t in types):
        return NotImplemented
    out = kwargs.get("out")
    if out is not None:
        return _into(out, func, types, args, {n: v for n, v in kwargs.items() if n != "out"})
    name = func.__name__
    if func is FUNCTIONS.get(name):  # `torch.spmm` and its like, once they are listened to: they know sparse tensors
        return plain(func)(*args, **kwargs)
    first = args[0] if args else kwargs.get("input")
    own = None
    if isinstance(first, SparseTensor):
        own = getattr(type(first), name, None)
        own = None if own is getattr(Tensor, name, None) else own
    own = own or FUNCTIONS.get(name)
    if isinstance(own, FunctionType) and own is not func:
        return own(*args, **kwargs)
    if isinstance(first, SparseTensor) and args:
        zeros, linear = _keeping()
        if name in zeros:
            a = first.coalesce()
            return a._with(func(a._v, *args[1:], **kwargs))
        if name in linear:  # repeated coordinates stay
            return _linear(func, first)
        if name[:-1] in zeros and name[-1] == "_":
            return _in_place(name, first, args[1:], kwargs)
    return plain(func)(*args, **kwargs)


def _into(out: Any, func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The result of the call written into `out`, sparse or dense."""
    if not any(isinstance(a, SparseTensor) for a in (*args, *kwargs.values())):
        if isinstance(out, SparseTensor) and func.__name__ in names():  # others know sparse tensors themselves
            raise NotImplementedError(f"{func.__name__}: a dense result is not written into a sparse tensor")
        return plain(func)(*args, **kwargs, out=out)
    result = call(func, types, args, kwargs)
    if isinstance(out, SparseTensor):
        if not isinstance(result, SparseTensor):
            raise RuntimeError(f"{func.__name__}: a dense result is not written into a sparse tensor")
        return for_writing(out)._become(result.to(out.dtype))
    if isinstance(result, SparseTensor):
        result = result.to_dense()
    if tuple(out.shape) != tuple(result.shape):
        out.resize_(result.shape)
    return out.copy_(result.detach())


def _linear(func: Any, input: SparseTensor) -> SparseTensor:
    values = func(input._v)
    size = (*input._size[: input.sparse_dim()], *values.shape[1:])
    return input._with(values) if size == input._size else make(input._i, values, size, input._coalesced)


def _in_place(name: str, input: SparseTensor, args: Any, kwargs: dict[str, Any]) -> SparseTensor:
    """A function of single numbers in place.  RuntimeError for coordinates that may be repeated."""
    if not input._coalesced:
        raise RuntimeError(f"{name} requires coalesced input")
    getattr(for_writing(input)._v, name)(*args, **kwargs)
    return input


METHODS: dict[str, Any] = {
    **shapes.METHODS,
    **arithmetic.METHODS,
    **products.METHODS,
    **reductions.METHODS,
    **factories.METHODS,
}
# What functions do with sparse tensors among their arguments, where that is no method of the first one.
FUNCTIONS: dict[str, Any] = {
    **{n: f for n, f in arithmetic.METHODS.items() if n[:2] != "__"},
    **products.FUNCTIONS,
    **{
        f.__name__: f for f in (shapes.cat, shapes.hstack, shapes.vstack, shapes.stack, shapes.copy_, shapes.resize_as_)
    },
}


def names() -> set[str]:
    """The functions of dense tensors that have something for sparse ones."""
    zeros, linear = _keeping()
    own = {n for n, f in vars(SparseTensor).items() if isinstance(f, FunctionType)}
    in_place = {f"{n}_" for n in zeros}
    return {n for n in own | FUNCTIONS.keys() | zeros | linear | in_place if n in PUBLIC} | {
        "__matmul__",
        "linear",
    }
