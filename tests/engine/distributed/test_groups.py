"""Groups: who is in them, what they are told, and what wrong arguments are told."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path

import pytest

import engine.distributed as dist
from engine.distributed import groups

from .jobs import TRANSPORTS, job, well

GROUPS = """
    pair = dist.new_group([0, size - 1]); odd = dist.new_group([1])
    world = dist.group.WORLD
    assert dist.get_backend() in ("gloo", "mpi") and world.size() == size and world.rank() == rank
    if rank in (0, size - 1):
        t = engine.ones(1); dist.all_reduce(t, group=pair)
        assert t.item() == 2 and dist.get_world_size(pair) == 2
        assert dist.get_process_group_ranks(pair) == [0, size - 1]
        assert dist.get_group_rank(pair, size - 1) == 1 and dist.get_global_rank(pair, 1) == size - 1
        t = engine.tensor([float(rank)]); dist.broadcast(t, size - 1, pair); assert t.item() == size - 1
        t = engine.tensor([float(rank)]); dist.broadcast(t, group=pair, group_src=1); assert t.item() == size - 1
    else:
        assert pair == dist.GroupMember.NON_GROUP_MEMBER
        assert dist.get_rank(pair) == -1 and dist.get_world_size(pair) == -1
        import warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert dist.all_reduce(engine.ones(1), group=pair) is None
        assert "does not belong to the given group" in str(caught[0].message)
    if rank == 1:
        t = engine.ones(2); dist.all_reduce(t, group=odd); assert t.tolist() == [1, 1]
        dist.destroy_process_group(odd)
    dist.barrier()
    print("done")
"""


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_groups_of_some(transport: str, tmp_path: Path) -> None:
    assert "".join(well(job(GROUPS, 3, tmp_path, transport=transport))).count("done") == 3


def test_a_group_can_be_left_and_made_again(tmp_path: Path) -> None:
    body = """
        before = len(os.listdir("/proc/self/fd"))
        dist.destroy_process_group()
        assert not dist.is_initialized()
        dist.init_process_group("gloo", "file://" + os.environ["TEST_STORE"] + "2", limit, size, rank)
        t = engine.ones(1); dist.all_reduce(t); assert t.item() == size
        assert len(os.listdir("/proc/self/fd")) <= before
        dist.destroy_process_group()
    """
    well(job(body, 2, tmp_path))
    assert not list(tmp_path.glob("store*"))  # the last to go removes the file


def test_one_process_alone_by_tcp() -> None:
    dist.init_process_group("gloo", "tcp://127.0.0.1:0", world_size=1, rank=0)
    try:
        with pytest.raises(ValueError, match="trying to initialize the default process group twice!"):
            dist.init_process_group("gloo")
        dist.barrier()
        assert repr(dist.group.WORLD) == "<ProcessGroup default (gloo) rank 0 of 1>"
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"backend": "tpu"}, AssertionError, "Unknown backend type tpu"),
        ({"backend": "nccl"}, RuntimeError, "doesn't have NCCL built in"),
        ({"timeout": 3}, TypeError, "Expected timeout argument to be of type datetime.timedelta"),
        ({"init_method": "env://", "store": dist.HashStore()}, ValueError, "Cannot specify both init_method and store"),
        ({"store": dist.HashStore(), "rank": 2, "world_size": 2}, ValueError, "expected 0 <= rank < world_size"),
        ({}, ValueError, "environment variable RANK expected, but not set"),
    ],
)
def test_wrong_arguments(
    arguments: dict[str, object], kind: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(kind, match=words):
        dist.init_process_group(**arguments)
    assert not dist.is_initialized()


def test_a_missing_rank_is_named() -> None:
    with pytest.raises(dist.DistStoreError, match=r"rank 0 of 3 waited for rank\(s\) \[1, 2\] to join"):
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=3, timeout=datetime.timedelta(seconds=1))
    assert not dist.is_initialized()


def test_other_machines_need_mpi() -> None:
    store = dist.HashStore()
    store.set("default/mesh/0", '["elsewhere 1234", 1, "/nowhere"]')
    with pytest.raises(dist.DistBackendError, match=r"rank 0 runs on elsewhere, this one on .*mpirun"):
        dist.init_process_group(store=store, rank=1, world_size=2, timeout=datetime.timedelta(seconds=5))


def test_what_is_available_is_the_truth() -> None:
    assert dist.is_available() == hasattr(os, "memfd_create") or dist.is_mpi_available()
    assert dist.is_backend_available("gloo") and not dist.is_backend_available("nccl")
    assert groups.Backend("GLOO") == "gloo"


def test_without_mpi_the_error_says_what_to_install() -> None:
    script = "import sys; sys.modules['mpi4py'] = None\nimport engine.distributed as d; d.init_process_group('mpi')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "Install mpi4py and an MPI library" in done.stderr.splitlines()[-1]
