"""Sparse tensors in files: written as torch writes them, read with their parts checked."""

from __future__ import annotations

import io
from typing import Any

import pytest

import engine
from engine.serialization import UnpicklingError

from . import forge


def through(value: Any) -> Any:
    file = io.BytesIO()
    engine.save({"x": value}, file)
    file.seek(0)
    return engine.load(file)["x"]


def test_there_and_back() -> None:
    at = engine.tensor([[0, 2, 0], [1, 0, 1]])
    repeated = engine.sparse_coo_tensor(at, engine.tensor([1.0, 2.0, 3.0]), (3, 3))
    hybrid = engine.sparse_coo_tensor(at, engine.arange(6).view(3, 2), (3, 3, 2)).coalesce()
    for value in (repeated, repeated.coalesce(), hybrid, repeated.to_sparse_csr(), engine.zeros(0, 4).to_sparse()):
        found = through(value)
        assert found.layout is value.layout and found.dtype is value.dtype and found.shape == value.shape
        assert found._nnz() == value._nnz() and engine.equal(found.to_dense(), value.to_dense())
        if value.is_sparse:
            assert found.is_coalesced() == value.is_coalesced()


def test_a_file_of_torch() -> None:
    found = engine.load(forge.DATA / "sparse.pth")
    sparse = next(iter(found.values())) if isinstance(found, dict) else found
    assert sparse.layout is engine.sparse_coo and sparse.to_dense().isfinite().all()


def rebuilt(layout: str, *data: Any) -> bytes:
    name = forge.Reduce(forge.Global("torch.serialization", "_get_layout"), layout)
    call = forge.Reduce(forge.Global("torch._utils", "_rebuild_sparse_tensor"), name, data)
    return forge.zipped(forge.pickled(call))


@pytest.mark.parametrize(
    ("layout", "data"),
    [
        ("torch.sparse_coo", ()),
        ("torch.sparse_coo", (1, 2, (3, 3))),
        ("torch.sparse_coo", (forge.tensor(), forge.tensor(), (3, 3), True)),
        ("torch.sparse_coo", (forge.tensor(), forge.tensor(), (-1,))),
        ("torch.sparse_coo", (forge.tensor(), forge.tensor(), "3")),
        ("torch.sparse_csr", (forge.tensor(), forge.tensor(), forge.tensor(), (1 << 61, 1 << 61))),
        ("torch.sparse_csr", (forge.tensor(), forge.tensor(), forge.tensor(), (2, 2))),
        ("torch.strided", (forge.tensor(), forge.tensor(), (3, 3))),
    ],
)
def test_parts_that_do_not_fit(layout: str, data: Any) -> None:
    with pytest.raises(UnpicklingError):
        engine.load(io.BytesIO(rebuilt(layout, *data)))


def test_what_a_file_says_of_order_is_checked() -> None:
    unsorted = engine.sparse_coo_tensor(engine.tensor([[2, 0, 2]]), engine.ones(3), (3,))
    unsorted._coalesced_(True)
    found = through(unsorted)
    assert not found.is_coalesced() and found.coalesce()._nnz() == 2
    with pytest.raises(UnpicklingError, match="found index 2"):
        through(engine.sparse_coo_tensor(engine.tensor([[2]]), engine.ones(1), (2,)))
