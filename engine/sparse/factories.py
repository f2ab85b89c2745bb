"""The factories of sparse tensors: from coordinates, from dense tensors, by size, and the forms from before torch
0.4."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine import backends
from engine.core import dtypes, layouts
from engine.core.device import device as device_of
from engine.dispatch import PUBLIC
from engine.dispatch.overriding import made
from engine.sparse.coordinates import SparseTensor, checked_size, make
from engine.sparse.shapes import nothing
from engine.tensor import Size, Tensor, wrap

__all__ = ["METHODS", "check_sparse_tensor_invariants", "legacy", "sized", "sparse_coo_tensor", "spdiags", "to_sparse"]


class _Checks(threading.local):
    on = False


_checks = _Checks()


class check_sparse_tensor_invariants:
    """A context, or a decorator, in which what is made sparse is checked: no index outside of the size.

    `enable()`, `disable()` and `is_enabled()` do so without a context.
    https://docs.pytorch.org/docs/2.13/generated/torch.sparse.check_sparse_tensor_invariants.html
    """

    def __init__(self, enable: bool = True) -> None:
        self._enable = enable
        self._before: list[bool] = []

    @staticmethod
    def is_enabled() -> bool:
        """Return whether the invariants are checked."""
        return _checks.on

    @staticmethod
    def enable() -> None:
        """Check the invariants from now on."""
        _checks.on = True

    @staticmethod
    def disable() -> None:
        """Check the invariants no longer."""
        _checks.on = False

    def __enter__(self) -> check_sparse_tensor_invariants:
        self._before.append(_checks.on)
        _checks.on = self._enable
        return self

    def __exit__(self, *exc: object) -> None:
        _checks.on = self._before.pop()

    def __call__(self, function: Any) -> Any:
        """The function, called inside of the context."""
        import functools

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self._enable):
                return function(*args, **kwargs)

        return checked


def _check_indices(indices: Any, size: Sequence[int] | None) -> None:
    """RuntimeError for a negative index, and for one outside of `size` if that is given."""
    if not indices.size:
        return
    for d, (low, high) in enumerate(zip(indices.min(1).tolist(), indices.max(1).tolist())):
        if low < 0:
            raise RuntimeError(f"found negative index {low} for dim {d}")
        if size is not None and high >= size[d]:
            raise RuntimeError(
                f"size is inconsistent with indices: for dim {d}, size is {size[d]} but found index {high}"
            )


def sparse_coo_tensor(
    indices: Any = None,
    values: Any = None,
    size: Any = None,
    *,
    dtype: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> SparseTensor:
    """A sparse tensor from coordinates (sparse_dim, nnz) and values (nnz, *); size by default as large as needed.

    `sparse_coo_tensor(size)` has no elements.  Repeated coordinates add up.  RuntimeError where the numbers of
    coordinates and values, or of dims, differ.
    """
    tensor = PUBLIC["tensor"]
    if values is None:  # only the size
        shape = checked_size(indices if size is None else size)
        values = PUBLIC["zeros"]((0,), dtype=dtype, device=device)
        made(SparseTensor)
        place = wrap(np.zeros((len(shape), 0), np.int64)).to(values.device)
        return make(place, values, shape, True).requires_grad_(requires_grad)
    i = indices if isinstance(indices, Tensor) else tensor(indices)
    v = values if isinstance(values, Tensor) else tensor(values, dtype=dtype, device=device)
    fresh = not isinstance(values, Tensor)
    i = i.detach().to(dtypes.int64)
    if dtype is not None or device is not None:
        v = v.to(device=device or v.device, dtype=dtype or v.dtype)
    if i.device != v.device:
        i = i.to(v.device)
    shape_i = i._array.shape
    sparse, count = (shape_i[0], shape_i[1]) if len(shape_i) == 2 else (shape_i[0] if shape_i else 0, 1)
    if len(shape_i) != 2:
        if size is not None and len(tuple(size)) != sparse + v.ndim - 1:
            raise RuntimeError(_other_dims(tuple(size), sparse, v.ndim - 1))
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(shape_i)}")
    if not v.ndim:
        v = v.unsqueeze(0)
    if v._array.shape[0] != count:
        raise RuntimeError(
            f"indices and values must have same nnz, but got nnz from indices: {count}, nnz from values: "
            f"{v._array.shape[0]}"
        )
    dense = v._array.shape[1:]
    if size is None:
        _check_indices(i._array, None)
        top = i._array.max(1).tolist() if count else [-1] * sparse
        size = (*[t + 1 for t in top], *dense)
    size = checked_size(size)
    if len(size) != sparse + len(dense):
        raise RuntimeError(_other_dims(size, sparse, len(dense)))
    if size[sparse:] != dense:
        raise RuntimeError(f"values has incorrect size, expected {[count, *size[sparse:]]}, got {[count, *dense]}")
    if _checks.on if check_invariants is None else check_invariants:
        _check_indices(i._array, size)
    if requires_grad and not fresh:
        v = v.detach()
    elif v.requires_grad:
        v = v.view_as(v)  # made of a tensor in the graph: no leaf
    made(SparseTensor)
    result = make(i, v, size, bool(is_coalesced) or count < 2)
    return result.requires_grad_() if requires_grad else result


def _other_dims(size: tuple[int, ...], sparse: int, dense: int) -> str:
    return (
        f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, sparse_dim = {sparse}, "
        f"dense_dim = {dense}"
    )


def to_sparse(input: Tensor, sparse_dim: Any = None, *, layout: Any = None, **options: Any) -> SparseTensor:
    """The coordinates and values of what is not zero; `sparse_dim` dims sparse, the others dense.  input (*) -> (*).

    layout: `torch.sparse_coo`, or `torch.sparse_csr` for a matrix by rows.
    """
    if isinstance(sparse_dim, layouts.layout):
        sparse_dim, layout = None, sparse_dim
    if layout is layouts.sparse_csr:
        return input.to_sparse_csr()
    if layout not in (None, layouts.sparse_coo):
        raise NotImplementedError(f"to_sparse(layout={layout!r}): only torch.sparse_coo and torch.sparse_csr are made")
    if isinstance(input, SparseTensor):
        if sparse_dim not in (None, input.sparse_dim()):
            return to_sparse(input.to_dense(), sparse_dim)
        return input
    array = input._array
    d = array.ndim if sparse_dim is None else sparse_dim
    if not 0 <= d <= array.ndim:
        raise RuntimeError(f"to_sparse: sparse_dim argument must be in >=0 and <={array.ndim} range, but {d} is given")
    if d == 0 and array.ndim:
        raise RuntimeError("dense_to_sparse: sparse_dim argument must be in >0 when self.dim()>0")
    xp = backends.xp_of(array)
    made(SparseTensor)
    if not d:
        count = int(bool(array != 0))
        return make(wrap(xp.zeros((0, count), xp.int64)), input.reshape(1)[:count], (), True)
    some = array != 0
    if d < array.ndim:
        some = some.any(tuple(range(d, array.ndim)))
    found = xp.nonzero(some)
    indices = wrap(xp.stack(found).astype(xp.int64))
    return make(indices, input[tuple(wrap(x) for x in found)], array.shape, True)


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Sequence[int], layout: Any = None) -> SparseTensor:
    """A sparse matrix from the rows of `diagonals`, column j of a row at column j.

    diagonals (k, n), offsets (k) -> (*shape).  RuntimeError for an offset that is given twice.
    """
    rows, columns, which, position = [], [], [], []
    width, places = diagonals._array.shape[-1], offsets.reshape(-1).tolist()
    if len(set(places)) != len(places):
        raise RuntimeError("Offset tensor contains duplicate values")
    for k, offset in enumerate(places):
        for j in range(max(0, offset), min(width, shape[1], shape[0] + offset)):
            rows.append(j - offset)
            columns.append(j)
            which.append(k)
            position.append(j)
    tensor = PUBLIC["tensor"]
    given = diagonals.reshape(-1, width)
    values = given[tensor(which, dtype=dtypes.int64), tensor(position, dtype=dtypes.int64)]
    made(SparseTensor)
    found = make(tensor([rows, columns], dtype=dtypes.int64), values, tuple(shape))
    return found if layout in (None, layouts.sparse_coo) else to_sparse(found.coalesce(), layout=layout)


def sized(
    name: str, size: Sequence[int], layout: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> SparseTensor:
    """`zeros` or `empty` with `layout=`: no elements.  NotImplementedError for what would fill a sparse tensor."""
    if name not in ("zeros", "empty"):
        raise NotImplementedError(f"{name}(layout={layout!r}): all elements would be there, make it dense")
    if layout not in (layouts.sparse_coo, layouts.sparse_csr):
        raise NotImplementedError(f"layout={layout!r}: torch.strided, torch.sparse_coo and torch.sparse_csr are made")
    found = sparse_coo_tensor(size, dtype=dtype, device=device)
    return to_sparse(found, layout=layout).requires_grad_(requires_grad)


def legacy(dtype: Any, data: tuple[Any, ...], device: Any, where: Any) -> SparseTensor:
    """Build a tensor for `sparse.FloatTensor(...)` and `sparse.new(...)`: by sizes, or from indices, values and a size.

    RuntimeError for a device of another type than `where`.
    """
    if device is not None and device_of(device).type != device_of(where).type:
        raise RuntimeError(
            f"legacy constructor expects device type: {device_of(where).type} but device type: "
            f"{device_of(device).type} was passed"
        )
    if data and isinstance(data[0], Tensor):
        if len(data) not in (2, 3) or not isinstance(data[1], Tensor):
            given = ", ".join(type(x).__name__ for x in data)
            raise TypeError(
                f"new() received an invalid combination of arguments - got ({given}), but expected indices and values, "
                "indices, values and a size, or a size"
            )
        return sparse_coo_tensor(*data)
    size = data[0] if len(data) == 1 and not isinstance(data[0], int) else data
    return sparse_coo_tensor(Size(size or (0,)), dtype=dtype, device=where)


def _new(self: SparseTensor, *data: Any, device: Any = None) -> SparseTensor:
    """As the constructor of this tensor's legacy type: by sizes, or from indices, values and a size."""
    return legacy(self.dtype, data, device, self.device)


def _new_without(
    self: SparseTensor,
    *size: Any,
    dtype: Any = None,
    device: Any = None,
    layout: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Any:
    """A tensor of zeros of that size, sparse as this one unless `layout` says otherwise.  -> (*size)."""
    shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    options = {"dtype": dtype or self.dtype, "device": device or self.device, "requires_grad": requires_grad}
    return PUBLIC["zeros"](tuple(shape), layout=layout or self.layout, **options)


def _new_tensor(self: SparseTensor, data: Any, **options: Any) -> Tensor:
    """A dense tensor of that data, in the dtype and on the device of this one unless given."""
    return self._v.detach().new_tensor(data, **options)


def zeros_like(
    input: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    memory_format: Any = None,
) -> Any:
    """Zeros of the size of a sparse tensor, without elements; dense for `layout=torch.strided`.  input (*) -> (*)."""
    if layout is layouts.strided:
        options = {"dtype": dtype or input.dtype, "device": device or input.device, "requires_grad": requires_grad}
        return PUBLIC["zeros"](input._size, **options)
    if layout not in (None, layouts.sparse_coo, input.layout):
        return sized("zeros", input._size, layout, dtype or input.dtype, device, requires_grad)
    found = nothing(input, input._size, input.sparse_dim(), dtype=dtype, device=device)
    return to_sparse(found, layout=input.layout).requires_grad_(requires_grad)


def _refused_like(name: str) -> Any:
    def refuse(input: Any, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{name} of a sparse tensor would not be sparse: use to_dense() first")

    refuse.__name__ = name
    return refuse


METHODS: dict[str, Any] = {
    "new": _new,
    "new_zeros": _new_without,
    "new_empty": _new_without,
    "new_tensor": _new_tensor,
    "to_sparse": to_sparse,
    "zeros_like": zeros_like,
    "empty_like": zeros_like,
    "to_sparse_coo": to_sparse,
    **{n: _refused_like(n) for n in ("ones_like", "full_like", "rand_like", "randn_like", "new_ones", "new_full")},
}
