"""The table of packages that build on torch: complete, consistent, and true to what the releases say they require."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from hubcli.reading import packages
from hubcli.reading.packages import Package, canonical

# what pip's report said of the release that the table names last; taken down, not asked for
METADATA = json.loads((Path(__file__).parent / "package_metadata.json").read_text())

# required by a release and not imported by what a repository uses
UNUSED = {
    "nflows": {"tensorboard"},
    "super-image": {"opencv-python"},  # opencv-python-headless has the same module
    "ultralytics": {"opencv-python", "nvidia-ml-py", "ultralytics-platform"},
}

ROWS = sorted(packages.table().values(), key=lambda one: one.module)
WORKING = [one for one in ROWS if one.reason is None]


def test_there_are_rows() -> None:
    assert {"torchvision", "timm", "transformers", "fairseq"} <= set(packages.table())
    assert len(WORKING) >= 30


@pytest.mark.parametrize("row", ROWS, ids=lambda one: one.module)
def test_a_row_is_consistent(row: Package) -> None:
    if row.reason is not None:
        assert (row.versions, row.tested) == (None, ())
        return
    assert row.tested and row.versions
    assert all(row.knows(version) for version in row.tested)
    assert set(row.torchy) <= set(packages.table())
    assert all(packages.table()[name].reason is None for name in row.torchy)
    assert not {canonical(need) for need in row.needs} & {canonical(one.distribution) for one in ROWS if one.torch}
    assert row.torch or not row.torchy


@pytest.mark.parametrize("row", WORKING, ids=lambda one: one.module)
def test_a_row_says_what_its_release_requires(row: Package) -> None:
    told = METADATA[row.distribution]
    assert told["version"] == row.tested[-1]
    required = {canonical(Requirement(text).name) for text in told["requires"] if _holds_here(text)}
    assert row.torch or "torch" not in required
    said = {canonical(name) for name in row.needs} | {"torch"}
    said |= {canonical(packages.table()[name].distribution) for name in row.torchy}
    assert required - said == UNUSED.get(row.distribution, set())


def _holds_here(text: str) -> bool:
    marker = Requirement(text).marker
    return marker is None or marker.evaluate(
        {"extra": "", "python_version": "3.11", "sys_platform": "linux", "platform_system": "Linux"}
    )


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("torchvision", "torchvision"),
        ("torchvision.models", "torchvision"),
        ("pytorch-lightning", "pytorch_lightning"),
        ("open-clip-torch", "open_clip"),
        ("ultralytics_thop", "thop"),
    ],
)
def test_found_by_import_name_and_by_distribution(name: str, module: str) -> None:
    found = packages.find(name)
    assert found is not None and found.module == module


def test_what_is_not_in_the_table() -> None:
    assert packages.find("numpy") is None


def test_the_closure_reaches_what_is_needed_by_what_is_needed() -> None:
    found = [one.module for one in packages.closure([packages.table()["segmentation_models_pytorch"]])]
    assert found == ["segmentation_models_pytorch", "timm", "torchvision"]


def test_what_to_install_for_a_wish() -> None:
    row = Package("m", "dist", ">=1,<2", ("1.0", "1.4"))
    assert row.requirement() == "dist>=1,<=1.4"
    assert row.requirement("<1.2") == "dist>=1,<1.2"
    assert row.requirement(">=1.1,!=1.3") == "dist>=1.1,<=1.4,!=1.3"
    assert row.requirement("==1.2") == "dist==1.2"
    assert row.requirement("==0.3") == "dist==0.3"
    assert row.requirement(">=1.5") == "dist>=1.5"
    assert not row.knows("0.3") and row.knows("1.9.dev1")
    assert Package("m", "dist", "<82", ("81.0.0",)).requirement() == "dist<=81.0.0"


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (">=1,<=2", "", ">=1,<=2"),
        (">=1,<=2", ">1", ">1,<=2"),
        (">=1,<=2", ">=1.0.0,<2", ">=1,<2"),
        (">=1,<=2", ">=0.5,<9", ">=1,<=2"),
        (">=1,<=2", "<=1", ">=1,<=1"),
        (">=1,<=2", "<1", None),
        (">=1,<=2", ">2", None),
        (">=1,<=2", "==1.5", "==1.5"),
        (">=1,<=2", "==3", None),
        (">=1,<=2", "==1.*", ">=1,<=2,==1.*"),
        (">=1,<=2", "~=1.4", ">=1,<=2,~=1.4"),
        ("<=2", ">=1", ">=1,<=2"),
    ],
)
def test_what_is_in_two_ranges(one: str, other: str, both: str | None) -> None:
    assert packages.narrowed(one, other) == both


@pytest.mark.parametrize("row", WORKING, ids=lambda one: one.module)
def test_a_row_advises_what_was_proved_at_both_ends(row: Package) -> None:
    requirement = Requirement(row.requirement())
    assert requirement.specifier.contains(row.tested[-1])
    assert not any("==" in str(one) for one in requirement.specifier)
    assert all(requirement.specifier.contains(version) for version in row.tested)
