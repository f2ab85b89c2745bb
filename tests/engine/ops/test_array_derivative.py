"""Note [Gradients over arrays]: where a node works on arrays it gives what its Tensor formulas give, or stands back."""

from typing import Any

import numpy as np
import pytest

import engine
import engine.ops.lazy  # every op
from engine.autograd.graph import AccumulateGrad, accumulate_arrays
from engine.dispatch import OPS
from engine.dispatch.runtime import SMALL
from tests.engine.samples import Case, cases, tensors_of

OF_ARRAYS = [c for c in cases() if c.op is not None and c.op.array_formulas is not None]


def node_and_gradient(case: Case, dtype: str) -> tuple[Any, Any]:
    """The node of the op at a sample in some dtype, and a gradient of its result; None where it has none."""
    args, kwargs = case.arguments()
    for t in tensors_of([args, kwargs]):
        if t.is_floating_point() and dtype == "float32":
            t.data = t.data.float()
    result = case.function(*args, **kwargs)
    gradient = np.random.default_rng(3).standard_normal(result.shape).astype(dtype)
    return result.grad_fn, np.asarray(gradient)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", OF_ARRAYS, ids=str)
def test_arrays_and_tensors_agree(case: Case, dtype: str) -> None:
    node, gradient = node_and_gradient(case, dtype)
    if node is None or node.next_edges == ():
        return
    needs = [e is not None for e in node.next_edges]
    with engine.no_grad():
        found = node.arrays([gradient.copy()], needs)
        if found is None:  # mixed or complex dtypes: the Tensors' formulas serve
            return
        expected = node.apply([engine.from_numpy(gradient.copy())], needs)
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            assert type(mine) is np.ndarray and mine.dtype == theirs.numpy().dtype and mine.shape == theirs.shape
            np.testing.assert_allclose(mine, theirs.numpy(), *((1e-6, 1e-6) if dtype == "float32" else (1e-13, 1e-13)))


def test_every_such_op_takes_the_short_way_at_some_sample() -> None:
    served = set()
    for case in OF_ARRAYS:
        node, gradient = node_and_gradient(case, "float64")
        if node is not None and node.arrays([gradient], [e is not None for e in node.next_edges]) is not None:
            served.add(case.name)
    assert served == {n for n, record in OPS.items() if record.array_formulas is not None}


def leaf(*shape: int, dtype: Any = None) -> Any:
    return engine.ones(*shape, dtype=dtype).requires_grad_()


def test_it_stands_back_from_other_dtypes_sizes_and_numbers() -> None:
    single, double = leaf(3), leaf(3, dtype=engine.float64)
    assert (single * double).grad_fn.arrays([np.ones(3)], [True, True]) is None
    assert (leaf(3) * 2j).grad_fn.arrays([np.ones(3, np.complex64)], [True, False]) is None
    big = leaf(SMALL + 1)
    assert (big * big).grad_fn.arrays([np.ones(SMALL + 1, np.float32)], [True, True]) is None
    large = np.ones(1 << 16, np.float32)
    for made in (leaf(1 << 16) * engine.ones(1), engine.ones(1) - leaf(1 << 16), leaf(1 << 16).exp()):
        needs = [function is not None for function, _ in made.grad_fn.next_functions]
        assert made.grad_fn.arrays([large], needs) is None, "threads share it"
    (shown,) = leaf(SMALL + 1).sum().grad_fn.arrays([np.ones((), np.float32)], [True])
    assert shown.shape == (SMALL + 1,) and shown.strides == (0,), "moved, whatever the size"
    half = leaf(3, dtype=engine.float16)
    assert (half * half).grad_fn.arrays([np.ones(3, np.float16)], [True, True]) is None
    node = leaf(2).exp().grad_fn
    assert node.arrays([np.ones(2, np.float32)], [True]) is not None
    node.release()
    with pytest.raises(RuntimeError, match="a second time"):
        node.arrays([np.ones(2, np.float32)], [True])


def test_a_write_is_noticed() -> None:
    x = leaf(3)
    y = x * 1
    z = y * y
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_the_gradient_has_memory_of_its_own() -> None:
    """An array that reaches two leaves, or that the caller holds, is copied; one that nothing else holds is taken."""
    a, b, given = leaf(3), leaf(3), engine.ones(3)
    (a + b).backward(given)
    a.grad.add_(1)
    assert b.grad.tolist() == given.tolist() == [1, 1, 1] and a.grad.tolist() == [2, 2, 2]
    c = leaf(2, 3)
    (c * 2).t().sum().backward()
    assert c.grad.is_contiguous() and c.grad.tolist() == [[2] * 3] * 2
    node = (c * 1).grad_fn.next_edges[0][0]
    assert type(node) is AccumulateGrad and not accumulate_arrays(node, [engine.ones(2, 3)])


def test_hooks_see_tensors() -> None:
    seen = []
    x = leaf(3)
    x.register_hook(seen.append)
    y = x * 3
    y.register_hook(seen.append)
    z = y.exp()
    z.grad_fn.register_hook(lambda inside, outside: seen.extend([*inside, *outside]))
    z.sum().backward()
    assert len(seen) == 4 and all(type(s) is engine.Tensor for s in seen)
    later = []
    w = leaf(3)
    w.register_post_accumulate_grad_hook(lambda p: later.append(p.grad.tolist()))
    (w * 2).sum().backward()
    assert later == [[2, 2, 2]]


def test_warnings_made_errors_do_not_reach_the_user() -> None:
    import warnings

    x = engine.tensor([0.0, 1.0], requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x.log().sum().backward()
    assert x.grad.tolist() == [float("inf"), 1]
