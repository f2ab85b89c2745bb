"""Wheels made by hand, for tests that install: a folder of them is all the index there is."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest


def wheel(folder: Path, name: str, version: str = "1.0", requires: Sequence[str] = (), code: str = "") -> None:
    """Write `<name>-<version>-py3-none-any.whl` with one package of that name."""
    folder.mkdir(parents=True, exist_ok=True)
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {r}" for r in requires)]
    files = {
        f"{module}/__init__.py": code,
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as archive:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(file, text)


def only_these(folder: Path, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip install from `folder` alone, into `site`, which this process imports from."""
    site.mkdir()
    for name, value in {
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(folder),
        "PIP_TARGET": str(site),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_CACHE_DIR": "1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # no uv
    monkeypatch.syspath_prepend(str(site))
