"""Reads a `hubconf.py` without running it: entrypoints, signatures, dependencies, from the `ast`.

Plain and decorated functions, classes, assignments to callables, explicit imports and star imports
inside the repository are followed; whatever fills the namespace at run time makes the result
`dynamic`.  The input is hostile: sizes are bounded, nothing is imported, links and devices are not
opened, and every failure names the file and the line.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from hubcli.errors import HubconfNotFoundError, NotFoundError, RepositoryCodeError
from hubcli.reading.calls import initializer
from hubcli.reading.externals import callable_here
from hubcli.reading.names import Reader
from hubcli.reading.values import Class, External, Function, Imported, Maybe, Module, Unknown, Value

MAX_PARAMETERS = 255


@dataclass(frozen=True)
class EntryPoint:
    """One callable of a hubconf.

    `source` is how the name came about (`def|assign|import|star|exec`); `external` says that the
    definition is outside the repository, so that `doc` and `signature` are unknown (None).
    """

    name: str
    summary: str
    doc: str | None
    signature: str | None
    source: str
    external: bool = False


@dataclass(frozen=True)
class HubConf:
    """All that a hubconf says of itself; `dynamic` if it may define more names when it runs."""

    entrypoints: tuple[EntryPoint, ...]
    dependencies: tuple[str, ...]
    dynamic: bool
    docstring: str | None

    def entrypoint(self, name: str, *, spec: str | None = None, renewal: str | None = None) -> EntryPoint:
        """Return the entrypoint called `name`; NotFoundError lists names near to it and how to get a newer
        copy."""
        for entry in self.entrypoints:
            if entry.name == name:
                return entry
        hint = near_names(name, [entry.name for entry in self.entrypoints])
        if self.dynamic:
            hint += " (names that hubconf.py makes when it runs show up with --exec)"
        raise missing_callable(name, hint, spec, renewal)


def missing_callable(name: str, hint: str, spec: str | None = None, renewal: str | None = None) -> NotFoundError:
    """torch.hub's error for an entrypoint that is not there; `renewal` is the hint how to get a newer copy."""
    error = NotFoundError(f"Cannot find callable {name} in hubconf", hint=hint, spec=spec)
    error.advise(renewal)
    return error


def near_names(name: str, known: Iterable[str]) -> str:
    """Return a hint that lists the known names, the near ones first."""
    import difflib

    names = sorted(known)
    if not names:
        return "its hubconf.py defines no entrypoint"
    near = difflib.get_close_matches(name, names, n=5, cutoff=0.5)
    shown = near or names[:10]
    more = "" if near or len(names) <= len(shown) else f" and {len(names) - len(shown)} more"
    return ("did you mean " if near else "it has ") + ", ".join(shown) + more


def summary_line(doc: str | None) -> str:
    """Return the first line of a docstring, or an empty string."""
    return doc.strip().splitlines()[0].strip() if doc and doc.strip() else ""


def read(path: Path) -> HubConf:
    """Read `hubconf.py` of the checkout or folder `path`, executing nothing."""
    file = path / "hubconf.py"
    if not file.exists():
        hint = "a repository for hub has a hubconf.py at its top"
        from hubcli.reading import model_files  # for this hint alone

        found = model_files.in_folder(path)
        if found is not None:
            hint = (
                f"it has {found.name}: `hub show` describes that, `hub run` with --prompt TEXT generates text with it"
            )
        raise HubconfNotFoundError(f"no hubconf.py in {path}", hint=hint)
    reader = Reader(path)
    try:
        module = reader.load(file)
        names = {name: (reader.resolve(value), source) for name, (value, source) in module.names.items()}
        public = {name: known for name, known in sorted(names.items()) if not name.startswith("_")}
        entries = (_entrypoint(reader, name, value, source) for name, (value, source) in public.items())
        unclear = any(isinstance(value, Maybe) for value, _ in public.values())
        return HubConf(
            entrypoints=tuple(entry for entry in entries if entry is not None),
            dependencies=_dependencies(reader, module),
            dynamic=module.dynamic or unclear,
            docstring=ast.get_docstring(module.tree),
        )
    except RecursionError:
        raise RepositoryCodeError(
            f"hubconf.py:1: the code in {path} is nested too deeply to be read",
            hint="nothing was executed; the file is either generated or hostile",
        ) from None


def _entrypoint(reader: Reader, name: str, value: Value, source: str) -> EntryPoint | None:
    """Return the entrypoint that `name` is, or None where the value is not callable."""
    doc: str | None = None
    signature: str | None = None
    reader.spend(20)
    if isinstance(value, Function):
        signature = _signature(reader, value)
        if value.doc is not None:
            doc = inspect.cleandoc(value.doc)
        elif not isinstance(value.node, ast.Lambda):
            doc = ast.get_docstring(value.node)
    elif isinstance(value, Class):
        doc = ast.get_docstring(value.node)
        function = _call_method(reader, value) if value.instance else initializer(reader, value)
        signature = _signature(reader, function) if function else None
    elif isinstance(value, External):
        if value.module or not callable_here(value.dotted):
            return None
    elif not isinstance(value, Unknown):
        return None
    external = isinstance(value, External)
    return EntryPoint(name, summary_line(doc), doc, signature, source, external)


def _dependencies(reader: Reader, module: Module) -> tuple[str, ...]:
    """`dependencies` of the hubconf, or of the module that it imports the name from."""
    bound = module.names.get("dependencies")
    if bound is not None and isinstance(bound[0], Imported):
        seen: set[Path] = set()
        value: Value = bound[0]
        while isinstance(value, Imported) and value.target not in seen:
            seen.add(value.target)
            if not value.target.is_file():
                break
            module = reader.load(value.target)
            value = module.names.get(value.name, (Unknown(), ""))[0]
    return tuple(dict.fromkeys(module.dependencies))


def _call_method(reader: Reader, value: Class) -> Function | None:
    methods = reader.methods(value.node)
    found = methods.get("forward") or methods.get("__call__")
    return Function(found, value.module, bound=1) if found is not None else None


def _signature(reader: Reader, function: Function) -> str:
    """Return the parameters as a caller sees them, in the source's own words."""
    arguments = function.node.args
    count = len(arguments.posonlyargs) + len(arguments.args) + len(arguments.kwonlyargs)
    reader.spend(count + len(function.keywords))
    if count > MAX_PARAMETERS:
        return "(...)"
    given = dict(function.keywords)
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[str | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults += [reader.text(default) for default in arguments.defaults]
    only_positional = len(arguments.posonlyargs)
    shown: list[str] = []
    keyword_only = False
    for index, (argument, default) in enumerate(zip(positional, defaults)):
        if index < function.bound:
            continue
        if argument.arg in given and not keyword_only:
            keyword_only = True  # functools.partial: what follows goes by keyword only
            shown.append("*")
        shown.append(_parameter(reader, argument, given.pop(argument.arg, default)))
        if index == only_positional - 1:
            shown.append("/")
    if arguments.vararg is not None and not keyword_only:
        shown.append("*" + _parameter(reader, arguments.vararg, None))
    elif arguments.kwonlyargs and not keyword_only:
        shown.append("*")
    for argument, value in zip(arguments.kwonlyargs, arguments.kw_defaults):
        default = reader.text(value) if value is not None else None
        shown.append(_parameter(reader, argument, given.pop(argument.arg, default)))
    if arguments.kwarg is not None:
        shown.append("**" + _parameter(reader, arguments.kwarg, None))
    text = f"({', '.join(shown)})"
    if not isinstance(function.node, ast.Lambda) and function.node.returns is not None:
        text += f" -> {reader.text(function.node.returns)}"
    return text


def _parameter(reader: Reader, argument: ast.arg, default: str | None) -> str:
    if argument.annotation is None:
        return argument.arg if default is None else f"{argument.arg}={default}"
    text = f"{argument.arg}: {reader.text(argument.annotation)}"
    return text if default is None else f"{text} = {default}"
