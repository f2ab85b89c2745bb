"""Fixtures of all tests: no test sees the user's cache, settings or git configuration."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hubcli.base import once, settings

if "PYTEST_XDIST_WORKER" in os.environ:  # workers share the cores: threads would wait for each other
    for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(_name, "1")
os.environ.setdefault("ENGINE_ROUTES", "static")  # nothing that was measured on this machine decides what is tested
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a run in a shell's background: children would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """--slow runs the exhaustive variants."""
    parser.addoption("--slow", action="store_true", help="run the exhaustive variants too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what is marked slow unless --slow."""
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="exhaustive variant: run with --slow")
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(skip)


def pytest_configure() -> None:
    """Collect no garbage while tests are collected."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave what collecting made out of all garbage collections: with 50,000 tests it is most of the heap, and a test
    that calls `gc.collect` would walk through it each time."""
    gc.collect()
    gc.freeze()
    gc.enable()


_spare: list[Path] = []  # a folder that the test before left empty


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of the test's own with an empty `home` in it.

    Most tests leave theirs empty, and the next one has it: to make two folders for each of 50,000 tests, and to remove
    them, takes longer than most tests do.
    """
    path = _spare.pop() if _spare else tmp_path_factory.mktemp("test")
    home = path / "home"
    home.mkdir(exist_ok=True)
    yield path
    if os.listdir(path) == ["home"] and not home.is_symlink() and not os.listdir(home):
        _spare[:] = [path]


@pytest.fixture(autouse=True)
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home, a cache and settings of the test's own; the folder `home`."""
    for name in list(os.environ):
        prefixes = ("HUB_", "HF_", "GIT_", "TORCH_", "XDG_", "SSL_CERT_", "REQUESTS_CA_", "CURL_CA_", "NETRC")
        if name.startswith(prefixes) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.setenv("TORCH_HUB_DIR", str(tmp_path / "hub"))
    for name in ("CONFIG", "CACHE", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    once.forget()  # a server of this test may have the port of an earlier one
    with settings.overriding():
        yield home


@pytest.fixture(autouse=True)
def seeded(request: pytest.FixtureRequest) -> None:
    """Every test draws the same numbers in every run, whichever ran before it; TEST_SEED=N tries others."""
    seed = zlib.crc32(f"{os.environ.get('TEST_SEED', '')}{request.node.nodeid}".encode())
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    if "engine" in sys.modules:  # the tests of the hub run without it
        sys.modules["engine"].manual_seed(seed)


@pytest.fixture
def hub_root(tmp_path: Path) -> Path:
    """The test's own cache folder, not made yet."""
    return tmp_path / "hub"
