"""Views: the same memory under other sizes and strides.

Note [View kernels]
A view's kernel gives a fresh array object over the same memory, and depends on nothing but the shape and strides of
`input`, so that replaying it on another tensor laid out as the base gives the same view (Note [Views and in-place] in
graph.py).  numpy answers an integer index with a scalar: every index tuple here ends in an Ellipsis.
"""

from __future__ import annotations

import builtins
import operator
import warnings
from typing import Any

import numpy as np

from engine.autograd.graph import name_node
from engine.backends.cpu import relayout
from engine.backends.cpu.relayout import in_c_order
from engine.core import dtypes
from engine.core.checks import infer_size, numel, size_of, wrap_dim, wrap_dims
from engine.core.layouts import restride, view_strides
from engine.core.storage import follow_both, following
from engine.core.tensor_messages import read_only
from engine.dispatch import array_derivative, composite, derivative, has, moving, op, samples
from engine.dispatch.arguments import all_ints, argument_error, by_name, sizes_of
from engine.dispatch.out import store
from engine.dispatch.runtime import MISSING
from engine.ops.parts import add_indexed, add_item, add_selected, at_place
from engine.tensor import Size, Tensor, wrap

_ALL = slice(None)
PREFIX = [(_ALL,) * n for n in range(65)]  # PREFIX[d]: full slices before dim d


# --- sizes


@moving
def _reshaped(grad: Any, input_shape: Any) -> Any:
    """The elements of an array under other sizes: a view where the strides allow one."""
    if grad.flags.c_contiguous or view_strides(grad.shape, grad.strides, input_shape) is not None:
        return grad.reshape(input_shape)
    return in_c_order(grad).reshape(input_shape)


@op(view=True, form="view", node="ViewBackward0", several=((1, 1), (1, 1)))
@derivative(input=lambda grad, input_shape: grad.reshape(input_shape))
@array_derivative(input=_reshaped)
@samples(lambda t: [(t(3, 4), (2, 6)), (t(3, 4), (-1,)), (t(), (1, 1)), (t(0, 2), (2, 0))])
def view_size(xp, input, size: tuple[int, ...]):
    """The same elements under other sizes, without copying.  input (*) -> (*size).

    RuntimeError when the strides do not allow it; `reshape` copies then.
    """
    if input.flags.c_contiguous:
        try:
            result = input.reshape(size)
            if result.shape != size and -1 not in size:
                infer_size(size, input.size)  # numpy takes any negative size for -1
            return result
        except ValueError:
            infer_size(size, input.size)
            raise
    size = infer_size(size, input.size)
    if view_strides(input.shape, input.strides, size) is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
            "contiguous subspaces). Use .reshape(...) instead."
        )
    return input.reshape(size)


def _as_dtype(input, dtype):
    """The bytes of an array read as another dtype."""
    target = dtypes.to_numpy(dtype)
    old, new = input.dtype.itemsize, target.itemsize
    if old == new:
        return input.view(target)
    names = f"{dtypes.scalar_name(dtypes.from_numpy(input.dtype))} as {dtypes.scalar_name(dtype)}"
    reason = f"to view {names} (different element sizes)"
    if not input.ndim:
        raise RuntimeError(f"self.dim() cannot be 0 {reason}")
    ratio = new // old
    if new > old and input.shape[-1] % ratio:
        raise RuntimeError(f"self.size(-1) must be divisible by {ratio} {reason}, but got {input.shape[-1]}")
    if input.size and input.strides[-1] != old:
        raise RuntimeError(f"self.stride(-1) must be 1 {reason}, but got {input.strides[-1] // old}")
    for d in range(input.ndim - 1 if new > old else 0):
        if input.shape[d] > 1 and input.strides[d] % new:
            raise RuntimeError(
                f"self.stride({d}) must be divisible by {ratio} {reason}, but got {input.strides[d] // old}"
            )
    return input.view(target)


@has(recorded="size")
def view(input: Tensor, *size: Any, dtype: Any = None, **more: Any) -> Tensor:
    """The same elements under other sizes, or the same bytes as another dtype, without copying.

    input (*) -> (*size).  RuntimeError when the strides do not allow it; `reshape` copies then.
    """
    if size and not more:
        if size[0].__class__ is int:
            return view_size(input, size if all_ints(size) else sizes_of("view", "size", size))
        if size[0].__class__ is dtypes.dtype or size[0].__class__ is type:
            dtype = size[0]
    if dtype is not None:
        return _view_as_dtype(input, dtypes.of_type(dtype))
    size = size or (by_name("view", "size", more),)
    return view_size(input, sizes_of("view", "size", size))


def _view_as_dtype(input, dtype):
    if dtype is input.dtype:
        return view_size(input, input._array.shape)
    result = wrap(_as_dtype(input._array, dtype))
    result._vc = input._vc
    if following.on:
        follow_both(result, input)
    return result


Tensor.view = view


@op(public=False, method=False, node="UnsafeViewBackward0", out_as="graph", generated="one")
@derivative(input=lambda grad, input_shape: grad.reshape(input_shape))
@array_derivative(input=_reshaped)
@samples(lambda t: [(t(3, 4), (2, 6))])
def reshape_copy(xp, input, shape):
    """A copy under other sizes.  input (*) -> (*shape)."""
    return in_c_order(input).reshape(shape)


def reshape_to(input: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`input` under other sizes: a view where the strides allow one, else a copy."""
    array = input._array
    if not array.flags.c_contiguous:
        shape = infer_size(shape, array.size)
        if view_strides(array.shape, array.strides, shape) is None:
            return reshape_copy(input, shape)
        return name_node(view_size(input, shape), "ReshapeAliasBackward0")
    return view_size(input, shape)


@composite(method=True, recorded="size")
def reshape(input: Tensor, *shape, **more):
    """The same elements under other sizes: a view where the strides allow one, else a copy.  input (*) -> (*shape)."""
    if not isinstance(input, Tensor):
        raise argument_error("reshape", 1, "input", "Tensor", input)
    if shape and shape[0].__class__ is int and all_ints(shape):
        return reshape_to(input, shape)
    shape = shape or (by_name("reshape", "shape", more),)
    return reshape_to(input, sizes_of("reshape", "shape", shape))


@composite(recorded="size")
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1):
    """Dims start_dim to end_dim made one.  input (*) -> (*, product, *).

    A view where possible; `input` if nothing is to do.
    """
    shape = input._array.shape
    if end_dim == -1 and 0 <= start_dim < len(shape) - 1:
        return reshape_to(input, (*shape[:start_dim], numel(shape[start_dim:])))
    start, end = wrap_dim(start_dim, len(shape)), wrap_dim(end_dim, len(shape))
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if not shape:
        return reshape_to(input, (1,))
    if start == end:
        return input
    return reshape_to(input, (*shape[:start], numel(shape[start : end + 1]), *shape[end + 1 :]))


@composite()
def ravel(input: Tensor):
    """All elements in one dim, of `input` where it is contiguous, else of a copy.  input (*) -> (n)."""
    return input.contiguous().view(-1)


@composite(recorded="size")
def unflatten(input: Tensor, dim: int, sizes: tuple[int, ...]):
    """One dim split into several.  input (*, n, *) -> (*, *sizes, *)."""
    shape = input._array.shape
    dim = wrap_dim(dim, len(shape))
    sizes = size_of(sizes)
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    if not shape:
        raise RuntimeError(
            f"unflatten got an unexpected error:\nDimension specified as {dim} but tensor has no dimensions"
        )
    try:
        full = infer_size(sizes, shape[dim] if shape else 1)
    except RuntimeError as error:
        if "invalid for input" not in str(error):
            raise
        raise RuntimeError(
            f"unflatten: Provided sizes {list(sizes)} don't multiply up to the size of dim {dim} ({shape[dim]}) in the "
            "input tensor"
        ) from None
    return view_size(input, (*shape[:dim], *full, *shape[dim + 1 :]))


@composite(recorded="size")
def view_as(input: Tensor, other: Tensor):
    """`input` under the sizes of `other`, without copying.  input (*), other (*b) -> (*b)."""
    return view_size(input, other._array.shape)


@composite(recorded="size")
def reshape_as(input: Tensor, other: Tensor):
    """`input` under the sizes of `other`.  input (*), other (*b) -> (*b)."""
    return reshape_to(input, other._array.shape)


Tensor.view_as, Tensor.reshape_as = view_as, reshape_as


@op(
    node={
        "dim is None": "SqueezeBackward0",
        "len(dim) == 1": "SqueezeBackward1",
        "": "SqueezeBackward2",
    },
    view=True,
    varargs="dim",
    several=((1, 1), (2, 2), (2, 2)),
)
@derivative(input=lambda grad, input_shape: grad.reshape(input_shape))
@array_derivative(input=_reshaped)
@samples(lambda t: [(t(1, 3, 1),), (t(1, 3, 1), 0), (t(1, 3, 1), (0, 2)), (t(2, 3), 1), (t(),), (t(1, 3), ())])
def squeeze(xp, input, dim=None):
    """Without dims of size 1 (all of them, or those of `dim`: none for an empty one).  input (*) -> (*)."""
    shape = input.shape
    if dim is None:
        return input.reshape([n for n in shape if n != 1])
    if len(dim) == 1:
        d = wrap_dim(dim[0], len(shape))
        return input.squeeze(d) if shape and shape[d] == 1 else input[...]
    if not shape:
        wrap_dims(dim, 0)
        return input[...]
    drop = [d for d in wrap_dims(dim, len(shape)) if shape[d] == 1] if dim else None
    return input.squeeze(tuple(drop)) if drop else input[...]


@op(view=True)
@derivative(input=lambda grad, dim: grad.squeeze(dim))
@array_derivative(input=moving(lambda grad, dim: grad.squeeze(dim)))
@samples(lambda t: [(t(3, 4), 0), (t(3), -1), (t(), 0)])
def unsqueeze(xp, input, dim: int):
    """A dim of size 1 inserted at `dim`.  input (*) -> (*, 1, *)."""
    if dim == 0:
        return input[None]
    if dim == -1:
        return input[..., None]
    return input[(*PREFIX[wrap_dim(dim, input.ndim + 1)], None)]


# --- order of dims


@op(view=True, names=("swapaxes", "swapdims"), aliases={"axis0": "dim0", "axis1": "dim1"})
@derivative(input=lambda grad, dim0, dim1: grad.transpose(dim0, dim1))
@array_derivative(input=moving(lambda grad, dim0, dim1: grad.swapaxes(dim0, dim1) if grad.ndim else grad))
@samples(lambda t: [(t(2, 3, 4), 0, 2), (t(3, 4), -1, 0), (t(), 0, -1)])
def transpose(xp, input, dim0: int = MISSING, dim1: int = MISSING):
    """Two dims swapped.  input (*) -> (*)."""
    try:
        return input.swapaxes(dim0, dim1)
    except (ValueError, TypeError):  # numpy's words for what is out of range
        ndim = input.ndim
        dim0, dim1 = wrap_dim(dim0, ndim), wrap_dim(dim1, ndim)
        return input.swapaxes(dim0, dim1) if ndim else input[...]


@op(view=True)
@derivative(input=lambda grad: grad.t())
@array_derivative(input=moving(lambda grad: grad.T))
@samples(lambda t: [(t(3, 4),), (t(3),), (t(),)])
def t(xp, input):
    """The transpose of a matrix; vectors and scalars as they are.  input (n, m) -> (m, n)."""
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return input.T if input.ndim == 2 else input[...]


@op(view=True, varargs="dims")
@derivative(input=lambda grad, dims: grad.permute(inverse_permutation(dims)))
@array_derivative(input=moving(lambda grad, dims: grad.transpose(inverse_permutation(dims))))
@samples(lambda t: [(t(2, 3, 4), (2, 0, 1)), (t(2, 3), (-1, 0)), (t(), ())])
def permute(xp, input, dims):
    """Dims in the order `dims`.  input (*) -> (*)."""
    try:
        return input.transpose(dims)
    except ValueError:  # numpy's words for dims that do not fit
        pass
    ndim = input.ndim
    if len(dims) != ndim:
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired "
            f"ordering of dimensions i.e. input.dim() = {ndim} is not equal to len(dims) = {len(dims)}"
        )
    dims = [wrap_dim(d, ndim) for d in dims]
    if len(set(dims)) != ndim:
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return input.transpose(dims)


def inverse_permutation(dims):
    """The permutation that undoes `dims`."""
    result = [0] * len(dims)
    for i, d in enumerate(dims):
        result[d] = i
    return result


@composite(names=("moveaxis",), several=((3, 3), (3, 3)))
def movedim(input: Tensor, source: tuple[int, ...] | int, destination: tuple[int, ...] | int):
    """Dims `source` moved to the places `destination`, the rest in order.  input (*) -> (*)."""
    source = (source,) if isinstance(source, int) else tuple(source)
    destination = (destination,) if isinstance(destination, int) else tuple(destination)
    if len(source) != len(destination):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(source)} dims) should contain the same "
            f"number of dims as destination ({list(destination)} dims)"
        )
    ndim = input._array.ndim
    from_, to = [wrap_dim(d, ndim) for d in source], [wrap_dim(d, ndim) for d in destination]
    for name, dims, given in (("source", from_, source), ("destination", to, destination)):
        if len(set(dims)) != len(dims):
            raise RuntimeError(f"movedim: repeated dim in `{name}` ({list(given)})")
    if not ndim:
        return alias(input)
    order = [-1] * ndim
    for a, b in zip(from_, to):
        order[b] = a
    rest = iter([d for d in range(ndim) if d not in from_])
    return permute(input, [next(rest) if d < 0 else d for d in order])


def _matrices(name: str, tensor: Tensor) -> bool:
    """Return whether a tensor holds matrices; of a number it does not, which torch warns of.  RuntimeError for 1-d."""
    ndim = tensor._array.ndim
    if not ndim:
        instead = "This function is the identity in these cases." if name == "mT" else "Consider using x.conj()."
        prefix = "" if name == "adjoint()" else "Tensor."
        warnings.warn(f"{prefix}{name} is deprecated on 0-D tensors. {instead}", stacklevel=4)
    elif ndim == 1:
        raise RuntimeError(f"tensor.{name} is only supported on matrices or batches of matrices. Got 1-D tensor.")
    return ndim > 1


@composite()
def adjoint(input: Tensor):
    """The conjugate transpose of the last two dims.  input (*, n, m) -> (*, m, n)."""
    if not _matrices("adjoint()", input):
        return input.conj() if input.is_complex() else input
    result = transpose(input, -2, -1)
    return result.conj() if input.is_complex() else result


def _T(self: Tensor) -> Tensor:
    """All dims reversed."""
    ndim = self._array.ndim
    if ndim == 2:
        return name_node(t(self), "PermuteBackward0")
    if ndim != 2:
        warnings.warn(
            "Tensor.T is deprecated on 0-D tensors. This function is the identity in these cases."
            if not ndim
            else "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated and it "
            "will throw an error in a future release. Consider `x.mT` to transpose batches of matrices or "
            "`x.permute(*torch.arange(x.ndim - 1, -1, -1))` to reverse the dimensions of a tensor.",
            stacklevel=2,
        )
    return permute(self, tuple(range(ndim - 1, -1, -1)))


def _batched(name: str, conjugate: bool) -> Any:
    def get(self: Tensor) -> Tensor:
        if not _matrices(name, self):
            return self.conj() if conjugate and self.is_complex() else self
        result = transpose(self, -2, -1)
        return result.conj() if conjugate and self.is_complex() else result

    return read_only(name, get, "The last two dims swapped" + (", conjugated." if conjugate else "."))


def _H(self: Tensor) -> Tensor:
    """The conjugate transpose of a matrix."""
    ndim = self._array.ndim
    if ndim not in (0, 2):
        raise RuntimeError(
            f"tensor.H is only supported on matrices (2-D tensors). Got {ndim}-D tensor."
            + (" For batches of matrices, consider using tensor.mH" if ndim > 2 else "")
        )
    if not ndim:
        warnings.warn("Tensor.H is deprecated on 0-D tensors. Consider using x.conj().", stacklevel=2)
        return self.conj() if self.is_complex() else self
    result = t(self)
    return result.conj() if self.is_complex() else name_node(result, "TransposeBackward0")


Tensor.T, Tensor.mT, Tensor.mH, Tensor.H = (
    read_only("T", _T, _T.__doc__),
    _batched("mT", False),
    _batched("mH", True),
    read_only("H", _H, _H.__doc__),
)


# --- broadcasting


@op(view=True, varargs="size")
@derivative(input=lambda grad, input_shape: grad.sum_to_size(input_shape))
@samples(lambda t: [(t(1, 3), (4, 3)), (t(3), (2, -1)), (t(), (2, 2)), (t(2, 1, 3), (5, 2, 4, 3))])
def expand(xp, input, size):
    """input with dims of size 1 repeated without copying; -1 keeps a size.  input (*a) -> (*size)."""
    shape, strides = input.shape, input.strides
    if shape == size:
        return input[...]
    extra = len(size) - len(shape)
    if extra < 0:
        raise RuntimeError(
            f"expand({dtypes.tensor_type(dtypes.from_numpy(input.dtype))}{{{list(shape)}}}, size={list(size)}): the "
            f"number of sizes provided ({len(size)}) must be greater or equal to the number of dimensions in the "
            f"tensor ({len(shape)})"
        )
    if size[extra:] == shape and (not extra or builtins.min(size[:extra]) >= 0):  # new leading dims only
        return restride(xp, input, size, (0,) * extra + strides)
    sizes, steps = list(size), [0] * extra + list(strides)
    for d in builtins.range(len(size) - 1, -1, -1):
        n, have = size[d], shape[d - extra] if d >= extra else 1
        if n == have:
            if d < extra:
                steps[d] = 0
        elif n == -1:
            if d < extra:
                raise RuntimeError(
                    f"The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension {d}"
                )
            sizes[d] = have
        elif have == 1 and n >= 0:
            steps[d] = 0
        else:
            raise RuntimeError(
                f"The expanded size of the tensor ({n}) must match the existing size ({have}) at non-singleton "
                f"dimension {d}.  Target sizes: {list(size)}.  Tensor sizes: {list(shape)}"
            )
    return restride(xp, input, tuple(sizes), tuple(steps))


@composite(recorded="size")
def expand_as(input: Tensor, other: Tensor):
    """input expanded to the shape of `other`.  input (*a), other (*b) -> (*b)."""
    return expand(input, other._array.shape)


Tensor.expand_as = expand_as


@composite(method=True, recorded="size")
def broadcast_to(input: Tensor, size: tuple[int, ...]):
    """input expanded to `size`.  input (*a) -> (*size)."""
    return expand(input, size_of(size))


@composite(method=False)
def broadcast_tensors(*tensors) -> tuple[Tensor, ...]:
    """Views of all tensors in their common shape; those that have it themselves.  tensors (*a), (*b) ... -> (*), ..."""
    from engine.core.checks import broadcast_shapes

    if len(tensors) == 1 and isinstance(tensors[0], list | tuple):
        tensors = tuple(tensors[0])
    shape = broadcast_shapes(*(x._array.shape for x in tensors))
    return tuple(x if x._array.shape == shape else expand(x, shape) for x in tensors)


@composite(method=False)
def broadcast_shapes(*shapes) -> Size:
    """The shape that all shapes broadcast to, as a Size."""
    from engine.core import checks as _checks

    sizes = [(s,) if isinstance(s, int) else tuple(s) for s in shapes]
    common: tuple[int, ...] = ()
    for number, size in enumerate(sizes):
        try:
            common = _checks.broadcast_shapes(common, size)
        except RuntimeError:
            at = next(d for d in range(-1, -len(size) - 1, -1) if size[d] != 1 and common[d] not in (1, size[d]))
            raise RuntimeError(
                f"Attempting to broadcast a dimension of length {size[at]} at {at}! Mismatching argument at index "
                f"{number} had {shapes[number]}; but expected shape should be broadcastable to {list(common)}"
            ) from None
    return Size(common)


# --- basic indexing


def last_step(index: tuple[Any, ...]) -> type | None:
    """The kind of the last item of a basic index that does something: torch applies one after the other."""
    for item in reversed(index):
        if item is not ... and item != _ALL:
            return item.__class__
    return None  # x[:, :] is an alias


@op(
    adds=add_indexed,
    view=True,
    public=False,
    method=False,
    node={
        "index[-1] is ... and len(index) == 2 and index[0].__class__ is slice": "SliceBackward0",
        "(_s := last_step(index)) is int": "SelectBackward0",
        "_s is type(None)": "UnsqueezeBackward0",
        "_s is None": "AliasBackward0",
        "": "SliceBackward0",
    },
    not_tensors=("index",),
)
@derivative(input=lambda grad, input_shape, index: place(grad, input_shape, index))
@samples(
    lambda t: [
        (t(3, 4), (slice(1, 3), 2, ...)),
        (t(3, 4), (None, ..., slice(0, 4, 2))),
        (t(), (None, ...)),
    ]
)
def basic_index(xp, input, index):
    """input[index] for a tuple of ints, slices, None and one Ellipsis.  input (*) -> (*)."""
    return input[index]


@op(adds=add_item, view=True, public=False, method=False, node="SelectBackward0", not_tensors=("index",))
@derivative(input=lambda grad, input_shape, index: place(grad, input_shape, (index, ...)))
@samples(lambda t: [(t(3, 4), 1), (t(3), -1)])
def item_index(xp, input, index):
    """input[index] for an int.  input (n, *) -> (*)."""
    try:
        return input[index, ...]
    except IndexError:
        if not input.ndim:
            raise IndexError(
                "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `tensor.item<T>()` in C++ to "
                "convert a 0-dim tensor to a number"
            ) from None
        raise IndexError(f"index {index} is out of bounds for dimension 0 with size {input.shape[0]}") from None


@op(public=False, method=False, node="SelectBackwardBackward0", not_tensors=("index",))
@derivative(grad_output=lambda grad, index: basic_index(grad, index))
@samples(lambda t: [(t(2), (3, 4), (slice(1, 3), 2, ...)), (t(), (3,), (1, ...))])
def place(xp, grad_output, shape, index):
    """Zeros with `grad_output` at `index`.  grad_output (*) -> (*shape)."""

    def plain() -> Any:
        result = xp.zeros(shape, grad_output.dtype)
        result[index] = grad_output
        return result

    if grad_output.__class__ is np.ndarray and grad_output.size >= relayout.FEW:
        placed = relayout.providers.placed
        found = NotImplemented if placed is None else placed(grad_output, tuple(shape), index, plain)
        if found is not NotImplemented:
            return found
    return plain()


@op(adds=add_selected, view=True, not_tensors=("index",))
@derivative(input=lambda grad, input_shape, dim, index: place(grad, input_shape, at_place(input_shape, dim, index)))
@samples(lambda t: [(t(3, 4), 0, 1), (t(3, 4), -1, -2), (t(3), 0, 0)])
def select(xp, input, dim: int, index: int):
    """The slice at `index` of `dim`.  input (*, n, *) -> (*, *)."""
    if not input.ndim:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    dim = wrap_dim(dim, input.ndim)
    if index.__class__ is not int:
        index = operator.index(index)
    try:
        return input[(*PREFIX[dim], index, ...)]
    except IndexError:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(input.shape)} at dimension {dim}"
        ) from None


@composite(recorded="size")
def narrow(input: Tensor, dim: int, start: int | Tensor, length: int):
    """`length` entries of `dim` from `start` on.  input (*, n, *) -> (*, length, *)."""
    array = input._array
    if not array.ndim:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if isinstance(start, Tensor) and (start._array.ndim or start._array.dtype.kind not in "iu"):
        raise RuntimeError("start must be an 0-dim integral Tensor.")
    dim = wrap_dim(dim, array.ndim)
    start, length = operator.index(start), operator.index(length)
    n = array.shape[dim]
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    if not -n <= start <= n:
        raise IndexError(f"start out of range (expected to be in range of [{-n}, {n}], but got {start})")
    if start < 0:
        start += n
    if start + length > n:
        raise RuntimeError(f"start ({start}) + length ({length}) exceeds dimension size ({n}).")
    return basic_index(input, (*PREFIX[dim], slice(start, start + length), ...))


@composite()
def narrow_copy(input: Tensor, dim: int, start: int, length: int, *, out=None):
    """As `narrow`, with memory of its own.  input (*, n, *) -> (*, length, *)."""
    if out is not None:
        return store(out, "narrow_copy", narrow_copy, input, dim, start, length)
    if dim >= input._array.ndim > 0:
        raise RuntimeError(
            "Expected dim < static_cast<int64_t>(self_sizes.size()) to be true, but got false.  (Could this error "
            "message be improved?  If so, please report an enhancement request to PyTorch.)"
        )
    return narrow(input, dim, start, length).clone()


@op(view=True, public=False, method=False, node="AliasBackward0")
@derivative(input=lambda grad: grad)
@samples(lambda t: [(t(3, 4),)])
def alias(xp, input):
    """The same tensor again.  input (*) -> (*)."""
    return input[...]


# --- in place


def reshaping(name: str, function: Any) -> Any:
    """`x.NAME_()`: the tensor itself becomes that view of itself."""
    from engine.autograd.graph import requires_grad_of
    from engine.autograd.inplace import check_writable
    from engine.core.grad_mode import mode

    def twin(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if input._requires_grad and mode.enabled and requires_grad_of(input):
            strides = input._array.strides
            if 0 not in strides:
                check_writable(input)
        result = function(input, *args, **kwargs)
        made = result._view
        if made.edge is not None:  # torch numbers the forms in place after the others
            name = made.edge[0].name()
            name_node(result, f"{name[:-1]}{int(name[-1]) + (3 if function is squeeze else 1)}")
        input._vc[0] += 1
        if input._view is not None:
            made.version = input._vc[0]
            input._view = made
        elif made.edge is not None:
            input._edge = made.edge
        input._array = result._array
        return input

    twin.__name__ = twin.__qualname__ = name
    twin.__doc__ = f"In place: {function.__doc__}"
    setattr(Tensor, name, twin)
    return twin


for _name, _function in {
    "squeeze_": squeeze,
    "unsqueeze_": unsqueeze,
    "transpose_": transpose,
    "t_": t,
    "swapaxes_": transpose,
    "swapdims_": transpose,
}.items():
    reshaping(_name, _function)
