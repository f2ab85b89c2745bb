"""The pages that `make docs` hands to Sphinx: nothing public is left out, and what they say is what the code says."""

from __future__ import annotations

import importlib.util
import posixpath
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import engine
from engine import dispatch
from hubcli.terminal import cli

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def docs():
    spec = importlib.util.spec_from_file_location("docs", ROOT / "scripts/docs.py")
    module = importlib.util.module_from_spec(spec)
    path = list(sys.path)
    sys.modules["docs"] = module  # its dataclass looks itself up
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path[:] = path
        del sys.modules["docs"]


@pytest.fixture(scope="module")
def pages(docs):
    found, assets = docs.documentation()
    return {page.path: page.text for page in found}, assets


def test_every_command_has_the_page_that_its_help_makes(pages):
    texts, _ = pages
    for name, (_, line) in cli.COMMANDS.items():
        page = texts[f"commands/{name}.md"]
        told = CliRunner().invoke(cli.hub, [name, "--help"], prog_name="hub", terminal_width=88)
        assert told.exit_code == 0
        assert told.output.rstrip() in page
        assert f"[`hub {name}`]({name}.md)" in texts["commands/index.md"]
        assert line.partition("`")[0].strip() in page
    assert "## hub cache ls" in texts["commands/cache.md"]


def test_the_page_of_commands_has_their_options(docs):
    """`make docs-commands` writes it."""
    page = docs.COMMANDS.read_text("utf-8")
    assert docs.options() in page
    assert page.count(docs.MARKS[0]) == page.count(docs.MARKS[1]) == 1


def test_every_document_has_a_page(docs):
    sources = {source for entries in docs.GUIDES.values() for source in entries.values()}
    written = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert written <= {*sources, docs.COMMANDS.relative_to(ROOT).as_posix()}


def test_every_op_is_described_once(pages):
    texts = "\n".join(text for path, text in pages[0].items() if path.startswith("api/ops/"))
    described = re.findall(r"^:::::\{py:(?:function|class)\} engine\.(\w+)", texts, re.M)
    also = re.findall(r"`engine\.(\w+)`", "\n".join(re.findall(r"^Also .*$", texts, re.M)))
    forms = {"where", "nonzero", "max", "min", "median", "nanmedian"}
    assert {n for n in described if described.count(n) > 1} <= forms
    assert {*described, *also} == set(dispatch.PUBLIC)


def test_an_op_has_its_signature_and_its_docstring(pages):
    page = pages[0]["api/ops/pointwise.md"]
    entry = page[page.index("} engine.add(") :].partition(":::::\n")[0]
    assert (
        "engine.add(input: Tensor | complex, other: Tensor | complex, *, alpha: complex = 1, out: Any = None) -> Tensor"
        in entry
    )
    assert r"input + alpha \* other.  input (\*a), other (\*b) or number -> (broadcast of a and b)." in entry
    assert "Also `engine.add_`, `Tensor.add`." in entry


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("api/nn/linear.md", "{py:class} nn.Linear(in_features: int, out_features: int, bias: bool = True"),
        ("api/nn.functional.md", "{py:function} nn.functional.conv2d(input: Tensor, weight: Tensor, bias: Tensor"),
        ("api/optim.md", "{py:class} optim.AdamW("),
        ("api/distributions.md", "{py:class} distributions.Normal("),
        ("api/tensor.md", "{py:method} Tensor.backward("),
        ("api/engine.md", "{py:class} engine.Generator("),
        ("api/hubcli.md", "{py:function} hubcli.load(repo_or_dir: str | os.PathLike[str], model: str, *args"),
    ],
)
def test_where_things_are(pages, path, line):
    assert line in pages[0][path]


def test_links_lead_somewhere(docs, pages):
    texts, assets = pages
    for path, text in texts.items():
        for target in re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", text if not path.startswith("api/") else ""):
            place = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            assert ":" in target or place in texts or place in assets, f"{path} links to {target}"
    first, *_ = docs.documentation()[0]
    listed = re.findall(r"<([^>]+)>$", docs.menu(docs.documentation()[0]), re.M)
    assert {f"{name}.md" for name in listed} == set(texts) - {first.path}


@pytest.mark.parametrize(
    ("doc", "markdown"),
    [
        ("input (*, n) -> (*).", r"input (\*, n) -> (\*)."),
        ("a_b, `a_b` and [x]", r"a\_b, `a_b` and \[x\]"),
        ("see https://a.example/b_c.html.", "see <https://a.example/b_c.html>."),
        ("One.\n\n    Two.\n\n        y = 2 * x\n", "One.\n\nTwo.\n\n```python\ny = 2 * x\n```"),
        ("- a * b\n  more\n- c", "- a \\* b\n  more\n- c"),
        ("x\n- y < z", "x\n\\- y &lt; z"),
        (
            "Do.\n\nArgs:\n    *a_b: one\n        more.\n    c: two.\n\nReturns:\n    x: (*).\n\nRaises:\n    E: no.",
            "Do.\n\n**Args**\n\n- `*a_b`: one more.\n- `c`: two.\n\n"
            "**Returns**\n\n- x: (\\*).\n\n**Raises**\n\n- `E`: no.",
        ),
        (None, ""),
    ],
)
def test_docstrings_are_plain_text(docs, doc, markdown):
    assert docs.prose(doc) == markdown


def test_a_second_run_changes_only_what_differs(docs, tmp_path):
    assert docs.main([str(tmp_path)]) == 0
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.md")}
    changed = tmp_path / "commands/env.md"
    changed.write_text("old")
    (tmp_path / "gone.md").write_text("of a command that is no more")
    docs.main([str(tmp_path)])
    assert {p for p in tmp_path.rglob("*.md") if p.stat().st_mtime_ns != times[p]} == {changed}
    assert "Usage: hub env" in changed.read_text()


def test_a_link_to_a_missing_file_is_an_error(docs, monkeypatch):
    monkeypatch.setitem(docs.GUIDES, "Broken", {"Broken": "docs/broken.md"})
    monkeypatch.setattr(Path, "read_text", lambda self: "[x](nothing.md)" if self.name == "broken.md" else "")
    with pytest.raises(FileNotFoundError, match=r"docs/broken.md links to nothing.md"):
        docs.guide_pages()


def test_tensor_has_all_its_public_methods(pages):
    text = pages[0]["api/tensor.md"]
    for name, value in vars(engine.Tensor).items():
        if not name.startswith("_") and callable(value) and getattr(value, "__doc__", None):
            assert f"Tensor.{name}" in text
