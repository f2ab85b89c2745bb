"""Print the newest CPython of this machine that is newer than the one that runs this; nothing if there is none.

`make test-newest` runs the fast tests with it.  Looked at are the folders of PATH and the versions of pyenv, if that
is installed.  Releases only: no beta, and not the build without the interpreter's lock, for which few packages have
wheels.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ASK = (
    "import ensurepip, sys, sysconfig, venv; v = sys.version_info; "
    "fit = sys.implementation.name == 'cpython' and v.releaselevel == 'final' "
    "and not sysconfig.get_config_var('Py_GIL_DISABLED'); "
    "print(*v[:3]) if fit else sys.exit(1)"
)


def candidates() -> Iterator[Path]:
    """Programs that are called as a Python 3 is."""
    folders = [Path(one) for one in os.environ.get("PATH", "").split(os.pathsep) if one]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders += sorted(pyenv.glob("versions/3.*/bin"))
    for folder in folders:
        for path in sorted(folder.glob("python3.*")):
            if re.fullmatch(r"python3\.\d+", path.name) and int(path.name.partition(".")[2]) >= sys.version_info[1]:
                yield path


def version(path: Path) -> tuple[int, ...] | None:
    """The version of a Python; None if it does not run, or is not one to test with."""
    try:
        done = subprocess.run([path, "-c", ASK], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return tuple(map(int, done.stdout.split())) if done.returncode == 0 else None


def main() -> None:
    found = {path: version(path) for path in candidates()}
    newer = [(v, str(path)) for path, v in found.items() if v is not None and v[:2] > sys.version_info[:2]]
    if newer:
        print(max(newer)[1])


if __name__ == "__main__":
    main()
