"""The engine's functions for nested tensors of the layout jagged: one function here for each kind of call.

`call` is where `NestedTensor.__torch_function__` leads.  What has no entry in `TABLE` and is no elementwise op runs its
own Python code, whose calls come back here; where that reaches a kernel, `NestedTensor._array` refuses.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine import autograd
from engine.core import dtypes
from engine.core.checks import wrap_dim
from engine.dispatch import OPS, with_fact
from engine.dispatch.overriding import plain
from engine.nested._internal.nested_int import NestedInt
from engine.nested._internal.nested_tensor import NestedTensor, inner, made, registered, torn
from engine.ops import functions as torch
from engine.tensor import Size, Tensor, wrap

__all__ = ["call", "gathered", "padded"]

TABLE: dict[str, Callable[..., Any]] = {}

# Python's operators that are written with others, and what is no composite
_OPERATORS = frozenset(
    """
    __rdiv__ __rtruediv__ __rpow__ __rmod__ __rfloordiv__ __floordiv__ __and__ __or__ __xor__ __lshift__ __rshift__
    __rlshift__ __rrshift__ __iand__ __ior__ __ixor__ __ilshift__ __irshift__ __ipow__ __ifloordiv__
    expit quantize_per_tensor
    """.split()
)
# the overload that torch names for two tensors, where it is not `Tensor`
_OVERLOADS = {torch.pow.__name__: "Tensor_Tensor"} | {
    function.__name__: "default"
    for function in (
        torch.maximum,
        torch.minimum,
        torch.fmax,
        torch.fmin,
        torch.atan2,
        torch.logical_and,
        torch.logical_or,
        torch.logical_xor,
        torch.logaddexp,
        torch.logaddexp2,
        torch.hypot,
        torch.gcd,
        torch.lcm,
        torch.nextafter,
    )
}
_SPELT = {
    "rsub": "sub",
    "__and__": "bitwise_and",
    "__or__": "bitwise_or",
    "__xor__": "bitwise_xor",
    "__rdiv__": "div",
    "true_divide": "div",
}


def call(func: Any, types: Sequence[type], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The call of a function that has nested tensors among its arguments."""
    if not all(issubclass(NestedTensor, t) or issubclass(Tensor, t) for t in types):
        return NotImplemented
    name = func.__name__
    if isinstance(getattr(func, "__self__", None), property):
        return func(*args)
    if func is autograd.grad:
        return _grad(func, *args, **kwargs)
    if func is autograd.backward or func is Tensor.backward:
        return plain(func)(*inner(args), **inner(kwargs))
    entry = TABLE.get(name)
    if entry is not None:
        return entry(func, *args, **kwargs)
    op = getattr(func, "op", None)
    if (
        name in _OPERATORS
        or name in with_fact("elementwise")
        or _elementwise(op or OPS.get(name))  # a function of nn.functional, too
        or (name[-1] == "_" and _elementwise(OPS.get(name[:-1])))
    ):
        return _pointwise(func, args, kwargs)
    if op is not None:
        raise NotImplementedError(
            f"aten.{name}.default: not implemented for nested tensors of the layout torch.jagged; use values(), "
            "unbind() or to_padded_tensor()"
        )
    return plain(func)(*args, **kwargs)


def _elementwise(op: Any) -> bool:
    return op is not None and (op.broadcast or op.blocks == "elements") and not op.many


def _grad(func: Any, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    found = plain(func)(inner(outputs), inner(inputs), *inner(args), **inner(kwargs))
    given = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
    return tuple(
        i._with(g) if isinstance(i, NestedTensor) and g is not None else g for i, g in zip(given, found, strict=True)
    )


def entry(*names: str) -> Callable[[Any], Any]:
    """Register the implementation of functions by name; it gets the function and the arguments of the call."""

    def add(function: Any) -> Any:
        TABLE.update(dict.fromkeys(names, function))
        return function

    return add


# --- elementwise


def _pointwise(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    everything = [*args, *kwargs.values()]
    nested = [a for a in everything if isinstance(a, NestedTensor)]
    base = nested[0]
    name = func.__name__
    for other in nested[1:]:
        if other._size[: base._ragged_idx + 1] != base._size[: base._ragged_idx + 1]:
            raise _mismatch(name, *[a for a in args if isinstance(a, NestedTensor)][:2])

    def value(argument: Any) -> Any:
        if isinstance(argument, NestedTensor):
            return argument._values
        if isinstance(argument, Tensor) and argument.dim():
            return _beside(base, argument, name, args)
        return argument

    found = func(*(value(a) for a in args), **{k: value(v) for k, v in kwargs.items()})
    if found is base._values:
        return base  # in place
    wide = max(nested, key=NestedTensor.dim)
    return _again(found, lambda v: wide._with(v))


def _again(found: Any, wrapped: Callable[[Tensor], Any]) -> Any:
    if isinstance(found, tuple):
        parts = [wrapped(f) for f in found]
        return type(found)(*parts) if hasattr(found, "_fields") else tuple(parts)
    return wrapped(found) if isinstance(found, Tensor) else found


def _mismatch(name: str, a: Any, b: Any) -> RuntimeError:
    own = name.rstrip("_") if name[:2] != "__" else name
    own = _SPELT.get(own, own)
    both = isinstance(a, NestedTensor) and isinstance(b, NestedTensor)
    shapes = [str(tuple(x.shape) if both else x.shape) for x in (a, b)]
    return RuntimeError(
        f"cannot call binary pointwise function {own}.{_OVERLOADS.get(own, 'Tensor')} with inputs of shapes "
        f"{shapes[0]} and {shapes[1]}"
    )


def _beside(base: NestedTensor, dense: Tensor, name: str, args: tuple[Any, ...]) -> Tensor:
    """A dense operand in the form of the values of `base`.

    dense (?) or (1, 1, ?): as it is; (B, 1, ?): once for each value of a row; (B, longest, ?): place by place.
    """
    if dense.dim() > base.dim():
        raise NotImplementedError("NYI: broadcasting NT with T with larger dim")
    squeezed = dense
    while squeezed.dim() and squeezed.shape[0] == 1:
        squeezed = squeezed.squeeze(0)
    if squeezed.dim() + 2 <= base.dim():
        return squeezed
    if dense.dim() != base.dim() or dense.shape[0] != base._size[0]:
        operands = [a for a in args if isinstance(a, Tensor)]
        pair = operands[:2] if name != "rsub" else operands[1::-1]
        raise _mismatch(name, *(pair if len(pair) == 2 else (base, dense)))
    r = base._ragged_idx
    return gathered(base, dense.expand([*dense.shape[:r], base._rows.longest, *dense.shape[r + 1 :]]))


def _index(nested: NestedTensor, array: np.ndarray) -> Tensor:
    return wrap(np.ascontiguousarray(array)).to(nested.device)


def gathered(nested: NestedTensor, dense: Tensor) -> Tensor:
    """The values of `nested`'s rows from a padded tensor: (B, *, longest, *) -> (*, sum of lengths, *)."""
    r = nested._ragged_idx
    rows, places = nested._rows.places(int(nested._values.shape[r - 1]))
    found = dense.movedim(r, 1)[_index(nested, rows), _index(nested, places)]
    return found.movedim(0, r - 1)


def padded(input: NestedTensor, padding: Any, width: int | None = None) -> Tensor:
    """The rows with `padding` behind the shorter ones: (B, *, longest or width, *)."""
    if input._lengths is not None:
        raise RuntimeError("to_padded_tensor(): not supported for nested tensors with holes")
    r, rows = input._ragged_idx, input._rows
    width = rows.longest if width is None else width
    values = input._values.movedim(r - 1, 0)
    at, place = rows.places(int(values.shape[0]))
    kept = place < width
    if not kept.all():
        values = values[_index(input, np.flatnonzero(kept))]
        at, place = at[kept], place[kept]
    empty = values.new_full((len(rows.starts), width, *values.shape[1:]), padding)
    return empty.index_put((_index(input, at), _index(input, place)), values).movedim(1, r)


@entry("expand")
def _expand(func: Any, input: Any, *size: Any) -> Any:
    sizes = list(size[0] if len(size) == 1 and isinstance(size[0], list | tuple) else size)
    return input._with(input._values.expand(_inner_sizes("expand", "expand", input, sizes)))


@entry("expand_as", "broadcast_to")
def _expand_as(func: Any, input: Any, other: Any) -> Any:
    if isinstance(input, NestedTensor):
        sizes = other.shape if isinstance(other, Tensor) else other
        return _expand(func, input, *sizes)
    return other._with(_beside(other, input, "expand_as", (input, other)).expand_as(other._values))


@entry("copy_")
def _copy(func: Any, input: NestedTensor, src: Any, non_blocking: bool = False) -> NestedTensor:
    if not isinstance(src, NestedTensor) or not isinstance(input, NestedTensor):
        raise ValueError(
            "NestedTensor copy_default(self: jt_all, src: jt_all, non_blocking: any?): expected src to be a jagged "
            "layout NestedTensor"
        )
    input._values.copy_(src._values)
    return input


@entry("clone", "contiguous")
def _clone(func: Any, input: NestedTensor, **options: Any) -> NestedTensor:
    if input._lengths is None:
        if func.__name__ == "contiguous" and input.is_contiguous():
            return input
        return input._with(func(input._values, **options))
    if func.__name__ == "clone" and repr(options.get("memory_format")) != "torch.contiguous_format":
        return input._with(func(input._values, **options))
    pieces = _pieces(input)
    offsets = torch.tensor(torn([int(n) for n in input._rows.lengths]), device=input.device)
    return made(torch.cat(pieces, input._ragged_idx - 1), offsets.to(input._offsets.dtype), None, input._ragged_idx)


@entry("to", "type", "type_as", "cpu", "cuda", "pin_memory")
def _to(func: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(input, NestedTensor):
        return func(input, *inner(args), **inner(kwargs))
    found = func(input._values, *inner(args), **inner(kwargs))
    if not isinstance(found, Tensor):
        return found
    return input if found is input._values else input._moved(found)


@entry("new_empty", "new_zeros", "new_ones", "new_full")
def _new(func: Any, input: NestedTensor, size: Any = (), *args: Any, **kwargs: Any) -> Tensor:
    sizes = tuple(size) if isinstance(size, list | tuple) else (size,)
    if sizes:
        raise RuntimeError("new_empty() not supported for NJT with shape != ()")
    return func(input._values, sizes, *args, **kwargs)  # type: ignore[no-any-return]


@entry("new_tensor")
def _new_tensor(func: Any, input: NestedTensor, *args: Any, **kwargs: Any) -> Tensor:
    return func(input._values, *args, **kwargs)  # type: ignore[no-any-return]


# --- shapes


def _dim(input: NestedTensor, dim: int, name: str, ragged: bool = False) -> int:
    """`dim` counted from the front; RuntimeError for the batch, and for the ragged dim unless it is allowed."""
    found = wrap_dim(dim, input.dim())
    if found == input._ragged_idx and not ragged:
        raise RuntimeError(f"{name}(): not supported for NestedTensor on ragged dim")
    if found == 0:
        raise RuntimeError(f"{name}(): not supported for NestedTensor on dim=0")
    return found


def _inner_sizes(name: str, verb: str, input: NestedTensor, sizes: list[Any]) -> list[Any]:
    """Sizes of the values for sizes of the nested tensor, whose rows must stay as they are."""
    r = input._ragged_idx
    fits = len(sizes) > r and all(
        s == own or (not isinstance(s, NestedInt) and s == -1) for s, own in zip(sizes[: r + 1], input._size)
    )
    if not fits or any(isinstance(s, NestedInt) for s in sizes[r + 1 :]):
        raise RuntimeError(f"{name}(): cannot {verb} shape {input._size} as {list(sizes)}")
    return [*input._values.shape[:r], *sizes[r + 1 :]]


@entry("view", "reshape")
def _view(func: Any, input: NestedTensor, *shape: Any) -> NestedTensor:
    sizes = list(shape[0] if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape)
    if len(sizes) == 1 and isinstance(sizes[0], dtypes.dtype):
        return input._with(func(input._values, sizes[0]))
    return input._with(func(input._values, _inner_sizes("view", "view", input, sizes)))


@entry("view_as", "reshape_as")
def _view_as(func: Any, input: NestedTensor, other: Tensor) -> NestedTensor:
    return _view(Tensor.view if func.__name__ == "view_as" else Tensor.reshape, input, *other.shape)


@entry("flatten")
def _flatten(func: Any, input: NestedTensor, start_dim: int = 0, end_dim: int = -1) -> NestedTensor:
    start, end = _dim(input, start_dim, "flatten"), _dim(input, end_dim, "flatten")
    if start < input._ragged_idx < end:
        raise RuntimeError("flatten(): not supported for NestedTensor on ragged dim")
    if start == end:
        return input
    lost = end - start if end < input._ragged_idx else 0
    return input._with(func(input._values, start - 1, end - 1), input._ragged_idx - lost)


@entry("unflatten")
def _unflatten(func: Any, input: NestedTensor, dim: int, sizes: Any) -> NestedTensor:
    at = _dim(input, dim, "unflatten")
    more = len(sizes) - 1 if at < input._ragged_idx else 0
    return input._with(func(input._values, at - 1, sizes), input._ragged_idx + more)


@entry("transpose", "swapaxes", "swapdims")
def _transpose(func: Any, input: NestedTensor, dim0: int, dim1: int) -> NestedTensor:
    a, b = wrap_dim(dim0, input.dim()), wrap_dim(dim1, input.dim())
    if a == b:
        return input
    if 0 in (a, b):
        raise ValueError("Transpose is not supported on the batch dimension for jagged NT")
    ragged = {a: b, b: a}.get(input._ragged_idx, input._ragged_idx)
    return input._with(input._values.transpose(a - 1, b - 1), ragged)


@entry("permute")
def _permute(func: Any, input: NestedTensor, *dims: Any) -> NestedTensor:
    order = list(dims[0] if len(dims) == 1 and isinstance(dims[0], list | tuple) else dims)
    if len(order) != input.dim():
        raise ValueError(
            f"permute(): number of dimensions in the tensor input ({input.dim()}) does not match the length of the "
            f"desired ordering of dimensions ({len(order)})."
        )
    order = [wrap_dim(d, input.dim()) for d in order]
    if len(set(order)) != len(order):
        raise ValueError("permute(): duplicate dims are not allowed.")
    if order[0] != 0:
        raise ValueError("Permute is not supported on the batch dimension for jagged NT")
    return input._with(input._values.permute([d - 1 for d in order[1:]]), order.index(input._ragged_idx))


@entry("unsqueeze")
def _unsqueeze(func: Any, input: NestedTensor, dim: int) -> NestedTensor:
    at = wrap_dim(dim, input.dim() + 1)
    if at == 0:
        raise RuntimeError("unsqueeze(): not supported for NestedTensor on dim=0")
    return input._with(input._values.unsqueeze(at - 1), input._ragged_idx + (at <= input._ragged_idx))


@entry("squeeze")
def _squeeze(func: Any, input: NestedTensor, dim: Any = None) -> NestedTensor:
    if not isinstance(dim, int):
        raise NotImplementedError("aten.squeeze.default: nested tensors are squeezed by one dim")
    at = _dim(input, dim, "squeeze")
    if input._size[at] != 1:
        return input
    return input._with(input._values.squeeze(at - 1), input._ragged_idx - (at < input._ragged_idx))


# --- parts


def _pieces(input: NestedTensor) -> list[Tensor]:
    """The row of each sample; one node makes all of them."""
    r, rows = input._ragged_idx, input._rows
    starts, lengths = [int(n) for n in rows.starts], [int(n) for n in rows.lengths]
    total = int(input._values.shape[r - 1])
    sizes, at = [], 0
    for start, length in zip(starts, lengths):  # what is between two rows is a piece of its own
        if start < at:
            return [input._values.narrow(r - 1, s, n) for s, n in zip(starts, lengths)]
        sizes += [start - at, length]
        at = start + length
    return list(input._values.split([*sizes, total - at], r - 1))[1::2]


@entry("unbind")
def _unbind(func: Any, input: NestedTensor, dim: int = 0) -> tuple[Tensor, ...]:
    if wrap_dim(dim, input.dim()):
        raise RuntimeError("unbind(): only supported for NestedTensor on dim=0")
    return tuple(_pieces(input))


@entry("chunk")
def _chunk(func: Any, input: NestedTensor, chunks: int, dim: int = 0) -> Any:
    at = wrap_dim(dim, input.dim())
    if at:
        return _again(tuple(func(input._values, chunks, _dim(input, dim, "chunk") - 1)), input._with)
    pieces = _pieces(input)
    step = -(-len(pieces) // chunks)
    return tuple(_of_pieces(pieces[i : i + step], input) for i in builtins.range(0, len(pieces), step))


def _of_pieces(pieces: Sequence[Tensor], like: NestedTensor) -> NestedTensor:
    r = like._ragged_idx
    offsets = torch.tensor(torn([int(p.shape[r - 1]) for p in pieces]), device=like.device).to(like._offsets.dtype)
    return made(torch.cat(list(pieces), r - 1), offsets, None, r)


@entry("split", "split_with_sizes")
def _split(func: Any, input: NestedTensor, size: Any, dim: int = 0) -> Any:
    at = _dim(input, dim, "split" if isinstance(size, int) else "split_with_sizes")
    return _again(tuple(input._values.split(size, at - 1)), input._with)


@entry("narrow")
def _narrow(func: Any, input: NestedTensor, dim: int, start: Any, length: int) -> NestedTensor:
    return input._with(input._values.narrow(_dim(input, dim, "narrow") - 1, start, length))


@entry("select")
def _select(func: Any, input: NestedTensor, dim: int, index: int) -> Any:
    at = wrap_dim(dim, input.dim())
    if at == 0:
        size = input._size[0]
        if not -size <= index < size:
            raise IndexError("tuple index out of range")
        rows, index = input._rows, index % size
        return input._values.narrow(input._ragged_idx - 1, int(rows.starts[index]), int(rows.lengths[index]))
    at = _dim(input, dim, "select")
    return input._with(input._values.select(at - 1, index), input._ragged_idx - (at < input._ragged_idx))


@entry("__getitem__")
def _getitem(func: Any, input: Any, index: Any) -> Any:
    if not isinstance(input, NestedTensor):
        raise NotImplementedError("aten.index.Tensor: a nested tensor as an index is not supported; use its values()")
    items = list(index) if isinstance(index, tuple) else [index]
    if any(isinstance(i, list | Tensor) for i in items):
        raise NotImplementedError("aten.index.Tensor: nested tensors take numbers, slices and ... as an index")
    counted = builtins.sum(i is not None and i is not Ellipsis for i in items)
    if Ellipsis in items:
        at = items.index(Ellipsis)
        items[at : at + 1] = [_ALL] * (input.dim() - counted)
    result: Any = input
    dim = 0
    for place, item in enumerate(items):
        if not isinstance(result, NestedTensor):
            return result[tuple(slice(None) if i is _ALL else i for i in items[place:])]
        if item is _ALL:
            dim += 1
        elif item is None:
            result, dim = _unsqueeze(None, result, dim), dim + 1
        elif isinstance(item, slice):
            at = _dim(result, dim, "slice")
            result, dim = result._with(result._values[(slice(None),) * (at - 1) + (item,)]), dim + 1
        else:
            result = _select(None, result, dim, int(item))
    return result


@entry("__setitem__")
def _setitem(func: Any, input: Any, index: Any, value: Any) -> None:
    part = _getitem(None, input, index)
    if isinstance(value, Tensor):
        part.copy_(value)
    else:
        part.fill_(value)


_ALL = object()  # a dim that `...` stands for


@entry("cat", "concat", "concatenate", "stack")
def _joined(func: Any, tensors: Sequence[Any], dim: int = 0) -> NestedTensor:
    name = "stack" if func.__name__ == "stack" else "cat"
    nested = next(t for t in tensors if isinstance(t, NestedTensor))
    at = wrap_dim(dim, nested.dim() + (name == "stack"))
    if at == 0:
        raise RuntimeError(f"{name}(): not supported for NestedTensor on dim=0")
    if at == nested._ragged_idx:
        raise RuntimeError(f"{name}(): not supported for NestedTensor on ragged dim")
    for t in tensors:
        if not isinstance(t, NestedTensor) or t._size[: t._ragged_idx + 1] != nested._size[: nested._ragged_idx + 1]:
            raise RuntimeError(
                f"{name}(): expected nested tensors of the same ragged size, but got shapes {nested._size} and "
                f"{tuple(t.shape)}"
            )
    ragged = nested._ragged_idx + (name == "stack" and at < nested._ragged_idx)
    return nested._with(func([t._values for t in tensors], at - 1), ragged)


@entry("masked_select")
def _masked_select(func: Any, input: Any, mask: Any) -> NestedTensor:
    both = isinstance(input, NestedTensor) and isinstance(mask, NestedTensor)
    if not both or input._size[: input._ragged_idx + 1] != mask._size[: mask._ragged_idx + 1] or input.dim() > 2:
        raise RuntimeError(
            f"Mask with shape {tuple(mask.shape)} is not compatible with input's shape {tuple(input.shape)}"
        )
    marks = mask._values.detach().cpu()._array
    rows, _ = input._rows.places(len(marks))
    counts = np.bincount(rows[marks], minlength=len(input))
    offsets = torch.tensor(torn([int(n) for n in counts]), device=input.device)
    return made(input._values[mask._values], offsets, None, 1)


# --- networks


def _plain_rows(input: NestedTensor, name: str, schema: str) -> NestedTensor:
    if input._lengths is not None or not input.is_contiguous() or input._ragged_idx != 1:
        raise ValueError(f"NestedTensor {name}({schema}): expected input to be a contiguous jagged layout NestedTensor")
    return input


@entry("linear")
def _linear(func: Any, input: Any, weight: Tensor, bias: Any = None) -> NestedTensor:
    if not isinstance(input, NestedTensor):
        raise ValueError("NestedTensor linear_default(input: jt, weight: t, bias: t?): expected weight to be a Tensor")
    _plain_rows(input, "linear_default", "input: jt, weight: t, bias: t?")
    if input.dim() < 3:
        raise RuntimeError(f"linear(): the ragged dim of a nested tensor {input._size} cannot be multiplied")
    return input._with(func(input._values, weight, bias))


@entry("embedding", "embedding_rows")
def _embedding(func: Any, input: Any, weight: Any, *args: Any, **kwargs: Any) -> NestedTensor:
    if func.__name__ == "embedding" and not isinstance(input, NestedTensor):
        input, weight = weight, input  # torch.embedding(weight, indices)
        return input._with(func(weight, input._values, *args, **kwargs))  # type: ignore[no-any-return]
    return input._with(func(input._values, weight, *args, **kwargs))  # type: ignore[no-any-return]


@entry("layer_norm")
def _layer_norm(func: Any, input: NestedTensor, normalized_shape: Any, *args: Any, **kwargs: Any) -> NestedTensor:
    if any(isinstance(n, NestedInt) for n in normalized_shape):
        raise NotImplementedError("layer_norm(): normalization over the ragged dim is not supported")
    return input._with(func(input._values, normalized_shape, *args, **kwargs))


@entry("rms_norm")
def _rms_norm(func: Any, input: NestedTensor, normalized_shape: Any, *args: Any, **kwargs: Any) -> NestedTensor:
    if len(normalized_shape) > input.dim() - input._ragged_idx - 1:
        raise ValueError("rms_norm(): Normalization over the ragged dim not supported for nested tensors")
    return input._with(func(input._values, normalized_shape, *args, **kwargs))


@entry("matmul", "bmm", "__rmatmul__")
def _matmul(func: Any, input: Any, other: Any, **options: Any) -> Any:
    if func.__name__ == "__rmatmul__":
        input, other = other, input
    if isinstance(input, NestedTensor) and not isinstance(other, NestedTensor):
        if input._ragged_idx == input.dim() - 1:
            raise _no_product(input, other)
        if other.dim() <= 2:
            return input._with(torch.matmul(input._values, other))
        if input._lengths is None and other.dim() == input.dim():
            product = torch.matmul(padded(input, 0), other)
            return input._with(gathered(input, product))
    elif isinstance(input, NestedTensor) and input.dim() == other.dim() == 3:
        shared = input._ragged_idx == 2 and input._size[2] == other._size[1]
        if shared:  # the sum over the ragged dim: dense
            return torch.matmul(padded(input, 0), padded(other, 0))
    elif (
        not isinstance(input, NestedTensor) and other._ragged_idx == other.dim() - 1 and other._lengths is None
    ):  # each column alone
        if input.dim() == 2:
            return other._with(torch.matmul(input, other._values))
        if input.dim() == other.dim():
            return other._with(gathered(other, torch.matmul(input, padded(other, 0))))
    raise _no_product(input, other)


def _no_product(a: Any, b: Any) -> RuntimeError:
    first = a._size if isinstance(a, NestedTensor) else Size(a.shape)
    return RuntimeError(f"matmul(): not supported between inputs of shapes {first} and {b.shape}")


@entry("softmax", "log_softmax", "special_softmax")
def _softmax(func: Any, input: NestedTensor, dim: Any = None, *args: Any, **kwargs: Any) -> NestedTensor:
    name = "log_softmax" if func.__name__ == "log_softmax" else "softmax"
    at = wrap_dim(dim, input.dim())
    if at == 0:
        raise RuntimeError(f"{name}(): not supported when reducing across the batch dimension for NestedTensor")
    if at != input._ragged_idx:
        return input._with(func(input._values, *args, dim=at - 1, **kwargs))
    if name == "log_softmax":
        raise RuntimeError("log_softmax(): not supported when reducing along the ragged dimension for NestedTensor")
    if at > 1:
        raise RuntimeError(
            "softmax(): not supported when reducing along the ragged dimension for ragged_idx > 1 for NestedTensor"
        )
    if input._lengths is not None:
        raise RuntimeError("softmax(): not supported where lengths is not None")
    wide = func(padded(input, float("-inf")), *args, dim=at, **kwargs)
    return input._with(gathered(input, wide))


# --- reductions


def _extreme(largest: bool) -> Callable[[Any], Any]:
    """Return a function that gives for a dtype the identity of max (min): no value is smaller (larger)."""

    def of(dtype: Any) -> Any:
        if dtype is dtypes.bool:
            return not largest
        if dtype.is_floating_point:
            return float("-inf") if largest else float("inf")
        info = dtypes.iinfo(dtype)
        return info.min if largest else info.max

    return of


_NEUTRAL: dict[str, Any] = {
    function.__name__: neutral
    for function, neutral in {
        torch.sum: lambda dtype: 0,
        torch.mean: lambda dtype: 0,
        torch.prod: lambda dtype: 1,
        torch.any: lambda dtype: False,
        torch.all: lambda dtype: True,
        **dict.fromkeys((torch.max, torch.amax, torch.argmax), _extreme(True)),
        **dict.fromkeys((torch.min, torch.amin, torch.argmin), _extreme(False)),
    }.items()
}


@entry(*_NEUTRAL)
def _reduced(func: Any, input: Any, dim: Any = None, keepdim: bool = False, **more: Any) -> Any:
    """A sum, mean, ... of nested tensors: over everything, inside of the rows, or over each row."""
    name = func.__name__
    if isinstance(dim, Tensor):  # max(a, b)
        return _pointwise(func, (input, dim), more)
    if dim is None or dim == () or dim == []:
        rows = _packed(input) if input._lengths is not None else input._values
        return func(rows, **more)
    several = isinstance(dim, list | tuple)
    dims = [wrap_dim(d, input.dim()) for d in (dim if several else [dim])]
    r = input._ragged_idx
    batch, ragged, others = 0 in dims, r in dims, any(d not in (0, r) for d in dims)
    within = list(dict.fromkeys(r - 1 if d == 0 else d - 1 for d in dims))
    if ragged and input._lengths is not None:
        raise RuntimeError(
            f"{name}(): reducing across the ragged dimension is not supported for non-contiguous nested tensors with "
            "holes"
        )
    if batch and not ragged:
        raise RuntimeError(
            f"{name}(): reducing along the batch dimension but not the ragged dimension is not supported for nested "
            "tensors"
        )
    if ragged and batch:
        found = func(input._values, within if several else within[0], keepdim, **more)
        return _again(found, lambda o: o.unsqueeze(0)) if keepdim else found
    if ragged:
        if others and name == "mean":
            raise AssertionError("Cannot reduce on both ragged and non-batch dimensions without also reducing on batch")
        if others:
            raise RuntimeError(
                f"{name}(): reducing along a ragged and non-batch dimension is not supported for nested tensors"
            )
        if name == "mean":
            return _row_means(input, keepdim, **more)
        return func(padded(input, _NEUTRAL[name](input.dtype)), [r] if several else r, keepdim, **more)
    found = func(input._values, within if several else within[0], keepdim, **more)
    lost = 0 if keepdim else builtins.sum(d < r - 1 for d in within)
    return _again(found, lambda o: input._with(o, r - lost))


def _packed(input: NestedTensor) -> Tensor:
    return torch.cat(_pieces(input), input._ragged_idx - 1)


def _row_means(input: NestedTensor, keepdim: bool, dtype: Any = None) -> Tensor:
    r = input._ragged_idx
    total = torch.sum(padded(input, 0), r, keepdim=keepdim, dtype=dtype)
    if not total.is_floating_point() and not total.is_complex():
        raise RuntimeError(
            "mean(): could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: "
            f"{str(input.dtype).removeprefix('torch.').capitalize()}"
        )
    counts = _index(input, input._rows.lengths).to(total.dtype)
    return total / counts.reshape([-1] + [1] * (total.dim() - 1))


@entry("is_same_size")
def _is_same_size(func: Any, input: Tensor, other: Tensor) -> bool:
    return tuple(input.shape) == tuple(other.shape)


registered.call = call
registered.padded = padded
