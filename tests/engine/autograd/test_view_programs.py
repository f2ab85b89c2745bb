"""What torch 2.13 says of views whose base was detached, written to or asked for gradients later."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import engine
from engine import autograd

from . import view_programs

PROGRAMS = view_programs.load()
NO_GRAD = "A view was created in no_grad mode and "
SEVERAL = "This view is the output of a function that returns multiple views."
INDIRECT = "its base or another view of its base has been modified inplace"
LEAF = r"^a leaf Variable that requires grad is being used in an in-place operation.$"


def leaf(*shape: int) -> Any:
    return engine.ones(*shape, requires_grad=True)


def quiet_view(tensor: Any, index: Any) -> Any:
    with engine.no_grad():
        return tensor[index]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_drawn_programs(number: int) -> None:
    steps, outcome = PROGRAMS[number]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = view_programs.run(engine, steps)
    assert json.loads(json.dumps(found)) == outcome, steps


def test_drawing_is_deterministic() -> None:
    import random

    assert view_programs.draw(random.Random(3)) == view_programs.draw(random.Random(3))


def test_the_node_of_copy() -> None:
    target = engine.zeros(2)
    target.copy_(leaf(2))
    assert target.grad_fn.name() == "torch::autograd::CopyBackwards"
    assert repr(target.grad_fn).startswith("<CopyBackwards object at")
    assert str(target) == "tensor([1., 1.], grad_fn=<CopyBackwards>)"


@pytest.mark.parametrize("ask", [lambda v: v.grad_fn, lambda v: v.is_leaf, lambda v: v * 2, lambda v: v.output_nr])
@pytest.mark.parametrize(
    "make, said",
    [
        (lambda b: b.unbind()[1], f"Output 1 of Unbind is a view and {INDIRECT}. {SEVERAL}"),
        (lambda b: b.split(1)[0][0], f"Output 0 of Select is a view and {INDIRECT}. {SEVERAL}"),
        (lambda b: quiet_view(b, 0), f"{NO_GRAD}{INDIRECT} with grad mode enabled. Given that"),
        (lambda b: quiet_view(b, 0)[1:], "Output 0 of Slice is a view of a view which was created in no_grad mode"),
    ],
)  # fmt: skip
def test_a_view_that_forbids_writes_has_no_history_after_one(make: Callable, said: str, ask: Callable) -> None:
    base = leaf(2, 2) * 1
    view = make(base)
    base.mul_(2)
    with pytest.raises(RuntimeError) as error:
        ask(view)
    assert str(error.value).startswith(said)
    assert view.requires_grad and "grad_fn=<Invalid>" in str(view)


def test_the_nearest_view_that_forbids_writes_is_named() -> None:
    base = leaf(2, 2) * 1
    with pytest.raises(
        RuntimeError, match="Output 0 of Slice is a view of a view which was created in no_grad mode and is b"
    ):
        quiet_view(base, 0)[1:].mul_(2)
    with pytest.raises(RuntimeError, match=f"Output 0 of Slice is a view and is being modified inplace. {SEVERAL}"):
        base.unbind()[0][1:].mul_(2)
    with pytest.raises(RuntimeError, match=f"{NO_GRAD}is being modified inplace with grad mode enabled. Given that"):
        quiet_view(base.unbind()[0], slice(1)).mul_(2)


def test_a_refused_write_of_another_with_gradients_writes_nothing() -> None:
    base = engine.zeros(2, 2)
    view = base.unbind()[0]
    for write in (view.mul_, view.copy_, view.add_, lambda x: view.addcmul_(x, x), lambda x: view[0].fill_(x[0])):
        with pytest.raises(RuntimeError, match=SEVERAL):
            write(leaf(2))
    assert base._version == 0 and base.tolist() == [[0, 0], [0, 0]]


def test_detaching_a_base() -> None:
    """Views with history go on to require grad, others follow their base."""
    base = leaf(3) * 1
    view, (piece, *_), quiet = base[1:], base.unbind(), quiet_view(base, slice(1))
    base.detach_()
    assert [t.requires_grad for t in (base, view, piece, quiet)] == [False, True, True, False]
    assert view.grad_fn.name() == "SliceBackward0"
    base.mul_(2)
    assert view.requires_grad and view.grad_fn.name() == "AsStridedBackward0"
    assert view.grad_fn.next_functions == ((None, 0),)


def test_detaching_a_base_that_was_written_through_a_view() -> None:
    x = leaf(3)
    base = x * 1
    view = base[1:]
    view.mul_(3)
    base.detach_()
    view.sum().backward()
    assert x.grad.tolist() == [0, 3, 3]


def test_a_view_without_history_follows_its_base_unless_asked() -> None:
    x = leaf(3)
    view = quiet_view(x, slice(1, None))
    assert view.requires_grad and view.is_leaf
    result = view * 2
    result.sum().backward()
    assert result.grad_fn.name() == "MulBackward0" and view.grad is None and x.grad is None
    x.requires_grad_(False)
    assert not view.requires_grad
    view.requires_grad_()
    (view * 2).sum().backward()
    assert view.grad.tolist() == [2, 2] and x.grad is None
    view.requires_grad_(False)
    assert not view.requires_grad
    x.requires_grad_()
    assert view.requires_grad


def test_nothing_is_differentiated_by_a_view_without_history() -> None:
    x = leaf(1)
    view = quiet_view(x, slice(None))
    with pytest.raises(RuntimeError, match="element 0 of tensors does not require grad and does not have a grad_fn"):
        view.backward()
    assert autograd.grad((x * 2).sum(), view, allow_unused=True) == (None,)


def test_gradients_reach_no_leaf_that_was_detached() -> None:
    for change in (lambda x: x.detach_(), lambda x: x.requires_grad_(False)):
        x = leaf(2)
        total = (x * 2).sum()
        change(x)
        total.backward()
        assert x.grad is None


def test_a_leaf_that_was_given_history() -> None:
    base = engine.zeros(3)
    view = base[1:].requires_grad_()
    total = (view * 2).sum()
    base.copy_(leaf(3))
    with pytest.raises(RuntimeError, match=r"^leaf variable has been moved into the graph interior$"):
        total.backward()


PARTS = [(slice(0, 2), slice(1, 3)), (slice(0, 3), slice(1, 2)), (slice(0, 3), 0)]


@pytest.mark.parametrize("to, of", PARTS)
def test_copies_between_overlapping_parts_are_refused(to: slice, of: slice | int) -> None:
    for recorded in (False, True):
        base = engine.arange(4.0, requires_grad=recorded) * 1
        with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to tensor refer to"):
            base[to].copy_(base[of])
        assert base.tolist() == [0, 1, 2, 3] and base._version == 0


def test_copies_of_one_memory_that_torch_computes() -> None:
    base = engine.arange(4.0)
    base[:2].copy_(base[2:])
    base[::2].copy_(base[:2])  # not dense
    base[1:].copy_(base[1:])
    assert base.tolist() == [2, 3, 3, 3]
    wide = engine.zeros(2, 1).expand(2, 2)
    wide.copy_(wide)
    assert wide._version == 1
    with pytest.raises(RuntimeError, match="some elements of the input tensor"):
        base[0:2] = base[1:3]
    base[0:2] = base[2:4]
    assert base.tolist() == [3, 3, 3, 3]


def test_the_last_dim_that_does_not_broadcast_is_named() -> None:
    said = r"The size of tensor a \(3\) must match the size of tensor b \(2\) at non-singleton dimension 1"
    a, b = engine.ones(2, 3), engine.ones(3, 2)
    for call in (lambda: a + b, lambda: a.add_(b), lambda: a.copy_(b), lambda: engine.where(a > 0, b, b)):
        with pytest.raises(RuntimeError, match=said):
            call()


def test_the_node_of_reshape() -> None:
    y = leaf(4, 4) * 1
    names = [
        t.grad_fn.name() for t in (y[:, :2].reshape(2, 2, 2), y[:, 1:2].flatten(), y.reshape(16), y.t().reshape(16))
    ]
    assert names == ["ReshapeAliasBackward0", "ReshapeAliasBackward0", "ViewBackward0", "UnsafeViewBackward0"]
    assert y[0, 0].movedim(0, -1).grad_fn.name() == "AliasBackward0"


@pytest.mark.parametrize(
    "write, expected",
    [(lambda y: y.mul_(3), [5, 5]), (lambda y: y[:1].mul_(3), [5, 5]), (lambda y: y.copy_(y), [5, 5])],
)
def test_a_retained_gradient_is_that_of_the_tensor_as_it_is(write: Callable, expected: list[int]) -> None:
    y = leaf(2) * 1
    y.retain_grad()
    write(y)
    assert y.retains_grad
    (y * 5).sum().backward()
    assert y.grad.tolist() == expected


def test_a_retained_gradient_of_a_view() -> None:
    base = leaf(2) * 1
    view = base[:1]
    view.retain_grad()
    base.mul_(3)
    assert view.retains_grad
    (view * 5).sum().backward()
    assert view.grad.tolist() == [5]


@pytest.mark.parametrize("index", [..., slice(None), slice(0, 5), (), (slice(None), ...), (slice(None), slice(0, 2))])
def test_an_assignment_to_all_of_a_tensor_takes_no_view(index: Any) -> None:
    for value, name in ((2, "FillBackward3"), (leaf(1), "torch::autograd::CopyBackwards")):
        y = leaf(2, 2) * 1
        y[index] = value
        assert y.grad_fn.name() == name
        with pytest.raises(RuntimeError, match=LEAF):
            leaf(2, 2)[index] = value
    for part in (slice(0, 1), None, slice(-2, None)):
        y = leaf(2, 2) * 1
        y[part] = 2
        assert y.grad_fn.name() == "torch::autograd::CopySlices"


def test_the_form_of_a_node_in_messages() -> None:
    x = leaf(2, 2).sum(0)
    total = (x * leaf(2)).sum()
    with engine.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="which is output 0 of Sum1, is at version 1"):
        total.backward()


def test_views_of_a_number() -> None:
    y = leaf(1)[0]
    with pytest.warns(UserWarning, match=r"Tensor.mT is deprecated on 0-D tensors. This function is the identity"):
        assert y.mT is y
    with pytest.warns(UserWarning, match=r"^adjoint\(\) is deprecated on 0-D tensors. Consider using x.conj"):
        assert y.adjoint() is y
    with pytest.raises(RuntimeError, match="unflatten got an unexpected error:\nDimension specified as 0 but tensor"):
        y.unflatten(0, (1, 1))
    with pytest.raises(IndexError, match="too many indices for tensor of dimension 0"):
        y[..., 0]
    with pytest.raises(IndexError, match="invalid index of a 0-dim tensor"):
        y[0] = 1


def test_the_pieces_of_a_gradient_of_stack_are_views_of_their_own() -> None:
    a, b, seed = leaf(2), leaf(2), leaf(2, 2)
    first = autograd.grad(engine.stack([a, b]), [a, b], seed, create_graph=True)
    assert [g.grad_fn.name() for g in first] == ["SelectBackward0"] * 2
