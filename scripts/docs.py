"""Write the pages of the documentation for Sphinx: guides, one page per command, the reference from the docstrings.

    python scripts/docs.py [FOLDER]     # default: build/docs
    python scripts/docs.py --commands   # brings docs/reference/commands.md up to date

The ops are in a registry that only exists at run time, and docstrings are plain text in which `(*, n)` is a shape: so
the modules are imported here, signatures are those of the stubs, and what docstrings say is escaped, where autodoc
would read `(*args, **kwargs)` and half of each shape in italics.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

import click  # noqa: E402
import stubs  # noqa: E402

import engine  # noqa: E402
from engine import dispatch  # noqa: E402
from hubcli.terminal import cli  # noqa: E402

# section of the menu -> title -> file of the repository
GUIDES = {
    "Tutorial": {"A tour": "docs/tutorial/tour.md", "All pages": "docs/README.md"},
    "How to": {
        "Install hub": "docs/how-to/install.md",
        "Use it in Python": "docs/how-to/python.md",
        "Publish a repository": "docs/how-to/publish.md",
        "An example repository": "sample_hubconf/README.md",
        "Check it in CI": "docs/how-to/ci.md",
        "Pin what runs": "docs/how-to/lock.md",
        "Come from torch.hub": "docs/how-to/migrate.md",
        "Meet dependencies": "docs/how-to/dependencies.md",
        "Downloads and the cache": "docs/how-to/cache.md",
        "Behind a proxy": "docs/how-to/proxy.md",
        "Serve a mirror": "docs/how-to/mirror.md",
        "Use the sandbox": "docs/how-to/sandbox.md",
        "Use ONNX files": "docs/how-to/onnx.md",
        "Generate text": "docs/how-to/text.md",
        "Profile": "docs/how-to/profiling.md",
        "Run on NVIDIA GPUs": "docs/how-to/gpu.md",
        "Run in several processes": "docs/how-to/scaling.md",
    },
    "Reference": {
        "Settings": "docs/reference/settings.md",
        "Exit statuses": "docs/reference/exit_status.md",
        "JSON documents": "docs/reference/json.md",
        "Checkpoints": "docs/reference/checkpoints.md",
        "Differences from torch": "docs/reference/deviations.md",
        "What is missing": "docs/reference/gaps.md",
        "Packages": "docs/reference/packages.md",
        "PyTorch's own tests": "docs/reference/conformance.md",
    },
    "Explanation": {
        "Architecture": "docs/explanation/architecture.md",
        "Performance": "docs/explanation/performance.md",
        "What was measured and tried": "docs/explanation/measurements.md",
        "Objects below Python": "docs/explanation/python_objects.md",
        "Dispatch": "engine/dispatch/README.md",
        "Plans": "engine/programs/README.md",
        "Kernels": "engine/kernels/README.md",
        "oneDNN": "engine/backends/onednn/README.md",
        "The cache": "hubcli/cache/README.md",
        "The sandbox": "hubcli/confined/README.md",
    },
    "Project": {"Contributing": "CONTRIBUTING.md", "Changes": "CHANGELOG.md"},
}
COMMANDS = ROOT / "docs" / "reference" / "commands.md"
MARKS = ("<!-- commands: written by `make docs-commands` -->", "<!-- end of commands -->")
# title -> modules whose public names make a page each, under the title of their package
MODULES = {
    "hubcli": ["hubcli", "hubcli.errors"],
    "nn": [
        "engine.nn.functional", "engine.nn.init", "engine.nn.parameter", "engine.nn.utils", "engine.nn.utils.rnn",
        "engine.nn.utils.parametrize", "engine.nn.utils.parametrizations", "engine.nn.utils.prune",
        "engine.nn.utils.stateless", "engine.nn.attention", "engine.nn.parallel",
    ],
    "optim": ["engine.optim", "engine.optim.lr_scheduler", "engine.optim.swa_utils"],
    "autograd": [
        "engine.autograd", "engine.autograd.functional", "engine.autograd.graph", "engine.autograd.profiler",
        "engine.func",
    ],
    "distributions": [
        "engine.distributions", "engine.distributions.constraints", "engine.distributions.transforms",
        "engine.distributions.kl",
    ],
    "mathematics": ["engine.linalg", "engine.fft", "engine.special", "engine.signal.windows", "engine.sparse"],
    "data and files": [
        "engine.utils.data", "engine.utils.checkpoint", "engine.utils.dlpack", "engine.serialization",
        "engine.serialization.safetensors", "engine.multiprocessing",
    ],
    "devices and settings": [
        "engine.cuda", "engine.amp", "engine.backends", "engine.compiler", "engine.jit", "engine.profiler",
        "engine.random", "engine.testing", "engine.distributed", "engine.torch_alias",
    ],
}  # fmt: skip


ALIASES = rf"\b_({'|'.join([*stubs.BUILTINS, *stubs.CLASSES])})\b"  # what the stubs spell with an underscore


@dataclasses.dataclass(frozen=True)
class Page:
    """One page: its place below FOLDER, its title, its section of the menu, and its text."""

    path: str
    title: str
    section: str
    text: str


# --- text


def escaped(text: str) -> str:
    """Plain text as Markdown: only `code` and addresses mean anything."""
    parts = re.split(r"(``[^`]+``|`[^`\n]+`|https?://[^\s)>,]+[^\s)>,.;:])", text)
    for i, part in enumerate(parts):
        if i % 2 == 0:
            part = re.sub(r"([\\`*_{}\[\]#|~])", r"\\\1", part).replace("<", "&lt;")
            parts[i] = re.sub(r"^([ ]*)([-+]|\d+[.])(?=\s)", r"\1\\\2", part, flags=re.M)
        elif not part.startswith("`"):
            parts[i] = f"<{part}>"
    return "".join(parts)


SECTIONS = ("Args:", "Returns:", "Raises:", "Warns:")


def listed(lines: list[str]) -> str:
    """Return a section of a docstring as a heading in bold and a list of its entries."""
    entries: list[str] = []
    for line in lines[1:]:
        if line.startswith("     "):
            entries[-1] += " " + line.strip()
        else:
            entries.append(line.strip())
    items = []
    for entry in entries:
        name, mark, text = entry.partition(": ")
        named = mark and lines[0] != "Returns:" and re.fullmatch(r"\**[\w.]+", name)
        items.append(f"- `{name}`: {escaped(text)}" if named else f"- {escaped(entry)}")
    return "\n".join([f"**{lines[0].rstrip(':')}**", "", *items])


def prose(doc: str | None) -> str:
    """A docstring as Markdown: paragraphs, and what is indented or has prompts as code."""
    blocks = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(doc or "")):
        lines = block.splitlines()
        if not lines:
            continue
        if lines[0] in SECTIONS and all(line.startswith("    ") for line in lines[1:]):
            blocks.append(listed(lines))
        elif all(line.startswith("    ") for line in lines) or block.startswith(">>>"):
            blocks.append("```python\n" + inspect.cleandoc(block) + "\n```")
        elif all(re.match(r"- |  ", line) for line in lines):
            blocks.append("\n".join(line[:2] + escaped(line[2:]) for line in lines))
        else:
            blocks.append(escaped(block))
    return "\n\n".join(blocks)


def code(text: str, language: str = "python") -> str:
    """A block of code."""
    return f"```{language}\n{text.rstrip()}\n```"


# --- signatures


def _parameter(p: inspect.Parameter) -> str:
    mark = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
    text = mark + p.name
    if p.annotation not in (p.empty, "Any", Any):
        kind = p.annotation if isinstance(p.annotation, str) else getattr(p.annotation, "__name__", str(p.annotation))
        text += f": {kind}"
    if p.default is not p.empty:
        value = repr(p.default)
        text += " = " + (value if not re.search(r" at 0x|^<", value) else "...")
    return text


def written(name: str, function: Any, skip: int = 0) -> str:
    """The signature of a function written by hand."""
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return name
    parts, star, slash = [], False, False
    for p in list(found.parameters.values())[skip:]:
        if slash and p.kind is not p.POSITIONAL_ONLY:
            parts.append("/")
        slash = p.kind is p.POSITIONAL_ONLY
        if p.kind is p.KEYWORD_ONLY and not star:
            parts.append("*")
        star = star or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        parts.append(_parameter(p))
    result = found.return_annotation
    arrow = f" -> {result}" if isinstance(result, str) and result != "Any" else ""
    return f"{name}({', '.join(parts)}){arrow}"


def signature(name: str, function: Any, method: bool = False) -> str:
    """The signature as `engine`'s stubs have it, for ops and what is made of them; else as it is written."""
    if isinstance(function, FunctionType) and (
        hasattr(function, "op") or function.__module__.startswith("engine.ops.")
    ):
        lines = stubs.definition(name.rpartition(".")[2], function, method=method).splitlines()
        texts = [line.removeprefix("def ").removesuffix(": ...") for line in lines if line.startswith("def ")]
        texts = [re.sub(ALIASES, r"\1", text).replace("(self, ", "(").replace("(self)", "()") for text in texts]
        return "\n".join(name.rpartition(".")[0] + "." + text for text in texts)
    return written(name, function, skip=int(method))


def docstring(value: Any) -> str:
    """The docstring without the signature that an op's begins with."""
    doc = inspect.cleandoc(getattr(value, "__doc__", None) or "")
    if hasattr(value, "op"):
        doc = doc.partition("\n\n")[2]
    return doc.removeprefix("In place: ")


# --- entries


def described(kind: str, signatures: str, body: str) -> str:
    """An object of Sphinx's Python domain: one or several signatures, and what it does."""
    first, *others = signatures.splitlines()
    parts = [f":::::{{py:{kind}}} {first}\n\n{body}\n:::::" if not others else f":::::{{py:{kind}}} {first}\n:::::"]
    for i, one in enumerate(others, 1):
        text = f"\n\n{body}" if i == len(others) else ""
        parts.append(f":::::{{py:{kind}}} {one}\n:no-index:{text}\n:::::")
    return "\n\n".join(parts)


def function_entry(name: str, value: Any, more: str = "") -> str:
    """The signature, what it does, its other names."""
    return described("function", signature(name, value), "\n\n".join([prose(docstring(value)), more]).rstrip())


def class_entry(name: str, cls: type, more: str = "") -> str:
    """A class: how it is made, what it is, its documented methods and properties."""
    maker = cls.__init__ if cls.__init__ is not object.__init__ else cls.__new__
    made = written(name, maker, skip=1) if inspect.isfunction(maker) else name
    own = prose(cls.__doc__ if "__doc__" in vars(cls) else "")
    parts = [described("class", re.sub(r" -> .*", "", made), "\n\n".join([own, more]).rstrip())]
    for key, value in sorted(vars(cls).items()):
        bare = getattr(value, "__func__", value)
        if key.startswith("_") or not getattr(bare, "__doc__", None):
            continue
        if isinstance(bare, FunctionType):
            text = written(f"{name}.{key}", bare, skip=int(not isinstance(value, staticmethod)))
            parts.append(described("method", text, prose(bare.__doc__)))
        elif isinstance(bare, property):
            parts.append(described("property", f"{name}.{key}", prose(bare.__doc__)))
    return "\n\n".join(parts)


def entry(name: str, value: Any) -> str:
    """One entry of a page."""
    return class_entry(name, value) if isinstance(value, type) else function_entry(name, value)


def members(module: ModuleType) -> dict[str, Any]:
    """The public functions and classes of a module: `__all__`, what its stub defines, or what is made below it."""
    listed = getattr(module, "__all__", None)
    stub = Path(module.__file__ or "").with_suffix(".pyi")
    if listed is None and stub.exists():
        listed = sorted(set(re.findall(r"^def (\w+)", stub.read_text(), re.M)))
    found = {}
    for name in sorted(listed or dir(module)):
        value = getattr(module, name)
        if name.startswith("_") or isinstance(value, ModuleType) or not callable(value):
            continue
        home = getattr(value, "__module__", None) or ""
        if listed is None and not f"{home}.".startswith(module.__name__ + "."):
            continue
        if not home.startswith(("engine", "hubcli", "torch")):
            continue
        found[name] = value
    return found


# --- pages


def op_pages() -> list[Page]:
    """A page for each family of ops: engine/ops/<file> or engine/ops/<folder>."""
    groups: dict[str, dict[str, list[str]]] = {}
    functions: dict[int, Any] = {}
    for name, value in sorted(dispatch.PUBLIC.items()):
        record = getattr(value, "op", None)
        home = record.kernel.__module__ if record else value.__module__
        home = home if home.startswith("engine.ops.") else "engine.ops.typed"
        key = id(record) if record else id(value)
        family = home.removeprefix("engine.ops.").partition(".")[0]
        groups.setdefault(family, {}).setdefault(f"{home} {key}", []).append(name)
        if record is None or value is record.function:
            functions[key] = value
        else:
            functions.setdefault(key, value)
    pages = []
    for family, entries in sorted(groups.items()):
        module = importlib.import_module(f"engine.ops.{family}")
        parts = [f"# Operations: {family.replace('_', ' ')}", prose((module.__doc__ or "").partition("\n\n")[0])]
        for key, names in sorted(entries.items(), key=lambda item: item[1][0].lower()):
            value = functions[int(key.split()[1])]
            first = value.__name__ if value.__name__ in names else names[0]
            others = [n for n in names if n != first]
            if getattr(engine.Tensor, first, None) is value:
                others.append(f"Tensor.{first}")
            more = "Also " + ", ".join(f"`{n if '.' in n else 'engine.' + n}`" for n in others) + "." if others else ""
            head = class_entry if isinstance(value, type) else function_entry
            parts.append(head(f"engine.{first}", value, more))
        pages.append(Page(f"api/ops/{family}.md", family.replace("_", " "), "Operations", "\n\n".join(parts)))
    return pages


def tensor_page() -> Page:
    """The class Tensor: its methods that are ops in a table of names, the others in full."""
    ops, parts = [], []
    for name, value in sorted(vars(engine.Tensor).items()):
        if name.startswith("_"):
            continue
        if hasattr(value, "op") or getattr(value, "__module__", "").startswith("engine.ops."):
            if isinstance(value, FunctionType):
                ops.append(f"Tensor.{signature('x.' + name, value, method=True).replace('x.', '', 1)}".splitlines()[0])
        elif isinstance(value, FunctionType):
            parts.append(described("method", written(f"Tensor.{name}", value, skip=1), prose(value.__doc__)))
        elif isinstance(value, property) and value.__doc__:
            parts.append(described("property", f"Tensor.{name}", prose(value.__doc__)))
    text = [
        "# Tensor",
        prose(engine.Tensor.__doc__),
        "## Methods and properties",
        *parts,
        "## Operations",
        "Each does what the function of that name in `engine` does, with the tensor as its first argument.",
        code("\n".join(ops)),
    ]
    return Page("api/tensor.md", "Tensor", "engine", "\n\n".join(text))


def top_page() -> Page:
    """What `engine` has beside ops and sub-packages."""
    parts = ["# engine", prose(engine.__doc__)]
    for name in dir(engine):
        value = getattr(engine, name)
        if name.startswith("_") or isinstance(value, ModuleType) or name in dispatch.PUBLIC or not callable(value):
            continue
        if name != "Tensor" and (getattr(value, "__module__", None) or "").startswith(("engine", "torch")):
            parts.append(entry(f"engine.{name}", value))
    return Page("api/engine.md", "engine", "engine", "\n\n".join(parts))


def module_pages() -> list[Page]:
    """The classes of nn by file, and a page for each of MODULES."""
    pages = []
    by_file: dict[str, dict[str, Any]] = {}
    for name, cls in members(importlib.import_module("engine.nn.modules")).items():
        by_file.setdefault(cls.__module__, {})[name] = cls
    for home, found in sorted(by_file.items()):
        title = home.rpartition(".")[2].strip("_")
        text = [f"# nn: {title}", prose(importlib.import_module(home).__doc__)]
        text += [entry(f"nn.{name}", value) for name, value in found.items()]
        pages.append(Page(f"api/nn/{title}.md", title, "nn", "\n\n".join(text)))
    for section, names in MODULES.items():
        for name in names:
            module = importlib.import_module(name)
            short = name.removeprefix("engine.")
            text = [f"# {short}", prose(module.__doc__)]
            text += [entry(f"{short}.{n}", value) for n, value in members(module).items()]
            pages.append(Page(f"api/{short}.md", short, section, "\n\n".join(text)))
    return pages


def helps(command: click.Command, name: str, parent: click.Context) -> list[tuple[str, str]]:
    """(full name, `--help`) of a command and of its own commands."""
    context = click.Context(command, info_name=name, parent=parent, terminal_width=88)
    found = [(context.command_path, command.get_help(context))]
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            below = command.get_command(context, sub)
            if below is not None and not below.hidden:
                found += helps(below, sub, context)
    return found


def command_pages() -> list[Page]:
    """Return one page for each command, from its `--help`, and the overview with the page on how a line is read."""
    top = click.Context(cli.hub, info_name="hub", terminal_width=88, **cli.hub.context_settings)
    index = [relinked(COMMANDS.relative_to(ROOT).as_posix())[0].partition("## Options")[0].rstrip()]
    index += ["## Options of hub", code(cli.hub.get_help(top), "text"), "## Each command"]
    index.append("\n".join(f"- [`hub {name}`]({name}.md): {escaped(line)}" for name, (_, line) in cli.COMMANDS.items()))
    pages = [Page("commands/index.md", "Overview", "Commands", "\n\n".join(index))]
    for name, (_, line) in cli.COMMANDS.items():
        (_, own), *others = helps(command(top, name), name, top)
        parts = [f"# hub {name}", escaped(line), code(own, "text")]
        for path, text in others:
            parts += [f"## {path}", code(text, "text")]
        pages.append(Page(f"commands/{name}.md", f"hub {name}", "Commands", "\n\n".join(parts)))
    return pages


def command(top: click.Context, name: str) -> click.Command:
    """Return a command of hub by its name."""
    found = cli.hub.get_command(top, name)
    assert found is not None
    return found


def spelling(option: click.Option) -> str:
    """Return how an option is written, with the name of its value."""
    names = ", ".join(option.opts) + (f" / {', '.join(option.secondary_opts)}" if option.secondary_opts else "")
    if option.is_flag or option.count:
        return names
    if isinstance(option.type, click.Choice):
        value = "|".join(map(str, option.type.choices))
    else:
        value = option.metavar or option.type.name.upper()
    return f"{names} {value}"


def argument(one: click.Argument) -> str:
    """Return the name of an argument, in brackets where it may be left out."""
    name = one.metavar or one.human_readable_name.upper() + ("..." if one.nargs == -1 else "")
    return name if one.required or name.startswith("[") else f"[{name}]"


def described_command(path: str, one: click.Command) -> str:
    """Return a command's section of docs/reference/commands.md, from its parameters."""
    usage = [path, *(argument(p) for p in one.params if isinstance(p, click.Argument))]
    if isinstance(one, click.Group):
        usage.append("COMMAND")
    parts = [f"### {path}", f"`{' '.join(usage)}`", escaped(inspect.cleandoc(one.help or "").replace("\b\n", ""))]
    cells = [
        (f"`{spelling(p)}`".replace("|", "\\|"), escaped(p.help or ""))
        for p in one.params
        if isinstance(p, click.Option) and not p.hidden
    ]
    rows = [f"| {' | '.join(pair)} |" for pair in cells]
    if rows:
        parts.append("\n".join(["| option | meaning |", "| --- | --- |", *rows]))
    return "\n\n".join(parts)


def below(one: click.Command, path: str, parent: click.Context) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and its own commands, with their full names."""
    yield path, one
    if isinstance(one, click.Group):
        context = click.Context(one, info_name=path, parent=parent)
        for name in one.list_commands(context):
            sub = one.get_command(context, name)
            if sub is not None and not sub.hidden:
                yield from below(sub, f"{path} {name}", context)


def options() -> str:
    """Return what stands between the marks of docs/reference/commands.md: hub and every command, with its options."""
    return "\n\n".join(described_command(path, one) for path, one in below(cli.hub, "hub", click.Context(cli.hub)))


def write_commands() -> None:
    """Bring docs/reference/commands.md up to date."""
    before, _, rest = COMMANDS.read_text("utf-8").partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    COMMANDS.write_text(f"{before}{MARKS[0]}\n\n{options()}\n\n{MARKS[1]}{after}", "utf-8")


def place(section: str, source: str) -> str:
    """Return where a file of the repository stands on the site."""
    name = Path(source).stem.lower()
    if name == "readme":  # the page is called by its folder
        name = Path(source).parent.name
    return f"{section.lower().replace(' ', '-')}/{name}.md"


def places() -> dict[str, str]:
    """Return the page of each file of the repository that is one."""
    found = {"README.md": "index.md", COMMANDS.relative_to(ROOT).as_posix(): "commands/index.md"}
    for section, entries in GUIDES.items():
        found |= {source: place(section, source) for source in entries.values()}
    return found


def relinked(source: str) -> tuple[str, dict[str, Path]]:
    """Return a file's text with its links changed to pages, and the other files that it links to, by their places."""
    pages, assets = places(), {}

    def one(match: re.Match[str]) -> str:
        target, mark, anchor = match[1].partition("#")
        if ":" in target or not target:
            return match[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        where = pages.get(file)
        if where is None:
            if not (ROOT / file).is_file():
                raise FileNotFoundError(f"{source} links to {target}")
            where = f"files/{file}"
            assets[where] = ROOT / file
        return f"]({posixpath.relpath(where, posixpath.dirname(pages[source]) or '.')}{mark}{anchor})"

    return re.sub(r"\]\(([^)\s]+)\)", one, (ROOT / source).read_text()), assets


def guide_pages() -> tuple[list[Page], dict[str, Path]]:
    """Return README and the guides, with their links changed to pages; and the other files that they link to."""
    text, assets = relinked("README.md")
    pages = [Page("index.md", "hub", "", text)]
    for section, entries in GUIDES.items():
        for title, source in entries.items():
            text, more = relinked(source)
            assets |= more
            pages.append(Page(place(section, source), title, section, text))
    return pages, assets


def documentation() -> tuple[list[Page], dict[str, Path]]:
    """Every page in the order of the menu, and the files beside them."""
    for name in stubs.LATE:
        importlib.import_module(name)
    pages, assets = guide_pages()
    pages += [*command_pages(), top_page(), tensor_page(), *op_pages(), *module_pages()]
    return pages, assets


def menu(pages: list[Page]) -> str:
    """The menu, which Sphinx wants at the end of the first page."""
    sections: dict[str, list[str]] = {}
    for page in pages:
        sections.setdefault(page.section, []).append(f"{page.title} <{page.path.removesuffix('.md')}>")
    del sections[""]
    return "\n\n".join(
        f"```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(entries) + "\n```"
        for title, entries in sections.items()
    )


def main(arguments: list[str] | None = None) -> int:
    """Write the pages; those that are as they were keep their time, so that Sphinx reads only the others."""
    given = sys.argv[1:] if arguments is None else arguments
    if given == ["--commands"]:
        write_commands()
        return 0
    folder = Path(given[0]) if given else ROOT / "build/docs"
    pages, assets = documentation()
    pages[0] = dataclasses.replace(pages[0], text=f"{pages[0].text}\n\n{menu(pages)}")
    texts = {page.path: (page.text + "\n").encode() for page in pages}
    texts |= {place: source.read_bytes() for place, source in assets.items()}
    for place, text in texts.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != text:
            target.write_bytes(text)
    for stray in folder.rglob("*"):
        if stray.is_file() and stray.relative_to(folder).as_posix() not in texts:
            stray.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
