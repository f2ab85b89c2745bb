"""The dependency check: every way a name can be there or not, and no import at all."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from hubcli.errors import DependencyError
from hubcli.reading import dependencies
from hubcli.reading.dependencies import check
from hubcli.reading.imports import Imported, Survey


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
        (
            ["nope", "lpips"],
            "engine",
            "python -m pip install nope numpy scipy tqdm Pillow && "
            "python -m pip install --no-deps 'lpips>=0.1.3,<=0.1.4' 'torchvision>=0.20,<=0.29.2'",
        ),
        (
            ["sklearn", "timm", "librosa"],
            "engine",
            "python -m pip install scikit-learn PyYAML huggingface-hub safetensors numpy Pillow librosa && "
            "python -m pip install --no-deps 'timm>=1.0,<=1.0.31' 'torchvision>=0.20,<=0.29.2'",
        ),
        (["timm==0.9.2"], "torch", "python -m pip install timm==0.9.2"),
        (
            ["pytorch-lightning>=1,<3"],
            "engine",
            "python -m pip install tqdm PyYAML fsspec packaging typing-extensions numpy "
            "'lightning-utilities>=0.10,<=0.15.3' && "
            "python -m pip install --no-deps 'pytorch-lightning>=2.6,<=2.6.6' 'torchmetrics>=1.9,<=1.9.0'",
        ),
        (
            ["timm==0.4.12"],
            "engine",
            "python -m pip install PyYAML huggingface-hub safetensors numpy Pillow && "
            "python -m pip install --no-deps timm==0.4.12 'torchvision>=0.20,<=0.29.2'",
        ),
        (["fvcore"], "engine", "python -m pip install 'fvcore>=0.1.5,<=0.1.5.post20221221'"),
        (["fairseq", "prettytable"], "engine", "python -m pip install prettytable"),
        (["lpips"], "torch", "python -m pip install lpips"),
        (["fairseq"], "engine", None),
        (["nope; rm -rf ~"], "engine", None),
        (["--index-url=http://evil"], "engine", None),
        (["nope @ http://evil/x.whl"], "engine", None),
        (["json"], "engine", None),
    ],
)
def test_install_commands(names, framework, command, monkeypatch):
    found = dependencies.find  # of what this environment has, the standard library alone
    monkeypatch.setattr(dependencies, "find", lambda name, root: found(name, root) if name == "json" else None)
    monkeypatch.setattr(dependencies, "_has", lambda name, module=None: False)
    assert check(names, framework=framework).install == command


def test_install_names_differ_from_import_names(monkeypatch):
    monkeypatch.setattr(dependencies, "find", lambda name, root: None)
    assert check(["yaml", "PIL"]).install == "python -m pip install PyYAML Pillow"


def test_what_needs_torch_itself_says_so():
    report = check(["fairseq", "nope"])
    assert report.install == "python -m pip install nope"
    assert report.hint is not None and report.hint.startswith("run: python -m pip install nope; fairseq needs torch")
    assert "--framework torch" in report.hint
    assert [bool(one.note) for one in report.dependencies] == [True, False]


def test_what_the_repository_compiles_itself_is_not_asked_of_an_index(tmp_path):
    (tmp_path / "setup.py").write_text(
        "from torch.utils import cpp_extension\nfrom setuptools import setup, Extension\n"
        "setup(ext_modules=[cpp_extension.CUDAExtension('fast_ops', []), Extension(name='slow_ops', sources=[])])\n"
    )
    report = check(["fast_ops", "slow_ops", "nope"], root=tmp_path)
    assert report.missing == ("fast_ops", "slow_ops", "nope")
    assert report.install == "python -m pip install nope"
    assert "fast_ops is compiled by the repository's own setup.py" in report.hint
    assert "--framework torch" in report.hint


def test_a_distribution_that_has_the_module_of_another(monkeypatch):
    monkeypatch.setattr(dependencies, "find", lambda name, root: "installed" if name == "cv2" else None)
    there = {"cv2": ("opencv-python-headless", "5.0")}
    monkeypatch.setattr(dependencies, "distribution", there.get)
    assert one("opencv-python").provided_by == "opencv-python-headless 5.0"
    assert one("opencv-contrib-python>=4").satisfied
    assert not one("opencv-python<4").satisfied
    assert not one("faiss-gpu").satisfied


def test_imports_that_are_not_declared():
    found = [
        Imported("nope.deep", "utils.py:3"),
        Imported("json.decoder", "utils.py:4"),
        Imported("declared", "hubconf.py:1"),
        Imported("yaml_x", "hubconf.py:2"),
        Imported("google.cloud.vision.image", "hubconf.py:3"),
    ]
    report = check(["declared", "yaml-x"], survey=Survey(tuple(found)))
    named = {one.name: (one.satisfied, one.declared, one.note) for one in report.dependencies}
    assert named == {
        "declared": (False, True, None),
        "yaml-x": (False, True, None),
        "nope": (False, False, "imported by utils.py:3, but not declared"),
        "google.cloud.vision": (False, False, "imported by hubconf.py:3, but not declared"),
    }
    assert report.install == "python -m pip install declared yaml-x nope google-cloud-vision"
    with pytest.raises(DependencyError, match=r"^Missing dependencies: declared, yaml-x$"):
        report.require()
    check([], survey=Survey(tuple(found[:1]))).require()  # what is not declared is for the import itself to fail on


@pytest.fixture
def lonely(tmp_path, monkeypatch):
    """timm, installed with --no-deps and nothing else."""
    package(tmp_path, "timm")
    distribution(tmp_path, "timm", "1.0.31")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(dependencies, "_has", lambda name, module=None: name in ("timm", "safetensors"))
    return tmp_path


def test_what_an_installed_package_lacks(lonely):
    report = check(["timm"])
    assert [(one.name, one.satisfied, one.note) for one in report.dependencies] == [
        ("timm", True, None),
        ("PyYAML", False, "needed by timm"),
        ("huggingface-hub", False, "needed by timm"),
        ("torchvision", False, "needed by timm"),
    ]
    assert report.install == (
        "python -m pip install PyYAML huggingface-hub numpy Pillow && "
        "python -m pip install --no-deps 'torchvision>=0.20,<=0.29.2'"
    )
    assert check(["timm"], framework="torch").missing == ()


def test_a_version_outside_the_table_is_named_once(lonely):
    assert check(["timm"]).warnings == ()
    (lonely / "timm-1.0.31.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: timm\nVersion: 0.4.12\n")
    (sentence,) = check(["timm", "torch"]).warnings
    assert sentence == (
        "timm 0.4.12 is installed; the engine is known to work with timm >=1.0,<2: "
        "python -m pip install --no-deps 'timm>=1.0,<=1.0.31'"
    )
    assert check(["timm"], framework="torch").warnings == ()


def test_a_module_of_the_repository_is_no_package(tmp_path):
    package(tmp_path, "timm")
    (found,) = check(["timm"], root=tmp_path).dependencies
    assert found.provided_by == "repository"
