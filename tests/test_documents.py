"""The documents: links and paths lead somewhere, pages made from code or results are up to date, examples run."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from benchmarks import _report
from engine.dispatch.gate import without_listeners
from hubcli.base import settings
from hubcli.terminal import cli

ROOT = Path(__file__).parents[1]
FOLDERS = ("engine", "hubcli", "scripts", "benchmarks", "tests", "sample_hubconf")
HARD = (
    "engine/dispatch",
    "engine/kernels",
    "engine/programs",
    "engine/backends/onednn",
    "hubcli/cache",
    "hubcli/confined",
)


@cache
def documents() -> dict[str, str]:
    """Return every document in Markdown, by its path."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    found += [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.md")]
    return {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in sorted(found)}


def anchors(text: str) -> set[str]:
    """Return the anchors that the headings of a document make."""
    titles = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(path: str, text: str) -> list[str]:
    """Return the links of a document that lead nowhere."""
    found = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = target.partition("#")
        file = (ROOT / path).parent / name if name else ROOT / path
        missing = not file.is_file() or (anchor and anchor not in anchors(file.read_text("utf-8") if name else text))
        if ":" not in target and missing:
            found.append(target)
    return found


@pytest.mark.parametrize("path", documents())
def test_links_lead_somewhere(path: str) -> None:
    assert not broken(path, documents()[path])


def test_a_broken_link_is_found() -> None:
    text = "# One\n[a](gone.md) [b](#two) [c](#one) [d](README.md) [e](https://a.example/x)"
    assert broken("README.md", text) == ["gone.md", "#two"]


def test_pages_that_messages_and_comments_name_exist() -> None:
    """Each `docs/....md` in code, tests and documents; the README of a folder by its path."""
    named: dict[str, str] = {}
    pattern = re.compile(r"(?<![\w/.])((?:docs|engine|hubcli)/[\w/-]+\.md)")
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    for path in [*paths, *map(ROOT.joinpath, documents()), ROOT / "Makefile", ROOT / ".ci/run"]:
        if path not in (Path(__file__), ROOT / "tests/test_docs.py"):  # which name pages that are not there
            named |= dict.fromkeys(pattern.findall(path.read_text("utf-8")), path.relative_to(ROOT).as_posix())
    assert len(named) > 15
    assert not {page: where for page, where in named.items() if not (ROOT / page).is_file()}


def test_every_page_is_listed() -> None:
    linked = set(re.findall(r"\]\(([^)#]+)\)", documents()["docs/README.md"]))
    pages = {path.removeprefix("docs/") for path in documents() if path.startswith("docs/")} - {"README.md"}
    assert pages <= linked
    assert {Path(page).parts[0] for page in pages} == {"tutorial", "how-to", "reference", "explanation"}


# --- length and content


def test_the_readme_is_short() -> None:
    assert len(documents()["README.md"].splitlines()) <= 150


@pytest.mark.parametrize("folder", HARD)
def test_hard_folders_have_a_short_page(folder: str) -> None:
    text = documents()[f"{folder}/README.md"]
    assert len(text.splitlines()) <= 40 and "## Invariants" in text
    names = re.findall(r"`([\w/]+\.py)`", text)
    places = (ROOT / folder, ROOT / "engine", ROOT / "hubcli")
    assert names and not [name for name in names if not any((place / name).is_file() for place in places)]


def test_the_readme_names_every_command() -> None:
    named = set(re.findall(r"^\| `hub ([\w-]+)", documents()["README.md"], re.M))
    assert named == set(cli.COMMANDS)


def test_the_example_of_the_readme_prints_what_it_shows(tmp_path: Path) -> None:
    code, shown = re.findall(r"```python\n(.*?)```\s+```\n(.*?)```", documents()["README.md"], re.S)[0]
    environment = {**os.environ, "HOME": str(tmp_path), "TORCH_HUB_DIR": str(tmp_path / "hub"), "HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, shown), done.stderr


def test_changes_stand_under_headings() -> None:
    """Versions with what was added, changed and fixed and what is faster; every item once, on one line."""
    text = documents()["CHANGELOG.md"]
    headings = ["Added", "Changed", "Fixed", "Performance"]
    for version in re.split(r"^## ", text, flags=re.M)[1:]:
        title, *parts = re.split(r"^### ", version, flags=re.M)
        assert re.fullmatch(r"Unreleased|\d+\.\d+\.\d+, \d{4}-\d\d-\d\d", title.strip())
        assert [part.partition("\n")[0] for part in parts] == headings
        items = [line for part in parts for line in part.splitlines()[1:] if line]
        assert not [line for line in items if not line.startswith("- ")]
        assert len(set(items)) == len(items)


def test_notes_that_are_named_exist_once() -> None:
    """`Note [X]` in a sentence refers to one that stands on a line of its own, in one file."""
    defined: dict[str, list[str]] = {}
    named: set[str] = set()
    for path in (path for folder in ("engine", "hubcli") for path in (ROOT / folder).rglob("*.py")):
        for line in path.read_text("utf-8").splitlines():
            for note in re.findall(r"Note \[([^]]+)\]", line):
                if line.strip(' #"') == f"Note [{note}]":
                    defined.setdefault(note, []).append(path.relative_to(ROOT).as_posix())
                else:
                    named.add(note)
    assert named <= set(defined)
    assert not {note: paths for note, paths in defined.items() if len(paths) > 1}


# --- pages that are made


def test_the_page_of_performance_has_what_was_measured() -> None:
    """`python -m benchmarks._report --write` writes it."""
    assert _report.page() in documents()["docs/explanation/performance.md"]


def test_settings_are_those_of_the_code() -> None:
    """What the hub reads from the environment, and what the engine does."""
    read = {variable for variable, _ in settings._SOURCES.values()}
    for path in (ROOT / "engine").rglob("*.py"):
        read |= set(re.findall(r"\"(ENGINE_[A-Z_]+)\"", path.read_text("utf-8")))
    rows = re.findall(r"^\| (`[^|]+) \|", documents()["docs/reference/settings.md"], re.M)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == read


# --- docstrings

FUNCTIONS = """
hubcli.load hubcli.list hubcli.help hubcli.pull hubcli.load_state_dict_from_url hubcli.download_url_to_file
hubcli.get_dir hubcli.set_dir
engine.compile engine.save engine.load engine.manual_seed engine.set_num_threads engine.tensor engine.from_numpy
engine.onnx.export engine.onnx.load engine.jit.script engine.jit.trace engine.jit.trace_module engine.jit.save
engine.jit.load engine.jit.freeze engine.export.export engine.fx.symbolic_trace
engine.utils.checkpoint.checkpoint engine.utils.checkpoint.checkpoint_sequential engine.nn.utils.clip_grad_norm_
engine.autograd.grad engine.autograd.backward engine.autograd.gradcheck engine.func.vmap engine.func.grad
engine.torch_alias.install engine.distributed.init_process_group engine.backends.calibrate engine.explain
""".split()


# parameters that a docstring covers by a phrase ("the other options")
UNSAID = {
    "engine.save": {"_use_new_zipfile_serialization"},
    "engine.load": {"pickle_load_args"},
    "engine.onnx.export": {"others"},
    "engine.jit.trace_module": {"optimize", "check_trace", "check_tolerance", "strict", "example_inputs_is_kwarg"},
    "engine.jit.trace": {"optimize"},
    "engine.export.export": {"preserve_module_call_signature", "prefer_deferred_runtime_asserts_over_guards"},
    "engine.tensor": {"names"},
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_users_call_say_what_they_take_give_and_raise(name: str) -> None:
    """Each parameter that is not private has an entry or is named in one; Returns where there is a result; Raises."""
    module, _, own = name.rpartition(".")
    function = getattr(importlib.import_module(module), own)
    doc = (inspect.getdoc(function) or "").removeprefix("\n")
    sections = dict(re.findall(r"^(Args|Returns|Raises):\n((?:    .*\n?|\n(?=    ))+)", doc, re.M))
    signature = inspect.signature(without_listeners(function))
    parameters = [p for p in signature.parameters if not p.startswith("_")]
    described = set(re.findall(r"\w+", sections.get("Args", "")))
    assert not [p for p in parameters if p not in described | UNSAID.get(name, set())]
    gives = signature.return_annotation not in ("None", None)
    assert ("Returns" in sections) == gives
    assert "Raises" in sections
