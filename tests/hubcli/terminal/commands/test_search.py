"""`hub search`: hub's own list, one of the user's, and lists that are not what they should be."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubcli.terminal import cli
from hubcli.workflows import catalogue
from tests.servers import file_server

OWN = {"name": "team/unet", "description": "Ours.", "topics": ["segmentation", "internal"]}


def hub(*arguments: str):
    return CliRunner().invoke(cli.hub, list(arguments))


def names(*words: str) -> list[str]:
    result = hub("--json", "search", *words)
    assert result.exit_code == 0, result.output
    return [one["name"] for one in json.loads(result.stdout)["repositories"]]


@pytest.fixture
def lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    (tmp_path / "lists").mkdir()

    def put(content: object) -> str:
        text = content if isinstance(content, bytes) else json.dumps(content).encode()
        (tmp_path / "lists" / "list.json").write_bytes(text)
        return f"{served.url}/list.json"

    with file_server(tmp_path / "lists") as served:
        put.served = served
        yield put


def test_the_list_that_comes_with_hub(hub_root):
    listed = catalogue.shipped()
    assert len(listed) > 50 and len({one.name.casefold() for one in listed}) == len(listed)
    assert [one.name for one in listed] == sorted((one.name for one in listed), key=str.lower)
    assert all(one.topics and len(one.description) > 10 and one.entrypoints != 0 for one in listed)
    assert not any(one.description.endswith(".") for one in listed)
    assert len(names()) == len(listed) and not hub_root.exists()


def test_words():
    assert "isl-org/MiDaS" in names("depth")
    assert names("MIDAS") == ["isl-org/MiDaS"]
    assert names("speech", "tts") == names("tts", "Speech")
    assert names("unet")[0] in ("mateuszbuda/brain-segmentation-pytorch", "milesial/Pytorch-UNet")
    both = names("depth", "normals")
    assert both and set(both) < set(names("normals"))
    shown = hub("search", "ocr").stdout
    assert re.match(r"baudm/parseq  +Reads text", shown)


def test_nothing_found():
    result = hub("search", "segmentatoin")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "did you mean segmentation" in result.stderr
    assert json.loads(hub("--json", "search", "zzz").stdout)["error"]["code"] == "not_found"


def test_a_list_of_ones_own(lists):
    url = lists({"schema": 1, "repositories": [OWN]})
    result = hub("search", "unet", "--update", url)
    assert result.exit_code == 0 and "1 repositories, sha256 " in result.stderr
    assert "team/unet" in result.stdout and "milesial/Pytorch-UNet" in result.stdout
    lists.served.reset()
    assert names("internal") == ["team/unet"] and not lists.served.requests
    assert "as before" in hub("search", "--update", url).stderr
    lists({"schema": 1, "repositories": [{**OWN, "name": "pytorch/vision", "description": "A fork of ours."}]})
    assert hub("search", "--update", url).exit_code == 0
    assert names("internal") == ["pytorch/vision"] and names("vision").count("pytorch/vision") == 1


def test_its_digest(lists, hub_root):
    url = lists({"schema": 1, "repositories": [OWN]})
    result = hub("search", "--update", url, "--sha256", "0" * 64)
    assert result.exit_code == 6 and "has sha256" in result.stderr and not (hub_root / "search.json").exists()
    right = hashlib.sha256(json.dumps({"schema": 1, "repositories": [OWN]}).encode()).hexdigest()
    assert hub("search", "--update", url, "--sha256", right).exit_code == 0
    assert hub("search", "--update", url, "--sha256", "abc").exit_code == 2
    assert hub("search", "--sha256", right).exit_code == 2


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b"[" * 100_000,
        [],
        {"schema": 2, "repositories": []},
        {"schema": 1},
        {"schema": 1, "repositories": [[]]},
        {"schema": 1, "repositories": [{**OWN, "name": "../../x"}]},
        {"schema": 1, "repositories": [{**OWN, "name": "/etc"}]},
        {"schema": 1, "repositories": [{**OWN, "name": "--option/x"}]},
        {"schema": 1, "repositories": [{**OWN, "name": "a/b:v1"}]},
        {"schema": 1, "repositories": [{**OWN, "name": 1}]},
        {"schema": 1, "repositories": [{**OWN, "description": "\x1b[2Jcleared"}]},
        {"schema": 1, "repositories": [{**OWN, "description": "back\u202ewards"}]},
        {"schema": 1, "repositories": [{**OWN, "description": "x" * 201}]},
        {"schema": 1, "repositories": [{**OWN, "topics": ["A B"]}]},
        {"schema": 1, "repositories": [{**OWN, "entrypoints": -1}]},
        {"schema": 1, "repositories": [{**OWN, "entrypoints": True}]},
        {"schema": 1, "repositories": [{**OWN, "more": 1}]},
        b"<!doctype html>",
        b" " * (catalogue.LARGEST + 1),
    ],
)
def test_what_is_refused(lists, hub_root, content):
    good = {"schema": 1, "repositories": [OWN]}
    assert hub("search", "--update", lists(good)).exit_code == 0
    result = hub("search", "--update", lists(content))
    assert (result.exit_code, result.stdout) == (6, "") and "Traceback" not in result.stderr, result.output
    assert "\x1b" not in result.stderr and "\u202e" not in result.stderr
    assert json.loads((hub_root / "search.json").read_bytes()) == good
    assert not list(hub_root.glob("*.partial")) and names("internal") == ["team/unet"]


def test_a_list_that_is_too_long_says_so(lists):
    result = hub("search", "--update", lists(b" " * (catalogue.LARGEST + 1)))
    assert "hint: a list has at most 2.0 MB" in result.stderr and "--size-limit" not in result.stderr


def test_a_damaged_copy_is_left_out(hub_root):
    hub_root.mkdir()
    (hub_root / "search.json").write_text("{")
    result = hub("search", "midas")
    assert result.exit_code == 0 and "it is left out" in result.stderr


def test_offline(lists):
    url = lists({"schema": 1, "repositories": [OWN]})
    assert hub("--offline", "search", "--update", url).exit_code == 5
    assert hub("--offline", "search", "depth").exit_code == 0
    assert not lists.served.requests
