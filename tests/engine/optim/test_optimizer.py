"""The base class: groups, hooks, errors, sparse gradients, versions, devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import engine
from engine import optim
from engine.optim.optimizer import required
from tests.engine import standin
from tests.engine.optim import problems

KINDS = sorted({k for k, _ in problems.OPTIMIZERS.values()} - {"LBFGS"})


def leaf(*values: float) -> Any:
    p = engine.tensor(values or (1.0, 2.0)).requires_grad_()
    p.grad = engine.ones(len(values) or 2)
    return p


def test_torchs_module_layout() -> None:
    """Names are where torch has them."""
    from engine.optim.adam import Adam
    from engine.optim.lr_scheduler import LambdaLR, _LRScheduler
    from engine.optim.optimizer import Optimizer
    from engine.optim.sgd import SGD

    assert (Adam, SGD, Optimizer) == (optim.Adam, optim.SGD, optim.Optimizer)
    assert issubclass(LambdaLR, optim.lr_scheduler.LRScheduler) and _LRScheduler
    assert repr(required) == "<required parameter>"


@pytest.mark.parametrize("kind", KINDS)
def test_step_between_forward_and_backward_is_detected(kind: str) -> None:
    """IP16: the step counts as an in-place write, once a parameter."""
    p = leaf()
    optimizer = getattr(optim, kind)([p])
    loss = (p * p).sum()
    before = p._version
    optimizer.step()
    assert p._version == before + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("kind", KINDS)
def test_without_gradient_nothing_moves(kind: str) -> None:
    """Parameters without gradient keep value, version and an empty state."""
    p, q = leaf(), engine.ones(2, requires_grad=True)
    optimizer = getattr(optim, kind)([p, q])
    optimizer.step()
    assert q.tolist() == [1, 1] and q._version == 0 and p._version == 1
    assert not optimizer.state.get(q) or kind == "Adagrad"


@pytest.mark.parametrize("kind", KINDS)
def test_another_array_module(kind: str) -> None:
    """The kernels reach arrays through `xp` only: on the stand-in GPU."""
    from tests.engine import standin

    with standin.running() as backend:
        here = leaf(1.0, -2.0, 3.0)
        there = here.detach().cuda().requires_grad_()
        there.grad = here.grad.cuda()
        options = {} if kind == "Rprop" else {"weight_decay": 0.1}
        for p in (here, there):
            optimizer = getattr(optim, kind)([p], maximize=True, **options)
            optimizer.step()
            optimizer.step()
        assert np.allclose(backend.to_host(there._array), here.detach().numpy())


def test_groups() -> None:
    """Options of a group override the defaults; names travel with named parameters."""
    a, b, c = leaf(), leaf(), leaf()
    optimizer = optim.SGD([{"params": a, "lr": 1.0}, {"params": [b]}], lr=0.5)
    optimizer.add_param_group({"params": [c], "lr": 0.0})
    optimizer.step()
    assert [p.tolist() for p in (a, b, c)] == [[0, 1], [0.5, 1.5], [1, 2]]
    assert [g["params"] for g in optimizer.state_dict()["param_groups"]] == [[0], [1], [2]]
    named = optim.SGD([("w", leaf()), ("b", leaf())])
    assert named.state_dict()["param_groups"][0]["param_names"] == ["w", "b"]


def test_base_errors() -> None:
    """torch's types and sentences."""
    p, q = leaf(), leaf()
    cases: list[tuple[type, str, Any]] = [
        (TypeError, "params argument given to the optimizer should be an iterable of Tensors or dicts, but got",
         lambda: optim.SGD(p)),
        (ValueError, "optimizer got an empty parameter list", lambda: optim.SGD([])),
        (TypeError, "but one of the params is int", lambda: optim.SGD([3])),
        (TypeError, "ordered collections", lambda: optim.SGD([{"params": {p}}])),
        (TypeError, "param_group must be a dict, but got <class 'list'>", lambda: optim.SGD([p]).add_param_group([])),
        (ValueError, "can't optimize a non-leaf Tensor", lambda: optim.SGD([p * 2])),
        (ValueError, "some parameters appear in more than one", lambda: optim.SGD([{"params": p}, {"params": p}])),
        (ValueError, "Some param names are missing", lambda: optim.SGD([("a", p), q])),
        (ValueError, "cannot add param group without names",
         lambda: optim.SGD([("a", p)]).add_param_group({"params": q})),
        (ValueError, "didn't specify a value of required optimization parameter lr",
         lambda: optim.Optimizer([p], {"lr": required})),
        (ValueError, "different number of parameter groups",
         lambda: optim.SGD([p]).load_state_dict({"state": {}, "param_groups": []})),
        (ValueError, "doesn't match the size of optimizer's group",
         lambda: optim.SGD([p]).load_state_dict({"state": {}, "param_groups": [{"params": [0, 1]}]})),
        (ValueError, "LBFGS doesn't support per-parameter options",
         lambda: optim.LBFGS([{"params": p}, {"params": q}])),
        (RuntimeError, "SparseAdam does not support dense gradients, please consider Adam instead",
         lambda: optim.SparseAdam([p]).step()),
        (RuntimeError, "only 'strong_wolfe' is supported",
         lambda: optim.LBFGS([p], line_search_fn="x").step(lambda: p.sum())),
        (AssertionError, "If capturable=True, params and state_steps must be on supported devices",
         lambda: optim.Adam([p], capturable=True).step()),
        (NotImplementedError, "gradients do not flow", lambda: optim.Adam([p], differentiable=True).step()),
        (RuntimeError, "`fused` and `foreach` cannot be `True` together.",
         lambda: optim.Adam([p], fused=True, foreach=True)),
        (RuntimeError, "`fused` does not support `differentiable`",
         lambda: optim.SGD([p], fused=True, differentiable=True)),
        (ValueError, "betas must be either both floats or both Tensors",
         lambda: optim.Adam([p], betas=(engine.tensor(0.9), 0.9))),
    ]  # fmt: skip
    for kind, message, call in cases:
        with pytest.raises(kind) as error:
            call()
        assert message in str(error.value)
    with pytest.warns(UserWarning, match="duplicate parameters"):
        optim.SGD([p, p])


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("SGD", {"lr": -1.0}, "Invalid learning rate: -1.0"),
        ("SGD", {"momentum": -1.0}, "Invalid momentum value: -1.0"),
        ("SGD", {"weight_decay": -1.0}, "Invalid weight_decay value: -1.0"),
        ("SGD", {"nesterov": True}, "Nesterov momentum requires a momentum and zero dampening"),
        ("Adam", {"eps": -1.0}, "Invalid epsilon value: -1.0"),
        ("AdamW", {"betas": (1.0, 0.9)}, "Invalid beta parameter at index 0: 1.0"),
        ("NAdam", {"momentum_decay": -0.2}, "Invalid momentum_decay value: -0.2"),
        ("RAdam", {"betas": (0.9, -0.1)}, "Invalid beta parameter at index 1: -0.1"),
        ("Adagrad", {"lr_decay": -0.5}, "Invalid lr_decay value: -0.5"),
        ("Adadelta", {"rho": 1.1}, "Invalid rho value: 1.1"),
        ("RMSprop", {"momentum": -0.1}, "Invalid momentum value: -0.1"),
        ("Rprop", {"etas": (1.0, 0.5)}, "Invalid eta values: 1.0, 0.5"),
        ("SparseAdam", {"lr": 0.0}, "Invalid learning rate: 0.0"),
        ("ASGD", {"lr": -0.5}, "Invalid learning rate: -0.5"),
    ],
)
def test_option_errors(kind: str, options: dict, message: str) -> None:
    """Every option is checked in torch's words."""
    with pytest.raises(ValueError) as error:
        getattr(optim, kind)([leaf()], **options)
    assert str(error.value) == message


def test_hooks() -> None:
    """Hooks around step and the state dicts run in order and can be removed."""
    p, seen = leaf(), []
    optimizer = optim.SGD([p])
    handles = [
        optimizer.register_step_pre_hook(lambda *_: seen.append("pre")),
        optimizer.register_step_post_hook(lambda *_: seen.append("post")),
        optim.optimizer.register_optimizer_step_pre_hook(lambda *_: seen.append("global pre")),
        optim.optimizer.register_optimizer_step_post_hook(lambda *_: seen.append("global post")),
        optimizer.register_state_dict_pre_hook(lambda o: seen.append("save")),
        optimizer.register_state_dict_post_hook(lambda o, d: {**d, "more": 1}),
        optimizer.register_load_state_dict_pre_hook(lambda o, d: seen.append("load")),
        optimizer.register_load_state_dict_post_hook(lambda o: seen.append("loaded")),
    ]
    optimizer.step()
    saved = optimizer.state_dict()
    optimizer.load_state_dict(saved)
    assert saved["more"] == 1
    assert seen == ["global pre", "pre", "post", "global post", "save", "load", "loaded"]
    for handle in handles:
        handle.remove()
    optimizer.step()
    assert len(seen) == 7


def test_closure_and_zero_grad() -> None:
    """The closure runs with grad mode on and its loss comes back; zero_grad drops or fills."""
    p = leaf()
    optimizer = optim.Adam([p])
    with engine.no_grad():
        assert optimizer.step(lambda: engine.is_grad_enabled()) is True
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0, 0]
    optimizer.zero_grad()
    assert p.grad is None


def test_a_users_optimizer() -> None:
    """A subclass with its own step, as code for torch writes it."""

    class Plain(optim.Optimizer):
        def __init__(self, params: Any, lr: Any = required) -> None:
            super().__init__(params, {"lr": lr})

        @engine.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad, alpha=-group["lr"])

    p = leaf()
    Plain([p], lr=0.5).step()
    assert p.tolist() == [0.5, 1.5]


def test_sparse_gradients() -> None:
    """SGD, Adagrad and SparseAdam take them; the others say what they lack."""
    grad = engine.sparse_coo_tensor([[1, 1]], [0.5, 0.5], (3,))
    for kind, expected in (("SGD", 1 - 0.1), ("SparseAdam", 1 - 0.1), ("Adagrad", 1 - 0.1)):
        p = engine.ones(3, requires_grad=True)
        p._grad = grad
        getattr(optim, kind)([p], lr=0.1).step()
        np.testing.assert_allclose(p.detach().numpy(), [1, expected, 1], rtol=1e-5)
    p._grad = grad
    with pytest.raises(RuntimeError, match="Adam does not support sparse gradients, please consider SparseAdam"):
        optim.Adam([p]).step()


@pytest.mark.cuda
def test_counters_on_a_gpu_count_the_parameters_of_a_step_that_failed() -> None:
    with standin.running():
        good, bad = (engine.ones(2, device="cuda", requires_grad=True) for _ in range(2))
        good.grad, bad.grad = engine.ones(2, device="cuda"), engine.ones(2, device="cuda")
        other = engine.ones(2, device="cuda", requires_grad=True)
        other.grad = engine.ones(2, device="cuda")
        adam = optim.Adam([good, bad], capturable=True)
        adam.step()
        adam.state[bad].pop("exp_avg")
        with pytest.raises(KeyError):
            adam.step()
        optim.Adam([other], capturable=True).step()  # has nothing to do with it
        assert float(adam.state[good]["step"]) == 2.0
