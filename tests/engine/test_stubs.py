"""The committed stubs are those that the op registry gives now."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import engine
import engine.ops.lazy  # every op
from engine.dispatch import PUBLIC
from tests.engine.samples import cases

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def stubs():
    spec = importlib.util.spec_from_file_location("stubs", ROOT / "scripts/stubs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def stub_of_engine():
    forms = {}
    for node in ast.parse((ROOT / "engine/ops/functions.pyi").read_text()).body:
        if isinstance(node, ast.FunctionDef):
            forms.setdefault(node.name, []).append(node.returns)
    return forms


def names(text, cls=None):
    body = ast.parse(text).body
    if cls is not None:
        body = next(n for n in body if isinstance(n, ast.ClassDef) and n.name == cls).body
    return {n.name for n in body if isinstance(n, ast.FunctionDef)}


def test_stubs_are_current():
    """In a process of its own: listeners that another test's tensors have put in have no parameters of their own."""
    done = subprocess.run([sys.executable, ROOT / "scripts/stubs.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_stubs_do_not_depend_on_the_run(stubs):
    assert stubs.stubs() == stubs.stubs()


def test_every_public_op_and_method_has_a_signature(stubs):
    found, _, tensor, *_ = stubs.stubs().values()
    functions = {n for n, f in PUBLIC.items() if not isinstance(f, type)}
    assert functions <= names(found)
    methods = {n for n, f in vars(engine.Tensor).items() if hasattr(f, "op")}
    assert methods <= names(tensor, "Tensor")


def test_check_exits_1_and_shows_what_is_stale(stubs, tmp_path, monkeypatch, capsys):
    for name in ("engine/ops/functions.pyi", "engine/tensor.pyi"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text().replace("def mul(", "def mull(", 1))
    monkeypatch.setattr(stubs, "ROOT", tmp_path)
    assert stubs.main(["--check"]) == 1
    shown = capsys.readouterr()
    assert "-def mull(" in shown.out and "+def mul(" in shown.out and "make stubs" in shown.err


def stated(annotation, value):
    """Whether a stub's annotation of a result holds for a value."""
    text = ast.unparse(annotation)
    if text.startswith("_tuple["):
        kinds = annotation.slice.elts
        kinds = [kinds[0]] * len(value) if getattr(kinds[1], "value", None) is ... else kinds
        return isinstance(value, tuple) and len(kinds) == len(value) and all(map(stated, kinds, value))
    if text.startswith("return_types."):
        return type(value).__name__ == text.rpartition(".")[2] and isinstance(value, tuple)
    kinds = {"Any": object, "Tensor": engine.Tensor, "_bool": bool, "_int": int, "Size": engine.Size}
    return isinstance(value, kinds[text])


@pytest.mark.filterwarnings("ignore:at..(frobenius|nuclear)_norm is deprecated")
@pytest.mark.parametrize("case", [c for c in cases() if c.name in PUBLIC], ids=str)
def test_results_are_what_the_stub_says(stub_of_engine, case):
    args, kwargs = case.seeded()
    value = case.function(*args, **kwargs)
    assert any(stated(form, value) for form in stub_of_engine[case.name])


def test_a_wrong_result_is_seen():
    def form(text):
        return ast.parse(text, mode="eval").body

    x = engine.ones(2)
    assert stated(form("Tensor"), x) and stated(form("_tuple[Tensor, ...]"), (x, x))
    assert not stated(form("Tensor"), (x, x)) and not stated(form("_tuple[Tensor, Tensor]"), (x,))
    assert not stated(form("_bool"), x) and not stated(form("return_types.max"), (x, x))
