"""`NestedTensor` of the layout `torch.jagged`: rows of different lengths, one after the other in one tensor of values.

A nested tensor (B, *, j, *) is a tensor of values whose dim `_ragged_idx - 1` holds the rows of all B samples one
after the other, and offsets (B + 1) that say where each begins; with lengths (B) there may be gaps between them.  Its
graph is that of its values: `requires_grad`, `grad`, hooks and `backward` are theirs.  It has no strided array, so no
kernel can run on it by mistake; what functions do with it stands in `ops.py`, reached by `__torch_function__`.
Two of them have the same ragged size, and can be combined, if they have the same offsets *object*, as in torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from engine.core import dtypes, layouts
from engine.core.checks import wrap_dim
from engine.core.slots import Slot, Slots
from engine.dispatch import OPS, overriding
from engine.nested._internal.nested_int import NestedInt, of_metadata
from engine.tensor import Size, Tensor

__all__ = ["NestedTensor", "made", "of_jagged"]


class Registered(Slots):
    """The functions for nested tensors that the class calls."""

    call: Slot[Callable[..., Any]]  # call(func, types, args, kwargs): a function of nested tensors
    padded: Slot[Callable[..., Any]]  # padded(input, padding, width): the rows as a dense tensor


registered = Registered()


class NestedTensor(Tensor):
    """Rows of different lengths.  See the Note above; made by `torch.nested`'s functions."""

    is_nested = True
    layout = layouts.jagged
    _values: Any
    _offsets: Tensor
    _lengths: Tensor | None
    _ragged_idx: int
    _size: tuple[Any, ...]

    def __new__(cls, values: Tensor, offsets: Tensor, *, lengths: Tensor | None = None, **more: Any) -> NestedTensor:
        """The nested tensor of these values and offsets; `_ragged_idx` is where the ragged dim is."""
        return made(values, offsets, lengths, more.get("_ragged_idx", 1))

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return registered.call(func, types, args, kwargs or {})

    @property
    def _array(self) -> Any:
        raise NotImplementedError(
            "this operation is not implemented for nested tensors of the layout torch.jagged; use values(), unbind() "
            "or to_padded_tensor()"
        )

    _requires_grad = property(lambda self: self._values._requires_grad)  # type: ignore[assignment]
    _edge = property(lambda self: self._values._edge)  # type: ignore[assignment]
    _vc = property(lambda self: self._values._vc)  # type: ignore[assignment]
    _rows = property(lambda self: of_metadata(self._offsets, self._lengths))

    # --- what it is

    shape = property(lambda self: Size(self._size), doc="The sizes; that of the ragged dim is a NestedInt.")

    def size(self, dim: int | None = None) -> Any:
        """The sizes, or the one of `dim`; that of the ragged dim is a NestedInt."""
        return Size(self._size) if dim is None else self._size[wrap_dim(dim, len(self._size))]

    def dim(self) -> int:
        """The number of dims."""
        return len(self._size)

    ndimension = dim
    ndim = property(dim, doc="The number of dims.")

    def numel(self) -> int:
        """The number of values."""
        return int(self._values.numel())

    nelement = numel
    dtype = property(lambda self: self._values.dtype, doc="The type of the values.")
    device = property(lambda self: self._values.device, doc="Where the values are.")
    nbytes = property(lambda self: self._values.nbytes, doc="Bytes of the values.")
    itemsize = property(lambda self: self._values.itemsize, doc="Bytes of a value.")

    def element_size(self) -> int:
        """Bytes of a value."""
        return int(self._values.element_size())

    def is_floating_point(self) -> bool:
        """Return whether the values are floating point."""
        return bool(self._values.is_floating_point())

    def is_complex(self) -> bool:
        """Return whether the values are complex."""
        return bool(self._values.is_complex())

    def is_signed(self) -> bool:
        """Return whether the values are signed."""
        return bool(self._values.is_signed())

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Return whether there are no gaps between the rows and the values are contiguous."""
        return self._lengths is None and bool(self._values.is_contiguous())

    def stride(self, dim: int | None = None) -> Any:
        """Steps between neighbours, in values; that of the batch is a NestedInt."""
        inner = self._values.stride()
        strides = (self._rows.size * inner[self._ragged_idx - 1], *inner)
        return strides if dim is None else strides[wrap_dim(dim, len(strides))]

    def __len__(self) -> int:
        return int(self._size[0])

    def values(self) -> Tensor:
        """The rows one after the other: a view of shape (*, sum of lengths, *)."""
        return self._alias()

    def _alias(self) -> Tensor:
        result: Tensor = OPS["alias"].function(self._values)
        return result

    def offsets(self) -> Tensor:
        """Return the start of each row, and the end of the last: (B + 1)."""
        return self._offsets

    def lengths(self) -> Tensor | None:
        """The length of each row (B) where there are gaps; None where the offsets say it."""
        return self._lengths

    def _get_max_seqlen(self) -> int:
        return self._rows.longest  # type: ignore[no-any-return]

    def _get_min_seqlen(self) -> int:
        return self._rows.shortest  # type: ignore[no-any-return]

    def to_padded_tensor(self, padding: float, output_size: Any = None) -> Tensor:
        """A dense tensor with `padding` behind the shorter rows: (B, *, longest, *)."""
        return registered.padded(self, padding, None if output_size is None else output_size[self._ragged_idx])

    # --- gradient: that of the values

    @property
    def requires_grad(self) -> bool:
        """Return whether gradients flow to the values."""
        return bool(self._values.requires_grad)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._values.requires_grad = value

    def requires_grad_(self, requires_grad: bool = True) -> NestedTensor:
        """Set `requires_grad` in place."""
        self._values.requires_grad_(requires_grad)
        return self

    grad_fn = property(lambda self: self._values.grad_fn, doc="The node that made the values.")
    is_leaf = property(lambda self: self._values.is_leaf, doc="Whether the values are a leaf.")
    output_nr = property(lambda self: self._values.output_nr, doc="Which output of `grad_fn` the values are.")
    retains_grad = property(lambda self: self._values.retains_grad, doc="Whether `retain_grad()` holds.")
    _version = property(lambda self: self._values._version)

    @property
    def grad(self) -> Any:
        """The accumulated gradient with the same rows, or None."""
        found = self._values.grad
        return None if found is None else self._with(found)

    @grad.setter
    def grad(self, value: Any) -> None:
        self._values.grad = value._values if isinstance(value, NestedTensor) else value

    @grad.deleter
    def grad(self) -> None:
        self._values.grad = None

    def backward(
        self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None
    ) -> None:
        """Add the gradients of this tensor to the `.grad` of leaves; gradient: nested, with the same rows."""
        self._values.backward(inner(gradient), retain_graph, create_graph, inner(inputs))

    def register_hook(self, hook: Any) -> Any:
        """Call `hook(grad)` with every gradient, nested; a returned one replaces it."""

        def on_values(gradient: Tensor) -> Any:
            state = overriding.state
            before, state.without = state.without, False  # nested tensors handle calls in a backward pass too
            try:
                found = hook(self._with(gradient))
            finally:
                state.without = before
            return found._values if isinstance(found, NestedTensor) else found

        return self._values.register_hook(on_values)

    def retain_grad(self) -> None:
        """Keep the gradient of a non-leaf in `.grad`."""
        self._values.retain_grad()

    def detach(self) -> NestedTensor:
        """The same values out of the graph."""
        return self._with(self._values.detach())

    def detach_(self) -> NestedTensor:
        """Cut the values from their graph in place."""
        self._values.detach_()
        return self

    data = property(detach, doc="The same values without history.")

    mT = property(lambda self: self.transpose(-2, -1), doc="The last two dims swapped.")

    # --- others of the same rows

    def _with(self, values: Tensor, ragged_idx: int | None = None) -> NestedTensor:
        """Other values in the same rows."""
        return made(values, self._offsets, self._lengths, self._ragged_idx if ragged_idx is None else ragged_idx)

    def _moved(self, values: Tensor) -> NestedTensor:
        """Other values in the same rows, wherever they are."""
        if values.device == self._offsets.device:
            return self._with(values)
        offsets = self._offsets.to(values.device)
        lengths = None if self._lengths is None else self._lengths.to(values.device)
        of_metadata(offsets, lengths, self._rows.size)
        return made(values, offsets, lengths, self._ragged_idx)

    # --- Python

    def __iter__(self) -> Any:
        return iter(self.unbind())

    def __bool__(self) -> bool:
        if self.numel() == 1:
            return bool(self._values.item())
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")

    def item(self) -> Any:
        """The one value.  RuntimeError unless there is exactly one."""
        return self._values.item()

    def numpy(self, *, force: bool = False) -> Any:
        """RuntimeError: rows of different lengths are no array."""
        raise RuntimeError(".numpy() is not supported for tensor subclasses.")

    def tolist(self) -> Any:
        """RuntimeError: use `[row.tolist() for row in nt.unbind()]`."""
        raise RuntimeError(".tolist() is not supported for tensor subclasses, got NestedTensor")

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        tail = ", requires_grad=True" if self.requires_grad else ""
        if self.grad_fn is not None:
            tail = f", grad_fn={self.grad_fn}"
        size = re.sub(r",\)$", ")", str(self._size))
        return f"NestedTensor(size={size}, offsets={self._offsets}{tail}, contiguous={self.is_contiguous()})"

    def __format__(self, spec: str) -> str:
        return object.__format__(self, spec)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _rebuilt, (self._values.detach(), self._offsets, self._lengths, self._ragged_idx, self.requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            if not self.is_leaf:
                raise RuntimeError(
                    "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
                    "moment."
                )
            copy = self._with(self._values.detach().clone())
            copy.requires_grad = self.requires_grad
            memo[id(self)] = copy
        return memo[id(self)]


def _rebuilt(values: Tensor, offsets: Tensor, lengths: Any, ragged_idx: int, requires_grad: bool) -> NestedTensor:
    result = made(values, offsets, lengths, ragged_idx)
    result.requires_grad = requires_grad
    return result


def made(values: Tensor, offsets: Tensor, lengths: Tensor | None, ragged_idx: int) -> NestedTensor:
    """The nested tensor over `values` itself."""
    size: NestedInt = of_metadata(offsets, lengths).size
    shape: list[Any] = [int(offsets.shape[0]) - 1, *values.shape]
    shape[ragged_idx] = size
    result = object.__new__(NestedTensor)
    result.__dict__.update(
        _values=values, _offsets=offsets, _lengths=lengths, _ragged_idx=ragged_idx, _size=tuple(shape)
    )
    overriding.made(NestedTensor)
    return result


def of_jagged(values: Tensor, offsets: Tensor, lengths: Tensor | None = None, ragged_idx: int = 1) -> NestedTensor:
    """The nested tensor that is a view of `values`.  RuntimeError, AssertionError for metadata that does not fit."""
    for position, (name, value) in enumerate((("input", values), ("offsets", offsets)), 1):
        if not isinstance(value, Tensor):
            raise TypeError(
                f"_nested_view_from_jagged(): argument '{name}' (position {position}) must be Tensor, not "
                f"{type(value).__name__}"
            )
    if offsets.dim() != 1:
        raise AssertionError(f"offsets must be 1D, but got {offsets.dim()}D")
    if offsets.dtype not in (dtypes.int64, dtypes.int32):
        raise RuntimeError(f"offsets must be an int32 or int64 tensor, but got {offsets.dtype}")
    if ragged_idx < 1:
        raise ValueError(f"Expected jagged_dim >=1, but got {ragged_idx}.")
    if ragged_idx > values.dim():
        raise IndexError(f"jagged_dim {ragged_idx} is out of range for values of {values.dim()} dims")
    rows = of_metadata(offsets, lengths)
    total = int(values.shape[ragged_idx - 1])
    ends = rows.starts + rows.lengths
    if rows.starts.size and (int(rows.starts.min()) < 0 or int(ends.max()) > total or int(rows.lengths.min()) < 0):
        raise RuntimeError(
            f"the offsets and lengths do not fit the values: rows from {rows.starts.tolist()} to {ends.tolist()}, but "
            f"the ragged dim has size {total}"
        )
    return made(OPS["alias"].function(values), offsets, lengths, ragged_idx)


def torn(sizes: Sequence[int]) -> list[int]:
    """Offsets of rows of these lengths."""
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + size)
    return ends


def inner(value: Any) -> Any:
    """Nested tensors, also in lists and dicts, as their values."""
    if isinstance(value, NestedTensor):
        return value._values
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(inner(v) for v in value)
    return {k: inner(v) for k, v in value.items()} if isinstance(value, dict) else value
