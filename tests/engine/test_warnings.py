"""Warnings of calls that torch 2.13 advises against: its text, its category, and whether they come each time."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import engine
from engine import nn
from engine.core import tensor_messages

A = engine.tensor([[4.0, 1.0], [1.0, 3.0]])
FREEDOM = (
    "{}(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor (input numel "
    "divided by output numel)."
)
AMP = "`torch.{0}.amp.{1}(args...)` is deprecated. Please use `torch.amp.{1}('{0}', args...)` instead."
CUSTOM = "`torch.cuda.amp.{0}(args...)` is deprecated. Please use `torch.amp.{0}(args..., device_type='cuda')` instead."
DEPRECATED = "torch.{} is deprecated in favor of torch.linalg.{} and will be removed in a future PyTorch release.\n"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing has been said yet."""
    monkeypatch.setattr(tensor_messages, "_warned", set())
    with np.errstate(all="ignore"):
        yield


def said(call: Callable[[], Any]) -> list[tuple[type[Warning], str]]:
    """The warnings of a call; each is shown at the line of the caller."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert {w.filename for w in caught} <= {__file__}
    return [(w.category, str(w.message)) for w in caught]


def backward() -> None:
    x = engine.ones(2, requires_grad=True)
    (x * x).sum().backward(create_graph=True)


def tensor_type() -> None:
    engine.set_default_tensor_type(engine.FloatTensor)


@pytest.mark.parametrize(
    ("call", "begins", "ends"),
    [
        (lambda: engine.qr(A), DEPRECATED.format("qr", "qr"), "torch.linalg.qr(A, 'reduced' if some else 'complete')"),
        (
            lambda: engine.cholesky(A),
            DEPRECATED.format("cholesky", "cholesky"),
            "results for all valid (symmetric positive definite) inputs.",
        ),
        (
            lambda: engine.lu(A),
            DEPRECATED.format("lu", "lu_factor / torch.linalg.lu_factor_ex"),
            "LU, pivots, info = torch.linalg.lu_factor_ex(A, compute_pivots)",
        ),
        (
            lambda: engine.lu_solve(A, *engine.linalg.lu_factor(A)),
            DEPRECATED.format("lu_solve", "lu_solve"),
            "X = torch.linalg.lu_solve(LU, pivots, B)",
        ),
        (
            lambda: engine.triangular_solve(A, A),
            DEPRECATED.format("triangular_solve", "solve_triangular"),
            "X = torch.linalg.solve_triangular(A, B).",
        ),
        (
            lambda: engine.tensor([np.ones(2), np.ones(2)]),
            "Creating a tensor from a list of numpy.ndarrays is extremely slow.",
            "with numpy.array() before converting to a tensor.",
        ),
        (
            tensor_type,
            "torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use torch.set_default_dtype()",
            "torch.set_default_device() as alternatives.",
        ),
        (
            backward,
            "Using backward() with create_graph=True will create a reference cycle between the parameter and its",
            "reset the .grad fields of your parameters to None after use to break the cycle and avoid the leak.",
        ),
        (
            lambda: engine.stft(engine.ones(400), 100, return_complex=True),
            "A window was not provided. A rectangular window will be applied,which is known to cause spectral leakage.",
            "explicitly set `window=torch.ones(n_fft, device=<device>)`.",
        ),
    ],
    ids="qr cholesky lu lu_solve triangular_solve arrays set_default_tensor_type create_graph stft".split(),
)
def test_once_a_process(call: Callable[[], Any], begins: str, ends: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
        call()
    found = [w for w in caught if w.category is UserWarning]
    assert len(found) == 1 and found[0].filename == __file__
    text = str(found[0].message)
    assert text.startswith(begins) and text.endswith(ends)


def test_the_new_names_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine.linalg.qr(A)
        engine.linalg.cholesky(A)
        engine.linalg.lu_solve(*engine.linalg.lu_factor(A), A)
        engine.linalg.solve_triangular(A, A, upper=True)
        engine.tensor([[1.0, 2.0], np.ones(2).tolist()])
        x = engine.ones(2, requires_grad=True)
        engine.autograd.grad((x * x).sum(), x, create_graph=True)
        engine.distributions.MultivariateNormal(engine.zeros(2), A)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: engine.ones(1).std(), FREEDOM.format("std")),
        (lambda: engine.var(engine.ones(2, 1), 1), FREEDOM.format("var")),
        (lambda: engine.var(engine.ones(2), correction=5), FREEDOM.format("var")),
        (lambda: engine.std_mean(engine.ones(1)), FREEDOM.format("std_mean")),
        (lambda: engine.var_mean(engine.ones(1, 2), 0), FREEDOM.format("var_mean")),
        (lambda: engine.ones(0).var(unbiased=False), FREEDOM.format("var")),
        (
            lambda: engine.cov(engine.ones(1)),
            "cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations.",
        ),
    ],
    ids="std var correction std_mean var_mean empty cov".split(),
)
def test_no_degrees_of_freedom(call: Callable[[], Any], text: str) -> None:
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        assert [(w.filename, str(w.message)) for w in caught if w.category is UserWarning] == [(__file__, text)]


def test_enough_degrees_of_freedom() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine.ones(1).var(unbiased=False)
        engine.ones(2, 3).std(1)
        engine.cov(engine.ones(2, 2))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: engine.cuda.amp.autocast(enabled=False), AMP.format("cuda", "autocast")),
        (lambda: engine.cuda.amp.GradScaler(enabled=False), AMP.format("cuda", "GradScaler")),
        (lambda: engine.cpu.amp.autocast(), AMP.format("cpu", "autocast")),
        (lambda: engine.cpu.amp.GradScaler(enabled=False), AMP.format("cpu", "GradScaler")),
        (lambda: engine.cuda.amp.custom_fwd(len), CUSTOM.format("custom_fwd")),
        (lambda: engine.cuda.amp.custom_bwd(len), CUSTOM.format("custom_bwd")),
    ],
)
def test_amp_of_a_device(call: Callable[[], Any], text: str) -> None:
    assert said(call) == said(call) == [(FutureWarning, text)]


def test_more_workers_than_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2}, raising=False)
    assert said(lambda: engine.utils.data.DataLoader([1], num_workers=3)) == []
    [(category, text)] = said(lambda: engine.utils.data.DataLoader([1], num_workers=4))
    assert category is UserWarning
    assert text.startswith(
        "This DataLoader will create 4 worker processes in total. Our suggested max number of worker in current "
        "system is 3, which is smaller than what this DataLoader is going to create. Please be aware"
    )
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    [(_, text)] = said(lambda: engine.utils.data.DataLoader([1], num_workers=4))
    assert "system is 3 (`cpuset` is not taken into account), which" in text


def test_lazy_modules_do_not_warn_any_more() -> None:
    assert said(lambda: (nn.LazyLinear(3), nn.LazyConv2d(3, 1), nn.LazyBatchNorm1d())) == []


def test_whose_documentation_and_whose_copy() -> None:
    [(_, text)] = said(lambda: nn.functional.affine_grid(engine.zeros(1, 2, 3), (1, 1, 2, 2)))
    assert text.endswith("See the documentation of grid_sample for details.")
    [(_, text)] = said(lambda: A.new_tensor(A))
    assert text.endswith("rather than tensor.new_tensor(sourceTensor).")
    [(_, text)] = said(lambda: engine.tensor(A))
    assert text.endswith("rather than torch.tensor(sourceTensor).")
