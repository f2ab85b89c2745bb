"""Sparse matrices by rows (layout `sparse_csr`): where each row begins, the columns and the values.

A `CompressedTensor` is a SparseTensor that also knows where its rows begin; products and gradients are those of
coordinates.  https://docs.pytorch.org/docs/2.13/sparse.html#sparse-csr-tensor
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine import backends
from engine.core import dtypes, layouts
from engine.core.printing import _with_suffixes
from engine.dispatch import PUBLIC
from engine.sparse import arithmetic
from engine.sparse.coordinates import SparseTensor, bare_text, for_writing, make
from engine.sparse.factories import to_sparse
from engine.sparse.products import mm
from engine.sparse.shapes import copy_
from engine.tensor import Tensor, wrap

__all__ = ["CompressedTensor", "crow_indices", "sparse_csr_tensor", "to_sparse_csr"]


class CompressedTensor(SparseTensor):
    """A matrix in rows: `crow_indices()` (n + 1), `col_indices()` (nnz), `values()` (nnz)."""

    is_sparse = False
    is_sparse_csr = True
    layout = layouts.sparse_csr

    def crow_indices(self) -> Tensor:
        """Return the start of each row, and the end of the last: (n + 1)."""
        return self._crow  # type: ignore[no-any-return]

    def col_indices(self) -> Tensor:
        """The column of each value: (nnz)."""
        return self._col  # type: ignore[no-any-return]

    def values(self) -> Tensor:
        """The values: (nnz)."""
        return self._v

    def indices(self) -> Tensor:
        """RuntimeError: it has no coordinates."""
        raise RuntimeError("indices expected sparse coordinate tensor layout but got SparseCsr")

    def is_coalesced(self) -> bool:
        """RuntimeError: only coordinates are coalesced."""
        raise RuntimeError("is_coalesced expected sparse coordinate tensor layout but got SparseCsr")

    def _with(self, values: Tensor) -> CompressedTensor:
        return _compressed(self._crow, self._col, values, self._size)

    def clone(self, **options: Any) -> CompressedTensor:
        """A copy in the graph."""
        return _compressed(self._crow.clone(), self._col.clone(), self._v.clone(), self._size)

    def to(self, *args: Any, **kwargs: Any) -> CompressedTensor:
        """The values in another dtype, or all on another device."""
        values = self._v.to(*args, **kwargs)
        return _compressed(self._crow.to(values.device), self._col.to(values.device), values, self._size)

    @property
    def grad(self) -> Any:
        """The gradient at the places of this tensor, in rows."""
        found = self._v.grad
        return None if found is None else self.gradient_of(found)

    def gradient_of(self, found: Tensor) -> CompressedTensor:
        """A gradient of the values as one of this tensor, in rows."""
        return self._with(found)

    @grad.setter
    def grad(self, value: Any) -> None:
        self._v.grad = value._v if isinstance(value, SparseTensor) else value

    def to_sparse(self, sparse_dim: int | None = None, *, layout: Any = None, **options: Any) -> SparseTensor:
        """By coordinates, or itself for `layout=torch.sparse_csr`."""
        if layout is layouts.sparse_csr:
            return self
        return make(self._i, self._v, self._size, True)

    to_sparse_coo = to_sparse

    def to_sparse_csr(self) -> CompressedTensor:
        """Itself."""
        return self

    def sum(self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        """The sum of all values, or along dims in rows of coordinates."""
        return self._v.sum(dtype=dtype) if dim is None else self.to_sparse().sum(dim, keepdim, dtype=dtype)

    def _become(self, other: SparseTensor) -> CompressedTensor:
        """Take the rows, the values and the size of `other`."""
        rows = other if isinstance(other, CompressedTensor) else to_sparse_csr(other)
        self.__dict__.update({n: v for n, v in rows.__dict__.items() if n != "_vc"})
        return self

    def copy_(self, src: Any, non_blocking: bool = False) -> Any:
        """Take the values of `src`, and its rows and columns where they differ."""
        same = isinstance(src, CompressedTensor) and src._size == self._size
        if not same or not all(_alike(a, b) for a, b in ((self._crow, src._crow), (self._col, src._col))):
            found = copy_(self, src, non_blocking)
        else:
            for_writing(self)._v.copy_(src._v)
            found = self
        self._vc[0] += 1
        return found

    def coalesce(self) -> CompressedTensor:
        """Itself, for what works on coordinates too: rows name each element once."""
        return self

    def relu(self) -> CompressedTensor:
        """The positive values."""
        return self._with(self._v.relu())

    def fill_(self, value: Any) -> CompressedTensor:
        """Fill the elements that are there."""
        for_writing(self)._v.fill_(value)
        return self

    def add(self, other: Any, *more: Any, alpha: Any = 1) -> Any:
        """self + alpha * other: by rows for two matrices by rows, dense for a dense one."""
        other, alpha = arithmetic.legacy_alpha(other, more, alpha)
        if not isinstance(other, SparseTensor) and isinstance(other, Tensor) and other.ndim:
            return self.to_dense() + (other if alpha == 1 else other * alpha)
        return self._by_rows(arithmetic.add(self.to_sparse(), other, alpha=alpha), other)

    def sub(self, other: Any, *more: Any, alpha: Any = 1) -> Any:
        """self - alpha * other."""
        other, alpha = arithmetic.legacy_alpha(other, more, alpha)
        return self.add(other, alpha=-alpha)

    def mul(self, other: Any) -> Any:
        """self * other, by rows."""
        return self._by_rows(arithmetic.mul(self.to_sparse(), other), self)

    def mm(self, mat2: Any, reduce: str = "sum") -> Any:
        """The product with a matrix (k, m), or with a vector (k)."""
        return self._by_rows(mm(self, mat2, reduce), mat2)

    def _by_rows(self, found: Any, other: Any) -> Any:
        if isinstance(found, SparseTensor) and isinstance(other, CompressedTensor):
            return to_sparse_csr(found)
        return found

    __add__, __sub__, __mul__, __rmul__, __matmul__, matmul = add, sub, mul, mul, mm, mm
    multiply, subtract = mul, sub

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        head = (
            f"tensor(crow_indices={bare_text(self._crow, 20)},\n       "
            f"col_indices={bare_text(self._col, 19)},\n       "
            f"values={bare_text(self._v.detach(), 14)}"
        )
        return _with_suffixes(head, [f"size={tuple(self._size)}", *self._suffixes()], 7)

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return _compressed, (self._crow, self._col, self._v, self._size)

    def __deepcopy__(self, memo: dict) -> CompressedTensor:
        return memo.setdefault(id(self), self.detach().clone())


def _alike(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors of indices hold the same numbers."""
    return a.shape == b.shape and a.device == b.device and bool((a == b).all())


def _compressed(crow: Tensor, col: Tensor, values: Tensor, size: Sequence[int]) -> CompressedTensor:
    result = object.__new__(CompressedTensor)
    rows = PUBLIC["repeat_interleave"](crow.diff().to(dtypes.int64))
    coordinates = PUBLIC["stack"]([rows, col.to(dtypes.int64)])
    result.__dict__.update(_i=coordinates, _v=values, _size=tuple(size), _coalesced=True, _vc=[0], _crow=crow, _col=col)
    return result


def _indices(name: str, given: Any, device: Any) -> Tensor:
    found = given if isinstance(given, Tensor) else PUBLIC["tensor"](given, device=device)
    if found.dtype not in (dtypes.int32, dtypes.int64):
        raise RuntimeError(f"{name} must be an int32 or int64 tensor, but got {found.dtype}")
    return found.detach()


def sparse_csr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    pin_memory: bool = False,
) -> CompressedTensor:
    """A matrix whose row i has the columns and values from crow_indices[i] to crow_indices[i + 1].

    crow_indices (n + 1), col_indices (nnz) of int32 or int64, values (nnz); size (n, m), by default as large as the
    largest column asks for.  RuntimeError where they do not fit, which is always looked at.
    https://docs.pytorch.org/docs/2.13/generated/torch.sparse_csr_tensor.html
    """
    crow, col = _indices("crow_indices", crow_indices, device), _indices("col_indices", col_indices, device)
    made = values if isinstance(values, Tensor) else PUBLIC["tensor"](values, dtype=dtype, device=device)
    if dtype is not None or device is not None:
        made = made.to(device=device or made.device, dtype=dtype or made.dtype)
    if crow.dim() != 1 or col.dim() != 1 or made.dim() != 1:
        raise NotImplementedError("batches and blocks of sparse rows are not supported: use one matrix for each")
    if not crow.numel():
        raise RuntimeError("crow_indices must have one more element than the matrix has rows, got none")
    if size is None:
        size = (crow.numel() - 1, int(col.max()) + 1 if col.numel() else 0)
    rows, columns = size
    wrong = None
    if crow.numel() != rows + 1:
        wrong = f"crow_indices.shape[-1] must be equal to nrows + 1 = {rows + 1}, but got {crow.numel()}"
    elif col.numel() != made.numel():
        wrong = f"col_indices and values must have the same number of elements, got {col.numel()} and {made.numel()}"
    elif int(crow[0]) != 0 or int(crow[-1]) != col.numel() or bool((crow.diff() < 0).any()):
        wrong = "crow_indices must begin with 0, end with the number of values and never fall"
    elif col.numel() and not (int(col.min()) >= 0 and int(col.max()) < columns):
        wrong = f"`0 <= col_indices < {columns}` is not satisfied"
    if wrong:
        raise RuntimeError(f"sparse_csr_tensor(): {wrong}")
    # writes to the values given are none to the matrix, whose counter is its own
    result = _compressed(crow, col, made if made.requires_grad else made.data, size)
    return result.requires_grad_() if requires_grad else result  # type: ignore[return-value]


def to_sparse_csr(input: Tensor, dense_dim: int | None = None) -> CompressedTensor:
    """A matrix, dense or by coordinates, in rows, with gradients through its values.  input (n, m) -> (n, m)."""
    if input.dim() != 2:
        raise RuntimeError(f"to_sparse_csr(): a matrix is expected, got {input.dim()} dimensions")
    coordinates = (input if isinstance(input, SparseTensor) else to_sparse(input)).coalesce()
    rows, columns = coordinates._i.unbind(0)
    xp = backends.xp_of(rows._array)
    crow = wrap(xp.searchsorted(rows._array, xp.arange(input.shape[0] + 1)).astype(xp.int64))
    return _compressed(crow, columns.contiguous(), coordinates._v, input.shape)


def crow_indices(input: Tensor) -> Tensor:
    """RuntimeError: a dense tensor has no rows of values."""
    raise RuntimeError("crow_indices expected sparse row compressed tensor layout but got Strided")


def col_indices(input: Tensor) -> Tensor:
    """RuntimeError: a dense tensor has no columns of values."""
    raise RuntimeError("col_indices expected sparse row compressed tensor layout but got Strided")
