"""The files of a model for text: a GGUF file alone, or safetensors with config.json and tokenizer.json beside it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from hubcli.errors import HubError, IntegrityError, NotFoundError, UsageError
from hubcli.reading.model_files import WEIGHTS
from hubcli.running import checkpoints
from hubcli.text import chat, config, tokenizer, weights
from hubcli.text.network import Decoder
from hubcli.text.tokenizer import Tokenizer

T = TypeVar("T")
_LARGEST_CONFIG, _LARGEST_TOKENS = 1 << 20, 1 << 24  # bytes of config.json; of tokenizer_config.json, with all tokens


@dataclass(frozen=True)
class Model:
    """A network, its tokenizer, and its chat template if it has one."""

    path: Path
    network: Decoder
    tokenizer: Tokenizer
    chat: chat.Template | None


def find(spec: str) -> Path:
    """Return the weights file that SPEC names: itself, or the one of a folder.

    NotFoundError where there is none, UsageError for a file of another kind.
    """
    path = Path(spec).expanduser()
    if path.is_dir():
        found = next((path / name for name in WEIGHTS if (path / name).is_file()), None)
        if found is None:
            raise NotFoundError(f"{spec} has no {WEIGHTS[0]}", hint="--prompt takes a GGUF file, or such a folder")
        return found
    if not path.is_file():
        raise NotFoundError(
            f"there is no file {spec}", hint="--prompt takes a GGUF or safetensors file on this machine"
        )
    if not path.name.endswith((".gguf", ".safetensors", ".safetensors.index.json")):
        raise UsageError(f"--prompt takes a GGUF or safetensors file, not {path.name}")
    return path


def opened(path: Path, tokenizer_file: Path | None = None) -> Model:
    """Read a model whole.  tokenizer_file: a tokenizer.json in place of the one that belongs to it."""
    return _of_gguf(path, tokenizer_file) if path.name.endswith(".gguf") else _of_safetensors(path, tokenizer_file)


def _of_gguf(path: Path, tokenizer_file: Path | None) -> Model:
    from engine.serialization.gguf import open_gguf

    file = _read(path, lambda: open_gguf(path))
    metadata, shapes = file.metadata, {name: tensor.shape for name, tensor in file.tensors.items()}
    embedding = shapes.get("token_embd.weight", ())
    if len(embedding) != 2:
        raise IntegrityError(f"{path} has no matrix token_embd.weight, which a model for text begins with")
    sizes = config.of_gguf(metadata, embedding[0], str(path))
    if tokenizer_file is None:
        words = tokenizer.from_gguf(metadata, str(path))
    else:
        words = tokenizer.from_file(tokenizer_file, {"eos_token_id": metadata.get("tokenizer.ggml.eos_token_id")})
    sizes.check(str(path))
    count = sum(math.prod(shape) for shape in shapes.values())
    weights.require_memory(sum(weights.bytes_of(tensor) for tensor in file.tensors.values()), count, str(path))
    tensors = _read(path, lambda: {name: weights.of_gguf(tensor) for name, tensor in file.tensors.items()})
    divisors = weights.divisors(tensors)
    if divisors:
        sizes = replace(sizes, frequencies=divisors).check(str(path))
    return Model(path, weights.network(sizes, tensors, str(path)), words, chat.of_gguf(metadata, str(path)))


def _of_safetensors(path: Path, tokenizer_file: Path | None) -> Model:
    import engine

    file = path.parent / "config.json"
    values = _json(file, _LARGEST_CONFIG)
    sizes = config.of_json(values, str(file)).check(str(file))
    beside = tokenizer_file or path.parent / "tokenizer.json"
    if not beside.is_file():
        raise NotFoundError(f"there is no {beside}", hint="give the tokenizer: --tokenizer tokenizer.json")
    described, named, ends = (
        _json(path.parent / name, _LARGEST_TOKENS, {})
        for name in ("tokenizer_config.json", "special_tokens_map.json", "generation_config.json")
    )
    words = tokenizer.from_file(beside, values, ends, named, described)
    tensors = _read(path, lambda: engine.load(path))
    count = sum(one.numel() for one in tensors.values())
    weights.require_memory(sum(one.nbytes for one in tensors.values()), count, str(path))
    return Model(path, weights.network(sizes, tensors, str(path)), words, chat.beside(path.parent, described, named))


def _json(path: Path, largest: int, default: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the object in a file of at most `largest` bytes; `default` or NotFoundError where there is none."""
    try:
        if path.stat().st_size > largest:
            raise IntegrityError(f"{path} is larger than {largest} bytes")
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if default is not None:
            return default
        raise NotFoundError(
            f"there is no {path}, which says what network the weights are of",
            hint="config.json and tokenizer.json stand beside the weights; a GGUF file needs neither",
        ) from None
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{path} is not JSON: {str(error)[:200]}") from None
    if not isinstance(found, dict):
        raise IntegrityError(f"{path} is not an object")
    return found


def _read(path: Path, read: Callable[[], T]) -> T:
    from engine.serialization import UnpicklingError

    try:
        return read()
    except UnpicklingError as error:
        raise checkpoints.as_refused(str(path), error) from None
    except MemoryError:
        raise HubError(f"{path} does not fit into memory") from None
