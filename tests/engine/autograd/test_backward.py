"""Tensor.backward and autograd.backward (rules BW01-BW18)."""

import numpy as np
import pytest

import engine
from engine.autograd import Function

from ._util import check, constant, leaf, tracer

SECOND = "Trying to backward through the graph a second time"


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (1, 1, 1)])
def test_bw01_one_element(shape):
    """BW01: a scalar, or any one-element tensor, needs no gradient argument."""
    x = engine.full(shape, 3.0, requires_grad=True)
    (x * x).backward()
    check(x.grad, np.full(shape, 6.0))
    x.grad = None
    engine.autograd.backward(x * x)
    check(x.grad, np.full(shape, 6.0))


@pytest.mark.parametrize("shape", [(2,), (2, 1), (0,), (3, 2)])
def test_bw02_several_elements(shape):
    """BW02: backward on several elements without a gradient is an error that says scalar outputs
    only.
    """
    x = engine.ones(shape, requires_grad=True)
    y = x * x
    for attempt in (y.backward, lambda: engine.autograd.backward([y]), lambda: y.backward(None)):
        with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
            attempt()
    assert x.grad is None
    y.backward(engine.ones(shape))
    check(x.grad, np.full(shape, 2.0))


def test_bw02_an_integer_scalar_cannot_start():
    """BW02: backward on several elements without a gradient is an error that says scalar outputs
    only.
    """
    x = leaf(2)
    with pytest.raises(RuntimeError):
        (x > 0).sum().backward()


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 1), (1, 2), (2, 2, 1)])
def test_bw03_wrong_shape(shape):
    """BW03: a gradient of the wrong shape is refused."""
    x = leaf(2, 2)
    y = x * 2
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        y.backward(engine.ones(shape, dtype=engine.float64))
    with pytest.raises(RuntimeError, match=r"Mismatch in shape: grad_output\[0\] has a shape of"):
        engine.autograd.grad(y, x, engine.ones(shape, dtype=engine.float64))
    assert x.grad is None


def test_bw03_message_names_both_shapes():
    """BW03: a gradient of the wrong shape is refused."""
    y = leaf(2, 3) * 2
    with pytest.raises(RuntimeError, match=r"\[3, 2\].*output\[0\] has a shape of .*\[2, 3\]"):
        y.backward(engine.ones(3, 2, dtype=engine.float64))


def test_bw03_number_of_gradients():
    """BW03: a gradient of the wrong shape is refused."""
    x = leaf(2)
    with pytest.raises(RuntimeError):
        engine.autograd.backward([x * 2, x * 3], [engine.ones(2, dtype=engine.float64)])
    with pytest.raises(TypeError):
        engine.autograd.backward([x * 2], [1.0])


def test_bw04_no_grad_at_all():
    """BW04: backward of what does not require grad is an error."""
    message = "element 0 of tensors does not require grad and does not have a grad_fn"
    for t in (engine.ones(()), leaf(2).sum().detach(), engine.ones(2).sum()):
        with pytest.raises(RuntimeError, match=message):
            t.backward()
        with pytest.raises(RuntimeError, match=message):
            engine.autograd.backward(t)


@pytest.mark.parametrize("index", range(8))
def test_bw05_second_backward(index):
    """BW05: a second backward through freed buffers is an error that names retain_graph; the
    first gradients stay.
    """
    f = [
        lambda x: x * x,
        lambda x: x.exp(),
        lambda x: x.sin(),
        lambda x: x**3,
        lambda x: x / (x + 3),
        lambda x: x.mm(x.t()),
        lambda x: engine.relu(x),
        lambda x: x.softmax(0),
    ][index]
    x = leaf(2, 2)
    y = f(x).sum()
    y.backward()
    first = x.grad.tolist()
    with pytest.raises(RuntimeError, match=SECOND) as error:
        y.backward()
    assert "retain_graph=True" in str(error.value)
    check(x.grad, first)


def test_bw05_a_shared_part_that_was_freed():
    """BW05: a second backward through freed buffers is an error that names retain_graph; the
    first gradients stay.
    """
    x = leaf(2)
    shared = x * x
    (shared * 2).sum().backward()
    with pytest.raises(RuntimeError, match=SECOND):
        (shared * 3).sum().backward()
    with pytest.raises(RuntimeError, match=SECOND):
        engine.autograd.grad((shared * 3).sum(), x)


def test_bw06_retain_graph():
    """BW06: retain_graph=True keeps the buffers; create_graph=True implies it."""
    x = leaf(2)
    y = (x * x).exp().sum()
    y.backward(retain_graph=True)
    once = x.grad.clone()
    y.backward(retain_graph=True)
    y.backward()
    check(x.grad, (3 * once).tolist())
    with pytest.raises(RuntimeError, match=SECOND):
        y.backward()


def test_bw06_create_graph_implies_it():
    """BW06: retain_graph=True keeps the buffers; create_graph=True implies it."""
    x = leaf(2)
    y = (x * x).exp().sum()
    (a,) = engine.autograd.grad(y, x, create_graph=True)
    (b,) = engine.autograd.grad(y, x, create_graph=True, retain_graph=False)
    check(a, b.tolist())
    with pytest.raises(RuntimeError, match=SECOND):
        y.backward()
    z = (x * x).exp().sum()
    engine.autograd.grad(z, x, create_graph=True)
    z.backward()
    check(x.grad, a.tolist())


@pytest.mark.parametrize("index", range(6))
def test_bw07_nothing_saved(index):
    """BW07: where nothing was saved a second backward works."""
    f = [
        lambda x: x + 1,
        lambda x: x - x,
        lambda x: -x,
        lambda x: x.view(4) + 2,
        lambda x: x.t().sum(0),
        lambda x: engine.cat([x, x])[0],
    ][index]
    x = leaf(2, 2)
    y = f(x).sum()
    y.backward()
    first = x.grad.clone()
    y.backward()
    y.backward()
    check(x.grad, (3 * first).tolist())


def test_bw08_several_roots():
    """BW08: several roots go through one pass; a repeated root counts twice."""
    log = []
    x = leaf(2)
    shared = tracer(log)(x * x, "shared")
    a, b = shared.sum(), (shared * 3).sum()
    engine.autograd.backward([a, b])
    assert log == ["shared"]
    check(x.grad, (8 * x).tolist())


def test_bw08_with_gradients_and_repeats():
    """BW08: several roots go through one pass; a repeated root counts twice."""
    x = leaf(2)
    y = x * 2
    one = engine.ones(2, dtype=engine.float64)
    engine.autograd.backward([y, y], [one, one * 10])
    check(x.grad, [22, 22])
    x.grad = None
    s = (x * x).sum()
    engine.autograd.backward([s, s, s])
    check(x.grad, (6 * x).tolist())
    x.grad = None
    engine.autograd.backward((x.sum(), (x * 2).sum()), (None, engine.tensor(5.0).double()))
    check(x.grad, [11, 11])


def test_bw08_a_root_below_another():
    """BW08: several roots go through one pass; a repeated root counts twice."""
    x = leaf(2)
    y = x * x
    engine.autograd.backward([y.sum(), y.exp().sum(), x.sum()])
    check(x.grad, (2 * x + 2 * x * (x * x).exp() + 1).tolist())


def test_bw09_one_root_without_grad():
    """BW09: a root that does not require grad is an error even beside one that does."""
    x = leaf(2)
    with pytest.raises(RuntimeError, match="element 1 of tensors does not require grad"):
        engine.autograd.backward([x.sum(), engine.ones(())])
    with pytest.raises(RuntimeError, match="element 0 of tensors does not require grad"):
        engine.autograd.backward([engine.ones(()), x.sum()])
    assert x.grad is None


def test_bw10_a_leaf_as_root():
    """BW10: backward of a leaf puts the gradient in its .grad."""
    x = engine.tensor(3.0, requires_grad=True)
    x.backward()
    check(x.grad, 1)
    x.backward()
    check(x.grad, 2)
    y = leaf(2)
    y.backward(engine.tensor([3.0, 4.0], dtype=engine.float64))
    check(y.grad, [3, 4])


def test_bw11_diamond():
    """BW11: a node runs once, after all gradients for it have come (diamond)."""
    log = []
    trace = tracer(log)
    x = leaf(2)
    top = trace(x, "top")
    left, right = trace(top * 2, "left"), trace(top * 3, "right")
    bottom = trace(left * right, "bottom")
    bottom.sum().backward()
    assert log == ["bottom", "right", "left", "top"]
    check(x.grad, (12 * x).tolist())


def test_bw11_many_paths():
    """BW11: a node runs once, after all gradients for it have come (diamond)."""
    log = []
    trace = tracer(log)
    x = leaf(1)
    y = x
    for level in range(6):
        y = trace(y, level)
        y = y + y
    y.sum().backward()
    assert log == [5, 4, 3, 2, 1, 0]
    check(x.grad, [64])


def test_bw12_created_last_runs_first():
    """BW12: among ready nodes the one created last runs first."""
    log = []
    trace = tracer(log)
    x = leaf(2)
    branches = [trace(x, name) for name in "abcde"]
    (branches[4] + branches[0] + branches[3] + branches[1] + branches[2]).sum().backward()
    assert log == ["e", "d", "c", "b", "a"]


def test_bw12_across_depths():
    """BW12: among ready nodes the one created last runs first."""
    log = []
    trace = tracer(log)
    x = leaf(2)
    early = trace(trace(x, "early 0"), "early 1")
    late = trace(x, "late 0")
    late = trace(late, "late 1")
    between = trace(early, "early 2")
    (between + late).sum().backward()
    assert log == ["early 2", "late 1", "late 0", "early 1", "early 0"]


@pytest.mark.parametrize("index", range(7))
def test_bw13_unused_outputs(index):
    """BW13: an unused output of a multi-output node counts as a zero gradient."""
    x = engine.tensor([3.0, 1.0, 4.0, 2.0], requires_grad=True)
    used, expected = [
        lambda: (x.chunk(2)[0], [1, 1, 0, 0]),
        lambda: (x.split([1, 3])[1], [0, 1, 1, 1]),
        lambda: (x.unbind()[2], [0, 0, 1, 0]),
        lambda: (x.sort()[0][3:], [0, 0, 1, 0]),
        lambda: (x.topk(2)[0], [1, 0, 1, 0]),
        lambda: (x.view(2, 2).max(0)[0], [0, 0, 1, 1]),
        lambda: (engine.stack(x.view(2, 2).unbind(1)[1:]), [0, 1, 0, 1]),
    ][index]()
    used.sum().backward()
    check(x.grad, expected)


def test_bw13_var_mean_style_and_svd():
    """BW13: an unused output of a multi-output node counts as a zero gradient."""
    x = leaf(3, 3, seed=4)
    _, s, _ = engine.svd(x)
    s.sum().backward()
    assert x.grad.shape == x.shape and float(x.grad.abs().sum()) > 0


def test_bw14_casts():
    """BW14: gradients flow through dtype casts and come back in the input's dtype."""
    x = engine.ones(2, requires_grad=True)
    y = x.double() * engine.tensor([2.0, 3.0], dtype=engine.float64)
    y.sum().backward()
    assert x.grad.dtype == engine.float32
    check(x.grad, [2, 3])
    for dtype in (engine.float16, engine.bfloat16, engine.float64):
        x.grad = None
        (x.to(dtype) * 4).float().sum().backward()
        assert x.grad.dtype == engine.float32
        check(x.grad, [4, 4])
    h = engine.ones(2, dtype=engine.float16, requires_grad=True)
    (h * x.detach()).sum().backward()
    assert h.grad.dtype == engine.float16
    a, b = engine.ones(2, requires_grad=True), leaf(2)
    (a * b + a.type(engine.float64)).sum().backward()
    assert a.grad.dtype == engine.float32 and b.grad.dtype == engine.float64
    check(a.grad, (b.float() + 1).tolist())


def test_bw15_exceptions_pass_through():
    """BW15: an exception in a custom backward keeps its type and message."""

    class MyError(ValueError):
        pass

    class Failing(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            raise MyError("quite wrong")

    x = leaf(2)
    y = (Failing.apply(x * 3) * 2).sum()
    with pytest.raises(MyError, match="quite wrong"):
        y.backward()
    assert x.grad is None
    with pytest.raises(MyError, match="quite wrong"):
        engine.autograd.grad((Failing.apply(x) + x).sum(), x)


def test_bw16_works_again_after_a_failure():
    """BW16: after a failed backward the engine works again."""

    class Failing(Function):
        @staticmethod
        def forward(ctx, x, fail):
            ctx.fail = fail
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            if ctx.fail[0]:
                raise KeyError("once")
            return grad * 2, None

    x, fail = leaf(2), [True]
    y = (Failing.apply(x, fail) + 1).sum()
    with pytest.raises(KeyError):
        y.backward()
    fail[0] = False
    y.backward()
    check(x.grad, [2, 2])
    assert engine.is_grad_enabled()
    x.grad = None
    (x * x).sum().backward()
    check(x.grad, (2 * x).tolist())


def test_bw17_integer_detours():
    """BW17: an isolated node (an integer detour) does not disturb backward."""
    x = engine.tensor([1.5, 2.5], requires_grad=True)
    y = x * x
    detour = y.long()
    (y + detour.to(engine.float32)).sum().backward()
    check(x.grad, [3, 5])
    x.grad = None
    index = (x * 0).long()
    (x * x)[index].sum().backward()
    check(x.grad, [6, 0])
    x.grad = None
    y = x * 2
    (y * (y > 4).float()).sum().backward()
    check(x.grad, [0, 2])
    assert not detour.requires_grad


def test_bw18_any_layout_of_gradient():
    """BW18: backward(gradient=...) takes a non-contiguous or expanded gradient."""
    x = leaf(2, 3)
    g = constant(3, 2, seed=5)
    (x * 2).backward(g.t())
    check(x.grad, (2 * g.t()).tolist())
    x.grad = None
    (x * 2).backward(gradient=constant(1, 1, seed=6).expand(2, 3))
    check(x.grad, (2 * constant(1, 1, seed=6).expand(2, 3)).tolist())
    x.grad = None
    big = constant(4, 6, seed=7)
    x.exp().backward(big[::2, ::2])
    check(x.grad, (x.exp() * big[::2, ::2]).tolist())
    x.grad = None
    (x + 0).backward(constant(2, 1, seed=8).expand(2, 3), retain_graph=False, create_graph=False)
    assert x.grad.is_contiguous()
    x.grad = None
    x.mm(constant(3, 3)).backward(constant(3, 2, seed=5).t())
    check(x.grad, (constant(3, 2, seed=5).t().mm(constant(3, 3).t())).tolist())
