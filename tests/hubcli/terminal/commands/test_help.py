"""`hub help`: signature and docstring."""

from __future__ import annotations

import json

from click.testing import CliRunner

from hubcli.terminal import cli


def hub(*arguments: str):
    return CliRunner().invoke(cli.hub, list(arguments))


def test_for_people(sample_folder):
    result = hub("help", str(sample_folder), "strict")
    assert result.stdout == ("strict(width, depth=2, *, pretrained=False)\n\nTakes what its signature says.\n")
    assert "It has no docstring." in hub("help", str(sample_folder), "noisy").stdout


def test_document(sample_folder):
    made = json.loads(hub("--json", "help", str(sample_folder), "thing").stdout)
    assert made == {
        "schema_version": 1,
        "name": "thing",
        "signature": "(*args, **kwargs)",
        "doc": "Make a thing.\n\nIt holds its arguments.",
    }


def test_a_definition_that_lies_elsewhere(sample_folder):
    made = json.loads(hub("--json", "help", str(sample_folder), "OrderedDict").stdout)
    assert (made["signature"], made["doc"]) == (None, None)
    assert "--exec" in hub("help", str(sample_folder), "OrderedDict").stdout
    made = json.loads(hub("--json", "help", str(sample_folder), "OrderedDict", "--exec").stdout)
    assert "remembers" in made["doc"]


def test_no_such_entrypoint(sample_folder):
    result = hub("help", str(sample_folder), "thingy")
    assert result.exit_code == 3
    assert result.stderr.splitlines()[0] == "hub: Cannot find callable thingy in hubconf"
    assert "thing" in result.stderr.splitlines()[1]
    assert result.stdout == ""


def test_a_docstring_does_not_drive_the_terminal(tmp_path):
    (tmp_path / "hubconf.py").write_text("def net():\n    'red: \\x1b[31m'\n")
    for command in (("help", str(tmp_path), "net"), ("list", str(tmp_path))):
        assert "\x1b" not in hub(*command).stdout


def test_of_a_command():
    for words in (["load"], ["cache", "ls"], ["ls"]):
        shown = hub("help", *words).stdout
        assert shown.startswith(f"Usage: hub {' '.join(words)} ")
        assert shown == hub(*words, "--help").stdout
    assert hub("help").stdout == hub("--help").stdout
    made = json.loads(hub("--json", "help", "load").stdout)
    assert (made["name"], made["signature"]) == ("hub load", None)
    assert made["doc"].startswith("Usage: hub load")


def test_of_a_command_that_there_is_not():
    result = hub("help", "laod")
    assert result.exit_code == 2
    assert result.stderr == "hub: there is no command 'laod'\nhint: did you mean `hub help load`?\n"
    result = hub("help", "cache", "lss")
    assert result.exit_code == 2
    assert result.stderr == "hub: `hub cache` has no command 'lss'\nhint: `hub help cache` lists them\n"


def test_without_an_entrypoint(sample_folder, tmp_path):
    for command in ("help", "load"):
        result = hub(command, str(sample_folder))
        assert result.exit_code == 2
        message, hint = result.stderr.splitlines()
        assert message.startswith(f"hub: name an entrypoint of {sample_folder}: broken, helper, leaves, ")
        assert (
            "OrderedDict" not in message and "Thing" not in message
        )  # what a package brings along or it imports to use it, is not what is published
        assert hint == f"hint: e.g. hub {command} {sample_folder} broken"
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "hubconf.py").write_text(
        "from json import dumps\n\ndef net(size=1):\n    'A net.'\n    return size\n"
    )
    result = hub("help", str(tmp_path / "one"))
    assert result.stdout == "net(size=1)\n\nA net.\n"
    assert result.stderr == "entrypoint: net, the only one\n"
    assert json.loads(hub("--json", "load", str(tmp_path / "one")).stdout)["entrypoint"] == "net"
