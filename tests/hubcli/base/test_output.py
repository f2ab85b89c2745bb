"""Output: one document on stdout, the rest on stderr; descriptor 1 while repository code runs."""

from __future__ import annotations

import importlib.machinery
import json
import os
import subprocess
import sys
import types
from typing import Any

import pytest

from hubcli.base import output, settings


def test_result_for_people_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    output.Output().result({"a": 1}, lambda: "for people")
    assert capsys.readouterr().out == "for people\n"
    output.Output(json=True).result({"a": "é"}, "for people")
    text = capsys.readouterr().out
    assert json.loads(text) == {"schema_version": 1, "a": "é"} and "é" in text
    output.Output().result({"a": 1})
    assert capsys.readouterr().out == ""


def test_messages_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    output.message("said")
    output.detail("not said")
    settings.override(verbose=True)
    output.detail("detail")
    settings.override(quiet=True)
    output.message("muted")
    output.detail("muted")
    output.warning("look")
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err == "said\ndetail\nwarning: look\n"


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert output.printable("a\x1b[31mb\x07\x9b\tc\nd") == "a[31mb\tc\nd"


def test_results_are_cleaned_and_secrets_masked(capsys: pytest.CaptureFixture[str]) -> None:
    settings.override(token="s3cret")
    hostile = "a\x1b]0;title\x07\u202eb s3cret\u2028\U000e0001"
    output.Output().result({}, lambda: hostile)
    assert capsys.readouterr().out == "a]0;titleb ***\n"
    output.Output(json=True).result({"text": hostile})
    text = capsys.readouterr().out
    assert text.replace("\n", "").isprintable() and "s3cret" not in text
    assert json.loads(text)["text"] == hostile.replace("s3cret", "***")
    output.warning(hostile)
    assert capsys.readouterr().err == "warning: a]0;titleb ***\n"


def test_table_size_age() -> None:
    assert output.table([("a", "bb", ""), ("ccc", "d", "e")]) == "a    bb\nccc  d   e"
    assert output.table([]) == ""
    sizes = [output.size(n) for n in (0, 999, 1000, 46_827_520, 2 * 10**12)]
    assert sizes == ["0 B", "999 B", "1.0 kB", "46.8 MB", "2.0 TB"]
    ages = [output.age(n) for n in (-9999, 0, 60, 3 * 3600, 86400 * 2)]
    assert ages == ["less than a minute", "less than a minute", "1 minute", "3 hours", "2 days"]


def test_no_bar_without_a_terminal() -> None:
    with output.progress("x", total=3) as bar:
        bar.update()
        bar.set(2, 3, "y")
    assert not bar.shown


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    for unit in ("B", "objects"):
        with output.progress("fetching \x1b[0m", total=None, unit=unit) as bar:
            bar.update(5)
            bar.set(10, 10, "receiving")
    assert "receiving" in terminal.getvalue()
    # two at a time share a display, and a name is no markup
    with output.progress("[/bold]net", total=2) as one, output.progress("two", total=3) as two:
        one.update()
        two.update()
        two.set(3, 3, "[link=x]done")
    assert "[/bold]net" in terminal.getvalue()
    settings.override(quiet=True)
    assert not output.progress("x").shown


CHILD = """
import ctypes, os, subprocess, sys
from hubcli.base import output
print("before")
try:
    with output.fd1_to_stderr():
        print("python")
        os.write(1, b"descriptor\\n")
        ctypes.CDLL(None).puts(b"c library")
        subprocess.run([sys.executable, "-c", "print('child')"])
        with output.fd1_to_stderr():
            print("nested")
        print("after nested")
        raise KeyError("x")
except KeyError:
    print("after")
"""


@pytest.mark.skipif(os.name != "posix", reason="needs a C library by that name")
def test_fd1_to_stderr() -> None:
    result = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True)
    assert result.stdout == "before\nafter\n"
    for word in ("python", "descriptor", "c library", "child", "nested", "after nested"):
        assert word in result.stderr


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """A kernel's IPython and ipywidgets, as far as rich speaks to them; what they are given to show."""
    shown: list[dict[str, str]] = []

    def display(made: Any, **more: Any) -> None:
        if hasattr(made, "_repr_mimebundle_"):
            shown.append(made._repr_mimebundle_(include=[], exclude=[]))

    class Output:
        def __enter__(self) -> None: ...
        def __exit__(self, *error: object) -> None: ...
        def clear_output(self, wait: bool = False) -> None: ...
        def close(self) -> None:
            shown.append({"closed": ""})

    shell = type("ZMQInteractiveShell", (), {})()
    for name, content in {
        "IPython": {"get_ipython": lambda: shell},
        "IPython.display": {"display": display},
        "ipywidgets": {"Output": Output},
    }.items():
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return shown


def test_a_bar_in_a_notebook(notebook: list[dict[str, str]], capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress("net.pth", 4_000_000) as bar:
        bar.update(1_000_000)
        bar.set(2_000_000, 4_000_000, "\x1b[31mnet.pth")
        bar._bar.refresh()  # which a thread does ten times a second
    drawn = notebook[: notebook.index({"closed": ""})]
    assert any("2.0/4.0 MB" in one["text/plain"] and "net.pth" in one["text/html"] for one in drawn)
    assert not any("\x1b" in text for one in notebook for text in one.values())
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_no_bar_where_a_notebook_cannot_show_one(
    notebook: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "ipywidgets")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with output.progress("net.pth", 4) as bar:
        bar.update()
    assert not bar.shown and notebook == []
    settings.override(quiet=True)
    assert not output.progress("net.pth").shown


def test_a_bar_may_lose_its_end(notebook: list[dict[str, str]]) -> None:
    with output.progress("fetching", unit="objects") as bar:
        bar.set(2, 4, "receiving")
        bar.set(2, None, "receiving 1.2 MiB")
        (task,) = bar._bar.tasks
        assert task.total is None and task.description == "receiving 1.2 MiB"
        bar.set(4, 4)
        assert task.total == 4 and task.percentage == 100
