"""`scripts/conformance.py`: two sides test by test; a process that ends or hangs loses one test; what is compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from scripts import conformance

ROOT = Path(__file__).parents[1]
HELPERS = """
import unittest
from torch._six import inf, string_classes
import torch.nowhere
from torch.nowhere import gone


class TestCase(unittest.TestCase):
    def assertEqual(self, x, y, prec=0):
        if isinstance(x, torch.Tensor):
            self.assertLessEqual((x - y).abs().max(), prec)
        else:
            super().assertEqual(x, y)

    assertNotEqual = unittest.TestCase.assertNotEqual
"""
TESTS = """
import os
import time
import unittest
import torch
from common_utils import TestCase, gone
from torch.nn import Linear, Nowhere
from torch.testing import get_all_dtypes


class TestOld(TestCase):
    def test_passes(self):
        self.assertEqual(Linear(2, 2)(torch.ones(1, 2)).shape, (1, 2))
        torch.set_default_dtype(torch.float64)

    def test_starts_anew(self):
        self.assertEqual(torch.get_default_dtype(), torch.float32)

    def test_masks(self):
        self.assertEqual(torch.ones(2) > 0, torch.ones(2, dtype=torch.uint8))

    def test_absent(self):
        Nowhere(1)

    def test_differs(self):
        self.assertEqual(os.environ["SIDE"], "torch")

    @unittest.skip("never")
    def test_skipped(self):
        pass

    def test_crashes(self):
        os._exit(3)

    def test_hangs(self):
        try:
            time.sleep(600)
        except Exception:
            pass

    def test_zz_last(self):
        os.remove(__file__)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tests = tmp_path / "v0" / "test"
    tests.mkdir(parents=True)
    (tests / "common_utils.py").write_text("import torch\n" + HELPERS)
    (tests / "test_old.py").write_text(TESTS)
    return tests


def _python(path: Path, side: str) -> str:
    """A program that is this Python with the engine as its torch, and says which side it is."""
    path.write_text(f'#!/bin/sh\nSIDE={side} exec "{sys.executable}" -m engine.torch_alias "$@"\n')
    path.chmod(0o755)
    return os.fspath(path)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs signals and a shell")
def test_both_sides_and_the_table(folder: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "SIDE": "engine", "TMPDIR": os.fspath(tmp_path), "PYTHONPATH": os.fspath(ROOT)}
    done = subprocess.run(
        [
            sys.executable,
            "scripts/conformance.py",
            "--torch",
            _python(tmp_path / "python", "torch"),
            "--as-root",
            "--files",
            "test_old test_none",
            "--limit",
            "3",
            "--out",
            os.fspath(tmp_path / "out"),
            os.fspath(folder),
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "| v0 | test_old | 5 | 4 | 1 | 0 | 0 | 4 | 80.0% |" in done.stdout, done.stdout + done.stderr
    assert "v0 test_old TestOld.test_differs: failed: AssertionError" in done.stdout
    assert (folder / "test_old.py").exists()  # a copy was run
    found = conformance.result_of(tmp_path / "out" / "v0" / "test_old.engine.jsonl")
    assert found["TestOld.test_hangs"][0] == "timeout" and found["TestOld.test_skipped"] == ("skipped", "never")
    assert found["TestOld.test_absent"] == ("failed", "AttributeError: absent: torch.nn.Nowhere")
    assert found["TestOld.test_crashes"][0] == "running" and found["TestOld.test_masks"][0] == "passed"


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs users")
def test_root_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert conformance.main(["--torch", "python", os.fspath(folder)]) == 2
    error = capsys.readouterr().err
    assert "this is root" in error and "hint: run as an ordinary user" in error
    assert conformance.main(["--torch", "python", "--as-root", os.fspath(folder)]) == 2
    assert "has none of the files test_autograd" in capsys.readouterr().err


def test_what_counts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    lines = [["A.a", "running", ""], ["A.a", "passed", ""], ["A.a", "failed", "in tearDown"], ["A.b", "running", ""]]
    log.write_text("\n".join(map(json.dumps, lines)) + '\n["A.c", "runn')
    assert conformance.result_of(log) == {"A.a": ("failed", "in tearDown"), "A.b": ("running", "")}
    theirs = {n: (o, "") for n, o in {"a": "passed", "b": "passed", "c": "passed", "d": "failed", "e": "crash"}.items()}
    ours = {"a": ("passed", ""), "b": ("skipped", ""), "c": ("failed", "why\nnot"), "d": ("passed", "")}
    counts, differ = conformance.compare(theirs, ours)
    assert counts == Counter({"both": 1, "engine skips": 1, "differ": 1, "engine only": 1, "neither": 1})
    assert differ == ["c: failed: why"]
    assert conformance.row("v1", "f", counts) == "| v1 | f | 3 | 1 | 1 | 1 | 1 | 1 | 50.0% |"
    assert conformance.row("v1", "f", Counter()).endswith("| - |")


def test_arguments_that_torch_has_dropped_go_from_the_copy(tmp_path: Path) -> None:
    text = (
        "super(M, self).__init__(False)\nsuper(M, self).__init__(1)\nCompilationUnit(script, optimize, _frames_up=1)\n"
    )
    for name in ("test_jit", "test_nn"):
        (tmp_path / f"{name}.py").write_text(text)
        conformance.edit(tmp_path / f"{name}.py")
    assert (tmp_path / "test_nn.py").read_text() == text
    edited = "super(M, self).__init__()\nsuper(M, self).__init__(1)\nCompilationUnit(script, _frames_up=1)\n"
    assert (tmp_path / "test_jit.py").read_text() == edited


def test_no_store_is_made_on_a_device(tmp_path: Path) -> None:
    """Real torch reads `/dev/null` until the time of each test is over; the engine refuses it."""
    copy = tmp_path / "test_c10d.py"
    copy.write_text('self.store = c10d.FileStore("/dev/null", 1)\n')
    conformance.edit(copy)
    assert copy.read_text() == 'self.store = c10d.FileStore(__import__("tempfile").mktemp(), 1)\n'
