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
    (
        "core.checks",
        "core.device",
        "core.dtypes",
        "core.grad_mode",
        "core.hooks",
        "core.packages",
        "core.size",
        "core.slots",
        "core.version",
    ),
    ("backends",),
    ("core.storage",),
    (
        "autograd.flops",
        "autograd.graph",
        "autograd.versions",
        "autograd.views",
        "autograd.saved",
        "autograd.engine",
        "autograd.inplace",
        "autograd.anomaly_mode",
    ),
    ("tensor", "core.printing"),
    ("dispatch",),
    ("ops",),
    (
        "autograd",
        "linalg",
        "fft",
        "nn.functional",
        "nn._functional_activation",
        "nn._functional_linear_cross_entropy",
        "nn._functional_loss",
        "nn._functional_pooling",
        "nn._reduction",
        "nn.grad",
    ),
    ("nn", "optim", "distributions", "amp"),
    ("serialization",),
    ("multiprocessing", "distributed"),
    ("utils",),
    ("torch_names", "torch_alias", "fx", "programs", "jit", "onnx", "export", "package"),
    ("utils.tensorboard", "utils.bottleneck"),  # graphs of compiled programs, a command: nobody imports them
)
RANKS = {f"engine.{name}": rank for rank, row in enumerate(LAYERS) for name in row}
# `import engine` gives torch's names, which the ops define
RANKS["engine"] = RANKS["engine.ops"]
# lists of names, and the module that is loaded before any other
for _name in ("_names", "facade", "refused"):
    RANKS[f"engine.torch_names.{_name}"] = 0

# The folders of the hub, from the ground up: each may use those before it.
HUB_LAYERS = (
    ("hubcli.errors", "hubcli.base"),
    ("hubcli.reading", "hubcli.net"),
    ("hubcli.cache",),
    ("hubcli.trust",),
    ("hubcli.running", "hubcli.torch_hub"),
    ("hubcli.text",),
    ("hubcli.confined",),
    ("hubcli.workflows",),
    ("hubcli.terminal", "hubcli.__main__"),
)
HUB_RANKS = {name: rank for rank, row in enumerate(HUB_LAYERS) for name in row}

# top-level package: the modules that may import it
ONLY_IN = {
    "git": ("hubcli.net.git.process",),
    "requests": (
        "hubcli.net.http.fetch",
        "hubcli.net.http.api",
        "hubcli.net.http.responses",
        "hubcli.net.http.connection_errors",
        "hubcli.net.http.sessions",
        "hubcli.net.http.credentials",
        "hubcli.net.http.proxies",
    ),
    "fsspec": ("hubcli.net.storage.objects",),
    "s3fs": ("hubcli.net.storage.objects",),
    # the engine's are Unix sockets between processes of one machine, and the store of engine.distributed
    "socket": (
        "hubcli.net.http.fetch",
        "engine.multiprocessing",
        "engine.distributed",
        "engine.utils.data._utils.segments",
    ),
    "urllib.request": ("hubcli.net.http.fetch",),
    "http.client": ("hubcli.net.http.responses", "hubcli.net.http.sessions"),
    "cupy": ("engine.backends.cuda",),
    "cudnn": ("engine.backends.cuda.cudnn",),
    "cffi": ("engine.backends.onednn",),
}
IMPORT_THE_FACADE = {
    "engine.torch_alias": "it installs the module as `torch`, and runs as a program whose first line this is",
}
MAY_USE_THE_ENGINE = (
    "hubcli.running.archives",
    "hubcli.running.invoke",
    "hubcli.running.checkpoints",
    "hubcli.running.isolation",
    "hubcli.running.frameworks",
    "hubcli.running.loaders",
    "hubcli.running.child_site.sitecustomize",
    "hubcli.running.files",
    "hubcli.running.onnx_files",
    "hubcli.running.exporting",
    "hubcli.confined.jobs",
    "hubcli.running.profiling",
    "hubcli.terminal.commands.convert",
    "hubcli.workflows.environment",
    "hubcli.terminal.commands.profile",
)

BUILT_ON_THE_ENGINE = "hubcli.text"  # a folder of networks: it imports the engine at once, and is itself imported late


@dataclass(frozen=True)
class Import:
    """One imported module: `where` is module, function or typing (under TYPE_CHECKING)."""

    importer: str
    imported: str
    where: str
    line: int
    star: bool = False
    within: bool = False  # `import_module(f"a.b.{c}")`: some module of the package

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported} ({self.where})"


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    """The files by module.  No syntax tree is cached: every later garbage collection would walk through it."""
    paths = [path for top in ("engine", "hubcli") for path in sorted((ROOT / top).rglob("*.py"))]
    return {name_of(path): path for path in paths}


def trees() -> Iterator[tuple[str, ast.Module]]:
    """(module, its syntax tree), one at a time."""
    return ((name, ast.parse(path.read_bytes())) for name, path in modules().items())


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def called(node: ast.Call) -> str:
    """The last name of what is called: `import_module` of `importlib.import_module(...)`."""
    return getattr(node.func, "attr", None) or getattr(node.func, "id", "")


def text_of(node: ast.Call) -> str | None:
    """The module that `import_module("a.b")` names, or of `import_module(f"a.b.{c}")` the package before the braces."""
    first = node.args[0] if node.args else None
    if isinstance(first, ast.JoinedStr):
        head = first.values[0]
        return str(head.value).rpartition(".")[0] or None if isinstance(head, ast.Constant) else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None


def imports_of(name: str) -> Iterator[Import]:
    path = modules()[name]
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
                    unknown_part = isinstance(child.args[0], ast.JoinedStr)
                    yield Import(name, target, where, child.lineno, within=unknown_part)
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

    yield from walk(ast.parse(path.read_bytes()), "module")


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


def test_nobody_inside_imports_the_facade() -> None:
    """`from engine.ops import functions as torch` serves torch's functions; `torch_names.facade` the module itself."""
    complain(
        [
            one
            for one in all_imports()
            if is_within(one.importer, "engine")
            and one.imported == "engine"
            and not one.within
            and one.importer not in IMPORT_THE_FACADE
        ]
    )


def hub_rank(name: str) -> int:
    """Return the floor of a module of the hub, which is that of its folder."""
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


def test_the_hub_has_no_circles() -> None:
    """Imports inside functions count, too: there they are for the weight, never to quiet a circle."""
    imported: dict[str, set[str]] = {}
    for one in all_imports():
        if is_within(one.importer, "hubcli") and is_within(one.imported, "hubcli") and one.where != "typing":
            imported.setdefault(one.importer, set()).add(one.imported)
    imported.pop("hubcli")  # the face, whose names are served lazily
    assert imported
    while leaves := [name for name, found in imported.items() if not found & imported.keys()]:
        for name in leaves:
            del imported[name]
    assert not {name: sorted(found & imported.keys()) for name, found in imported.items()}


def test_the_hub_passes_its_options_down() -> None:
    """Below the command line an option is a field of a `Request`, never a setting that is changed for a while."""
    changed = [
        f"{name}:{node.lineno}"
        for name, tree in trees()
        if is_within(name, "hubcli") and not is_within(name, "hubcli.terminal")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in ("override", "overriding")
        and ast.unparse(node.value) == "settings"
    ]
    assert not changed


def test_no_command_is_long() -> None:
    """A command parses, calls the core and prints."""
    folder = ROOT / "hubcli" / "terminal" / "commands"
    lengths = {path.name: len(path.read_text().splitlines()) for path in folder.glob("*.py")}
    assert lengths and not {name: length for name, length in lengths.items() if length > 100}


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
            and not is_within(one.importer, BUILT_ON_THE_ENGINE)
            and (one.importer not in MAY_USE_THE_ENGINE or one.where != "function")
        ]
    )
    complain(
        [
            one
            for one in all_imports()
            if is_within(one.imported, BUILT_ON_THE_ENGINE)
            and not is_within(one.importer, BUILT_ON_THE_ENGINE)
            and one.where == "module"
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
            if is_within(one.imported, "hubcli.terminal.commands")
            and not is_within(one.importer, "hubcli.terminal.commands")
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

    found = [f"{name}:{line}" for name, tree in trees() for line in reads(tree)]
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
    for name, tree in trees():
        names = [one for node in tree.body for one in given(node) if one != "_"]
        found += [f"{name}: {one}" for one in sorted({one for one in names if names.count(one) > 1})]
    assert not found


def test_every_package_says_what_lives_there() -> None:
    missing = [name for name, tree in trees() if modules()[name].name == "__init__.py" and not ast.get_docstring(tree)]
    assert not missing


def test_no_file_is_too_long() -> None:
    lengths = {name: len(path.read_text().splitlines()) for name, path in modules().items()}
    assert not {name: length for name, length in lengths.items() if length > 700}


def test_the_formatter_lays_out_the_code() -> None:
    """Exceptions are tables of numbers and long lists of names, which would take a line per entry."""
    mark = "# fmt:" + " skip"
    assert (
        sum(
            path.read_text().count(mark)
            for name in ("engine", "hubcli", "tests")
            for path in (ROOT / name).rglob("*.py")
        )
        <= 100
    )


def circles(*, functions: bool) -> list[list[str]]:
    """The groups of engine modules that import each other; functions: counting imports inside functions, too."""
    edges: dict[str, set[str]] = {}
    for one in all_imports():
        if one.where == "module" or (functions and one.where == "function"):
            inside = is_within(one.importer, "engine") and one.imported in modules() and not one.within
            if inside and one.importer != one.imported:
                edges.setdefault(one.importer, set()).add(one.imported)
    reach: dict[str, set[str]] = {}
    for start in edges:
        seen, todo = set[str](), [start]
        while todo:
            new = edges.get(todo.pop(), set()) - seen
            seen |= new
            todo += new
        reach[start] = seen
    groups = {tuple(sorted(b for b in reach[a] if a in reach.get(b, ()))) for a in edges if a in reach[a]}
    return sorted(map(list, groups))


@cache
def top_imports() -> dict[str, set[str]]:
    """What each module of the engine imports of the engine at its top."""
    found: dict[str, set[str]] = {}
    for one in all_imports():
        if one.where == "module" and is_within(one.imported, "engine"):
            found.setdefault(one.importer, set()).add(one.imported)
    return found


def height(name: str, known: dict[str, int]) -> int:
    """The layer of a module by its row or by what it imports at its top; `engine` stands above all."""
    if name not in known:
        listed = listed_rank(name)
        heights = (height(one, known) for one in top_imports().get(name, ()) if one != name)
        known[name] = listed if listed is not None else max(heights, default=0)
    return known[name]


def upward() -> set[tuple[str, str]]:
    """(importer, imported) wherever a module imports one of a higher layer, inside a function or by `import_module`."""
    known = {"engine": len(LAYERS)}
    pairs = {
        (one.importer, one.imported)
        for one in all_imports()
        if is_within(one.importer, "engine")
        and one.importer != "engine"
        and one.where != "typing"
        and is_within(one.imported, "engine")
        and one.imported in modules()
        and not one.within
    }
    return {(a, b) for a, b in pairs if height(b, known) > height(a, known)}


def test_no_circle_at_module_level() -> None:
    assert circles(functions=False) == []


def test_circles_and_upward_arrows_become_no_more() -> None:
    """Lower these numbers with each circle and arrow that goes.

    The circle that is left is of ops: what converts 16-bit floats may launch generated code, whose layers are made of
    ops that convert; both are imported at first need, so that small programs load neither.
    """
    found, arrows = circles(functions=True), upward()
    assert len(found) <= 1, "\n".join(map(str, found))
    assert len(arrows) <= 6, "\n".join(f"{a} imports {b}" for a, b in sorted(arrows))
