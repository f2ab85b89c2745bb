"""Every name of torch's documentation of tiers 1 and 2 exists, or docs/reference/gaps.md says why not.

`api_names.txt` is the list: name, tier, section of the 0.4 and 1.1 documentation (torch, Tensor, nn, optim, ...).
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

import engine

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
    assert not absent, "missing, and not in docs/reference/gaps.md (python scripts/gaps.py --write)"


def test_names_of_tier_3_exist_or_are_listed(missing):
    assert set(missing) <= set(gaps.listed())


def test_listed_names_are_really_missing(missing):
    assert sorted(set(gaps.listed()) - set(missing)) == [], "run python scripts/gaps.py --write"


def test_every_exemption_has_its_reason():
    assert [op for op, _, why in gaps.exemptions() if why.startswith("NO ")] == []


# What has to do with no tensor's shape: containers, schedules, orders of indices, bookkeeping.
WITHOUT_SHAPES = set(
    """
distributions.Distribution.has_rsample
nn.Module nn.Module.share_memory nn.ModuleDict nn.ModuleList nn.ParameterDict nn.ParameterList nn.init.calculate_gain
optim.ASGD optim.Adadelta optim.Adam optim.Adamax optim.LBFGS optim.Optimizer.add_param_group
optim.Optimizer.load_state_dict optim.Optimizer.state_dict optim.Optimizer.step optim.Optimizer.zero_grad optim.RMSprop
optim.Rprop optim.SGD optim.lr_scheduler.CosineAnnealingLR optim.lr_scheduler.CyclicLR optim.lr_scheduler.ExponentialLR
optim.lr_scheduler.LambdaLR optim.lr_scheduler.MultiStepLR optim.lr_scheduler.ReduceLROnPlateau
optim.lr_scheduler.StepLR utils.checkpoint.checkpoint_sequential utils.data.BatchSampler utils.data.ConcatDataset
utils.data.Dataset utils.data.RandomSampler utils.data.Sampler utils.data.SequentialSampler utils.data.Subset
utils.data.SubsetRandomSampler utils.data.WeightedRandomSampler utils.data.random_split
""".split()
)
SHAPE = re.compile(r"\(\*|\([A-Za-z\d.]+,|\((N|C|n|M|L|sum)\b|->|shape|scalar|\(\)")
PACKAGES = ("nn.", "optim.", "distributions.", "utils.")
OFFERED = [n for n, (tier, _) in NAMES.items() if tier < 3 and n.startswith(PACKAGES)]


def _value(name):
    value, path = engine, "engine"
    for part in name.split("."):
        path += f".{part}"
        if not hasattr(value, part):
            importlib.import_module(path)
        value = getattr(value, part)
    return value


def test_names_are_documented_with_shapes():
    docs = {name: inspect.getdoc(_value(name)) or "" for name in OFFERED}
    assert [name for name, text in docs.items() if not text] == []
    assert {name for name, text in docs.items() if not SHAPE.search(text)} <= WITHOUT_SHAPES


def test_names_are_tested():
    """Each is spelt in a test of the engine; those that a test makes up (`MaxPool{n}d`) are spelt in another too."""
    words = set()
    for path in (ROOT / "tests/engine").rglob("*.py"):
        if path != Path(__file__):
            words.update(re.findall(r"\w+", path.read_text()))
    assert [name for name in OFFERED if name.rpartition(".")[2] not in words] == []


def test_a_name_that_is_nowhere_is_missing():
    assert not gaps.exists("no_such_op") and not gaps.exists("nn.NoSuchLayer")
    assert gaps.exists("nn.utils.rnn.pad_sequence") and gaps.exists("Tensor.add_")
