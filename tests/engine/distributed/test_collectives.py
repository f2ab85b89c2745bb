"""Every collective call and message, on shared memory and under mpirun, against what they must give."""

from __future__ import annotations

from pathlib import Path

import pytest

import engine
import engine.distributed as dist

from .jobs import TRANSPORTS, WITH_MPI, job, well

CALLS = """
    def values(n, dtype, scale=1):
        return (engine.arange(n) % 7 * scale).to(dtype)
    total = size * (size + 1) // 2
    for dtype in (engine.float32, engine.float64, engine.int64, engine.uint8, engine.bfloat16, engine.float16,
                  engine.complex64):
        for n in (1, 5, 3000, 70001):
            t = values(n, dtype, rank + 1)
            dist.all_reduce(t)
            assert bool((t == values(n, dtype, total)).all()), (dtype, n)
    flags = engine.tensor([rank == 0, False, True]); dist.all_reduce(flags)
    assert flags.tolist() == [True, False, True]
    R = dist.ReduceOp
    for op, want in ((R.PRODUCT, np.prod(np.arange(1, size + 1))), (R.MIN, 1), (R.MAX, size), (R.AVG, (size + 1) / 2)):
        t = engine.full((3, 2), rank + 1.0); dist.all_reduce(t, op); assert t.tolist() == [[float(want)] * 2] * 3, op
    t = engine.tensor([1 << rank]); dist.all_reduce(t, R.BOR); assert t.item() == (1 << size) - 1
    t = engine.tensor([7 ^ (1 << rank)]); dist.all_reduce(t, R.BAND); assert t.item() == 7 & ~((1 << size) - 1)
    t = engine.full((40000,), rank + 1.0); dist.reduce(t, size - 1)
    assert t[0].item() == (total if rank == size - 1 else rank + 1)
    view = engine.zeros(4, 6).t()[1:]  # not contiguous
    view.fill_(rank + 1); version = view._version
    dist.all_reduce(view); assert bool((view == total).all()) and view._version > version
    t = engine.full((2, 3), float(rank)); dist.broadcast(t, src=size - 1); assert bool((t == size - 1).all())
    got = [engine.zeros(3, dtype=engine.int32) for _ in range(size)]
    dist.all_gather(got, engine.full((3,), rank, dtype=engine.int32))
    assert [g.tolist() for g in got] == [[r] * 3 for r in range(size)]
    whole = engine.zeros(size * 20000); dist.all_gather_into_tensor(whole, engine.full((20000,), float(rank)))
    assert whole.view(size, -1)[:, 7].tolist() == [float(r) for r in range(size)]
    got = [engine.zeros(2) for _ in range(size)] if rank == 0 else None
    dist.gather(engine.full((2,), float(rank)), got, dst=0)
    assert rank or [g[1].item() for g in got] == list(range(size))
    out = engine.zeros(5)
    dist.scatter(out, [engine.full((5,), r * 2.0) for r in range(size)] if rank == 1 else None, src=1)
    assert out.tolist() == [rank * 2.0] * 5
    out = engine.zeros(2); dist.reduce_scatter(out, [engine.full((2,), float(r)) for r in range(size)])
    assert out.tolist() == [rank * size] * 2
    out = engine.zeros(3); dist.reduce_scatter_tensor(out, engine.arange(3.0 * size), R.AVG)
    assert out.tolist() == [rank * 3.0 + i for i in range(3)]
    got = [engine.zeros(2) for _ in range(size)]
    dist.all_to_all(got, [engine.full((2,), rank * 10.0 + r) for r in range(size)])
    assert [g[0].item() for g in got] == [r * 10.0 + rank for r in range(size)]
    sizes = [r + 1 for r in range(size)]  # rank r gets r + 1 rows of everybody
    source = engine.full((sum(sizes), 2), float(rank)); out = engine.zeros(size * (rank + 1), 2)
    dist.all_to_all_single(out, source, [rank + 1] * size, sizes)
    assert out[:, 0].tolist() == [float(r) for r in range(size) for _ in range(rank + 1)]
    if rank == 0:
        dist.send(engine.arange(4.0), 1, tag=3); dist.send(engine.ones(2), 1, tag=4)
    if rank == 1:
        second, first = engine.zeros(2), engine.zeros(4)
        assert dist.recv(second, 0, tag=4) == 0 and dist.recv(first, tag=3) == 0  # by tag, and from anyone
        assert first.tolist() == [0, 1, 2, 3] and second.tolist() == [1, 1]
    left, right = (rank - 1) % size, (rank + 1) % size
    big, come = engine.full((300000,), float(rank)), engine.zeros(300000)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, big, right), dist.P2POp(dist.irecv, come, left)])
    assert all(w.wait() for w in works) and come[-1].item() == left
    works = [dist.all_reduce(engine.ones(50000), async_op=True) for _ in range(5)]
    last = engine.ones(3); dist.all_reduce(last)  # waits its turn
    assert all(w.is_completed() and w.is_success() for w in works)
    assert works[0].result()[0][0].item() == size and last[0].item() == size
    got = [None] * size; dist.all_gather_object(got, {"rank": rank, "long": "x" * rank * 5000})
    assert [g["rank"] for g in got] == list(range(size))
    some = [rank, "a"]; dist.broadcast_object_list(some, src=1); assert some == [1, "a"]
    out = [None]; dist.scatter_object_list(out, [str(r) for r in range(size)] if rank == 0 else None)
    assert out == [str(rank)]
    if rank == 0: dist.send_object_list([1, {"k": 2}], 1)
    if rank == 1:
        some = [None, None]; assert dist.recv_object_list(some, 0) == 0 and some == [1, {"k": 2}]
    dist.barrier(); dist.monitored_barrier()
    print("done", rank)
"""


@pytest.mark.long
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("size", [2, 4])
def test_every_call(size: int, transport: str, tmp_path: Path) -> None:
    assert "".join(well(job(CALLS, size, tmp_path, transport=transport))).count("done") == size


WRONG = """
    def raises(kind, words, do):
        try:
            do()
        except kind as error:
            assert words in str(error), error
        else:
            raise AssertionError(words)
    t = engine.ones(3)
    raises(TypeError, "Expected parameter `tensor` of type torch.Tensor", lambda: dist.all_reduce([1]))
    raises(RuntimeError, "invalid `tensor_list` list at index 0 (expected length 2, got 1)",
           lambda: dist.all_gather([t], t))
    raises(RuntimeError, "invalid tensor size at index 1 (expected (3,), got (4,))",
           lambda: dist.all_gather([t, engine.ones(4)], t))
    raises(ValueError, "tensors with different dtypes: found torch.float32 and torch.int64",
           lambda: dist.all_gather([t, engine.ones(3, dtype=engine.int64)], t))
    raises(TypeError, "Expected parameter `op`", lambda: dist.all_reduce(t, "sum"))
    raises(ValueError, "Process group x is not initialized", lambda: dist.all_reduce(t, group="x"))
    raises(ValueError, "Rank 7 is out of range. Valid ranks are 0 to 1 (world_size=2)", lambda: dist.new_group([0, 7]))
    raises(RuntimeError, "Cannot use ReduceOp.BAND with non-integral dtype",
           lambda: dist.all_reduce(t, dist.ReduceOp.BAND))
    raises(RuntimeError, "output_tensor has 5 elements", lambda: dist.all_gather_into_tensor(engine.ones(5), t))
    raises(RuntimeError, "invalid root rank: 9", lambda: dist.broadcast(t, 9))
    raises(RuntimeError, "3 rows, which 2 processes cannot share evenly", lambda: dist.all_to_all_single(t, t))
    dist.all_reduce(t)
    assert t.tolist() == [2, 2, 2]  # still in step
    print("fine")
"""


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_wrong_arguments_leave_the_group_in_step(transport: str, tmp_path: Path) -> None:
    assert "".join(well(job(WRONG, 2, tmp_path, transport=transport))).count("fine") == 2


DIFFERING = """
    def said(do):
        try:
            do()
        except dist.DistBackendError as error:
            return str(error)
    def called(other, own):
        return f"rank {1 - rank} called {other}, rank {rank} called {own}"
    one, two = "all_reduce of %d float32 SUM" % (4 - rank), "all_reduce of %d float32 SUM" % (3 + rank)
    assert called(one, two) in said(lambda: dist.all_reduce(engine.ones(3 + rank)))
    kinds = ["float32", "float64"]
    words = said(lambda: dist.all_reduce(engine.ones(9000, dtype=getattr(engine, kinds[rank]))))
    assert called(f"all_reduce of 9000 {kinds[1 - rank]} SUM", f"all_reduce of 9000 {kinds[rank]} SUM") in words, words
    words = said(lambda: dist.broadcast(engine.ones(5), 0) if rank else dist.all_reduce(engine.ones(5)))
    assert "called broadcast of 5 float32 from 0" in words and "called all_reduce of 5 float32 SUM" in words, words
    assert "from 0" in said(lambda: dist.broadcast(engine.ones(5), rank))
    assert "all_gather of" in said(lambda: dist.all_gather([engine.ones(2 + rank)] * 2, engine.ones(2 + rank)))
    t = engine.ones(1); dist.all_reduce(t); assert t.item() == 2  # nobody is a call behind
    print("named")
"""


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_calls_and_shapes_that_differ_are_named(transport: str, tmp_path: Path) -> None:
    assert "".join(well(job(DIFFERING, 2, tmp_path, transport=transport))).count("named") == 2


@pytest.mark.parametrize("how", ["os._exit(3)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_rank_that_dies_is_named_by_the_others_at_once(how: str, tmp_path: Path) -> None:
    body = f"""
        dist.barrier()
        if rank == 1:
            {how}
        start = time.monotonic()
        try:
            dist.all_reduce(engine.ones(50000))
        except dist.DistBackendError as error:
            print(time.monotonic() - start < 20, error)
        try:
            dist.recv(engine.ones(1), 1)
        except dist.DistBackendError as error:
            print(error)
    """
    found = job(body, 3, tmp_path, timeout=40)
    for ended in (found[0], found[2]):
        lines = ended.out.splitlines()
        assert lines[0] == "True all_reduce: rank 1 has ended; the other processes cannot go on without it", ended.err
        assert lines[1] == "recv: rank 1 has ended; the other processes cannot go on without it"


@pytest.mark.long
def test_a_rank_that_does_not_come_ends_the_wait(tmp_path: Path) -> None:
    body = """
        if rank == 0:
            try:
                dist.barrier()
            except dist.DistBackendError as error:
                print(error)
            try:
                dist.recv(engine.ones(1), 1)
            except dist.DistBackendError as error:
                print(error)
        else:
            time.sleep(8)
    """
    out = well(job(body, 2, tmp_path, timeout=2))[0]
    assert out.splitlines() == [
        "barrier: rank 1 did not take part within 2 s",
        "recv: nothing came from rank 1 within 2 s",
    ]


@pytest.mark.long
@WITH_MPI
def test_a_rank_that_does_not_come_is_named_under_mpirun(tmp_path: Path) -> None:
    body = """
        dist.barrier()
        pair = dist.new_group([1, 3])
        if rank == 3:
            time.sleep(7)
        for call in (dist.barrier, lambda: dist.all_reduce(engine.ones(1), group=pair)):
            try:
                if rank in (1, 3) or call is dist.barrier:
                    call()
            except dist.DistBackendError as error:
                if rank != 3:
                    print(f"{error}\\n", end="", flush=True)
    """
    [ended] = job(body, 4, tmp_path, timeout=2, transport="mpi")
    assert sorted(ended.out.splitlines()) == sorted(
        [
            *["barrier: rank(s) [3] did not take part within 2 s"] * 3,
            "all_reduce: rank(s) [3] did not take part within 2 s",
        ]
    ), ended.err


def test_calls_before_init() -> None:
    sentence = "Default process group has not been initialized, please make sure to call init_process_group"
    for call in (
        dist.barrier,
        lambda: dist.all_reduce(engine.ones(1)),
        dist.get_backend,
        dist.new_group,
        dist.get_rank,
        dist.get_world_size,
    ):
        with pytest.raises(ValueError, match=sentence):
            call()
    with pytest.raises(AssertionError, match="Process group cannot be None"):
        dist.destroy_process_group()
    with pytest.raises(ValueError, match="Expected ``op`` to be of type"):
        dist.P2POp(dist.all_reduce, engine.ones(1), 0)
