"""Note [Passes without a plan]: what a pass does does not depend on when it is planned."""

import itertools

import pytest

import engine
from engine.autograd import engine as passes


def leaf(*size: int, seed: int = 0) -> engine.Tensor:
    g = engine.Generator().manual_seed(seed)
    return engine.randn(*size, generator=g, dtype=engine.float64, requires_grad=True)


def unusual(x: engine.Tensor) -> engine.Tensor:
    """An op without formulas over arrays, from which on a pass is planned."""
    return x.cumsum(0)


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many nodes were ready whenever a pass was planned."""
    calls: list[int] = []
    run = passes._run_planned

    def counted(ready, buffers, keep_graph):
        calls.append(len(ready))
        run(ready, buffers, keep_graph)

    monkeypatch.setattr(passes, "_run_planned", counted)
    return calls


STEPS = [lambda x, w: x * w, lambda x, w: (x + w).tanh(), lambda x, w: unusual(x) * w, lambda x, w: x / (w * w + 1)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=lambda o: "".join(map(str, o)))
def test_a_leaf_that_is_used_before_and_after_the_plan(order: tuple[int, ...], planned: list[int]) -> None:
    x, w = leaf(3, seed=1), leaf(3, seed=2)
    seen: list[list[float]] = []

    def value(x, w):
        y = x
        for i in order:
            y = STEPS[i](y, w) + y
        return y.sum()

    value(x, w).backward()
    assert len(planned) == 1
    expected = engine.autograd.grad(value(x, w), (x, w))
    assert engine.allclose(x.grad, expected[0], rtol=1e-12)
    assert engine.allclose(w.grad, expected[1], rtol=1e-12)
    again = leaf(3, seed=2)
    again.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.tolist()))
    value(x, again).backward()
    assert seen == [again.grad.tolist()] == [pytest.approx(w.grad.tolist(), rel=1e-12)]


def test_small_graphs_are_not_planned(planned: list[int]) -> None:
    x, w, b = leaf(2, 3), leaf(3, 3), leaf(3)
    for _ in range(2):
        ((x @ w + b).tanh() * (x - b)).sum().backward()
    assert not planned


def test_a_watched_leaf_gets_its_gradient_before_older_nodes_run(planned: list[int]) -> None:
    x, w = leaf(3, seed=1), leaf(3, seed=2)
    seen: list[str] = []
    w.register_post_accumulate_grad_hook(lambda t: seen.append("w"))
    y = x * 2
    y.register_hook(lambda g: seen.append("y"))
    ((y * w) * w).sum().backward()
    assert seen == ["w", "y"] and len(planned) == 1


def test_a_hook_sees_the_leaves_that_are_done() -> None:
    x, w = leaf(3, seed=1), leaf(3, seed=2)
    y = x.exp()
    seen: list[object] = []
    y.register_hook(lambda g: seen.append(w.grad is not None))
    (y * w).sum().backward()
    assert seen == [True]


def test_a_view_written_in_place_is_older_than_its_readers() -> None:
    """The history of a stale view is made when it is asked for, by the node that reads it: it must be the older one."""
    x = leaf(4)
    base = x * 1
    view = base[1:]
    base.mul_(3)
    (view * x[1:]).sum().backward()
    assert x.grad.tolist() == pytest.approx([0.0, *(6 * x[1:]).tolist()])


def test_a_failed_pass_leaves_gradients_alone() -> None:
    x, w = leaf(3, seed=1), leaf(3, seed=2)
    y = x.exp()
    z = (y * w).sum()
    y.sum().backward()
    before = x.grad.tolist()
    with pytest.raises(RuntimeError, match="second time"):
        z.backward()
    assert w.grad is None and x.grad.tolist() == before


# --- gradients of parts, added in place

PARTS = [
    lambda x: x[1:],
    lambda x: x[..., ::2],
    lambda x: x[2],
    lambda x: x[:, 1:3, -1],
    lambda x: x[-1, 0],
    lambda x: x[None, :, 1],
    lambda x: x.select(1, 2),
    lambda x: x.narrow(1, 1, 2),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "complex64"])
def test_gradients_of_several_parts_are_those_of_one_after_the_other(dtype: str) -> None:
    x = leaf(4, 5, 6).detach().to(getattr(engine, dtype)).requires_grad_()
    for first, second in itertools.product(PARTS, PARTS):
        x.grad = None
        loss = (first(x) * 3).sum().real + (second(x) * 2).sum().real
        loss.backward(retain_graph=True)
        want = engine.zeros_like(x)
        first(want).add_(3)
        second(want).add_(2)
        assert x.grad is not None and bool((x.grad == want).all())
        loss.backward()
        assert bool((x.grad == 2 * want).all())


def test_gradients_that_others_hold_are_not_added_to() -> None:
    x, w = leaf(4, 5), leaf(4, 5)
    given, seen = engine.ones(4, 5, dtype=engine.float64), []
    y = x * 1
    z = y + w  # of which y and w get the same gradient
    z.register_hook(lambda grad: seen.append(grad))
    (z + y[:1]).backward(given)
    assert bool((given == 1).all()) and bool((seen[0] == 1).all())
    assert w.grad is not None and bool((w.grad == 1).all())
    assert x.grad is not None and x.grad[0].tolist() == [5.0] * 5 and bool((x.grad[1:] == 1).all())


def test_hooks_of_parts_and_of_the_whole_see_what_they_did() -> None:
    x, seen = leaf(4, 5), []
    y = x * 1
    y.retain_grad()
    parts = [y[1:], y[:-1]]
    for part in parts:
        part.register_hook(lambda grad: seen.append(tuple(grad.shape)))
        part.grad_fn.register_hook(lambda inputs, outputs: seen.append(tuple(inputs[0].shape)))
    (parts[0] * 2 - parts[1]).sum().backward()
    assert sorted(seen) == [(3, 5)] * 2 + [(4, 5)] * 2
    assert y.grad is not None and y.grad[:, 0].tolist() == [-1.0, 1.0, 1.0, 2.0]
    assert x.grad is not None and bool((x.grad == y.grad).all())


def test_a_part_that_is_taken_once_more_after_its_graph_was_freed_is_refused_as_before() -> None:
    x = leaf(4, 5)
    y = (x.exp()[1:] - x.exp()[:-1]).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


@pytest.mark.parametrize("size", [8, 128])
def test_gradients_of_views_of_any_size_add_up(size: int) -> None:
    """From 4,096 elements on the nodes of views alone compute over arrays."""
    x, w = leaf(size, size), leaf(size, size)
    given = engine.ones(size, size, dtype=engine.float64)
    y = x * 2
    (y.t() + y.reshape(-1).view(size, size) + y.unsqueeze(0).squeeze(0).clone() + w.permute(1, 0)).backward(given)
    assert x.grad is not None and bool((x.grad == 6).all()) and x.grad.is_contiguous()
    assert w.grad is not None and bool((w.grad == 1).all()) and w.grad.is_contiguous()
    w.grad.add_(1)
    assert bool((given == 1).all()), "a leaf's gradient shares no memory with what the user gave"


def test_a_view_of_a_gradient_that_cannot_be_shown_is_copied() -> None:
    x = leaf(30, 40, 50)
    x.reshape(1200, 50).permute(1, 0).reshape(-1).backward(engine.arange(60000.0, dtype=engine.float64))
    want = engine.arange(60000.0, dtype=engine.float64).view(50, 1200).t().reshape(30, 40, 50)
    assert x.grad is not None and bool((x.grad == want).all()) and x.grad.is_contiguous()
