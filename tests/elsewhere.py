"""Makes this process look like one on another platform: `python tests/elsewhere.py PLATFORM SCRIPT [ARGUMENT ...]`.

What Windows, macOS or a Linux without our wheel lacks is taken away before SCRIPT runs: modules, functions of `os`,
`signal` and `socket`, symbolic links, oneDNN.  The standard library itself is loaded before, as what it is.
"""

from __future__ import annotations

import os
import platform
import runpy
import shutil
import signal
import socket
import sys
import types
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
    "fork forkpty register_at_fork memfd_create posix_fallocate posix_fadvise posix_spawn posix_spawnp getuid "
    "geteuid getgid getegid setuid setgid getpgid setpgid getpgrp setsid killpg mkfifo mknod chown lchown "
    "fchown chroot wait wait3 wait4 waitid WIFSIGNALED WTERMSIG sched_getaffinity sched_setaffinity "
    "sched_yield sysconf getloadavg nice uname ttyname openpty pipe2 pidfd_open splice "
    "copy_file_range sendfile preadv pwritev pread pwrite getxattr setxattr listxattr removexattr O_NOFOLLOW "
    "O_DIRECTORY eventfd unshare setns set_blocking get_blocking fdatasync major minor confstr ctermid "
    "getgroups"
).split()
OF_SIGNAL = (
    "SIGKILL SIGHUP SIGQUIT SIGALRM SIGCHLD SIGUSR1 SIGUSR2 SIGPIPE SIGTSTP SIGCONT SIGSTOP SIGTTIN SIGTTOU "
    "SIGWINCH alarm setitimer getitimer pthread_kill pthread_sigmask sigwait sigwaitinfo sigtimedwait "
    "sigpending pause siginterrupt"
).split()
OF_SOCKET = ("AF_UNIX", "send_fds", "recv_fds", "SCM_RIGHTS", "AF_NETLINK")
ON_MACOS = (
    "memfd_create",
    "posix_fallocate",
    "posix_fadvise",
    "sched_getaffinity",
    "sched_setaffinity",
    "pidfd_open",
    "pipe2",
    "splice",
    "copy_file_range",
    "eventfd",
    "unshare",
    "setns",
    "getxattr",
    "setxattr",
    "listxattr",
    "removexattr",
)
# what needs POSIX to be loaded on this system, and is loaded as what it is
LOADED = (
    "asyncio getpass logging.handlers multiprocessing.connection multiprocessing.resource_sharer "
    "multiprocessing.resource_tracker multiprocessing.shared_memory multiprocessing.synchronize "
    "multiprocessing.popen_spawn_posix shutil subprocess tarfile tempfile urllib.request zipfile xml.sax "
    "click filelock git numpy platformdirs requests rich.console rich.progress numpy.testing threadpoolctl"
).split()
PLATFORMS = {  # name: (sys.platform, platform.machine())
    "linux-aarch64": ("linux", "aarch64"),
    "macos-arm64": ("darwin", "arm64"),
    "windows": ("win32", "AMD64"),
}


def become(name: str) -> None:
    """Take away what platform `name` lacks."""
    for module in LOADED:
        __import__(module)
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
        if getattr(shutil, "_winapi", True) is None:  # since Python 3.12 `shutil.which` asks it there
            there = types.SimpleNamespace(NeedCurrentDirectoryForExePath=lambda name: True)
            shutil._winapi = there  # type: ignore[attr-defined]
    for module in hidden:
        sys.modules[module] = None  # type: ignore[assignment]  # "no module named"


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
    if sys.argv[0] == "-c":
        exec(compile(sys.argv[1], "<elsewhere>", "exec"), {"__name__": "__main__"})
    else:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
