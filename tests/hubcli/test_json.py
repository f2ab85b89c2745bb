"""Every `--json` document against its schema: what the commands print, and what docs/reference/json.md shows."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

import engine
from engine.package import PackageExporter
from engine.serialization.gguf import write_gguf
from hubcli.terminal import cli
from tests.hubcli.models import Model
from tests.hubcli.schemas import SCHEMAS, complaints
from tests.hubcli.text.models import write_gpt2
from tests.servers import Repository, file_server, git_server

PAGE = Path(cli.__file__).parents[2] / "docs" / "reference" / "json.md"
EXAMPLES: dict[str, Any] = {
    title: json.loads(body)
    for title, body in re.findall(r"^## (.+?)\n.*?```json\n(.*?)```", PAGE.read_text(), re.M | re.S)
}
# heading: arguments; {net} is the weights' URL, {file} their name, {dir} a folder to write to
COMMANDS = {
    "error": ["load", "o/m:v1", "nope"],
    "hub search WORDS...": ["search", "unet"],
    "hub pull SPEC": ["pull", "o/m:v1", "--weights", "net", "-k", "url={net}"],
    "hub pull SPEC --dry-run": ["pull", "o/m", "--dry-run"],
    "hub list SPEC": ["list", "o/m:v1"],
    "hub list": ["list"],
    "hub help SPEC ENTRYPOINT": ["help", "o/m:v1", "net"],
    "hub deps SPEC": ["deps", "o/m:v1"],
    "hub load SPEC ENTRYPOINT": ["load", "o/m:v1", "net", "-k", "url={net}"],
    "hub run SPEC ENTRYPOINT": [
        "run",
        "o/m:v1",
        "net",
        "-k",
        "url={net}",
        "--input",
        "{dir}/x.npy",
        "--output",
        "{dir}/y.npy",
        "--top",
        "1",
        "--labels",
        "{dir}/labels.txt",
    ],
    "hub run MODEL --prompt TEXT": ["run", "{dir}/gpt2", "--prompt", "3A", "--tokens", "4"],
    "hub check SPEC": [
        "check",
        "o/m:v1",
        "net",
        "--input-shape",
        "1,2",
        "--sandbox=best-effort",
    ],
    "hub profile SPEC ENTRYPOINT": ["profile", "o/m:v1", "net", "--input-shape", "1,2"],
    "hub new DIR": ["new", "{dir}/new"],
    "hub show SPEC": ["show", "o/m:v1"],
    "hub show ARCHIVE": ["show", "tests/engine/jit/archives/2.13.0/convnet.pt"],
    "hub show PACKAGE": ["show", "{dir}/package.pt"],
    "hub show CHECKPOINT": ["show", "{dir}/tied.pth"],
    "hub show GGUF": ["show", "{dir}/net.gguf"],
    "hub export SPEC ENTRYPOINT": [
        "export",
        "o/m:v1",
        "net",
        "--input-shape",
        "1,2",
        "--dynamic",
        "batch",
        "-o",
        "{dir}/net.onnx",
    ],
    "hub show FILE": ["show", "{dir}/net.onnx"],
    "hub convert IN OUT": ["convert", "{dir}/tied.pth", "{dir}/tied.safetensors"],
    "hub lock SPEC...": ["lock", "o/m:v1", "o/m", "-o", "{dir}/hub.lock"],
    "hub sync": ["sync", "--locked", "--lock-file", "{dir}/hub.lock"],
    "hub outdated": ["outdated", "--lock-file", "{dir}/hub.lock"],
    "hub mirror TARGET": ["mirror", "{dir}/mirror", "--lock-file", "{dir}/hub.lock"],
    "hub cache dir": ["cache", "dir"],
    "hub cache ls": ["cache", "ls"],
    "hub cache verify": ["cache", "verify", "--repair"],
    "hub cache prune": ["cache", "prune"],
    "hub cache rm SPEC_OR_FILE": ["cache", "rm", "o/m:v1", "--yes"],
    "hub trust add SPEC": ["trust", "add", "o/m", "--repo"],
    "hub trust import FILE": ["trust", "import", "{dir}/trusted_list"],
    "hub trust ls": ["trust", "ls"],
    "hub trust rm SPEC": ["trust", "rm", "o/m"],
    "hub completion SHELL": ["completion", "fish"],
    "hub import-torch-hub": ["import-torch-hub"],
    "hub env": ["env"],
}


def _lose_a_blob(hub: Path) -> None:
    for blob in (hub / "blobs" / "sha256").glob("*/*"):
        blob.unlink()


def _leave_something(hub: Path) -> None:
    left = hub / "partial" / "net.tmp"
    left.write_text("x")
    os.utime(left, (0, 0))


def _name_weights(hub: Path) -> None:
    repository = Repository(hub.parent / "served/o/m.git", hub.parent / "served/.work/o/m")
    repository.commit({"urls.py": "URL = 'http://127.0.0.1:9/net.pth'\n"})


def _move_the_branch(hub: Path) -> None:
    repository = Repository(hub.parent / "served/o/m.git", hub.parent / "served/.work/o/m")
    repository.commit({"more.py": ""})


def _have_used_torch_hub(hub: Path) -> None:
    old = hub.parent / ".cache" / "torch" / "hub"
    (old / "checkpoints").mkdir(parents=True)
    (old / "checkpoints" / "old.pth").write_text("x")
    (old / "o_m_v1").mkdir()
    (old / "o_m_v1" / "hubconf.py").write_text("")


# what happens to the cache before a command, so that it has something to tell
BEFORE = {
    "hub cache verify": _lose_a_blob,
    "hub cache prune": _leave_something,
    "hub outdated": _move_the_branch,
    "hub pull SPEC --dry-run": _name_weights,
    "hub import-torch-hub": _have_used_torch_hub,
}
# commands without an example of their own: their documents have the form of another's
SAME = {
    "hub sync": "hub lock SPEC...",
    "hub trust add SPEC": "hub trust ls",
    "hub trust import FILE": "hub trust ls",
    "hub trust rm SPEC": "hub trust ls",
}


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the commands print, run one after the other."""
    root = tmp_path_factory.mktemp("json")
    (root / "files").mkdir()
    np.save(root / "x.npy", np.ones((1, 2), np.float32))
    weight = engine.ones(2)
    engine.save({"a": weight, "b": weight, "epoch": 3}, root / "tied.pth")
    gguf = {"general.architecture": "gpt2", "gpt2.context_length": 1024, "tokenizer.ggml.tokens": ["a"] * 9}
    write_gguf(root / "net.gguf", gguf, {"output.weight": (np.ones((2, 32)), "Q8_0")})
    with PackageExporter(root / "package.pt") as exporter:
        exporter.save_source_string("net", "import math\n")
        exporter.save_pickle("model", "model.pkl", {"a": weight})
        exporter.save_text("notes", "a.txt", "hello")
    write_gpt2(root / "gpt2")
    (root / "labels.txt").write_text("one\ntwo\nthree\n")
    (root / "trusted_list").write_text("pytorch_vision\n")
    with file_server(root / "files") as files, git_server(root / "served") as served:
        model = Model.create(root, files.url)
        environment = {
            "TORCH_HUB_DIR": str(root / "hub"),
            "HOME": str(root),
            "XDG_CONFIG_HOME": str(root / "config"),
            "XDG_CACHE_HOME": str(root / ".cache"),
            "HUB_ALLOW_PROTOCOLS": "http",
            "HUB_GIT_URL": f"{served.url}/{{owner}}/{{repo}}.git",
            "HUB_TRUST": "commit",
        }
        made = {}
        for title, arguments in COMMANDS.items():
            filled = [part.format(net=model.url, file=model.weights, dir=root) for part in arguments]
            BEFORE.get(title, lambda hub: None)(root / "hub")
            result = CliRunner().invoke(cli.hub, ["--json", *filled], env=environment)
            assert (result.exit_code == 0) == (title != "error"), result.output
            made[title] = json.loads(result.stdout)
        yield made


def leaves(command: click.Command, path: str = "hub") -> Iterator[str]:
    """The full name of every command that prints a document."""
    if not isinstance(command, click.Group):
        yield path
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, f"{path} {name}")


def test_every_command_has_an_example_and_a_schema():
    assert set(SCHEMAS) == set(COMMANDS) == set(EXAMPLES) | set(SAME)
    assert not set(EXAMPLES) & set(SAME)
    titles = {re.sub(r" (--[a-z-]+|[A-Z_.]+)", "", title) for title in COMMANDS}
    assert titles == {"error", *leaves(cli.hub)}
    for schema in SCHEMAS.values():
        Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("title", list(COMMANDS))
def test_what_is_printed(documents, title):
    assert complaints(SCHEMAS[title], documents[title]) == []


@pytest.mark.parametrize("title", list(EXAMPLES))
def test_what_the_page_shows(title):
    example = EXAMPLES[title]
    assert complaints(SCHEMAS[title], example) == []
    for key in example:
        less = {name: value for name, value in example.items() if name != key}
        assert complaints(SCHEMAS[title], less), f"{key} is optional"
    assert complaints(SCHEMAS[title], {**example, "more": 1})


@pytest.mark.parametrize("title", list(EXAMPLES))
def test_lists_are_shown_with_something_in_them(documents, title):
    """An empty list satisfies any schema: neither the example nor the run may leave it at that."""
    for document in (EXAMPLES[title], documents[title]):
        for key, value in document.items():
            assert value != [], key
