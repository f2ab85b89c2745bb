"""Every name of torch's documentation of tiers 1 and 2 exists, or docs/gaps.md says why not.

`api_names.txt` is the list: name, tier, section of the 0.4 and 1.1 documentation (torch, Tensor, nn, optim, ...).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _gaps():
    spec = importlib.util.spec_from_file_location("gaps", ROOT / "scripts/gaps.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


gaps = _gaps()
NAMES = gaps.api()
SECTIONS = sorted({section for _, section in NAMES.values()})


@pytest.fixture(scope="module")
def missing():
    return gaps.missing()


@pytest.mark.parametrize("section", SECTIONS)
def test_names_of_tiers_1_and_2_exist(section, missing):
    listed = gaps.listed()
    absent = [n for n, t in missing.items() if t < 3 and NAMES[n][1] == section and n not in listed]
    assert not absent, "missing, and not in docs/gaps.md (python scripts/gaps.py --write)"


def test_names_of_tier_3_exist_or_are_listed(missing):
    assert set(missing) <= set(gaps.listed())


def test_listed_names_are_really_missing(missing):
    assert sorted(set(gaps.listed()) - set(missing)) == [], "run python scripts/gaps.py --write"


def test_every_exemption_has_its_reason():
    assert [op for op, _, why in gaps.exemptions() if why.startswith("NO ")] == []


def test_a_name_that_is_nowhere_is_missing():
    assert not gaps.exists("no_such_op") and not gaps.exists("nn.NoSuchLayer")
    assert gaps.exists("nn.utils.rnn.pad_sequence") and gaps.exists("Tensor.add_")
