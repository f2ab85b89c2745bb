"""Batches of sequences of different lengths: padded and packed."""

from __future__ import annotations

import builtins
from collections import namedtuple
from collections.abc import Iterable
from typing import Any

from engine.autograd.graph import name_node
from engine.autograd.versions import guard
from engine.core import dtypes
from engine.ops import functions as torch
from engine.tensor import Tensor

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]

PackedSequence_ = namedtuple(
    "PackedSequence_",
    ["data", "batch_sizes", "sorted_indices", "unsorted_indices"],
    defaults=(None, None),
)
PackedSequence_.__module__ = __name__


class PackedSequence(PackedSequence_):
    """Sequences one after another by step: data (sum of lengths, *), batch_sizes (T) on the CPU."""

    __slots__ = ()

    def __new__(
        cls,
        data: Any,
        batch_sizes: Any = None,
        sorted_indices: Any = None,
        unsorted_indices: Any = None,
    ) -> PackedSequence:
        return super().__new__(cls, *_packed_sequence_init_args(data, batch_sizes, sorted_indices, unsorted_indices))

    def pin_memory(self) -> PackedSequence:
        """The same in page-locked memory."""
        more = [None if t is None else t.pin_memory() for t in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(self.data.pin_memory(), self.batch_sizes, *more)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The data in another dtype or on another device, the indices along with it."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        more = [None if t is None else t.to(data.device) for t in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(data, self.batch_sizes, *more)

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """On a GPU."""
        return self.to(*args, **kwargs) if args or "device" in kwargs else self.to(device="cuda", **kwargs)

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """On the CPU."""
        return self.to(device="cpu")

    def double(self) -> PackedSequence:
        """As float64."""
        return self.to(dtype=torch.double)

    def float(self) -> PackedSequence:
        """As float32."""
        return self.to(dtype=torch.float)

    def half(self) -> PackedSequence:
        """As float16."""
        return self.to(dtype=torch.half)

    def long(self) -> PackedSequence:
        """As int64."""
        return self.to(dtype=torch.long)

    def int(self) -> PackedSequence:
        """As int32."""
        return self.to(dtype=torch.int)

    def short(self) -> PackedSequence:
        """As int16."""
        return self.to(dtype=torch.short)

    def char(self) -> PackedSequence:
        """As int8."""
        return self.to(dtype=torch.int8)

    def byte(self) -> PackedSequence:
        """As uint8."""
        return self.to(dtype=torch.uint8)

    @property
    def is_cuda(self) -> bool:
        """Return whether the data is on a GPU."""
        return self.data.is_cuda

    def is_pinned(self) -> bool:
        """Return whether the data is in page-locked memory."""
        return self.data.is_pinned()


def _packed_sequence_init_args(
    data: Any, batch_sizes: Any = None, sorted_indices: Any = None, unsorted_indices: Any = None
) -> tuple:
    if unsorted_indices is None:
        unsorted_indices = invert_permutation(sorted_indices)
    if batch_sizes is not None:
        if batch_sizes.device.type != "cpu":
            raise ValueError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be created manually. "
                "They should be instantiated by functions like pack_sequence and pack_padded_sequences in "
                "nn.utils.rnn. https://pytorch.org/docs/stable/nn.html#torch.nn.utils.rnn.pack_sequence"
            )
        return data, batch_sizes, sorted_indices, unsorted_indices
    if not (isinstance(data, list | tuple) and len(data) == 2):
        raise AssertionError("Expected data to be a list or tuple of length 2")
    return data[0], data[1], sorted_indices, unsorted_indices


def _packed_sequence_init(
    data: Any, batch_sizes: Any = None, sorted_indices: Any = None, unsorted_indices: Any = None
) -> PackedSequence:
    return PackedSequence(data, batch_sizes, sorted_indices, unsorted_indices)


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes another.  (n) -> (n)."""
    if permutation is None:
        return None
    order = torch.arange(0, permutation.numel(), device=permutation.device)
    return torch.empty_like(permutation).scatter_(0, permutation, order.to(permutation.dtype))


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack (T, N, *), or (N, T, *) with batch_first; lengths decrease unless enforce_sorted=False sorts them."""
    if not isinstance(lengths, Tensor):
        lengths = torch.as_tensor(lengths, dtype=torch.int64, device="cpu")
    elif lengths.device.type != "cpu":
        raise RuntimeError(
            f"'lengths' argument should be a 1D CPU int64 tensor, but got {lengths.dim()}D {lengths.device} "
            f"{dtypes.scalar_name(lengths.dtype)} tensor"
        )
    else:
        lengths = lengths.to(dtype=torch.int64)
    sorted_indices = None
    if not enforce_sorted:
        lengths, sorted_indices = torch.sort(lengths, descending=True)
        sorted_indices = sorted_indices.to(input.device)
        input = input.index_select(0 if batch_first else 1, sorted_indices)
    data, batch_sizes = _pack_padded_sequence(input, lengths, batch_first)
    return _packed_sequence_init(data, batch_sizes, sorted_indices, None)


def _pack_padded_sequence(input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """(data, batch_sizes) of a padded batch with decreasing lengths."""
    if input.numel() == 0:
        raise RuntimeError("Cannot pack empty tensors.")
    input = input.transpose(0, 1) if batch_first else input
    counts = [builtins.int(n) for n in lengths.tolist()]
    steps, batch = input.shape[:2]
    if len(counts) != batch:
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(counts)} (batch_size={batch})"
        )
    if counts and counts[-1] <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if counts != sorted(counts, reverse=True):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
            "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you "
            "do not need ONNX exportability."
        )
    if counts[0] > steps:
        raise RuntimeError(f"Expected `len(lengths)` <= {steps}, but got {counts[0]}")
    sizes = [builtins.sum(n > t for n in counts) for t in range(counts[0])]
    rows = [t * batch + n for t, size in enumerate(sizes) for n in range(size)]
    flat = input.reshape(steps * batch, *input.shape[2:])
    index = torch.tensor(rows, dtype=torch.int64, device=input.device)
    data = name_node(flat.index_select(0, index), "PackPaddedSequenceBackward0")
    return data, torch.tensor(sizes, dtype=torch.int64, device="cpu")


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: builtins.float = 0.0,
    total_length: builtins.int | None = None,
) -> tuple[Tensor, Tensor]:
    """The inverse of pack_padded_sequence: (T, N, *) (or (N, T, *)) and the lengths (N)."""
    steps = sequence.batch_sizes.size(0)
    if total_length is not None:
        if total_length < steps:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in input, but got "
                f"total_length={total_length} and max sequence length being {steps}"
            )
        steps = total_length
    padded, lengths = _pad_packed_sequence(sequence.data, sequence.batch_sizes, batch_first, padding_value, steps)
    order = sequence.unsorted_indices
    if order is not None:
        return padded.index_select(0 if batch_first else 1, order), lengths[order.cpu()]
    return padded, lengths


def _pad_packed_sequence(
    data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: Any, total_length: Any
) -> tuple[Tensor, Tensor]:
    """(padded, lengths) of packed data."""
    sizes = [builtins.int(n) for n in batch_sizes.tolist()]
    batch = sizes[0]
    rows = [t * batch + n for t, size in enumerate(sizes) for n in range(size)]
    index = torch.tensor(rows, dtype=torch.int64, device=data.device)
    flat = data.detach().new_full((total_length * batch, *data.shape[1:]), padding_value)
    padded = flat.index_copy(0, index, data).reshape(total_length, batch, *data.shape[1:])
    lengths = torch.tensor([builtins.sum(s > n for s in sizes) for n in range(batch)], dtype=torch.int64, device="cpu")
    return padded.transpose(0, 1) if batch_first else padded, lengths


def pad_sequence(
    sequences: Any,
    batch_first: bool = False,
    padding_value: builtins.float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Sequences (L_i, *) stacked, padded to the longest: (T, N, *), or (N, T, *) with batch_first."""
    if not isinstance(sequences, Iterable):
        raise RuntimeError(
            f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}"
        )
    sequences = tuple(sequences)
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    longest = builtins.max(s.size(0) for s in sequences)
    padded = []
    for s in sequences:
        gap = longest - s.size(0)
        if gap:
            filler = s.detach().new_full((gap, *s.shape[1:]), padding_value)
            s = torch.cat([s, filler] if padding_side == "right" else [filler, s], 0)
        padded.append(s)
    # torch writes each into one new tensor
    return guard(name_node(torch.stack(padded, 0 if batch_first else 1), "CopySlices"))


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The sequences of a padded batch (T, N, *), without their padding."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [seq[: builtins.int(n)] for seq, n in zip(padded_sequences, lengths.tolist())]


def pack_sequence(sequences: Any, enforce_sorted: bool = True) -> PackedSequence:
    """Sequences (L_i, *), packed: data (sum of L_i, *).  Lengths decrease unless enforce_sorted=False."""
    lengths = torch.as_tensor([v.size(0) for v in sequences])
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a PackedSequence."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
