"""Every sample of the registry under vmap: what a loop over the slices gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import engine
from engine.func import vmap
from engine.tensor import Tensor
from tests.engine.samples import Case, cases

CASES = [c for c in cases() if c.deterministic]
# results that are no tree of tensors
OTHER = frozenset(["histogram", "histogramdd"])


def leaves(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [t for x in value for t in leaves(x)] if isinstance(value, tuple | list) else []


def listed(value: Any) -> bool:
    return isinstance(value, tuple | list) and bool(value) and all(isinstance(x, Tensor) for x in value)


def slices(x: Tensor) -> Tensor:
    x = x.detach()
    return engine.stack([x, x * 0.75 if x.is_floating_point() or x.is_complex() else x, x])


def compare(case: Case, which: set[int], args: list[Any], kwargs: dict[str, Any]) -> None:
    def function(*values: Any) -> Any:
        return case.function(*values, **kwargs)

    def each(value: Any, change: Any) -> Any:
        return change(value) if isinstance(value, Tensor) else type(value)(change(x) for x in value)

    stacked = [each(a, slices) if i in which else a for i, a in enumerate(args)]
    try:
        rows = [
            leaves(function(*(each(a, lambda x, k=k: x[k]) if i in which else a for i, a in enumerate(stacked))))
            for k in range(3)
        ]
        expected = [engine.stack(list(column)) for column in zip(*rows)]
    except (RuntimeError, ValueError, IndexError):  # a slice for which the op has no value, or another shape
        return
    dims = tuple(0 if i in which else None for i in range(len(args)))
    found = leaves(vmap(function, in_dims=dims)(*stacked))
    assert len(found) == len(expected)
    for f, e in zip(found, expected):
        assert (f.shape, f.dtype) == (e.shape, e.dtype), f"{case} {which}"
        np.testing.assert_allclose(f.detach().numpy(), e.detach().numpy(), 1e-6, 1e-9, err_msg=f"{case} {which}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted({c.name for c in CASES} - OTHER))
def test_samples(name: str) -> None:
    for case in (c for c in CASES if c.name == name):
        args, kwargs = case.arguments()
        tensors = [i for i, a in enumerate(args) if isinstance(a, Tensor) and not a.is_sparse]
        lists = [i for i, a in enumerate(args) if listed(a)]
        ways = [{*tensors, *lists}] * bool(tensors or lists) + [{i} for i in tensors if len(tensors) > 1]
        for which in ways:
            compare(case, which, args, kwargs)
