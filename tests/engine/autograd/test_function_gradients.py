"""What the backward of a user's Function receives and returns (rules FN12-FN17)."""

import pytest

import engine
from engine.autograd import Function

from ._util import check, constant, leaf


def returning(make):
    """A Function identity(a, b) = a + b whose backward returns `make(ctx, grad)`."""

    class Custom(Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, grad_output):
            return make(ctx, grad_output)

    return Custom.apply


def two_outputs(materialize):
    seen = []

    class Two(Function):
        @staticmethod
        def forward(ctx, x):
            if materialize is not None:
                ctx.set_materialize_grads(materialize)
            return x * 2, x[:1] * 3

        @staticmethod
        def backward(ctx, first, second):
            seen.append((first, second))
            result = engine.zeros(2, dtype=engine.float64)
            if first is not None:
                result = result + first * 2
            if second is not None:
                result[:1] += second * 3
            return result

    return Two.apply, seen


@pytest.mark.parametrize("materialize", [None, True])
def test_fn12_unused_outputs_arrive_as_zeros(materialize):
    """FN12: an unused output arrives as zeros; with set_materialize_grads(False) as None."""
    f, seen = two_outputs(materialize)
    x = leaf(2)
    f(x)[0].sum().backward()
    f(x)[1].sum().backward()
    check(seen[0][1], [0])
    check(seen[1][0], [0, 0])
    assert seen[0][1].dtype == engine.float64 and not seen[0][1].requires_grad
    check(x.grad, [5, 2])


def test_fn12_or_as_none():
    """FN12: an unused output arrives as zeros; with set_materialize_grads(False) as None."""
    f, seen = two_outputs(False)
    x = leaf(2)
    f(x)[0].sum().backward()
    f(x)[1].sum().backward()
    assert seen[0][1] is None and seen[1][0] is None
    check(x.grad, [5, 2])


def test_fn13_number_of_gradients():
    """FN13: too few gradients is an error with both counts; trailing None beyond the inputs is
    allowed.
    """
    a, b = leaf(2, seed=1), leaf(2, seed=2)
    with pytest.raises(
        RuntimeError,
        match=r"function CustomBackward returned an incorrect number of gradients "
        r"\(expected 2, got 1\)",
    ):
        returning(lambda ctx, g: g)(a, b).sum().backward()
    with pytest.raises(RuntimeError, match=r"expected 2, got 3"):
        returning(lambda ctx, g: (g, g, g))(a, b).sum().backward()
    with pytest.raises(RuntimeError, match=r"expected 2, got 0"):
        returning(lambda ctx, g: ())(a, b).sum().backward()
    assert a.grad is None
    returning(lambda ctx, g: (g, g * 2, None, None))(a, b).sum().backward()
    check(a.grad, [1, 1])
    check(b.grad, [2, 2])


def test_fn14_ignored_gradients():
    """FN14: a gradient for an input that is no tensor, or does not need one, is ignored."""

    class Loud(Function):
        @staticmethod
        def forward(ctx, x, number, data):
            return x * number + data

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * 2, None, grad_output * 100

    x, data = leaf(2), constant(2)
    Loud.apply(x, 2, data).sum().backward()
    check(x.grad, [2, 2])
    assert data.grad is None


def test_fn14_a_gradient_for_a_number():
    """FN14: a gradient for an input that is no tensor, or does not need one, is ignored."""

    class Loud(Function):
        @staticmethod
        def forward(ctx, x, number):
            return x * number

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * 2, grad_output.sum()

    x = leaf(2)
    Loud.apply(x, 2).sum().backward()
    check(x.grad, [2, 2])


def test_fn15_none_for_a_needed_input():
    """FN15: None for a needed input means no gradient, also in the middle of a graph."""
    a, b = leaf(2, seed=1), leaf(2, seed=2)
    returning(lambda ctx, g: (None, g))(a, b).sum().backward()
    assert a.grad is None
    check(b.grad, [1, 1])


def test_fn15_in_the_middle():
    """FN15: None for a needed input means no gradient, also in the middle of a graph."""
    stop = returning(lambda ctx, g: (None, g * 3))
    a, b = leaf(2, seed=1), leaf(2, seed=2)
    (stop(a.exp() * 2, b.sin()) + a).sum().backward()
    check(a.grad, [1, 1])
    check(b.grad, (3 * b.cos()).tolist())
    a.grad = b.grad = None
    stop(a.exp() * 2, b.clone()).sum().backward()
    assert a.grad is None or not a.grad.any()
    check(b.grad, [3, 3])


def test_fn15_a_function_reached_only_by_none_gets_zeros():
    """FN15: None for a needed input means no gradient, also in the middle of a graph."""
    seen = []

    class See(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad_output):
            seen.append(grad_output.tolist())
            return grad_output * 2

    a, b = leaf(2, seed=1), leaf(2, seed=2)
    returning(lambda ctx, g: (None, g))(See.apply(a), b).sum().backward()
    assert seen == [[0, 0]]
    check(a.grad, [0, 0])


def test_fn16_wrong_shape():
    """FN16: a gradient of the wrong shape is an error that says shape; one that broadcasts back
    is summed.
    """

    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            return x.sum()

        @staticmethod
        def backward(ctx, grad_output):
            return engine.ones(10, dtype=engine.float64)

    x = leaf(5, 5)
    with pytest.raises(
        RuntimeError,
        match=r"Function WrongBackward returned an invalid gradient at index 0 - "
        r"got \[10\] but expected shape compatible with \[5, 5\]",
    ):
        Wrong.apply(x).backward()
    assert x.grad is None


@pytest.mark.parametrize("shape", [(2, 2), (1, 2), (3, 2, 2), (1,)])
def test_fn16_a_gradient_that_broadcasts_back_is_summed(shape):
    """FN16: a gradient of the wrong shape is an error that says shape; one that broadcasts back
    is summed.
    """

    class Grow(Function):
        @staticmethod
        def forward(ctx, x):
            return x.sum() * engine.ones((), dtype=engine.float64)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.expand(3, 2, 2)

    x = leaf(*shape)
    Grow.apply(x).backward()
    check(x.grad, (engine.ones(shape) * (12 / x.numel())).tolist())


@pytest.mark.parametrize("given, wanted", [("float64", "float32"), ("float32", "float64")])
def test_fn17_other_float_types_are_cast(given, wanted):
    """FN17: a gradient of another float dtype is cast to the input's."""
    given, wanted = getattr(engine, given), getattr(engine, wanted)

    class Cast(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad_output):
            return engine.full((2,), 2.0, dtype=given)

    x = leaf(2, dtype=wanted)
    Cast.apply(x).sum().backward()
    assert x.grad.dtype == wanted
    check(x.grad, [2, 2])
    x.grad = None
    Cast.apply(x * 3).sum().backward()
    assert x.grad.dtype == wanted
    check(x.grad, [6, 6])
