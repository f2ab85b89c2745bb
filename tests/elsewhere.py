"""Makes this process look like one on another platform: `python tests/elsewhere.py PLATFORM SCRIPT [ARGUMENT ...]`.

What Windows, macOS or a Linux without our wheel lacks is taken away before SCRIPT runs: modules, functions of `os`,
`signal` and `socket`, symbolic links, oneDNN.  The standard library itself is loaded before, as what it is.
"""

from __future__ import annotations

import builtins
import importlib.abc
import os
import platform
import runpy
import signal
import socket
import sys
from collections.abc import Sequence
from typing import Any

WHEEL = ("cffi", "_cffi_backend", "onednn_cpu_gomp")
POSIX = (
    "fcntl",
    "resource",
    "pwd",
    "grp",
    "termios",
    "tty",
    "pty",
    "_posixshmem",
    "_posixsubprocess",
    "posix",
    "syslog",
)
# not in `os` on Windows, or (symlink) refused to ordinary users there
OF_OS = (
    "fork forkpty register_at_fork memfd_create posix_fallocate posix_fadvise posix_spawn posix_spawnp getuid geteuid "
    "getgid getegid setuid setgid getpgid setpgid getpgrp setsid killpg umask_ mkfifo mknod chown lchown fchown fchmod chroot "
    "wait wait3 wait4 waitid WIFSIGNALED WTERMSIG sched_getaffinity sched_setaffinity sched_yield statvfs fstatvfs sysconf "
    "getloadavg nice uname ttyname openpty pipe2 pidfd_open splice copy_file_range sendfile preadv pwritev pread pwrite "
    "getxattr setxattr listxattr removexattr O_NOFOLLOW O_DIRECTORY O_CLOEXEC O_NONBLOCK eventfd unshare setns "
    "set_blocking get_blocking fdatasync major minor confstr ctermid getgroups"
).split()
OF_SIGNAL = (
    "SIGKILL SIGHUP SIGQUIT SIGALRM SIGCHLD SIGUSR1 SIGUSR2 SIGPIPE SIGTSTP SIGCONT SIGSTOP SIGTTIN SIGTTOU SIGWINCH "
    "alarm setitimer getitimer pthread_kill pthread_sigmask sigwait sigwaitinfo sigtimedwait sigpending pause siginterrupt"
).split()
OF_SOCKET = ("AF_UNIX", "send_fds", "recv_fds", "socketpair_", "SCM_RIGHTS", "AF_NETLINK")
ON_MACOS = ("memfd_create", "posix_fallocate", "posix_fadvise", "sched_getaffinity", "sched_setaffinity", "pidfd_open",
            "pipe2", "splice", "copy_file_range", "eventfd", "unshare", "setns", "getxattr", "setxattr", "listxattr",
            "removexattr")  # fmt: skip
PLATFORMS = {  # name: (sys.platform, platform.machine())
    "linux-aarch64": ("linux", "aarch64"),
    "macos-arm64": ("darwin", "arm64"),
    "windows": ("win32", "AMD64"),
}


class _Hidden(importlib.abc.MetaPathFinder):
    """Modules that do not exist."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = frozenset(names)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        """ModuleNotFoundError for the hidden, nothing for the rest."""
        if fullname in self.names:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def become(name: str) -> None:
    """Take away what platform `name` lacks."""
    # what the standard library needs of POSIX, it has by now
    import asyncio  # noqa: F401
    import getpass  # noqa: F401
    import logging.handlers  # noqa: F401
    import multiprocessing.connection
    import multiprocessing.resource_sharer
    import multiprocessing.shared_memory  # noqa: F401
    import multiprocessing.synchronize  # noqa: F401
    import shutil  # noqa: F401
    import subprocess  # noqa: F401
    import tarfile  # noqa: F401
    import tempfile  # noqa: F401
    import urllib.request  # noqa: F401
    import zipfile  # noqa: F401

    for third in ("filelock", "git", "numpy", "platformdirs", "requests", "rich.console", "rich.progress", "threadpoolctl",
                  "click", "xml.sax"):  # fmt: skip
        __import__(third)
    hidden = list(WHEEL)
    sys.platform, machine = PLATFORMS[name]
    platform.machine = lambda: machine
    if name == "macos-arm64":
        _without(os, ON_MACOS)
    elif name == "windows":
        hidden += POSIX
        _without(os, OF_OS)
        _without(signal, OF_SIGNAL)
        _without(socket, OF_SOCKET)
        os.symlink = _refused  # type: ignore[assignment]
    for module in hidden:
        sys.modules.pop(module, None)
    sys.meta_path.insert(0, _Hidden(hidden))
    for module in hidden:
        if module in sys.builtin_module_names:
            sys.modules[module] = None  # type: ignore[assignment]


def _without(module: Any, names: Sequence[str]) -> None:
    for name in names:
        if hasattr(module, name):
            delattr(module, name)


def _refused(*args: Any, **kwargs: Any) -> None:
    error = OSError(22, "A required privilege is not held by the client", str(args[1]))
    error.winerror = 1314  # type: ignore[attr-defined]
    raise error


if __name__ == "__main__":
    become(sys.argv[1])
    sys.argv = sys.argv[2:]
    sys.path[0] = os.getcwd()
    builtins.__dict__.pop("_", None)
    if sys.argv[0] == "-c":
        exec(compile(sys.argv[1], "<elsewhere>", "exec"), {"__name__": "__main__"})
    else:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
