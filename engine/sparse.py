"""Sparse tensors in coordinate form (torch.sparse, layout `sparse_coo`), with gradients through their values.

A `SparseTensor` is a Tensor without a strided array: indices (sparse_dim, nnz) and values (nnz, *dense).  Functions
(`torch.mm(sparse, dense)`) come to its methods by `__torch_function__` and `sparse_calls.py`; what it cannot do raises
NotImplementedError.  What a user makes sparse therefore puts listeners into the functions (0.4 us a call, Note [Calls
that a class handles]); gradients of embeddings do not.  https://docs.pytorch.org/docs/2.13/sparse.html
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence
from typing import Any

from engine import backends, dtypes, layouts
from engine._checks import numel, wrap_dim
from engine.dispatch import PUBLIC
from engine.dispatch.overriding import always, made
from engine.ops.coo import coo_mm, group_sum, linear_index
from engine.sparse_typed import CLASSES
from engine.tensor import Size, Tensor, wrap

__all__ = [
    "SparseTensor", "addmm", "log_softmax", "mm", "softmax", "sparse_coo_tensor", "spdiags", "spmm", "sum", "to_dense",
    "to_sparse",
]  # fmt: skip


class SparseTensor(Tensor):
    """A tensor given by coordinates and values of the elements that are not zero; repeated coordinates add up."""

    is_sparse = True
    layout = layouts.sparse_coo

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from engine import sparse_calls

        return sparse_calls.call(func, types, args, kwargs or {})

    @property
    def _array(self) -> Any:
        raise NotImplementedError(
            "this operation is not implemented for the layout torch.sparse_coo; use to_dense() first, or "
            "torch.sparse.mm, the methods and the operators of the sparse tensor"
        )

    @property
    def _requires_grad(self) -> bool:  # type: ignore[override]
        return self._v.requires_grad

    def _of_gradient(self, grad: Any) -> Tensor:
        """A gradient of this tensor, sparse or dense, as that of the values."""
        if isinstance(grad, SparseTensor) and grad._i is self._i:
            found: Tensor = grad._v
        else:
            found = grad.to_dense()[tuple(self._i)]
        return found.to(self.dtype)

    # --- what it is

    @property
    def shape(self) -> Size:
        return Size(self._size)

    def size(self, dim: int | None = None) -> Any:
        """The sizes, or the one of `dim`."""
        return Size(self._size) if dim is None else self._size[wrap_dim(dim, len(self._size))]

    @property
    def ndim(self) -> int:
        return len(self._size)

    def dim(self) -> int:
        """The number of dims."""
        return len(self._size)

    ndimension = dim

    def numel(self) -> int:
        """The number of elements, zeros included."""
        return numel(self._size)

    nelement = numel
    dtype = property(lambda self: self._v.dtype, doc="The type of the values.")
    device = property(lambda self: self._v.device, doc="Where the values are.")
    requires_grad = property(
        lambda self: self._v.requires_grad,
        lambda self, flag: self.requires_grad_(flag),
        doc="Whether the values do.",
    )
    grad_fn = property(lambda self: self._v.grad_fn, doc="The node that made the values.")
    is_leaf = property(lambda self: self._v.is_leaf, doc="Whether the values are a leaf.")

    def requires_grad_(self, requires_grad: bool = True) -> SparseTensor:
        """Set `requires_grad` of the values."""
        self._v.requires_grad_(requires_grad)
        return self

    @property
    def grad(self) -> Any:
        """The gradient at the coordinates of this tensor, sparse."""
        found = self._v.grad
        return None if found is None else _make(self._i, found, self._size, self._coalesced)

    @grad.setter
    def grad(self, value: Any) -> None:
        self._v.grad = value._v if isinstance(value, SparseTensor) else value

    def __len__(self) -> int:
        return self._size[0]

    def sparse_dim(self) -> int:
        """How many dims the coordinates have."""
        return self._i._array.shape[0]

    def dense_dim(self) -> int:
        """How many dims each value has."""
        return len(self._size) - self.sparse_dim()

    def _nnz(self) -> int:
        return self._i._array.shape[1]

    def is_coalesced(self) -> bool:
        """Whether the coordinates are known to be sorted and unique."""
        return self._coalesced

    def _indices(self) -> Tensor:
        return self._i

    def _values(self) -> Tensor:
        return self._v

    def indices(self) -> Tensor:
        """The coordinates, (sparse_dim, nnz).  RuntimeError unless coalesced."""
        if not self._coalesced:
            raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
        return self._i

    def values(self) -> Tensor:
        """The values, (nnz, *).  RuntimeError unless coalesced."""
        if not self._coalesced:
            raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
        return self._v

    # --- forms

    def coalesce(self) -> SparseTensor:
        """The same tensor with sorted coordinates, each once."""
        if self._coalesced:
            return self
        array = self._i._array
        xp = backends.xp_of(array)
        d = array.shape[0]
        if array.shape[1] < 2:
            return _make(self._i, self._v, self._size, True)
        flat = linear_index(xp, array, self._size[:d])
        unique, first, groups = xp.unique(flat, return_index=True, return_inverse=True)
        values = group_sum(self._v, wrap(groups.reshape(-1)), int(unique.shape[0]))
        return _make(wrap(xp.ascontiguousarray(array[:, first])), values, self._size, True)

    def to_dense(self, dtype: Any = None, *, masked_grad: bool = True) -> Tensor:
        """The tensor with its zeros."""
        d = self.sparse_dim()
        array = self._i._array
        xp = backends.xp_of(array)
        sizes = self._size[:d]
        if array.size and (bool((array < 0).any()) or bool((array.max(1) >= xp.asarray(sizes)).any())):
            raise RuntimeError("size is inconsistent with indices: an index lies outside of it")
        dense = group_sum(self._v, wrap(linear_index(xp, array, sizes)), numel(sizes)).view(self._size)
        return dense if dtype is None else dense.to(dtype)

    def to_sparse(self, sparse_dim: int | None = None, *, layout: Any = None) -> SparseTensor:
        """Itself; by rows for `layout=torch.sparse_csr`."""
        if layout is layouts.sparse_csr:
            return self.to_sparse_csr()
        return self if sparse_dim in (None, self.sparse_dim()) else to_sparse(self.to_dense(), sparse_dim)

    def _with(self, values: Tensor) -> SparseTensor:
        return _make(self._i, values, self._size, self._coalesced)

    def clone(self, **options: Any) -> SparseTensor:
        """A copy in the graph."""
        return _make(self._i.clone(), self._v.clone(), self._size, self._coalesced)

    def detach(self) -> SparseTensor:
        """The same coordinates and values out of the graph."""
        return self._with(self._v.detach())

    def to(self, *args: Any, **kwargs: Any) -> SparseTensor:
        """The values in another dtype, or both on another device."""
        values = self._v.to(*args, **kwargs)
        return _make(self._i.to(values.device), values, self._size, self._coalesced)

    def type(self, dtype: Any = None) -> Any:
        """The name of the type, or the values in another dtype."""
        return dtypes.tensor_type(self.dtype).replace("torch.", "torch.sparse.") if dtype is None else self.to(dtype)

    def cpu(self) -> SparseTensor:
        """On the CPU."""
        return self.to("cpu")

    def cuda(self, device: Any = None, **options: Any) -> SparseTensor:
        """On a CUDA device."""
        return self.to("cuda" if device is None else device)

    def contiguous(self, **options: Any) -> SparseTensor:
        """Itself."""
        return self

    def is_contiguous(self, **options: Any) -> bool:
        """False."""
        return False

    def numpy(self, *, force: bool = False) -> Any:
        """TypeError: only dense tensors have a numpy array."""
        raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")

    def transpose(self, dim0: int, dim1: int) -> SparseTensor:
        """Two sparse dims swapped."""
        a, b = wrap_dim(dim0, self.ndim), wrap_dim(dim1, self.ndim)
        if builtins.max(a, b) >= self.sparse_dim():
            raise RuntimeError(f"Can't transpose sparse and dense dimensions {dim0} and {dim1}")
        order = list(range(self.sparse_dim()))
        order[a], order[b] = b, a
        size = list(self._size)
        size[a], size[b] = size[b], size[a]
        return _make(self._i[order], self._v, tuple(size), a == b and self._coalesced)

    def t(self) -> SparseTensor:
        """The transposed matrix."""
        return self if self.ndim < 2 else self.transpose(0, 1)

    def permute(self, *dims: Any) -> SparseTensor:
        """The sparse dims in another order, the dense ones in theirs."""
        given = dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims
        order, d = [wrap_dim(x, self.ndim) for x in given], self.sparse_dim()
        if sorted(order) != list(range(self.ndim)):
            raise RuntimeError(f"permute(dims): the dims {tuple(given)} are not those of {self.ndim} each once")
        if builtins.max(order[:d], default=0) >= d:
            raise RuntimeError("permute of sparse and dense dims among each other is not supported")
        values = self._v.permute(0, *[x - d + 1 for x in order[d:]])
        size = tuple(self._size[x] for x in order)
        return _make(self._i[order[:d]], values, size, order[:d] == list(range(d)) and self._coalesced)

    def unsqueeze(self, dim: int) -> SparseTensor:
        """A dim of size 1 at `dim`."""
        at, d = wrap_dim(dim, self.ndim + 1), self.sparse_dim()
        size = (*self._size[:at], 1, *self._size[at:])
        if at > d:
            return _make(self._i, self._v.unsqueeze(at - d + 1), size, self._coalesced)
        row = PUBLIC["zeros_like"](self._i[:1])
        return _make(PUBLIC["cat"]([self._i[:at], row, self._i[at:]]), self._v, size, self._coalesced)

    T = property(t, doc="The transposed matrix.")
    mT = property(lambda self: self.transpose(-2, -1), doc="The last two dims swapped.")
    data = property(lambda self: self.detach(), doc="The tensor out of the graph.")

    # --- arithmetic

    def __add__(self, other: Any) -> Any:
        if isinstance(other, SparseTensor):
            return _joined(self, other, 1)
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")

    def __radd__(self, other: Any) -> Tensor:
        return other + self.to_dense()

    def __sub__(self, other: Any) -> Any:
        return _joined(self, other, -1) if isinstance(other, SparseTensor) else self.__add__(other)

    def __rsub__(self, other: Any) -> Tensor:
        return other - self.to_dense()

    def __mul__(self, other: Any) -> SparseTensor:
        if isinstance(other, SparseTensor):
            a, dense = self.coalesce(), other.to_dense()
            return a._with(a._v * dense[tuple(a._i)])
        if isinstance(other, Tensor) and other.ndim:
            a = self.coalesce()
            return a._with(a._v * other.expand(self._size)[tuple(a._i)])
        return self._with(self._v * other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> SparseTensor:
        return self._with(self._v / other)

    def __neg__(self) -> SparseTensor:
        return self._with(-self._v)

    def __pow__(self, exponent: Any) -> SparseTensor:
        a = self.coalesce()
        return a._with(a._v**exponent)

    def __matmul__(self, other: Any) -> Any:
        return mm(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return mm(self.t(), other.t()).t()

    def add(self, other: Any, *, alpha: Any = 1) -> Any:
        """self + alpha * other, both sparse."""
        return _joined(self, other, alpha) if isinstance(other, SparseTensor) else self.__add__(other)

    def sub(self, other: Any, *, alpha: Any = 1) -> Any:
        """self - alpha * other, both sparse."""
        return _joined(self, other, -alpha) if isinstance(other, SparseTensor) else self.__add__(other)

    mul, div, neg, pow, mm, matmul = __mul__, __truediv__, __neg__, __pow__, __matmul__, __matmul__
    mv = __matmul__

    def _become(self, other: SparseTensor) -> SparseTensor:
        self._i, self._v, self._coalesced = other._i, other._v, other._coalesced
        return self

    def mul_(self, other: Any) -> SparseTensor:
        """`mul` in place."""
        return self._become(self * other)

    def div_(self, other: Any) -> SparseTensor:
        """`div` in place."""
        return self._become(self / other)

    def add_(self, other: Any, *, alpha: Any = 1) -> SparseTensor:
        """`add` in place."""
        return self._become(self.add(other, alpha=alpha))

    def sub_(self, other: Any, *, alpha: Any = 1) -> SparseTensor:
        """`sub` in place."""
        return self._become(self.sub(other, alpha=alpha))

    def zero_(self) -> SparseTensor:
        """All values dropped."""
        return self._become(_make(self._i[:, :0], self._v.detach()[:0], self._size, True))

    def sum(self, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        """The sum of all values, or over some dims."""
        return sum(self, dim, dtype=dtype)

    def norm(self, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
        """The norm of all values."""
        return PUBLIC["norm"](self.coalesce()._v, p)

    def abs(self) -> SparseTensor:
        """Absolute values."""
        a = self.coalesce()
        return a._with(a._v.abs())

    def sqrt(self) -> SparseTensor:
        """Square roots of the values."""
        a = self.coalesce()
        return a._with(a._v.sqrt())

    def index_select(self, dim: int, index: Tensor) -> SparseTensor:
        """Chosen positions of a dim."""
        return to_sparse(self.to_dense().index_select(dim, index), self.sparse_dim())

    def __getitem__(self, index: Any) -> Any:
        found = self.to_dense()[index]
        left = self.sparse_dim() - (self.ndim - found.ndim)
        return to_sparse(found, left) if left > 0 else found

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        values = re.sub(r", dtype=torch\.\w+", "", repr(self._v.detach()))
        where = f", device='{self.device}'" if self.device.type != "cpu" else ""
        own = self.dtype not in (dtypes.get_default_dtype(), dtypes.int64, dtypes.bool)
        kind = f", dtype={self.dtype}" if own else ""
        tail = ""
        if self.grad_fn is not None:
            tail = f", grad_fn=<{type(self.grad_fn).__name__}>"
        elif self.requires_grad:
            tail = ", requires_grad=True"
        coordinates = re.sub(r", dtype=torch\.\w+", "", repr(self._i))
        return (
            f"tensor(indices={_indented(coordinates, 15)},\n       values={_indented(values, 14)},\n       "
            f"size={tuple(self._size)}, nnz={self._nnz()}{where}{kind}, layout=torch.sparse_coo{tail})"
        )

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return _make, (self._i, self._v, self._size, self._coalesced)

    def __deepcopy__(self, memo: dict) -> SparseTensor:
        import copy

        return _make(copy.deepcopy(self._i, memo), copy.deepcopy(self._v, memo), self._size, self._coalesced)

    def __bool__(self) -> bool:
        return bool(self.to_dense())


def _caster(dtype: dtypes.dtype) -> Any:
    def cast(self: SparseTensor) -> SparseTensor:
        return self.to(dtype)

    cast.__doc__ = f"The values as {dtype!r}."
    return cast


for _dtype_name in "float double half bfloat16 int long short bool cfloat cdouble".split():
    setattr(SparseTensor, _dtype_name, _caster(getattr(dtypes, _dtype_name)))


def _indented(text: str, more: int) -> str:
    return text.replace("\n", "\n" + " " * more)


def _handled() -> set[str]:
    from engine import sparse_calls

    return sparse_calls.names()


always[SparseTensor] = _handled


def _make(indices: Tensor, values: Tensor, size: Sequence[int], coalesced: bool = False) -> SparseTensor:
    result = object.__new__(SparseTensor)
    result.__dict__.update(_i=indices, _v=values, _size=tuple(size), _coalesced=coalesced, _vc=[0])
    return result


def rows(at: Tensor, values: Tensor, size: Sequence[int]) -> SparseTensor:
    """The rows `values` (n, *) at the places `at` (n) of a table of that size: the gradient of a lookup."""
    return _make(at.reshape(1, -1).to(dtypes.int64), values, size)


def _joined(a: SparseTensor, b: SparseTensor, alpha: Any) -> SparseTensor:
    """a + alpha * b: the lists one after the other."""
    if a._size != b._size:
        raise RuntimeError(
            f"add: expected sizes of 'self' and 'other' to match, but {list(a._size)} != {list(b._size)}"
        )
    cat = PUBLIC["cat"]
    values = b._v if alpha == 1 else b._v * alpha
    return _make(cat([a._i, b._i], 1), cat([a._v, values], 0), a._size).coalesce()


def sparse_coo_tensor(
    indices: Any, values: Any = None, size: Any = None, *, dtype: Any = None, device: Any = None,
    pin_memory: bool = False, requires_grad: bool = False, check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> SparseTensor:  # fmt: skip
    """A sparse tensor from coordinates (sparse_dim, nnz) and values (nnz, *); size by default as large as needed.

    Repeated coordinates add up.  RuntimeError where the numbers of coordinates and values, or of dims, differ.
    """
    tensor = PUBLIC["tensor"]
    if values is None:  # only the size
        shape = tuple(indices)
        values = PUBLIC["zeros"]((0,), dtype=dtype, device=device)
        made(SparseTensor)
        return _make(wrap(_int64(len(shape))), values, shape, True).requires_grad_(requires_grad)
    i = indices if isinstance(indices, Tensor) else tensor(indices)
    v = values if isinstance(values, Tensor) else tensor(values, dtype=dtype, device=device)
    fresh = not isinstance(values, Tensor)
    i = i.detach().to(dtypes.int64)
    if dtype is not None or device is not None:
        v = v.to(device=device or v.device, dtype=dtype or v.dtype)
        i = i.to(v.device)
    shape_i = i._array.shape
    sparse, count = (shape_i[0], shape_i[1]) if len(shape_i) == 2 else (shape_i[0], 1)
    if len(shape_i) != 2:
        if size is not None and len(tuple(size)) != sparse + v.ndim - 1:
            raise RuntimeError(
                f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(tuple(size))}, sparse_dim "
                f"= {sparse}, dense_dim = {v.ndim - 1}"
            )
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(shape_i)}")
    if v.ndim < 1 or v._array.shape[0] != count:
        found = v._array.shape[0] if v.ndim else 1
        if not v.ndim:
            v = v.unsqueeze(0)
        if found != count:
            raise RuntimeError(
                f"indices and values must have same nnz, but got nnz from indices: {count}, nnz from values: {found}"
            )
    dense = v._array.shape[1:]
    if size is None:
        top = i._array.max(1).tolist() if count else [-1] * sparse
        size = (*[t + 1 for t in top], *dense)
    size = tuple(size)
    if len(size) != sparse + len(dense):
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(size)}, sparse_dim = {sparse}, "
            f"dense_dim = {len(dense)}"
        )
    if check_invariants and count:
        for d, (low, high) in enumerate(zip(i._array.min(1).tolist(), i._array.max(1).tolist())):
            if low < 0:
                raise RuntimeError(f"found negative index {low} for dim {d}")
            if high >= size[d]:
                raise RuntimeError(
                    f"size is inconsistent with indices: for dim {d}, size is {size[d]} but found index {high}"
                )
    if requires_grad and not fresh:
        v = v.detach()
    result = _make(i, v, size, bool(is_coalesced) or count < 2)
    made(SparseTensor)
    return result.requires_grad_() if requires_grad else result


def _int64(rows: int) -> Any:
    import numpy as np

    return np.zeros((rows, 0), np.int64)


def to_sparse(input: Tensor, sparse_dim: int | None = None, *, layout: Any = None) -> SparseTensor:
    """The coordinates and values of what is not zero; `sparse_dim` dims sparse, the others dense.  input (*) -> (*)."""
    if layout is layouts.sparse_csr:
        return input.to_sparse_csr()
    array = input._array
    d = array.ndim if sparse_dim is None else sparse_dim
    if not 0 < d <= array.ndim:
        raise RuntimeError(f"to_sparse: sparse_dim argument must be in >=0 and <={array.ndim} range, but {d} is given")
    xp = backends.xp_of(array)
    some = array != 0
    if d < array.ndim:
        some = some.any(tuple(range(d, array.ndim)))
    found = xp.nonzero(some)
    indices = wrap(xp.stack(found).astype(xp.int64))
    made(SparseTensor)
    return _make(indices, input[tuple(wrap(x) for x in found)], array.shape, True)


def to_dense(input: Tensor, dtype: Any = None, *, masked_grad: bool = True) -> Tensor:
    """`input` itself: it is dense."""
    return input if dtype is None else input.to(dtype)


def _sparse_mask(input: Tensor, mask: SparseTensor) -> SparseTensor:
    """The elements at the coordinates of `mask`."""
    dense = input.to_dense()
    return mask._with(dense[tuple(mask._i)])


def _only_sparse(name: str, kind: str) -> Any:
    def refuse(self: Tensor) -> Any:
        raise RuntimeError(f"{name} expected sparse {kind}tensor layout but got Strided")

    refuse.__name__ = name
    refuse.__doc__ = f"`{name}` of a sparse tensor.  RuntimeError for a dense one."
    return refuse


def mm(mat1: Any, mat2: Any) -> Any:
    """The product of a sparse matrix and a dense or sparse one (or a vector).  mat1 (n, k), mat2 (k, m) -> (n, m).

    Two sparse operands give a sparse result.  RuntimeError for sizes that do not fit.
    """
    if isinstance(mat2, SparseTensor):
        if isinstance(mat1, SparseTensor):
            return to_sparse(mm(mat1, mat2.to_dense()))
        return mm(mat2.t(), mat1.t()).t()
    if not isinstance(mat1, SparseTensor):
        return PUBLIC["mm"](mat1, mat2)
    vector = mat2.ndim == 1
    other = mat2.unsqueeze(1) if vector else mat2
    if mat1.ndim != 2 or mat1._size[1] != other._array.shape[0]:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({'x'.join(map(str, mat1._size))} and "
            f"{other._array.shape[0]}x{other._array.shape[1]})"
        )
    result = coo_mm(mat1._v, other, mat1._i[0], mat1._i[1], mat1._size[0])
    return result.squeeze(1) if vector else result


spmm = dsmm = mm


def addmm(mat: Tensor, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * mat + alpha * (mat1 @ mat2) for a sparse mat1.  mat (n, m), mat1 (n, k), mat2 (k, m) -> (n, m)."""
    product = mm(mat1, mat2)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (mat if beta == 1 else mat * beta)


def hspmm(mat1: SparseTensor, mat2: Tensor) -> SparseTensor:
    """The product as a sparse vector of dense rows.  mat1 (n, k) sparse, mat2 (k, m) -> (n, m)."""
    product = mm(mat1, mat2)
    rows = PUBLIC["unique"](mat1._i[0])
    return _make(rows.unsqueeze(0), product[rows], product._array.shape, True)


hsmm = hspmm


def smm(input: SparseTensor, mat: Tensor) -> SparseTensor:
    """The product as a sparse matrix: all of each row that is not empty.  input (n, k) sparse, mat (k, m) -> (n, m)."""
    found = hspmm(input, mat)
    rows, columns = found._i[0], found._size[1]
    every = rows.new_tensor(range(columns))
    indices = PUBLIC["stack"]([rows.repeat_interleave(columns), every.repeat(rows.numel())])
    return _make(indices, found._v.reshape(-1), found._size, True)


def sspaddmm(input: SparseTensor, mat1: SparseTensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> SparseTensor:
    """beta * input + alpha * `smm(mat1, mat2)`.  input (n, m) sparse, mat1 (n, k) sparse, mat2 (k, m) -> (n, m)."""
    return _joined(input if beta == 1 else input * beta, smm(mat1, mat2), alpha)


def sum(input: SparseTensor, dim: Any = None, dtype: Any = None) -> Any:
    """The sum over all or some dims; sparse while a sparse dim is left.  input (*) -> (* without dim)."""
    values = input._v if dtype is None else input._v.to(dtype)
    if dim is None:
        return values.sum()
    ndim, d = input.ndim, input.sparse_dim()
    dims = {wrap_dim(x, ndim) for x in ([dim] if isinstance(dim, int) else dim)}
    dense = [x - d + 1 for x in dims if x >= d]
    if dense:
        values = values.sum(dense)
    kept = [x for x in range(d) if x not in dims]
    size = tuple(n for x, n in enumerate(input._size) if x not in dims)
    if not kept:
        return values.sum(0)
    return _make(input._i[kept], values, size, input._coalesced and len(kept) == d).coalesce()


def _normalised(input: SparseTensor, dim: int, dtype: Any, log: bool) -> SparseTensor:
    a = input.coalesce()
    d = wrap_dim(dim, a.ndim)
    values = a._v if dtype is None else a._v.to(dtype)
    if d >= a.sparse_dim():
        inner = d - a.sparse_dim() + 1
        return a._with(values.log_softmax(inner) if log else values.softmax(inner))
    array = a._i._array
    xp = backends.xp_of(array)
    kept = [x for x in range(a.sparse_dim()) if x != d]
    flat = linear_index(xp, array[kept], [a._size[x] for x in kept])
    unique, groups = xp.unique(flat, return_inverse=True)
    groups = groups.reshape(-1)
    n = int(unique.shape[0])
    top = xp.full((n, *values._array.shape[1:]), -xp.inf, values._array.dtype)
    xp.maximum.at(top, groups, values._array)
    where = wrap(groups)
    shifted = values - wrap(top[groups])
    weights = shifted.exp()
    total = group_sum(weights, where, n).index_select(0, where)
    return a._with(shifted - total.log() if log else weights / total)


def softmax(input: SparseTensor, dim: int, *, dtype: Any = None) -> SparseTensor:
    """softmax along `dim` over the elements present (absent ones count as -inf).  input (*) -> (*)."""
    return _normalised(input, dim, dtype, False)


def log_softmax(input: SparseTensor, dim: int, *, dtype: Any = None) -> SparseTensor:
    """log_softmax along `dim` over the elements present (absent ones count as -inf).  input (*) -> (*)."""
    return _normalised(input, dim, dtype, True)


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Sequence[int], layout: Any = None) -> SparseTensor:
    """A sparse matrix from the rows of `diagonals`, column j of a row at column j.

    diagonals (k, n), offsets (k) -> (*shape).
    """
    rows, columns, which, position = [], [], [], []
    width = diagonals._array.shape[1]
    for k, offset in enumerate(offsets.tolist()):
        for j in range(builtins.max(0, offset), builtins.min(width, shape[1], shape[0] + offset)):
            rows.append(j - offset)
            columns.append(j)
            which.append(k)
            position.append(j)
    tensor = PUBLIC["tensor"]
    values = diagonals[tensor(which, dtype=dtypes.int64), tensor(position, dtype=dtypes.int64)]
    return _make(tensor([rows, columns], dtype=dtypes.int64), values, tuple(shape))


def _not_sparse(self: Tensor) -> bool:
    raise RuntimeError("is_coalesced expected sparse coordinate tensor layout but got Strided")


def install() -> None:
    """Give Tensor the methods that lead to and from sparse tensors."""
    Tensor.to_sparse = Tensor.to_sparse_coo = to_sparse
    Tensor.smm, Tensor.sspaddmm = smm, sspaddmm
    Tensor.to_dense = to_dense
    Tensor.sparse_mask = _sparse_mask
    Tensor.coalesce = _only_sparse("coalesce", "coordinate ")
    Tensor.indices = _only_sparse("indices", "coordinate ")
    Tensor.values = _only_sparse("values", "")
    Tensor.is_coalesced = _not_sparse
    Tensor.sparse_dim = lambda self: 0
    Tensor.dense_dim = lambda self: self._array.ndim


install()

globals().update(CLASSES)
