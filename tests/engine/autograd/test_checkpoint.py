"""utils.checkpoint (rules CP01-CP05)."""

import pytest

import engine
from engine import nn
from engine.nn import functional as F
from engine.utils.checkpoint import checkpoint, checkpoint_sequential

from ._util import check, leaf, quiet, same


def run(f, *args, **kwargs):
    """checkpoint in both of its later modes' ways of being called: here without saying which."""
    with quiet():
        return checkpoint(f, *args, **kwargs)


@pytest.mark.parametrize("mode", [{}, {"use_reentrant": True}, {"use_reentrant": False}])
def test_cp01_same_values_and_gradients(mode):
    """CP01: checkpoint: same values and gradients as without."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x = leaf(5, 3)
    results = []
    for call in (lambda: model(x), lambda: run(model, x, **mode)):
        model.zero_grad()
        x.grad = None
        out = call()
        (out**2).sum().backward()
        results.append([out.detach(), x.grad.clone(), *(p.grad.clone() for p in model.parameters())])
    for plain, checked in zip(*results):
        same(plain, checked)


def test_cp01_keeps_no_intermediates():
    """CP01: checkpoint: same values and gradients as without."""
    seen = []

    def f(t):
        y = t.exp()
        seen.append(y.requires_grad)
        return y * y

    x = leaf(2)
    out = run(f, x, use_reentrant=True)
    assert seen == [False]
    assert out.requires_grad
    out.sum().backward()
    assert seen == [False, True]
    check(x.grad, (2 * (2 * x).exp()).tolist())


def test_cp02_runs_twice():
    """CP02: the function runs once in forward and once more in backward."""
    calls = []

    def f(t):
        calls.append(engine.is_grad_enabled())
        return t.sin()

    x = leaf(2)
    out = run(f, x)
    assert len(calls) == 1
    (out * 2).sum().backward()
    assert len(calls) == 2 and calls[1] is True
    check(x.grad, (2 * x.cos()).tolist())


def test_cp02_once_without_backward():
    """CP02: the function runs once in forward and once more in backward."""
    calls = []
    x = leaf(2)
    with engine.no_grad():
        out = run(lambda t: calls.append(1) or t * 2, x)
    assert calls == [1] and not out.requires_grad


def test_cp03_random_state():
    """CP03: random state is preserved: dropout has the same mask in the recomputation."""
    engine.manual_seed(5)
    x = engine.ones(100, requires_grad=True)

    def f(t):
        return F.dropout(t * 2, 0.5, training=True)

    out = run(f, x)
    after = engine.rand(3)
    out.sum().backward()
    assert 0 < int((out == 0).sum()) < 100
    check(x.grad, out.tolist())
    engine.manual_seed(5)
    plain = f(x)
    same(plain.detach(), out.detach())
    same(after, engine.rand(3))


def test_cp03_the_state_after_backward_is_untouched():
    """CP03: random state is preserved: dropout has the same mask in the recomputation."""
    engine.manual_seed(1)
    x = engine.ones(10, requires_grad=True)
    out = run(lambda t: F.dropout(t, 0.5, training=True), x)
    state = engine.get_rng_state()
    out.sum().backward()
    assert engine.equal(engine.get_rng_state(), state)


def test_cp04_nested():
    """CP04: nested and sequential checkpoints."""
    x = leaf(3)

    def inner(t):
        return t.sin() * t

    def outer(t):
        return run(inner, t.exp()) + t

    (inner(x.exp()) + x).sum().backward()
    plain, x.grad = x.grad, None
    run(outer, x).sum().backward()
    check(x.grad, plain.tolist())


@pytest.mark.parametrize("segments", [1, 2, 3, 5])
def test_cp04_sequential(segments):
    """CP04: nested and sequential checkpoints."""
    model = nn.Sequential(*[nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(5)]).double()
    x = leaf(2, 3)
    model(x).sum().backward()
    plain = [x.grad.clone(), *(p.grad.clone() for p in model.parameters())]
    x.grad = None
    model.zero_grad()
    for functions in (model, list(model)):
        x.grad = None
        model.zero_grad()
        with quiet():
            checkpoint_sequential(functions, segments, x).sum().backward()
        for a, b in zip(plain, [x.grad, *(p.grad for p in model.parameters())]):
            same(a, b)


def test_cp05_several_outputs():
    """CP05: several outputs and non-tensor arguments."""
    x, y = leaf(2, seed=1), leaf(2, seed=2)

    def f(a, factor, b, flag=None):
        return a * factor, a * b, b.detach() > 0

    first, second, mask = run(f, x, 3.0, y)
    assert not mask.requires_grad and mask.dtype == engine.bool
    (first + 2 * second).sum().backward()
    check(x.grad, (3 + 2 * y).tolist())
    check(y.grad, (2 * x).tolist())


def test_cp05_keyword_and_other_arguments():
    """CP05: several outputs and non-tensor arguments."""
    x = leaf(2)

    def f(a, table, *, power):
        return a**power * table["scale"]

    out = run(f, x, {"scale": 3.0}, power=2, use_reentrant=False)
    out.sum().backward()
    check(x.grad, (6 * x).tolist())
    out = run(lambda a, none, text: a * len(text), x, None, "four")
    x.grad = None
    out.sum().backward()
    check(x.grad, [4, 4])
