"""Anomaly mode (rules AN01-AN05)."""

import contextlib
import warnings

import pytest

import engine
from engine.autograd import Function, detect_anomaly, set_detect_anomaly

from ._util import check, leaf, quiet


class MyFunc(Function):
    """x * 1 with a gradient of nan if asked."""

    @staticmethod
    def forward(ctx, x, bad):
        ctx.bad = bad
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        result = grad_output.clone()
        if ctx.bad:
            result[0] = float("nan")
        return result, None


@contextlib.contextmanager
def recorded():
    """The texts of the warnings given in the block."""
    texts = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    texts.extend(str(w.message) for w in caught)


def test_an01_nan_gradient():
    """AN01: detect_anomaly: a nan gradient is an error naming the function and the output."""
    x = leaf(3)
    with quiet(), detect_anomaly():
        y = MyFunc.apply(x * 2, True).sum()
        with pytest.raises(RuntimeError, match=r"Function 'MyFuncBackward' returned nan values in its 0th output\."):
            y.backward()
        MyFunc.apply(x, False).sum().backward()
    check(x.grad, [1, 1, 1])


def test_an01_which_output():
    """AN01: detect_anomaly: a nan gradient is an error naming the function and the output."""

    class Second(Function):
        @staticmethod
        def forward(ctx, a, b):
            return a + b

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output, grad_output * float("nan")

    with quiet(), detect_anomaly():
        y = Second.apply(leaf(2), leaf(2)).sum()
        with pytest.raises(RuntimeError, match=r"'SecondBackward' .* in its 1th output"):
            y.backward()


def test_an02_outside():
    """AN02: outside detect_anomaly nan gradients pass."""
    x = leaf(2)
    MyFunc.apply(x, True).sum().backward()
    assert engine.isnan(x.grad).tolist() == [True, False]
    assert not engine.is_anomaly_enabled()


def test_an03_forward_line():
    """AN03: the warning shows the forward line; without forward information it says so."""
    x = leaf(2)
    with recorded() as texts, detect_anomaly():
        marker = MyFunc.apply(x, True)  # the guilty line
        with pytest.raises(RuntimeError):
            marker.sum().backward()
    (text,) = [t for t in texts if "Traceback of forward call that caused the error" in t]
    assert "the guilty line" in text and "test_anomaly_mode.py" in text
    assert not any("No forward pass information" in t for t in texts)


def test_an03_without_forward_information():
    """AN03: the warning shows the forward line; without forward information it says so."""
    x = leaf(2)
    y = MyFunc.apply(x, True).sum()
    with recorded() as texts, detect_anomaly(), pytest.raises(RuntimeError):
        y.backward()
    assert any("No forward pass information" in t for t in texts)
    assert not any("Traceback of forward call" in t for t in texts)


def test_an03_an_exception_in_a_backward_shows_the_line_too():
    """AN03: the warning shows the forward line; without forward information it says so."""

    class Failing(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad_output):
            raise ValueError("from backward")

    with recorded() as texts, detect_anomaly():
        y = Failing.apply(leaf(2))  # another guilty line
        with pytest.raises(ValueError, match="from backward"):
            y.sum().backward()
    assert any("another guilty line" in t for t in texts)


def test_an04_set_detect_anomaly():
    """AN04: set_detect_anomaly works as a context and is off again afterwards."""
    x = leaf(2)
    for guard in (lambda: set_detect_anomaly(True), detect_anomaly):
        with quiet():
            with guard():
                assert engine.is_anomaly_enabled()
                y = MyFunc.apply(x, True).sum()
                with pytest.raises(RuntimeError, match="nan values"):
                    y.backward(retain_graph=True)
                with set_detect_anomaly(False):
                    assert not engine.is_anomaly_enabled()
                    y.backward(retain_graph=True)
                assert engine.is_anomaly_enabled()
            assert not engine.is_anomaly_enabled()
            y.backward()
    with quiet(), pytest.raises(KeyError), detect_anomaly():
        raise KeyError
    assert not engine.is_anomaly_enabled()


def test_an04_as_a_function():
    """AN04: set_detect_anomaly works as a context and is off again afterwards."""
    with quiet():
        set_detect_anomaly(True)
        try:
            assert engine.is_anomaly_enabled()
        finally:
            set_detect_anomaly(False)
    assert not engine.is_anomaly_enabled()


def test_an05_builtin_ops():
    """AN05: anomaly mode finds nan from builtin ops too (sqrt at 0 times 0)."""
    x = engine.zeros(2, requires_grad=True)
    with quiet(), detect_anomaly():
        y = (engine.sqrt(x) * 0).sum()
        with pytest.raises(RuntimeError, match=r"Function 'SqrtBackward\d*' returned nan values in its 0th output"):
            y.backward()
        z = (x / x).sum()
        with pytest.raises(RuntimeError, match=r"DivBackward.*nan values"):
            z.backward()
        (x * 2).sum().backward()
    check(x.grad, [2, 2])
