"""`hub help`: signature and docstring."""

from __future__ import annotations

import json

from click.testing import CliRunner

from hubcli import cli


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
