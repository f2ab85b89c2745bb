"""gradcheck and gradgradcheck (rules GC01-GC07)."""

import warnings

import pytest

import engine
from engine.autograd import Function, gradcheck, gradgradcheck

from ._util import constant, leaf


class WrongCube(Function):
    """x ** 3, whose gradient lacks a factor."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x**2 * grad_output


class WrongSecond(Function):
    """x ** 3, whose gradient is right and hides x from the second derivative."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 3 * x.detach() ** 2 * grad_output


def test_gc01_right_gradients():
    """GC01: gradcheck and gradgradcheck pass right gradients, for one tensor or a sequence of
    inputs.
    """
    x, y = leaf(2, 3, seed=1), leaf(3, 2, seed=2)
    assert gradcheck(lambda t: t.sin(), x) is True
    assert gradcheck(lambda t: t.sin(), (x,)) is True
    assert gradcheck(lambda t: t.sin(), [x]) is True
    assert gradcheck(lambda a, b: a.mm(b), (x, y))
    assert gradcheck(lambda a, b: (a.mm(b), a.t() * b), (x, y))
    assert gradcheck(lambda a, n: a**n, (x, 3))
    assert gradcheck(lambda a, b: a * b.t(), (x, constant(3, 2)))
    assert gradgradcheck(lambda t: t.sin(), x) is True
    assert gradgradcheck(lambda a, b: a.mm(b).tanh(), (x, y))
    assert gradgradcheck(lambda a, b: a.mm(b), [x, y])


def test_gc01_grad_outputs_of_the_user():
    """GC01: gradcheck and gradgradcheck pass right gradients, for one tensor or a sequence of
    inputs.
    """
    x = leaf(2)
    assert gradgradcheck(lambda t: t**3, (x,), (leaf(2, seed=5),))


def test_gc01_scalars_and_layouts():
    """GC01: gradcheck and gradgradcheck pass right gradients, for one tensor or a sequence of
    inputs.
    """
    assert gradcheck(lambda t: t * t, (leaf(),))
    assert gradcheck(lambda t: t.t() * 2, (leaf(3, 2),))
    assert gradcheck(lambda t: t * 2, (constant(3, 2).t().requires_grad_(),))


def test_gc01_tolerances():
    """GC01: gradcheck and gradgradcheck pass right gradients, for one tensor or a sequence of
    inputs.
    """

    def nearly(t):
        return _nearly.apply(t)

    x = leaf(2)
    assert gradcheck(nearly, (x,), atol=1e-1)
    assert gradcheck(nearly, (x,), eps=1e-5, atol=0.0, rtol=1e-1)
    assert not gradcheck(nearly, (x,), raise_exception=False)


class _nearly(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2.01


def test_gc02_wrong_gradient():
    """GC02: gradcheck finds a wrong gradient: raises, or returns False with
    raise_exception=False.
    """
    x = leaf(2, low=0.5, high=1.5)
    with pytest.raises(RuntimeError, match="Jacobian mismatch for output 0 with respect to input 0"):
        gradcheck(WrongCube.apply, (x,))
    assert gradcheck(WrongCube.apply, (x,), raise_exception=False) is False
    with pytest.raises(RuntimeError, match="with respect to input 1"):
        gradcheck(lambda a, b: a + WrongCube.apply(b), (leaf(2), x))
    with pytest.raises(RuntimeError, match="output 1 with respect to input 0"):
        gradcheck(lambda a: (a * 2, WrongCube.apply(a)), (x,))


def test_gc02_a_missing_gradient():
    """GC02: gradcheck finds a wrong gradient: raises, or returns False with
    raise_exception=False.
    """
    x = leaf(2, low=0.5, high=1.5)
    assert not gradcheck(lambda t: t * t.detach(), (x,), raise_exception=False)


def test_gc03_wrong_second_derivative():
    """GC03: gradgradcheck finds a wrong second derivative."""
    x = leaf(2, low=0.5, high=1.5)
    assert gradcheck(WrongSecond.apply, (x,))
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradgradcheck(WrongSecond.apply, (x,))
    assert gradgradcheck(WrongSecond.apply, (x,), raise_exception=False) is False


def test_gc04_no_input_requires_grad():
    """GC04: gradcheck without an input that requires grad is a ValueError."""
    message = "gradcheck expects at least one input tensor to require gradient"
    for inputs in (constant(2), (constant(2),), (constant(2), 3)):
        with pytest.raises(ValueError, match=message):
            gradcheck(lambda t, *rest: t * 2, inputs)
    with pytest.raises(ValueError, match=message):
        gradcheck(lambda t: t * 2, constant(2), raise_exception=False)


def test_gc05_single_precision():
    """GC05: gradcheck warns about single precision inputs."""
    x = leaf(2, dtype=engine.float32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert gradcheck(lambda t: t * 2, (x,), eps=1e-2, atol=1e-2, rtol=1e-2)
    assert any("double precision" in str(w.message) for w in caught)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gradcheck(lambda t: t * 2, (leaf(2),))


def test_gc06_not_reproducible():
    """GC06: gradcheck notices a function that is not reproducible."""

    class Drifting(Function):
        count = 0

        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad_output):
            Drifting.count += 1
            return grad_output * (2 + 1e-9 * Drifting.count)

    x = leaf(2)
    with pytest.raises(RuntimeError, match=r"(?i)not reentrant|nondetermin|reproducib"):
        gradcheck(Drifting.apply, (x,))
    assert gradcheck(Drifting.apply, (x,), raise_exception=False) is False
    assert gradcheck(Drifting.apply, (x,), nondet_tol=1e-5)


def test_gc07_output_without_grad():
    """GC07: gradcheck checks an output that wrongly does not require grad."""
    x = leaf(2, low=0.5, high=1.5)
    with pytest.raises(RuntimeError, match=r"(?i)expected to be zero|require"):
        gradcheck(lambda t: t.detach() * 2, (x,))
    assert gradcheck(lambda t: t.detach() * 2, (x,), raise_exception=False) is False
    assert gradcheck(lambda t: t.detach() * 0, (x,))


class _Wrong(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.x.cos()

    @staticmethod
    def jvp(ctx, tangent):
        return tangent * ctx.x.sin()


def test_tangents_are_compared_where_that_is_asked():
    x = engine.tensor([0.3, 0.7], dtype=engine.float64, requires_grad=True)
    z = engine.tensor([1 + 2j], dtype=engine.complex128, requires_grad=True)
    assert gradcheck(lambda x: (x.sin() * x, x.sum()), (x,), check_forward_ad=True)
    assert gradcheck(lambda z: z * z, (z,), check_forward_ad=True)
    assert gradcheck(_Wrong.apply, (x,))
    with pytest.raises(RuntimeError, match="Jacobian computed with forward mode mismatch for output 0"):
        gradcheck(_Wrong.apply, (x,), check_forward_ad=True)
    assert not gradcheck(_Wrong.apply, (x,), check_forward_ad=True, check_backward_ad=False, raise_exception=False)
    assert x.tolist() == [0.3, 0.7]


@pytest.mark.parametrize(
    ("factors", "passes"),
    [
        ([1.0, 1 + 2**-52, 1 + 2**-52], True),  # other code was chosen for the second pass, and stays
        ([1 + k * 2**-52 for k in range(9)], True),  # of nine operators, one after the other, on a busy machine
        ([1.0, 1 + 2**-52] * 20, False),  # never twice the same
        ([1.0, 1 + 2**-40, 1 + 2**-40], False),  # no rounding makes that
    ],
)
def test_last_bits_may_change_once(factors: list[float], passes: bool) -> None:
    class Chosen(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.factor = factors[min(evaluated[0], len(factors) - 1)]  # of the pass that this evaluation is for
            evaluated[0] += 1
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * (2 * ctx.factor)

    evaluated = [0]
    x = engine.tensor([0.7, 1.3], dtype=engine.float64, requires_grad=True)
    if passes:
        assert gradcheck(Chosen.apply, (x,))
    else:
        with pytest.raises(RuntimeError, match="not reentrant"):
            gradcheck(Chosen.apply, (x,))
