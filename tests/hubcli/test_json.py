"""docs/json.md against the commands: the same fields, of the same types, and no document missing."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import engine
from hubcli import cli
from tests.hubcli.models import Model
from tests.servers import file_server, git_server

PAGE = Path(cli.__file__).parents[1] / "docs" / "json.md"
EXAMPLES: dict[str, Any] = {
    title: json.loads(body)
    for title, body in re.findall(r"^## (.+?)\n.*?```json\n(.*?)```", PAGE.read_text(), re.M | re.S)
}
# heading: arguments; {net} is the weights' URL, {file} their name, {dir} a folder to write to
COMMANDS = {
    "error": ["load", "o/m:v1", "nope"],
    "hub pull SPEC": ["pull", "o/m:v1", "--weights", "net", "-k", "url={net}"],
    "hub list SPEC": ["list", "o/m:v1"],
    "hub list": ["list"],
    "hub help SPEC ENTRYPOINT": ["help", "o/m:v1", "net"],
    "hub deps SPEC": ["deps", "o/m:v1"],
    "hub load SPEC ENTRYPOINT": ["load", "o/m:v1", "net", "-k", "url={net}"],
    "hub run SPEC ENTRYPOINT": [
        "run", "o/m:v1", "net", "-k", "url={net}", "--input", "{dir}/x.npy",
        "--output", "{dir}/y.npy", "--top", "1", "--labels", "{dir}/labels.txt",
    ],
    "hub show SPEC": ["show", "o/m:v1"],
    "hub convert IN OUT": ["convert", "{dir}/tied.pth", "{dir}/tied.safetensors"],
    "hub cache dir": ["cache", "dir"],
    "hub cache ls": ["cache", "ls"],
    "hub cache verify": ["cache", "verify", "--repair"],
    "hub cache prune": ["cache", "prune"],
    "hub cache rm SPEC_OR_FILE": ["cache", "rm", "o/m:v1", "--yes"],
    "hub trust ls": ["trust", "ls"],
    "hub env": ["env"],
}  # fmt: skip


def _lose_a_blob(hub: Path) -> None:
    for blob in (hub / "blobs" / "sha256").glob("*/*"):
        blob.unlink()


def _leave_something(hub: Path) -> None:
    left = hub / "partial" / "net.tmp"
    left.write_text("x")
    os.utime(left, (0, 0))


# what happens to the cache before a command, so that it has something to tell
BEFORE = {"hub cache verify": _lose_a_blob, "hub cache prune": _leave_something}


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the commands print, run one after the other."""
    root = tmp_path_factory.mktemp("json")
    (root / "files").mkdir()
    np.save(root / "x.npy", np.ones((1, 2), np.float32))
    weight = engine.ones(2)
    engine.save({"a": weight, "b": weight, "epoch": 3}, root / "tied.pth")
    (root / "labels.txt").write_text("one\ntwo\nthree\n")
    with file_server(root / "files") as files, git_server(root / "served") as served:
        model = Model.create(root, files.url)
        environment = {
            "TORCH_HUB_DIR": str(root / "hub"),
            "HOME": str(root),
            "XDG_CONFIG_HOME": str(root / "config"),
            "HUB_ALLOW_PROTOCOLS": "http",
            "HUB_GIT_URL": f"{served.url}/{{owner}}/{{repo}}.git",
            "HUB_TRUST": "commit",
        }
        made = {}
        for title, arguments in COMMANDS.items():
            filled = [
                part.format(net=model.url, file=model.weights, dir=root) for part in arguments
            ]
            BEFORE.get(title, lambda hub: None)(root / "hub")
            result = CliRunner().invoke(cli.hub, ["--json", *filled], env=environment)
            assert (result.exit_code == 0) == (title != "error"), result.output
            made[title] = json.loads(result.stdout)
        yield made


def differences(shown: Any, made: Any, where: str = "") -> list[str]:
    """Where two documents differ in fields or types; None agrees with everything."""
    if shown is None or made is None:
        return []
    if isinstance(shown, dict) and isinstance(made, dict):
        found = [f"{where}.{key}" for key in shown.keys() ^ made.keys()]
        for key in shown.keys() & made.keys():
            found += differences(shown[key], made[key], f"{where}.{key}")
        return found
    if isinstance(shown, list) and isinstance(made, list):
        if not shown or not made:
            return [] if shown == made else [f"{where}: one of them is empty"]
        return [text for one in made for text in differences(shown[0], one, f"{where}[]")]
    numbers = (int, float)
    alike = type(shown) is type(made) or (type(shown) in numbers and type(made) in numbers)
    return [] if alike else [f"{where}: {type(shown).__name__} and {type(made).__name__}"]


def test_every_command_has_an_example():
    assert set(EXAMPLES) == set(COMMANDS)
    documented = {title.split()[1] for title in EXAMPLES if title.startswith("hub ")}
    assert documented == set(cli.COMMANDS)


@pytest.mark.parametrize("title", list(COMMANDS))
def test_the_examples_are_true(documents, title):
    shown, made = dict(EXAMPLES[title]), dict(documents[title])
    assert shown["schema_version"] == made["schema_version"]
    if title == "hub list SPEC":
        made["entrypoints"] = [one for one in made["entrypoints"] if one["name"] == "net"]
    assert differences(shown, made) == []
