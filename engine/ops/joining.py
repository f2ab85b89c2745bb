"""Joining and splitting: `cat`, `stack`, `split`, `chunk`, `unbind` and what is made of them."""

from __future__ import annotations

import builtins
import itertools
import operator
from typing import Any

import numpy as np

from engine.autograd.graph import name_node, requires_grad_of
from engine.autograd.versions import guard
from engine.backends.cpu import relayout
from engine.backends.cpu.relayout import in_torch_order, to_channels_last
from engine.core import dtypes
from engine.core.checks import size_of, wrap_dim
from engine.core.grad_mode import mode
from engine.core.layouts import ChannelsLast, channels_last, channels_last_3d, empty_in_format, is_in_format
from engine.dispatch import composite, derivative, op, samples
from engine.dispatch.arguments import check_elements
from engine.ops.copying import converted, zeros_like_array
from engine.ops.shape import PREFIX, basic_index, expand, narrow, reshape_to, unsqueeze, view_size
from engine.tensor import Tensor, wrap

# --- joining

_LARGE = 1 << 14  # elements of the largest array from which a join may be shared among threads


@op(promote="default", names=("concat", "concatenate"), channels_last=True, generated="many", out_as="disjoint")
@derivative(
    tensors=lambda grad, tensors_shape, tensors_dtype, dim: cat_backward(grad, tensors_shape, tensors_dtype, dim)
)
@samples(
    lambda t: [
        ([t(2, 3), t(4, 3)],),
        ([t(2, 1), t(2, 2), t(2, 1)], 1),
        ([t(2), t(0), t(1)], -1),
        ([t(2, 3)],),
    ]
)
def cat(xp, tensors, dim: int = 0):
    """Tensors one after the other along `dim`.  tensors (*, n, *), (*, m, *) ... -> (*, n + m + ..., *).

    Empty 1-d tensors are passed over, as torch does.
    """
    kept = [a for a in tensors if a.shape != (0,)] or tensors[:1]
    first = kept[0]
    for i, a in enumerate(tensors):
        if not a.ndim:
            raise RuntimeError(f"zero-dimensional tensor (at position {i}) cannot be concatenated")
    dim = wrap_dim(dim, first.ndim)
    try:
        return joined(xp, kept, dim)
    except ValueError:
        for i, a in enumerate(tensors):
            if a.shape == (0,):
                continue
            if a.ndim != first.ndim:
                raise RuntimeError(
                    f"Tensors must have same number of dimensions: got {first.ndim} and {a.ndim}"
                ) from None
            for d, (n, m) in enumerate(zip(first.shape, a.shape)):
                if n != m and d != dim:
                    raise RuntimeError(
                        f"Sizes of tensors must match except in dimension {dim}. Expected size {n} but got size {m} "
                        f"for tensor number {i} in the list."
                    ) from None
        raise


def joined(xp, arrays, dim):
    """xp.concatenate, row-major as torch's unless all arrays are channels-last."""
    first = arrays[0]
    if max([a.size for a in arrays]) >= _LARGE and all([a.__class__ is np.ndarray for a in arrays]):
        made = relayout.joined(arrays, dim)
        if made is not NotImplemented:
            return made
    for a in arrays:
        if not a.flags.c_contiguous:
            break
    else:
        return xp.concatenate(arrays, axis=dim)
    if any(type(a) is ChannelsLast for a in arrays):
        if all(type(a) is ChannelsLast or a.flags.c_contiguous for a in arrays):
            return xp.concatenate([to_channels_last(a) for a in arrays], axis=dim)
        arrays = [in_torch_order(a) for a in arrays]
    wanted = {4: channels_last, 5: channels_last_3d}.get(first.ndim)
    if wanted is None or not all(is_in_format(a, wanted) for a in arrays):
        wanted = None
    shape = list(first.shape)
    shape[dim] = builtins.sum(a.shape[dim] for a in arrays)
    result = empty_in_format(xp, shape, first.dtype, wanted)
    xp.concatenate(arrays, axis=dim, out=result)
    return result


@op(public=False, method=False, out=False, channels_last=True)
@samples(lambda t: [(t.constant(t(3, 4)), 1, 1, 2), (t.constant(t(2, 3, 4)), 0, 0, 1)])
def cut(xp, input, dim, start, length):
    """A copy of a part of `input` along `dim`, without gradient.  input (*, n, *) -> (*, length, *)."""
    piece = input[(*(slice(None),) * dim, slice(start, start + length))]
    return to_channels_last(piece.view(np.ndarray)) if type(input) is ChannelsLast else piece.copy()


def cat_backward(grad, shapes, types, dim):
    """The pieces of a gradient of `cat`."""
    dim = wrap_dim(dim, len(next((s for s in shapes if s != (0,)), (0,))))
    pieces, start = [], 0
    if not mode.enabled and grad._channels_last is None and types.count(grad.dtype) == len(types):
        array, head = grad._array, PREFIX[dim]
        for shape in shapes:  # where nothing is recorded, a view needs no call of an op
            length = 0 if shape == (0,) else shape[dim]
            if shape != (0,):
                pieces.append(wrap(array[(*head, slice(start, start + length))]))
            else:
                pieces.append(wrap(array[(0,) * (array.ndim - 1) + (slice(0, 0), ...)]) if array.size else None)
            start += length
        return pieces
    for shape, dtype in zip(shapes, types):
        if shape == (0,):
            piece = basic_index(grad, (0,) * (grad.dim() - 1) + (slice(0, 0), ...)) if grad.numel() else None
        else:
            # a view would convert the whole gradient back; a copied part keeps the order of what it goes to
            part = narrow if mode.enabled or grad._channels_last is None else cut
            piece = part(grad, dim, start, shape[dim])
            start += shape[dim]
        if piece is not None and dtype is not piece.dtype:
            if piece.is_complex() and not dtype.is_complex:
                piece = piece.real
            piece = converted(piece, dtype)
        pieces.append(piece)
    return pieces


def _not_empty(name: str, tensors: Any, sentence: str) -> Any:
    if not isinstance(tensors, list | tuple) or not tensors:
        if isinstance(tensors, list | tuple):
            raise RuntimeError(sentence)
        raise TypeError(
            f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not {type(tensors).__name__}"
        )
    check_elements(tensors)
    return tensors


@op(promote="default", form="stack", node="StackBackward0", generated="many")
@derivative(tensors=lambda grad, tensors_dtype, dim: stack_backward(grad, tensors_dtype, dim))
@samples(lambda t: [([t(2, 3), t(2, 3)],), ([t(2), t(2), t(2)], -1), ([t(), t()], 0)])
def stack_tensors(xp, tensors, dim: int = 0):
    """Tensors of one shape along a new dim.  tensors (*), (*) ... -> (*, count, *)."""
    shape = tensors[0].shape
    dim = wrap_dim(dim, len(shape) + 1)
    for i, a in enumerate(tensors):
        if a.shape != shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(shape)} at entry 0 and {list(a.shape)} at "
                f"entry {i}"
            )
    at = (*PREFIX[dim], None, ...)
    return joined(xp, [a[at] for a in tensors], dim)


def stack_backward(grad, types, dim):
    """The pieces of a gradient of `stack`."""
    if mode.enabled and requires_grad_of(grad):  # each is a view of its own, as torch has it
        pieces = [grad.select(dim, i) for i in range(len(types))]
    else:
        pieces = unbind(grad, dim)
    return [
        p if d is p.dtype else converted(p.real if p.is_complex() and not d.is_complex else p, d)
        for p, d in zip(pieces, types)
    ]


@composite(method=False)
def stack(tensors, dim: int = 0, *, out=None):
    """Tensors of one shape along a new dim.  tensors (*), (*) ... -> (*, count, *)."""
    _not_empty("stack", tensors, "stack expects a non-empty TensorList")
    return stack_tensors(tensors, dim) if out is None else stack_tensors(tensors, dim, out=out)


def _grown(x: Tensor, n: int) -> Tensor:
    ndim = x._array.ndim
    if ndim >= n:
        return x
    if ndim == 0:
        return reshape_to(x, (1,) * n)
    if ndim == 1:
        x = unsqueeze(x, 0)
        return x if n == 2 else unsqueeze(x, -1)
    return unsqueeze(x, -1)


def _at_least(n: int, tensors: tuple) -> Any:
    """One tensor, or a tuple of several (or of one sequence), grown to n dims."""
    if len(tensors) == 1:
        if not isinstance(tensors[0], list | tuple):
            return _grown(tensors[0], n)
        tensors = tensors[0]
    return tuple(_grown(x, n) for x in tensors)


@composite(method=False)
def atleast_1d(*tensors: Any) -> Any:
    """Tensors with at least 1 dim; those that have them as they are.  (*), ... -> (*), ..."""
    return _at_least(1, tensors)


@composite(method=False)
def atleast_2d(*tensors: Any) -> Any:
    """Tensors with at least 2 dims; those that have them as they are.  (*), ... -> (*), ..."""
    return _at_least(2, tensors)


@composite(method=False)
def atleast_3d(*tensors: Any) -> Any:
    """Tensors with at least 3 dims; those that have them as they are.  (*), ... -> (*), ..."""
    return _at_least(3, tensors)


@composite(method=False)
def hstack(tensors, *, out=None):
    """Tensors joined along dim 1 (dim 0 for vectors).  -> joined."""
    _not_empty("hstack", tensors, "hstack expects a non-empty TensorList")
    grown = [_grown(x, 1) for x in tensors]
    return cat(grown, 0 if grown[0]._array.ndim == 1 else 1, out=out)


@composite(method=False, names=("row_stack",))
def vstack(tensors, *, out=None):
    """Tensors joined along dim 0, vectors as rows.  -> joined."""
    _not_empty("vstack", tensors, "vstack expects a non-empty TensorList")
    return cat([_grown(x, 2) for x in tensors], 0, out=out)


@composite(method=False)
def dstack(tensors, *, out=None):
    """Tensors joined along dim 2.  -> joined."""
    _not_empty("dstack", tensors, "dstack expects a non-empty TensorList")
    return cat([_grown(x, 3) for x in tensors], 2, out=out)


@composite(method=False)
def column_stack(tensors, *, out=None):
    """Vectors as columns, matrices beside each other.  -> joined."""
    _not_empty("column_stack", tensors, "column_stack expects a non-empty TensorList")
    grown = [reshape_to(x, (x._array.size, 1)) if x._array.ndim <= 1 else x for x in tensors]
    return cat(grown, 1, out=out)


@composite(method=False)
def block_diag(*tensors):
    """Matrices along the diagonal of one.  (n1, m1), (n2, m2) ... -> (n1 + n2 + ..., m1 + m2 + ...)."""
    from engine.ops.creation import zeros

    if not tensors:
        return zeros(1, 0)
    for i, x in enumerate(tensors):
        if x._array.ndim > 2:
            raise RuntimeError(
                f"torch.block_diag: Input tensors must have 2 or fewer dimensions. Input {i} has {x._array.ndim} "
                "dimensions"
            )
    blocks = [_grown(x, 2) for x in tensors]
    dtype = blocks[0].dtype
    for x in blocks[1:]:
        dtype = dtypes.promote_types(dtype, x.dtype)
    width = builtins.sum(x._array.shape[1] for x in blocks)
    rows, start = [], 0
    for x in blocks:
        n, m = x._array.shape
        left = zeros(n, start, dtype=dtype, device=x.device)
        right = zeros(n, width - start - m, dtype=dtype, device=x.device)
        rows.append(cat([left, converted(x, dtype), right], 1))
        start += m
    return name_node(cat(rows, 0), "BlockDiagBackward0")


@composite(method=False)
def meshgrid(*tensors, indexing=None) -> tuple[Tensor, ...]:
    """Grids of coordinates: vectors expanded against each other.

    (n), (m) -> (n, m), (n, m); (m, n) for indexing="xy".
    """
    if len(tensors) == 1 and isinstance(tensors[0], list | tuple):
        tensors = tuple(tensors[0])
    if not tensors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    if indexing is None:
        import warnings

        warnings.warn(
            "torch.meshgrid: in an upcoming release, it will be required to pass the indexing argument.",
            stacklevel=2,
        )
        indexing = "ij"
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    check_elements(tensors)
    for x in tensors:
        if x._array.ndim > 1:
            raise RuntimeError(f"torch.meshgrid: Expected 0D or 1D tensor in the tensor list but got: {_shown(x)}")
        if x.dtype is not tensors[0].dtype:
            raise RuntimeError("meshgrid expects all tensors to have the same dtype")
        if x.device != tensors[0].device:
            raise RuntimeError("meshgrid expects all tensors to have the same device")
    swap = indexing == "xy" and len(tensors) >= 2
    given = [tensors[1], tensors[0], *tensors[2:]] if swap else list(tensors)
    shape = tuple(x._array.size for x in given)
    grids = []
    for i, x in enumerate(given):
        grids.append(expand(view_size(x, (1,) * i + (-1,) + (1,) * (len(given) - i - 1)), shape))
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


def _shown(x: Tensor) -> str:
    return repr(x.detach())


@composite(method=False)
def cartesian_prod(*tensors):
    """All combinations of the elements of vectors, one per row.  (n), (m) ... -> (n * m * ..., count)."""
    if len(tensors) == 1 and isinstance(tensors[0], list | tuple):
        tensors = tuple(tensors[0])
    for x in tensors:
        if x._array.ndim != 1:
            raise RuntimeError(f"Expect a 1D vector, but got shape {list(x._array.shape)}")
    if len(tensors) == 1:
        return tensors[0]
    return stack([reshape_to(g, (g._array.size,)) for g in meshgrid(*tensors, indexing="ij")], 1)


@composite(method=False)
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False):
    """Combinations of r elements of a vector, in order, one per row.  input (n) -> (count, r)."""
    import itertools

    if input._array.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input._array.shape)}")
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return input.new_empty(0)
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = np.array(list(choose(range(input._array.size), r)), np.int64).reshape(-1, r)
    from engine.ops.copying import move_array

    result = name_node(input[wrap(move_array(rows, input.device))], "StackBackward0")
    return guard(result, input)  # torch selects by a mask


Tensor.combinations = combinations


# --- splitting


def pieces(array, sizes, dim):
    head, start, result = PREFIX[dim], 0, []
    for n in sizes:
        result.append(array[(*head, slice(start, start + n), ...)])
        start += n
    return result


def split_backward(grads, shape, sizes, dim):
    """Gradients of the pieces joined; zeros for pieces without one."""
    dim = wrap_dim(dim, len(shape))
    given = next(g for g in grads if g is not None)
    if not shape[dim]:
        return given.new_zeros(shape)
    parts = []
    for g, n in zip(grads, sizes):
        if g is None:
            g = given.new_zeros((*shape[:dim], n, *shape[dim + 1 :]))
        parts.append(g)
    return cat(parts, dim)


def check_lengths(n, split_sizes, dim):
    """torch's conditions on the lengths of the pieces of a dim of size n."""
    for s in split_sizes:
        if s < 0:
            raise RuntimeError(
                "split_with_sizes expects split_sizes have only non-negative entries, but got "
                f"split_sizes={list(split_sizes)}"
            )
    if builtins.sum(split_sizes) != n:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {n} (input tensor's size at dimension {dim}), "
            f"but got split_sizes={list(split_sizes)}"
        )


@op(view=True, returns="many")
@derivative(input=lambda grads, input_shape, split_sizes, dim: split_backward(grads, input_shape, split_sizes, dim))
@samples(lambda t: [(t(5, 2), [2, 3]), (t(2, 4), [1, 0, 3], 1)])
def split_with_sizes(xp, input, split_sizes: tuple[int, ...], dim: int = 0):
    """Views of the given sizes along `dim`.  input (*, n, *) -> (*, size1, *), (*, size2, *) ..."""
    if not input.ndim:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    dim = wrap_dim(dim, input.ndim)
    check_lengths(input.shape[dim], split_sizes, dim)
    return pieces(input, split_sizes, dim)


@op(view=True, returns="many", public=False, method=False, node="SplitBackward0")
@derivative(
    input=lambda grads, input_shape, split_size, dim: split_backward(
        grads, input_shape, split_lengths(input_shape, split_size, dim), dim
    )
)
@samples(lambda t: [(t(5, 2), 2), (t(2, 4), 2, 1)])
def split_every(xp, input, split_size, dim=0):
    """Views of one size along `dim`, the last one smaller if need be.  input (*, n, *) -> (*, size, *) ..."""
    return pieces(input, split_lengths(input.shape, split_size, dim), wrap_dim(dim, input.ndim))


def split_lengths(shape, size, dim):
    """The lengths of the pieces of a dim split every `size`."""
    if not shape:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    n = shape[wrap_dim(dim, len(shape))]
    if size < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={size}")
    if size == 0:
        if n:
            raise RuntimeError(f"split_size can only be 0 if dimension size is 0, but got dimension size of {n}")
        return [0]
    count = builtins.max((n + size - 1) // size, 1)
    return [size] * (count - 1) + [n - size * (count - 1)]


def split(input, split_size_or_sections, dim=0) -> tuple[Tensor, ...]:
    """Views along `dim`: of one size, or of the given sizes.  input (*, n, *) -> (*, size, *) ..."""
    if isinstance(split_size_or_sections, list | tuple):
        return split_with_sizes(input, size_of(split_size_or_sections), dim)
    try:
        size = operator.index(split_size_or_sections)
    except TypeError:
        raise TypeError(
            "split_with_sizes(): argument 'split_sizes' (position 2) must be tuple of ints, not "
            + type(split_size_or_sections).__name__
        ) from None
    return split_every(input, size, dim)


def _split(tensor, split_size_or_sections, dim=0) -> tuple[Tensor, ...]:
    return split(tensor, split_size_or_sections, dim)


_split.__name__, _split.__doc__ = "split", split.__doc__
composite(method=False)(_split)


def _split_method(self, split_size, dim=0):
    return split(self, split_size, dim)


_split_method.__name__, _split_method.__doc__ = "split", split.__doc__
Tensor.split = _split_method


def chunk_size(shape, chunks, dim):
    """The size of the pieces that make at most `chunks` of a dim."""
    if not shape:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    return (shape[wrap_dim(dim, len(shape))] + chunks - 1) // chunks


@composite(recorded="size")
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` views of equal size along `dim`.  input (*, n, *) -> (*, size, *) ..."""
    size = chunk_size(input._array.shape, chunks, dim)
    if not size:
        return split_with_sizes(input, [0] * chunks, dim)
    return split_every(input, size, dim)


@op(view=True, returns="many")
@derivative(input=lambda grads, input_shape, dim: unbind_backward(grads, input_shape, dim))
@samples(lambda t: [(t(3, 2),), (t(2, 3), 1)])
def unbind(xp, input, dim: int = 0):
    """All slices along `dim`, as views.  input (*, n, *) -> n of (*, *)."""
    if not input.ndim:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    dim = wrap_dim(dim, input.ndim)
    head = PREFIX[dim]
    return [input[(*head, i, ...)] for i in range(input.shape[dim])]


def unbind_backward(grads, shape, dim):
    """Gradients of the slices stacked; zeros for slices without one."""
    given = next(g for g in grads if g is not None)
    return stack_tensors([zeros_like_array(given) if g is None else g for g in grads], wrap_dim(dim, len(shape)))


def _cuts(name: str, given: Any, indices: Any, sections: Any) -> Any:
    """The one of three names for where to split that was used."""
    found = [x for x in (given, indices, sections) if x is not None]
    if len(found) != 1:
        raise TypeError(f"{name}() takes one of indices and sections, but {len(found)} were given")
    return found[0]


@composite(recorded="size")
def tensor_split(
    input: Tensor,
    indices_or_sections: Tensor | int | tuple[int, ...] | None = None,
    dim: int = 0,
    *,
    indices: tuple[int, ...] | None = None,
    sections: int | None = None,
) -> tuple[Tensor, ...]:
    """Views along `dim`: a number of them of nearly equal size, or cut at the given indices.

    input (*, n, *) -> (*, size, *) ...
    """
    indices_or_sections = _cuts("tensor_split", indices_or_sections, indices, sections)
    shape = input._array.shape
    if not shape:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    dim = wrap_dim(dim, len(shape))
    n = shape[dim]
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, int):
        sections = indices_or_sections
        if sections <= 0:
            raise RuntimeError(f"number of sections must be larger than 0, got {sections}")
        small, extra = divmod(n, sections)
        cuts, at = [], 0
        for i in range(sections - 1):
            at += small + (i < extra)
            cuts.append(at)
    else:
        cuts = [operator.index(i) for i in indices_or_sections]
    head = PREFIX[dim]
    bounds = [0, *cuts, n]
    return tuple(
        basic_index(input, (*head, slice(a, b if i < len(cuts) else n), ...))
        for i, (a, b) in enumerate(itertools.pairwise(bounds))
    )


def _split_along(name: str, input: Tensor, indices_or_sections: Any, least: int, dim: int) -> Any:
    """`tensor_split` with the checks of hsplit, vsplit and dsplit; hsplit of a vector is along dim 0."""
    ndim = input._array.ndim
    if ndim < least:
        raise RuntimeError(
            f"torch.{name} requires a tensor with at least {least} dimension, but got a tensor with {ndim} dimensions!"
        )
    along = builtins.min(dim, ndim - 1)
    n = input._array.shape[along]
    if isinstance(indices_or_sections, int) and (indices_or_sections <= 0 or n % indices_or_sections):
        raise RuntimeError(
            f"torch.{name} attempted to split along dimension {along}, but the size of the dimension {n} is not "
            f"divisible by the split_size {indices_or_sections}!"
        )
    return tensor_split(input, indices_or_sections, along)


@composite(method=True)
def hsplit(
    input: Tensor, indices_or_sections=None, *, indices: tuple[int, ...] | None = None, sections: int | None = None
) -> tuple[Tensor, ...]:
    """`tensor_split` along dim 1 (dim 0 of a vector).  input (*) -> (*) ..."""
    cuts = _cuts("hsplit", indices_or_sections, indices, sections)
    return _split_along("hsplit", input, cuts, 1, 1)


@composite(method=True)
def vsplit(
    input: Tensor, indices_or_sections=None, *, indices: tuple[int, ...] | None = None, sections: int | None = None
) -> tuple[Tensor, ...]:
    """`tensor_split` along dim 0.  input (*) -> (*) ..."""
    cuts = _cuts("vsplit", indices_or_sections, indices, sections)
    return _split_along("vsplit", input, cuts, 2, 0)


@composite(method=True)
def dsplit(
    input: Tensor, indices_or_sections=None, *, indices: tuple[int, ...] | None = None, sections: int | None = None
) -> tuple[Tensor, ...]:
    """`tensor_split` along dim 2.  input (*) -> (*) ..."""
    cuts = _cuts("dsplit", indices_or_sections, indices, sections)
    return _split_along("dsplit", input, cuts, 3, 2)
