"""Processes that repository code starts by itself: torch is the engine there too, and nothing else changes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hubcli.base.spec import RepoSpec
from hubcli.cache.cache import Cache
from hubcli.confined import jobs, sandbox
from hubcli.confined.broker import Broker
from hubcli.errors import RepositoryCodeError
from hubcli.running import invoke, subprocess_env
from tests.servers import Repository, git_server

FILES = {
    "hubconf.py": """
import os, subprocess, sys
import torch
HERE = os.path.dirname(os.path.abspath(__file__))
COMMANDS = {
    "script": [os.path.join(HERE, "tool.py"), "3"],
    "module": ["-m", "pkg.tool", "3"],
    "code": ["-c", "import importlib.metadata as m; v = m.version('torch'); import torch; "
             "assert v == torch.__version__; print(v, 6)"],
    "clash": [os.path.join(HERE, "clash", "main.py")],
    "pip": ["-m", "pip", "install", "--no-index", "no-such-package"],
    "pip script": [os.path.join(HERE, "pip3.11"), "install", "no-such-package"],
    "fails": ["-c", "import torch; raise SystemExit(torch.no_such_name)"],
}

def net(kind):
    done = subprocess.run([sys.executable, *COMMANDS[kind]], check=True, cwd=HERE, capture_output=True, text=True)
    if kind.startswith("pip"):
        return done.stderr
    version, number = done.stdout.split()
    assert version == torch.__version__ and number == "6", done.stdout
    return torch.nn.Linear(2, 2)
""",
    "pip3.11": "raise SystemExit('it ran')\n",
    "tool.py": "import sys\nimport torch.nn as nn\nimport torch\nfrom pkg.helper import twice\n"
    "assert nn is torch.nn and nn.Linear(2, 1)(torch.ones(2)).shape == (1,)\n"
    "print(torch.__version__, twice(int(sys.argv[1])))\n",
    "pkg/__init__.py": "",
    "pkg/helper.py": "def twice(x):\n    return 2 * x\n",
    "pkg/tool.py": "import sys\nfrom torch import __version__\nfrom .helper import twice\n"
    "print(__version__, twice(int(sys.argv[1])))\n",
    "clash/main.py": "import torch\n",
    "clash/engine.py": "",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / "repo" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "repo" / name).write_text(text)
    return tmp_path / "repo"


def call(folder: Path, kind: str) -> Any:
    checkout = Cache.current().checkout(RepoSpec.parse(str(folder)))
    return invoke.call(checkout, "net", [kind], command=True, framework="engine").value


@pytest.mark.parametrize("kind", ["script", "module", "code"])
def test_torch_is_there(folder: Path, kind: str) -> None:
    before = dict(os.environ)
    assert call(folder, kind).weight.shape == (2, 2)
    assert dict(os.environ) == before


@pytest.mark.parametrize("kind", ["pip", "pip script"])
def test_nothing_is_installed(folder: Path, kind: str) -> None:
    """Requirements that a repository installs as it starts would bring torch itself; the code goes on."""
    said = call(folder, kind)
    assert "hub: left out: `pip install" in said and "no-such-package`" in said
    assert "UV_OFFLINE" not in os.environ


@pytest.mark.parametrize("kind", ["script", "module"])
def test_in_a_sandbox(folder: Path, kind: str) -> None:
    found = next((name for name, reason in sandbox.reasons().items() if reason is None), None)
    if found is None:
        pytest.skip(f"no sandbox on this machine: {sandbox.reasons()}")
    checkout = Cache.current().checkout(RepoSpec.parse(str(folder)))
    job = jobs.Job("load", checkout, "net", (kind,), {}, "engine")
    loaded = jobs.load(job, sandbox.mechanism(found), Broker(checkout, "net"), None)
    assert loaded.model.parameters == 6


def test_they_leave_no_bytecode_in_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Repository.create(tmp_path / "served", "o/r").commit(FILES, tag="v1")
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    with git_server(tmp_path / "served") as server:
        monkeypatch.setenv("HUB_GIT_URL", f"{server.url}/{{owner}}/{{repo}}.git")
        checkout = Cache.current().checkout(RepoSpec.parse("o/r:v1"))
    invoke.call(checkout, "net", ["module"], command=True, framework="engine")
    assert not list(checkout.path.rglob("__pycache__"))


def test_a_module_named_engine_is_in_the_way(folder: Path) -> None:
    with pytest.raises(RepositoryCodeError, match="torch is served by a package named engine in this process"):
        call(folder, "clash")


def test_the_last_words_of_a_child_are_told(folder: Path) -> None:
    with pytest.raises(RepositoryCodeError, match=r"AttributeError: module .* has no attribute 'no_such_name'"):
        call(folder, "fails")


def test_the_users_own_start_up_file_runs_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.OWN = 1\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    code = "import sys; print(OWN, sys.modules['sitecustomize'].__file__, 'engine' in sys.modules)"
    with subprocess_env.served("engine"):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["1", str(tmp_path / "sitecustomize.py"), "False"]
    assert os.environ["PYTHONPATH"] == str(tmp_path)


def test_another_python_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess_env.served("engine"):
        monkeypatch.setenv(subprocess_env.FOR, "/elsewhere")
        code = "import importlib.util; print(importlib.util.find_spec('torch'))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "engine" not in done.stdout


def test_nested_and_with_torch_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with subprocess_env.served("torch"):
        assert "PYTHONPATH" not in os.environ
    with subprocess_env.served("engine"):
        with subprocess_env.served("engine"):
            pass
        assert os.environ["PYTHONPATH"] == subprocess_env.SITE
    assert "PYTHONPATH" not in os.environ and subprocess_env.FOR not in os.environ


def test_repeated_installs_are_one_notice(tmp_path: Path, capfd) -> None:
    text = (
        "import os, subprocess, sys\n"
        "for name in ('one-x', 'two-x', 'one-x'):\n"
        "    subprocess.run([sys.executable, '-m', 'pip', 'install', name], check=True)\n"
        "os.system(f'{sys.executable} -m pip install three-x')\n"
        "subprocess.run([sys.executable, '-m', 'pip', 'install', 'caught-x'], capture_output=True, check=True)\n"
        "def net(kind):\n    subprocess.run([sys.executable, '-m', 'pip', 'install', 'two-x'], check=True)\n"
    )
    (tmp_path / "hubconf.py").write_text(text)
    before = dict(os.environ)
    call(tmp_path, "")
    said = capfd.readouterr().err
    assert said.count("left out") == 1
    assert (
        "hub: left out: `pip install one-x`, `pip install two-x`, `pip install three-x`, `pip install caught-x`" in said
    )
    assert dict(os.environ) == before
    call(tmp_path, "")
    assert "left out" not in capfd.readouterr().err  # told before


def test_each_child_tells_where_nobody_else_can(monkeypatch, tmp_path: Path) -> None:
    with subprocess_env.served("engine"):
        monkeypatch.setenv(subprocess_env.LEFT_OUT, f"1:2:{tmp_path}/absent/commands")
        command = [sys.executable, "-m", "pip", "install", "four-x"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        monkeypatch.undo()
        assert "hub: left out: `pip install four-x`" in done.stderr
