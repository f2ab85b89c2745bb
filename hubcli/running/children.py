"""Processes that repository code starts with this Python: `import torch` is the engine there too.

While the code runs, `child_site` is the first folder of PYTHONPATH; its `sitecustomize` answers for torch in a child,
at the first import of it and not before.  Children of another Python, those started with an environment of their own
or with `-I`, `-E` or `-S`, and those that a model starts after `hubcli.load` has returned it, are as they would be
without hub.
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
        os.environ.setdefault("PYTHONDONTWRITEBYTECODE", FOR)  # a checkout stays as its commit
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
                if os.environ.get("PYTHONDONTWRITEBYTECODE") == FOR:
                    del os.environ["PYTHONDONTWRITEBYTECODE"]


def _others() -> list[str]:
    value = os.environ.get("PYTHONPATH")
    return [entry for entry in value.split(os.pathsep) if entry != SITE] if value else []
