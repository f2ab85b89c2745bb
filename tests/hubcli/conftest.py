"""A sample repository on a real git server, for the tests of what runs repository code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hubcli.net.git import access
from tests.servers import Repository, Served, git_server

HUBCONF = '''"""Sample models."""
import os
import sys
from helpers import NAME, Thing
from collections import OrderedDict

dependencies = ["torch", "json"]


def thing(*args, **kwargs):
    """Make a thing.

    It holds its arguments.
    """
    return Thing(args, kwargs)


def strict(width, depth=2, *, pretrained=False):
    """Takes what its signature says."""
    return width, depth, pretrained


def noisy():
    print("printed")
    os.system("echo from a child")
    sys.stdout.write("written")
    return NAME


def broken(value=0):
    return helper(value)


def helper(value):
    raise ValueError(f"cannot do\\n{value}")


def leaves():
    sys.exit(3)


def writes():
    raise PermissionError(13, "Permission denied", os.path.join(os.path.dirname(__file__), "x"))


def weighted(url):
    from torch.hub import load_state_dict_from_url
    return load_state_dict_from_url(url, progress=False)


def nested(repo, entrypoint, **options):
    import torch.hub
    return torch.hub.load(repo, entrypoint, **options)


_private = thing
number = 3
'''

HELPERS = """NAME = "sample"


class Thing:
    def __init__(self, args, kwargs):
        self.args, self.kwargs = args, kwargs
"""


@pytest.fixture(autouse=True)
def nothing_has_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where repositories have moved to is kept per process, and this test's server may have the port of another's."""
    monkeypatch.setattr(access, "_moved", {})


@pytest.fixture
def sample(tmp_path: Path) -> Repository:
    """`o/r` with the branch main and the tag v1."""
    repo = Repository.create(tmp_path / "served", "o/r")
    repo.commit({"hubconf.py": HUBCONF, "helpers.py": HELPERS}, tag="v1")
    return repo


@pytest.fixture
def sample_server(tmp_path: Path, sample: Repository, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """The git server that `o/r` is fetched from."""
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "https,ssh,http")
    with git_server(tmp_path / "served") as served:
        monkeypatch.setenv("HUB_GIT_URL", f"{served.url}/{{owner}}/{{repo}}.git")
        yield served


@pytest.fixture
def sample_folder(tmp_path: Path) -> Path:
    """The sample as a folder of one's own."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "hubconf.py").write_text(HUBCONF)
    (folder / "helpers.py").write_text(HELPERS)
    return folder
