"""Nested tensors (torch.nested): rows of different lengths in one tensor, layout `torch.jagged`.

https://docs.pytorch.org/docs/2.13/nested.html
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.core import layouts
from engine.nested._internal import sdpa  # noqa: F401  it registers attention, and what nested tensors do otherwise
from engine.nested._internal.nested_tensor import NestedTensor, made, of_jagged, torn
from engine.ops import functions as torch
from engine.tensor import Tensor

__all__ = [
    "as_nested_tensor",
    "masked_select",
    "narrow",
    "nested_tensor",
    "nested_tensor_from_jagged",
    "to_padded_tensor",
]


def _jagged(layout: Any, name: str) -> None:
    """NotImplementedError for the layout strided, which is torch's default; RuntimeError for others."""
    if layout is None or layout is layouts.strided:
        raise NotImplementedError(
            f"torch.nested.{name} of the layout torch.strided is not supported: give layout=torch.jagged, or use "
            "nn.utils.rnn.pad_sequence and a mask"
        )
    if layout is not layouts.jagged:
        raise RuntimeError(f"Specified layout is unsupported for nested tensors: {layout}")


def _of_list(tensors: Sequence[Tensor], dtype: Any, device: Any) -> NestedTensor:
    """A nested tensor of tensors whose sizes differ in one dim at most, which are copied one after the other."""
    if not len(tensors):
        raise RuntimeError("Cannot construct a nested tensor from an empty tensor list")
    first = tensors[0]
    for what, get in (("dtype", lambda t: t.dtype), ("device", lambda t: t.device), ("dim", lambda t: t.dim())):
        if any(get(t) != get(first) for t in tensors):
            raise RuntimeError(f"When constructing a nested tensor, all tensors in list must have the same {what}")
    if first.dim() == 0:
        raise RuntimeError("Cannot construct a nested tensor from a list of zero-dim tensors")
    ragged = [d for d in range(first.dim()) if any(t.shape[d] != first.shape[d] for t in tensors)]
    if len(ragged) > 1:
        raise RuntimeError(
            "Cannot represent given tensor list as a nested tensor with the jagged layout. Note that the jagged layout "
            "only allows for a single ragged dimension. For example: (B, *, D_0, D_1, ..., D_N), with ragged * dim."
        )
    at = ragged[0] if ragged else 0
    values = torch.cat(list(tensors), at)
    if dtype is not None or device is not None:
        values = values.to(device=device or values.device, dtype=dtype or values.dtype)
    offsets = torch.tensor(torn([int(t.shape[at]) for t in tensors]), device=values.device)
    return made(values, offsets, None, at + 1)


def nested_tensor(
    tensor_list: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> NestedTensor:
    """A leaf with copies of tensors (or lists of numbers) of the same dims, whose sizes differ in one dim at most.

    tensor_list: B of shape (*, l_i, *) -> (B, *, j, *).  layout: torch.jagged; the layout strided, torch's default,
    raises NotImplementedError.  RuntimeError for an empty list, for tensors of different dtypes, devices or numbers of
    dims, of no dim, or that differ in more than one.
    """
    _jagged(layout, "nested_tensor")
    as_tensors = [t.detach() if isinstance(t, Tensor) else torch.tensor(t, dtype=dtype) for t in tensor_list]
    if pin_memory:
        raise NotImplementedError("torch.nested.nested_tensor(pin_memory=True) is not supported")
    return _of_list(as_tensors, dtype, device).requires_grad_(requires_grad)


def as_nested_tensor(ts: Any, dtype: Any = None, device: Any = None, layout: Any = None) -> NestedTensor:
    """A nested tensor of tensors, in their graph; of one tensor (B, l, *) its rows; a nested one as it is.

    ts: B of shape (*, l_i, *) -> (B, *, j, *).  TypeError for anything but tensors; further errors as `nested_tensor`.
    """
    several = isinstance(ts, list | tuple) and all(isinstance(t, Tensor) for t in ts)
    if not several and not isinstance(ts, Tensor):
        raise TypeError("as_nested_tensor(): Expected first argument to be a tensor or a list / tuple of tensors ")
    if isinstance(ts, NestedTensor):
        if layout not in (None, layouts.jagged):
            raise RuntimeError("as_nested_tensor(): Converting between nested tensor layouts is not supported")
        return ts.to(device=device or ts.device, dtype=dtype or ts.dtype)  # type: ignore[no-any-return]
    _jagged(layout, "as_nested_tensor")
    if several:
        return _of_list(ts, dtype, device)
    if ts.dim() < 2:
        raise RuntimeError("as_nested_tensor(): Expected tensor argument to have dim() > 1")
    values = ts.contiguous().flatten(0, 1).to(device=device or ts.device, dtype=dtype or ts.dtype)
    offsets = torch.arange(int(ts.shape[0]) + 1, device=values.device) * int(ts.shape[1])
    return of_jagged(values, offsets)


def nested_tensor_from_jagged(
    values: Tensor,
    offsets: Tensor | None = None,
    lengths: Tensor | None = None,
    jagged_dim: int | None = None,
    min_seqlen: int | None = None,
    max_seqlen: int | None = None,
) -> NestedTensor:
    """The nested tensor whose rows are parts of `values`, which it shares.

    values (*, sum of lengths, *), the ragged dim first unless `jagged_dim` counts it (1: the first); offsets (B + 1) of
    int64 or int32: where each row begins, and the last ends; lengths (B): of rows with gaps between, or alone without
    offsets.  -> (B, *, j, *).  RuntimeError without offsets and lengths, or where they reach beyond the values.
    """
    if offsets is None:
        if lengths is None:
            raise RuntimeError("nested_tensor_from_jagged(): At least one of offsets or lengths is required.")
        offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        lengths = None
    return of_jagged(values, offsets, lengths, 1 if jagged_dim is None else jagged_dim)


def narrow(tensor: Tensor, dim: int, start: Any, length: Any, layout: Any = layouts.strided) -> NestedTensor:
    """Of each row of `tensor` (B, l, *) `length` places from `start`: a view, (B, j, *).

    start, length: numbers or (B).  RuntimeError for a dim other than 1; NotImplementedError for the layout strided.
    """
    _jagged(layout, "narrow")
    if dim != 1:
        raise RuntimeError("jagged layout only supports dim=1")
    if isinstance(tensor, NestedTensor) or tensor.dim() < 2:
        raise RuntimeError(f"narrow(): expected a dense tensor of 2 dims or more, but got shape {tuple(tensor.shape)}")
    rows, width = int(tensor.shape[0]), int(tensor.shape[1])

    def each(value: Any) -> Tensor:
        found = value if isinstance(value, Tensor) else torch.tensor(value)
        return found.to(device=tensor.device, dtype=torch.int64).expand(rows)

    starts, lengths = each(start), each(length).contiguous()
    if bool((starts < 0).any()) or bool((lengths < 0).any()) or bool((starts + lengths > width).any()):
        raise RuntimeError(
            f"narrow(): start {starts.tolist()} and length {lengths.tolist()} exceed the size ({width}) of dim 1"
        )
    values = tensor.contiguous().flatten(0, 1)
    begins = starts + torch.arange(rows, device=tensor.device) * width
    offsets = torch.cat([begins, begins[-1:] + lengths[-1:]])
    return of_jagged(values, offsets, lengths)


def masked_select(tensor: Tensor, mask: Tensor) -> NestedTensor:
    """The elements of each row where `mask` holds.  tensor (*), mask (*) broadcast together -> (rows, j)."""
    wide, marks = torch.broadcast_tensors(tensor, mask)
    counts = marks.sum(-1).reshape(-1).to(torch.int64)
    return of_jagged(torch.masked_select(wide, marks), torch.cat([counts.new_zeros(1), counts.cumsum(0)]))


def to_padded_tensor(input: Tensor, padding: float, output_size: Any = None) -> Tensor:
    """A dense tensor with `padding` behind the shorter rows.  input (B, *, j, *) -> (B, *, longest, *).

    output_size: the sizes of the result, of which that of the ragged dim counts.  RuntimeError for rows with gaps.
    """
    if not isinstance(input, NestedTensor):
        raise NotImplementedError(f"to_padded_tensor(): expected a nested tensor, but got {type(input).__name__}")
    return input.to_padded_tensor(padding, output_size)  # type: ignore[no-any-return]
