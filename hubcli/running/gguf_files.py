"""What a GGUF file says of the model whose weights it holds, for `hub show`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

_LISTED = 8  # values of an array; of longer ones (the words of a tokenizer) the length is said


def facts(
    metadata: Mapping[str, Any], tensors: Iterable[tuple[str, tuple[int, ...], str]], nbytes: int
) -> dict[str, Any]:
    """Return the fields of the document that other checkpoints have not, and the metadata, shortened.

    tensors: name, shape and type of each.  nbytes: of all of them.
    """
    tensors = list(tensors)
    architecture = metadata.get("general.architecture")
    architecture = architecture if isinstance(architecture, str) else None
    context = metadata.get(f"{architecture}.context_length")
    parameters = sum(math.prod(shape) for _, shape, _ in tensors)
    return {
        "architecture": architecture,
        "parameters": parameters,
        "bits": round(8 * nbytes / parameters, 2) if parameters else None,
        "context_length": context if type(context) is int else None,
        "types": [{"type": kind, "tensors": n} for kind, n in Counter(kind for *_, kind in tensors).most_common()],
        "metadata": {key: _short(value) for key, value in metadata.items()},
    }


def _short(value: Any) -> Any:
    """Return a value that JSON has: a long array as its length."""
    if isinstance(value, list):
        return {"length": len(value)} if len(value) > _LISTED else [_short(one) for one in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
