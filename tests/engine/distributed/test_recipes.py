"""The recipes of docs/how-to/scaling.md, run as they stand there, and the scaling model's own rules."""

from __future__ import annotations

import contextlib
import getpass
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.scaling import Network, predict, sum_seconds
from engine.distributed import mpi

from .jobs import MPIRUN, WITH_MPI

ROOT = Path(__file__).parents[3]


def _recipe(name: str, folder: Path) -> Path:
    text = (ROOT / "docs" / "how-to" / "scaling.md").read_text(encoding="utf-8")
    found = re.search(rf"<!-- recipe: {name} -->\n```python\n(.*?)```", text, re.S)
    assert found is not None
    path = folder / "train.py"
    path.write_text(found[1])
    return path


def _run(command: list[str], folder: Path) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=180, check=False, cwd=folder, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
@WITH_MPI
@pytest.mark.parametrize("ranks", [2, 4])
def test_mpirun(ranks: int, tmp_path: Path) -> None:
    script = _recipe("mpirun", tmp_path)
    out = _run([str(MPIRUN), "-n", str(ranks), sys.executable, "-m", "engine.torch_alias", str(script)], tmp_path)
    found = re.fullmatch(rf"{ranks} ranks, loss ([\d.]+)\n", out)
    assert found is not None and float(found[1]) < 1


@pytest.mark.skipif(
    importlib.util.find_spec("ray") is None and "REQUIRE_RAY" not in os.environ,
    reason="ray is not installed: `make test-scaling` does",
)
def test_ray(tmp_path: Path) -> None:
    found = re.search(r"2 actors, loss ([\d.]+)", _run([sys.executable, str(_recipe("ray", tmp_path))], tmp_path))
    assert found is not None and float(found[1]) < 1


SLURM = ("munged", "slurmctld", "slurmd", "srun", "sbatch")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A Slurm cluster of this machine alone; the environment in which its commands find it."""
    folder = Path(tempfile.mkdtemp(prefix="slurm_"))  # munge refuses folders that others may write to, above its own
    name, me = socket.gethostname().partition(".")[0], getpass.getuser()
    ports = _free_ports(2)
    (folder / "state").mkdir()
    (folder / "spool").mkdir()
    (folder / "slurm.conf").write_text(
        f"""ClusterName=test
SlurmctldHost={name}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser={me}
SlurmdUser={me}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
NodeName={name} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:8
"""
    )
    (folder / "key").write_bytes(os.urandom(128))
    (folder / "key").chmod(0o600)
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    munge = ["munged", "--foreground", "--force", f"--key-file={folder}/key", f"--socket={folder}/munge.socket"]
    munge += [f"--{kind}-file={folder}/munge.{kind}" for kind in ("pid", "log", "seed")]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in (munge, ["slurmctld", "-D"], ["slurmd", "-D"]):
            log = open(folder / f"{command[0]}.out", "wb")  # noqa: SIM115
            with log:
                started.append(
                    subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
                )
        deadline, state = time.monotonic() + 60, ""
        while not state.startswith("idle"):
            assert time.monotonic() < deadline, [(p.name, p.read_text()) for p in folder.glob("*.out")]
            time.sleep(0.2)
            state = subprocess.run(
                ["sinfo", "-h", "-o", "%t"], env=environment, capture_output=True, text=True, check=False, timeout=60
            ).stdout
        yield environment
    finally:
        for process in reversed(started):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(folder, ignore_errors=True)


@WITH_MPI
@pytest.mark.skipif(
    not all(map(shutil.which, SLURM)), reason="apt-get install slurmctld slurmd slurm-client munge runs Slurm's recipe"
)
def test_slurm(slurm: dict[str, str], tmp_path: Path) -> None:
    script = (
        (ROOT / "docs" / "how-to" / "scaling.md")
        .read_text(encoding="utf-8")
        .partition("#!/bin/bash\n")[2]
        .partition("```")[0]
    )
    _recipe("mpirun", tmp_path)
    (tmp_path / "job.sh").write_text("#!/bin/bash\n" + script)
    environment = {
        **slurm,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}:{slurm['PATH']}",
    }
    here = ["--nodes=1", "--ntasks-per-node=2", "--overcommit"]  # instead of the recipe's four machines
    done = subprocess.run(
        ["sbatch", "--wait", *here, "--output=out.txt", "job.sh"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    out = (tmp_path / "out.txt").read_text()
    found = re.fullmatch(r"2 ranks, loss ([\d.]+)\n", out)
    assert found is not None and float(found[1]) < 1, done.stderr + out
    alone = subprocess.run(
        ["srun", "--mpi=none", "-n", "2", "--overcommit", sys.executable, "-m", "engine.torch_alias", "train.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert alone.returncode and "srun --mpi=pmi2" in alone.stderr, alone.stderr


def test_srun_without_mpi_is_told_and_not_two_jobs_of_one(tmp_path: Path) -> None:
    if not mpi.installed():
        pytest.skip("mpi4py is not installed")
    step = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0"}  # as `srun -n 2 --mpi=none` sets them
    script = "import engine.distributed as dist; dist.init_process_group('mpi'); print(dist.get_world_size())"
    for more, words in ((step, "Slurm has started 2 processes"), ({}, "")):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PMI", "SLURM", "OMPI"))} | more
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False, cwd=ROOT
        )
        assert (words in done.stderr and done.returncode) if words else done.stdout == "1\n", done.stderr


def test_the_model_of_a_step() -> None:
    network = Network(20e-6, 1e9)
    assert predict(1, 0.1, 4e8, network) == pytest.approx(0.1)
    assert sum_seconds(2, 1e9, network) == pytest.approx(1.00004)  # half of the bytes, twice; two messages
    steps = [predict(1 << k, 0.1, 4e7, network, 1 << 20) for k in range(11)]
    assert steps == sorted(steps) and steps[-1] < 0.1 + sum_seconds(1024, 4e7, network) + 40 * 20 * 20e-6
    hidden = predict(64, 1.0, 4e7, network, 1 << 20)  # all but the last bucket under the backward pass
    assert hidden < 1.0 + 2 * sum_seconds(64, 1 << 20, network)
    assert predict(64, 1.0, 4e7, network, 4e7) > hidden  # one bucket cannot overlap
    assert predict(64, 1.0, 4e7, network, 1 << 20, overlap=False) > hidden
