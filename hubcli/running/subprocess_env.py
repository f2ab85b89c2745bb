"""Processes that repository code starts with this Python: `import torch` is the engine there too.

While the code runs, `child_site` is the first folder of PYTHONPATH; its `sitecustomize` answers for torch in a child,
at the first import of it and not before, and ends a `pip install`: repositories that bring their own requirements as
they start would bring torch, several GB of it, and change packages that others need.  Children of another Python,
those started with an environment of their own or with `-I`, `-E` or `-S`, and those that a model starts after
`hubcli.load` has returned it, are as they would be without hub.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from hubcli.base import once, output

SITE = str(Path(__file__).with_name("child_site"))
FOR = "ENGINE_TORCH_FOR"  # sys.prefix of the Python whose children are served
# Device and inode of this process's stderr, and the file to which children write the commands that they did not run.
LEFT_OUT = "ENGINE_LEFT_OUT"

_UNLESS_SET = {
    "PYTHONDONTWRITEBYTECODE": "1",
    "UV_OFFLINE": "1",
}  # a checkout stays as its commit; uv installs nothing either
_added: list[str] = []
_MOST = 20  # commands of one notice

_lock = threading.Lock()
_running = 0


@contextlib.contextmanager
def served(framework: str) -> Iterator[None]:
    """Serve torch to the children that are started inside; the environment is then as it was."""
    if framework != "engine":
        yield
        return
    global _running
    with _lock:
        _running += 1
        if _running == 1:
            with contextlib.suppress(OSError):  # without it, each child tells its own
                here = os.fstat(2)
                folder = tempfile.mkdtemp(prefix="hub-left-out-")
                os.environ[LEFT_OUT] = f"{here.st_dev}:{here.st_ino}:{os.path.join(folder, 'commands')}"
        os.environ["PYTHONPATH"] = os.pathsep.join([SITE, *_others()])
        os.environ[FOR] = sys.prefix
        if _running == 1:
            _added[:] = [name for name in _UNLESS_SET if name not in os.environ]
            os.environ.update((name, _UNLESS_SET[name]) for name in _added)
    try:
        yield
    finally:
        with _lock:
            _running -= 1
            if not _running:
                if rest := _others():
                    os.environ["PYTHONPATH"] = os.pathsep.join(rest)
                else:
                    os.environ.pop("PYTHONPATH", None)
                os.environ.pop(FOR, None)
                _tell(os.environ.pop(LEFT_OUT, None))
                for name in _added:
                    os.environ.pop(name, None)


def _tell(noted: str | None) -> None:
    """One notice of the commands that no notice has named yet; the file with them is gone then."""
    if noted is None:
        return
    file = noted.split(":", 2)[2]
    commands: list[str] = []
    with contextlib.suppress(OSError):
        commands = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
    shutil.rmtree(os.path.dirname(file), ignore_errors=True)
    new = [one for one in dict.fromkeys(commands) if once.first("command left out", one)]
    if new:
        named = ", ".join(f"`{one}`" for one in new[:_MOST]) + f" and {len(new) - _MOST} more" * (len(new) > _MOST)
        output.message(
            f"hub: left out: {named}, which the code that runs has started: nothing is installed while a repository's "
            "code runs.  `hub deps SPEC --install` brings what it imports, and never torch"
        )


def _others() -> list[str]:
    value = os.environ.get("PYTHONPATH")
    return [entry for entry in value.split(os.pathsep) if entry != SITE] if value else []
