"""`python -m engine.utils.bottleneck`: the summaries of a script, its arguments and its failures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.utils.bottleneck import __main__ as bottleneck

SCRIPT = """
import sys
import torch
from beside import LEFT
x = torch.ones(3, 3, requires_grad=True)
(LEFT * x).sum().backward()
print("arguments", sys.argv[1:], __name__)
if "fail" in sys.argv:
    raise ValueError("not today")
if "leave" in sys.argv:
    sys.exit(3)
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "beside.py").write_text("LEFT = 3")
    (tmp_path / "train.py").write_text(SCRIPT)
    return str(tmp_path / "train.py")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "engine.utils.bottleneck", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_a_script_is_summarised(script: str) -> None:
    done = run(script, "--foo", "1")
    assert done.returncode == 0, done.stderr
    for part in (
        "arguments ['--foo', '1'] __main__",
        "Environment summary",
        "cProfile output",
        "Ordered by: internal time",
        "aten::mul",
        "MulBackward0",
        "Self CPU time total",
        "the longest single calls",
    ):
        assert part in done.stdout
    assert done.stdout.count("arguments [") == 2


def test_by_torchs_name(script: str) -> None:
    command = [sys.executable, "-m", "engine.torch_alias", "-m", "torch.utils.bottleneck", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "cProfile output" in done.stdout, done.stderr


@pytest.mark.parametrize(("how", "text"), [("fail", "ValueError: not today"), ("leave", "ended with status 3")])
def test_a_script_that_fails(script: str, how: str, text: str) -> None:
    done = run(script, how)
    assert done.returncode == 1 and text in done.stderr and "hint: run it by itself" in done.stderr
    assert "runpy" not in done.stderr


def test_what_is_no_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.py").write_text("def (")
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00")
    for name in ("nothing.py", "bad.py", "bytes.py"):
        assert bottleneck.main([str(tmp_path / name)]) == 2
        assert f"cannot read the script {tmp_path / name}" in capsys.readouterr().err
