"""What samples of torch's operator database showed: copies, views, errors and graphs of single operators."""

from __future__ import annotations

import pytest

import engine


def test_a_shuffle_by_one_and_a_flat_strided_tensor_are_copies() -> None:
    x = engine.randn(1, 4, 3, 3)
    for call in (engine.nn.functional.pixel_shuffle, engine.nn.functional.pixel_unshuffle):
        found = call(x, 1)
        assert engine.equal(found, x) and found.data_ptr() != x.data_ptr()
    rows = engine.arange(12.0).view(4, 3)
    assert rows.ravel().data_ptr() == rows.data_ptr()
    strided = rows[::2, 0]  # one step, which a view could have
    assert strided.ravel().tolist() == [0, 6] and strided.ravel().data_ptr() != strided.data_ptr()


def test_a_format_that_is_there_is_not_made_again() -> None:
    """contiguous_format stands for what is not channels last: strides of a view stay."""
    strided = engine.randn(4, 4)[:, ::2]
    assert strided.float(memory_format=engine.contiguous_format) is strided
    last = engine.randn(2, 3, 4, 5).to(memory_format=engine.channels_last)
    assert last.float(memory_format=engine.contiguous_format).is_contiguous()
    assert last.float(memory_format=engine.channels_last) is last


def test_operators_called_by_hand_with_numbers() -> None:
    x = engine.ones(2)
    for name in ("__add__", "__radd__", "__mul__", "__rand__", "__rxor__"):
        with pytest.raises(TypeError, match=r"doesn't apply to a 'int' object"):
            getattr(engine.Tensor, name)(2, x)
    assert engine.Tensor.__rsub__(2, 3) is NotImplemented
    assert (2 + x).tolist() == (2 * x + 1).tolist() == [3, 3] and (5 - x).tolist() == [4, 4]


def test_narrow_copy_past_the_dims() -> None:
    with pytest.raises(RuntimeError, match="Expected dim < static_cast"):
        engine.narrow_copy(engine.zeros(3, 2), 2, 0, 1)
    with pytest.raises(IndexError, match="got -3"):
        engine.narrow_copy(engine.zeros(3, 2), -3, 0, 1)


def test_segments_that_leave_elements_out() -> None:
    x = engine.arange(12.0, requires_grad=True)
    one = engine._segment_reduce(x[:6], "sum", lengths=engine.tensor([1, 2]), unsafe=True)
    assert one.tolist() == [0, 3]
    assert engine._segment_reduce(x[:6], "max", offsets=engine.tensor([1, 3, 4]), unsafe=True).tolist() == [2, 3]
    two = engine._segment_reduce(x.view(2, 6), "sum", lengths=engine.tensor([[1, 2], [2, 3]]), axis=1, unsafe=True)
    assert two.tolist() == [[0, 3], [13, 27]]
    two.sum().backward()
    assert x.grad.tolist() == [1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 0]


def test_a_product_of_no_reflections_is_in_the_graph() -> None:
    a, tau = engine.randn(3, 2, requires_grad=True), engine.zeros(0, requires_grad=True)
    q = engine.linalg.householder_product(a, tau)
    assert q.requires_grad and engine.equal(q.detach(), engine.eye(3, 2))
    assert not engine.autograd.grad(q.sum(), a)[0].any()
    empty = engine.zeros(0, 0, requires_grad=True)
    assert engine.linalg.householder_product(empty, tau).requires_grad


def test_running_log_sums_of_complex_numbers_are_added_in_order() -> None:
    """Of the multiples of 2 pi i that a logarithm leaves open it is the one that a loop over the elements finds."""
    engine.manual_seed(3)
    x = engine.randn(40, dtype=engine.complex128) * 9
    found, total = engine.logcumsumexp(x, 0), x[0]
    for i in range(40):
        if i:
            high, low = (x[i], total) if x[i].real > total.real else (total, x[i])
            total = high + engine.log1p(engine.exp(low - high))
        engine.testing.assert_close(found[i], total)
    grid = engine.stack([x, x.conj()], 1)
    assert engine.equal(engine.logcumsumexp(grid, 0)[:, 0], found)


def test_a_product_of_one_number_has_no_second_derivative() -> None:
    x = engine.tensor([[1.5 + 2j]], dtype=engine.complex128, requires_grad=True)
    (slope,) = engine.autograd.grad(x.cumprod(1).real.sum(), x, create_graph=True)
    assert slope.item() == 1 and not slope.requires_grad
