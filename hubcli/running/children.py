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
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

SITE = str(Path(__file__).with_name("child_site"))
FOR = "ENGINE_TORCH_FOR"  # sys.prefix of the Python whose children are served

_UNLESS_SET = {
    "PYTHONDONTWRITEBYTECODE": "1",
    "UV_OFFLINE": "1",
}  # a checkout stays as its commit; uv installs nothing either
_added: list[str] = []

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
                for name in _added:
                    os.environ.pop(name, None)


def _others() -> list[str]:
    value = os.environ.get("PYTHONPATH")
    return [entry for entry in value.split(os.pathsep) if entry != SITE] if value else []
