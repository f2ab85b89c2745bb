"""The sizes of a decoder-only transformer, from the metadata of a GGUF file or from a config.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hubcli.errors import HubError, IntegrityError

ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3", "gpt2")
_LARGEST = 1 << 24  # of any size in a file; what is larger is a damaged or hostile one


@dataclass(frozen=True)
class Config:
    """The sizes of a network and the functions between its products.

    width: elements of a token's vector.  hidden: of the layer between.  rotary: elements of each head that are rotated
    by their position; 0 for learned positions.  frequencies: what each pair's frequency is divided by, one for each
    pair, or empty.  adjacent: the elements of a pair are neighbours, as GGUF files of Llama have them; else they are
    half of `rotary` apart.
    """

    architecture: str
    vocabulary: int
    context: int
    width: int
    layers: int
    heads: int
    key_heads: int
    head_size: int
    hidden: int
    eps: float
    rotary: int
    rotary_base: float = 10000.0
    frequencies: tuple[float, ...] = ()
    adjacent: bool = False

    def check(self, where: str) -> Config:
        """Return the sizes themselves; IntegrityError where heads and rotated pairs do not fit each other."""
        if self.heads % self.key_heads:
            raise IntegrityError(f"{where}: {self.heads} heads cannot share {self.key_heads} of keys and values")
        if self.rotary % 2 or self.rotary > self.head_size:
            raise IntegrityError(
                f"{where}: {self.rotary} elements of a head of {self.head_size} are no pairs to rotate"
            )
        if self.frequencies and len(self.frequencies) != self.rotary // 2:
            raise IntegrityError(f"{where}: {len(self.frequencies)} factors for {self.rotary // 2} pairs of a head")
        return self

    @property
    def is_gpt2(self) -> bool:
        """Return whether LayerNorm, learned positions and GELU stand where the others have RMSNorm, RoPE and SwiGLU."""
        return self.architecture == "gpt2"

    @property
    def normalized_heads(self) -> bool:
        """Return whether queries and keys are normalized per head."""
        return self.architecture == "qwen3"


class _Values:
    """Typed access to the values of a file, with an error that names the key and the value."""

    def __init__(self, values: Mapping[str, Any], where: str, prefix: str = "") -> None:
        self.values, self.where, self.prefix = values, where, prefix

    def size(self, name: str, default: int | None = None) -> int:
        value = self.values.get(self.prefix + name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _LARGEST:
            raise self._wrong(name, value, "a positive whole number")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self.values.get(self.prefix + name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise self._wrong(name, value, "a positive number")
        return float(value)

    def _wrong(self, name: str, value: object, wanted: str) -> IntegrityError:
        said = "is missing" if value is None else f"is {str(value)[:40]!r}"
        return IntegrityError(f"{self.where}: {self.prefix}{name} {said}, where {wanted} is expected")


def of_gguf(metadata: Mapping[str, Any], vocabulary: int, where: str) -> Config:
    """Return the sizes that the metadata of a GGUF file say.

    vocabulary: rows of its embedding.  where: the file, for errors.  HubError for an architecture or a kind of
    position that is not supported, IntegrityError for values that are missing or no sizes.
    """
    name = _supported(metadata.get("general.architecture"), where)
    found = _Values(metadata, where, f"{name}.")
    if metadata.get(f"{name}.expert_count", 0):
        raise HubError(f"{where} is a mixture of experts, which hub does not run yet")
    width, heads = found.size("embedding_length"), found.size("attention.head_count")
    head_size = found.size("attention.key_length", _share(width, heads, where))
    kind = metadata.get(f"{name}.rope.scaling.type", "none")
    if kind not in ("none", "linear"):
        raise HubError(f"{where} scales its positions by {str(kind)[:40]!r}, which hub does not support yet")
    rotary = 0 if name == "gpt2" else found.size("rope.dimension_count", head_size)
    scale = found.number("rope.scaling.factor", 1.0) if kind == "linear" else 1.0
    return Config(
        architecture=name,
        vocabulary=vocabulary,
        context=found.size("context_length"),
        width=width,
        layers=found.size("block_count"),
        heads=heads,
        key_heads=found.size("attention.head_count_kv", heads),
        head_size=head_size,
        hidden=found.size("feed_forward_length"),
        eps=found.number(f"attention.layer_norm_{'' if name == 'gpt2' else 'rms_'}epsilon", 1e-5),
        rotary=rotary,
        rotary_base=found.number("rope.freq_base", 10000.0),
        frequencies=(scale,) * (rotary // 2) if scale != 1 else (),
        adjacent=name == "llama",
    )


def of_json(values: Mapping[str, Any], where: str) -> Config:
    """Return the sizes that a config.json of the transformers library says; errors as `of_gguf`."""
    name = _supported(values.get("model_type"), where)
    found = _Values(values, where)
    if name == "gpt2":
        width, heads = found.size("n_embd"), found.size("n_head")
        if values.get("activation_function", "gelu_new") not in ("gelu_new", "gelu_pytorch_tanh"):
            raise HubError(f"{where} has the activation {str(values['activation_function'])[:40]!r}, not gelu_new")
        return Config(
            architecture=name,
            vocabulary=found.size("vocab_size"),
            context=found.size("n_positions", values.get("n_ctx")),
            width=width,
            layers=found.size("n_layer"),
            heads=heads,
            key_heads=heads,
            head_size=_share(width, heads, where),
            hidden=4 * width if values.get("n_inner") is None else found.size("n_inner"),
            eps=found.number("layer_norm_epsilon", 1e-5),
            rotary=0,
        )
    if values.get("hidden_act", "silu") != "silu":
        raise HubError(f"{where} has the activation {str(values['hidden_act'])[:40]!r}, not silu")
    width, heads = found.size("hidden_size"), found.size("num_attention_heads")
    head_size = found.size("head_dim", None if values.get("head_dim") else _share(width, heads, where))
    context = found.size("max_position_embeddings")
    window = values.get("sliding_window") if values.get("use_sliding_window", True) else None
    parameters = values.get("rope_parameters") or {}
    base = found.number("rope_theta", parameters.get("rope_theta", 10000.0))
    return Config(
        architecture=name,
        vocabulary=found.size("vocab_size"),
        context=context if window is None else min(context, found.size("sliding_window")),
        width=width,
        layers=found.size("num_hidden_layers"),
        heads=heads,
        key_heads=found.size("num_key_value_heads", heads),
        head_size=head_size,
        hidden=found.size("intermediate_size"),
        eps=found.number("rms_norm_eps", 1e-6),
        rotary=head_size,
        rotary_base=base,
        frequencies=_scaled(values.get("rope_scaling") or parameters, base, head_size, where),
    )


def _supported(name: object, where: str) -> str:
    if name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise HubError(
            f"{where} has the architecture {str(name)[:40]!r}, which hub has no network for",
            hint=f"known are {known}; models of other architectures run from a repository with a hubconf.py",
        )
    return str(name)


def _share(width: int, heads: int, where: str) -> int:
    if width % heads:
        raise IntegrityError(f"{where}: {width} elements cannot be shared by {heads} heads")
    return width // heads


def _scaled(scaling: Mapping[str, Any], base: float, size: int, where: str) -> tuple[float, ...]:
    """Return what each frequency is divided by: all alike (linear), or the low ones alone (Llama 3.1).

    Source: Llama 3.1's published inference code, `apply_scaling`.
    """
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return ()
    found = _Values(scaling, f"{where}: rope_scaling")
    if kind == "linear":
        return (found.number("factor"),) * (size // 2)
    if kind != "llama3":
        raise HubError(f"{where} scales its positions by {str(kind)[:40]!r}, which hub does not support yet")
    factor, original = found.number("factor"), found.number("original_max_position_embeddings")
    low, high = found.number("low_freq_factor"), found.number("high_freq_factor")
    divisors = []
    for pair in range(size // 2):
        turns = original / (2 * math.pi * base ** (2 * pair / size))  # of the pair over the original context
        smooth = min(max((turns - low) / (high - low), 0.0), 1.0) if high > low else float(turns >= high)
        divisors.append(1 / ((1 - smooth) / factor + smooth))
    return tuple(divisors)
