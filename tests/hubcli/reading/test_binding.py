"""Arguments that an entrypoint refuses for certain, told from its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubcli.reading import binding, hubconf

HUBCONF = """
import contextlib
import functools

import torch
from elsewhere import imported, twice_there
from torch import nn


def plain(width, depth=2, *, pretrained=False):
    return width


def anything(*args, **kwargs):
    return args


def positional(a, /, b: "int" = 3) -> "nn.Module":
    return a


@torch.no_grad()
def harmless(width):
    return width


@contextlib.contextmanager
def decorated(width):
    yield width


@unknown
def changed(width):
    return width


if torch.cuda.is_available():
    def either(width):
        return width
else:
    def either():
        return 1


def replaced(width):
    return width


replaced = functools.lru_cache(replaced)


def signed(width):
    return width


signed.__signature__ = None

small = functools.partial(plain, 8)
lambda_ = lambda x: x


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()


class Meta(nn.Module, metaclass=type):
    def __init__(self, width):
        super().__init__()


class New:
    def __new__(cls, *args):
        return object.__new__(cls)

    def __init__(self, width):
        pass


class Foreign(torch.Other):
    def __init__(self, width):
        pass
"""
ELSEWHERE = """
def imported(width):
    return width


def twice_there(width):
    return width


if True:
    def twice_there():
        return 1
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "hubconf.py").write_text(HUBCONF)
    (tmp_path / "elsewhere.py").write_text(ELSEWHERE)
    return tmp_path


def refused(root: Path, name: str, *args: object, **kwargs: object) -> str | None:
    found = binding.refusal(root, hubconf.read(root), name, args, kwargs)
    return None if found is None else found.reason


def test_what_is_certain(root) -> None:
    assert refused(root, "plain", 1) is None
    assert refused(root, "plain") == "missing a required argument: 'width'"
    assert refused(root, "plain", 1, 2, 3) == "too many positional arguments"
    assert refused(root, "plain", 1, width=2) == "multiple values for argument 'width'"
    assert refused(root, "plain", 1, colour=2) == "got an unexpected keyword argument 'colour'"
    assert refused(root, "anything", 1, 2, x=3) is None
    assert refused(root, "positional", b=1) is not None and refused(root, "positional", 1, b=1) is None
    for name in ("harmless", "imported", "Net", "lambda_"):
        assert refused(root, name) is not None, name
        assert refused(root, name, 1) is None, name
    assert refused(root, "small", colour=2) is not None and refused(root, "small") is None


def test_what_only_the_call_tells(root) -> None:
    for name in ("changed", "decorated", "either", "replaced", "signed", "twice_there", "Meta", "New", "Foreign"):
        assert refused(root, name, 1, 2, 3, 4) is None, name
    assert refused(root, "nowhere", 1) is None


@pytest.mark.parametrize("more", ["from elsewhere import *", "globals()['plain'] = print", "exec('plain = print')"])
def test_a_namespace_that_is_filled_otherwise(root, more) -> None:
    (root / "hubconf.py").write_text(f"{HUBCONF}{more}\n")
    assert refused(root, "plain") is None


def test_the_error_is_pythons_own(root) -> None:
    found = binding.refusal(root, hubconf.read(root), "plain", (), {})
    assert found is not None
    assert str(found.error) == "plain() missing 1 required positional argument: 'width'"
    assert found.hint == "its signature is plain(width, depth=2, *, pretrained=False)"


def test_defaults_are_not_executed(root, tmp_path) -> None:
    (root / "hubconf.py").write_text(f"def net(a=open({str(tmp_path / 'ran')!r}, 'w')):\n    return a\n")
    assert refused(root, "net", b=1) is not None
    assert not (tmp_path / "ran").exists()
