"""Helpers of the autograd rule tests: comparison with literals, counting Functions, silence."""

from __future__ import annotations

import contextlib
import gc
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import engine
from engine.autograd import Function


def check(tensor: Any, expected: Any, tol: float = 1e-6) -> None:
    """`tensor` has the shape of `expected` (nested lists or numbers) and its values."""
    assert isinstance(tensor, engine.Tensor), type(tensor)
    assert tuple(tensor.shape) == np.shape(expected)
    np.testing.assert_allclose(tensor.detach().numpy(), np.asarray(expected), rtol=tol, atol=tol)


def same(a: Any, b: Any, tol: float = 1e-6) -> None:
    """Two tensors agree in dtype, shape and values."""
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=tol, atol=tol)


def leaf(*shape: int, seed: int = 0, dtype: Any = None, low: float = -1.0, high: float = 1.0) -> Any:
    """A leaf that requires grad, float64 unless said, with values from numpy's generator `seed`."""
    values = np.random.default_rng(seed).uniform(low, high, shape)
    t = engine.tensor(values, dtype=dtype or engine.float64)
    return t.requires_grad_()


def constant(*shape: int, seed: int = 0, dtype: Any = None, low: float = -1.0, high: float = 1.0) -> Any:
    """As `leaf`, without grad."""
    return leaf(*shape, seed=seed, dtype=dtype, low=low, high=high).detach()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Warnings of one era and not of the other do not matter in this block."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def grad_of(tensor: Any) -> Any:
    """`.grad`, of a non-leaf too, whatever is warned about that."""
    with quiet():
        return tensor.grad


@contextlib.contextmanager
def no_gc() -> Iterator[None]:
    """Only reference counts free objects in this block."""
    gc.collect()
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Witness:
    """An object whose death a weak reference shows."""


def tracer(log: list) -> Any:
    """A Function identity(x, tag) whose backward appends `tag` to `log`."""

    class Trace(Function):
        @staticmethod
        def forward(ctx, x, tag):
            ctx.tag = tag
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            log.append(ctx.tag)
            return grad, None

    return Trace.apply


class _Keep(Function):
    @staticmethod
    def forward(ctx, x, witness):
        ctx.witness = witness
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def keep(x: Any, witness: Any) -> Any:
    """A copy of `x` whose node holds `witness` for as long as it lives."""
    return _Keep.apply(x, witness)
