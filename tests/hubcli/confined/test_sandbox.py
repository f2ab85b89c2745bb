"""The sandbox, by each mechanism that this machine has: what a hostile entrypoint can and cannot do."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import stat
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from hubcli.base import paths
from hubcli.base.spec import RepoSpec
from hubcli.cache.cache import Cache
from hubcli.confined import jobs, sandbox
from hubcli.confined.broker import Broker
from hubcli.confined.restrict import Limits
from hubcli.confined.sandbox import Mechanism
from hubcli.confined.supervisor import Outcome
from hubcli.errors import HubError, IntegrityError, NeedsNetworkError, RepositoryCodeError
from hubcli.running.inference import Input
from tests.hubcli.hostile import HUBCONF
from tests.servers import Repository, file_server, git_server

NAMES = ("bubblewrap", "landlock")

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")


def usable(name: str) -> Mechanism:
    reason = sandbox.reasons()[name]
    if reason is not None:
        pytest.skip(f"{name}: {reason}")
    return sandbox.mechanism(name)


@pytest.fixture(params=NAMES)
def mechanism(request: pytest.FixtureRequest) -> Mechanism:
    return usable(request.param)


@pytest.fixture
def any_mechanism() -> Mechanism:
    """The first that works here, for what does not depend on it."""
    found = next((name for name, reason in sandbox.reasons().items() if reason is None), None)
    if found is None:
        pytest.skip(f"no sandbox on this machine: {sandbox.reasons()}")
    return sandbox.mechanism(found)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    folder = tmp_path / "hostile"
    folder.mkdir()
    (folder / "hubconf.py").write_text(HUBCONF)
    return folder


def perform(folder: Path, chosen: Mechanism, entrypoint: str, *args: Any, limits: Limits | None = None) -> Outcome:
    checkout = Cache.current().checkout(RepoSpec.parse(str(folder)))
    job = jobs.Job("load", checkout, entrypoint, args)
    with sandbox.session() as here:
        broker = Broker(checkout, entrypoint, inbox=here.inbox)
        return sandbox.perform(job, chosen, here, broker=broker, limits=limits or Limits())


def load(folder: Path, chosen: Mechanism, entrypoint: str, *args: Any, save: Path | None = None) -> jobs.Loaded:
    checkout = Cache.current().checkout(RepoSpec.parse(str(folder)))
    job = jobs.Job("load", checkout, entrypoint, args, options={"save": save is not None})
    return jobs.load(job, chosen, Broker(checkout, entrypoint), save)


# What a hostile entrypoint reaches


@contextlib.contextmanager
def evidence(chosen: Mechanism, root: Path) -> Iterator[SimpleNamespace]:
    """A child that tries everything, and what the parent saw of it."""
    home, folder, cache = root / "home", root / "hostile", root / "hub"
    for made in (home, folder, cache):
        made.mkdir()
    secret = home / "secret"
    secret.write_text("the secret")
    secret.chmod(0o600)
    (cache / "trust.json").write_text('{"version": 1, "trusted": []}')
    (folder / "hubconf.py").write_text(HUBCONF)
    unique = f"hub-test-{paths.unique()}"
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in {
            "HOME": home,
            "TORCH_HUB_DIR": cache,
            "HUB_TOKEN": "s3cret-token",
        }.items():
            patch.setenv(name, str(value))
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listening.setblocking(False)
        unix = stack.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind(f"\0{unique}")
        unix.listen()
        facts = {
            "home": str(home),
            "secret": str(secret),
            "cache": str(cache),
            "port": listening.getsockname()[1],
            "unix": f"\0{unique}",
            "parent": os.getpid(),
            "unique": unique,
        }
        (folder / "facts.json").write_text(json.dumps(facts))
        outcome = perform(folder, chosen, "probe", str(folder / "facts.json"))
        try:
            listening.accept()
            connected = True
        except BlockingIOError:
            connected = False
        lines = [line for line in outcome.printed.splitlines() if line.startswith("EVIDENCE ")]
        assert lines, (outcome, outcome.printed)
        yield SimpleNamespace(
            said=json.loads(lines[-1].removeprefix("EVIDENCE ")),
            connected=connected,
            secret=secret,
            home=home,
            folder=folder,
            unique=unique,
        )


REFUSED = (
    "tcp", "udp", "unix", "netlink", "io_uring", "child_tcp", "read_home", "list_home",
    "read_home_through_proc", "child_read_home", "read_passwd", "read_cache", "read_parent", "token",
    "write_home", "overwrite_home", "truncate_home", "remove_home", "rename_home", "link_home",
    "write_checkout", "write_python", "write_inbox", "write_tmp", "mknod", "signal_parent",
    "ptrace_parent", "user_namespace", "memfd", "mount", "terminal",
)  # fmt: skip


POSSIBLE = ("scratch", "socketpair", "own_chmod", "subprocess", "thread", "raise_signal")


def test_what_a_hostile_entrypoint_reaches(mechanism, tmp_path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    with evidence(mechanism, root) as found:
        said = found.said
        assert {name: said[name] for name in REFUSED if said[name].startswith("done")} == {}
        assert {name: said[name] for name in POSSIBLE if not said[name].startswith("done")} == {}
        # and seen from outside, nothing has changed
        assert not found.connected
        assert found.secret.read_text() == "the secret"
        status = found.secret.stat()
        assert stat.S_IMODE(status.st_mode) == 0o600
        assert status.st_mtime > 1e9
        assert [one.name for one in found.home.iterdir()] == ["secret"]
        assert sorted(one.name for one in found.folder.iterdir()) == ["facts.json", "hubconf.py"]
        assert not Path("/tmp", found.unique).exists()
        assert not Path("/dev/shm", found.unique).exists()


# Limits, and ends without a result

SMALL = Limits(cpu=60, memory=300 << 20, tasks=64, file=1 << 20, seconds=120)


@pytest.mark.long
@pytest.mark.parametrize(
    ("entrypoint", "args", "limits", "why", "text"),
    [
        ("spins", (), Limits(cpu=1, seconds=120), "cpu", "more than 1 s of CPU time"),
        ("sleeps", (), Limits(seconds=1.0), "timeout", "not done after 1 s"),
        ("eats", (True,), SMALL, "memory", "more than 314.6 MB of memory"),
        ("forks", (), Limits(tasks=64, seconds=120), "tasks", "more than 64 processes and threads"),
        ("exits", (), SMALL, "exit", "status 3"),
        ("kills_itself", (), SMALL, "signal", "killed by SIGKILL"),
        ("crashes", (), SMALL, "signal", "killed by SIGSEGV"),
        ("floods", (), Limits(seconds=1.0), "timeout", "not done after 1 s"),
        ("forges", ("not json at all",), SMALL, "protocol", "broke hub's protocol"),
        ("forges", ("\2\0\0\0[]",), SMALL, "protocol", "broke hub's protocol"),
        ("forges", ("\xff\xff\xff\x7f",), SMALL, "protocol", "bytes"),
        ("asks_and_never_listens", (), SMALL, "protocol", "does not read its answers"),
    ],
)
def test_ended(hostile, any_mechanism, entrypoint, args, limits, why, text) -> None:
    started = time.monotonic()
    outcome = perform(hostile, any_mechanism, entrypoint, *args, limits=limits)
    assert outcome.result is None and outcome.ended is not None, outcome
    assert outcome.ended.why == why
    assert text in outcome.ended.text
    assert time.monotonic() - started < 100
    assert len(outcome.printed) < 20_000


def test_closing_the_pipes_is_an_end_too(hostile, any_mechanism) -> None:
    outcome = perform(hostile, any_mechanism, "closes", limits=Limits(seconds=1.0))
    assert outcome.result is None and outcome.ended is not None
    assert outcome.ended.why in ("protocol", "timeout")  # bubblewrap's own process keeps them open


def test_memory_of_its_own_is_refused_to_the_process(hostile, mechanism) -> None:
    outcome = perform(hostile, mechanism, "eats", limits=SMALL)
    assert outcome.error is not None and "MemoryError" in outcome.error.message


def test_nothing_goes_on_running(hostile, mechanism) -> None:
    marker = f"{600 + os.getpid() / 1e6:.6f}"
    outcome = perform(hostile, mechanism, "leaves_a_child", marker)
    assert outcome.result is not None, outcome

    def alive() -> list[str]:
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if marker.encode() in Path("/proc", pid, "cmdline").read_bytes():
                    found.append(pid)
        return found

    deadline = time.monotonic() + 60
    while alive() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert alive() == []


def test_cancelled(hostile, any_mechanism) -> None:
    checkout = Cache.current().checkout(RepoSpec.parse(str(hostile)))
    cancelled = threading.Event()
    cancelled.set()
    with sandbox.session() as here:
        outcome = sandbox.perform(jobs.Job("load", checkout, "sleeps"), any_mechanism, here, cancelled=cancelled)
    assert outcome.ended is not None and outcome.ended.why == "cancelled"


def test_no_folder_stays(hostile, any_mechanism) -> None:
    perform(hostile, any_mechanism, "net")
    assert list(paths.partial().iterdir()) == []


def test_a_read_only_cache_will_do(hostile, any_mechanism, monkeypatch) -> None:
    def refuse(*args: Any) -> Any:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(paths, "ensure_root", refuse)
    assert perform(hostile, any_mechanism, "net").result is not None


# What it brings


def test_the_same_model_as_without(hostile, mechanism, tmp_path) -> None:
    confined = load(hostile, mechanism, "net", save=tmp_path / "a.safetensors")
    plain = load(hostile, sandbox.mechanism("none"), "net", save=tmp_path / "b.pth")
    assert confined.model == plain.model
    assert confined.model.parameters == 9
    import engine

    other = engine.load(tmp_path / "b.pth")
    for name, array in load_file(tmp_path / "a.safetensors").items():
        assert np.array_equal(array, other[name].numpy())


def test_run(hostile, any_mechanism) -> None:
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    results = []
    for chosen in (any_mechanism, sandbox.mechanism("none")):
        checkout = Cache.current().checkout(RepoSpec.parse(str(hostile)))
        job = jobs.Job("run", checkout, "net", options={"device": None})
        results.append(jobs.run(job, chosen, Broker(checkout, "net"), [Input(None, x)]))
    assert results[0].outputs[0].array.shape == (4, 3)
    assert np.array_equal(results[0].outputs[0].array, results[1].outputs[0].array)


@pytest.mark.parametrize("what", ["link", "pipe", "pickle"])
def test_results_that_are_no_tensors(hostile, any_mechanism, tmp_path, what) -> None:
    with pytest.raises((RepositoryCodeError, IntegrityError)):
        load(hostile, any_mechanism, "swaps", what, save=tmp_path / "x.safetensors")
    assert not (tmp_path / "x.safetensors").exists()


def test_what_it_prints_does_not_drive_the_terminal(hostile, any_mechanism, capfd) -> None:
    load(hostile, any_mechanism, "colours")
    said = capfd.readouterr()
    assert "[31mred" in said.err and "\x1b" not in said.err
    assert said.out == ""


# What the parent fetches


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    files = tmp_path / "files"
    files.mkdir()
    save_file({"weight": np.ones((3, 2), np.float32), "bias": np.zeros(3, np.float32)}, files / "net")
    digest = hashlib.sha256((files / "net").read_bytes()).hexdigest()
    name = f"net-{digest[:8]}.safetensors"
    (files / "net").rename(files / name)
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    with file_server(files) as served:
        yield SimpleNamespace(url=f"{served.url}/{name}", name=name, served=served, size=(files / name).stat().st_size)


@pytest.mark.long
def test_weights_come_through_the_parent(hostile, mechanism, weights, tmp_path) -> None:
    loaded = load(hostile, mechanism, "weighted", weights.url, save=tmp_path / "x.safetensors")
    assert [one.file for one in loaded.weights] == [weights.name]
    assert loaded.weights[0].used_by == ((str(hostile), "weighted"),)
    assert load_file(tmp_path / "x.safetensors")["weight"].sum() == 6
    assert (paths.checkpoints() / weights.name).is_file()
    weights.served.reset()
    load(hostile, mechanism, "weighted", weights.url)
    assert weights.served.requests == []


@pytest.mark.parametrize("entrypoint", ["downloads", "retrieves"])
def test_other_downloads_too(hostile, any_mechanism, weights, entrypoint) -> None:
    outcome = perform(hostile, any_mechanism, entrypoint, weights.url)
    assert outcome.error is None, outcome.error
    assert f"SIZE {weights.size}" in outcome.printed


def test_the_policy_is_the_parents(hostile, any_mechanism, weights, monkeypatch) -> None:
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "https")
    for entrypoint in ("weighted", "downloads"):
        outcome = perform(hostile, any_mechanism, entrypoint, weights.url)
        assert outcome.error is not None
        assert "protocol http is not allowed" in outcome.error.message
    assert weights.served.requests == []


def test_the_token_is_for_the_repositorys_host_alone(hostile, any_mechanism, weights, monkeypatch) -> None:
    monkeypatch.setenv("HUB_TOKEN", "s3cret-token")
    for entrypoint in ("weighted", "downloads"):
        assert perform(hostile, any_mechanism, entrypoint, weights.url).error is None
    assert weights.served.requests
    assert all("Authorization" not in one.headers for one in weights.served.requests)


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The repository `o/other`, on a server of its own."""
    repository = Repository.create(tmp_path / "served", "o/other")
    repository.commit({"hubconf.py": HUBCONF}, tag="v1")
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    with git_server(tmp_path / "served") as served:
        monkeypatch.setenv("HUB_GIT_URL", f"{served.url}/{{owner}}/{{repo}}.git")
        yield


def test_nested_repositories(hostile, any_mechanism, other, weights, monkeypatch) -> None:
    outcome = perform(hostile, any_mechanism, "nested", "o/other:v1", "net")
    assert outcome.error is not None and outcome.error.code == "untrusted"
    monkeypatch.setenv("HUB_TRUST", "commit")
    outcome = perform(hostile, any_mechanism, "nested", "o/other:v1", "weighted", weights.url)
    assert outcome.error is None, outcome.error
    from hubcli.cache.weights import used_by

    assert [one.file for one in used_by("o/other:v1")] == [weights.name]


def test_a_nested_folder_is_not_handed_out(hostile, any_mechanism, tmp_path) -> None:
    away = tmp_path / "home" / "away"
    away.mkdir()
    (away / "hubconf.py").write_text("def net():\n    return 1\n")
    outcome = perform(hostile, any_mechanism, "nested", f"{away}|", "net")  # not as a folder that the user names
    assert outcome.error is not None


def test_what_needs_the_network_says_so(hostile, any_mechanism) -> None:
    outcome = perform(hostile, any_mechanism, "reaches")
    assert isinstance(outcome.error, NeedsNetworkError)
    assert "it tried to reach example.invalid" in outcome.error.message
    assert "--no-sandbox" in (outcome.error.hint or "")


# Which mechanism


@pytest.fixture
def nothing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = {"bubblewrap": "bwrap is not installed", "landlock": "the kernel offers no Landlock"}
    monkeypatch.setattr(sandbox, "reasons", lambda: reasons)


def test_a_machine_without_any_is_a_clear_refusal(nothing_here, capfd) -> None:
    options = {"framework": "engine", "device": None}
    with pytest.raises(HubError) as raised:
        sandbox.choose(None, default=True, local=False, **options)
    assert "bwrap is not installed; landlock: the kernel offers no Landlock" in str(raised.value)
    assert "--sandbox=best-effort" in (raised.value.hint or "")
    with pytest.raises(HubError):
        sandbox.choose("on", default=False, local=True, **options)
    assert sandbox.choose("best-effort", default=True, local=False, **options).name == "best-effort"
    assert sandbox.choose(None, default=True, local=True, **options).name == "best-effort"
    assert "sandbox: best effort" in capfd.readouterr().err


def test_defaults(any_mechanism, capfd) -> None:
    def chosen(wanted: str | None, **options: Any) -> str:
        given = {"default": True, "local": False, "framework": "engine", "device": None}
        return sandbox.choose(wanted, **{**given, **options}).name

    assert chosen(None) == any_mechanism.name
    assert f"sandbox: {any_mechanism.says}" in capfd.readouterr().err
    assert chosen(None, local=True) == any_mechanism.name
    assert chosen(None, default=False) == "none"
    assert chosen("off") == "none"
    capfd.readouterr()
    assert chosen(None, framework="torch") == "none"
    assert "sandbox: none with --framework torch" in capfd.readouterr().err
    assert chosen(None, device="cuda:0") == "none"
    assert "sandbox: none with --device cuda:0" in capfd.readouterr().err
    assert chosen("on", framework="torch", device="cuda") == any_mechanism.name


def test_the_gpus_files_are_there_when_a_gpu_is_asked_for(tmp_path, monkeypatch) -> None:
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm", "sda"):
        (tmp_path / name).write_text("")
    monkeypatch.setattr(sandbox, "_DEVICES", tmp_path)
    wanted = [str(tmp_path / name) for name in ("nvidia-uvm", "nvidia0", "nvidiactl")]
    session, bwrap = sandbox.Session(tmp_path), sandbox.Mechanism("bubblewrap", (), "", "/usr/bin/bwrap")
    landlock = sandbox.Mechanism("landlock", ("landlock",), "")
    for device, found in ((None, []), ("cpu", []), ("cuda", wanted), ("cuda:1", wanted)):
        command = sandbox._bubblewrap_command(bwrap, session, [], device)
        assert [command[i + 1] for i, word in enumerate(command) if word == "--dev-bind"] == found
        allowed = sandbox.confinement(landlock, session, [], sandbox.Limits(), device)
        assert [path for path in allowed.devices if path.startswith(str(tmp_path))] == found
        assert ("/proc/driver" in allowed.read) == bool(found)


def test_best_effort_has_no_network_either(hostile, weights) -> None:
    chosen = sandbox.mechanism("best-effort")
    if "seccomp" not in chosen.layers:
        pytest.skip("no seccomp here")
    assert isinstance(perform(hostile, chosen, "reaches").error, NeedsNetworkError)
    assert perform(hostile, chosen, "weighted", weights.url).error is None


def test_a_sandbox_that_cannot_be_set_up_runs_nothing(hostile, any_mechanism, tmp_path) -> None:
    (hostile / "hubconf.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef net(): pass\n")
    broken = Mechanism("bubblewrap", any_mechanism.layers, "broken", "/bin/false")
    with pytest.raises(HubError, match="could not be started"):
        perform(hostile, broken, "net")
    assert not (tmp_path / "ran").exists()


def test_home_is_not_among_what_python_needs(monkeypatch, tmp_path) -> None:
    home = tmp_path / "home"
    (home / "work").mkdir()
    monkeypatch.setattr(sys, "path", [str(home), str(home / "work"), *sys.path])
    monkeypatch.setenv("PYTHONPATH", str(home))
    _, readable = sandbox.python_paths()
    assert str(home) not in readable and str(tmp_path) not in readable
    assert str(home / "work") in readable


def test_the_filter_refuses_other_architectures_and_newer_calls() -> None:
    from hubcli.confined import restrict

    if restrict.seccomp_reason():
        pytest.skip("no seccomp here")
    program = b"".join(restrict._program(True, True))
    assert len(program) % 8 == 0 and len(program) // 8 < 4096
    steps = [struct.unpack("=HBBI", program[at : at + 8]) for at in range(0, len(program), 8)]
    for index, (code, yes, no, _) in enumerate(steps):
        if code & 7 == 5:  # jumps go forward and stay inside
            assert index + 1 + max(yes, no) < len(steps)
    assert steps[2] == (0x06, 0, 0, 0x80000000)
    assert steps[-1] == (0x06, 0, 0, 0x7FFF0000)
