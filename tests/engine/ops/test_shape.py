"""Views, joining, splitting, rearranging, copies: stored answers of torch 2.13, and what these alone do not show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import engine
from tests.engine.ops.stored import answer, stored


@pytest.mark.parametrize("expression, expected", stored("shape"), ids=lambda v: v[:60] if isinstance(v, str) else "")
def test_as_torch(expression: str, expected: Any) -> None:
    assert answer(expression) == expected


def test_a_view_of_a_view_shares_storage_and_counter() -> None:
    base = engine.zeros(4, 6)
    view = base.t()[1:4].unsqueeze(0)[0].diagonal(1)
    view.fill_(3)
    assert base.sum().item() == 3 * view.numel()
    assert view._base is base and base._version == view._version == 1
    assert view.storage() == base.storage()


def test_as_strided_of_a_base_with_its_own_offset_replays() -> None:
    memory = engine.arange(12.0)
    leaf = memory[2:10].detach().requires_grad_()
    base = leaf * 1
    view = base.as_strided((2, 2), (3, 1), 1)
    view.mul_(10)
    base.sum().backward()
    assert leaf.grad.tolist() == [1, 10, 10, 1, 10, 10, 1, 1]


def test_in_place_shape_ops_keep_identity_history_and_aliases() -> None:
    x = engine.arange(6.0).view(2, 3).requires_grad_()
    y = x * 2
    assert y.t_() is y and y.shape == (3, 2) and y._version == 1
    (y * engine.arange(6.0).view(3, 2)).sum().backward()
    assert x.grad.tolist() == [[0, 4, 8], [2, 6, 10]]
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x.unsqueeze_(0)


def test_contiguous_and_channels_last() -> None:
    x = engine.zeros(2, 3, 4, 5).to(memory_format=engine.channels_last)
    assert x.stride() == (60, 1, 15, 3) and not x.is_contiguous()
    assert x.is_contiguous(memory_format=engine.channels_last)
    assert (x.clone()).stride() == x.stride() and x.contiguous().stride() == (60, 20, 5, 1)
    assert x.contiguous(memory_format=engine.channels_last) is x


def test_splits_refuse_in_place_writes() -> None:
    pieces = (engine.ones(4, requires_grad=True) * 1).split(2)
    with pytest.raises(RuntimeError, match="function that returns multiple views"):
        pieces[0].mul_(2)


def test_bfloat16_views() -> None:
    x = engine.arange(6).bfloat16().view(2, 3)
    assert x.t().expand(2, 3, 2).sum().item() == 30
    assert x.diagonal().tolist() == [0, 4] and x.as_strided((2,), (4,)).tolist() == [0, 4]
    np.testing.assert_array_equal(x.unfold(1, 2, 1).float().numpy().shape, (2, 2, 2))


def test_repeat_interleave_compares_the_size_it_is_given() -> None:
    values, repeats = engine.arange(3.0), engine.tensor([1, 2, 3])
    assert engine.repeat_interleave(values, repeats, output_size=6).tolist() == [0, 1, 1, 2, 2, 2]
    for call in (
        lambda: engine.repeat_interleave(values, repeats, output_size=5),
        lambda: engine.repeat_interleave(repeats, output_size=7),
    ):
        with pytest.raises(RuntimeError, match="allocated size does not match required size"):
            call()
    with pytest.raises(RuntimeError, match="repeat_interleave: Invalid output_size, expected 6 but got 7"):
        engine.repeat_interleave(values, 2, output_size=7)


def test_broadcast_shapes_names_the_shape_that_does_not_fit() -> None:
    """torch's sentences; an int is a shape of one dim."""
    said = (
        "Attempting to broadcast a dimension of length {} at {}! Mismatching argument at index {} had {}; but expected "
    )
    said += "shape should be broadcastable to {}"
    for shapes, words in (
        (((2, 3), (3, 2)), (2, -1, 1, (3, 2), [2, 3])),
        (((1, 5), (4, 1), (3, 5)), (3, -2, 2, (3, 5), [4, 5])),
        ((3, [2]), (2, -1, 1, [2], [3])),
    ):
        with pytest.raises(RuntimeError) as error:
            engine.broadcast_shapes(*shapes)
        assert str(error.value) == said.format(*words)
