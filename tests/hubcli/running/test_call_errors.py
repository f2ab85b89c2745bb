"""What a user's own arguments and inputs break is the user's to mend: status 2, with the signature."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from hubcli.terminal import cli

HUBCONF = """import torch
from torch import nn

dependencies = ["torch"]


class Net(nn.Module):
    def __init__(self, width=3):
        super().__init__()
        self.linear = nn.Linear(width, 2)

    def forward(self, x, mask=None):
        return self.linear(x)


def net(pretrained=False, **kwargs):
    return Net(**kwargs)


def own_fault(**kwargs):
    return Net(depth=3)


def sized(width: int = 3, name="plain", scale: "float" = 1.0, part: int | None = None):
    if name == "own":
        raise ValueError("a fault of its own")
    if part is not None:
        part + 1
    assert isinstance(name, str)
    return Net(width=width * int(scale))


def words():
    return nn.Embedding(5, 2)


def picky():
    model = Net()

    def forward(x):
        n, c, h, w = x.shape
        return x

    model.forward = forward
    return model


def checks():
    model = Net()

    def forward(x):
        assert x.shape[1] == 7, "7 channels, please"
        return x

    model.forward = forward
    return model


def broken():
    model = Net()
    model.forward = lambda x: {}["weights"]
    return model


def unfinished():
    model = Net()

    def forward(x):
        raise NotImplementedError("sizes other than 3")

    model.forward = forward
    return model
"""


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "hubconf.py").write_text(HUBCONF)
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.ones((1, 4), np.float32))
    np.save("ids.npy", np.array([1, 9]))
    np.savez("x.npz", x=np.ones((1, 3)), maks=np.ones(1))
    return tmp_path


def hub(*arguments: str):
    return CliRunner().invoke(cli.hub, list(arguments))


def test_a_keyword_that_is_refused_further_inside(repo):
    result = hub("load", "./repo", "net", "-k", "widht=5")
    assert result.exit_code == 2
    message, hint = result.stderr.splitlines()
    assert message.startswith("hub: net does not take 'widht': ")
    assert "unexpected keyword argument 'widht'" in message
    assert hint.startswith("hint: its signature is net(pretrained=False, **kwargs)")


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ("width=wide", "width='wide', where its signature has an int"),
        ("width=[3]", "width=[3], where its signature has an int"),
        ("scale=big", "scale='big', where its signature has a float"),
        ("name=5", "name=5, where its signature has a str"),
        ("part=x", "part='x', where its signature has an int"),
    ],
)
def test_a_value_of_another_kind_than_the_signature_says(repo, given, what):
    result = hub("load", "./repo", "sized", "-k", given)
    assert result.exit_code == 2, result.output
    message, hint = result.stderr.splitlines()
    assert message.startswith(f"hub: sized was given {what}: ")
    assert hint.startswith("hint: its signature is sized(width: int = 3, name='plain', ")


@pytest.mark.parametrize("given", ["name=own", "width=-1", "width=true", "scale=2", "width=null"])
def test_a_value_that_fits_the_signature_is_no_excuse(repo, given):
    result = hub("load", "./repo", "sized", "-k", given)
    assert "was given" not in result.stderr and result.exit_code in (0, 70), result.output


def test_a_keyword_of_the_repository_s_own(repo):
    for arguments in ((), ("-k", "width=1")):
        result = hub("load", "./repo", "own_fault", *arguments)
        assert result.exit_code == 70
        assert result.stderr.startswith("hub: hubconf.py:")


@pytest.mark.parametrize(
    ("entrypoint", "file", "said", "taken"),
    [
        (
            "net",
            "x.npy",
            "does not take this input: hubconf.py:13: RuntimeError: ",
            "forward(x, mask=None); it was given float32 (1, 4)",
        ),
        ("words", "ids.npy", "does not take this input: ", "it was given int64 (2,)"),
        ("picky", "x.npy", "values to unpack", "forward(x); it was given float32 (1, 4)"),
        ("checks", "x.npy", "7 channels, please", "forward(x); it was given float32 (1, 4)"),
        (
            "net",
            "x.npz",
            "the inputs do not fit net: got an unexpected keyword argument 'maks'",
            "forward(x, mask=None); it was given x=float32 (1, 3), maks=float32 (1,)",
        ),
    ],
)
@pytest.mark.parametrize("confined", [(), ("--sandbox=best-effort",)])
def test_an_input_that_does_not_fit(repo, entrypoint, file, said, taken, confined):
    result = hub("run", "./repo", entrypoint, "--input", file, *confined)
    assert result.exit_code == 2, result.output
    message, hint = [line for line in result.stderr.splitlines() if line.startswith(("hub:", "hint:"))]
    assert said in message
    assert taken in hint


@pytest.mark.parametrize("entrypoint", ["broken", "unfinished"])
def test_other_errors_are_the_repository_s(repo, entrypoint):
    result = hub("run", "./repo", entrypoint, "--input", "x.npy")
    assert result.exit_code == 70
    assert result.stderr.startswith("hub: hubconf.py:")


def test_shapes_given_by_option(repo):
    result = hub("profile", "./repo", "net", "--input-shape", "1,4")
    assert result.exit_code == 2
    assert "net does not take this input" in result.stderr
    result = hub("check", "./repo", "net", "--input-shape", "1,4", "--no-sandbox")
    assert result.exit_code == 1
    assert "net does not take this input" in " ".join(result.stdout.split())
