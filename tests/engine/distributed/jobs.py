"""Jobs of several processes for the tests of engine.distributed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.distributed import mpi

HEAD = """
import datetime, os, signal, sys, time
import numpy as np
import engine, engine.distributed as dist
from engine import nn
limit = datetime.timedelta(seconds=float(os.environ.get("TEST_TIMEOUT", "60")))
if "TEST_STORE" in os.environ:
    dist.init_process_group("gloo", "file://" + os.environ["TEST_STORE"], limit,
                            int(os.environ["TEST_SIZE"]), int(os.environ["TEST_RANK"]))
else:
    dist.init_process_group("mpi", timeout=limit)
rank, size = dist.get_rank(), dist.get_world_size()
"""
MPIRUN = Path(sys.executable).with_name("mpirun") if mpi.installed() else None
WITH_MPI = pytest.mark.skipif(not (MPIRUN and MPIRUN.exists()), reason="mpi4py and mpich are not installed")
TRANSPORTS = ["shared memory", pytest.param("mpi", marks=WITH_MPI)]


@dataclass
class Ended:
    """How a rank ended."""

    code: int
    out: str
    err: str


def job(body: str, size: int, folder: Path, timeout: float = 60, transport: str = "shared memory") -> list[Ended]:
    """Run `body` in `size` processes that have met; how each ended."""
    script = HEAD + textwrap.dedent(body)
    environment = {**os.environ, "TEST_TIMEOUT": str(timeout), "OMP_NUM_THREADS": "1"}
    if transport == "mpi":
        file = folder / "script.py"
        file.write_text(script + "\nsys.stdout.flush(); dist.destroy_process_group()\n")
        command = [str(MPIRUN), "-n", str(size), sys.executable, str(file)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=180, check=False)
        return [Ended(done.returncode, done.stdout, done.stderr)]
    processes = []
    for rank in range(size):
        mine = {"TEST_STORE": str(folder / "store"), "TEST_SIZE": str(size), "TEST_RANK": str(rank)}
        processes.append(
            subprocess.Popen(
                [sys.executable, "-c", script],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**environment, **mine},
            )
        )
    found = []
    for process in processes:
        try:
            out, err = process.communicate(timeout=180)
        except subprocess.TimeoutExpired:
            for one in processes:
                one.kill()
            raise
        found.append(Ended(process.returncode, out, err))
    return found


def well(found: list[Ended]) -> list[str]:
    """The output of each rank; fails where one did."""
    for ended in found:
        assert ended.code == 0, ended.out + ended.err
    return [ended.out for ended in found]
