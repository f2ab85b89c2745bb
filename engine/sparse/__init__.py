"""Sparse tensors (torch.sparse): coordinates, rows, products and gradients.

`coordinates` and `compressed` hold the tensors of the layouts `sparse_coo` and `sparse_csr`; `arithmetic`, `products`,
`reductions`, `shapes` and `factories` what is done with them, as functions and as methods; `calls` brings the engine's
functions here.  https://docs.pytorch.org/docs/2.13/sparse.html
"""

from __future__ import annotations

from typing import Any

from engine.dispatch.overriding import always
from engine.sparse import calls
from engine.sparse.coordinates import SparseTensor, make, registered, rows
from engine.sparse.factories import check_sparse_tensor_invariants, sized, sparse_coo_tensor, spdiags, to_sparse
from engine.sparse.products import (
    addmm,
    dsmm,
    hsmm,
    hspmm,
    mm,
    saddmm,
    sampled_addmm,
    smm,
    spmm,
    spsolve,
    sspaddmm,
)
from engine.sparse.reductions import log_softmax, softmax, sum
from engine.sparse.typed import CLASSES
from engine.tensor import Tensor

__all__ = [
    "SparseTensor",
    "addmm",
    "check_sparse_tensor_invariants",
    "dsmm",
    "hsmm",
    "hspmm",
    "log_softmax",
    "mm",
    "rows",
    "saddmm",
    "sampled_addmm",
    "sized",
    "smm",
    "softmax",
    "sparse_coo_tensor",
    "spdiags",
    "spmm",
    "spsolve",
    "sspaddmm",
    "sum",
    "to_dense",
    "to_sparse",
]

_make = make  # what older pickles name


def to_dense(input: Tensor, dtype: Any = None, *, masked_grad: bool = True) -> Tensor:
    """`input` itself: it is dense."""
    return input if dtype is None else input.to(dtype)


def _sparse_mask(input: Tensor, mask: SparseTensor) -> SparseTensor:
    """The elements at the coordinates of `mask`.  input (*), mask (*) -> (*).  RuntimeError for other sizes."""
    if tuple(input.shape) != tuple(mask.shape):
        raise RuntimeError(
            f"sparse_mask(): operands have incompatible sizes; self has size {list(input.shape)} but mask has size "
            f"{list(mask.shape)}"
        )
    dense = input.to_dense()
    return mask._with(dense[tuple(mask._i)])


def _only_sparse(name: str, kind: str) -> Any:
    def refuse(self: Tensor) -> Any:
        raise RuntimeError(f"{name} expected sparse {kind}tensor layout but got Strided")

    refuse.__name__ = name
    refuse.__doc__ = f"`{name}` of a sparse tensor.  RuntimeError for a dense one."
    return refuse


def _not_sparse(self: Tensor) -> bool:
    raise RuntimeError("is_coalesced expected sparse coordinate tensor layout but got Strided")


def install() -> None:
    """Give Tensor the methods that lead to and from sparse tensors, and sparse tensors their own."""
    registered.call = calls.call
    for name, function in calls.METHODS.items():
        setattr(SparseTensor, name, function)
    SparseTensor.T = property(calls.METHODS["t"], doc="The transposed matrix.")
    SparseTensor.mT = property(lambda self: self.transpose(-2, -1), doc="The last two dims swapped.")
    SparseTensor.real = property(lambda self: self._with(self._v.real), doc="The real parts.")
    SparseTensor.imag = property(lambda self: self._with(self._v.imag), doc="The imaginary parts.")
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
    always[SparseTensor] = calls.names


install()

globals().update(CLASSES)
