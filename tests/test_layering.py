"""Who may import whom: walks the `ast` of `engine/` and `hubcli/`, imports neither.

The order of the layers is the table below.  A module without a row takes the layer of the highest
module that it imports, so that new modules are held to the rule from their first line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

LAYERS = (
    ("_checks", "dtypes", "device", "grad_mode", "hooks", "version"),
    ("backends",),
    ("storage",),
    (
        "autograd.graph",
        "autograd.versions",
        "autograd.saved",
        "autograd.engine",
        "autograd.inplace",
        "autograd.anomaly_mode",
    ),
    ("tensor", "_tensor_str"),
    ("dispatch",),
    ("ops",),
    (
        "autograd",
        "linalg",
        "fft",
        "nn.functional",
        "nn._functional_activation",
        "nn._functional_loss",
        "nn._functional_pooling",
        "nn._reduction",
        "nn.grad",
    ),
    ("nn", "optim", "distributions", "amp", "plan"),
    ("serialization",),
    ("multiprocessing", "distributed"),
    ("utils",),
    ("torch_names", "torch_alias", "fx", "jit", "onnx", "export", "package"),
    ("utils.tensorboard", "utils.bottleneck"),  # graphs of compiled programs, a command: nobody imports them
)
RANKS = {f"engine.{name}": rank for rank, row in enumerate(LAYERS) for name in row}
# `import engine` gives torch's names, which the ops define
RANKS["engine"] = RANKS["engine.ops"]
# lists of names and nothing else
RANKS["engine.torch_names._names"] = RANKS["engine.torch_names.refused"] = 0

# The rooms of the hub, from the ground up: each may use those before it.  A module at the top is below all of them
# unless it is named here.
HUB_LAYERS = (
    ("hubcli.errors", "hubcli.paths", "hubcli.settings", "hubcli.spec", "hubcli.output"),
    ("hubcli.reading", "hubcli.net"),
    ("hubcli.cache",),
    ("hubcli.trust", "hubcli.lockfile", "hubcli.asking"),
    ("hubcli.mirroring", "hubcli.scaffold", "hubcli.catalogue", "hubcli.preview", "hubcli.migration"),
    ("hubcli.running", "hubcli.torch_hub"),
    ("hubcli.confined",),
    ("hubcli.check",),
    ("hubcli.commands", "hubcli.cli", "hubcli.__main__"),
)
HUB_RANKS = {name: rank for rank, row in enumerate(HUB_LAYERS) for name in row}

# top-level package: the modules that may import it
ONLY_IN = {
    "git": ("hubcli.net.started",),
    "requests": (
        "hubcli.net.http",
        "hubcli.net.exchanges",
        "hubcli.net.answers",
        "hubcli.net.unreachable",
        "hubcli.net.wire",
        "hubcli.net.credentials",
        "hubcli.net.proxies",
    ),
    "fsspec": ("hubcli.net.objects",),
    "s3fs": ("hubcli.net.objects",),
    # the engine's are Unix sockets between processes of one machine, and the store of engine.distributed
    "socket": ("hubcli.net.http", "engine.multiprocessing", "engine.distributed", "engine.utils.data._utils.segments"),
    "urllib.request": ("hubcli.net.http",),
    "http.client": ("hubcli.net.answers", "hubcli.net.wire"),
    "cupy": ("engine.backends.cuda",),
    "cudnn": ("engine.backends.cuda.cudnn",),
    "cffi": ("engine.backends.onednn",),
}
MAY_USE_THE_ENGINE = (
    "hubcli.running.archives",
    "hubcli.running.invoke",
    "hubcli.running.checkpoints",
    "hubcli.running.isolation",
    "hubcli.running.child_site.sitecustomize",
    "hubcli.running.files",
    "hubcli.running.modelfile",
    "hubcli.running.exporting",
    "hubcli.confined.jobs",
    "hubcli.running.profiling",
    "hubcli.commands.convert",
    "hubcli.commands.env",
    "hubcli.commands.profile",
)


@dataclass(frozen=True)
class Import:
    """One imported module: `where` is module, function or typing (under TYPE_CHECKING)."""

    importer: str
    imported: str
    where: str
    line: int
    star: bool = False

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported} ({self.where})"


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, tuple[Path, ast.Module]]:
    paths = [path for top in ("engine", "hubcli") for path in sorted((ROOT / top).rglob("*.py"))]
    return {name_of(path): (path, ast.parse(path.read_bytes())) for path in paths}


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def called(node: ast.Call) -> str:
    """The last name of what is called: `import_module` of `importlib.import_module(...)`."""
    return ast.unparse(node.func).rpartition(".")[2]


def text_of(node: ast.Call) -> str | None:
    """The module that `import_module("a.b")` names, or of `import_module(f"a.b.{c}")` the package before the braces."""
    first = node.args[0] if node.args else None
    if isinstance(first, ast.JoinedStr):
        head = first.values[0]
        return str(head.value).rpartition(".")[0] or None if isinstance(head, ast.Constant) else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def imports_of(name: str) -> Iterator[Import]:
    path, tree = modules()[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]

    def walk(node: ast.AST, where: str) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            inner = where
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                inner = "function"
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                inner = "typing"
            elif isinstance(child, ast.Call) and called(child) == "import_module":
                if target := text_of(child):
                    yield Import(name, target, where, child.lineno)
            elif isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(name, alias.name, where, child.lineno)
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    up = package.split(".")[: len(package.split(".")) - child.level + 1]
                    base = ".".join([*up, *filter(None, [child.module])])
                for alias in child.names:
                    full = f"{base}.{alias.name}"
                    target = full if full in modules() or full in RANKS else base
                    yield Import(name, target, where, child.lineno, alias.name == "*")
            yield from walk(child, inner)

    yield from walk(tree, "module")


@cache
def all_imports() -> tuple[Import, ...]:
    return tuple(found for name in modules() for found in imports_of(name))


@cache
def engine_imports() -> dict[str, list[str]]:
    """What each module of the engine imports of the engine when it runs."""
    found: dict[str, list[str]] = {}
    for one in all_imports():
        if one.where != "typing" and is_within(one.imported, "engine"):
            found.setdefault(one.importer, []).append(one.imported)
    return found


@cache
def listed_rank(name: str) -> int | None:
    while name:
        if name in RANKS and (name != "engine"):
            return RANKS[name]
        name = name.rpartition(".")[0]
    return None


def rank(name: str, seen: frozenset[str] = frozenset()) -> int:
    """The layer of an engine module; what has no row takes that of the highest it imports."""
    if name == "engine":
        return RANKS["engine"]
    listed = listed_rank(name)
    if listed is not None:
        return listed
    seen = seen | {name}
    below = [rank(imported, seen) for imported in engine_imports().get(name, ()) if imported not in seen]
    return max(below, default=0)


def complain(found: list[Import]) -> None:
    assert not found, "\n" + "\n".join(str(one) for one in found)


def test_the_engines_layers() -> None:
    complain(
        [
            one
            for one in all_imports()
            if is_within(one.importer, "engine")
            and one.importer != "engine"
            and one.where != "typing"
            and is_within(one.imported, "engine")
            and rank(one.imported) > rank(one.importer)
        ]
    )


def hub_rank(name: str) -> int:
    """The floor of a module of the hub: that of its room; 0 for what has no row."""
    while name not in HUB_RANKS and name:
        name = name.rpartition(".")[0]
    return HUB_RANKS.get(name, 0)


def test_the_hubs_floors() -> None:
    complain(
        [
            one
            for one in all_imports()
            if is_within(one.importer, "hubcli")
            and one.importer != "hubcli"
            and one.where != "typing"
            and is_within(one.imported, "hubcli")
            and hub_rank(one.imported) > hub_rank(one.importer)
        ]
    )


def test_imports_by_string_are_seen() -> None:
    """`import_module("engine.x")` counts as an import, also where the last part is found at run time."""
    code = "import importlib\ndef f(n):\n importlib.import_module('engine.nn')\n import_module(f'engine.cuda.{n}')\n"
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    assert [text_of(node) for node in calls if called(node) == "import_module"] == ["engine.nn", "engine.cuda"]
    assert any(one.imported == "engine.cuda" and one.where == "function" for one in imports_of("engine.cuda"))


def test_the_engine_never_imports_the_hub() -> None:
    complain([one for one in all_imports() if is_within(one.importer, "engine") and is_within(one.imported, "hubcli")])


def test_the_hub_uses_the_engine_in_few_places_and_late() -> None:
    complain(
        [
            one
            for one in all_imports()
            if is_within(one.importer, "hubcli")
            and is_within(one.imported, "engine")
            and one.where != "typing"
            and (one.importer not in MAY_USE_THE_ENGINE or one.where != "function")
        ]
    )


@pytest.mark.parametrize("package", ONLY_IN)
def test_packages_with_one_home(package: str) -> None:
    complain(
        [
            one
            for one in all_imports()
            if is_within(one.imported, package)
            and one.where != "typing"
            and not any(is_within(one.importer, home) for home in ONLY_IN[package])
        ]
    )


def test_optional_and_heavy_packages_come_late() -> None:
    heavy = ("cupy", "cffi", "git", "rich", "filelock", "platformdirs", "PIL", "mpi4py", "fsspec", "s3fs")
    complain(
        [one for one in all_imports() if one.where == "module" and any(is_within(one.imported, name) for name in heavy)]
    )


def test_the_core_does_not_know_the_commands() -> None:
    complain(
        [
            one
            for one in all_imports()
            if is_within(one.imported, "hubcli.commands") and not is_within(one.importer, "hubcli.commands")
        ]
    )


def test_no_star_imports() -> None:
    complain([one for one in all_imports() if one.star])


def test_no_environment_reads_at_import() -> None:
    def reads(node: ast.AST) -> Iterator[int]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                yield from (line for default in defaults(child) for line in reads(default))
                continue
            if isinstance(child, ast.Attribute | ast.Name) and ast.unparse(child) in (
                "os.environ",
                "os.getenv",
                "environ",
                "getenv",
            ):
                yield child.lineno
            yield from reads(child)

    def defaults(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.expr]:
        arguments = function.args
        return [*arguments.defaults, *(one for one in arguments.kw_defaults if one is not None)]

    found = [f"{name}:{line}" for name, (_, tree) in modules().items() for line in reads(tree)]
    assert not found


def test_no_name_of_a_module_is_given_twice() -> None:
    """A second meaning further down silently replaces the first one for the functions above it, too."""

    def given(node: ast.stmt) -> list[str]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            return [node.name]
        targets = node.targets if isinstance(node, ast.Assign) else []
        names = [name for target in targets for name in ast.walk(target)]
        return [n.id for n in names if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]

    found = []
    for name, (_, tree) in modules().items():
        names = [one for node in tree.body for one in given(node) if one != "_"]
        found += [f"{name}: {one}" for one in sorted({one for one in names if names.count(one) > 1})]
    assert not found


def test_every_package_says_what_lives_there() -> None:
    missing = [
        name for name, (path, tree) in modules().items() if path.name == "__init__.py" and not ast.get_docstring(tree)
    ]
    assert not missing


def test_no_file_is_too_long() -> None:
    lengths = {name: len(path.read_text().splitlines()) for name, (path, _) in modules().items()}
    assert not {name: length for name, length in lengths.items() if length > 700}
