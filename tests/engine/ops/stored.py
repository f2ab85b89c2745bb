"""Expressions with what torch 2.13 answers: kind, shape, strides, dtype, node name, view or copy, values, or the error.

`data/*.json` hold [expression, answer] pairs, recorded by running the same lines on torch.
"""

from __future__ import annotations

import json
import math
import pathlib
import warnings
from typing import Any

import numpy as np

import engine

_PRELUDE = """
x = torch.arange(12.0).reshape(3, 4)
y = torch.arange(24.0).reshape(2, 3, 4)
g = torch.arange(12.0).reshape(3, 4).requires_grad_()
i = torch.tensor([[0, 1], [2, 0]])
l = torch.tensor([3, 1, 2])
s = torch.tensor(2.0)
b = torch.tensor([True, False, True])
e0 = torch.zeros(0, 3)
"""


def stored(family: str) -> list[tuple[str, Any]]:
    """The pairs of one family."""
    path = pathlib.Path(__file__).parent / "data" / f"{family}.json"
    return [tuple(pair) for pair in json.loads(path.read_text())]


def answer(expression: str) -> Any:
    """What the engine answers, in the stored form."""
    names: dict[str, Any] = {
        "torch": engine,
        "np": np,
        "math": math,
        "inf": math.inf,
        "nan": math.nan,
    }
    exec(_PRELUDE, names)
    *statements, last = expression.split(";")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            exec(";".join(part.strip() for part in statements), names)
            found = eval(last.strip(), names)
            return json.loads(json.dumps(_shown(found)))
        except Exception as error:
            return ["!", type(error).__name__, str(error)[:400]]


def _shown(value: Any) -> Any:
    if isinstance(value, engine.Tensor):
        plain = value.detach()
        if plain.dtype in (engine.bfloat16, engine.float16):
            plain = plain.float()
        array = plain.numpy()
        if array.dtype.kind in "fc":
            array = np.round(array.astype("c16" if array.dtype.kind == "c" else "f8"), 5) + 0
        node = value.grad_fn
        return [
            "T",
            list(value.shape),
            list(value.stride()),
            str(value.dtype),
            None if node is None else type(node).__name__,
            value._is_view(),
            value.requires_grad,
            repr(array.tolist()),
        ]
    if isinstance(value, tuple | list):
        named = hasattr(value, "_fields") or type(value).__name__ == "Size"
        return ["nt" if named else type(value).__name__, [_shown(v) for v in value]]
    if isinstance(value, dict):
        return {k: _shown(v) for k, v in value.items()}
    return repr(round(value, 5)) if isinstance(value, float) else repr(value)
