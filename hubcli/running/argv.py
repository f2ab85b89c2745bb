"""`sys.argv` while repository code runs: the path of its hubconf.py, and no argument of the program that loads it.

Model code that parses a command line (argparse, absl, fire, hydra) would read that of `hub`, of a training script or
of a notebook's kernel, and end the process over words that are not meant for it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

_lock = threading.Lock()
_entered: list[list[str]] = []  # the lists that stand in, the one of the latest call last
_own: list[str] = []  # the program's own, while there is another


@contextlib.contextmanager
def of(program: Path) -> Iterator[None]:
    """Let `sys.argv` be `[program]` inside; then the list that it was, also after an error.

    It is one for the process: calls that overlap, in threads or inside each other, see that of the latest, and the
    last to end restores the program's own.
    """
    global _own
    mine = [str(program)]
    with _lock:
        if not _entered:
            _own = sys.argv
        _entered.append(mine)
        sys.argv = mine
    try:
        yield
    finally:
        with _lock:
            _entered[:] = [one for one in _entered if one is not mine]
            sys.argv = _entered[-1] if _entered else _own
