"""Calling entrypoints: what a command sees of them, and what a Python program sees."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from hubcli.base import settings
from hubcli.base.spec import RepoSpec
from hubcli.cache import weights
from hubcli.cache.cache import Cache
from hubcli.cache.checkouts import Checkout
from hubcli.errors import (
    DependencyError,
    HubconfNotFoundError,
    HubError,
    NotFoundError,
    RepositoryCodeError,
    UntrustedError,
    UsageError,
)
from hubcli.running import frameworks, invoke
from hubcli.trust import records
from tests.servers import file_server


@pytest.fixture
def mine(sample_folder: Path) -> Checkout:
    return Cache.current().checkout(RepoSpec.parse(str(sample_folder)))


def called(checkout: Checkout, entrypoint: str, *args, command: bool = True, **kwargs):
    return invoke.call(checkout, entrypoint, args, kwargs, command=command)


def folder(path: Path, text: str) -> Checkout:
    path.mkdir(exist_ok=True)
    (path / "hubconf.py").write_text(text)
    return Cache.current().checkout(RepoSpec.parse(str(path)))


def test_arguments_arrive(mine):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch.hub says nothing of what is no module
        result = called(mine, "thing", 1234, command=False, pretrained=True)
    assert result.value.args == (1234,)
    assert result.value.kwargs == {"pretrained": True}
    assert result.seconds > 0
    assert result.weights == ()
    assert invoke.describe(result) == invoke.Description("helpers.Thing", 0, 0, 0, None)


def test_what_a_dependency_warns_of_is_no_warning_of_pythons(mine, monkeypatch, capsys):
    monkeypatch.setattr(invoke.dependencies, "_unknown_versions", lambda *rest: ["another version is installed"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        called(mine, "thing", command=False)
        called(mine, "thing", command=False)
    assert capsys.readouterr().err.count("warning: another version is installed") == 1


def test_a_generator_runs_in_a_command(tmp_path):
    text = "def net():\n    yield 1\n    raise ValueError('late')\nasync def later(): return 1\n"
    checkout = folder(tmp_path / "yields", f"{text}def two(): yield from 'ab'\n")
    assert called(checkout, "two").value == ["a", "b"]
    assert list(called(checkout, "two", command=False).value) == ["a", "b"]
    with pytest.raises(RepositoryCodeError, match=r"hubconf\.py:3: ValueError: late"):
        called(checkout, "net")
    with pytest.raises(RepositoryCodeError, match="async def"):
        called(checkout, "later")


def test_stdout_stays_clean(mine, capfd):
    assert called(mine, "noisy").value == "sample"
    out, err = capfd.readouterr()
    assert out == ""
    for text in ("printed", "from a child", "written"):
        assert text in err


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2, 3), {}), ((1,), {"colour": 2}), ((1,), {"width": 2})])
def test_wrong_arguments_are_found_before_the_call(mine, args, kwargs):
    with pytest.raises(UsageError, match=r"^strict: ") as caught:
        called(mine, "strict", *args, **kwargs)
    assert caught.value.status == 2
    assert caught.value.hint == "its signature is strict(width, depth=2, *, pretrained=False)"
    with pytest.raises(TypeError):
        called(mine, "strict", *args, command=False, **kwargs)


@pytest.mark.parametrize("name", ["things", "number", "_hidden", "nowhere"])
def test_no_such_callable(mine, name):
    with pytest.raises(NotFoundError, match=f"^Cannot find callable {name} in hubconf$") as caught:
        called(mine, name)
    assert caught.value.status == 3
    assert name != "things" or "thing" in str(caught.value.hint)


def test_private_callables_can_be_called(mine):
    assert called(mine, "_private", 1).value.args == (1,)


def test_a_name_must_be_a_string(mine):
    with pytest.raises(ValueError, match="Invalid input: model should be a string"):
        invoke.call(mine, 3)


def test_what_the_entrypoint_raises(mine, sample_folder):
    with pytest.raises(RepositoryCodeError) as caught:
        called(mine, "broken")
    line = (sample_folder / "hubconf.py").read_text().splitlines().index("def helper(value):") + 2
    assert str(caught.value) == f"hubconf.py:{line}: ValueError: cannot do 0"
    assert caught.value.status == 70
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(ValueError, match="cannot do"):
        called(mine, "broken", command=False)


def test_sys_exit_does_not_end_us(mine):
    with pytest.raises(RepositoryCodeError, match=r"the code called sys\.exit\(3\)"):
        called(mine, "leaves")
    with pytest.raises(SystemExit):
        called(mine, "leaves", command=False)


def test_exceptions_that_are_no_errors(tmp_path):
    text = "class Odd(BaseException): pass\ndef odd(): raise Odd('x')\ndef closes(): raise GeneratorExit('y')\n"
    checkout = folder(tmp_path / "odd", text)
    for name, message in (("odd", "hubconf.py:2: Odd: x"), ("closes", "hubconf.py:3: GeneratorExit: y")):
        with pytest.raises(RepositoryCodeError, match=message):
            called(checkout, name)


def test_interrupts_pass(mine, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(invoke, "_check_arguments", interrupt)
    with pytest.raises(KeyboardInterrupt):
        called(mine, "thing")


def test_a_write_below_the_checkout_is_explained(mine):
    with pytest.raises(RepositoryCodeError) as caught:
        called(mine, "writes")
    assert "read-only" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ndef f(:\n", "hubconf.py:2: SyntaxError: invalid syntax"),
        ("x = 1\n\n1 / 0\n", "hubconf.py:3: ZeroDivisionError: division by zero"),
        ("raise SystemExit('bye')\n", "hubconf.py:1: SystemExit: the code called sys.exit"),
    ],
)
def test_a_hubconf_that_does_not_import(tmp_path, text, message):
    with pytest.raises(RepositoryCodeError) as caught:
        called(folder(tmp_path / "bad", text), "net")
    assert str(caught.value).startswith(message)


def test_no_hubconf(tmp_path):
    checkout = folder(tmp_path / "empty", "")
    (tmp_path / "empty" / "hubconf.py").unlink()
    with pytest.raises(HubconfNotFoundError):
        called(checkout, "net")


@pytest.mark.parametrize(
    "text",
    [
        "dependencies = ['nope_a', 'json', 'nope_b']\nimport nope_a\n",
        "globals()['dependencies'] = ('nope_a', 'nope_b')\n",
    ],
)
def test_missing_dependencies_come_first(tmp_path, text):
    checkout = folder(tmp_path / "needy", text + "def net(): pass\n")
    for command in (True, False):
        with pytest.raises(DependencyError, match=r"^Missing dependencies: nope_a, nope_b$"):
            called(checkout, "net", command=command)


def test_dependencies_may_depend_on_the_platform(tmp_path):
    checkout = folder(
        tmp_path / "r",
        "import sys\nif sys.version_info < (3, 7):\n    dependencies = ['nope']\n"
        "else:\n    dependencies = []\ndef net(): return 1\n",
    )
    assert called(checkout, "net").value == 1


def test_listing_follows_torch(mine):
    read = invoke.listing(mine, command=True)
    assert [entry.name for entry in read.entrypoints] == [
        "OrderedDict",
        "Thing",
        "broken",
        "helper",
        "leaves",
        "nested",
        "noisy",
        "strict",
        "thing",
        "weighted",
        "writes",
    ]
    entry = read.entrypoint("thing")
    assert (entry.summary, entry.signature) == ("Make a thing.", "(*args, **kwargs)")
    assert (entry.source, entry.external) == ("exec", False)
    assert read.entrypoint("OrderedDict").external
    assert read.dependencies == ("torch", "json")
    assert read.docstring == "Sample models."


def test_weights_and_their_users(mine, tmp_path, monkeypatch):
    import numpy as np
    from safetensors.numpy import save_file

    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    (tmp_path / "files").mkdir()
    save_file({"w": np.ones(2, np.float32)}, tmp_path / "files" / "net.safetensors")
    with file_server(tmp_path / "files") as served:
        result = called(mine, "weighted", f"{served.url}/net.safetensors")
        assert [one.file for one in result.weights] == ["net.safetensors"]
        assert weights.used_by(str(mine.spec))[0].used_by == ((str(mine.spec), "weighted"),)
        with pytest.raises(NotFoundError, match="404"):
            called(mine, "weighted", f"{served.url}/nowhere.pth")


def test_a_load_inside_an_entrypoint_asks_for_itself(sample_server, tmp_path):
    outer = folder(
        tmp_path / "outer",
        "import torch\ndef net(**options):\n    return torch.hub.load('o/r', 'thing', **options)\n",
    )
    for options in ({}, {"trust_repo": True}):
        with pytest.raises(UntrustedError):
            called(outer, "net", **options)
    records.add(RepoSpec.parse("o/r"), None, "test")
    assert type(called(outer, "net").value).__name__ == "Thing"


def test_unknown_frameworks(mine, monkeypatch):
    with pytest.raises(UsageError, match="unknown framework 'jax'"):
        invoke.call(mine, "thing", framework="jax")
    monkeypatch.setattr(frameworks, "loaded_framework", lambda: None)
    monkeypatch.setattr(frameworks.dependencies, "torch_installed", lambda: False)
    with pytest.raises(DependencyError, match="torch is not installed"):
        invoke.call(mine, "thing", framework="torch")
    monkeypatch.setattr(frameworks, "loaded_framework", lambda: "torch")
    with pytest.raises(HubError, match="has loaded torch"):
        invoke.call(mine, "thing", framework="engine")
    assert frameworks.choose_framework("auto") == "torch"


def test_paths_and_settings_are_as_before(mine):
    before = os.getcwd(), settings.current()
    called(mine, "thing")
    assert (os.getcwd(), settings.current()) == before


def test_torchs_own_hub_gives_way_in_a_command(tmp_path):
    """With a torch of three files, in a process of its own."""
    for name, text in {
        "torch/__init__.py": "",
        "torch/hub.py": "def load_state_dict_from_url(url): raise AssertionError\n",
        "torch/utils/__init__.py": "",
        "torch/utils/model_zoo.py": "def load_url(url): raise AssertionError\n",
        "repo/hubconf.py": "from torch.hub import load_state_dict_from_url as load\n"
        "from torch.utils.model_zoo import load_url\n"
        "def net():\n    assert load is load_url\n    return load('https://example.org/x.pth')\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    root = Path(invoke.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "hubcli", "--offline", "load", str(tmp_path / "repo"), "net", "--framework", "torch"],
        env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{tmp_path}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 5, done.stderr
