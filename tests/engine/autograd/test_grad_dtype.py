"""`grad_dtype`: the dtype in which a leaf's gradient is kept (numbers and errors of torch 2.13)."""

from __future__ import annotations

import pytest

import engine


def leaf() -> engine.Tensor:
    return engine.ones(2, requires_grad=True)


def test_it_is_the_tensor_s_own_by_default() -> None:
    assert leaf().grad_dtype is engine.float32
    assert engine.ones(2, dtype=engine.bfloat16).grad_dtype is engine.bfloat16


def test_gradients_are_cast_and_added_in_it() -> None:
    p, seen = leaf(), []
    p.register_hook(lambda g: seen.append(g.dtype))
    p.grad_dtype = engine.float64
    for _ in range(2):
        (p * 2).sum().backward()
    assert p.grad.dtype is engine.float64 and p.grad.tolist() == [4, 4]
    assert seen == [engine.float64] * 2
    assert engine.autograd.grad((p * 2).sum(), p)[0].dtype is engine.float64
    p.grad = None
    p.grad_dtype = engine.float32
    (p * 2).sum().backward()
    assert p.grad.dtype is engine.float32


def test_half_a_model_of_16_bits_keeps_exact_sums() -> None:
    p = engine.ones(1, dtype=engine.bfloat16, requires_grad=True)
    p.grad_dtype = engine.float32
    for _ in range(300):
        p.sum().backward()
    assert p.grad.item() == 300  # 256 in bfloat16


def test_a_gradient_that_is_assigned() -> None:
    p = leaf()
    with pytest.raises(
        RuntimeError, match=r"attempting to assign a gradient with dtype 'double' to a tensor with grad_dtype"
    ):
        p.grad = engine.ones(2, dtype=engine.float64)
    p.grad_dtype = None
    p.grad = engine.ones(2, dtype=engine.float64)
    assert p.grad_dtype is None and p.grad.dtype is engine.float64
    with pytest.raises(
        RuntimeError, match="Cannot set grad_dtype to 'Half' because there is already a gradient with dtype"
    ):
        p.grad_dtype = engine.float16


def test_leaves_only() -> None:
    q = leaf() * 2
    with pytest.raises(RuntimeError, match=r"grad_dtype can only be accessed on leaf tensors\."):
        q.grad_dtype  # noqa: B018
    with pytest.raises(RuntimeError, match=r"grad_dtype can only be set on leaf tensors\."):
        q.grad_dtype = engine.float32
    x = engine.ones(2)
    x.grad_dtype = engine.float64  # torch takes it without requires_grad, too
    assert x.grad_dtype is engine.float64
