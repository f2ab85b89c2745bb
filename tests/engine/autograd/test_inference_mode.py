"""Tensors made in inference_mode: what torch refuses of them, and that nothing is written where it refuses."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

import engine
from engine.core.grad_mode import inferring


def made(*size: int) -> engine.Tensor:
    with engine.inference_mode():
        return engine.ones(*size)


SAVED = "Inference tensors cannot be saved for backward"
INPLACE = "Inplace update to inference tensor outside InferenceMode is not allowed"


class Product(engine.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad, grad


REFUSED: list[tuple[str, str, Callable[[Any, Any], Any]]] = [  # of a, an inference tensor, and x, which requires grad
    ("mul", SAVED, lambda a, x: x * a),
    ("matmul", SAVED, lambda a, x: x @ a),
    ("linear", SAVED, lambda a, x: engine.nn.Linear(3, 2)(a[None])),
    ("where", SAVED, lambda a, x: _where(x)),
    ("index", SAVED, lambda a, x: x[_indices()]),
    ("function", SAVED, lambda a, x: Product.apply(x, a)),
    ("add_", INPLACE, lambda a, x: a.add_(1)),
    ("iadd", INPLACE, lambda a, x: a.__iadd__(1)),
    ("setitem", INPLACE, lambda a, x: a.__setitem__(0, 5.0)),
    ("zero_", INPLACE, lambda a, x: a.zero_()),
    ("copy_", INPLACE, lambda a, x: a.copy_(engine.zeros(3))),
    ("of_a_view", INPLACE, lambda a, x: a.view(3).add_(1)),
    ("under_no_grad", INPLACE, lambda a, x: engine.no_grad()(lambda: a.add_(1))()),
    ("out", INPLACE, lambda a, x: engine.add(engine.ones(3), 1, out=a)),
    ("requires_grad_", "Setting requires_grad=True on inference tensor", lambda a, x: a.requires_grad_()),
    ("parameter", "Setting requires_grad=True on inference tensor", lambda a, x: engine.nn.Parameter(a)),
    ("version", "Inference tensors do not track version counter", lambda a, x: a._version),
]


def _where(x: Any) -> Any:
    with engine.inference_mode():
        mask = engine.ones(3) > 0
    return engine.where(mask, x, x * 2)


def _indices() -> Any:
    with engine.inference_mode():
        return engine.tensor([0, 1])


@pytest.mark.parametrize(("message", "call"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_is_refused_outside(message: str, call: Callable[[Any, Any], Any]) -> None:
    a, x = made(3), engine.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match=message):
        call(a, x)
    assert a.tolist() == [1.0, 1.0, 1.0] and not a.requires_grad


def test_what_works_outside() -> None:
    a, x, n = made(3), engine.ones(3, requires_grad=True), engine.zeros(3)
    assert a.is_inference() and a.view(3).is_inference() and a[0].is_inference() and a.detach().is_inference()
    assert (x + a).requires_grad and engine.cat([x, a]).requires_grad  # which save neither
    assert not (a * 2).is_inference() and not a.clone().is_inference() and not a.relu().requires_grad
    assert n.add_(a).tolist() == [1.0, 1.0, 1.0] and not n.is_inference() and n._version == 1
    with engine.no_grad():
        assert not (x * a).requires_grad
    (x * a.clone()).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1.0, 1.0, 1.0]
    assert n[_indices()].tolist() == [1.0, 1.0]


def test_what_works_inside() -> None:
    n, x = engine.ones(3), engine.ones(3, requires_grad=True)
    with engine.inference_mode():
        a = engine.ones(3)
        assert a.add_(1).tolist() == [2.0, 2.0, 2.0] and (a * 2).is_inference()
        a[0] = 7.0
        assert a.tolist() == [7.0, 2.0, 2.0] and a[engine.tensor([1, 2])].is_inference()
        assert not n.add_(1).is_inference() and n._version == 1 and not n.view(3).is_inference()
        assert (x * 1).is_inference() and not (x * 1).requires_grad and x.view(3).requires_grad
        assert engine.ones(1).requires_grad_().requires_grad
        parts = engine.ones(2, 2).max(1)
        assert parts.values.is_inference() and engine.ones(4).split(2)[0].is_inference()
        assert pickle.loads(pickle.dumps(a)).is_inference() and copy.deepcopy(a).is_inference()
        with engine.enable_grad():
            assert (x * 2).is_inference() and not (x * 2).requires_grad
        with engine.inference_mode(False):
            assert (x * 2).requires_grad and not engine.ones(1).is_inference()
    assert inferring == [0]
    assert (x * 2).requires_grad


def test_modules_made_inside_run_outside_but_do_not_write_their_buffers() -> None:
    with engine.inference_mode():
        layer, norm = engine.nn.Linear(3, 2), engine.nn.BatchNorm1d(3)
    assert layer.weight.is_inference() and layer.weight.requires_grad
    assert layer(engine.ones(1, 3)).shape == (1, 2)
    with pytest.raises(RuntimeError, match=INPLACE):
        norm(engine.ones(2, 3))


def test_other_threads_are_not_in_the_mode() -> None:
    found: list[bool] = []
    with engine.inference_mode():
        thread = threading.Thread(target=lambda: found.append(engine.ones(2).add(1).is_inference()))
        thread.start()
        thread.join()
    assert found == [False]
