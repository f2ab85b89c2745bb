"""Warnings of what torch gave up: once a process, in its words."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import engine
from engine.core import tensor_messages
from engine.torch_names import _top_level


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tensor_messages, "_warned", set())
    monkeypatch.setattr(tensor_messages, "always", [False])
    yield


def said(function: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        function()
    return [str(w.message) for w in found]


X = engine.ones(2, 2)
B = engine.ones(2, 2, 2)
NOW = "Consider using one of the following signatures instead:"
OVERLOADS = {
    "add_": (
        lambda: X.clone().add_(2, X),
        "add_(Number alpha, Tensor other)",
        ["add_(Tensor other, *, Number alpha = 1)"],
    ),
    "addcdiv_": (
        lambda: X.clone().addcdiv_(2, X, X),
        "addcdiv_(Number value, Tensor tensor1, Tensor tensor2)",
        ["addcdiv_(Tensor tensor1, Tensor tensor2, *, Number value = 1)"],
    ),
    "addmm": (
        lambda: engine.addmm(1, X, 1, X, X),
        "addmm(Number beta, Tensor input, Number alpha, Tensor mat1, Tensor mat2, *, Tensor out = None)",
        [
            "addmm(Tensor input, Tensor mat1, Tensor mat2, *, Number beta = 1, Number alpha = 1, Tensor out = None)",
            "addmm(Tensor input, Tensor mat1, Tensor mat2, torch.dtype out_dtype, *, Number beta = 1, "
            "Number alpha = 1, Tensor out = None)",
        ],
    ),
    "addr": (
        lambda: engine.addr(2, X, X[0], X[0]),
        "addr(Number beta, Tensor input, Tensor vec1, Tensor vec2, *, Tensor out = None)",
        ["addr(Tensor input, Tensor vec1, Tensor vec2, *, Number beta = 1, Number alpha = 1, Tensor out = None)"],
    ),
    "addmv_": (
        lambda: X[0].clone().addmv_(2, X, X[0]),
        "addmv_(Number beta, Tensor mat, Tensor vec)",
        ["addmv_(Tensor mat, Tensor vec, *, Number beta = 1, Number alpha = 1)"],
    ),
    "baddbmm_": (
        lambda: B.clone().baddbmm_(1, 2, B, B),
        "baddbmm_(Number beta, Number alpha, Tensor batch1, Tensor batch2)",
        ["baddbmm_(Tensor batch1, Tensor batch2, *, Number beta = 1, Number alpha = 1)"],
    ),
}


@pytest.mark.parametrize("name", OVERLOADS)
def test_old_overloads(name: str) -> None:
    call, old, new = OVERLOADS[name]
    assert said(call) == [f"This overload of {name} is deprecated:\n\t{old}\n{NOW}\n\t" + "\n\t".join(new)]
    assert said(call) == []


def test_each_time_where_the_user_asks_for_it() -> None:
    assert not _top_level.is_warn_always_enabled()
    _top_level.set_warn_always(True)
    assert _top_level.is_warn_always_enabled()
    assert [len(said(lambda: X.add(2, X))) for _ in range(3)] == [1, 1, 1]


TYPED = (
    "TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only storage class."
)


@pytest.mark.parametrize(
    "call",
    [X.storage, lambda: engine.FloatStorage(2), lambda: engine.FloatStorage([1, 2]), engine.TypedStorage],
    ids=["storage", "size", "values", "typed"],
)
def test_typed_storages(call: Callable[[], Any]) -> None:
    (text,) = said(call)
    assert text.startswith(TYPED) and text.endswith("use tensor.untyped_storage() instead of tensor.storage()")
    _top_level.set_warn_always(True)  # torch's warning is a flag of its own
    assert said(call) == []


def test_typed_storages_at_the_line_of_the_caller() -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        X.storage()
    assert [w.filename for w in found] == [__file__]


def test_untyped_storages_and_copies_say_nothing() -> None:
    def call() -> None:
        other = copy.deepcopy(pickle.loads(pickle.dumps(X)))
        other.set_(X.untyped_storage())
        repr(other)

    assert said(call) == []
