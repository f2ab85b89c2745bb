"""On macOS, on Windows and on Linux without the oneDNN wheel everything imports and the main jobs work.

Each test runs `tests/elsewhere.py`, which takes away what such a platform lacks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import elsewhere
from tests.servers import Repository

ROOT = Path(__file__).parents[1]
everywhere = pytest.mark.parametrize("platform", list(elsewhere.PLATFORMS))


def run(platform: str, *arguments: str, status: int = 0) -> str:
    """The standard output of a module, or of `-c CODE`, there."""
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", str(ROOT / "tests" / "elsewhere.py"), platform, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout if status == 0 else done.stdout + done.stderr


IMPORTS = """
import importlib, pkgutil
names = []
for top in ("engine", "hubcli"):
    package = importlib.import_module(top)
    names += [m.name for m in pkgutil.walk_packages(package.__path__, top + ".")]
for name in names:
    if name.endswith("__main__") or name in (
        "engine.backends.onednn._declared",  # cffi's own file
    ) or name.startswith("engine.utils.tensorboard"):  # needs the package tensorboard
        continue
    importlib.import_module(name)
print(len(names))
"""


@everywhere
def test_every_module_can_be_imported(platform: str) -> None:
    assert int(run(platform, "-c", IMPORTS)) > 400


TENSORS = """
import io, sys
import numpy as np
import engine
from engine import nn
from engine.backends import onednn
from engine.nn import functional as F
from engine.utils.data import DataLoader, TensorDataset

assert not onednn.is_available() and "cffi is not installed" in onednn.describe()
assert "oneDNN off" in engine.__config__.show()
engine.manual_seed(0)
net = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1024, 10)
)
data = TensorDataset(engine.randn(64, 3, 16, 16), engine.randint(0, 10, (64,)))
step = engine.optim.Adam(net.parameters(), 3e-3)
losses = []
for _ in range(8):
    for x, target in DataLoader(data, 16, shuffle=True):
        loss = F.cross_entropy(net(x), target)
        step.zero_grad()
        loss.backward()
        step.step()
        losses.append(loss.item())
assert losses[-1] < losses[0] / 2, losses
big = engine.randn(300, 400)
np.testing.assert_allclose((big @ big.t()).numpy(), big.numpy() @ big.numpy().T, 1e-4, 1e-4)
assert big.softmax(1).sum().item() > 299.9
out, _ = nn.LSTM(8, 16)(engine.randn(5, 2, 8))
assert out.shape == (5, 2, 16)
memory = io.BytesIO()
engine.save(net.state_dict(), sys.argv[-1])
engine.save(net.state_dict(), memory)
memory.seek(0)
again = engine.load(sys.argv[-1])
for name, value in engine.load(memory).items():
    assert engine.equal(value, net.state_dict()[name]) and engine.equal(value, again[name])
plan = engine.compile(net.eval())
engine.testing.assert_close(plan(x), net(x), rtol=1e-4, atol=1e-5)
print("fine")
"""


@pytest.mark.long
@everywhere
def test_tensors_training_and_checkpoints(platform: str, tmp_path: Path) -> None:
    assert run(platform, "-c", TENSORS, str(tmp_path / "net.pth")).strip() == "fine"


SHARING = """
import io, pickle
from multiprocessing import reduction
import engine
import engine.multiprocessing as mp

x = engine.arange(4.0)
sent = bytes(reduction.ForkingPickler.dumps([x, engine.nn.Parameter(x)]))
a, b = pickle.loads(sent)
assert engine.equal(a, x) and isinstance(b, engine.nn.Parameter) and not x.is_shared()
assert mp.get_all_sharing_strategies() == set() and mp.get_sharing_strategy() == "by_value"
try:
    x.share_memory_()
except NotImplementedError as error:
    print(error)
"""


def test_without_shared_memory_tensors_are_sent_by_value() -> None:
    assert run("windows", "-c", SHARING).startswith("share_memory_() is not supported on this platform")


HUBCONF = """
dependencies = ["torch"]

def net(width=3):
    "A layer."
    import torch
    return torch.nn.Linear(width, 2)

def weighted(url):
    "With weights."
    import torch
    model = torch.nn.Linear(3, 2)
    model.load_state_dict(torch.hub.load_state_dict_from_url(url))
    return model
"""


@pytest.mark.long
@everywhere
def test_the_hub(platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub_root: Path) -> None:
    import engine

    repo = Repository.create(tmp_path / "served", "o/r")
    repo.commit({"hubconf.py": HUBCONF}, tag="v1")
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "file")
    monkeypatch.setenv("HUB_GIT_URL", f"file://{tmp_path}/served/{{owner}}/{{repo}}.git")
    engine.save(engine.nn.Linear(3, 2).state_dict(), tmp_path / "net.pth")

    def hub(*arguments: str) -> dict:
        return json.loads(run(platform, "hubcli", "--json", *arguments))

    first = hub("pull", "o/r:v1")
    assert Path(first["path"], "hubconf.py").is_file()
    assert [e["name"] for e in hub("list", "o/r:v1")["entrypoints"]] == ["net", "weighted"]
    assert hub("--offline", "show", "o/r:v1")["commit"] == first["commit"]
    loaded = hub("load", "o/r:v1", "net", "--trust", "once", "-k", "width=4")
    assert loaded["parameters"] == 10
    assert run(platform, "hubcli", "help", "o/r:v1", "net").count("A layer.")
    assert [r["spec"] for r in hub("cache", "ls")["repos"]] == ["o/r:v1"]
    assert hub("cache", "verify")["problems"] == []
    assert hub("env")["backends"]["onednn"].startswith("off: ")
    assert hub("cache", "rm", "o/r:v1", "--yes")["removed"] == ["o/r:v1"]


def test_what_windows_lacks_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "hubconf.py").write_text(HUBCONF)
    said = run("windows", "hubcli", "load", str(tmp_path), "net", "--sandbox", status=1)
    assert said.startswith("hub: this machine has no sandbox: bubblewrap: ")
    said = run("windows", "hubcli", "check", str(tmp_path), "--no-sandbox", status=1)
    assert "a child process is not set up on win32" in said


UNALIGNED = """
import sys, engine
loaded = engine.load(sys.argv[-1])
assert loaded["a"].tolist() == [1.0, 2.0] and loaded["b"].tolist() == list(range(1000))
loaded["b"].add_(1)
print("fine")
"""


def test_files_whose_storages_are_not_aligned(tmp_path: Path) -> None:
    import engine

    made = {"a": engine.tensor([1.0, 2.0]), "b": engine.arange(1000)}
    engine.save(made, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    assert run("windows", "-c", UNALIGNED, str(tmp_path / "old.pth")).strip() == "fine"
