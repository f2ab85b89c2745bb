"""Functions written by users (rules FN01-FN11, FN18-FN26; the others: test_function_gradients.py)."""

import pytest

import engine
from engine.autograd import Function, grad, gradcheck
from engine.autograd.function import InplaceFunction

from ._util import check, constant, leaf, quiet


class Scale(Function):
    """x * factor, factor a number."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.factor, None


class Product(Function):
    """a * b."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, grad_output):
        a, b = ctx.saved_tensors
        return grad_output * b, grad_output * a


def test_fn01_apply():
    """FN01: Function: apply, ctx attributes, save_for_backward, constants get None."""
    x, y = leaf(2, seed=1), leaf(2, seed=2)
    out = Scale.apply(x, 3.0)
    check(out, (3 * x).tolist())
    assert not out.is_leaf and out.requires_grad
    out.sum().backward()
    check(x.grad, [3, 3])
    product = Product.apply(x, y)
    ga, gb = grad(product.sum(), [x, y])
    check(ga, y.tolist())
    check(gb, x.tolist())
    assert gradcheck(Product.apply, (x, y))
    assert gradcheck(lambda t: Scale.apply(t, 2.5), (x,))


def test_fn01_saved_tensors_are_a_tuple():
    """FN01: Function: apply, ctx attributes, save_for_backward, constants get None."""
    seen = []

    class Save(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y, x * 2)
            return x * y

        @staticmethod
        def backward(ctx, grad_output):
            seen.append(ctx.saved_tensors)
            return grad_output, None

    x, y = leaf(2, seed=1), constant(2, seed=2)
    Save.apply(x, y).sum().backward()
    ((a, b, c),) = seen
    assert isinstance(seen[0], tuple)
    check(a, x.tolist())
    check(b, y.tolist())
    check(c, (2 * x).tolist())
    assert a.requires_grad and a.is_leaf and not b.requires_grad


def test_fn01_forward_runs_eagerly_on_plain_tensors():
    """FN01: Function: apply, ctx attributes, save_for_backward, constants get None."""

    class Numpy(Function):
        @staticmethod
        def forward(ctx, x):
            return engine.from_numpy(x.detach().numpy() ** 2)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * 7

    x = leaf(2)
    Numpy.apply(x).sum().backward()
    check(x.grad, [7, 7])


def test_fn02_grad_fn_is_the_ctx():
    """FN02: grad_fn of the result is the ctx: attributes set in forward can be read on it."""
    x = leaf(2)
    out = Scale.apply(x, 4)
    assert out.grad_fn.factor == 4
    assert type(out.grad_fn).__name__ == "ScaleBackward"
    out.grad_fn.factor = 10
    out.sum().backward()
    check(x.grad, [10, 10])
    contexts = []

    class Remember(Function):
        @staticmethod
        def forward(ctx, x):
            contexts.append(ctx)
            return x * 1

        @staticmethod
        def backward(ctx, grad_output):
            contexts.append(ctx)
            return grad_output

    y = Remember.apply(x)
    y.sum().backward()
    assert contexts[0] is contexts[1] is y.grad_fn


def test_fn03_needs_input_grad():
    """FN03: needs_input_grad follows requires_grad of the inputs, False for non-tensors."""
    seen = []

    class Ask(Function):
        @staticmethod
        def forward(ctx, *args):
            seen.append(ctx.needs_input_grad)
            return sum(a for a in args if isinstance(a, engine.Tensor)) * 1

        @staticmethod
        def backward(ctx, grad_output):
            seen.append(ctx.needs_input_grad)
            return tuple(grad_output if need else None for need in ctx.needs_input_grad)

    x, data = leaf(2), constant(2)
    Ask.apply(x, data, 3, None, x * 2, "text").sum().backward()
    assert seen == [(True, False, False, False, True, False)] * 2
    check(x.grad, [3, 3])


def test_fn04_saved_input_changed():
    """FN04: saved_tensors of an input changed in place afterwards is an error at backward."""
    message = "modified by an inplace operation"
    x, y = leaf(2, seed=1), leaf(2, seed=2)
    a = x * 1
    out = Product.apply(a, y)
    a.add_(1)
    with pytest.raises(RuntimeError, match=message):
        out.sum().backward()
    data = constant(2)
    out = Product.apply(x, data)
    data.zero_()
    with pytest.raises(RuntimeError, match=message):
        out.sum().backward()


def test_fn04_reading_from_outside():
    """FN04: saved_tensors of an input changed in place afterwards is an error at backward."""
    a = leaf(2) * 1
    out = Product.apply(a, leaf(2))
    assert len(out.grad_fn.saved_tensors) == 2
    a.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        _ = out.grad_fn.saved_tensors


class Exp(Function):
    """exp, saving its output."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad_output):
        (y,) = ctx.saved_tensors
        return grad_output * y


def test_fn05_saved_output():
    """FN05: an output may be saved; backward reads it with its own history."""
    x = leaf(2)
    y = Exp.apply(x)
    (saved,) = y.grad_fn.saved_tensors
    assert saved.grad_fn is y.grad_fn and saved.requires_grad
    (g,) = grad(y.sum(), x, create_graph=True)
    (h,) = grad(g.sum(), x)
    check(g, x.exp().tolist())
    check(h, x.exp().tolist())
    y = Exp.apply(x)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_fn06_none_and_non_tensors():
    """FN06: saved_tensors: None entries come back as None, saving non-tensors is a TypeError."""

    class SaveNone(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(None, x, None)
            return x * 2

        @staticmethod
        def backward(ctx, grad_output):
            first, x, last = ctx.saved_tensors
            assert first is None and last is None and isinstance(x, engine.Tensor)
            return grad_output * 2

    x = leaf(2)
    SaveNone.apply(x).sum().backward()
    check(x.grad, [2, 2])

    class SaveWrong(Function):
        @staticmethod
        def forward(ctx, x, what):
            ctx.save_for_backward(x, what)
            return x * 2

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output, None

    for what in (3, "text", [1.0], 2.5):
        with pytest.raises(TypeError, match="save_for_backward can only save"):
            SaveWrong.apply(x, what)


def test_fn06_nothing_saved():
    """FN06: saved_tensors: None entries come back as None, saving non-tensors is a TypeError."""
    out = Scale.apply(leaf(2), 2)
    assert out.grad_fn.saved_tensors == ()


def test_fn07_after_the_buffers_were_freed():
    """FN07: saved_tensors after the buffers were freed is the second-time error."""
    x, y = leaf(2, seed=1), leaf(2, seed=2)
    out = Product.apply(x, y)
    total = out.sum()
    total.backward(retain_graph=True)
    assert len(out.grad_fn.saved_tensors) == 2
    total.backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        _ = out.grad_fn.saved_tensors
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        total.backward()
    check(x.grad, (2 * y).tolist())
    out = Scale.apply(x, 3)
    out.sum().backward()
    assert out.grad_fn.factor == 3
    out.sum().backward()


class AddInPlace(Function):
    """x += y."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_dirty(x)
        x.add_(y)
        return x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, grad_output * 5


def test_fn08_mark_dirty():
    """FN08: mark_dirty: the output is the input object, its version rises, gradients flow."""
    x, y = leaf(2, seed=1), leaf(2, seed=2)
    a = x * 2
    version, values = a._version, a.tolist()
    out = AddInPlace.apply(a, y)
    assert out is a and a._version > version
    assert type(a.grad_fn).__name__ == "AddInPlaceBackward"
    check(a, [v + w for v, w in zip(values, y.tolist())])
    (a * 3).sum().backward()
    check(x.grad, [6, 6])
    check(y.grad, [15, 15])


def test_fn08_a_target_without_grad():
    """FN08: mark_dirty: the output is the input object, its version rises, gradients flow."""
    x, y = engine.ones(2, dtype=engine.float64), leaf(2)
    out = AddInPlace.apply(x, y)
    assert out is x and x.requires_grad and not x.is_leaf
    x.sum().backward()
    check(y.grad, [5, 5])


def test_fn08_what_saved_the_old_value_notices():
    """FN08: mark_dirty: the output is the input object, its version rises, gradients flow."""
    x, y = leaf(2, seed=1), leaf(2, seed=2)
    a = x * 2
    old = a * a
    AddInPlace.apply(a, y)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        old.sum().backward()


def test_fn09_a_leaf():
    """FN09: mark_dirty on a leaf that requires grad is an error."""
    x, y = leaf(2, seed=1), leaf(2, seed=2)
    with pytest.raises(RuntimeError, match=r"a leaf Variable that requires grad .* in-place operation"):
        AddInPlace.apply(x, y)


class SplitSigns(Function):
    """(x * 2, x > 0 as x's type), the second not differentiable."""

    seen = []

    @staticmethod
    def forward(ctx, x):
        positive = (x > 0).to(x.dtype)
        ctx.mark_non_differentiable(positive)
        return x * 2, positive

    @staticmethod
    def backward(ctx, grad_output, grad_positive):
        SplitSigns.seen.append(grad_positive)
        return grad_output * 2


def test_fn10_mark_non_differentiable():
    """FN10: mark_non_differentiable: that output does not require grad; backward gets a zero for
    it.
    """
    SplitSigns.seen.clear()
    x = leaf(3)
    double, positive = SplitSigns.apply(x)
    assert double.requires_grad and not positive.requires_grad and positive.grad_fn is None
    (double * positive).sum().backward()
    check(x.grad, (2 * positive).tolist())
    check(SplitSigns.seen[0], [0, 0, 0])


def test_fn10_all_outputs():
    """FN10: mark_non_differentiable: that output does not require grad; backward gets a zero for
    it.
    """

    class Sign(Function):
        @staticmethod
        def forward(ctx, x):
            out = x.sign()
            ctx.mark_non_differentiable(out)
            return out

        @staticmethod
        def backward(ctx, grad_output):
            raise AssertionError

    x = leaf(3)
    out = Sign.apply(x)
    assert not out.requires_grad and out.is_leaf
    (out * x).sum().backward()
    check(x.grad, out.tolist())


def test_fn11_integer_outputs():
    """FN11: integer or bool outputs of a Function do not require grad even unmarked."""

    class Top(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x.argmax(), x > 0, x.int()

        @staticmethod
        def backward(ctx, grad_output, *rest):
            assert len(rest) == 3
            return grad_output * 2

    x = leaf(3)
    double, *others = Top.apply(x)
    assert double.requires_grad
    assert [t.requires_grad for t in others] == [False] * 3
    double.sum().backward()
    check(x.grad, [2, 2, 2])


def test_fn18_forward_may_return_its_input():
    """FN18: forward may return its input: the result is another tensor with this node, backward
    runs.
    """

    class Pass(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * 10

    x = leaf(2)
    for t, factor in ((x, 10), (x * 3, 30)):
        node = t.grad_fn
        out = Pass.apply(t)
        assert out is not t and t.grad_fn is node
        assert type(out.grad_fn).__name__ == "PassBackward"
        check(out, t.tolist())
        x.grad = None
        out.sum().backward()
        check(x.grad, [factor, factor])


def test_fn18_an_input_without_grad():
    """FN18: forward may return its input: the result is another tensor with this node, backward
    runs.
    """

    class First(Function):
        @staticmethod
        def forward(ctx, a, b):
            return a

        @staticmethod
        def backward(ctx, grad_output):
            return None, grad_output * 2

    data, x = constant(2), leaf(2)
    out = First.apply(data, x)
    assert out.requires_grad and not data.requires_grad
    out.sum().backward()
    check(x.grad, [2, 2])


def test_fn19_one_tensor_twice():
    """FN19: forward may return one tensor twice: both results are the same object."""

    class Twice(Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            return y, y

        @staticmethod
        def backward(ctx, first, second):
            return (first + second) * 2

    x = leaf(2)
    a, b = Twice.apply(x)
    assert a is b
    (a + b).sum().backward()
    check(x.grad, [4, 4])


class Several(Function):
    """Three tensors, a number, None and a text."""

    @staticmethod
    def forward(ctx, x):
        return x * 2, 7, x * 3, None, "text", x.sum()

    @staticmethod
    def backward(ctx, first, number, second, none, text, total):
        assert number is None and none is None and text is None
        return first * 2 + second * 3 + total


def test_fn20_several_outputs():
    """FN20: several outputs: each has the node and its own output_nr; non-tensor outputs pass
    through.
    """
    x = leaf(2)
    outputs = Several.apply(x)
    assert isinstance(outputs, tuple) and len(outputs) == 6
    a, number, b, none, text, total = outputs
    assert (number, none, text) == (7, None, "text")
    assert a.grad_fn is b.grad_fn is total.grad_fn
    assert (a.output_nr, b.output_nr, total.output_nr) == (0, 2, 5)
    (a * 1 + b * 10 + total * 100).sum().backward()
    check(x.grad, [232, 232])


def test_fn20_one_output_in_a_tuple_or_not():
    """FN20: several outputs: each has the node and its own output_nr; non-tensor outputs pass
    through.
    """

    class One(Function):
        @staticmethod
        def forward(ctx, x, wrap):
            return (x * 2,) if wrap else x * 2

        @staticmethod
        def backward(ctx, grad_output):
            return (grad_output * 2, None)

    x = leaf(2)
    assert isinstance(One.apply(x, False), engine.Tensor)
    wrapped = One.apply(x, True)
    assert isinstance(wrapped, tuple) and len(wrapped) == 1
    (wrapped[0] + One.apply(x, False)).sum().backward()
    check(x.grad, [4, 4])


def test_fn21_any_arguments():
    """FN21: arguments may be any objects; tensors inside lists are not tracked."""

    class Any(Function):
        @staticmethod
        def forward(ctx, numbers, x, table, f):
            assert ctx.needs_input_grad == (False, True, False, False)
            ctx.count = len(numbers)
            return f(x) + numbers[0] + table["y"]

        @staticmethod
        def backward(ctx, grad_output):
            return None, grad_output * 2, None, None

    x, inside, y = leaf(2, seed=1), leaf(2, seed=2), leaf(2, seed=3)
    out = Any.apply([inside], x, {"y": y}, lambda t: t * 2)
    check(out, (2 * x + inside + y).tolist())
    assert len(out.grad_fn.next_functions) == 1
    out.sum().backward()
    check(x.grad, [2, 2])
    assert inside.grad is None and y.grad is None


def test_fn22_no_input_requires_grad():
    """FN22: a Function without any input that requires grad records nothing."""
    out = Product.apply(constant(2), constant(2))
    assert not out.requires_grad and out.grad_fn is None and out.is_leaf
    first, number, *_ = Several.apply(constant(2))
    assert not first.requires_grad and number == 7
    out = Any22.apply([leaf(2)])
    assert not out.requires_grad


class Any22(Function):
    """A Function whose only tensor is in a list."""

    @staticmethod
    def forward(ctx, tensors):
        return tensors[0] * 2

    @staticmethod
    def backward(ctx, grad_output):
        raise AssertionError


def test_fn23_many_calls():
    """FN23: a Function used many times in one graph keeps each call's ctx apart."""
    x = leaf(2)
    outputs = [Scale.apply(x, k) for k in range(1, 5)]
    assert [t.grad_fn.factor for t in outputs] == [1, 2, 3, 4]
    assert len({id(t.grad_fn) for t in outputs}) == 4
    sum(outputs).sum().backward()
    check(x.grad, [10, 10])
    y = x
    for k in range(1, 5):
        y = Scale.apply(y, k)
    (g,) = grad(y.sum(), x)
    check(g, [24, 24])


def test_fn24_functions_inside_functions():
    """FN24: forward of one Function may call others and run under enable_grad on detached
    copies.
    """

    class Outer(Function):
        @staticmethod
        def forward(ctx, x):
            inner = Scale.apply(x, 3)
            assert not inner.requires_grad
            with engine.enable_grad():
                copy = x.detach().requires_grad_()
                y = (Scale.apply(copy, 2) ** 2).sum()
            (ctx.gradient,) = grad(y, copy)
            return y.detach() + inner.sum()

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * (ctx.gradient + 3)

    x = leaf(3)
    out = Outer.apply(x)
    out.backward()
    check(out, float((4 * x.detach() ** 2 + 3 * x.detach()).sum()))
    check(x.grad, (8 * x + 3).tolist())


def test_fn25_instance_style():
    """FN25: an instance-style (legacy) Function gives a clear error."""

    class Old(Function):
        def forward(self, x):
            return x * 2

        def backward(self, grad_output):
            return grad_output * 2

    with pytest.raises(RuntimeError, match=r"(?i)legacy|static"), quiet():
        Old()(leaf(2))


def test_fn25_apply_without_forward():
    """FN25: an instance-style (legacy) Function gives a clear error."""

    class Empty(Function):
        pass

    with pytest.raises(NotImplementedError):
        Empty.apply(leaf(2))


def test_fn25_without_backward():
    """FN25: an instance-style (legacy) Function gives a clear error."""

    class ForwardOnly(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    out = ForwardOnly.apply(leaf(2))
    with pytest.raises(NotImplementedError):
        out.sum().backward()


def test_fn26_saved_variables():
    """FN26: ctx.saved_variables is the old name of saved_tensors."""
    out = Product.apply(leaf(2, seed=1), leaf(2, seed=2))
    with quiet():
        old = out.grad_fn.saved_variables
    for a, b in zip(old, out.grad_fn.saved_tensors):
        check(a, b.tolist())


@pytest.mark.parametrize("inplace", [False, True])
def test_inplace_function(inplace):
    """The old base of binarised networks: `forward` writes to its input or does not, the gradient passes straight."""

    class Sign(InplaceFunction):
        @staticmethod
        def forward(ctx, x, inplace=False):
            if inplace:
                ctx.mark_dirty(x)
            return x.sign_() if inplace else x.sign()

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output, None

    x = engine.tensor([-2.0, 3.0], requires_grad=True)
    Sign.apply(x * 1, inplace).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]
    with pytest.warns(DeprecationWarning, match="should not be instantiated"):
        assert Sign(True).inplace


def test_nested_values_are_mapped():
    from engine.autograd.function import _nested_map

    double = _nested_map(lambda v: isinstance(v, int), lambda v: 2 * v, "numbers")
    assert double([1, (2, None), {"a": 3}]) == [2, (4, None), {"a": 6}]
    with pytest.raises(ValueError, match="accepted types: numbers"):
        double(["x"])
