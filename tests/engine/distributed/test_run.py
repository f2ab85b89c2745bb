"""`python -m engine.distributed.run`: environment, logs, failures, restarts."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path


def _run(script: str, folder: Path, *options: str, arguments: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    path = folder / "script.py"
    path.write_text(textwrap.dedent(script))
    command = [sys.executable, "-m", "engine.distributed.run", *options, str(path), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False, cwd=folder)


MEET = """
    import os, sys
    import engine, engine.distributed as dist
    dist.init_process_group("gloo")
    t = engine.ones(1)
    dist.all_reduce(t)
    print(dist.get_rank(), t.item(), os.environ["LOCAL_RANK"], dist.is_torchelastic_launched(), sys.argv[1:])
"""


def test_ranks_meet(tmp_path: Path) -> None:
    done = _run(MEET, tmp_path, "--standalone", "--nproc-per-node=2", arguments=("--lr", "1"))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"[rank{r}]: {r} 2.0 {r} True ['--lr', '1']" for r in range(2)]


def test_scripts_that_import_torch(tmp_path: Path) -> None:
    script = MEET.replace("import engine, engine.", "import torch as engine, torch.")
    done = _run(script, tmp_path, "--standalone", "--nproc-per-node=2")
    assert sorted(done.stdout.splitlines()) == [f"[rank{r}]: {r} 2.0 {r} True []" for r in range(2)], done.stderr


def test_logs_go_to_a_file_a_rank(tmp_path: Path) -> None:
    done = _run(MEET, tmp_path, "--nproc_per_node", "2", "--log-dir", "logs")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert (tmp_path / "logs/0/1.log").read_text() == "1 2.0 1 True []\n"


def test_a_rank_that_fails_ends_the_others_and_is_named(tmp_path: Path) -> None:
    done = _run(
        """
        import os, sys, time
        if os.environ["RANK"] == "1":
            sys.exit(5)
        time.sleep(120)
        """,
        tmp_path,
        "--nproc-per-node=2",
    )
    assert done.returncode == 1
    assert "rank 1 (process " in done.stderr and "failed: exit code 5" in done.stderr


def test_restarts(tmp_path: Path) -> None:
    done = _run(
        """
        import os, signal
        import engine, engine.distributed as dist
        dist.init_process_group("gloo")
        if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()
        print("finished", os.environ["TORCHELASTIC_RESTART_COUNT"])
        """,
        tmp_path,
        "--nproc-per-node=2",
        "--max-restarts=1",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("finished 1") == 2
    assert "failed: signal SIGKILL" in done.stderr and "starting all ranks again (1 of 1)" in done.stderr


def test_what_it_does_not_do_is_said(tmp_path: Path) -> None:
    assert "start several with mpirun" in _run("", tmp_path, "--nnodes=2").stderr
    assert "expected a number from 1, auto or cpu" in _run("", tmp_path, "--nproc-per-node=0").stderr
