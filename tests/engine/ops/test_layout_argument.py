"""`layout=` of what makes tensors: sparse where torch makes it so, else an error, never a dense tensor in silence."""

from __future__ import annotations

from typing import Any

import pytest

import engine

X = engine.ones(2, 2)
DENSE: dict[str, tuple[Any, ...]] = {
    "rand": (2,),
    "randn": (2,),
    "randint": (3, (2,)),
    "randperm": (3,),
    "normal": (0.0, 1.0, (2,)),
    "rand_like": (X,),
    "randn_like": (X,),
    "randint_like": (X, 3),
    "full_like": (X, 1.0),
    "arange": (3,),
    "range": (0, 3),
    "linspace": (0, 1, 3),
    "logspace": (0, 1, 3),
    "eye": (2,),
    "empty_strided": ((2,), (1,)),
    "empty_permuted": ((2,), (0,)),
    "tril_indices": (2, 2),
    "triu_indices": (2, 2),
}


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("layout", [engine.sparse_coo, engine.sparse_csr])
def test_what_is_dense_refuses_another_layout(name: str, layout: Any) -> None:
    with pytest.raises(
        NotImplementedError, match=rf"{name}\(\): layout={layout} is not supported; make a dense tensor"
    ):
        getattr(engine, name)(*DENSE[name], layout=layout)


@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
@pytest.mark.parametrize("name", DENSE)
def test_strided_may_be_said(name: str) -> None:
    assert getattr(engine, name)(*DENSE[name], layout=engine.strided).layout is engine.strided


def test_new_tensors() -> None:
    assert X.new_zeros(2, layout=engine.sparse_coo).layout is engine.sparse_coo
    assert X.double().new_empty(2, 2, layout=engine.sparse_csr).dtype is engine.float64
    for call in (
        lambda: X.new_ones(2, layout=engine.sparse_coo),
        lambda: X.new_full((2,), 1, layout=engine.sparse_coo),
    ):
        with pytest.raises(NotImplementedError, match=r"layout=torch\.sparse_coo"):
            call()
    with pytest.raises(RuntimeError, match=r"full\(...\) is not implemented for sparse layout"):
        engine.full((2,), 1.0, layout=engine.sparse_coo)
