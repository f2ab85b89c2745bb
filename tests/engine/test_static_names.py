"""Editors and type checkers see every public name: they read the source, and run nothing.

What a module imports counts as its own, in a package with `py.typed`, only under `__all__` or as `import x as x`.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import types
from pathlib import Path
from typing import Any

import engine
import hubcli

# Modules that answer names which nobody could list, and what `engine.torch` is there for
ANY_NAME = {
    "engine.library.classes",
    "engine.ops",
    "engine.torch_names.functional",
    "engine.onnx",
    "hubcli.torch_hub",
}
EXEMPT = {"engine": {"torch"}, "engine.backends": {"Lease"}, "engine.ops": {"products"}}


def names_of_modules() -> list[str]:
    found = []
    for package in (engine, hubcli):
        name = package.__package__  # the engine's `__name__` is torch's once it is its alias
        found += [name, *(m.name for m in pkgutil.walk_packages(package.__path__, name + "."))]
    # needs the package tensorboard, as torch's
    found = [name for name in found if not name.startswith("engine.utils.tensorboard")]
    return [name for name in found if not any(part[0] == "_" for part in name.split("."))]


def source_of(module: types.ModuleType) -> Path:
    """The stub, where there is one."""
    source = Path(module.__file__ or "")
    stub = source.with_suffix(".pyi")
    return stub if stub.exists() else source


def bound(body: list[ast.stmt], listed: set[str]) -> set[str]:
    """The names that statements bind in a module for its users."""
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {a.asname or a.name for a in node.names if a.asname == a.name or (a.asname or a.name) in listed}
        elif isinstance(node, ast.If | ast.With | ast.Try | ast.For):
            for part in ("body", "orelse", "handlers", "finalbody"):
                for found in getattr(node, part, []):
                    names |= bound(found.body if isinstance(found, ast.ExceptHandler) else [found], listed)
        else:
            names |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return names


def static(module: types.ModuleType) -> set[str]:
    path = source_of(module)
    body = ast.parse(path.read_text()).body
    listed: set[str] = set()
    for node in body:
        if (
            isinstance(node, ast.Assign)
            and ast.unparse(node.targets[0]) == "__all__"
            and isinstance(node.value, ast.List)
        ):
            listed = {e.value for e in node.value.elts if isinstance(e, ast.Constant)}
    names = bound(body, listed)
    if path.stem == "__init__":
        names |= {one.stem if one.suffix == ".py" else one.name for one in path.parent.iterdir()}
    return names


def public(module: types.ModuleType) -> set[str]:
    """`__all__`, or what is made below the module itself; and what comes at first use."""

    def home(value: Any) -> str:
        return str(getattr(value, "__module__", None) or getattr(value, "__name__", "") or "")

    below = {n for n, v in vars(module).items() if f"{home(v)}.".startswith(f"{module.__name__}.")}
    if module.__name__.startswith("engine.ops."):  # a family's files are no users of its package
        below = {n for n in below if home(vars(module)[n]) == module.__name__}
    return {n for n in {*getattr(module, "__all__", below), *lazy(module)} if n[0] != "_"}


def lazy(module: types.ModuleType) -> set[str]:
    """The names that a module lists and does not have yet: its `__getattr__` serves them."""
    return set(dir(module)) - set(vars(module))


def test_public_names_are_static() -> None:
    lacking = {}
    for name in names_of_modules():
        module = importlib.import_module(name)
        if found := public(module) - static(module) - EXEMPT.get(name, set()):
            lacking[name] = sorted(found)
    assert not lacking


def test_unknown_names_are_errors() -> None:
    """A `__getattr__` that type checkers see makes every misspelt name right."""
    seen = set()
    for name in names_of_modules():
        body = ast.parse(source_of(importlib.import_module(name)).read_text()).body
        if "__getattr__" in {node.name for node in body if isinstance(node, ast.FunctionDef)}:
            seen.add(name)
    assert seen <= ANY_NAME


def test_a_name_made_at_run_time_is_found(tmp_path, monkeypatch) -> None:
    (tmp_path / "made.py").write_text(
        "import os\nfrom math import pi\nglobals().update(late=1)\n__all__ = ['late', 'pi']\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("made")
    assert public(module) - static(module) == {"late"}
