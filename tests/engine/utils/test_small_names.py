"""Names beside the ones that have a page: contexts that decorate, lists by dtype, batons, reports."""

from __future__ import annotations

import os

import pytest

import engine
from engine import autograd
from engine.autograd.grad_mode import set_multithreading_enabled
from engine.utils import _contextlib, _foreach_utils, _python_dispatch, collect_env, file_baton


class Counts(_contextlib._DecoratorContextManager):
    depth = most = 0

    def __enter__(self) -> None:
        Counts.depth += 1
        Counts.most = max(Counts.most, Counts.depth)

    def __exit__(self, *exc: object) -> None:
        Counts.depth -= 1


def test_contexts_decorate() -> None:
    @Counts()
    def twice(n: int) -> int:
        return 1 + (twice(n - 1) if n else 0)

    @Counts()
    def steps():
        yield Counts.depth
        yield Counts.depth

    assert twice(2) == 3 and (Counts.depth, Counts.most) == (0, 3)
    seen = []
    for depth in steps():
        seen.append((depth, Counts.depth))
    assert seen == [(1, 0), (1, 0)]
    assert _contextlib.context_decorator(Counts, lambda: Counts.depth)() == 1
    with set_multithreading_enabled(False):
        pass

    class Plain(_contextlib._NoParamDecoratorContextManager, Counts):
        pass

    @Plain
    def once() -> int:
        return Counts.depth

    assert once() == 1 and Counts.depth == 0


def test_lists_by_device_and_dtype() -> None:
    a, b = engine.zeros(2), engine.zeros(2, dtype=engine.float64)
    made = engine.optim.Optimizer._group_tensors_by_device_and_dtype([[a, b, a], [b, None, a], []], with_indices=True)
    assert made == {
        (a.device, engine.float32): ([[a, a], [b, a], []], [0, 2]),
        (a.device, engine.float64): ([[b], [None], []], [1]),
    }
    assert _foreach_utils._has_foreach_support([a, None], a.device)


def test_one_process_has_the_baton(tmp_path) -> None:
    path = os.fspath(tmp_path / "lock")
    first, second = file_baton.FileBaton(path), file_baton.FileBaton(path, 0.001, warn_after_seconds=0.0)
    assert first.try_acquire() and not second.try_acquire()
    looks = iter([True, True, False])
    with pytest.MonkeyPatch.context() as patch, pytest.warns(UserWarning, match="remove it if its process is dead"):
        patch.setattr(file_baton.os.path, "exists", lambda _: next(looks))
        second.wait()
    first.release()
    second.wait()
    assert not os.path.exists(path) and second.try_acquire()
    second.release()


def test_a_baton_that_is_not_held_is_not_given_back(tmp_path) -> None:
    path = tmp_path / "lock"
    path.write_text("another's")
    file_baton.FileBaton(str(path)).release()
    assert path.read_text() == "another's"


def test_a_report_of_this_machine() -> None:
    text = collect_env.get_pretty_env_info()
    assert f"PyTorch version: {engine.__version__}" in text and "[pip3] numpy==" in text
    assert collect_env.run("exit 3")[0] == 3 and collect_env.run(["echo", "x"]) == (0, "x", "")


def test_modes_below_autograd_say_what_to_use() -> None:
    class Mode(_python_dispatch.TorchDispatchMode):
        pass

    with pytest.raises(NotImplementedError, match="TorchFunctionMode sees the same calls"), Mode():
        pass


def test_callbacks_at_the_end_of_a_pass() -> None:
    queue = autograd.Variable._execution_engine.queue_callback
    seen: list = []
    x = engine.ones(2, requires_grad=True)
    y = engine.ones(2, requires_grad=True)
    x.register_hook(lambda _: queue(lambda: seen.append((x.grad is not None, y.grad is not None))))
    (x * y).sum().backward()
    assert seen == [(True, True)]
    with pytest.raises(RuntimeError, match="Final callbacks can only be installed during backward pass"):
        queue(print)


def test_storages_of_bytes() -> None:
    assert engine.ByteStorage.from_buffer(b"abc").tolist() == [97, 98, 99]
    made = engine.ShortStorage.from_buffer(b"\x00\x01\x00\x02", "big")
    assert made.dtype is engine.int16 and made.tolist() == [1, 2]
    assert engine.ShortStorage.from_buffer(b"xx\x01\x00", "little", offset=2, count=1).tolist() == [1]
    with pytest.raises(ValueError, match="no whole number"):
        engine.FloatStorage.from_buffer(b"abcde", "native")
    with pytest.raises(ValueError, match="byte_order"):
        engine.FloatStorage.from_buffer(b"abcd")


def test_sparse_types_by_their_old_names() -> None:
    made = engine.sparse.FloatTensor(engine.tensor([[0, 1], [1, 0]]), engine.tensor([1.0, 2.0]), engine.Size([2, 2]))
    assert made.to_dense().tolist() == [[0, 1], [2, 0]] and isinstance(made, engine.sparse.FloatTensor)
    assert not isinstance(made, engine.sparse.DoubleTensor) and not isinstance(
        engine.ones(2), engine.sparse.FloatTensor
    )
    assert engine.sparse.DoubleTensor(2, 3).shape == (2, 3)
    assert engine.sparse.DoubleTensor(engine.tensor([[0]]), engine.tensor([1.0])).dtype is engine.float32
    with pytest.raises(RuntimeError, match="device type: cpu but device type: cuda"):
        engine.sparse.DoubleTensor(device="cuda")
