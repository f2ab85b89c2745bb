"""The nccl backend on the stand-in machine: ranks in processes, each with a GPU, over a fake of CuPy's nccl module."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import engine.distributed as dist
from engine.distributed import nccl

from .jobs import Ended, well

ROOT = Path(__file__).parents[3]
HEAD = """
import datetime, sys, time
import numpy as np
import engine, engine.distributed as dist
from engine import nn
from tests.engine.standin import machine, running
rank, size, store, limit, backend = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(sys.argv[4]), sys.argv[5]
machine.Machine.count = 4
def raises(kind, words, do):
    try:
        do()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError("nothing was raised: " + words)
with running(real=False):
    engine.cuda.set_device(rank % 2)
    there = engine.device("cuda", rank % 2)
    dist.init_process_group(backend, "file://" + store, datetime.timedelta(seconds=limit), size, rank)
"""


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the stand-in's communicators meet: a folder of the test's own, also for its processes."""
    monkeypatch.setenv("STANDIN_NCCL_FOLDER", str(tmp_path))


def _job(body: str, size: int, folder: Path, timeout: float = 60, backend: str = "nccl") -> list[Ended]:
    script = HEAD + textwrap.indent(textwrap.dedent(body), "    ")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(rank), str(size), str(folder / "store"), str(timeout), backend],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for rank in range(size)
    ]
    found = []
    for process in processes:
        try:
            out, err = process.communicate(timeout=150)
        except subprocess.TimeoutExpired:
            for one in processes:
                one.kill()
            raise
        found.append(Ended(process.returncode, out, err))
    return found


CALLS = """
    def of(value, *shape, dtype=engine.float32):
        return engine.full(shape, value, dtype=dtype, device=there)
    total = size * (size + 1) // 2
    for dtype in (engine.float32, engine.float64, engine.int64, engine.int32, engine.uint8, engine.bfloat16,
                  engine.float16, engine.complex64):
        t = of(rank + 1, 70, dtype=dtype)
        dist.all_reduce(t)
        assert t.cpu().tolist() == engine.full((70,), total, dtype=dtype).tolist(), dtype
    flags = engine.tensor([rank == 0, False, True], device=there); dist.all_reduce(flags)
    assert flags.tolist() == [True, False, True]
    R = dist.ReduceOp
    for op, want in ((R.PRODUCT, np.prod(np.arange(1, size + 1))), (R.MIN, 1), (R.MAX, size), (R.AVG, (size + 1) / 2)):
        t = of(rank + 1.0, 3, 2); dist.all_reduce(t, op); assert t.tolist() == [[float(want)] * 2] * 3, op
    view = engine.zeros(4, 6, device=there).t()[1:]; view.fill_(rank + 1)
    dist.all_reduce(view); assert bool((view == total).all())
    t = of(rank + 1.0, 4000); dist.reduce(t, size - 1); assert t[0].item() == (total if rank == size - 1 else rank + 1)
    t = of(float(rank), 2, 3); dist.broadcast(t, src=size - 1)
    assert bool((t == size - 1).all())
    got = [engine.zeros(3, device=there) for _ in range(size)]; dist.all_gather(got, of(float(rank), 3))
    assert [g.tolist() for g in got] == [[float(r)] * 3 for r in range(size)]
    whole = engine.zeros(size * 50, device=there); dist.all_gather_into_tensor(whole, of(float(rank), 50))
    assert whole.view(size, -1)[:, 7].tolist() == [float(r) for r in range(size)]
    got = [engine.zeros(2, device=there) for _ in range(size)] if rank == 0 else None
    dist.gather(of(float(rank), 2), got, dst=0)
    assert rank or [g[1].item() for g in got] == list(range(size))
    out = engine.zeros(5, device=there)
    dist.scatter(out, [of(r * 2.0, 5) for r in range(size)] if rank == 1 else None, src=1)
    assert out.tolist() == [rank * 2.0] * 5
    out = engine.zeros(2, device=there); dist.reduce_scatter(out, [of(float(r), 2) for r in range(size)])
    assert out.tolist() == [rank * size] * 2
    out = engine.zeros(3, device=there); dist.reduce_scatter_tensor(out, engine.arange(3.0 * size, device=there), R.AVG)
    assert out.tolist() == [rank * 3.0 + i for i in range(3)]
    got = [engine.zeros(2, device=there) for _ in range(size)]
    dist.all_to_all(got, [of(rank * 10.0 + r, 2) for r in range(size)])
    assert [g[0].item() for g in got] == [r * 10.0 + rank for r in range(size)]
    if rank == 0: dist.send(of(4.0, 4), 1)
    if rank == 1:
        t = engine.zeros(4, device=there); assert dist.recv(t, 0) == 0 and t.tolist() == [4.0] * 4
    left, right = (rank - 1) % size, (rank + 1) % size
    come = engine.zeros(3000, device=there)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, of(float(rank), 3000), right),
                                    dist.P2POp(dist.irecv, come, left)])
    assert all(w.wait() for w in works) and come[-1].item() == left
    many = [of(1.0, 5000) for _ in range(5)]
    works = [dist.all_reduce(t, async_op=True) for t in many]
    for w in works: w.wait()
    assert all(t[0].item() == size for t in many)
    unwaited = of(1.0, 10); work = dist.all_reduce(unwaited, async_op=True)
    raises(machine.StreamOrderError, "without waiting", lambda: unwaited.mul_(2))
    work.wait(); unwaited.mul_(2); assert unwaited[0].item() == 2 * size
    got = [None] * size; dist.all_gather_object(got, {"rank": rank, "long": "x" * rank * 500})
    assert [g["rank"] for g in got] == list(range(size))
    some = [rank, "a"]; dist.broadcast_object_list(some, src=1); assert some == [1, "a"]
    if rank == 0: dist.send_object_list([1, {"k": 2}], 1)
    if rank == 1:
        some = [None, None]; assert dist.recv_object_list(some, 0) == 0 and some == [1, {"k": 2}]
    pair = dist.new_group([0, 1])
    if rank < 2:
        t = of(1.0, 2); dist.all_reduce(t, group=pair); assert t.tolist() == [2, 2]
    dist.barrier()
    raises(TypeError, "not supported for NCCL process group: Short",
           lambda: dist.all_reduce(of(1, 2, dtype=engine.int16)))
    raises(ValueError, "Cannot use ReduceOp.BAND with NCCL",
           lambda: dist.all_reduce(of(1, 2, dtype=engine.int32), R.BAND))
    raises(RuntimeError, "No backend type associated with device type cpu", lambda: dist.all_reduce(engine.ones(1)))
    assert dist.get_backend() == "nccl" and dist.is_nccl_available() and dist.is_backend_available("nccl")
    dist.destroy_process_group()
    print("done")
"""


@pytest.mark.long
@pytest.mark.parametrize("size", [2, 3])
def test_every_call(size: int, tmp_path: Path) -> None:
    assert "".join(well(_job(CALLS, size, tmp_path))).count("done") == size


def test_training_equals_one_process(tmp_path: Path) -> None:
    body = """
        from engine.nn.parallel import DistributedDataParallel as DDP
        from engine.utils.data.distributed import DistributedSampler
        engine.manual_seed(0)
        x, y = engine.randn(8 * size, 6, device=there), engine.randn(8 * size, 3, device=there)
        def net():
            engine.manual_seed(1)
            return nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3)).to(there)
        one, many = net(), nn.SyncBatchNorm.convert_sync_batchnorm(net())
        if rank: many[0].weight.data.add_(3)  # becomes the first process's
        own = list(DistributedSampler(range(8 * size), shuffle=False))
        for megabytes in (25, 0.001):
            model = DDP(many, device_ids=[rank % 2], bucket_cap_mb=megabytes)
            a, b = (engine.optim.SGD(m.parameters(), 0.1, momentum=0.9) for m in (model, one))
            for _ in range(3):
                for m, o, i in ((model, a, own), (one, b, list(range(8 * size)))):
                    o.zero_grad(); nn.functional.mse_loss(m(x[i]), y[i]).backward(); o.step()
            for p, q in zip(many.state_dict().values(), one.state_dict().values()):
                assert float((p - q).abs().max()) < 1e-6
        print("equal")
    """
    assert "".join(well(_job(body, 2, tmp_path))).count("equal") == 2


def test_both_kinds_of_device(tmp_path: Path) -> None:
    body = """
        a, b = engine.ones(3), engine.ones(3, device=there)
        dist.all_reduce(a); dist.all_reduce(b)
        assert a.tolist() == b.tolist() == [2, 2, 2]
        raises(RuntimeError, "must be on one device", lambda: dist.all_gather([a, a], b))
        print("both")
    """
    assert "".join(well(_job(body, 2, tmp_path, backend="cpu:gloo,cuda:nccl"))).count("both") == 2


@pytest.mark.long
def test_a_rank_that_does_not_come_is_named(tmp_path: Path) -> None:
    body = """
        dist.barrier()
        if rank == 0:
            raises(dist.DistBackendError, "barrier: rank(s) [1] did not take part within 2 s", dist.barrier)
            print("named")
    """
    assert _job(body, 2, tmp_path, timeout=2)[0].out == "named\n"


@pytest.mark.long
@pytest.mark.parametrize("patience", ["60", "0.5"])
def test_a_rank_that_dies_within_a_call_is_named(
    patience: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host waits for a number that never comes: the process ends with the reason, as torch's watchdog does."""
    monkeypatch.setenv("STANDIN_NCCL_PATIENCE", patience)  # how long the stand-in's kernel waits before it hangs
    gone = (
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)" if patience == "60" else "time.sleep(17); sys.exit()"
    )
    body = f"""
        t = engine.ones(3000, device=there); dist.all_reduce(t); assert t[0].item() == 3
        dist.barrier()
        if rank == 1:
            {gone}
        begun = time.monotonic()
        dist.all_reduce(t)
        if rank == 0:
            print(t[0].item())  # waits for the GPU
        else:
            raises(dist.DistBackendError, "all_reduce of 3000 float32: rank(s) [1] ", 
                   lambda: dist.group.WORLD.of_gpus.check("a test"))
            raises(dist.DistBackendError, "all_reduce of 3000 float32: rank(s) [1] ", lambda: dist.all_reduce(t))
            assert time.monotonic() - begun < 10 + 5  # on a busy machine
            print("raised")
    """
    first, _, third = _job(body, 3, tmp_path, timeout=10)
    how = "have ended or do not answer" if patience == "60" else "did not take part within 10 s"
    assert first.code == -signal.SIGABRT and first.out == "", first.err
    assert f"rank 0: all_reduce of 3000 float32: rank(s) [1] {how}" in first.err
    assert third.out == "raised\n", third.err


def test_gloo_says_that_it_has_no_gpus(tmp_path: Path) -> None:
    body = """
        raises(RuntimeError, "No backend type associated with device type cuda: the group's backend is gloo",
               lambda: dist.all_reduce(engine.ones(2, device=there)))
        print("said")
    """
    assert "".join(well(_job(body, 2, tmp_path, backend="gloo"))).count("said") == 2


def test_without_a_gpu_it_is_not_there() -> None:
    assert not nccl.available() and not dist.is_nccl_available()
    with pytest.raises(RuntimeError, match="Distributed package doesn't have NCCL built in: it needs a GPU"):
        dist.init_process_group("nccl")


def test_the_stand_in_has_cupys_parameters() -> None:
    """The signatures are those in the docstrings of CuPy 14.2's compiled module."""
    import inspect

    from tests.engine.standin.nccl import NcclCommunicator

    real = {
        "allReduce": "sendbuf recvbuf count datatype op stream",
        "reduce": "sendbuf recvbuf count datatype op root stream",
        "broadcast": "sendbuff recvbuff count datatype root stream",
        "allGather": "sendbuf recvbuf count datatype stream",
        "reduceScatter": "sendbuf recvbuf recvcount datatype op stream",
        "send": "sendbuf count datatype peer stream",
        "recv": "recvbuf count datatype peer stream",
        "__init__": "ndev commId rank config",
    }
    for name, parameters in real.items():
        found = list(inspect.signature(getattr(NcclCommunicator, name)).parameters)[1:]
        assert found == parameters.split(), name


def test_data_parallel_on_two_devices() -> None:
    script = """
import engine
from engine import nn
from tests.engine.standin import running
with running(real=False):
    engine.manual_seed(0)
    one = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)).cuda()
    import copy
    many = nn.DataParallel(copy.deepcopy(one))
    assert many.device_ids == [0, 1] and list(many.state_dict())[0] == "module.0.weight"
    x = engine.randn(5, 6, device="cuda", requires_grad=True)
    seen = []
    many.module[0].register_forward_hook(lambda m, i, o: seen.append((str(o.device), len(o))))
    out = many(x)
    assert out.device == engine.device("cuda:0") and float((out - one(x)).abs().max()) < 1e-6
    assert seen == [("cuda:0", 3), ("cuda:1", 2)], seen
    out.square().sum().backward(); mine, x.grad = x.grad, None
    one(x).square().sum().backward()
    assert float((mine - x.grad).abs().max()) < 1e-5
    for p, q in zip(many.parameters(), one.parameters()):
        assert float((p.grad - q.grad).abs().max()) < 1e-5
    assert many(x[:1]).shape == (1, 2)  # fewer rows than devices
    out = nn.parallel.data_parallel(one, x, [0])
    assert out.shape == (5, 2)
    try:
        nn.DataParallel(nn.Linear(6, 2))(x)
    except RuntimeError as error:
        assert "module must have its parameters and buffers on device cuda:0" in str(error)
        print("right")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stdout == "right\n", done.stderr
