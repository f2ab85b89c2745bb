"""Errors of products, LAPACK and Fourier ops: type and sentence as torch 2.13 raised them for the same call.

`data/messages_linalg.json` holds [call, type, sentence], recorded from torch.  In a call `r(2, 3)` is float64,
`f` float32, `h` float16, `c` complex128, `i` int64, `b` bool, `u` positive, `a` of given values.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import engine
import engine.fft
import engine.linalg
from engine.ops import distance
from engine.ops import products as blas
from engine.tensor import wrap

ROWS = json.loads((Path(__file__).parent / "data" / "messages_linalg.json").read_text())


def names() -> dict[str, Any]:
    rng = np.random.default_rng(3)

    def leaf(array: Any) -> Any:
        return wrap(np.asarray(array))

    def positive_definite(*shape: int) -> Any:
        root = rng.standard_normal(shape)
        return leaf(root @ np.swapaxes(root, -1, -2) + np.eye(shape[-1]))

    functional = SimpleNamespace(linear=blas.linear, bilinear=blas.bilinear, pdist=distance.pdist)
    return {
        "T": engine,
        "L": engine.linalg,
        "FF": engine.fft,
        "F": functional,
        "np": np,
        "r": lambda *s: leaf(rng.standard_normal(s)),
        "k": lambda *s: leaf(rng.standard_normal(s)),
        "f": lambda *s: leaf(rng.standard_normal(s).astype("float32")),
        "h": lambda *s: leaf(rng.standard_normal(s).astype("float16")),
        "u": lambda *s: leaf(rng.uniform(0.2, 1, s)),
        "c": lambda *s: leaf(rng.standard_normal(s) + 1j * rng.standard_normal(s)),
        "i": lambda *s: leaf(rng.integers(-3, 4, s)),
        "b": lambda *s: leaf(rng.integers(0, 2, s).astype(bool)),
        "a": lambda x, dtype="float64": leaf(np.array(x, dtype)),
        "spd": positive_definite,
    }


@pytest.mark.parametrize("call, kind, sentence", ROWS, ids=[row[0] for row in ROWS])
def test_the_error_is_torchs(call: str, kind: str, sentence: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception) as caught:
            eval(call, names())
    assert type(caught.value).__name__.lstrip("_") == kind  # _LinAlgError
    assert str(caught.value).split("\n")[0] == sentence
