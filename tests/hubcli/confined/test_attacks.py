"""More attacks, each on every mechanism: other processes, system calls, descriptors, links, requests of the child."""

from __future__ import annotations

import json
import os
import platform
import resource
import signal
import sys
from pathlib import Path

import pytest

from hubcli.base.spec import RepoSpec
from hubcli.cache.cache import Cache
from hubcli.confined.broker import Broker
from hubcli.errors import HubError
from hubcli.net.http import secret_scope
from tests.hubcli.confined.test_escapes import evidence, perform
from tests.hubcli.confined.test_escapes import mechanism as mechanism

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")

HUBCONF = r"""
import ctypes, json, os, resource, socket, struct, subprocess, sys, threading

libc = ctypes.CDLL(None, use_errno=True)
LETTER = ctypes.create_string_buffer(b"x")
X86 = os.uname().machine == "x86_64"


def _call(x86, arm, *arguments):
    number = x86 if X86 else arm
    result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _say(tries):
    said = {}
    for name, what in tries.items():
        try:
            said[name] = f"done: {what()}"
        except BaseException as error:
            said[name] = f"{type(error).__name__}: {error}"
    print("EVIDENCE " + json.dumps(said), flush=True)
    return {}


def processes(parent):
    child = subprocess.Popen(["sleep", "600"])
    return _say({
        "kill": lambda: os.kill(parent, 0),
        "kill_group": lambda: os.killpg(parent, 0),
        "tgkill": lambda: _call(234, 131, parent, parent, 0),
        "tkill": lambda: _call(200, 130, parent, 0),
        "queue": lambda: _call(129, 138, parent, 0, ctypes.addressof(ctypes.create_string_buffer(128))),
        "pidfd": lambda: os.pidfd_open(parent),
        "prlimit": lambda: resource.prlimit(parent, resource.RLIMIT_NOFILE, (64, 64)),
        "priority": lambda: os.setpriority(os.PRIO_PROCESS, parent, 19),
        "affinity": lambda: os.sched_setaffinity(parent, {0}),
        "scheduler": lambda: os.sched_setscheduler(parent, os.SCHED_IDLE, os.sched_param(0)),
        "vm_read": lambda: _call(310, 270, parent, 0, 0, 0, 0, 0),
        "vm_write": lambda: _call(311, 271, parent, 0, 0, 0, 0, 0),
        "kcmp": lambda: _call(312, 272, parent, os.getpid(), 0, 0, 0),
        "ptrace_seize": lambda: _call(101, 117, 0x4206, parent, 0, 0),
        "session": lambda: os.setsid() if os.getsid(0) != os.getpid() else os.setpgid(0, 0),
        "own_child": lambda: (child.terminate(), child.wait())[1],
        "own_thread": lambda: threading.Thread(target=int).start(),
    })


def everybody():
    return _say({"kill": lambda: os.kill(-1, __import__("signal").SIGURG)})


def calls():
    return _say({
        "bpf": lambda: _call(321, 280, 0, 0, 0),
        "userfaultfd": lambda: _call(323, 282, 0),
        "perf": lambda: _call(298, 241, 0, 0, -1, -1, 0),
        "keyctl": lambda: _call(250, 219, 0, -3, 1),
        "add_key": lambda: _call(248, 217, 0, 0, 0, 0, -3),
        "clone3": lambda: _call(435, 435, 0, 0),
        "clone_user": lambda: _call(56, 220, 0x10000000 | 17, 0, 0, 0, 0),
        "clone_time_and_net": lambda: _call(56, 220, 0x40000000 | 17, 0, 0, 0, 0),
        "io_uring": lambda: _call(425, 425, 4, 0),
        "io_uring_register": lambda: _call(427, 427, -1, 0, 0, 0),
        "memfd": lambda: _call(319, 279, ctypes.addressof(ctypes.create_string_buffer(b"x")), 0),
        "memfd_secret": lambda: _call(447, 447, 0),
        "fanotify": lambda: _call(300, 262, 0, 0),
        "handle": lambda: _call(304, 265, -100, 0, 0),
        "mount_setattr": lambda: _call(442, 442, -100, 0, 0, 0, 0),
        "fsopen": lambda: _call(430, 430, 0, 0),
        "open_tree": lambda: _call(428, 428, -100, 0, 1),
        "setns": lambda: _call(308, 268, 0, 0),
        "chroot": lambda: os.chroot("."),
        "personality": lambda: _call(135, 92, 0x0040000),
        "reboot": lambda: _call(169, 142, 0, 0, 0, 0),
        "syslog": lambda: _call(103, 116, 3, 0, 0),
        "newest": lambda: _call(4000, 4000),
        "vsock": lambda: socket.socket(40, socket.SOCK_STREAM),
        "packet": lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
        "alg": lambda: socket.socket(38, socket.SOCK_SEQPACKET),
        "tiocsti": lambda: __import__("fcntl").ioctl(0, 0x5412, b"x"),
        "tiocsti_high": lambda: _call(16, 29, 0, (1 << 40) | 0x5412, ctypes.addressof(LETTER)),
        "device": lambda: os.mknod("device", 0o600 | 0o060000, os.makedev(8, 0)),
        "no_root": lambda: os.setgroups([0, 1, 2]),
    })


def x32():
    return _say({
        "getpid": lambda: _call(0x40000000 | 39, 172),
        "ptrace": lambda: _call(0x40000000 | 521, 117, 0, 0, 0, 0),
        "socket": lambda: _call(0x40000000 | 41, 198, 2, 1, 0),
    })


def descriptors():
    found = {}
    for name in sorted(map(int, os.listdir("/proc/self/fd"))):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            pass
    with open("/proc/self/environ") as file:
        environment = file.read()
    return _say({"found": lambda: json.dumps(found), "environment": lambda: "s3cret" in environment + str(os.environ)})


def files(parent, secret):
    secret = secret.rstrip("|")
    here = os.getcwd()
    inbox = os.path.join(os.path.dirname(here), "inbox")

    def write(path, mode="w"):
        with open(path, mode) as file:
            file.write("x" if "b" not in mode else b"x")

    def read(path):
        with open(path, "rb") as file:
            return file.read(20)

    def link():
        os.link(os.path.join(inbox, "job.json"), "job")
        write("job", "r+")

    def through_link():
        os.symlink(secret, "innocent")
        return read("innocent")

    def through_descriptor():
        folder = os.open(here, os.O_RDONLY | os.O_DIRECTORY)
        up = os.path.relpath(secret, here)
        return os.read(os.open(up, os.O_RDONLY, dir_fd=folder), 20)

    return _say({
        "link_inbox": link,
        "inbox_in_place": lambda: write(os.path.join(inbox, "job.json"), "r+"),
        "rename_inbox": lambda: os.rename(inbox, os.path.join(here, "taken")),
        "rename_scratch": lambda: os.rename(here, here + "2"),
        "replace_scratch": lambda: os.symlink("/etc", os.path.join(os.path.dirname(here), "scratch3")),
        "through_link": through_link,
        "through_descriptor": through_descriptor,
        "parent_environ": lambda: read(f"/proc/{parent}/environ"),
        "parent_mem": lambda: write(f"/proc/{parent}/mem", "r+b"),
        "parent_root": lambda: read(f"/proc/{parent}/root{secret}"),
        "parent_cwd": lambda: os.listdir(f"/proc/{parent}/cwd"),
        "parent_fd": lambda: os.listdir(f"/proc/{parent}/fd"),
        "parent_maps": lambda: read(f"/proc/{parent}/maps"),
        "init_root": lambda: read("/proc/1/root" + secret),
        "sysrq": lambda: os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY)),
        # opened only: what root could write there would hold for the whole machine
        "core_pattern": lambda: open("/proc/sys/kernel/core_pattern", "r+").close(),
        "modprobe": lambda: open("/proc/sys/kernel/modprobe", "r+").close(),
        "binfmt": lambda: open("/proc/sys/fs/binfmt_misc/register", "r+").close(),
        "oom_of_parent": lambda: write(f"/proc/{parent}/oom_score_adj"),
        "kmsg": lambda: read("/dev/kmsg"),
        "mem": lambda: read("/dev/mem"),
        "cgroup": lambda: os.close(os.open("/sys/fs/cgroup/memory/cgroup.procs", os.O_WRONLY)),
        "pipe_in_checkout": lambda: os.mkfifo(os.path.join(os.path.dirname(__file__), "pipe")),
        "pyc_in_python": lambda: write(os.path.join(os.path.dirname(json.__file__), "__pycache__", "planted.pyc")),
        "truncate": lambda: os.truncate(secret, 0),
        "own": lambda: write("own"),
    })
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "attacks"
    made.mkdir()
    (made / "hubconf.py").write_text(HUBCONF)
    return made


def done(said: dict[str, str]) -> set[str]:
    return {name for name, text in said.items() if text.startswith("done")}


def test_other_processes(folder, mechanism):
    """Signals, limits, priorities, memory: nothing of it for the parent, all of it for what it started itself."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0)
    said = evidence(perform(folder, mechanism, "processes", os.getpid()))
    allowed = {"own_child", "own_thread"}
    if mechanism.name == "bubblewrap":  # ends with its namespace
        allowed.add("session")
    if mechanism.name == "landlock" and not said["own_child"].startswith("done"):
        allowed.remove("own_child")  # before the sixth Landlock no signal goes anywhere
    assert done(said) == allowed, said
    after = resource.getrlimit(resource.RLIMIT_NOFILE), os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0)
    assert before == after


def test_a_signal_to_everybody(folder, mechanism):
    """One that is ignored where nobody waits for it; the call says yes where it reaches nobody, too."""
    heard = []
    before = signal.signal(signal.SIGURG, lambda *_: heard.append(1))
    try:
        perform(folder, mechanism, "everybody")
    finally:
        signal.signal(signal.SIGURG, before)
    assert heard == []


def test_system_calls(folder, mechanism):
    assert done(evidence(perform(folder, mechanism, "calls"))) == set()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x32 is of x86-64")
def test_the_other_numbers_of_the_same_calls(folder, mechanism):
    assert done(evidence(perform(folder, mechanism, "x32"))) == set()


def test_nothing_is_inherited(folder, mechanism, tmp_path, monkeypatch):
    monkeypatch.setenv("HUB_TOKEN", "s3cret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    secret = tmp_path / "secret"
    secret.write_text("x")
    with secret.open() as file:
        os.set_inheritable(file.fileno(), True)
        said = evidence(perform(folder, mechanism, "descriptors"))
    found = json.loads(said["found"].removeprefix("done: "))
    assert said["environment"] == "done: False"
    targets = [one for one in found.values() if "/proc/" not in one]
    assert str(secret) not in targets
    assert all(one.startswith("pipe:") or one == "/dev/null" for one in targets), found


OF_OTHERS = {"parent_environ", "parent_mem", "parent_root", "parent_cwd", "parent_fd", "parent_maps", "oom_of_parent"}


def test_links_and_the_system_behind_files(folder, mechanism, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    if mechanism.name == "best-effort":
        pytest.skip("it hides no files, and says so")
    said = evidence(perform(folder, mechanism, "files", os.getpid(), f"{secret}|"))  # not as a file that the user names
    assert done(said) == {"own"}, said
    assert secret.read_text() == "the secret"
    assert sorted(one.name for one in folder.iterdir()) == ["hubconf.py"]


# What a child asks for


@pytest.mark.parametrize(
    "request_",
    [
        {"ask": "weights", "url": "https://example.invalid/x.pth", "file_name": "../../../escaped.pth"},
        {"ask": "weights", "url": "https://example.invalid/x.pth", "file_name": "/tmp/escaped.pth"},
        {"ask": "weights", "url": "https://example.invalid/..", "file_name": None},
        {"ask": "weights", "url": "https://example.invalid/x.pth", "file_name": "a\0b"},
        {"ask": "weights", "url": "https://user:password@example.invalid/x.pth"},
        {"ask": "weights", "url": "FILE:///etc/passwd"},
        {"ask": "weights", "url": " file:///etc/passwd"},
        {"ask": "weights", "url": "ftp://example.invalid/x"},
        {"ask": "weights", "url": "https://example.invalid/\r\nHost: evil/x.pth"},
        {"ask": "fetch", "url": "file:/etc/passwd"},
        {"ask": "fetch", "url": "fi\tle:///etc/passwd"},
        {"ask": "fetch", "url": None},
        {"ask": "checkout", "spec": "../../etc"},
        {"ask": "checkout", "spec": "file:///etc"},
        {"ask": "checkout", "spec": "ext::sh -c id"},
        {"ask": "checkout", "spec": "--upload-pack=id"},
        {"ask": "checkout", "spec": "ssh://-oProxyCommand=id/a/b.git"},
        {"ask": "checkout", "spec": "x" * 5000},
        {"ask": "trust", "spec": "o/r"},
        {"ask": ["weights"], "url": "https://example.invalid/x"},
    ],
)
def test_requests_that_are_refused_before_anything_is_fetched(folder, tmp_path, monkeypatch, request_):
    def fetched(*_: object, **__: object) -> None:
        raise AssertionError("something was asked of the network")

    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "https,ssh,file")
    monkeypatch.setattr("requests.Session.send", fetched)
    monkeypatch.setattr("hubcli.net.git.process.stream", fetched)
    checkout = Cache.current().checkout(RepoSpec.parse(str(folder)))
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    broker = Broker(checkout, "x", inbox=inbox)
    with pytest.raises(HubError), secret_scope.naming(frozenset()):
        broker.answer(request_)
    assert not list(tmp_path.rglob("*escaped*")) and not list(inbox.iterdir())
