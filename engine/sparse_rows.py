"""Sparse matrices by rows (layout `sparse_csr`): where each row begins, the columns and the values.

A `CompressedTensor` is a SparseTensor that also knows where its rows begin; products and gradients are those of
coordinates.  https://docs.pytorch.org/docs/2.13/sparse.html#sparse-csr-tensor
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import engine
from engine import dtypes, layouts
from engine.sparse import SparseTensor, _indented, _make
from engine.tensor import Tensor

__all__ = ["CompressedTensor", "crow_indices", "sparse_csr_tensor", "to_sparse_csr"]


class CompressedTensor(SparseTensor):
    """A matrix in rows: `crow_indices()` (n + 1), `col_indices()` (nnz), `values()` (nnz)."""

    is_sparse = False
    is_sparse_csr = True
    layout = layouts.sparse_csr

    def crow_indices(self) -> Tensor:
        """Where each row begins, and the last ends: (n + 1)."""
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
        return None if found is None else self._with(found)

    @grad.setter
    def grad(self, value: Any) -> None:
        self._v.grad = value._v if isinstance(value, SparseTensor) else value

    def to_sparse(self, sparse_dim: int | None = None, *, layout: Any = None) -> SparseTensor:
        """By coordinates, or itself for `layout=torch.sparse_csr`."""
        if layout is layouts.sparse_csr:
            return self
        return _make(self._i, self._v, self._size, True)

    to_sparse_coo = to_sparse

    def to_sparse_csr(self) -> CompressedTensor:
        """Itself."""
        return self

    def sum(self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        """The sum of all values, or along dims in rows of coordinates."""
        return self._v.sum(dtype=dtype) if dim is None else self.to_sparse().sum(dim, keepdim, dtype=dtype)

    def mv(self, vec: Tensor) -> Tensor:
        """The product with a vector (k) -> (n)."""
        return self @ vec  # type: ignore[no-any-return]

    def relu(self) -> CompressedTensor:
        """The positive values."""
        return self._with(self._v.relu())

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        def told(tensor: Tensor, indent: int) -> str:
            return _indented(re.sub(r", dtype=torch\.\w+", "", repr(tensor.detach())), indent)

        own = self.dtype not in (dtypes.get_default_dtype(), dtypes.int64, dtypes.bool)
        kind = f", dtype={self.dtype}" if own else ""
        tail = ""
        if self.grad_fn is not None:
            tail = f", grad_fn=<{type(self.grad_fn).__name__}>"
        elif self.requires_grad:
            tail = ", requires_grad=True"
        return (
            f"tensor(crow_indices={told(self._crow, 20)},\n       col_indices={told(self._col, 19)},\n       "
            f"values={told(self._v, 14)}, size={tuple(self._size)}, nnz={self._nnz()}{kind},\n       "
            f"layout=torch.sparse_csr{tail})"
        )

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return _compressed, (self._crow, self._col, self._v, self._size)

    def __deepcopy__(self, memo: dict) -> CompressedTensor:
        return memo.setdefault(id(self), self.detach().clone())


def _compressed(crow: Tensor, col: Tensor, values: Tensor, size: Sequence[int]) -> CompressedTensor:
    result = object.__new__(CompressedTensor)
    rows = engine.repeat_interleave(crow.diff().to(dtypes.int64))
    coordinates = engine.stack([rows, col.to(dtypes.int64)])
    result.__dict__.update(_i=coordinates, _v=values, _size=tuple(size), _coalesced=True, _vc=[0], _crow=crow, _col=col)
    return result


def _indices(name: str, given: Any, device: Any) -> Tensor:
    found = given if isinstance(given, Tensor) else engine.tensor(given, device=device)
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
    made = values if isinstance(values, Tensor) else engine.tensor(values, dtype=dtype, device=device)
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
    result = _compressed(crow, col, made if made.requires_grad else made.detach(), size)
    return result.requires_grad_() if requires_grad else result  # type: ignore[return-value]


def to_sparse_csr(input: Tensor, dense_dim: int | None = None) -> CompressedTensor:
    """A matrix, dense or by coordinates, in rows, with gradients through its values.  input (n, m) -> (n, m)."""
    if input.dim() != 2:
        raise RuntimeError(f"to_sparse_csr(): a matrix is expected, got {input.dim()} dimensions")
    coordinates = (input if isinstance(input, SparseTensor) else engine.Tensor.to_sparse(input)).coalesce()
    rows, columns = coordinates._i.unbind(0)
    crow = engine._convert_indices_from_coo_to_csr(rows.contiguous(), input.shape[0])  # type: ignore[attr-defined]
    return _compressed(crow, columns.contiguous(), coordinates._v, input.shape)


def crow_indices(input: Tensor) -> Tensor:
    """RuntimeError: a dense tensor has no rows of values."""
    raise RuntimeError("crow_indices expected sparse row compressed tensor layout but got Strided")


def col_indices(input: Tensor) -> Tensor:
    """RuntimeError: a dense tensor has no columns of values."""
    raise RuntimeError("col_indices expected sparse row compressed tensor layout but got Strided")
