"""In-place operations and version counters (rules IP01-IP18)."""

import numpy as np
import pytest

import engine
from engine.autograd import grad
from engine.nn import functional as F

from .. import samples
from ._util import check, constant, leaf

MODIFIED = "one of the variables needed for gradient computation has been modified by an inplace operation"

BUMPS = {
    "add_": lambda t: t.add_(1),
    "sub_": lambda t: t.sub_(1),
    "mul_": lambda t: t.mul_(2),
    "div_": lambda t: t.div_(2),
    "zero_": lambda t: t.zero_(),
    "fill_": lambda t: t.fill_(2.0),
    "exp_": lambda t: t.exp_(),
    "clamp_": lambda t: t.clamp_(0, 1),
    "copy_": lambda t: t.copy_(engine.zeros(3)),
    "normal_": lambda t: t.normal_(),
    "uniform_": lambda t: t.uniform_(),
    "bernoulli_": lambda t: t.bernoulli_(0.5),
    "masked_fill_": lambda t: t.masked_fill_(t > 0, 1.0),
    "scatter_": lambda t: t.scatter_(0, engine.tensor([0]), 1.0),
    "index_add_": lambda t: t.index_add_(0, engine.tensor([0]), engine.ones(1)),
    "index_copy_": lambda t: t.index_copy_(0, engine.tensor([0]), engine.ones(1)),
    "addcmul_": lambda t: t.addcmul_(engine.ones(3), engine.ones(3)),
    "+=": lambda t: t.__iadd__(1),
    "-=": lambda t: t.__isub__(1),
    "*=": lambda t: t.__imul__(2),
    "/=": lambda t: t.__itruediv__(2),
    "setitem int": lambda t: t.__setitem__(0, 1.0),
    "setitem slice": lambda t: t.__setitem__(slice(1, 3), 1.0),
    "setitem mask": lambda t: t.__setitem__(engine.tensor([True, False, True]), 1.0),
    "setitem list": lambda t: t.__setitem__([0, 2], engine.ones(2)),
    "setitem all": lambda t: t.__setitem__(Ellipsis, engine.ones(3)),
    "out=": lambda t: engine.add(engine.ones(3), 1, out=t),
    "relu_": lambda t: engine.relu_(t),
    "F.relu": lambda t: F.relu(t, inplace=True),
    "transpose_": lambda t: t.transpose_(0, 0),
    "of a view": lambda t: t[:2].add_(1),
    "of detach()": lambda t: t.detach().add_(1),
}


@pytest.mark.parametrize("name", BUMPS)
def test_ip01_version(name):
    """IP01: _version starts at 0 and rises by every in-place op, setitem and out= included."""
    t = engine.tensor([0.1, 0.2, 0.3])
    assert t._version == 0
    BUMPS[name](t)
    assert t._version == 1
    BUMPS[name](t)
    assert t._version == 2


def test_ip01_reading_does_not_count():
    """IP01: _version starts at 0 and rises by every in-place op, setitem and out= included."""
    t = engine.ones(3)
    t + 1, t[0], t.sum(), t.view(3), t.clone(), t.numpy(), t.tolist(), t.to(engine.float64)
    engine.add(t, 1, out=engine.empty(3))
    engine.zeros(3).copy_(t)
    t.requires_grad_()
    t.detach()
    assert t._version == 0
    t.data.add_(1)
    t.detach().numpy()[0] = 5
    assert t._version == 0
    with pytest.raises(AttributeError):
        t._version = 3


def test_ip02_views_share():
    """IP02: views share the version counter of their base."""
    base = engine.zeros(2, 3)
    views = [
        base[0],
        base[:, 1:],
        base.view(6),
        base.t(),
        base.unsqueeze(0),
        base.expand(4, 2, 3),
        base.narrow(1, 0, 2),
        base.view(3, 2)[1],
        base.diagonal(),
        base.detach(),
        base.squeeze(),
        base.permute(1, 0),
        base.view(6).unfold(0, 2, 2),
        base.as_strided((2,), (1,)),
    ]
    version = 0
    for t in [base, *views]:
        if t.stride() != (0, 3, 1):
            t.add_(1)
            version += 1
        assert {v._version for v in [base, *views]} == {version}
    assert base.data._version == 0
    assert base.clone()._version == 0
    assert base[0]._version == version


@pytest.mark.parametrize("index", range(8))
def test_ip03_saved_then_modified(index):
    """IP03: a saved tensor modified in place before backward is an error with the fixed text."""
    f = [
        lambda a, b: a * b,
        lambda a, b: a.sin() * 1,
        lambda a, b: a.pow(2),
        lambda a, b: a / b,
        lambda a, b: a.mm(b),
        lambda a, b: engine.addmm(b, a, b),
        lambda a, b: a.log(),
        lambda a, b: F.linear(a, b),
    ][index]
    x = leaf(2, 2, low=0.5, high=1.0)
    w = leaf(2, 2, low=0.5, high=1.0, seed=1)
    a = x * 1
    y = f(a, w)
    a.add_(1)
    with pytest.raises(RuntimeError, match=MODIFIED):
        y.sum().backward()
    assert x.grad is None


def test_ip03_message():
    """IP03: a saved tensor modified in place before backward is an error with the fixed text."""
    x = engine.ones(2, requires_grad=True)
    a = x * 1
    y = a * a
    a.add_(1)
    with pytest.raises(RuntimeError) as error:
        y.sum().backward()
    text = str(error.value)
    assert MODIFIED in text
    assert "[2]]" in text and "is at version 1; expected version 0 instead" in text


def written_to(make):
    """The message after `make` gave (a result, what it saved) and that was added to."""
    y, saved = make()
    with engine.no_grad():
        saved.add_(1)
    with pytest.raises(RuntimeError, match=MODIFIED) as error:
        y.sum().backward()
    return str(error.value).split("operation: ")[1].split("; expected")[0]


def test_ip03_message_names_what_torch_saves():
    """IP03: a leaf, a result, a view (with a new node after a write to its base), the weight of linear, transposed."""
    w, base = leaf(3, 4), leaf(4, 3) * 1
    x = engine.ones(2, 4)
    assert written_to(lambda: (w * x[:, None], x)) == "[torch.FloatTensor [2, 1, 4]] is at version 1"
    assert written_to(lambda: (w.exp() * w, w)) == "[torch.DoubleTensor [3, 4]] is at version 1"
    assert (
        written_to(lambda: (base * base, base))
        == "[torch.DoubleTensor [4, 3]], which is output 0 of Mul, is at version 1"
    )
    view = "[torch.DoubleTensor [2, 3]], which is output 0 of AsStrided, is at version 2"
    assert written_to(lambda: (base[1:3] ** 2, base)) == view
    y = leaf(2, 4)
    assert written_to(lambda: (engine.nn.functional.linear(y, w), w)) == (
        "[torch.DoubleTensor [4, 3]], which is output 0 of AsStrided, is at version 2"
    )


def test_ip03_checked_at_reading_not_at_writing():
    """IP03: a saved tensor modified in place before backward is an error with the fixed text."""
    x = leaf(2)
    a = x * 1
    y = a * a
    a.add_(1)
    z = (a * 3).sum()
    z.backward()
    check(x.grad, [3, 3])
    with pytest.raises(RuntimeError, match=MODIFIED):
        grad(y.sum(), x)


def test_ip03_writing_the_old_value_back_does_not_help():
    """IP03: a saved tensor modified in place before backward is an error with the fixed text."""
    a = leaf(2) * 1
    y = a * a
    a.add_(0)
    with pytest.raises(RuntimeError, match=MODIFIED):
        y.sum().backward()


def test_ip03_an_op_that_overwrites_what_it_saved():
    """IP03: a saved tensor modified in place before backward is an error with the fixed text."""
    x = leaf(2)
    y = x.clone()
    y.mul_(y)
    with pytest.raises(RuntimeError, match=MODIFIED):
        y.sum().backward()
    z = x.clone()
    z[0] *= z[1]
    with pytest.raises(RuntimeError, match=MODIFIED):
        z.sum().backward()


@pytest.mark.parametrize("index", range(12))
def test_ip04_ops_that_save_nothing(index):
    """IP04: ops that save nothing do not mind: add, sub, sum, neg, view."""
    f, expected = [
        (lambda a: a + 1, 1),
        (lambda a: a + a, 2),
        (lambda a: 3 - a, -1),
        (lambda a: a.sum(), 1),
        (lambda a: -a, -1),
        (lambda a: a.view(4) + 0, 1),
        (lambda a: a.t() + 0, 1),
        (lambda a: engine.cat([a, a]), 2),
        (lambda a: a.mean(), 0.25),
        (lambda a: a.clone(), 1),
        (lambda a: a.double() * 2, 2),
        (lambda a: a[0].expand(2, 2) + 0, None),
    ][index]
    x = leaf(2, 2)
    a = x * 1
    y = f(a)
    a.mul_(5)
    y.sum().backward()
    check(x.grad, [[2, 2], [0, 0]] if expected is None else np.full((2, 2), expected))


def test_ip05_mul_with_a_constant():
    """IP05: mul saves an operand only if the other requires grad."""
    x, data = leaf(2), constant(2, seed=1)
    a = x * 1
    y = a * data
    a.add_(100)
    y.sum().backward()
    check(x.grad, data.tolist())


def test_ip05_mul_saves_the_constant():
    """IP05: mul saves an operand only if the other requires grad."""
    x = leaf(2)
    for f in (lambda a, c: a * c, lambda a, c: c * a):
        c = constant(2, seed=1)
        y = f(x * 1, c)
        c.add_(1)
        with pytest.raises(RuntimeError, match=MODIFIED):
            y.sum().backward()


def test_ip05_both_require_grad():
    """IP05: mul saves an operand only if the other requires grad."""
    for which in (0, 1):
        operands = [leaf(2, seed=0) * 1, leaf(2, seed=1) * 1]
        y = operands[0] * operands[1]
        operands[which].add_(1)
        with pytest.raises(RuntimeError, match=MODIFIED):
            y.sum().backward()


def test_ip05_a_buffer_without_grad():
    """IP05: mul saves an operand only if the other requires grad."""
    w, buffer = leaf(2), engine.ones(2, dtype=engine.float64)
    total = 0
    for step in range(3):
        total = total + w * (buffer + step)
        buffer.add_(1)
    total.sum().backward()
    check(w.grad, [9, 9])


def test_ip05_other_products():
    """IP05: mul saves an operand only if the other requires grad."""
    x, c = leaf(2, 2), constant(2, 2, seed=1)
    for f in (lambda a: a.mm(c), lambda a: c.matmul(a), lambda a: a / (c + 3), lambda a: a.mul(2)):
        a = x * 1
        y = f(a)
        a.zero_()
        x.grad = None
        y.sum().backward()
        assert x.grad is not None


OUTPUT_SAVED = {
    "exp": (lambda a: a.exp(), lambda x: x.exp()),
    "sigmoid": (lambda a: a.sigmoid(), lambda x: x.sigmoid() * (1 - x.sigmoid())),
    "tanh": (lambda a: a.tanh(), lambda x: 1 - x.tanh() ** 2),
    "sqrt": (lambda a: a.sqrt(), lambda x: 0.5 / x.sqrt()),
    "relu": (lambda a: F.relu(a), lambda x: engine.ones_like(x)),
    "reciprocal": (lambda a: a.reciprocal(), lambda x: -1 / x**2),
    "rsqrt": (lambda a: a.rsqrt(), lambda x: -0.5 * x**-1.5),
    "softmax": (lambda a: a.softmax(0), lambda x: engine.zeros_like(x)),
    "log_softmax": (
        lambda a: a.log_softmax(0),
        lambda x: 1 - 3 * x.softmax(0),
    ),
}


@pytest.mark.parametrize("name", OUTPUT_SAVED)
def test_ip06_changing_the_output(name):
    """IP06: exp, sigmoid, tanh, sqrt, relu save their output: changing it is an error, changing
    the input is not.
    """
    f, _ = OUTPUT_SAVED[name]
    for change in (lambda t: t.add_(1), lambda t: t[0].zero_(), lambda t: t.__setitem__(1, 5.0)):
        y = f(leaf(3, low=0.5, high=1.5) * 1)
        result = y.view(3, 1)
        change(y)
        with pytest.raises(RuntimeError, match=MODIFIED):
            result.sum().backward()


@pytest.mark.parametrize("name", OUTPUT_SAVED)
def test_ip06_changing_the_input(name):
    """IP06: exp, sigmoid, tanh, sqrt, relu save their output: changing it is an error, changing
    the input is not.
    """
    f, derivative = OUTPUT_SAVED[name]
    x = leaf(3, low=0.5, high=1.5)
    a = x * 1
    y = f(a)
    a.zero_()
    y.sum().backward()
    check(x.grad, derivative(x.detach()).tolist())


def test_ip07_same_object_new_node():
    """IP07: an in-place op returns the same object and the object's grad_fn is the new node."""
    x = leaf(2)
    y = x * 2
    for op in (
        lambda t: t.add_(1),
        lambda t: t.mul_(2),
        lambda t: t.exp_(),
        lambda t: t.neg_(),
        lambda t: t.clamp_(-1, 1),
        lambda t: t.copy_(x),
        lambda t: t.zero_(),
        lambda t: t.sub_(x),
    ):
        node = y.grad_fn
        assert op(y) is y
        assert y.grad_fn is not node
        assert y.requires_grad and not y.is_leaf
    alias = y
    y += 1
    assert y is alias and "Add" in y.grad_fn.name()
    y[0] = 3
    assert y is alias


def test_ip07_the_old_node_is_below():
    """IP07: an in-place op returns the same object and the object's grad_fn is the new node."""
    x = leaf(2)
    y = x * 2
    node = y.grad_fn
    y.add_(1)
    assert y.grad_fn.next_functions[0][0] is node


def test_ip08_chains():
    """IP08: in-place on the last expression is fine: exp_, add_, mul_ in one chain."""
    x = leaf(3)
    y = (x * 2).add_(1).mul_(3).neg_().exp_()
    y.sum().backward()
    check(x.grad, (-6 * (-6 * x - 3).exp()).tolist())
    x.grad = None
    (x + 1).mul_(x).sum().backward()
    check(x.grad, (2 * x + 1).tolist())
    x.grad = None
    y = (x + 1).sub_(x * 3).div_(4).tanh_()
    y.sum().backward()
    check(x.grad, (-0.5 * (1 - y**2)).tolist())
    x.grad = None
    y = x.clone().div_(2).sub_(x)
    y.sum().backward()
    check(x.grad, [-0.5] * 3)


def test_ip08_an_expression_that_saved_its_output_then_changed_is_refused():
    """IP08: in-place on the last expression is fine: exp_, add_, mul_ in one chain."""
    y = leaf(2).exp()
    y.exp_()
    with pytest.raises(RuntimeError, match=MODIFIED):
        y.sum().backward()


@pytest.mark.parametrize("index", range(4))
def test_ip09_relu_in_place(index):
    """IP09: relu_ and F.relu(inplace=True) backpropagate from the overwritten buffer."""
    f = [
        lambda t: t.relu_(),
        lambda t: F.relu(t, inplace=True),
        lambda t: engine.relu_(t),
        engine.nn.ReLU(inplace=True),
    ][index]
    x = engine.tensor([-1.0, 0.0, 2.0, 3.0], requires_grad=True)
    y = x * 2
    result = f(y)
    assert result is y
    check(y, [0, 0, 4, 6])
    (y * engine.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    check(x.grad, [0, 0, 6, 8])


def test_ip09_other_activations_in_place():
    """IP09: relu_ and F.relu(inplace=True) backpropagate from the overwritten buffer."""
    x = engine.tensor([-1.0, 0.5, 2.0], requires_grad=True)
    for name, expected in {
        "threshold": [0, 1, 1],
        "hardtanh": [0, 1, 0],
        "leaky_relu": [0.01, 1, 1],
        "elu": None,
    }.items():
        arguments = (0.1, 0.0) if name == "threshold" else ()
        x.grad = None
        getattr(F, name)(x * 1, *arguments, inplace=True).sum().backward()
        got = x.grad.clone()
        x.grad = None
        getattr(F, name)(x * 1, *arguments).sum().backward()
        check(got, x.grad.tolist())
        if expected:
            check(got, expected)


def test_ip10_zero_and_fill():
    """IP10: zero_ and fill_ cut the gradient of what they overwrite."""
    x = leaf(3)
    for cut in (lambda t: t.zero_(), lambda t: t.fill_(7.0), lambda t: t.copy_(constant(3))):
        y = x * 2
        cut(y)
        (y + x).sum().backward()
        check(x.grad, [1, 1, 1])
        x.grad = None
    y = x * 2
    y[1:].zero_()
    y.sum().backward()
    check(x.grad, [2, 0, 0])
    x.grad = None
    y = (x * 2).masked_fill_(engine.tensor([True, False, True]), 5.0)
    y.sum().backward()
    check(x.grad, [0, 2, 0])
    value = engine.tensor(3.0, dtype=engine.float64, requires_grad=True)
    (x * 2).fill_(value).sum().backward()
    check(value.grad, 3)


@pytest.mark.parametrize(
    "index, shape",
    [
        (0, (3,)),
        (slice(0, 1), (1, 3)),
        ((slice(None), 1), (2,)),
        ((1, 2), ()),
        ((Ellipsis, slice(1, 3)), (2, 2)),
        ([0, 1], (2, 3)),
        (([0, 1], [2, 0]), (2,)),
        ("mask", (2,)),
        ((slice(None), [0, 2]), (2, 2)),
        (None, (1, 2, 3)),
        (slice(None, None, 2), (1, 3)),
    ],
)
def test_ip11_setitem(index, shape):
    """IP11: y[index] = value: zero gradient to the overwritten part, gradient to the value."""
    if index == "mask":
        index = engine.tensor([[True, False, False], [False, False, True]])
    x, value = leaf(2, 3, seed=1), leaf(*shape, seed=2)
    y = x * 2
    y[index] = value * 3
    weight = constant(2, 3, seed=4)
    (y * weight).sum().backward()
    expected = 2 * weight
    expected[index] = 0
    check(x.grad, expected.tolist())
    check(value.grad, (3 * weight[index]).tolist())


def test_ip11_into_a_buffer_without_grad():
    """IP11: y[index] = value: zero gradient to the overwritten part, gradient to the value."""
    value = leaf(2)
    buffer = engine.zeros(3, 2, dtype=engine.float64)
    buffer[1] = value
    buffer[2] = value * 2
    buffer.sum().backward()
    check(value.grad, [3, 3])


def test_ip12_broadcast_values():
    """IP12: a value broadcast by setitem gets a gradient of its own shape."""
    for shape, total in [
        ((), 12),
        ((1,), 12),
        ((4,), 3),
        ((3, 1), 4),
        ((1, 4), 3),
        ((1, 1, 1), 12),
    ]:
        x, value = leaf(3, 4, seed=1), leaf(*shape, seed=2)
        y = x * 1
        y[:] = value
        y.sum().backward()
        check(value.grad, np.full(shape, float(total)))
        check(x.grad, np.zeros((3, 4)))
    value = leaf(1, 2)
    y = leaf(3, 2) * 1
    y[engine.tensor([True, False, True])] = value
    y.sum().backward()
    check(value.grad, [[2, 2]])
    value = leaf()
    y = leaf(3, 2) * 1
    y[:, [0, 0]] = value
    assert value.requires_grad and y.requires_grad
    y[0, 0] = 2.0
    check(y[0, 0], 2)


def test_ip13_needless_saves():
    """IP13: the needless save is left out: a loop that rewrites its buffer still works."""
    x = leaf(2)
    decay = engine.tensor(0.5, dtype=engine.float64)
    state = x.clone()
    for _ in range(4):
        state *= decay
        state += x
        state -= 1
        state /= 2
    state.sum().backward()
    expected = 1.0
    for _ in range(4):
        expected = (expected * 0.5 + 1) / 2
    check(x.grad, [expected, expected])


def test_ip13_a_buffer_that_is_read_by_views():
    """IP13: the needless save is left out: a loop that rewrites its buffer still works."""
    w = leaf(2)
    buffer = engine.zeros(4, 2, dtype=engine.float64)
    out = []
    for step in range(4):
        buffer[step] = w * step
        out.append(buffer[step] + 0)
        buffer[step].mul_(2)
    engine.stack(out).sum().backward()
    check(w.grad, [6, 6])


def test_ip14_two_branches():
    """IP14: in-place with two branches: what saved the old value errors, what did not works."""
    x = leaf(2)
    y = x * 2
    saved, unsaved = y * y, y + 1
    y.mul_(3)
    later = y.exp()
    unsaved.sum().backward(retain_graph=True)
    check(x.grad, [2, 2])
    x.grad = None
    later.sum().backward(retain_graph=True)
    check(x.grad, (6 * (6 * x).exp()).tolist())
    with pytest.raises(RuntimeError, match=MODIFIED):
        saved.sum().backward()
    with pytest.raises(RuntimeError, match=MODIFIED):
        (saved.sum() + unsaved.sum()).backward()


def test_ip14_only_what_is_walked_is_checked():
    """IP14: in-place with two branches: what saved the old value errors, what did not works."""
    x, w = leaf(2), leaf(2, seed=1)
    y = x * 2
    z = (y * y + w).sum()
    y.add_(1)
    check(grad(z, w, retain_graph=True)[0], [1, 1])
    with pytest.raises(RuntimeError, match=MODIFIED):
        grad(z, x)


def test_ip15_out():
    """IP15: out= with inputs or an output that require grad is refused; under no_grad inputs
    may.
    """
    message = (
        r"functions with out=\.\.\. arguments don't support automatic differentiation, "
        "but one of the arguments requires grad"
    )
    data, x = engine.ones(2), engine.ones(2, requires_grad=True)
    attempts = [
        lambda: engine.add(x, data, out=engine.empty(2)),
        lambda: engine.mul(data, x, out=engine.empty(2)),
        lambda: engine.exp(x, out=engine.empty(2)),
        lambda: engine.add(data, data, out=engine.ones(2, requires_grad=True)),
        lambda: engine.add(data, data, out=x * 2),
        lambda: engine.cat([x, data], out=engine.empty(4)),
        lambda: engine.sum(x, 0, out=engine.empty(())),
    ]
    for attempt in attempts:
        with pytest.raises(RuntimeError, match=message):
            attempt()
    out = engine.empty(2)
    assert engine.add(data, data, out=out) is out
    check(out, [2, 2])
    with engine.no_grad():
        assert engine.mul(x, 3, out=out) is out
        assert engine.exp(x * 0, out=out) is out
    check(out, [1, 1])
    assert not out.requires_grad


def test_ip16_optimizer_step_between_forward_and_backward():
    """IP16: optimizer-style update between forward and backward is detected."""
    model = engine.nn.Sequential(engine.nn.Linear(2, 2), engine.nn.Tanh(), engine.nn.Linear(2, 1))
    optimizer = engine.optim.SGD(model.parameters(), lr=0.1)
    x = engine.ones(3, 2)
    first, second = model(x).sum(), (model(x) ** 2).sum()
    first.backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match=MODIFIED):
        second.backward()
    optimizer.zero_grad()
    model(x).sum().backward()


def test_ip16_by_hand():
    """IP16: optimizer-style update between forward and backward is detected."""
    w = leaf(2)
    loss = (w * w).sum()
    with engine.no_grad():
        w -= 0.1
    with pytest.raises(RuntimeError, match=MODIFIED):
        loss.backward()


def test_ip17_expanded_tensors():
    """IP17: in-place on an expanded tensor (one cell for many elements) is refused."""
    message = "more than one element of the written-to tensor refers to a single memory location"
    writes = [
        lambda t: t.add_(1),
        lambda t: t.mul_(engine.ones(3)),
        lambda t: t.copy_(engine.ones(3)),
        lambda t: engine.add(engine.ones(3), 1, out=t),
        lambda t: t.exp_(),
    ]
    for write in writes:
        t = engine.zeros(1).expand(3)
        with pytest.raises(RuntimeError, match=message):
            write(t)
        check(t, [0, 0, 0])
    y = (leaf(1) * 2).expand(3)
    with pytest.raises(RuntimeError, match=message):
        y.add_(1)


def test_ip18_under_no_grad_on_a_non_leaf():
    """IP18: in-place under no_grad on a non-leaf keeps its grad_fn."""
    x = leaf(2)
    y = x * 2
    node = y.grad_fn
    with engine.no_grad():
        y.add_(10)
        y[0] = 3
    assert y.grad_fn is node and y.requires_grad and not y.is_leaf
    (y * 3).sum().backward()
    check(x.grad, [6, 6])


def _gradients(call, case):
    """The gradients of the sample's leaves by a weighted sum of `call`, and the result."""
    engine.manual_seed(0)
    args, kwargs = case.arguments()
    leaves = [t for t in samples.tensors_of((args, kwargs)) if t.requires_grad]
    result = call(args[0] * 1 if args[0].requires_grad else args[0].clone(), *args[1:], **kwargs)
    weights = engine.arange(result.numel(), dtype=engine.float64).reshape(result.shape) + 1
    return grad((result * weights).sum().real, leaves, allow_unused=True, materialize_grads=True)


def test_in_place_methods_have_the_gradient_of_their_twin():
    """Every method with a trailing underscore, on every sample that its twin takes and whose shape and dtype stay."""
    count = 0
    for case in samples.cases():
        twin, method = getattr(engine.Tensor, case.name, None), getattr(engine.Tensor, case.name + "_", None)
        args, _ = case.arguments()
        if twin is None or method is None or not isinstance(args[0], engine.Tensor):
            continue
        engine.manual_seed(0)
        plain = twin(*case.arguments()[0], **case.arguments()[1])
        if not isinstance(plain, engine.Tensor) or not plain.requires_grad:
            continue
        if plain.shape != args[0].shape or plain.dtype is not args[0].dtype:
            continue
        for expected, found in zip(_gradients(twin, case), _gradients(method, case)):
            assert engine.allclose(expected, found, equal_nan=True), str(case)
        count += 1
    assert count > 250


def test_renorm_in_place_refuses_leaves_before_it_computes():
    x = engine.ones(2, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used"):
        x.renorm_(2, 0, 1.0)
    y = engine.full((2, 2), 3.0)
    assert y.renorm_(2, 0, 1.0) is y and engine.allclose(y.norm(dim=1), engine.ones(2))
