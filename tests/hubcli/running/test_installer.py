"""`--install` with the real pip on wheels made here: what requires torch comes without it, and torch never."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hubcli.errors import DependencyError, UsageError
from hubcli.reading import packages
from hubcli.reading.dependencies import Plan
from hubcli.reading.packages import Package
from hubcli.running import installer
from tests.hubcli.wheels import only_these, wheel


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pip installs to; its index has torch too."""
    links = tmp_path / "links"
    wheel(links, "torch", "2.0")
    wheel(links, "plainpkg", requires=["smallpkg>=1"])
    wheel(links, "smallpkg", "1.5")
    wheel(links, "heavypkg", requires=["torch>=1", "smallpkg", "knownpkg", "nothere; extra == 'more'"])
    wheel(links, "knownpkg", "3.0", requires=["torch"])
    wheel(links, "onlydepspkg", requires=["heavypkg"])
    only_these(links, tmp_path / "site", monkeypatch)
    table = {"knownpkg": Package("knownpkg", "knownpkg", ">=3,<4", ("3.0",), needs=("plainpkg",))}
    monkeypatch.setattr(packages, "table", lambda: table)
    return tmp_path / "site"


def install(plan: Plan) -> tuple[str, ...]:
    using = installer.tool()
    with installer.commands(installer.resolve(plan, using), using) as prepared:
        return installer.run(prepared)


def there(site: Path) -> set[str]:
    return {path.name.partition("-")[0] for path in site.glob("*.dist-info")}


def test_a_plain_package_comes_with_its_requirements(site: Path) -> None:
    assert install(Plan(whole=("plainpkg",))) == ("plainpkg 1.0", "smallpkg 1.5")


def test_a_package_that_requires_torch_is_found_out_from_its_metadata(site: Path) -> None:
    plan = installer.resolve(Plan(whole=("heavypkg",)), installer.tool())
    assert plan == Plan(whole=("smallpkg", "plainpkg"), bare=("heavypkg", "knownpkg==3.0"))
    assert install(Plan(whole=("heavypkg",)))
    assert there(site) == {"heavypkg", "smallpkg", "knownpkg", "plainpkg"}


def test_torch_never_comes_in_by_the_back_door(site: Path) -> None:
    with pytest.raises(DependencyError, match="nothing was installed") as caught:
        install(Plan(whole=("onlydepspkg",)))  # its own metadata names no torch
    assert caught.value.status == 8
    assert there(site) == set()


def test_a_failure_half_way_names_what_is_there(site: Path) -> None:
    with pytest.raises(DependencyError, match=r"failed with status 1; installed so far: smallpkg 1\.5") as caught:
        install(Plan(whole=("smallpkg",), bare=("absentpkg==9",)))
    assert caught.value.status == 8
    assert there(site) == {"smallpkg"}


def test_no_virtual_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installer, "in_virtual_environment", lambda: False)
    with pytest.raises(UsageError, match="nothing was installed"):
        installer.require_environment(system=False)
    installer.require_environment(system=True)


def test_neither_uv_nor_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DependencyError, match="neither uv nor pip"):
        installer.tool()


def test_uv_overrides_the_requirement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "uv").write_text("#!/bin/sh\n")
    (tmp_path / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    using = installer.tool()
    assert using.name == "uv"
    plan = installer.resolve(Plan(whole=("a",), bare=("b==1",)), using)
    with installer.commands(plan, using, system=True) as (first, second):
        assert first[:4] == [str(tmp_path / "uv"), "pip", "install", "--python"]
        override = Path(first[first.index("--override") + 1]).read_text()
        assert re.fullmatch(r"torch ; sys_platform == 'none'\n", override)
        assert second[-3:] == ["--no-deps", "--", "b==1"]
        assert "--break-system-packages" in first and "--break-system-packages" in second
