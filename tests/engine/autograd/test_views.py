"""Views under in-place changes (rules VW01-VW18)."""

import weakref

import pytest

import engine
from engine.autograd import Function, grad, gradcheck

from ._util import Witness, check, constant, keep, leaf, no_gc

VIEWS = {
    "transpose": lambda t: t.transpose(0, 1),
    "t": lambda t: t.t(),
    "permute": lambda t: t.permute(1, 0),
    "diagonal": lambda t: t.diagonal(),
    "unsqueeze": lambda t: t.unsqueeze(1),
    "squeeze": lambda t: t.unsqueeze(0).squeeze(0),
    "view": lambda t: t.view(2, 6),
    "view_as": lambda t: t.view_as(engine.ones(4, 3)),
    "reshape": lambda t: t.reshape(12),
    "flatten": lambda t: t.flatten(),
    "select": lambda t: t.select(0, 1),
    "int": lambda t: t[2],
    "ints": lambda t: t[1, 2],
    "narrow": lambda t: t.narrow(1, 1, 2),
    "slice": lambda t: t[1:3],
    "steps": lambda t: t[::2, 1:],
    "column": lambda t: t[:, 1],
    "None": lambda t: t[None, 0],
    "ellipsis": lambda t: t[..., 0],
    "all": lambda t: t[:],
    "unfold": lambda t: t.unfold(0, 2, 2),
    "as_strided": lambda t: t.as_strided((2, 2), (3, 1), 4),
    "expand as is": lambda t: t.expand(4, 3),
    "view of a view": lambda t: t[1:].t()[1:],
    "three deep": lambda t: t.t().unsqueeze(0)[:, 1:][0, 0],
}


def test_vw01_backward_through_the_base():
    """VW01: in-place on a view, backward through the base."""
    x = leaf(4)
    base = x * 1
    base[1:3].mul_(5)
    base.sum().backward()
    check(x.grad, [1, 5, 5, 1])
    x.grad = None
    base = x * 1
    view = base[2:]
    view.exp_()
    (base * 2).sum().backward()
    check(x.grad, [2, 2, *(2 * x[2:].exp()).tolist()])


def test_vw02_through_another_view():
    """VW02: in-place on one view, backward through another view of the same base."""
    x = leaf(2, 2)
    base = x * 1
    row, column = base[0], base[:, 0]
    row.mul_(3)
    column.sum().backward()
    check(x.grad, [[3, 0], [1, 0]])


def test_vw02_made_before_or_after():
    """VW02: in-place on one view, backward through another view of the same base."""
    x, w = leaf(4, seed=1), leaf(2, seed=2)
    base = x * 1
    before = base.view(2, 2)
    base[:2].mul_(w)
    after = base.view(2, 2)
    weight = constant(2, 2, seed=3)
    first = grad((before * weight).sum(), [x, w], retain_graph=True)
    second = grad((after * weight).sum(), [x, w])
    for a, b in zip(first, second):
        check(a, b.tolist())
    check(first[1], (x[:2] * weight[0]).tolist())


def test_vw03_view_of_a_view():
    """VW03: in-place on a view of a view."""
    x = leaf(2, 3)
    base = x * 1
    inner = base.t()[1:][0]
    inner.mul_(4)
    base.sum().backward()
    check(x.grad, [[1, 4, 1], [1, 4, 1]])
    x.grad = None
    base = x * 1
    middle = base[1]
    middle[1:].exp_()
    middle.sum().backward()
    check(x.grad, [[0, 0, 0], [1, *x[1, 1:].exp().tolist()]])


def test_vw04_the_base_requires_grad():
    """VW04: in-place on a view makes the base require grad."""
    w = leaf(2)
    base = engine.zeros(3, 2, dtype=engine.float64)
    other = base[2]
    view = base[1]
    assert not view.requires_grad
    view.add_(w)
    assert base.requires_grad and not base.is_leaf and base.grad_fn is not None
    assert view.requires_grad and other.requires_grad
    base.sum().backward(retain_graph=True)
    check(w.grad, [1, 1])
    (g,) = grad((base * 2).sum(), w, retain_graph=True)
    check(g, [2, 2])
    check(grad(other.sum(), w)[0], [0, 0])


def test_vw05_through_that_view():
    """VW05: in-place on a view, backward through that view."""
    x, w = leaf(4, seed=1), leaf(2, seed=2)
    base = x * 1
    view = base[1:3]
    view.mul_(w)
    view.sum().backward()
    check(x.grad, [0, *w.tolist(), 0])
    check(w.grad, x[1:3].tolist())
    x.grad = w.grad = None
    base = x * 1
    view = base.view(2, 2)
    view.mul_(2).exp_()
    assert view.grad_fn is not None
    view[0].sum().backward()
    check(x.grad, [*(2 * (2 * x[:2]).exp()).tolist(), 0, 0])


def test_vw06_the_base_in_place():
    """VW06: in-place on the base makes an older view require grad and gives it a new grad_fn."""
    w = leaf(3)
    base = engine.ones(3, dtype=engine.float64)
    view = base[:2]
    assert not view.requires_grad and view.grad_fn is None
    base.mul_(w)
    assert view.requires_grad and not view.is_leaf
    node = view.grad_fn
    assert node is not None and view.grad_fn is node
    base.add_(1)
    assert view.grad_fn is not node
    view.sum().backward()
    check(w.grad, [1, 1, 0])


def test_vw07_regenerated():
    """VW07: a view's grad_fn is regenerated after a change of the base, and the gradient is
    right.
    """
    x = leaf(3)
    base = x * 2
    view = base[1:]
    old = view.grad_fn
    base.mul_(x)
    assert view.grad_fn is not None and view.grad_fn is not old
    view.sum().backward()
    check(x.grad, [0, *(4 * x[1:]).tolist()])
    x.grad = None
    base = x * 2
    chain = base.view(3, 1).t()[0, 1:]
    base.exp_()
    chain.sum().backward()
    check(x.grad, [0, *(2 * (2 * x[1:]).exp()).tolist()])


def test_vw08_base():
    """VW08: _base: None for a non-view, the root base for views of views."""
    x = leaf(4)
    data = engine.zeros(2, 2)
    assert x._base is None and data._base is None
    assert (x * 2)._base is None and x.clone()._base is None
    assert data.view(4)._base is data and data[0]._base is data
    y = x * 2
    view = y.view(2, 2)
    assert view._base is y
    assert view.t()._base is y and view[0][1:]._base is y and view.t().unsqueeze(0)[0]._base is y
    assert x[:2]._base is x
    view.add_(1)
    assert view._base is y
    assert (view * 1)._base is None and view.contiguous()._base is y


def test_vw09_overlapping_views():
    """VW09: overlapping views changed one after the other (gradcheck)."""

    def f(x, a, b):
        base = x * 1
        first, second = base[0:3], base[2:5]
        first.mul_(a)
        second.mul_(b)
        first.add_(second.sum())
        second.exp_()
        return base + first.sum() * second.sum()

    assert gradcheck(f, (leaf(5, seed=1), leaf(3, seed=2), leaf(3, seed=3)))


def test_vw09_overlapping_in_two_dimensions():
    """VW09: overlapping views changed one after the other (gradcheck)."""

    def f(x, a):
        base = x.clone()
        rows, columns = base[1:], base[:, 1:]
        rows.mul_(a)
        columns.sub_(rows[:, :1].sum())
        base.diagonal().add_(a[0])
        rows.t()[0].tanh_()
        return base, rows, columns

    assert gradcheck(f, (leaf(3, 3, seed=1), leaf(2, 3, seed=2)))


def test_vw10_non_contiguous_base():
    """VW10: in-place on a view of a non-contiguous base."""
    x = leaf(3, 4)

    def f(x):
        base = x.t() * 2
        assert not base.is_contiguous() or base.shape != x.shape
        part = base[1:3]
        part.mul_(x[0, 0])
        base[:, 1].exp_()
        return base

    assert gradcheck(f, (x,))
    base = x.t().clone()
    strided = constant(6, 8)[::2, ::2].requires_grad_()
    view = (strided * 1)[1]
    view.mul_(3)
    view.sum().backward()
    check(strided.grad, [[0] * 4, [3] * 4, [0] * 4])
    target = engine.zeros(6, 8, dtype=engine.float64)[::2, ::2]
    target[1].add_(base[0, 0])
    target.sum().backward()
    check(x.grad, [[4, 0, 0, 0], [0] * 4, [0] * 4])


class DoubleInPlace(Function):
    """x *= 2."""

    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2


def test_vw11_custom_in_place_function():
    """VW11: a custom in-place Function (mark_dirty) on a view rebases the base's history."""
    x = leaf(4)
    base = x * 1
    view = base[1:3]
    result = DoubleInPlace.apply(view)
    assert result is view
    base.sum().backward()
    check(x.grad, [1, 2, 2, 1])
    x.grad = None
    base = x * 1
    other = base.view(2, 2)
    DoubleInPlace.apply(base[:2])
    other.sum().backward()
    check(x.grad, [2, 2, 1, 1])


def test_vw11_into_a_base_without_grad():
    """VW11: a custom in-place Function (mark_dirty) on a view rebases the base's history."""

    class AddInPlace(Function):
        @staticmethod
        def forward(ctx, x, y):
            x.add_(y)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output, grad_output

    w = leaf(2)
    base = engine.zeros(4, dtype=engine.float64)
    AddInPlace.apply(base[1:3], w)
    assert base.requires_grad
    (base * 3).sum().backward()
    check(w.grad, [3, 3])


@pytest.mark.parametrize("index", range(5))
def test_vw12_no_cycle(index):
    """VW12: an in-place op on a view that saves its output makes no reference cycle."""
    op = [
        lambda t: t.exp_(),
        lambda t: t.sigmoid_(),
        lambda t: t.tanh_(),
        lambda t: t.relu_(),
        lambda t: t.sqrt_(),
    ][index]
    with no_gc():
        witness = Witness()
        alive = weakref.ref(witness)
        base = keep(leaf(4, low=0.5), witness)
        del witness
        view = base[1:3]
        op(view)
        one, two = weakref.ref(base), weakref.ref(view)
        del base, view
        assert one() is None and two() is None and alive() is None


def test_vw12_the_base_changed_and_the_view_read():
    """VW12: an in-place op on a view that saves its output makes no reference cycle."""
    with no_gc():
        witness = Witness()
        alive = weakref.ref(witness)
        base = keep(leaf(4), witness)
        del witness
        view = base[1:3]
        base.mul_(2)
        assert view.grad_fn is not None
        view.tanh_()
        base.sum().backward()
        del base, view
        assert alive() is None


def test_vw13_no_differentiable_views():
    """VW13: detach() and .data of a view are no differentiable views; clone() neither."""
    x = leaf(4)
    y = x * 1
    view = y[:2]
    for cut in (view.detach(), view.data):
        assert cut.data_ptr() == view.data_ptr()
        assert not cut.requires_grad and cut.grad_fn is None
        w = leaf(2, seed=3)
        with engine.no_grad():
            cut.add_(w)
        assert cut.grad_fn is None
    assert view._version == 1
    copy = view.clone()
    copy.mul_(100)
    assert copy._base is None
    (view.sum() + y.sum()).backward()
    check(x.grad, [2, 2, 1, 1])


def test_vw13_writing_to_a_detached_tensor_leaves_the_history():
    """VW13: detach() and .data of a view are no differentiable views; clone() neither."""
    w = leaf(2)
    base = engine.zeros(2, dtype=engine.float64)
    cut = base.detach()
    cut.add_(w)
    assert cut.requires_grad and not base.requires_grad
    check(base, w.tolist())


def test_vw14_each_read_sees_its_own_history():
    """VW14: the base in-place, the view read, the base in-place again: each read sees its own
    history.
    """
    x = leaf(3)
    base = x * 1
    view = base[:2]
    first = view + 0
    base.mul_(2)
    second = view + 0
    base.mul_(5)
    third = view + 0
    for result, factor in ((first, 1), (second, 2), (third, 10)):
        (g,) = grad(result.sum(), x, retain_graph=True)
        check(g, [factor, factor, 0])
    view.mul_(7)
    check(grad(base.sum(), x, retain_graph=True)[0], [70, 70, 10])
    check(grad(second.sum(), x)[0], [2, 2, 0])


@pytest.mark.parametrize("name", VIEWS)
def test_vw15_gradcheck(name):
    """VW15: transpose, permute, diagonal, unsqueeze, squeeze, view, select, narrow, slice are
    views for in-place.
    """
    f = VIEWS[name]

    def through_the_base(x, w):
        base = x * 1
        view = f(base)
        view.mul_(w)
        view.sin_()
        return base * 2

    def through_the_view(x, w):
        base = x * 1
        view = f(base)
        base.mul_(w)
        return view.exp()

    def through_another(x, w):
        base = x * 1
        other = f(base)
        base[1].mul_(w)
        other.tanh_()
        return base[1:], other

    x, w = leaf(4, 3, seed=1), leaf(seed=2)
    assert f(x * 1)._base is not None
    for g in (through_the_base, through_the_view, through_another):
        assert gradcheck(g, (x, w))


@pytest.mark.parametrize("name", VIEWS)
def test_vw15_into_a_base_without_grad(name):
    """VW15: transpose, permute, diagonal, unsqueeze, squeeze, view, select, narrow, slice are
    views for in-place.
    """
    w = leaf()
    base = engine.ones(4, 3, dtype=engine.float64)
    view = VIEWS[name](base)
    view.mul_(w)
    assert base.requires_grad
    base.sum().backward()
    check(w.grad, float(view.numel()))


@pytest.mark.parametrize("index", range(6))
def test_vw16_advanced_indexing_copies(index):
    """VW16: advanced indexing is a copy: in-place on it leaves the base alone."""
    x = leaf(3, 3)
    base = x * 1
    copy = [
        lambda: base[[0, 1]],
        lambda: base[engine.tensor([0, 2])],
        lambda: base[engine.eye(3).bool()],
        lambda: base[:, [1]],
        lambda: base.index_select(0, engine.tensor([1])),
        lambda: base.masked_select(engine.eye(3).bool()),
    ][index]()
    before = base.tolist()
    copy.mul_(100)
    assert copy._base is None
    check(base, before)
    assert base._version == 0
    (base.sum() + copy.sum()).backward()
    selected = x.grad.clone()
    assert set(selected.view(-1).tolist()) == {1.0, 101.0}


def test_vw17_augmented_assignment():
    """VW17: x[i] += y goes to the base with right gradients."""

    def f(x, y):
        base = x * 1
        base[0] += y
        base[1:, 1] *= y[0]
        base[[0, 2]] -= y * 2
        base[base.detach() > 100] /= 3
        base[..., 0] **= 2
        return base

    assert gradcheck(f, (leaf(3, 2, seed=1), leaf(2, seed=2)))
    x, y = leaf(3, seed=1), leaf(seed=2)
    base = x * 1
    base[1] += y
    base.sum().backward()
    check(x.grad, [1, 1, 1])
    check(y.grad, 1)


def test_vw17_a_loop():
    """VW17: x[i] += y goes to the base with right gradients."""
    x = leaf(5)
    total = engine.zeros(5, dtype=engine.float64)
    for i in range(5):
        total[i] += x[i]
        if i:
            total[i] += 2 * total[i - 1]
    total[4].backward()
    check(x.grad, [16, 8, 4, 2, 1])


def test_vw18_overlapping_as_strided():
    """VW18: as_strided with overlapping cells has the right gradient."""
    x = leaf(5)
    windows = x.as_strided((3, 3), (1, 1))
    windows.sum().backward()
    check(x.grad, [1, 2, 3, 2, 1])
    weight = constant(3, 3, seed=3)
    assert gradcheck(lambda t: t.as_strided((3, 3), (1, 1)) * weight, (x,))
    assert gradcheck(lambda t: (t * t).as_strided((2, 2), (2, 0), 1), (x,))
    assert gradcheck(lambda t: t.view(6).as_strided((2, 4), (2, 1)) * 2, (leaf(2, 3),))
    assert gradcheck(lambda t: (t * 1).unfold(0, 3, 1).sin(), (x,))


def test_a_view_without_history_requires_grad_as_its_base_does() -> None:
    x = engine.ones(2, 3, requires_grad=True)
    with engine.no_grad():
        views = [x.view(-1), x[0], *x.unbind(), *x.split(1), x[0].view(3, 1)]
    for v in views:
        assert v.requires_grad and v.is_leaf and v.grad_fn is None and v._base is x
        assert v[0:1].requires_grad
        with pytest.raises(RuntimeError, match="created in no_grad mode"):
            v.add_(1)
    (views[0] * 2).sum().backward()
    assert x.grad is None and views[0].grad is None
    y = x * 1
    with engine.no_grad():
        v = y[0]
    assert v.requires_grad and v.grad_fn is None
    z = engine.ones(2, 3)
    with engine.no_grad():
        v = z[0]
    assert not v.requires_grad
    z.requires_grad_()
    assert v.requires_grad
    with pytest.raises(RuntimeError, match="created in no_grad mode"):
        v.add_(1)


def test_a_view_of_a_view_requires_grad_once_the_base_does() -> None:
    x = engine.ones(4, requires_grad=True)
    base = engine.zeros(4)
    first = base[:2]
    views = [first.view(2, 1), first.view(2, 1).t(), first[1:], *first.split(1)]
    base.mul_(x)
    for v in views[:3]:
        assert v.requires_grad and v.grad_fn.name() == "AsStridedBackward0"
    assert all(v.requires_grad for v in views)
    views[0].sum().backward()
    assert x.grad.tolist() == [0, 0, 0, 0]


MANY = "This view is the output of a function that returns multiple views"


def test_a_view_of_one_of_several_views_is_as_little_writable() -> None:
    x = engine.ones(2, 3, requires_grad=True) * 1
    with pytest.raises(RuntimeError, match=f"^Output 0 of Select is a view and is being modified inplace. {MANY}"):
        x.split(1)[0][0].mul_(2)
    with pytest.raises(RuntimeError, match=f"^Output 0 of View is a view and is being modified inplace. {MANY}"):
        x.unbind()[0].view(3, 1).mul_(2)
    plain = engine.ones(2, 3)
    plain.unbind()[0].mul_(2)
    with pytest.raises(RuntimeError, match=f"^A view was created in no_grad mode .* {MANY}"):
        plain.unbind()[0].mul_(engine.ones(3, requires_grad=True))
