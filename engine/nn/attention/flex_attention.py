"""Attention with scores changed by a function (torch.nn.attention.flex_attention), without compilation.

score_mod and mask_mod are called once, with the indices of all places as tensors that broadcast, where torch calls them
place by place: they may compute, compare and index tensors, but not branch on an index.
https://docs.pytorch.org/docs/2.13/nn.attention.flex_attention.html
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from engine.ops import functions as torch
from engine.tensor import Tensor

__all__ = [
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
]

_DEFAULT_SPARSE_BLOCK_SIZE = 128

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


class AuxRequest(NamedTuple):
    """The outputs wanted beside the result: the logarithms of the sums, the largest scores."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """The outputs that an AuxRequest asked for: (B, H, L) each, or None."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """True everywhere.  -> ()."""
    return torch.ones((), dtype=torch.bool, device=batch.device)


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask where all of them are True."""

    def mask(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        found = noop_mask(b, h, q, kv)
        for one in mask_mods:
            found = found & one(b, h, q, kv)
        return found

    return mask


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """The mask where one of them is True."""

    def mask(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        found = ~noop_mask(b, h, q, kv)
        for one in mask_mods:
            found = found | one(b, h, q, kv)
        return found

    return mask


def _indices(sizes: tuple[int, int, int, int], device: Any) -> list[Tensor]:
    """The index along each dim, int64, shaped so that they broadcast to `sizes`."""
    shapes = [[-1 if i == dim else 1 for i in range(4)] for dim in range(4)]
    return [torch.arange(n, device=device).reshape(shape) for n, shape in zip(sizes, shapes)]


def create_mask(mod_fn: MaskMod, B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = "cpu") -> Tensor:
    """mod_fn(b, h, q, kv) at every place.  -> bool (B, H, Q_LEN, KV_LEN); B, H None: 1."""
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    return torch.broadcast_to(mod_fn(*_indices(sizes, device)), sizes)


class BlockMask:
    """A mask of attention, from `create_block_mask`.  `mask_mod`: its function; `shape` (B, H, Q_LEN, KV_LEN)."""

    def __init__(self, mask: Tensor, mask_mod: MaskMod, block_size: tuple[int, int]) -> None:
        self._mask = mask
        self.mask_mod = mask_mod
        self.BLOCK_SIZE = block_size
        self.seq_lengths = tuple(mask.shape[-2:])

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, H, Q_LEN, KV_LEN)."""
        return tuple(self._mask.shape)

    def to(self, device: Any) -> BlockMask:
        """The mask on a device."""
        return BlockMask(self._mask.to(device), self.mask_mod, self.BLOCK_SIZE)

    def sparsity(self) -> float:
        """The share of places that are masked out, in percent."""
        return 100.0 * (1.0 - self._mask.to(torch.float64).mean().item())


def create_block_mask(
    mask_mod: MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = "cpu",
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
) -> BlockMask:
    """The mask of mask_mod(b, h, q, kv) for `flex_attention`; it is kept whole, whatever the block size."""
    size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    return BlockMask(create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device), mask_mod, size)


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: ScoreMod | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """softmax(score_mod(scale query key^T, b, h, q, kv)) value, over the places that the mask leaves.

    query (B, H, L, E), key (B, H', S, E), value (B, H', S, V) -> (B, H, L, V); scale: 1 / sqrt(E) unless given;
    enable_gqa: H may be a multiple of H'.  A row without any place gives 0.  return_lse: also the logarithms of the
    sums (B, H, L); return_aux: also an AuxOutput.
    """
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise ValueError("query, key and value must have 4 dimensions")
    if query.shape[1] != key.shape[1]:
        if not enable_gqa:
            raise ValueError(
                f"Expect query and key/value to have the same number of heads but got Hq={query.shape[1]} and "
                f"Hkv={key.shape[1]}. Try setting enable_gqa=True for GQA."
            )
        key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
        value = value.repeat_interleave(query.shape[1] // value.shape[1], 1)
    scores = (query @ key.transpose(-2, -1)) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if score_mod is not None:
        scores = score_mod(scores, *_indices(tuple(scores.shape), query.device))
    if block_mask is not None:
        scores = scores.masked_fill(~block_mask._mask[..., : scores.shape[-2], : scores.shape[-1]], -math.inf)
    lse = torch.logsumexp(scores, -1)
    weights = torch.exp(scores - torch.where(lse == -math.inf, torch.zeros_like(lse), lse).unsqueeze(-1))
    output = weights.to(value.dtype) @ value
    if return_aux is not None:
        largest = scores.amax(-1) if return_aux.max_scores else None
        return output, AuxOutput(lse if return_aux.lse else None, largest)
    return (output, lse) if return_lse else output
