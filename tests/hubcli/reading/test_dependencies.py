"""The dependency check: every way a name can be there or not, and no import at all."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from hubcli.errors import DependencyError
from hubcli.reading import dependencies
from hubcli.reading.dependencies import check


def one(name: str, **options):
    return check([name], **options).dependencies[0]


def package(root: Path, name: str, text: str = "raise AssertionError('imported')\n") -> None:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(text)
    (folder / "sub.py").write_text(text)


def distribution(root: Path, name: str, version: str) -> None:
    folder = root / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "top_level.txt").write_text(f"{name}\n")
    (folder / "RECORD").write_text(f"{name}/__init__.py,,\n")


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("torch", "engine"),
        ("torch.nn", "engine"),
        ("torch>=1.8", "engine"),
        ("math", "stdlib"),
        ("os.path", "stdlib"),
        ("xml.dom.minidom", "stdlib"),
        ("antigravity", "stdlib"),
    ],
)
def test_provided_without_installation(name, provider):
    assert one(name) == dependencies.Dependency(name, True, provider)


@pytest.mark.parametrize(
    "name",
    [
        "nope",
        "nope.sub",
        "math.sub",
        "json.nope",
        "nope>=1",
        "",
        " ",
        "a b",
        "../x",
        "9x",
        "numpy>",
    ],
)
def test_missing(name):
    assert not one(name).satisfied


def test_installed_packages_are_not_imported(tmp_path, monkeypatch):
    package(tmp_path, "untouched")
    distribution(tmp_path, "untouched", "2.5")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert one("untouched").provided_by == "untouched 2.5"
    assert one("untouched.sub").satisfied
    assert not one("untouched.other").satisfied
    assert one("untouched>=2,<3").satisfied
    outdated = one("untouched>=3")
    assert (outdated.satisfied, outdated.provided_by) == (False, "untouched 2.5")
    assert "untouched" not in sys.modules


def test_requirements_with_names_to_install_by():
    assert one("click>=8").provided_by.startswith("click 8")
    assert one("GitPython").satisfied
    assert one("numpy; python_version < '3'").provided_by.startswith("not needed")


def test_modules_of_the_repository_count(tmp_path):
    package(tmp_path, "models")
    assert one("models", root=tmp_path).provided_by == "repository"
    assert one("models.sub", root=tmp_path).provided_by == "repository"
    assert not one("models", root=tmp_path / "elsewhere").satisfied


def test_a_loaded_module_without_spec(monkeypatch):
    module = types.ModuleType("made_by_hand")
    module.__spec__ = None
    monkeypatch.setitem(sys.modules, "made_by_hand", module)
    assert one("made_by_hand").satisfied
    assert not one("made_by_hand.sub").satisfied
    monkeypatch.setitem(sys.modules, "blocked_here", None)
    assert not one("blocked_here").satisfied


def test_a_finder_that_raises(monkeypatch):
    class Broken:
        def find_spec(self, name, path=None, target=None):
            if name == "nowhere_at_all":
                raise ValueError("broken finder")

    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    assert not one("nowhere_at_all").satisfied
    assert one("json").satisfied


def test_the_sentence_of_torch_hub():
    with pytest.raises(RuntimeError, match=r"^Missing dependencies: nope, nix$") as caught:
        check(["torch", "nope", "nix"]).require("o/r")
    assert isinstance(caught.value, DependencyError)
    assert caught.value.status == 8
    assert caught.value.spec == "o/r"
    assert caught.value.hint == "run: python -m pip install nope nix"
    check(["torch", "json"]).require()


@pytest.mark.parametrize(
    ("names", "framework", "command"),
    [
        (["nope", "skimage_"], "engine", "python -m pip install nope skimage_"),
        (["cv2x", "nope>=1.2"], "engine", "python -m pip install cv2x 'nope>=1.2'"),
        (["nope", "lpips"], "engine",
         "python -m pip install nope && python -m pip install --no-deps lpips"),
        (["lpips"], "torch", "python -m pip install lpips"),
        (["torchmetrics"], "engine", None),
        (["nope; rm -rf ~"], "engine", None),
        (["--index-url=http://evil"], "engine", None),
        (["nope @ http://evil/x.whl"], "engine", None),
        (["json"], "engine", None),
    ],
)  # fmt: skip
def test_install_commands(names, framework, command):
    assert check(names, framework=framework).install == command


def test_install_names_differ_from_import_names(monkeypatch):
    monkeypatch.setattr(dependencies, "_find", lambda name, root: None)
    assert check(["yaml", "PIL"]).install == "python -m pip install PyYAML Pillow"


def test_what_needs_torch_itself_says_so():
    report = check(["torchmetrics"])
    assert report.hint is not None
    assert "--framework torch" in report.hint
