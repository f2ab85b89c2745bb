"""`hub --help` loads click and light standard modules only."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("numpy", "engine", "git", "requests", "rich", "filelock", "platformdirs", "asyncio")


def loaded(*args: str) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-X", "importtime", *args],
        cwd=Path(__file__).parents[1],
        env=os.environ,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return set(re.findall(r"^import time:\s+\d+ \|\s+\d+ \|\s+(\S+)$", result.stderr, re.M))


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_options_that_print(option: str) -> None:
    modules = loaded("-m", "hubcli", option)
    assert "click" in modules
    assert not modules.intersection(HEAVY)
    assert not {name for name in modules if name.startswith("hubcli.terminal.commands")}


@pytest.mark.parametrize("spec", [(), ("./sample_hubconf",)])
def test_a_list_loads_neither_git_nor_network_nor_what_costs_as_much_as_it_does(spec: tuple[str, ...]) -> None:
    modules = loaded("-m", "hubcli", "list", *spec)
    assert not modules.intersection({"numpy", "engine", "git", "requests", "rich", "filelock"})
    if sys.platform == "linux":
        assert not modules.intersection({"platformdirs", "tempfile", "shutil", "bz2", "hashlib", "random"})


def test_the_package_itself_is_light() -> None:
    modules = loaded("-c", "import hubcli")
    assert not modules.intersection({*HEAVY, "click"})


def test_importing_the_engine_loads_no_narrow_types_and_no_compiler() -> None:
    code = "import engine, sys; print({'ml_dtypes', 'llvmlite', 'scipy', 'cupy', 'cffi', 'jinja2'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
