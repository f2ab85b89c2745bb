"""The committed stubs are those that the op registry gives now."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

import engine
import engine.ops.lazy  # every op
from engine.dispatch import PUBLIC

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def stubs():
    spec = importlib.util.spec_from_file_location("stubs", ROOT / "scripts/stubs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def names(text, cls=None):
    body = ast.parse(text).body
    if cls is not None:
        body = next(n for n in body if isinstance(n, ast.ClassDef) and n.name == cls).body
    return {n.name for n in body if isinstance(n, ast.FunctionDef)}


def test_stubs_are_current(stubs):
    assert not stubs.stale(), "run `make stubs`"


def test_stubs_do_not_depend_on_the_run(stubs):
    assert stubs.stubs() == stubs.stubs()


def test_every_public_op_and_method_has_a_signature(stubs):
    init, tensor, *_ = stubs.stubs().values()
    functions = {n for n, f in PUBLIC.items() if not isinstance(f, type)}
    assert functions <= names(init)
    methods = {n for n, f in vars(engine.Tensor).items() if hasattr(f, "op")}
    assert methods <= names(tensor, "Tensor")


def test_check_exits_1_and_shows_what_is_stale(stubs, tmp_path, monkeypatch, capsys):
    for name in ("engine/__init__.pyi", "engine/tensor.pyi"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text().replace("def mul(", "def mull(", 1))
    monkeypatch.setattr(stubs, "ROOT", tmp_path)
    assert stubs.main(["--check"]) == 1
    shown = capsys.readouterr()
    assert "-def mull(" in shown.out and "+def mul(" in shown.out and "make stubs" in shown.err
