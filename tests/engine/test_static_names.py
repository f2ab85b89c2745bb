"""Editors and type checkers see every public name: they read the source, and run nothing."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import sys
import types
from pathlib import Path

import pytest

import engine
import hubcli

ROOT = Path(engine.__file__).parents[1]
# Modules that answer any name, or names of classes made at first use.
ANY_NAME = {"engine.ops", "engine.torch_names._C", "engine.torch_names._dynamo", "engine.torch_names.onnx"}


def modules() -> list[str]:
    found = []
    for package in (engine, hubcli):
        found += [package.__name__, *(m.name for m in pkgutil.walk_packages(package.__path__, package.__name__ + "."))]
    return [name for name in found if not any(part[0] == "_" for part in name.split(".")) and name not in ANY_NAME]


def bound(body: list[ast.stmt]) -> set[str]:
    """The names that statements bind in a module, as a type checker sees it."""
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(a.asname or a.name.partition(".")[0]) for a in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.For | ast.With | ast.If | ast.Try):
            names |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            for part in ("body", "orelse", "handlers", "finalbody"):
                found = getattr(node, part, [])
                names |= bound([s for h in found for s in (h.body if isinstance(h, ast.ExceptHandler) else [h])])
    return names


def static(module: types.ModuleType) -> set[str]:
    source = Path(module.__file__)
    stub = source.with_suffix(".pyi")
    names = bound(ast.parse((stub if stub.exists() else source).read_text()).body)
    if source.name == "__init__.py":
        names |= {one.stem if one.suffix == ".py" else one.name for one in source.parent.iterdir()}
    return names


@pytest.mark.parametrize("name", modules())
def test_public_names_are_static(name: str) -> None:
    module = importlib.import_module(name)
    assert Path(module.__file__).is_relative_to(ROOT)
    public = {n for n in dir(module) if n[0] != "_" and n != "annotations"} | set(getattr(module, "__all__", ()))
    stray = {n for n in public if isinstance(sys.modules.get(f"{n}"), types.ModuleType)}  # `import math` in it
    assert sorted(public - static(module) - stray) == []
