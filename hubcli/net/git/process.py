"""The only module that starts git: through GitPython, with an environment that trusts no remote.

No prompt, hook, submodule, filter or foreign protocol runs; of the user's own git configuration an
allow-list passes.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubcli.base import once
from hubcli.base.output import Progress, size
from hubcli.errors import HubError, IntegrityError, UsageError
from hubcli.net.git.database import disarm
from hubcli.net.git.errors import failure, last_line

if TYPE_CHECKING:
    from git import Git

_END_SECONDS = 10  # for git and its helpers to end after they were told to
_CHECK_SECONDS = 0.2  # how often the size of what arrives is looked at
_LONGEST, _LARGEST = 1 << 16, 64 << 20  # characters of a line that git says, and of all that it says of a remote
_HTTP = r"http\.(.*\.)?(proxy|proxyauthmethod|sslcainfo|sslcapath|sslcert|sslkey)"
_USER_CONFIG = rf"^(credential\..*|{_HTTP}|http\..*\.extraheader|url\..*\.insteadof)$"
# what git takes for true whatever its value is, or what has it write on stderr what it sends
_UNSET = ("GIT_SSL_NO_VERIFY", "GIT_CURL_VERBOSE", "GIT_CONFIG")

# What an inherited variable could change, set to what it is without one (GitPython's `env=` can
# replace a variable but not remove it).
NEUTRAL = {
    "GIT_ALTERNATE_OBJECT_DIRECTORIES": "",
    "GIT_ASKPASS": "",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_PARAMETERS": "",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NAMESPACE": "",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TRACE": "0",
    "GIT_TRACE_CURL": "0",
    "GIT_TRACE_PACKET": "0",
    "SSH_ASKPASS": "",
}

_HARDENED = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_PROTOCOL_FROM_USER": "0",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
}

CONFIG = (
    ("core.hooksPath", os.devnull),
    ("core.fsmonitor", "false"),
    ("core.attributesFile", os.devnull),
    ("core.autocrlf", "false"),
    ("core.symlinks", "true"),
    ("checkout.workers", "0"),
    ("core.protectHFS", "true"),
    ("core.protectNTFS", "true"),
    ("transfer.fsckObjects", "true"),
    ("fetch.fsckObjects", "true"),
    ("transfer.bundleURI", "false"),
    # What old, well-known repositories carry and no program trips over is let through.
    ("fetch.fsck.zeroPaddedFilemode", "warn"),
    ("fetch.fsck.badTimezone", "warn"),
    ("fetch.fsck.missingSpaceBeforeDate", "warn"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("credential.helper", ""),
    ("http.lowSpeedLimit", "1000"),
)


def environment_of(config: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the environment that gives git this configuration, and nothing of the one inherited."""
    environment = {**NEUTRAL, **_HARDENED, "GIT_CONFIG_COUNT": str(len(config))}
    for number, (key, value) in enumerate(config):
        environment[f"GIT_CONFIG_KEY_{number}"] = key
        environment[f"GIT_CONFIG_VALUE_{number}"] = value
    return environment


def location(db: Path | None) -> dict[str, str]:
    """Return where git works: in `db`, or in no repository at all, whatever the present folder is."""
    if db is None:
        return {"GIT_DIR": os.devnull}
    return {
        "GIT_DIR": str(db),
        "GIT_COMMON_DIR": str(db),
        "GIT_OBJECT_DIRECTORY": str(db / "objects"),
    }


def local(db: Path | None) -> dict[str, str]:
    """Return the environment for work that no remote takes part in."""
    if db is not None:
        disarm(db)
    return {**environment_of(CONFIG), **location(db), "GIT_ALLOW_PROTOCOL": "none"}


def user_config() -> list[tuple[str, str]]:
    """Return what passes of the user's own git configuration: of files, GIT_CONFIG_COUNT and `git -c` alike.

    Credential helpers, insteadOf rules, proxies, authorities, client certificates, the headers for one server.
    """
    return _configured("--get-regexp", _USER_CONFIG)


def http_config(url: str) -> dict[str, str]:
    """Return the http.* settings that the user's own git configuration has for `url`, as git matches them; names in
    lower
    case.  Empty where there is no git."""
    plain = re.split(r"[?#]", url, maxsplit=1)[0]  # others see the arguments of a process, and queries carry keys
    if not plain.isprintable():
        return {}
    with contextlib.suppress(NoGitError):
        return dict(_configured("--get-urlmatch", "http", plain))
    return {}


def _configured(*query: str) -> list[tuple[str, str]]:
    own = {name: value for name, value in NEUTRAL.items() if name != "GIT_CONFIG_PARAMETERS"}
    status, out, err = execute(["config", "--includes", "-z", *query], {**own, "GIT_DIR": os.devnull})
    if status > 1:  # 1 says that there is no such thing
        once.warning(
            f"your git configuration (files, GIT_CONFIG_COUNT, git -c) cannot be read, and is left out: "
            f"{last_line(err)}",
            *("git config", err),
        )
        return []
    pairs = (item.partition("\n") for item in out.split("\0") if item)
    return [(key, value) for key, _, value in pairs]


def effective_url(url: str, config: Sequence[tuple[str, str]] | None = None) -> str:
    """Return the URL that git makes of `url` by the user's insteadOf rules."""
    rules = [pair for pair in (user_config() if config is None else config) if pair[0].endswith(".insteadof")]
    if not rules:
        return url
    return run(["ls-remote", "--get-url", "--", url], {**environment_of(rules), **location(None)}).rstrip("\n")


def run(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Run a quick command to its end: its stdout; raises what its stderr means."""
    status, out, err = execute(command, environment)
    if status != 0:
        raise failure(err, None)
    return out


class NoGitError(HubError):
    """There is no git on this machine."""


@functools.cache
def launcher() -> type[Git]:
    """GitPython's class, imported at first use; HubError where there is no git."""
    try:
        from git import Git
    except ImportError as error:
        raise NoGitError(
            "git is not installed, or GIT_PYTHON_GIT_EXECUTABLE names no git",
            hint="install git (https://git-scm.com) and run again",
        ) from error
    return Git


def _program(git: type[Git]) -> list[str]:
    """git, without the variables that GitPython's `env=` cannot remove."""
    inherited = [name for name in _UNSET if name in os.environ]
    if inherited and os.name == "posix":
        unset = [word for name in inherited for word in ("-u", name)]
        return ["/usr/bin/env", *unset, str(git.GIT_PYTHON_GIT_EXECUTABLE)]
    if "GIT_SSL_NO_VERIFY" in inherited:
        raise UsageError("GIT_SSL_NO_VERIFY turns off what hub never does without", hint="unset it")
    return [str(git.GIT_PYTHON_GIT_EXECUTABLE)]


def execute(command: Sequence[str], environment: Mapping[str, str], stdin: str | Path = "") -> tuple[int, str, str]:
    """Run a quick command to its end: status, stdout (file names as the system has them), stderr."""
    git = launcher()
    if isinstance(stdin, str):
        read, write = os.pipe()  # a pipe holds the few lines that there ever are
        os.write(write, stdin.encode())
        os.close(write)
    with open(stdin if isinstance(stdin, Path) else read, "rb") as pipe:
        status, out, err = git(os.sep).execute(
            [*_program(git), *command],
            istream=pipe,
            with_extended_output=True,
            with_exceptions=False,
            stdout_as_string=False,
            strip_newline_in_stdout=False,
            shell=False,
            env=environment,
        )
    return int(status), os.fsdecode(out), str(err)


def stream(
    command: Sequence[str],
    environment: Mapping[str, str],
    progress: Progress | None,
    check: Callable[[], bool] | None = None,
) -> tuple[int, str, str]:
    """Run a command that may last: stderr's progress lines go to `progress`, interruptible.

    It is ended when `check`, called every so often, returns False.
    """
    git = launcher()
    process = git(os.sep).execute(
        [*_program(git), *command],
        as_process=True,
        universal_newlines=True,
        shell=False,
        env=environment,
    )
    out: list[str] = []
    err: list[str] = []
    length = 0

    def line_read(line: str) -> None:
        nonlocal length
        length += len(line)
        if length > _LARGEST:
            raise IntegrityError(f"the server's list of refs has more than {size(_LARGEST)}")
        out.append(line)

    on_progress = _progress_reader(progress, err) if progress else err.append
    proc = process.proc
    assert proc is not None
    done = threading.Event()

    def watch() -> None:
        while check and not done.wait(_CHECK_SECONDS):
            if not check():
                proc.terminate()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    if check:
        watcher.start()
    readers = [_Reader(proc.stdout, line_read), _Reader(proc.stderr, on_progress)]
    try:
        for reader in readers:
            reader.join()
            if reader.error is not None:
                raise reader.error
        return proc.wait(), "".join(out), "".join(err)
    except BaseException:
        proc.terminate()
        for reader in readers:  # the streams are not to be closed under them
            reader.tell = _unheard
            reader.join(_END_SECONDS)
        with contextlib.suppress(subprocess.TimeoutExpired):
            proc.wait(_END_SECONDS)
        raise
    finally:
        done.set()


def _unheard(line: str) -> None:
    """Nobody waits for the line any more."""


class _Reader(threading.Thread):
    """Gives each line of a stream to `tell`, to the end; `error` is what `tell` raised."""

    def __init__(self, stream: Any, tell: Callable[[str], object]) -> None:
        super().__init__(daemon=True)
        self._stream, self.tell = stream, tell
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Read until the stream ends or `tell` fails."""
        try:
            while line := self._stream.readline(_LONGEST):
                self.tell(line)
        except BaseException as error:
            if not self._stream.closed:
                self.error = error
        finally:
            self._stream.close()


def _progress_reader(progress: Progress, rest: list[str]) -> Callable[[str], None]:
    from git import RemoteProgress

    labels = {
        RemoteProgress.COUNTING: "counting",
        RemoteProgress.COMPRESSING: "compressing",
        RemoteProgress.RECEIVING: "receiving",
        RemoteProgress.RESOLVING: "resolving",
    }

    class Reader(RemoteProgress):
        before: tuple[str, float] | None = None

        def update(
            self,
            op_code: int,
            cur_count: str | float,
            max_count: str | float | None = None,
            message: str = "",
        ) -> None:
            label = labels.get(op_code & self.OP_MASK)
            if label:
                count = float(cur_count or 0)
                # git counts objects: while a large one comes nothing but the bytes grow, and a bar without end moves
                still = self.before == (label, count) and count != float(max_count or 0) and label == "receiving"
                self.before = (label, count)
                total = float(max_count) if max_count and not still else None
                progress.set(count, total, f"{label} {message}".rstrip())

    read = Reader().new_message_handler()

    def on_line(line: str) -> None:
        if not re.match(r"(remote: )?[A-Z][a-z]+ (objects|deltas|sources):", line):
            rest.append(line)
        with contextlib.suppress(UnicodeError, ValueError):
            read(line)

    return on_line
