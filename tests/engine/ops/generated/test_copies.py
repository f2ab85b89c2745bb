"""Repeated elements by generated kernels: against the ops' own code, and what they leave to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import engine
from engine.backends.cpu import relayout, threads
from engine.dispatch import OPS
from engine.kernels import processor
from engine.ops.generated import copies, route, transposes
from tests.engine.ops.generated.test_layers import agree, arrays
from tests.engine.ops.generated.test_lines import left

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.usefixtures("launched"),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8", "bool", "float16"])
@pytest.mark.parametrize("shape,repeats", [
    ((2, 3), (2, 1)), ((2, 3), (1, 4)), ((2, 3), (2, 3, 4)), ((5,), (4, 2)), ((), (2,)), ((3, 4, 5), (2, 1, 3)),
    ((2, 1, 3, 1, 2), (1, 2, 2, 3, 1)), ((7, 70), (1, 1)),
])  # fmt: skip
def test_repeated(shape: tuple[int, ...], repeats: tuple[int, ...], dtype: str) -> None:
    (x,) = arrays(shape)
    x = np.asarray(x * 5).astype(dtype)
    agree("repeat", x, repeats)
    for d in range(x.ndim):
        agree("repeat_each", x, 3, d)


def test_repeated_views() -> None:
    (x,) = arrays((6, 4, 8))
    for view in (x[::2], x[:, :, ::-1], x[:, 1:3], x[::-1, :, ::2]):
        agree("repeat", view, (2, 1, 3))
        agree("repeat_each", view, 2, 1)


def test_what_is_left_of_repeated() -> None:
    (x,) = arrays((4, 40, 30))
    for given in (x.transpose(2, 1, 0), x.astype("complex128"), x[:0]):
        assert left("repeat", given, (1, 2, 1))
        assert left("repeat_each", given, 2, 0)
    assert left("repeat", x, (0, 1, 1)) and left("repeat_each", x, 0, 1)


@pytest.mark.parametrize("n", [2, 3, 8])
@pytest.mark.parametrize("mean", [False, True])
def test_sums_of_few_rows(n: int, mean: bool) -> None:
    (x,) = arrays((3, n, 70))
    agree("mean" if mean else "sum", x, 1)


def test_repeating_each_takes_the_dim_of_a_slice() -> None:
    made: Any = OPS["repeat_each"].kernel(np, np.arange(6).reshape(2, 3), 2, 1)
    assert made.tolist() == [[[0, 0], [1, 1], [2, 2]], [[3, 3], [4, 4], [5, 5]]]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "bool", "complex64"])
def test_joined(dtype: str) -> None:
    """Arrays and views, of one shape by one launch."""
    x, y, z = ((a * 3).astype(dtype) for a in arrays((2, 3, 4), (2, 1, 4), (2, 5, 4)))
    for given, dim in (([x, y, z], 1), ([x, x], -1), ([y] * 11, 0), ([z[:, ::-1], x[:, :, ::2].repeat(2, 2)], 1)):
        agree("cat", given, dim)
        agree("cat", [a.transpose(2, 0, 1) for a in given], (dim + 1) % 3)
    wide = np.arange(2 * 3 * 200).reshape(2, 3, 200).astype(dtype)
    agree("cat", [wide[..., :90], wide[..., 90:180], wide[:, ::2, :7].repeat(2, 1)[:, :3]], -1)
    agree("cat", [wide[..., :90], np.broadcast_to(wide[:, :1, :90], (2, 3, 90))], 1)
    for dim in (0, 1, 2, 3, -1):
        agree("stack_tensors", [x, x[::-1], x[:, :, ::-1]], dim)
        agree("stack_tensors", [wide[..., 1::2], wide[..., ::2]], dim)
    agree("stack_tensors", [x[0, 0, 0].reshape(())] * 3, 0)


def test_what_is_left_of_joined() -> None:
    x, z = (a.astype("f4") for a in arrays((2, 3, 4), (2, 5, 4)))
    image = np.zeros((2, 3, 5, 6), "f4").transpose(0, 3, 1, 2)  # channels-last: so is the result
    for given in (
        [x, x[:, :0]],
        [x, z.transpose(0, 2, 1)],
        [x, np.zeros((2, 1, 5), "f4")],
        [x, x.astype("f8")],
        [image] * 2,
    ):
        assert left("cat", given, 1)
    for given in ([x, z], [x[:0]] * 2, [x.astype("c16")] * 2):
        assert left("stack_tensors", given, 1)


def test_large_arrays_are_joined_by_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relayout.threads, "get_num_threads", lambda: 2)
    x = np.arange(4 * 60 * 700, dtype="f4").reshape(4, 60, 700)
    for given, dim in (([x, x + 1], 0), ([x[:, ::-1], x[:, ::2].repeat(2, 1)], 2), ([x.transpose(2, 0, 1)] * 3, 1)):
        for _ in range(2):
            made = relayout.joined(given, dim)
            assert made.flags.c_contiguous and np.array_equal(made, np.concatenate(given, dim))
    a, b = engine.tensor(x), engine.tensor(x[:, 1:])
    assert np.array_equal(engine.stack([a, a], -1).numpy(), np.stack([x, x], -1))
    assert np.array_equal(engine.cat([a, b], 1).numpy(), np.concatenate([x, x[:, 1:]], 1))
    spread = np.broadcast_to(x[..., :1], (4, 60, 9))
    for given, dim in (
        ([x, x[:, 1:]], 1),
        ([x[..., :3], x[..., 1:]], 2),
        ([spread, x], 2),
        ([x[:1], x, x[:2].copy()], 0),
    ):
        for _ in range(2):
            made = relayout.joined(given, dim)
            assert made.flags.c_contiguous and np.array_equal(made, np.concatenate(given, dim))
    for given in ([x, x[:, 1:, 1:]], [x, x.astype("f8")], [x.astype("c16")] * 2, [x[:1, :1]] * 2):
        assert relayout.joined(given, 1) is NotImplemented


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "bool", "complex64"])
def test_parts_of_large_arrays_are_written_by_all_threads(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relayout.threads, "get_num_threads", lambda: 2)
    monkeypatch.setattr(relayout, "_TAKEN", 1 << 12)
    (values,) = arrays((300, 400))
    target, source = np.zeros((300, 400), dtype), (values * 9).astype(dtype)
    all_ = slice(None)
    parts = [
        ((all_, slice(3, None)), (all_, slice(3, None))),
        ((slice(None, None, 2),), (slice(1, None, 2),)),
        ((all_, slice(None, None, 2)), (all_, slice(200))),
        ((all_, slice(1, None)), (slice(1), slice(1, None))),  # a row, a column and a number for all
        ((all_, slice(1, None)), (all_, slice(1))),
        ((all_, slice(1, None)), (slice(1), slice(1))),
        ((all_, slice(None, None, -1)), (all_, all_)),
    ]
    for place, of in parts:
        for part in (source[of], source[::-1][of]):
            want = target.copy()
            want[place] = part
            relayout.write(target[place], part)
            assert np.array_equal(target, want)
    before = target.copy()
    relayout.write(target[1:, 1:], target[:-1, :-1])  # memory that both share
    assert np.array_equal(target[1:, 1:], before[:-1, :-1])


def test_views_are_joined_by_a_direct_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    made, seen = [], copies.launch.launched
    monkeypatch.setattr(copies.launch, "launched", lambda *args: (made.append(len(args[1])), seen(*args)))
    (x,) = arrays((64, 64))
    variant = OPS["cat"].kernels["direct"]
    assert variant(np, [x[:, :32], x[:, 32:]], 1).tolist() == x.tolist()
    assert made == [3]  # two parts and the result, at once


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8"])
@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_rows_of_a_table(dtype: str, kind: str) -> None:
    (table,) = arrays((9, 5))
    for index in (np.array([[0, 8, 3], [3, 1, 1]], kind), np.array(4, kind), np.array([[7]], kind)):
        agree("embedding", (table * 9).astype(dtype), index)


def test_indices_outside_of_a_table_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    (table,) = arrays((9, 5))
    variant = OPS["embedding"].kernels["cpu"]
    for bad in ([0, 9], [-1, 2], [1 << 40, 0]):
        with pytest.raises(copies.launch.Unfit):
            variant(np, table, np.array(bad))
    for given in ((table.T, np.array([1])), (table, np.array([], "int64")), (table, np.arange(6)[::2])):
        assert variant(np, *given) is NotImplemented
    weight, index = engine.ones(9, 5), engine.zeros(2, dtype=engine.int64)
    for _ in range(600):
        engine.nn.functional.embedding(index, weight)
    index[1] = 9
    with pytest.raises(IndexError, match="index out of range in self"):
        engine.nn.functional.embedding(index, weight)


VIEWS = [
    lambda x: x.transpose(0, 2, 1, 3),
    lambda x: x[:, ::-1],
    lambda x: x[..., ::2],
    lambda x: x[:, :, :, 1:4],
    lambda x: np.lib.stride_tricks.sliding_window_view(x.reshape(-1), 16)[::8],
    lambda x: np.broadcast_to(x[:, :, None], (*x.shape[:2], 3, *x.shape[2:])),
    lambda x: x[::2, :, 1:, :5],
    lambda x: x[:1, :, :, :16].transpose(0, 2, 3, 1),  # few neighbours far apart, beside near ones
    lambda x: x.transpose(0, 2, 3, 1)[:, :, ::2],
    lambda x: x.reshape(1, 15, 2, 2, 14, 40).transpose(0, 1, 4, 2, 5, 3),
    lambda x: x[0, :7].reshape(7, -1)[:, :553].T,
    lambda x: x.reshape(60, -1)[:, 1::2],  # every second and so on of long lines
    lambda x: x.reshape(60, -1)[::3, 2:452:3],
    lambda x: x.reshape(2, 6, 20, -1)[:, ::2, 1:, ::4],
    lambda x: x.reshape(6, 20, -1)[:, ::2, :277:2],
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "uint8"])
@pytest.mark.parametrize("view", VIEWS)
def test_copies_of_views(view: Any, dtype: str) -> None:
    (x,) = arrays((6, 10, 14, 40))
    x = (x * 9).astype(dtype)
    for _ in range(2):
        made = copies.contiguous(view(x))
        assert made.flags.c_contiguous and made.dtype == x.dtype
        np.testing.assert_array_equal(made, view(x))
    np.testing.assert_array_equal(relayout.contiguous(view(x)), view(x))


@pytest.mark.parametrize("shape", [(1, 3, 40, 40), (4, 4, 18, 18), (2, 16, 12, 12), (2, 17, 12, 12), (1, 5, 41, 1)])
def test_copies_of_few_neighbours_far_apart(shape: tuple[int, ...]) -> None:
    (x,) = arrays(shape)
    np.testing.assert_array_equal(relayout.contiguous(x.transpose(0, 2, 3, 1)), x.transpose(0, 2, 3, 1))


TRANSPOSED = [
    lambda x: x[:32, :48].T,
    lambda x: x[:50, :37].T,  # neither is a multiple of a vector
    lambda x: x[1:90:3, 5:40].T,
    lambda x: x[:90].reshape(3, 30, 70).transpose(0, 2, 1),
    lambda x: x[:96].reshape(2, 2, 24, 70)[:, 1].transpose(0, 2, 1),
    lambda x: x[:96].reshape(2, 48, 7, 10).transpose(0, 2, 3, 1),
    lambda x: np.broadcast_to(x[:40].T, (3, 70, 40)),
]


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("view", TRANSPOSED)
def test_transposed_matrices(view: Any, members: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bits are copied as they are, in squares and beside them; members: threads, which share many."""
    monkeypatch.setattr(threads, "get_num_threads", lambda: members)
    monkeypatch.setattr(route, "SHARE", 1000)
    (x,) = arrays((100, 70))
    x = np.ascontiguousarray((x * 9).astype(dtype))
    x.view("uint32")[0, :3] = 0x7F800001, 0x80000000, 0xFFC00123  # nan that signals, -0.0
    wanted = view(x)
    made = copies.contiguous(wanted)
    assert made.flags.c_contiguous and made.dtype == x.dtype
    np.testing.assert_array_equal(made.view("uint32"), wanted.copy().view("uint32"))
    target = np.empty(wanted.shape, dtype)
    if transposes.transposed(target, wanted):
        np.testing.assert_array_equal(target.view("uint32"), made.view("uint32"))


def test_transposed_matrices_that_are_left() -> None:
    (x,) = arrays((40, 30))
    x = x.astype("float32")
    target = np.empty((30, 40), "float32")
    for view in (x.T, x[::-1].T):  # rows in the other order, too
        assert copies.contiguous(view) is not NotImplemented and transposes.transposed(target, view)
        np.testing.assert_array_equal(target, view)
    assert not transposes.transposed(target.astype("float64"), x.T.astype("float64"))
    assert not transposes.transposed(target[:3], x.T[:3]), "fewer than a vector has lanes"


def test_gradients_that_repeat_a_row_are_copied() -> None:
    x = engine.ones(48, 8000, requires_grad=True)
    x.sum(0).backward(engine.arange(8000.0))
    assert x.grad is not None and x.grad.is_contiguous() and x.grad.stride() == (8000, 1)
    assert bool((x.grad == engine.arange(8000.0)).all())


def test_copies_that_are_left() -> None:
    (x,) = arrays((60, 50, 40))
    assert copies.contiguous(x.astype("float64").transpose(2, 1, 0)) is NotImplemented, "lines far apart"
    assert copies.contiguous(x.astype("complex128")[:, ::2]) is NotImplemented
    odd = np.frombuffer(np.zeros(4 * 1000 + 1, "uint8").data, "uint8")[1:].view("float32")
    records = np.zeros(500, [("a", "u1"), ("b", "<f4")])["b"]  # floats 5 bytes apart
    assert copies.contiguous(records) is NotImplemented
    np.testing.assert_array_equal(copies.contiguous(odd.reshape(10, 100)[:, ::2]), np.zeros((10, 50)))


def test_large_windows_are_copied_by_lines_without_generated_code() -> None:
    x = np.arange(1 << 17, dtype="float32")
    windows = np.lib.stride_tricks.sliding_window_view(x, 16)[::1]
    np.testing.assert_array_equal(relayout.plainly(windows), windows.copy())


PLACES: list[tuple[tuple[int, ...], tuple[Any, ...]]] = [
    ((6, 10, 14, 40), (..., slice(None, None, 2))),
    ((6, 10, 14, 40), (slice(None), slice(5, None))),
    ((6, 10, 14, 40), (slice(None), slice(1, -1), slice(None, None, 3), slice(3, 37))),
    ((40, 10, 14, 40), (3, ..., slice(7, 8))),
    ((40, 10, 14, 40), (slice(1, None, 2), slice(None), -1)),
    ((50000,), (slice(None, None, 2),)),
    ((50000,), (slice(25000, None),)),
    ((2, 50000), (slice(None), slice(1, None))),
    ((30011, 1, 2), (slice(2, None, 5), 0)),
    ((30, 960), (..., slice(1, None, 3))),
    ((30, 960), (slice(1, 20, 2), slice(3, None, 4))),
    ((30, 961), (3, slice(0, None, 2))),
    ((30, 960), (slice(None), slice(2, None, 2))),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "uint8"])
@pytest.mark.parametrize("shape,index", PLACES)
def test_gradients_of_slices(shape: tuple[int, ...], index: tuple[Any, ...], dtype: str) -> None:
    want = np.zeros(shape, dtype)
    (grad,) = arrays(want[index].shape)
    grad = (grad * 9).astype(dtype)
    want[index] = grad
    for _ in range(2):
        made = copies.placed(grad, shape, index, want.copy)
        assert made is not NotImplemented and made.dtype == want.dtype and np.array_equal(made, want)


def test_gradients_of_slices_that_are_left() -> None:
    (grad,) = arrays((4, 40, 30))
    for given, shape, index in (
        (grad, (4, 40, 30), (slice(None), slice(None, None, -1))),
        (grad.transpose(0, 2, 1), (4, 30, 41), (..., slice(1, None))),
        (grad[:, :0], (4, 40, 30), (slice(None), slice(0, 0))),
        (grad[None], (4, 40, 30), (None,)),
    ):
        assert copies.placed(given, shape, index, lambda: None) is NotImplemented


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "uint8"])
@pytest.mark.parametrize("shape,axis,size", [((50, 384), 0, (8, 64)), ((7, 30, 100), 1, (70,)), ((3, 0, 64), 0, (5,))])
def test_entries_at_an_index(
    shape: tuple[int, ...], axis: int, size: tuple[int, ...], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relayout.threads, "get_num_threads", lambda: 2)
    x, index = (np.random.rand(*shape) * 99).astype(dtype), np.random.randint(0, shape[axis], size)
    if x.size:
        made = copies.taken(x, index, axis)
        assert made.dtype == x.dtype and np.array_equal(made, x.take(index, axis=axis))
    np.testing.assert_array_equal(relayout.taken(x, index, axis), x.take(index, axis=axis))


def test_entries_at_an_index_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    (x,) = arrays((40, 40, 64))
    index = np.arange(40)
    for given, at, axis in (
        (x.transpose(2, 1, 0), index, 0),
        (x, index.astype("int32"), 0),
        (x, index[::2], 0),
        (x, index, 2),
        (x.astype("complex128"), index, 0),
    ):
        assert copies.taken(given, at, axis) is NotImplemented
    monkeypatch.setattr(relayout.providers, "taken", lambda *args: pytest.fail("numpy's loop is as fast in one thread"))
    monkeypatch.setattr(relayout.threads, "get_num_threads", lambda: 1)
    relayout.taken(np.zeros((400, 4000)), np.arange(400), 0)


@pytest.mark.parametrize("last", [49, -1, 50, -51])
def test_large_rows_by_an_index_that_may_be_negative_or_out_of_range(last: int) -> None:
    x = engine.randn(50, 4000)
    index = engine.tensor([*range(40), last])
    if last in (49, -1):
        assert np.array_equal(x[index].numpy(), x.numpy()[index.numpy()])
    else:
        with pytest.raises(IndexError, match=f"index {last} is out of bounds for dimension 0 with size 50"):
            x[index]
    if last == 49:
        assert bool((engine.nn.functional.embedding(index, x) == x[index]).all())
        assert bool((x.index_select(0, index) == x[index]).all())
    else:
        with pytest.raises(IndexError, match="index out of range in self"):
            engine.nn.functional.embedding(index, x)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape,index", PLACES)
def test_gradients_of_slices_are_added_in_place(shape: tuple[int, ...], index: tuple[Any, ...], dtype: str) -> None:
    (want,) = arrays(shape, dtype=dtype)
    (grad,) = arrays(want[index].shape, dtype=dtype)
    made = want.copy()
    want[index] += grad
    assert copies.added(made, grad, index) and np.array_equal(made, want)


def test_additions_that_are_left() -> None:
    grad, array = arrays((4, 40, 30), (4, 40, 30))
    for given, to, index in (
        (grad, array, (slice(None), slice(None, None, -1))),
        (grad.transpose(0, 2, 1), array.transpose(0, 2, 1).copy(), (...,)),
        (grad[None], array, (None,)),
        (grad.astype("float16"), array.astype("float16"), (...,)),
        (grad[0], array, (True, 0)),
    ):
        assert not copies.added(to, given, index)


@pytest.mark.parametrize("view", VIEWS)
def test_copies_of_few_elements_are_direct_launches(view: Any) -> None:
    x = view(np.arange(6 * 10 * 14 * 40, dtype="f4").reshape(6, 10, 14, 40))
    served = copies._planned(x.shape, x.strides, 4) is not None
    clone, reshape = (OPS[name].kernels["direct"] for name in ("clone", "reshape_copy"))
    made = (
        clone(np, x, memory_format=engine.contiguous_format),
        reshape(np, x, (x.size // 2, 2) if x.size % 2 == 0 else (x.size,)),
    )
    for found in made:
        assert (found is not NotImplemented) is served
        assert not served or (found.flags.c_contiguous and np.array_equal(found.reshape(x.shape), x))
    assert clone(np, x) is NotImplemented or x.flags.c_contiguous  # such a copy has the order of the view
    whole = np.arange(6.0).reshape(2, 3)
    assert np.array_equal(clone(np, whole), whole) and not np.shares_memory(clone(np, whole), whole)


def test_the_work_of_a_copy_is_that_of_its_lines() -> None:
    """A line that is written out is one step of a loop, whose operations are those of all its elements."""
    x = np.zeros((2, 8, 4096), "f4")
    frames = np.lib.stride_tricks.sliding_window_view(x, 16, -1)[:, :, ::8]
    plan = copies._planned(frames.shape, frames.strides, 4)
    assert plan is not None and plan.rows * plan.each * 16 == frames.size


def test_complex_numbers_of_two_parts() -> None:
    real, imag = (np.arange(n, n + 3003, dtype="float32").reshape(3, 1001) for n in (5, -700))
    imag[1, 1], real[2, 2] = -0.0, np.nan
    made = copies.paired(np, real, imag)
    assert made.dtype == np.complex64
    np.testing.assert_array_equal(made.view("uint32").reshape(3, 1001, 2), np.stack([real, imag], -1).view("uint32"))
    for wrong in (imag.astype("float64"), imag[:, :1], imag[:, ::-1], np.float32(3)):
        assert copies.paired(np, real, wrong) is NotImplemented


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "bool", "complex64", "int64"])
def test_arrays_are_filled_with_one_number(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relayout, "_FILLED", 0)
    for shape in ((5000,), (30, 70), ()):
        target = np.zeros(shape, dtype)
        for value in (1, 0, True):
            assert copies.filled(target, np.asarray(value, dtype)) and (target == value).all()
        relayout.fill(target, 1)
        assert (target == 1).all()
    every = np.zeros((30, 70), dtype)
    relayout.fill(every[:, ::2], 1)
    assert (every[:, ::2] == 1).all() and not every[:, 1::2].any()
    assert not copies.filled(np.zeros(9, "c16"), np.asarray(1, "c16"))
    assert engine.full((300, 500), 2.5).numpy().tolist() == np.full((300, 500), 2.5, "float32").tolist()
