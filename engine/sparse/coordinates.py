"""The tensor of layout `sparse_coo`: what it holds, its forms, its text and how it is copied.

A `SparseTensor` is a Tensor without a strided array: indices (sparse_dim, nnz) and values (nnz, *dense).  Functions
(`torch.mm(sparse, dense)`) come to its methods by `__torch_function__` and `calls.py`; what it cannot do raises
NotImplementedError.  What a user makes sparse therefore puts listeners into the functions (0.4 us a call, Note [Calls
that a class handles]); gradients of embeddings do not.  https://docs.pytorch.org/docs/2.13/sparse.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine import backends
from engine.autograd.versions import guard_again
from engine.core import dtypes, grad_mode, layouts, tensor_messages
from engine.core.checks import numel, wrap_dim
from engine.core.printing import _with_suffixes, contents
from engine.core.slots import Slot, Slots
from engine.ops.coo import group_sum, linear_index
from engine.tensor import Size, Tensor, wrap

__all__ = ["SparseTensor", "bare_text", "checked_size", "for_writing", "make", "rows"]


class SparseTensor(Tensor):
    """A tensor given by coordinates and values of the elements that are not zero; repeated coordinates add up."""

    is_sparse = True
    layout = layouts.sparse_coo

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return registered.call(func, types, args, kwargs or {})

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
        """The gradient at the coordinates of this tensor, sparse and each coordinate once."""
        found = self._v.grad
        return None if found is None else self.gradient_of(found)

    def gradient_of(self, found: Tensor) -> SparseTensor:
        """A gradient of the values as one of this tensor: each coordinate once."""
        if self._coalesced:
            return make(self._i, found, self._size, True)
        array = self._i._array
        xp = backends.xp_of(array)
        first = xp.unique(linear_index(xp, array, self._size), return_index=True)[1]
        return make(wrap(xp.ascontiguousarray(array[:, first])), found[wrap(first)], self._size, True)

    @grad.setter
    def grad(self, value: Any) -> None:
        self._v.grad = value._v if isinstance(value, SparseTensor) else value

    def __len__(self) -> int:
        return self._size[0]

    def sparse_dim(self) -> int:
        """Return the number of dims of the coordinates."""
        return self._i._array.shape[0]

    def dense_dim(self) -> int:
        """Return the number of dims of each value."""
        return len(self._size) - self.sparse_dim()

    _dimI, _dimV = sparse_dim, dense_dim

    def _nnz(self) -> int:
        return self._i._array.shape[1]

    def is_coalesced(self) -> bool:
        """Return whether the coordinates are known to be sorted and unique."""
        return self._coalesced

    def in_order(self) -> bool:
        """Return whether the coordinates are sorted, each once."""
        array = self._i._array
        flat = linear_index(backends.xp_of(array), array, self._size)
        return bool((flat[1:] > flat[:-1]).all())

    def _indices(self) -> Tensor:
        return self._i

    def _values(self) -> Tensor:
        return self._v.detach() if self._v.requires_grad else self._v

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
            return make(self._i, self._v, self._size, True)
        flat = linear_index(xp, array, self._size[:d])
        if not d:  # no sparse dim: all values are of one place
            return make(self._i[:, :1], self._v.sum(0, keepdim=True).to(self.dtype), self._size, True)
        unique, first, groups = xp.unique(flat, return_index=True, return_inverse=True)
        values = group_sum(self._v, wrap(groups.reshape(-1)), int(unique.shape[0]))
        return make(wrap(xp.ascontiguousarray(array[:, first])), values, self._size, True)

    def to_dense(self, dtype: Any = None, *, masked_grad: bool = True) -> Tensor:
        """The tensor with its zeros."""
        d = self.sparse_dim()
        array = self._i._array
        xp = backends.xp_of(array)
        sizes = self._size[:d]
        if d and array.size and (bool((array < 0).any()) or bool((array.max(1) >= xp.asarray(sizes)).any())):
            raise RuntimeError("size is inconsistent with indices: an index lies outside of it")
        dense = group_sum(self._v, wrap(linear_index(xp, array, sizes)), numel(sizes)).view(self._size)
        guard_again(dense, self)
        return dense if dtype is None else dense.to(dtype)

    def _coalesced_(self, coalesced: bool) -> SparseTensor:
        """Declare that the coordinates are sorted and unique, or that they are not."""
        self._coalesced = bool(coalesced)
        return self

    def _become(self, other: SparseTensor) -> SparseTensor:
        """Take the coordinates, the values and the size of `other`."""
        self._i, self._v, self._size, self._coalesced = other._i, other._v, other._size, other._coalesced
        self._vc[0] += 1
        return self

    def _with(self, values: Tensor) -> SparseTensor:
        return make(self._i, values, self._size, self._coalesced)

    def clone(self, **options: Any) -> SparseTensor:
        """A copy in the graph."""
        return make(self._i.clone(), self._v.clone(), self._size, self._coalesced)

    def detach(self) -> SparseTensor:
        """The same coordinates and values out of the graph."""
        made = self._with(self._v.detach())
        made._vc = self._vc
        return made

    def detach_(self) -> SparseTensor:
        """Take this tensor out of the graph."""
        self._v = self._v.detach()
        return self

    def to(self, *args: Any, **kwargs: Any) -> SparseTensor:
        """The values in another dtype, or both on another device."""
        values = self._v.to(*args, **kwargs)
        return make(self._i.to(values.device), values, self._size, self._coalesced)

    def type(self, dtype: Any = None) -> Any:
        """The name of the type, or the values in another dtype, given as dtype, class or name of a type."""
        if isinstance(dtype, str):
            dtype = dtype.replace("torch.sparse.", "torch.")
        elif dtype is not None:
            dtype = getattr(dtype, "dtype", dtype)
        if dtype is not None and not isinstance(dtype, dtypes.dtype):
            return self._with(self._v.type(dtype))
        return dtypes.tensor_type(self.dtype).replace("torch.", "torch.sparse.") if dtype is None else self.to(dtype)

    def cpu(self) -> SparseTensor:
        """On the CPU."""
        return self.to("cpu")

    def cuda(self, device: Any = None, **options: Any) -> SparseTensor:
        """On a CUDA device."""
        return self.to("cuda" if device is None else device)

    def type_as(self, other: Tensor) -> SparseTensor:
        """The values in the dtype of `other`."""
        return self.to(other.dtype)

    def is_contiguous(self, **options: Any) -> bool:
        """Return False: there are no strides."""
        return False

    def contiguous(self, **options: Any) -> SparseTensor:
        """Itself: coordinates have no other order in memory."""
        return self

    def is_pinned(self, device: Any = None) -> bool:
        """Return whether the values are in page-locked memory."""
        return self._v.is_pinned()

    def element_size(self) -> int:
        """The bytes of one value."""
        return self._v.element_size()

    def is_same_size(self, other: Tensor) -> bool:
        """Return whether the sizes are equal."""
        return tuple(self._size) == tuple(other.shape)

    def stride(self, dim: int | None = None) -> Any:
        """Zeros: there are no strides."""
        return (0,) * len(self._size) if dim is None else 0

    def item(self) -> Any:
        """The number of a tensor of one element."""
        return self.to_dense().item()

    def is_nonzero(self) -> bool:
        """Return whether the one element is not zero."""
        return bool(self.to_dense())

    __bool__ = is_nonzero

    def data_ptr(self) -> int:
        """RuntimeError: there is no storage."""
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    def storage(self) -> Any:
        """NotImplementedError: there is no storage."""
        raise NotImplementedError("Cannot access storage of SparseTensorImpl")

    untyped_storage = is_shared = share_memory_ = storage

    def tolist(self) -> Any:
        """RuntimeError: only dense tensors have lists."""
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage: use to_dense() first")

    def numpy(self, *, force: bool = False) -> Any:
        """TypeError: only dense tensors have a numpy array."""
        raise TypeError("can't convert Sparse layout tensor to numpy. Use Tensor.to_dense() first.")

    @property
    def data(self) -> SparseTensor:
        """The tensor out of the graph."""
        return self.detach()

    @data.setter
    def data(self, source: Any) -> None:
        if not isinstance(source, SparseTensor):
            tensor_messages.refuse_data()
        values = source._v.detach()
        if self._v.requires_grad:
            values.requires_grad_()
        self._i, self._v, self._size, self._coalesced = source._i, values, source._size, source._coalesced

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        head = f"tensor(indices={bare_text(self._i, 15)},\n       values={bare_text(self._v.detach(), 14)}"
        return _with_suffixes(head, [f"size={tuple(self._size)}", *self._suffixes()], 7, force_newline=True)

    def _suffixes(self) -> list[str]:
        """Return the fields after the size in the text: number of elements, device, dtype, layout and gradient."""
        found = [f"nnz={self._nnz()}"]
        if self.device.type != "cpu":
            found.append(f"device='{self.device}'")
        if self.dtype not in (dtypes.get_default_dtype(), dtypes.int64, dtypes.bool):
            found.append(f"dtype={self.dtype}")
        found.append(f"layout={self.layout}")
        if self.grad_fn is not None:
            found.append(f"grad_fn=<{type(self.grad_fn).__name__}>")
        elif self.requires_grad:
            found.append("requires_grad=True")
        return found

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return make, (self._i, self._v, self._size, self._coalesced)

    def __deepcopy__(self, memo: dict) -> SparseTensor:
        import copy

        return make(copy.deepcopy(self._i, memo), copy.deepcopy(self._v, memo), self._size, self._coalesced)


def _caster(dtype: dtypes.dtype) -> Any:
    def cast(self: SparseTensor) -> SparseTensor:
        return self.to(dtype)

    cast.__doc__ = f"The values as {dtype!r}."
    return cast


for _name in "float double half bfloat16 int long short bool cfloat cdouble".split():
    setattr(SparseTensor, _name, _caster(getattr(dtypes, _name)))
SparseTensor.char, SparseTensor.byte = _caster(dtypes.int8), _caster(dtypes.uint8)  # type: ignore[method-assign]


class Registered(Slots):
    """The function of `calls.py`, which knows their functions, that sparse tensors call."""

    call: Slot[Callable[..., Any]]  # call(func, types, args, kwargs): a function called with sparse tensors


registered = Registered()


def bare_text(tensor: Tensor, indent: int) -> str:
    """The text of indices or values: without dtype, with the size where there are no elements."""
    array = tensor._array
    if not array.size:
        return f"tensor([], size={tuple(array.shape)})"
    return f"tensor({contents(backends.of_array(array).to_host(array), indent + 7)})"


def for_writing(tensor: SparseTensor) -> SparseTensor:
    """The tensor, about to be written in place.  RuntimeError for a leaf that requires grad."""
    if tensor._v.requires_grad and tensor._v.is_leaf and grad_mode.is_grad_enabled():
        raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
    return tensor


def checked_size(size: Sequence[int]) -> tuple[int, ...]:
    """Sizes as a tuple.  RuntimeError for a negative one."""
    for n in size:
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {list(size)}")
    return tuple(size)


def make(indices: Tensor, values: Tensor, size: Sequence[int], coalesced: bool = False) -> SparseTensor:
    result = object.__new__(SparseTensor)
    result.__dict__.update(_i=indices, _v=values, _size=tuple(size), _coalesced=coalesced, _vc=[0])
    return result


def rows(at: Tensor, values: Tensor, size: Sequence[int]) -> SparseTensor:
    """The rows `values` (n, *) at the places `at` (n) of a table of that size: the gradient of a lookup."""
    return make(at.reshape(1, -1).to(dtypes.int64), values, size)
