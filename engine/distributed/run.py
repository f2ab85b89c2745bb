"""`python -m engine.distributed.run SCRIPT`: torchrun on one machine.

https://docs.pytorch.org/docs/2.13/elastic/run.html

Starts `--nproc-per-node` processes with RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT in
their environment.  The store is this process's, so that it outlives every rank.  When one fails the others are ended,
and all are started again as often as `--max-restarts` allows.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import IO, Any

__all__ = ["main"]

GRACE = 10.0  # seconds between asking a process to end and ending it


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m engine.distributed.run", description="Run a script in several processes of this machine."
    )
    parser.add_argument("--nproc-per-node", "--nproc_per_node", default="1", help="processes: a number, auto or cpu")
    parser.add_argument("--nnodes", default="1", help="machines; only 1 here, mpirun starts several")
    parser.add_argument("--node-rank", "--node_rank", type=int, default=0)
    parser.add_argument("--standalone", action="store_true", help="a free port, as without --master-port")
    parser.add_argument("--master-addr", "--master_addr", default="127.0.0.1")
    parser.add_argument("--master-port", "--master_port", type=int, default=0, help="0: a free one")
    parser.add_argument("--max-restarts", "--max_restarts", type=int, default=0)
    parser.add_argument("--monitor-interval", "--monitor_interval", type=float, default=0.1)
    parser.add_argument("--rdzv-backend", "--rdzv_backend", default="static")
    parser.add_argument("--rdzv-endpoint", "--rdzv_endpoint", default="")
    parser.add_argument("--rdzv-id", "--rdzv_id", default="")
    parser.add_argument("--log-dir", "--log_dir", type=Path, help="a file a rank: FOLDER/<restart>/<rank>.log")
    parser.add_argument("--tee", action="store_true", help="with --log-dir: show the output, too")
    parser.add_argument("-m", "--module", action="store_true", help="SCRIPT is a module, as with python -m")
    parser.add_argument("--no-python", "--no_python", action="store_true", help="SCRIPT is a program")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def _copy(source: IO[bytes], rank: int, log: IO[bytes] | None, show: bool) -> None:
    """Pass on a rank's output line by line, with its number before each."""
    with source, contextlib.ExitStack() as stack:
        if log is not None:
            stack.enter_context(log)
        for line in source:
            if log is not None:
                log.write(line)
                log.flush()
            if show:
                sys.stdout.buffer.write(f"[rank{rank}]: ".encode() + line)
                sys.stdout.buffer.flush()


class _Job:
    """The processes of one attempt."""

    def __init__(self, options: Any, count: int, port: int, attempt: int, run_id: str) -> None:
        self.processes: list[subprocess.Popen[bytes]] = []
        self.threads: list[threading.Thread] = []
        command = [] if options.no_python else [sys.executable, "-u", "-m", "engine.torch_alias"]
        command += ["-m", options.script] if options.module else [options.script]
        for rank in range(count):
            environment = {
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(count),
                "GROUP_RANK": "0",
                "LOCAL_WORLD_SIZE": str(count),
                "MASTER_ADDR": options.master_addr,
                "MASTER_PORT": str(port),
                "TORCHELASTIC_RUN_ID": run_id,
                "TORCHELASTIC_RESTART_COUNT": str(attempt),
                "TORCHELASTIC_MAX_RESTARTS": str(options.max_restarts),
                "TORCHELASTIC_USE_AGENT_STORE": "True",
            }
            if count > 1:
                environment.setdefault("OMP_NUM_THREADS", "1")
            process = subprocess.Popen(
                [*command, *options.arguments],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self.processes.append(process)
            log = None
            if options.log_dir is not None:
                folder = options.log_dir / str(attempt)
                folder.mkdir(parents=True, exist_ok=True)
                log = open(folder / f"{rank}.log", "wb")  # noqa: SIM115 (closed by the thread)
            assert process.stdout is not None
            show = log is None or options.tee
            thread = threading.Thread(target=_copy, args=(process.stdout, rank, log, show), daemon=True)
            thread.start()
            self.threads.append(thread)

    def wait(self, interval: float) -> list[tuple[int, int]]:
        """Wait until all have ended well ([]), or some have failed: (rank, exit code) of those."""
        while True:
            codes = [process.poll() for process in self.processes]
            failed = [(rank, code) for rank, code in enumerate(codes) if code]
            if failed or None not in codes:
                return failed
            time.sleep(interval)

    def end(self) -> None:
        """End what still runs, and pass on the rest of the output."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + GRACE
            for process in self.processes:
                if process.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, number)
            while any(p.poll() is None for p in self.processes) and time.monotonic() < deadline:
                time.sleep(0.02)
        for thread in self.threads:
            thread.join(GRACE)


def _count(text: str) -> int:
    if text in ("auto", "cpu"):
        return os.cpu_count() or 1
    if not text.isdigit() or not int(text):
        raise SystemExit(f"--nproc-per-node {text}: expected a number from 1, auto or cpu")
    return int(text)


def main(arguments: list[str] | None = None) -> int:
    """Run the job; its exit status: 0, or 1 when a rank failed."""
    options = _parser().parse_args(arguments)
    if options.nnodes not in ("1", "1:1"):
        raise SystemExit(f"--nnodes {options.nnodes}: this launcher serves one machine; start several with mpirun")
    count = _count(options.nproc_per_node)
    run_id = options.rdzv_id or uuid.uuid4().hex
    attempt = 0
    while True:
        from engine.distributed.store import TCPStore

        store = TCPStore(options.master_addr, options.master_port, is_master=True, wait_for_workers=False)
        job = _Job(options, count, store.port, attempt, run_id)
        try:
            failed = job.wait(options.monitor_interval)
        except KeyboardInterrupt:
            print("interrupted: ending all ranks", file=sys.stderr)
            job.end()
            return 130
        job.end()
        store.close()
        if not failed:
            return 0
        for rank, code in failed:
            reason = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            print(f"rank {rank} (process {job.processes[rank].pid}) failed: {reason}", file=sys.stderr)
        if attempt == options.max_restarts:
            return 1
        attempt += 1
        print(f"starting all ranks again ({attempt} of {options.max_restarts})", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
