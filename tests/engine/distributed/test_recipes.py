"""The recipes of docs/scaling.md, run as they stand there, and the scaling model's own rules."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.scaling import Network, predict, sum_seconds

from .jobs import MPIRUN, WITH_MPI

ROOT = Path(__file__).parents[3]


def _recipe(name: str, folder: Path) -> Path:
    text = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    found = re.search(rf"<!-- recipe: {name} -->\n```python\n(.*?)```", text, re.S)
    assert found is not None
    path = folder / "train.py"
    path.write_text(found[1])
    return path


def _run(command: list[str], folder: Path) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=180, check=False, cwd=folder, env=environment
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@WITH_MPI
@pytest.mark.parametrize("ranks", [2, 4])
def test_mpirun(ranks: int, tmp_path: Path) -> None:
    script = _recipe("mpirun", tmp_path)
    out = _run([str(MPIRUN), "-n", str(ranks), sys.executable, "-m", "engine.torch_alias", str(script)], tmp_path)
    found = re.fullmatch(rf"{ranks} ranks, loss ([\d.]+)\n", out)
    assert found is not None and float(found[1]) < 1


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_ray(tmp_path: Path) -> None:
    found = re.search(r"2 actors, loss ([\d.]+)", _run([sys.executable, str(_recipe("ray", tmp_path))], tmp_path))
    assert found is not None and float(found[1]) < 1


def test_the_model_of_a_step() -> None:
    network = Network(20e-6, 1e9)
    assert predict(1, 0.1, 4e8, network) == pytest.approx(0.1)
    assert sum_seconds(2, 1e9, network) == pytest.approx(1.00004)  # half of the bytes, twice; two messages
    steps = [predict(1 << k, 0.1, 4e7, network, 1 << 20) for k in range(11)]
    assert steps == sorted(steps) and steps[-1] < 0.1 + sum_seconds(1024, 4e7, network) + 40 * 20 * 20e-6
    hidden = predict(64, 1.0, 4e7, network, 1 << 20)  # all but the last bucket under the backward pass
    assert hidden < 1.0 + 2 * sum_seconds(64, 1 << 20, network)
    assert predict(64, 1.0, 4e7, network, 4e7) > hidden  # one bucket cannot overlap
    assert predict(64, 1.0, 4e7, network, 1 << 20, overlap=False) > hidden
