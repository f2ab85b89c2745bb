"""Transformer encoder and decoder (arXiv:1706.03762)."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

from engine.nn import functional as F
from engine.nn.init import xavier_uniform_
from engine.nn.modules.activation import GELU, MultiheadAttention, ReLU
from engine.nn.modules.container import ModuleList
from engine.nn.modules.dropout import Dropout
from engine.nn.modules.linear import Linear
from engine.nn.modules.module import Module
from engine.nn.modules.normalization import LayerNorm
from engine.ops import functions as torch
from engine.ops.random.dropout import plus_dropped
from engine.tensor import Tensor

__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]


def _generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
    return torch.triu(torch.full((sz, sz), float("-inf"), dtype=dtype, device=device), diagonal=1)


def _get_seq_len(src: Tensor, batch_first: bool) -> int | None:
    size = src.size()
    return size[0] if len(size) == 2 else size[1 if batch_first else 0]


def _get_clones(module: Module, N: int) -> ModuleList:
    return ModuleList([copy.deepcopy(module) for _ in range(N)])


def _get_activation_fn(activation: str) -> Callable[[Tensor], Tensor]:
    if activation == "relu":
        return F.relu
    if activation == "gelu":
        return F.gelu
    raise RuntimeError(f"activation should be relu/gelu, not {activation}")


def _plus(residual: Tensor, block: Callable[..., Tensor], *args: Any, **options: Any) -> Tensor:
    """residual + block(*args, **options); a block of ours adds by itself, together with its dropout."""
    if getattr(block, "__func__", None) in _BLOCKS:
        return block(*args, **options, residual=residual)
    return residual + block(*args, **options)


def _dropped(dropout: Module, x: Tensor, residual: Tensor | None) -> Tensor:
    """dropout(x), on top of the residual if there is one."""
    if residual is None:
        return dropout(x)
    if type(dropout) is Dropout and dropout.training and not dropout.inplace and not dropout._hooked():
        return plus_dropped(residual, x, dropout.p)
    return residual + dropout(x)


def _detect_is_causal_mask(mask: Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
    """Return whether the mask is the causal one; `is_causal` itself if it is given."""
    if is_causal is not None or mask is None:
        return is_causal is True
    sz = size if size is not None else mask.size(-2)
    causal = _generate_square_subsequent_mask(sz, device=mask.device, dtype=mask.dtype)
    return mask.size() == causal.size() and bool((mask == causal).all())


def _canonical_masks(padding: Any, padding_name: str, mask: Any, mask_name: str, dtype: Any) -> tuple[Any, Any]:
    padding = F._canonical_mask(
        mask=padding,
        mask_name=padding_name,
        other_type=F._none_or_dtype(mask),
        other_name=mask_name,
        target_type=dtype,
    )
    mask = F._canonical_mask(
        mask=mask,
        mask_name=mask_name,
        other_type=None,
        other_name="",
        target_type=dtype,
        check_other=False,
    )
    return padding, mask


class Transformer(Module):
    """An encoder and a decoder.  src (S, N, E), tgt (T, N, E) -> (T, N, E); batch_first (N, S, E)."""

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = F.relu,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        where = {"device": device, "dtype": dtype}
        layer = (
            d_model,
            nhead,
            dim_feedforward,
            dropout,
            activation,
            layer_norm_eps,
            batch_first,
            norm_first,
            bias,
        )
        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            encoder_norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
            encoder_layer = TransformerEncoderLayer(*layer, **where)
            self.encoder = TransformerEncoder(encoder_layer, num_encoder_layers, encoder_norm)
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            decoder_norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
            decoder_layer = TransformerDecoderLayer(*layer, **where)
            self.decoder = TransformerDecoder(decoder_layer, num_decoder_layers, decoder_norm)
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Any = None,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        src_key_padding_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Encode src, decode tgt."""
        batch = 0 if self.batch_first else 1
        if src.dim() == 3 and src.size(batch) != tgt.size(batch):
            raise RuntimeError("the batch number of src and tgt must be equal")
        if src.size(-1) != self.d_model or tgt.size(-1) != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """The causal mask: 0 on and below the diagonal, -inf above.  (sz, sz)."""
        return _generate_square_subsequent_mask(sz, dtype=dtype, device=device)

    def _reset_parameters(self) -> None:
        for p in self.parameters():
            if p.dim() > 1:
                xavier_uniform_(p)


def _why_not_nested(layer: Any) -> str:
    """Return the reason why torch would not skip padding with this layer ("" if it would): decides values at padded
    places."""
    name = "encoder_layer"
    if not isinstance(layer, TransformerEncoderLayer):
        return f"{name} was not TransformerEncoderLayer"
    if layer.norm_first:
        return f"{name}.norm_first was True"
    if not layer.self_attn.batch_first:
        return f"{name}.self_attn.batch_first was not True(use batch_first for better inference performance)"
    if not layer.self_attn._qkv_same_embed_dim:
        return f"{name}.self_attn._qkv_same_embed_dim was not True"
    if layer.self_attn.in_proj_bias is None:
        return f"{name}.self_attn was passed bias=False"
    if not layer.activation_relu_or_gelu:
        return f"{name}.activation_relu_or_gelu was not True"
    if layer.norm1.eps != layer.norm2.eps:
        return f"{name}.norm1.eps was not equal to {name}.norm2.eps"
    if layer.self_attn.num_heads % 2 == 1:
        return f"{name}.self_attn.num_heads is odd"
    return ""


class TransformerEncoder(Module):
    """num_layers copies of encoder_layer.  src (S, N, E) -> (S, N, E); batch_first (N, S, E)."""

    __constants__ = ["norm"]

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _get_clones(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        self.use_nested_tensor = enable_nested_tensor
        self.mask_check = mask_check
        why = _why_not_nested(encoder_layer)
        if enable_nested_tensor and why:
            warnings.warn(
                f"enable_nested_tensor is True, but self.use_nested_tensor is False because {why}",
                stacklevel=2,
            )
            self.use_nested_tensor = False

    def _zeroes_padding(self, src: Tensor, padding: Tensor | None, mask: Tensor | None) -> bool:
        """Return whether torch runs on nested tensors here: the output is zero where padded then."""
        if padding is None or mask is not None or src.dim() != 3 or not getattr(self, "use_nested_tensor", False):
            return False
        if self.layers[0].training:
            return False
        if torch.is_grad_enabled() and (src.requires_grad or any(p.requires_grad for p in self.layers[0].parameters())):
            return False
        padded = padding._array != 0
        return not getattr(self, "mask_check", True) or bool((padded[:, 1:] >= padded[:, :-1]).all())

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """src through every layer, and the final norm if there is one."""
        padding, mask = _canonical_masks(src_key_padding_mask, "src_key_padding_mask", mask, "mask", src.dtype)
        zeroes = self._zeroes_padding(src, padding, mask)
        seq_len = _get_seq_len(src, self.layers[0].self_attn.batch_first)
        causal = _detect_is_causal_mask(mask, is_causal, seq_len)
        output = src
        for mod in self.layers:
            output = mod(output, src_mask=mask, is_causal=causal, src_key_padding_mask=padding)
        if zeroes:
            assert padding is not None
            output = output.masked_fill((padding != 0).unsqueeze(-1), 0.0)
        return output if self.norm is None else self.norm(output)


class TransformerDecoder(Module):
    """num_layers copies of decoder_layer.  tgt (T, N, E), memory (S, N, E) -> (T, N, E)."""

    __constants__ = ["norm"]

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _get_clones(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """tgt through every layer, and the final norm if there is one."""
        seq_len = _get_seq_len(tgt, self.layers[0].self_attn.batch_first)
        tgt_is_causal = _detect_is_causal_mask(tgt_mask, tgt_is_causal, seq_len)
        output = tgt
        for mod in self.layers:
            output = mod(
                output,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=tgt_is_causal,
                memory_is_causal=memory_is_causal,
            )
        return output if self.norm is None else self.norm(output)


class TransformerEncoderLayer(Module):
    """Self-attention and a feed-forward network, each with residual and norm.  src (S, N, E) -> (S, N, E)."""

    __constants__ = ["norm_first"]

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        where = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **where
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **where)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **where)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        if isinstance(activation, str):
            activation = _get_activation_fn(activation)
        if activation is F.relu or isinstance(activation, ReLU):
            self.activation_relu_or_gelu = 1
        elif activation is F.gelu or isinstance(activation, GELU):
            self.activation_relu_or_gelu = 2
        else:
            self.activation_relu_or_gelu = 0
        self.activation = activation

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        if not hasattr(self, "activation"):
            self.activation = F.relu

    def forward(
        self,
        src: Tensor,
        src_mask: Any = None,
        src_key_padding_mask: Any = None,
        is_causal: bool = False,
    ) -> Tensor:
        """src through attention and feed-forward."""
        padding, mask = _canonical_masks(src_key_padding_mask, "src_key_padding_mask", src_mask, "src_mask", src.dtype)
        x = src
        if self.norm_first:
            x = _plus(x, self._sa_block, self.norm1(x), mask, padding, is_causal=is_causal)
            return _plus(x, self._ff_block, self.norm2(x))
        x = self.norm1(_plus(x, self._sa_block, x, mask, padding, is_causal=is_causal))
        return self.norm2(_plus(x, self._ff_block, x))

    def _sa_block(
        self,
        x: Tensor,
        attn_mask: Any,
        key_padding_mask: Any,
        is_causal: bool = False,
        residual: Tensor | None = None,
    ) -> Tensor:
        x = self.self_attn(
            x,
            x,
            x,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            need_weights=False,
            is_causal=is_causal,
        )[0]
        return _dropped(self.dropout1, x, residual)

    def _ff_block(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        y = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return _dropped(self.dropout2, y, residual)


class TransformerDecoderLayer(Module):
    """Self-attention, attention to the memory, feed-forward.  tgt (T, N, E), memory (S, N, E) -> (T, N, E)."""

    __constants__ = ["norm_first"]

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Any = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        where = {"device": device, "dtype": dtype}
        attention = {"dropout": dropout, "batch_first": batch_first, "bias": bias, **where}
        self.self_attn = MultiheadAttention(d_model, nhead, **attention)
        self.multihead_attn = MultiheadAttention(d_model, nhead, **attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **where)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **where)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.norm3 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.dropout3 = Dropout(dropout)
        self.activation = _get_activation_fn(activation) if isinstance(activation, str) else activation

    def __setstate__(self, state: dict) -> None:
        if "activation" not in state:
            state["activation"] = F.relu
        super().__setstate__(state)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Any = None,
        memory_mask: Any = None,
        tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """tgt through both attentions and feed-forward."""
        x = tgt
        own = (tgt_mask, tgt_key_padding_mask, tgt_is_causal)
        other = (memory, memory_mask, memory_key_padding_mask, memory_is_causal)
        if self.norm_first:
            x = _plus(x, self._sa_block, self.norm1(x), *own)
            x = _plus(x, self._mha_block, self.norm2(x), *other)
            return _plus(x, self._ff_block, self.norm3(x))
        x = self.norm1(_plus(x, self._sa_block, x, *own))
        x = self.norm2(_plus(x, self._mha_block, x, *other))
        return self.norm3(_plus(x, self._ff_block, x))

    def _sa_block(
        self,
        x: Tensor,
        attn_mask: Any,
        key_padding_mask: Any,
        is_causal: bool = False,
        residual: Tensor | None = None,
    ) -> Tensor:
        x = self.self_attn(
            x,
            x,
            x,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            is_causal=is_causal,
            need_weights=False,
        )[0]
        return _dropped(self.dropout1, x, residual)

    def _mha_block(
        self,
        x: Tensor,
        mem: Tensor,
        attn_mask: Any,
        key_padding_mask: Any,
        is_causal: bool = False,
        residual: Tensor | None = None,
    ) -> Tensor:
        x = self.multihead_attn(
            x,
            mem,
            mem,
            attn_mask=attn_mask,
            key_padding_mask=key_padding_mask,
            is_causal=is_causal,
            need_weights=False,
        )[0]
        return _dropped(self.dropout2, x, residual)

    def _ff_block(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        y = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return _dropped(self.dropout3, y, residual)


_BLOCKS = frozenset(
    [
        TransformerEncoderLayer._sa_block,
        TransformerEncoderLayer._ff_block,
        TransformerDecoderLayer._sa_block,
        TransformerDecoderLayer._mha_block,
        TransformerDecoderLayer._ff_block,
    ]
)
