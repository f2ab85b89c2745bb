"""requires_grad: defaults, propagation, and who may change it (rules RG01-RG12)."""

import numpy as np
import pytest

import engine
from engine import nn
from engine.autograd import Function

from ._util import check, leaf, tracer

FACTORIES = {
    "tensor": lambda **k: engine.tensor([1.0, 2.0], **k),
    "zeros": lambda **k: engine.zeros(2, 3, **k),
    "ones": lambda **k: engine.ones(2, 3, **k),
    "empty": lambda **k: engine.empty(2, 3, **k),
    "full": lambda **k: engine.full((2, 3), 1.5, **k),
    "arange": lambda **k: engine.arange(0.0, 3.0, **k),
    "linspace": lambda **k: engine.linspace(0, 1, 5, **k),
    "logspace": lambda **k: engine.logspace(0, 1, 5, **k),
    "eye": lambda **k: engine.eye(3, **k),
    "rand": lambda **k: engine.rand(2, 3, **k),
    "randn": lambda **k: engine.randn(2, 3, **k),
}

LIKE = {
    "zeros_like": lambda x, **k: engine.zeros_like(x, **k),
    "ones_like": lambda x, **k: engine.ones_like(x, **k),
    "empty_like": lambda x, **k: engine.empty_like(x, **k),
    "full_like": lambda x, **k: engine.full_like(x, 2.0, **k),
    "rand_like": lambda x, **k: engine.rand_like(x, **k),
    "randn_like": lambda x, **k: engine.randn_like(x, **k),
    "new_zeros": lambda x, **k: x.new_zeros(2, **k),
    "new_ones": lambda x, **k: x.new_ones(2, **k),
    "new_empty": lambda x, **k: x.new_empty(2, **k),
    "new_full": lambda x, **k: x.new_full((2,), 3.0, **k),
    "new_tensor": lambda x, **k: x.new_tensor([1.0, 2.0], **k),
}

UNARY = [
    lambda x: -x,
    lambda x: x.abs(),
    lambda x: x.exp(),
    lambda x: x.clone(),
    lambda x: x.sum(),
    lambda x: x.mean(0),
    lambda x: x.max(),
    lambda x: x.max(0)[0],
    lambda x: x.sort()[0],
    lambda x: x.cumsum(0),
    lambda x: x.t(),
    lambda x: x.view(-1),
    lambda x: x.reshape(4, 1),
    lambda x: x[0],
    lambda x: x[x > 0],
    lambda x: x[[0, 1]],
    lambda x: x.unsqueeze(0),
    lambda x: x.expand(3, 2, 2),
    lambda x: x.split(1)[0],
    lambda x: x.chunk(2)[1],
    lambda x: x.unbind()[0],
    lambda x: x.to(engine.float64),
    lambda x: x.half(),
    lambda x: x.softmax(0),
    lambda x: engine.relu(x),
    lambda x: x.floor(),
    lambda x: x.sign(),
]

BINARY = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a / b,
    lambda a, b: engine.max(a, b),
    lambda a, b: a.matmul(b),
    lambda a, b: engine.cat([a, b]),
    lambda a, b: engine.stack([a, b], 1),
    lambda a, b: engine.where(a.detach() > 0, a, b),
    lambda a, b: engine.addmm(a, b, b),
    lambda a, b: engine.addcmul(a, b, b),
    lambda a, b: nn.functional.linear(a, b),
    lambda a, b: nn.functional.mse_loss(a, b),
    lambda a, b: a.clone().copy_(b),
    lambda a, b: a.masked_fill(b.detach() > 0, 0.0) + b,
]


@pytest.mark.parametrize("name", FACTORIES)
def test_rg01_default_false(name):
    """RG01: requires_grad is False by default for every factory."""
    t = FACTORIES[name]()
    assert t.requires_grad is False
    assert t.grad is None
    assert t.grad_fn is None


def test_rg01_default_false_of_other_sources():
    """RG01: requires_grad is False by default for every factory."""
    sources = [
        engine.Tensor(2, 3),
        engine.from_numpy(np.ones(2)),
        engine.as_tensor([1.0]),
        engine.as_tensor(np.ones(2)),
        engine.randperm(3),
        engine.randint(0, 3, (2,)),
        engine.normal(engine.zeros(2), engine.ones(2)),
        engine.tensor(1),
        engine.tensor([True]),
        engine.tensor([]),
    ]
    assert [t.requires_grad for t in sources] == [False] * len(sources)


@pytest.mark.parametrize("index", range(len(UNARY)))
def test_rg02_one_input(index):
    """RG02: one input that requires grad makes the output require grad; none makes it not."""
    f = UNARY[index]
    data = engine.tensor([[1.0, -2.0], [3.0, 4.0]])
    assert not f(data).requires_grad
    assert f(data).grad_fn is None
    y = f(data.clone().requires_grad_())
    assert y.requires_grad
    assert y.grad_fn is not None


@pytest.mark.parametrize("index", range(len(BINARY)))
def test_rg02_any_of_two_inputs(index):
    """RG02: one input that requires grad makes the output require grad; none makes it not."""
    f = BINARY[index]
    for first in (False, True):
        for second in (False, True):
            a = engine.tensor([[1.0, -2.0], [3.0, 4.0]], requires_grad=first)
            b = engine.tensor([[5.0, 6.0], [7.0, 8.0]], requires_grad=second)
            assert f(a, b).requires_grad is (first or second)


def test_rg02_numbers_do_not_matter():
    """RG02: one input that requires grad makes the output require grad; none makes it not."""
    x = engine.ones(2, requires_grad=True)
    y = engine.ones(2)
    assert (2 * x).requires_grad and (x**2).requires_grad and (1 - x).requires_grad
    assert not (2 * y).requires_grad and not (y**2).requires_grad


def test_rg03_no_backward_in_a_subgraph_without_grad():
    """RG03: backward is never computed in a subgraph that does not require grad."""
    log = []
    trace = tracer(log)
    data = engine.ones(2)
    weight = engine.ones(2, requires_grad=True)
    frozen = trace(data, "frozen")
    out = trace(trace(frozen, "frozen too") * trace(weight, "weight"), "product")
    assert frozen.grad_fn is None
    out.sum().backward()
    assert log == ["product", "weight"]
    assert data.grad is None
    check(weight.grad, [1, 1])


def test_rg03_the_other_operand_gets_no_gradient():
    """RG03: backward is never computed in a subgraph that does not require grad."""
    asked = []

    class Product(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            asked.append(ctx.needs_input_grad)
            return (
                grad * b if ctx.needs_input_grad[0] else None,
                grad * a if ctx.needs_input_grad[1] else None,
            )

    a, b = engine.tensor([2.0]), engine.tensor([3.0], requires_grad=True)
    Product.apply(a, b).backward()
    assert asked == [(False, True)]
    check(b.grad, [2])
    assert a.grad is None
    nodes = [node for node, _ in Product.apply(a, b).grad_fn.next_functions]
    assert nodes[0] is None and nodes[1].variable is b


def test_rg04_requires_grad_in_place():
    """RG04: requires_grad_() flips a leaf in place and returns it."""
    x = engine.ones(2)
    assert x.requires_grad_() is x
    assert x.requires_grad
    assert x.requires_grad_(False) is x
    assert not x.requires_grad
    assert x.requires_grad_(requires_grad=True) is x
    x.requires_grad = False
    assert not x.requires_grad and x.is_leaf
    x.requires_grad = True
    (x * 3).sum().backward()
    check(x.grad, [3, 3])
    x.requires_grad_(False)
    assert x.grad is not None
    assert not (x * 3).requires_grad


@pytest.mark.parametrize("index", range(6))
def test_rg05_non_leaf(index):
    """RG05: requires_grad of a non-leaf cannot be set to False; True is a no-op."""
    x = engine.ones(2, 2, requires_grad=True)
    y = [lambda: x * 2, lambda: x.sum(), x.t, lambda: x[0], x.clone, lambda: engine.cat([x])][index]()
    node = y.grad_fn
    for change in (lambda: y.requires_grad_(False), lambda: setattr(y, "requires_grad", False)):
        with pytest.raises(RuntimeError, match=r"you can only change requires_grad flags of leaf variables\."):
            change()
    assert y.requires_grad
    assert y.requires_grad_() is y
    assert y.requires_grad_(True) is y
    assert y.grad_fn is node


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "bool"])
def test_rg06_only_floating_point(dtype):
    """RG06: only floating point tensors can require grad; False is always allowed."""
    dtype = getattr(engine, dtype)
    t = engine.zeros(2, dtype=dtype)
    attempts = [
        t.requires_grad_,
        lambda: setattr(t, "requires_grad", True),
        lambda: engine.zeros(2, dtype=dtype, requires_grad=True),
        lambda: engine.tensor([1, 0], dtype=dtype, requires_grad=True),
        lambda: engine.ones_like(t, requires_grad=True),
        lambda: t.new_zeros(2, requires_grad=True),
    ]
    for attempt in attempts:
        with pytest.raises(RuntimeError, match="floating point"):
            attempt()
    assert not t.requires_grad
    t.requires_grad = False
    assert t.requires_grad_(False) is t
    assert not engine.zeros(2, dtype=dtype, requires_grad=False).requires_grad


def test_rg06_every_floating_type_can():
    """RG06: only floating point tensors can require grad; False is always allowed."""
    for dtype in (engine.float16, engine.float32, engine.float64, engine.bfloat16):
        assert engine.zeros(2, dtype=dtype).requires_grad_().requires_grad
        assert engine.zeros(2, dtype=dtype, requires_grad=True).requires_grad


def test_rg06_message():
    """RG06: only floating point tensors can require grad; False is always allowed."""
    with pytest.raises(RuntimeError, match="only Tensors of floating point"):
        engine.tensor([1]).requires_grad_()
    with pytest.raises(RuntimeError, match="can require gradients"):
        engine.arange(3, requires_grad=True)


@pytest.mark.parametrize("name", FACTORIES)
def test_rg07_factories(name):
    """RG07: factories take requires_grad, the *_like and new_* ones too, and do not inherit it."""
    t = FACTORIES[name](requires_grad=True)
    assert t.requires_grad and t.is_leaf and t.grad_fn is None
    assert not FACTORIES[name](requires_grad=False).requires_grad


@pytest.mark.parametrize("name", LIKE)
def test_rg07_like_and_new_do_not_inherit(name):
    """RG07: factories take requires_grad, the *_like and new_* ones too, and do not inherit it."""
    f = LIKE[name]
    x = engine.ones(2, 2, requires_grad=True)
    for source in (x, x * 2, engine.ones(2, 2)):
        assert not f(source).requires_grad
        made = f(source, requires_grad=True)
        assert made.requires_grad and made.is_leaf and made.grad_fn is None


def test_rg08_in_place_makes_the_target_require_grad():
    """RG08: an in-place op with an operand that requires grad makes the target require grad."""
    w = engine.full((2,), 3.0, requires_grad=True)
    writes = [
        lambda t: t.add_(w),
        lambda t: t.sub_(w),
        lambda t: t.mul_(w),
        lambda t: t.div_(w),
        lambda t: t.copy_(w),
        lambda t: t.addcmul_(w, w),
        lambda t: t.__setitem__(0, w[1]),
        lambda t: t.__setitem__(slice(None), w),
        lambda t: t.__iadd__(w),
        lambda t: t[:1].mul_(w[:1]),
        lambda t: t.masked_scatter_(engine.tensor([True, False]), w),
        lambda t: t.index_add_(0, engine.tensor([0, 1]), w),
    ]
    for write in writes:
        target = engine.ones(2)
        write(target)
        assert target.requires_grad and not target.is_leaf and target.grad_fn is not None
        target.sum().backward()
        assert w.grad is not None
        w.grad = None


def test_rg08_an_operand_without_grad_changes_nothing():
    """RG08: an in-place op with an operand that requires grad makes the target require grad."""
    target = engine.ones(2)
    target.add_(engine.ones(2)).mul_(2)
    target[0] = 5
    assert not target.requires_grad and target.is_leaf


def test_rg09_never_require_grad():
    """RG09: comparison results, indices and integer casts never require grad."""
    x = engine.tensor([[3.0, 1.0], [2.0, 4.0]], requires_grad=True)
    results = [
        x > 1, x < 1, x >= 1, x <= 1, x == 1, x != 1,
        engine.gt(x, 1), engine.eq(x, x), engine.ne(x, x), x.lt(x),
        engine.isnan(x), engine.isfinite(x), engine.isinf(x), engine.sign(x) > 0,
        x.argmax(), x.argmin(0), x.argsort(), x.max(0)[1], x.min(1)[1], x.sort()[1],
        x.topk(1)[1], x.kthvalue(1)[1], x.median(0)[1], x.nonzero(),
        x.long(), x.int(), x.short(), x.byte(), x.bool(), x.to(engine.int8),
        (x > 0).any(), (x > 0).all(),
    ]  # fmt: skip
    for result in results:
        assert not result.requires_grad
        assert result.grad_fn is None
        assert result.is_leaf
    assert x.max(0)[0].requires_grad and x.topk(1)[0].requires_grad


def test_rg10_frozen_parameters():
    """RG10: frozen parameters get no gradient while the rest of the model trains."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    for parameter in model[2].parameters():
        parameter.requires_grad = False
    model(engine.ones(2, 3)).sum().backward()
    assert [p.grad is None for p in model.parameters()] == [False, False, True, True, False, False]
    assert all(float(p.grad.abs().sum()) > 0 for p in model[0].parameters())


def test_rg10_a_frozen_backbone_keeps_no_graph():
    """RG10: frozen parameters get no gradient while the rest of the model trains."""
    backbone, head = nn.Linear(3, 4), nn.Linear(4, 2)
    for parameter in backbone.parameters():
        parameter.requires_grad_(False)
    features = backbone(engine.ones(2, 3))
    assert features.grad_fn is None
    head(features).sum().backward()
    assert backbone.weight.grad is None and backbone.bias.grad is None
    check(head.bias.grad, [2, 2])


def test_rg11_in_place_before_requires_grad():
    """RG11: in-place changes before requires_grad is set are fine, also through a view; after it
    they are not.
    """
    x = engine.zeros(4)
    view = x[1:3]
    x.add_(1)
    view.mul_(5)
    x.requires_grad_()
    (x * x).sum().backward()
    check(x.grad, [2, 10, 10, 2])
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x.add_(1)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        x[1:3].mul_(2)
    check(x, [1, 5, 5, 1])


def test_rg12_cannot_be_deleted():
    """RG12: requires_grad cannot be deleted."""
    for t in (engine.ones(2), leaf(2), leaf(2) * 2):
        before = t.requires_grad
        with pytest.raises((RuntimeError, AttributeError, TypeError)):
            del t.requires_grad
        assert t.requires_grad is before


def test_rg12_must_be_a_bool():
    """RG12: requires_grad cannot be deleted."""
    x = engine.ones(2)
    with pytest.raises((RuntimeError, TypeError), match="bool"):
        x.requires_grad = None
    assert not x.requires_grad
