"""`--install` with the real pip on wheels made here: what requires torch comes without it, and torch never."""

from __future__ import annotations

import os
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


@pytest.mark.long
def test_a_plain_package_comes_with_its_requirements(site: Path) -> None:
    assert install(Plan(whole=("plainpkg",))) == ("plainpkg 1.0", "smallpkg 1.5")


@pytest.mark.long
def test_a_package_that_requires_torch_is_found_out_from_its_metadata(site: Path) -> None:
    plan = installer.resolve(Plan(whole=("heavypkg",)), installer.tool())
    assert plan == Plan(whole=("smallpkg", "plainpkg"), bare=("heavypkg", "knownpkg>=3,<=3.0"))
    assert install(Plan(whole=("heavypkg",)))
    assert there(site) == {"heavypkg", "smallpkg", "knownpkg", "plainpkg"}


@pytest.mark.long
def test_torch_never_comes_in_by_the_back_door(site: Path) -> None:
    with pytest.raises(DependencyError, match="nothing was installed") as caught:
        install(Plan(whole=("onlydepspkg",)))  # its own metadata names no torch
    assert caught.value.status == 8
    assert there(site) == set()


@pytest.mark.long
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


@pytest.fixture
def uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program called uv, the first on PATH; nothing is configured."""
    for name in [one for one in os.environ if one.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    path = tmp_path / "bin" / "uv"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(path.parent))
    return path


def test_uv_overrides_the_requirement(uv: Path) -> None:
    using = installer.tool()
    assert using.name == "uv"
    plan = installer.resolve(Plan(whole=("a",), bare=("b==1",)), using)
    with installer.commands(plan, using, system=True) as (first, second):
        assert first[:4] == [str(uv), "pip", "install", "--python"]
        override = Path(first[first.index("--override") + 1]).read_text()
        assert re.fullmatch(r"torch ; sys_platform == 'none'\n", override)
        assert second[-3:] == ["--no-deps", "--", "b==1"]
        assert "--break-system-packages" in first and "--break-system-packages" in second


@pytest.mark.parametrize("name", ["PIP_CONSTRAINT", "PIP_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"])
def test_pip_is_used_where_only_pip_has_been_told_of_an_index(uv: Path, monkeypatch, name: str) -> None:
    monkeypatch.setenv(name, "given")
    assert installer.tool().name == "pip"
    monkeypatch.setenv("UV_INDEX_URL", "given")
    assert installer.tool().name == "uv"


def test_pip_is_used_where_its_configuration_file_names_constraints(uv: Path, tmp_path, monkeypatch) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nconstraint = /somewhere.txt\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    assert installer.tool().name == "pip"


def test_uv_gets_the_constraints_of_pip(uv: Path, monkeypatch) -> None:
    monkeypatch.setenv("UV_INDEX_URL", "given")
    monkeypatch.setenv("PIP_CONSTRAINT", "/a.txt /b.txt")
    with installer.commands(Plan(bare=("b",)), installer.tool()) as (only,):
        assert only[5:9] == ["--constraint", "/a.txt", "--constraint", "/b.txt"]


def test_what_uv_refuses(uv: Path) -> None:
    uv.write_text(
        '#!/bin/sh\ncase "$*" in\n'
        "*'knownpkg>=3,<4'*) echo ' + knownpkg==3.7' >&2 ;;\n"
        "*) printf '  × No solution found:\\n  ╰─▶ Because only x is\\n      available, no.\\n' >&2; exit 1 ;;\nesac\n"
    )
    table = {"knownpkg": Package("knownpkg", "knownpkg", ">=3,<4", ("3.0",))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packages, "table", lambda: table)
        found = list(installer.refusals(Plan(bare=("knownpkg>=3,<=3.0",)), installer.tool()))
    reason = "Because only x is available, no."
    assert found == [installer.Refusal("knownpkg>=3,<=3.0", reason, "knownpkg==3.7")]


@pytest.mark.long
@pytest.mark.parametrize(
    ("constraint", "version"),
    [("", "3.0"), ("knownpkg<=2.9.1", "2.9"), ("knownpkg<2.9\nother==1", "2.5"), ("knownpkg==3.4", "3.4")],
)
def test_the_newest_version_that_the_users_constraints_allow(
    site: Path, tmp_path: Path, monkeypatch, capfd, constraint: str, version: str
) -> None:
    for release in ("1.9", "2.5", "2.9", "3.4", "4.0"):
        wheel(tmp_path / "links", "knownpkg", release, requires=["torch"])
    row = Package("knownpkg", "knownpkg", ">=2,<4", ("2.5", "3.0"))
    monkeypatch.setattr(packages, "table", lambda: {"knownpkg": row})
    (tmp_path / "allowed.txt").write_text(constraint)
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "allowed.txt"))
    plan, using = Plan(bare=(row.requirement(),)), installer.tool()
    refused = []
    try:
        made = install(plan)
    except DependencyError:
        refused = list(installer.refusals(plan, using))
        made = install(installer.without(plan, refused))
    assert made == (f"knownpkg {version}",)
    assert [str(one) for one in refused] == [
        f"knownpkg>=2,<=3.0 is refused here: your constraints say {constraint}; knownpkg=={version} is the newest that "
        "is allowed and known to work"
    ] * (version == "3.4")


@pytest.mark.long
@pytest.mark.parametrize(
    ("constraint", "reason"),
    [
        ("knownpkg<2", "your constraints say knownpkg<2"),
        (None, "the index has 1.9"),
    ],
)
def test_what_is_not_allowed_at_all_is_said(site: Path, tmp_path: Path, monkeypatch, constraint, reason) -> None:
    for file in (tmp_path / "links").glob("knownpkg*" if constraint is None else "nothing"):
        file.unlink()
    wheel(tmp_path / "links", "knownpkg", "1.9")
    row = Package("knownpkg", "knownpkg", ">=2,<4", ("2.5", "3.0"))
    monkeypatch.setattr(packages, "table", lambda: {"knownpkg": row})
    if constraint:
        (tmp_path / "allowed.txt").write_text(constraint)
        monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "allowed.txt"))
    plan = Plan(whole=("smallpkg",), bare=(row.requirement(),))
    found = list(installer.refusals(plan, installer.tool()))
    assert [str(one) for one in found] == [f"knownpkg>=2,<=3.0 is refused here: {reason}"]
    assert installer.without(plan, found) == plan
