"""Whose fault an exception of foreign code is, and what hub says to do about it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hubcli.base import settings
from hubcli.base.spec import RepoSpec
from hubcli.cache.cache import Cache
from hubcli.errors import (
    DependencyError,
    EngineGapError,
    HubError,
    RepositoryCodeError,
    UnusedDependencyError,
    as_document,
    as_error,
)
from hubcli.running import invoke

Blamed = Callable[[str], HubError]


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an installed package, `fakelib 1.2`."""
    site = tmp_path / "site-packages"
    folder = site / "fakelib"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("VALUE = 1\n")
    (site / "fakelib-1.2.dist-info").mkdir()
    (site / "fakelib-1.2.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: fakelib\nVersion: 1.2\n")
    monkeypatch.syspath_prepend(str(site))
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "fakelib"]:
        del sys.modules[name]


@pytest.fixture
def blamed(tmp_path: Path) -> Blamed:
    def run(text: str) -> HubError:
        folder = tmp_path / "repo"
        folder.mkdir(exist_ok=True)
        (folder / "hubconf.py").write_text(text)
        checkout = Cache.current().checkout(RepoSpec.parse(str(folder)))
        with pytest.raises(HubError) as caught:
            invoke.call(checkout, "net", command=True, framework="engine")
        return caught.value

    return run


def test_a_missing_module_that_is_not_declared(blamed: Blamed) -> None:
    error = blamed("dependencies = ['torch']\nimport absent_a\ndef net():\n    import absent_b\n")
    assert type(error) is DependencyError and error.status == 8
    assert str(error) == (
        "Missing dependencies: absent_a (imported by hubconf.py:2, but not declared), "
        "absent_b (imported by hubconf.py:4, but not declared)"
    )
    assert error.hint == "run: python -m pip install absent_a absent_b"


def test_a_missing_module_that_only_running_shows(blamed: Blamed) -> None:
    error = blamed("def net():\n    return __import__('absent_' + 'c')\n")
    assert str(error) == "Missing dependencies: absent_c (imported by hubconf.py:2, but not declared)"
    assert error.hint == "run: python -m pip install absent_c"


def test_a_library_that_misses_a_module(blamed: Blamed, library: Path) -> None:
    (library / "part.py").write_text("import absent_d\n")
    error = blamed("def net():\n    import fakelib.part\n")
    assert isinstance(error, DependencyError)
    assert "absent_d (imported by fakelib/part.py:1 (from hubconf.py:2), but not declared)" in str(error)


def test_a_library_that_says_so_in_its_own_words(blamed: Blamed, library: Path) -> None:
    (library / "part.py").write_text(
        "try:\n    import absent_e\nexcept ImportError as error:\n    raise RuntimeError('no luck') from error\n"
    )
    error = blamed("import fakelib.part\ndef net(): pass\n")
    assert isinstance(error, DependencyError) and "absent_e" in str(error)


def test_declared_and_missing_and_needed(blamed: Blamed) -> None:
    error = blamed("dependencies = ['absent_f', 'absent_g']\nimport absent_f\ndef net(): pass\n")
    assert type(error) is DependencyError
    assert str(error) == "Missing dependencies: absent_f, absent_g"


def test_an_older_library(blamed: Blamed, library: Path) -> None:
    error = blamed("from fakelib.gone import x\ndef net(): pass\n")
    assert isinstance(error, RepositoryCodeError)
    assert error.hint == "fakelib 1.2 is installed and has no such module: the code is for another version of it"
    error = blamed("from fakelib import gone\ndef net(): pass\n")
    assert error.hint == "fakelib 1.2 is installed; the code is for another version of it"


@pytest.mark.parametrize(
    "line",
    [
        "torch.no_such_thing",
        "torch.nn.functional.no_such_thing",
        "torch.ones(2).no_such_thing()",
        "from torch.nn import NoSuchThing",
        "import torch.no_such_thing",
        "import torch.nn.no_such_thing",
        "torch.Tensor.no_such_thing",
    ],
)
def test_a_gap_of_the_engine_is_called_one(blamed: Blamed, library: Path, line: str) -> None:
    error = blamed(f"import torch\ndef net():\n    {line}\n")
    assert isinstance(error, EngineGapError), error
    assert error.status == 70
    assert str(error).startswith("hubconf.py:3: ")
    assert "gap of hub's engine" in str(error.hint) and "--framework torch" in str(error.hint)
    (library / "part.py").write_text(f"import torch\ndef make():\n    {line}\n")
    error = blamed("import fakelib.part\ndef net():\n    fakelib.part.make()\n")
    assert isinstance(error, EngineGapError)
    assert str(error).startswith("fakelib/part.py:3 (from hubconf.py:3): ")


def test_an_error_inside_a_library(blamed: Blamed, library: Path) -> None:
    (library / "part.py").write_text("def make():\n    raise ValueError('no')\n")
    error = blamed("import fakelib.part\ndef net():\n    fakelib.part.make()\n")
    assert str(error) == "fakelib/part.py:2 (from hubconf.py:3): ValueError: no"
    assert error.hint == "it came up inside fakelib 1.2; HUB_DEBUG=1 shows the traceback"


@pytest.mark.parametrize(
    "code",
    ["raise AttributeError('x')", "import torch\n    torch.ones(2) @ torch.ones(3)", "object().nothing", "int('x')"],
)
def test_an_error_of_the_repository(blamed: Blamed, code: str) -> None:
    error = blamed(f"def net():\n    {code}\n")
    assert type(error) is RepositoryCodeError
    assert "report it to the repository" in str(error.hint)


def test_what_nothing_imports_does_not_stop(blamed: Blamed, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    text = "dependencies = ['absent_h']\ndef net():\n    raise KeyError('reached')\n"
    error = blamed(text)
    assert type(error) is UnusedDependencyError and error.status == 8
    assert str(error) == "Missing dependencies: absent_h"
    assert str(error.hint).startswith("run: python -m pip install absent_h (")
    assert "--allow-missing" in str(error.hint)
    with settings.overriding(allow_missing=True):
        assert "reached" in str(blamed(text))
    assert "going on without absent_h" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", _Terminal("yes\n"))
    assert "reached" in str(blamed(text))
    monkeypatch.setattr(sys, "stdin", _Terminal("\n"))
    assert type(blamed(text)) is UnusedDependencyError


class _Terminal:
    def __init__(self, answer: str) -> None:
        self.answer = answer

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        return self.answer


@pytest.mark.parametrize("kind", [DependencyError, UnusedDependencyError, EngineGapError, RepositoryCodeError])
def test_errors_keep_their_kind_between_processes(kind: type[HubError]) -> None:
    assert type(as_error(as_document(kind("x")))) is kind


def test_a_module_of_a_submodule_that_was_left_out(blamed: Blamed, tmp_path: Path) -> None:
    (tmp_path / "repo" / "thirdnet").mkdir(parents=True)
    (tmp_path / "repo" / "inner" / "backbone").mkdir(parents=True)
    (tmp_path / "repo" / "inner" / "__init__.py").write_text("")
    (tmp_path / "repo" / "inner" / "part.py").write_text("from .backbone.net import net\n")
    for line, name in (
        ("from thirdnet.net import net", "thirdnet"),
        ("from thirdnet import net", "thirdnet"),
        ("import thirdnet.net", "thirdnet"),
        ("from inner.backbone import net", "inner.backbone"),
        ("import inner.part", "inner.backbone"),
    ):
        for text in (f"{line}\ndef net(): pass\n", f"def net():\n    {line}\n"):
            error = blamed(text)
            assert type(error) is DependencyError and error.status == 8, (line, error)
            assert str(error).startswith(f"Missing dependencies: {name} (imported by ")
            assert f"{name} is in {name.replace('.', '/')}, which is empty" in str(error.hint)
            assert "_hub_" not in str(error)
    error = blamed("def net():\n    __import__('thirdnet.' + 'net')\n")
    assert type(error) is DependencyError and "is empty" in str(error.hint)


def test_a_module_that_the_repository_itself_does_not_have(blamed: Blamed, tmp_path: Path) -> None:
    (tmp_path / "repo" / "inner").mkdir(parents=True)
    (tmp_path / "repo" / "inner" / "__init__.py").write_text("")
    for line in ("import inner.gone", "from inner.gone import x", "from inner import gone"):
        error = blamed(f"{line}\ndef net(): pass\n")
        assert type(error) is RepositoryCodeError
        assert "_hub_" not in str(error)
        assert error.hint == "the repository itself has no such module or name; report it to the repository"


def test_a_module_in_a_folder_that_only_reading_finds(blamed: Blamed, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # `src` is there only in the repository's folder
    (tmp_path / "repo" / "src").mkdir(parents=True)
    (tmp_path / "repo" / "src" / "ownpart.py").write_text("")
    error = blamed("import sys\nsys.path.append('src')\nimport ownpart\ndef net(): pass\n")
    assert type(error) is DependencyError
    assert "install" not in str(error.hint) and "the repository has src/ownpart.py" in str(error.hint)
