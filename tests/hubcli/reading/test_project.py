"""What a repository says of itself as a distribution, without its setup.py being run."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubcli.reading import dependencies, hubconf, imports, project


@pytest.mark.parametrize(
    ("file", "text", "name", "version"),
    [
        ("setup.py", "from setuptools import setup\nsetup(name='a-b', version='1.2')\n", "a-b", "1.2"),
        ("setup.py", "import setuptools\nV = '2.0'\nsetuptools.setup(version=V, name='x')\n", "x", "2.0"),
        ("setup.py", "setup(name='x', version=open('v').read())\n", "x", "0"),
        ("setup.py", "raise SystemExit('run')\n", None, "0"),
        ("setup.py", "setup(**CONFIG)\n", None, "0"),
        ("setup.py", "def broken(:\n", None, "0"),
        ("setup.py", "setup(name=3, version=4)\n", None, "0"),
        ("setup.cfg", "[metadata]\nname = c\nversion = attr: c.__version__\n", "c", "0"),
        ("setup.cfg", "name = c\n", None, "0"),
        ("pyproject.toml", "[project]\nname = 'd'\nversion = '0.1.dev3'\n", "d", "0.1.dev3"),
        ("pyproject.toml", "[tool.poetry]\nname = 'e'\nversion = '3'\n", "e", "3"),
        ("pyproject.toml", "project = 3\ntool = []\n", None, "0"),
        ("pyproject.toml", "[project\n", None, "0"),
    ],
)
def test_name_and_version(tmp_path: Path, file: str, text: str, name: str | None, version: str) -> None:
    (tmp_path / file).write_text(text)
    found = project.read(tmp_path)
    assert (found.name, found.version) == (name, version)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("setup.py", "setup(name='a', package_dir={'': 'lib'})\n"),
        ("setup.cfg", "[options]\npackage_dir =\n    = lib\n"),
        ("setup.cfg", "[options.packages.find]\nwhere = lib\n"),
        ("pyproject.toml", "[tool.setuptools]\npackage-dir = {'' = 'lib'}\n"),
        ("pyproject.toml", "[tool.setuptools.packages.find]\nwhere = ['lib']\n"),
        ("pyproject.toml", "[tool.poetry]\npackages = [{include = 'a', from = 'lib'}]\n"),
    ],
)
def test_where_its_packages_lie(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text)
    (tmp_path / "lib").mkdir()
    (tmp_path / "src").mkdir()
    assert project.read(tmp_path).sources == (tmp_path / "lib", tmp_path / "src")


@pytest.mark.parametrize("folder", ["..", "../other", "/", "", ".", "absent", "package", "link", "a\\0b"])
def test_folders_that_are_none(tmp_path: Path, folder: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "other").mkdir()
    (root / "package").mkdir()
    (root / "package" / "__init__.py").write_text("")
    (root / "link").symlink_to(tmp_path / "other")
    (root / "setup.py").write_text(f"setup(package_dir={{'': '{folder}'}})\n")
    assert project.read(root).sources == ()


def test_a_repository_without_any_of_the_files_has_no_folders(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    assert project.read(tmp_path) == project.Project()


def test_its_own_packages_are_never_to_be_installed_from_an_index(tmp_path: Path) -> None:
    (tmp_path / "setup.py").write_text("setup(name='my-package', version='1')\n")
    (tmp_path / "src" / "inside").mkdir(parents=True)
    (tmp_path / "src" / "inside" / "__init__.py").write_text("def net():\n    '''Made inside.'''\n")
    (tmp_path / "hubconf.py").write_text("dependencies = ['torch', 'inside', 'my_package']\nfrom inside import net\n")
    conf = hubconf.read(tmp_path)
    assert [(one.name, one.summary) for one in conf.entrypoints] == [("net", "Made inside.")]
    report = dependencies.check(conf.dependencies, root=tmp_path, survey=imports.survey(tmp_path))
    assert [one.provided_by for one in report.dependencies] == ["engine", "repository", "repository"]
    assert report.install is None
