"""`make test-newest` finds the newest release of CPython: programs that answer as one are laid on PATH."""

from __future__ import annotations

import importlib.util
import os
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
LATER = sys.version_info[1] + 1


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("newest_python", ROOT / "scripts/newest_python.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def python(folder: Path, minor: int, answer: str) -> Path:
    """A program `python3.MINOR` that prints an answer, or fails for an empty one."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"python3.{minor}"
    path.write_text(f"#!/bin/sh\necho {answer}\n" if answer else "#!/bin/sh\nexit 1\n")
    path.chmod(0o755)
    return path


@pytest.mark.skipif(os.name != "posix", reason="shell scripts stand for Pythons")
def test_the_newest_that_runs(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here, pyenv = tmp_path / "bin", tmp_path / "pyenv"
    monkeypatch.setenv("PATH", f"{here}:/bin")
    monkeypatch.setenv("PYENV_ROOT", str(pyenv))
    script.main()
    assert capsys.readouterr().out == ""
    python(here, sys.version_info[1], f"3 {sys.version_info[1]} 99")  # as old as this one
    python(here, LATER + 3, "")  # a shim of pyenv that leads nowhere, a beta, no CPython
    (here / f"python3.{LATER}-config").write_text("")
    script.main()
    assert capsys.readouterr().out == ""
    python(here, LATER, f"3 {LATER} 1")
    newest = python(pyenv / f"versions/3.{LATER}.2" / "bin", LATER, f"3 {LATER} 2")
    script.main()
    assert capsys.readouterr().out == f"{newest}\n"


def test_this_python_is_asked_for_all_that_is_needed(script: ModuleType) -> None:
    assert script.version(Path(sys.executable)) in (tuple(sys.version_info[:3]), None)


def test_the_classifiers_name_what_is_tested() -> None:
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    versions = [one.rpartition(" ")[2] for one in named if one.startswith("Programming Language :: Python :: 3.")]
    assert versions == ["3.11", "3.12", "3.13"]
    assert "tier test-newest" in (ROOT / ".ci/run").read_text()
