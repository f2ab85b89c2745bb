"""Products of sparse matrices with dense and sparse ones."""

from __future__ import annotations

from typing import Any

from engine import backends
from engine.autograd.versions import guard
from engine.core import dtypes
from engine.core.grad_mode import mode
from engine.dispatch import PUBLIC
from engine.ops.coo import coo_mm, group_sum, linear_index
from engine.sparse.coordinates import SparseTensor, for_writing, make
from engine.tensor import Tensor, wrap

__all__ = [
    "FUNCTIONS",
    "METHODS",
    "addmm",
    "dsmm",
    "hsmm",
    "hspmm",
    "mm",
    "saddmm",
    "sampled_addmm",
    "smm",
    "spmm",
    "sspaddmm",
]


def _check_matrices(mat1: Any, mat2: Any) -> None:
    if mat1.ndim != 2 or mat2.ndim != 2 or mat1.shape[1] != mat2.shape[0]:
        sizes = ("x".join(map(str, m.shape)) for m in (mat1, mat2))
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied ({} and {})".format(*sizes))


def _joined_rows(mat1: SparseTensor, mat2: SparseTensor) -> SparseTensor:
    """The product of two sparse matrices: each element of `mat1` times the row of `mat2` that its column names."""
    a, b = mat1.coalesce(), mat2.coalesce()
    xp = backends.xp_of(a._i._array)
    (rows, columns), (starts, ends) = a._i._array, b._i._array
    first, last = (xp.searchsorted(starts, columns, side=side) for side in ("left", "right"))
    many = last - first
    which = xp.repeat(xp.arange(rows.shape[0]), many)
    offset = xp.arange(int(many.sum())) - xp.repeat(xp.cumsum(many) - many, many)
    there = xp.repeat(first, many) + offset
    size = (a._size[0], b._size[1])
    flat = linear_index(xp, xp.stack([rows[which], ends[there]]), size)
    unique, groups = xp.unique(flat, return_inverse=True)
    products = a._v.index_select(0, wrap(which)) * b._v.index_select(0, wrap(there))
    values = group_sum(products, wrap(groups.reshape(-1)), int(unique.shape[0]))
    width = max(size[1], 1)
    return make(wrap(xp.stack([unique // width, unique % width])), values, size, True)


def _reduced(mat1: SparseTensor, mat2: Tensor, reduce: str) -> Tensor:
    """`mm` whose sums over the elements of a row are means, or the largest or smallest products."""
    a = mat1.coalesce()
    rows = a._i._array[0]
    xp = backends.xp_of(rows)
    n = a._size[0]
    counts = xp.bincount(rows, minlength=n)
    if reduce == "mean":
        total = mm(a, mat2)
        return total / wrap(xp.maximum(counts, 1)).to(total.dtype).unsqueeze(1)
    products = a._v.unsqueeze(1) * mat2.index_select(0, a._i[1])
    if not rows.shape[0]:
        return products.sum(0, keepdim=True).expand(n, -1).clone()
    order = products._array if reduce == "amax" else -products._array
    filled = xp.nonzero(counts)[0]
    begin = (xp.cumsum(counts) - counts)[filled]
    top = xp.repeat(xp.maximum.reduceat(order, begin, axis=0), counts[filled], axis=0)
    at = xp.arange(rows.shape[0]).reshape(-1, 1)
    first = xp.minimum.reduceat(xp.where((order == top) | (order != order), at, rows.shape[0]), begin, axis=0)
    found = products.gather(0, wrap(first.astype(xp.int64)))
    return PUBLIC["zeros"](n, found.shape[1], dtype=found.dtype).index_copy(0, wrap(filled.astype(xp.int64)), found)


def mm(mat1: Any, mat2: Any, reduce: str = "sum") -> Any:
    """The product of a sparse matrix and a dense or sparse one (or a vector).  mat1 (n, k), mat2 (k, m) -> (n, m).

    Two sparse operands give a sparse result.  reduce: what the products of a row become: "sum", "mean", "amax" or
    "amin" (0 where a row has none).  RuntimeError for sizes that do not fit.
    """
    if reduce not in ("sum", "mean", "amax", "amin"):
        raise RuntimeError(f"sparse_mm_reduce: reduce type of {reduce} has not been enabled.")
    if isinstance(mat2, SparseTensor):
        if not isinstance(mat1, SparseTensor):
            return mv(mat2.t(), mat1) if mat1.ndim == 1 else mm(mat2.t(), mat1.t()).t()
        _check_matrices(mat1, mat2)
        return _joined_rows(mat1, mat2)
    if not isinstance(mat1, SparseTensor):
        return PUBLIC["mm"](mat1, mat2)
    if mat2.ndim == 1:
        return mv(mat1, mat2)
    _check_matrices(mat1, mat2)
    if reduce != "sum":
        found = _reduced(mat1, mat2, reduce)
    else:
        found = coo_mm(mat1._v, mat2, mat1._i[0], mat1._i[1], mat1._size[0])
    return guard(found, mat1, mat2) if mat1.is_sparse_csr and found.requires_grad else found


spmm = dsmm = mm


def mv(input: SparseTensor, vec: Tensor) -> Tensor:
    """The product with a vector.  input (n, k), vec (k) -> (n)."""
    if input.ndim != 2 or vec.ndim != 1 or input._size[1] != vec.shape[0]:
        raise RuntimeError(
            f"mv: a matrix and a vector of its width are expected, got sizes {list(input._size)} and {list(vec.shape)}"
        )
    return coo_mm(input._v, vec.unsqueeze(1), input._i[0], input._i[1], input._size[0]).squeeze(1)


def bmm(input: Any, mat2: Any) -> Tensor:
    """The products of a batch.  input (B, n, k) sparse, mat2 (B, k, m) -> (B, n, m): one product of blocks."""
    if not isinstance(input, SparseTensor) or isinstance(mat2, SparseTensor) or input.sparse_dim() != 3:
        raise RuntimeError("bmm: Expected all tensors to be sparse in input and dense in mat2, of three sparse dims")
    (count, n, k), i = input._size, input._i
    if tuple(mat2.shape[:2]) != (count, k):
        raise RuntimeError(
            f"bmm: Argument #2: Expected dims (0, 1) of size ({count}, {k}), got {tuple(mat2.shape[:2])}"
        )
    at = PUBLIC["stack"]([i[0] * n + i[1], i[0] * k + i[2]])
    return mm(make(at, input._v, (count * n, count * k)), mat2.reshape(count * k, -1)).view(count, n, -1)


def linear(input: Tensor, weight: SparseTensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.t() + bias for a sparse weight.  input (*, k), weight (m, k), bias (m) -> (*, m)."""
    if isinstance(input, SparseTensor) or not isinstance(weight, SparseTensor):
        raise NotImplementedError("linear: a dense input and a sparse weight are expected, use to_dense() first")
    rows = input.reshape(-1, input.shape[-1])
    found = mm(weight, rows.t()).t().reshape(*input.shape[:-1], weight._size[0])
    return found if bias is None else found + bias


def _of_legacy(args: tuple[Any, ...], beta: Any, alpha: Any) -> tuple[Any, ...]:
    """input, mat1, mat2, beta, alpha; also of the old form `f([beta,] input, [alpha,] mat1, mat2)`."""
    rest = list(args)
    if rest and not isinstance(rest[0], Tensor):
        beta = rest.pop(0)
    if len(rest) > 1 and not isinstance(rest[1], Tensor):
        alpha = rest.pop(1)
    if len(rest) != 3:
        raise TypeError(f"expected input, mat1 and mat2, got {len(rest)} tensors")
    return *rest, beta, alpha


def _check_rows(*matrices: Tensor) -> None:
    """Refuse an `addmm` with a sparse first matrix unless all three are by rows."""
    names = ["SparseCsr" if m.is_sparse_csr else "Sparse" if m.is_sparse else "Strided" for m in matrices]
    if "SparseCsr" not in names:
        raise RuntimeError("addmm_sparse_dense: expected strided result tensor, got tensor with layout Sparse")
    if names != ["SparseCsr"] * 3:
        raise RuntimeError("addmm: computation on CPU is not implemented for {} + {} @ {}".format(*names))


def addmm(mat: Any, *args: Any, beta: Any = 1, alpha: Any = 1, **named: Any) -> Tensor:
    """beta * mat + alpha * (mat1 @ mat2) for a sparse mat1.  mat (n, m), mat1 (n, k), mat2 (k, m) -> (n, m).

    Three matrices by rows give one by rows; else mat is dense.  RuntimeError for other layouts of mat.
    """
    given = (*args, *(named[k] for k in ("mat1", "mat2") if k in named))
    mat, mat1, mat2, beta, alpha = _of_legacy((mat, *given), beta, alpha)
    if isinstance(mat, SparseTensor):
        _check_rows(mat, mat1, mat2)
        product = mat1.mm(mat2)
        if mat._size != product._size:
            raise RuntimeError("expand is unsupported for SparseCsr tensors")
    else:
        product = mm(mat1, mat2)
        if isinstance(product, SparseTensor):
            product = product.to_dense()
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    mat = mat if isinstance(mat, SparseTensor) else mat.expand(product.shape)
    return product + (mat if beta == 1 else mat * beta)


def addmm_(mat: Tensor, *args: Any, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """`addmm` in place."""
    return mat.copy_(addmm(mat, *args, beta=beta, alpha=alpha))


def addmv(input: Tensor, mat: SparseTensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """beta * input + alpha * (mat @ vec) for a sparse mat.  input (n), mat (n, k), vec (k) -> (n)."""
    return alpha * mv(mat, vec) + beta * input


def _into(out: Any, found: SparseTensor) -> SparseTensor:
    return found if out is None else for_writing(out)._become(found)


def hspmm(mat1: SparseTensor, mat2: Tensor, *, out: Any = None) -> SparseTensor:
    """The product as a sparse vector of dense rows.  mat1 (n, k) sparse, mat2 (k, m) -> (n, m)."""
    product = mm(mat1, mat2)
    rows = PUBLIC["unique"](mat1._i[0])
    return _into(out, make(rows.unsqueeze(0), product[rows], product._array.shape))


hsmm = hspmm


def smm(input: SparseTensor, mat: Tensor) -> SparseTensor:
    """The product as a sparse matrix: all of each row that is not empty.  input (n, k) sparse, mat (k, m) -> (n, m)."""
    found = hspmm(input, mat)
    rows, columns = found._i[0], found._size[1]
    every = rows.new_tensor(range(columns), dtype=dtypes.int64)
    indices = PUBLIC["stack"]([rows.repeat_interleave(columns), every.repeat(rows.numel())])
    return make(indices, found._v.reshape(-1), found._size)


def sspaddmm(input: Any, *args: Any, beta: Any = 1, alpha: Any = 1, out: Any = None) -> SparseTensor:
    """beta * input + alpha * `smm(mat1, mat2)`.  input (n, m) sparse, mat1 (n, k) sparse, mat2 (k, m) -> (n, m)."""
    input, mat1, mat2, beta, alpha = _of_legacy((input, *args), beta, alpha)
    if not (isinstance(input, SparseTensor) and isinstance(mat1, SparseTensor)):
        raise RuntimeError("sspaddmm: input and mat1 are expected to be sparse")
    more = smm(mat1, mat2)
    if input._size != more._size:
        raise RuntimeError(f"sspaddmm: expected input of size {list(more._size)}, got {list(input._size)}")
    values = [input._v if beta == 1 else input._v * beta, more._v if alpha == 1 else more._v * alpha]
    cat = PUBLIC["cat"]
    return _into(out, make(cat([input._i, more._i], 1), cat(values), input._size))


saddmm = sspaddmm


def sampled_addmm(
    input: SparseTensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0, out: Any = None
) -> SparseTensor:
    """beta * input + alpha * (mat1 @ mat2) at the places of `input` alone.  input (n, m), mat1 (n, k), mat2 (k, m).

    -> (n, m) sparse, of the layout of `input`.  RuntimeError for sizes that do not fit.
    """
    if mat1.shape[0] != input.shape[-2]:
        raise RuntimeError("sampled_addmm: self.shape[-2] must match mat1.shape[-2]")
    if mat2.shape[-1] != input.shape[-1]:
        raise RuntimeError("sampled_addmm: self.shape[-1] must match mat2.shape[-1]")
    if mat1.shape[1] != mat2.shape[0]:
        raise RuntimeError(
            f"sampled_addmm: mat1 and mat2 shapes cannot be multiplied ({'x'.join(map(str, mat1.shape))} and "
            f"{'x'.join(map(str, mat2.shape))})"
        )
    if out is not None:
        if mode.enabled and any(x.requires_grad for x in (input, mat1, mat2)):
            raise RuntimeError(
                "sparse_sampled_addmm(): functions with out=... arguments don't support automatic differentiation, but "
                "one of the arguments requires grad."
            )
        if out.layout is not input.layout:
            raise RuntimeError(
                f"sampled_addmm: Expected result to have the layout {input.layout} of the input, but got {out.layout}"
            )
    rows, columns = input._i
    products = (mat1.index_select(0, rows) * mat2.t().index_select(0, columns)).sum(1) * alpha
    found = input._with(products if beta == 0 else products + input._v * beta)
    if found.requires_grad:
        guard(found._v, input, mat1, mat2)
    return _into(out, found)


def spsolve(input: SparseTensor, other: Tensor, *, left: bool = True) -> Tensor:
    """X with `input @ X = other`, by scipy's sparse LU on the CPU.  input (n, n) of the layout sparse_csr, other (n).

    -> (n).  RuntimeError for another layout, sizes that do not fit and operands that require grad, ImportError without
    scipy.
    """
    if not input.is_sparse_csr:
        raise RuntimeError(f"spsolve() expects a matrix of the layout torch.sparse_csr, but got {input.layout}")
    n = input.shape[0]
    if tuple(input.shape) != (n, n) or tuple(other.shape) != (n,) or input.dtype is not other.dtype:
        raise RuntimeError(
            f"spsolve() expects a square matrix and a vector of its size and dtype, but got {list(input.shape)} "
            f"({input.dtype}) and {list(other.shape)} ({other.dtype})"
        )
    if mode.enabled and (input.requires_grad or other.requires_grad):
        raise RuntimeError("spsolve() has no derivative: detach() the operands, or use torch.linalg.solve")
    if not left:
        raise RuntimeError("spsolve(left=False) is not supported: solve with the transposed matrix")
    try:
        from scipy.sparse import csr_matrix
        from scipy.sparse.linalg import spsolve as solve
    except ImportError:
        raise ImportError(
            "sparse.spsolve is computed by scipy, which is not installed\nhint: pip install scipy"
        ) from None
    parts = (input._v, input._col, input._crow)  # type: ignore[attr-defined]
    values, columns, rows = (backends.of_array(t._array).to_host(t._array) for t in parts)
    right = backends.of_array(other._array).to_host(other._array)
    found = solve(csr_matrix((values, columns, rows), shape=(n, n)), right)
    return wrap(backends.xp_of(other._array).asarray(found, dtype=other._array.dtype))


METHODS: dict[str, Any] = {
    "mm": mm,
    "matmul": mm,
    "mv": mv,
    "__matmul__": mm,
    "smm": smm,
    "sspaddmm": sspaddmm,
    "bmm": bmm,
    "__rmatmul__": lambda self, other: mm(other, self),
}
FUNCTIONS: dict[str, Any] = {
    **METHODS,
    **{f.__name__: f for f in (hspmm, addmm, addmm_, addmv, linear)},
}
