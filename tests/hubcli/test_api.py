"""The public functions: their signatures, and that nothing is imported before one is used."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import hubcli
from hubcli import torch_hub

NAMES = {
    "download_url_to_file",
    "get_dir",
    "help",
    "list",
    "load",
    "load_state_dict_from_url",
    "pull",
    "set_dir",
}


def test_names():
    assert set(dir(hubcli)) == {*NAMES, "__version__"}
    for name in NAMES:
        assert getattr(hubcli, name) is getattr(torch_hub, name)
        assert getattr(hubcli, name).__doc__
    with pytest.raises(AttributeError, match="has no attribute 'nope'"):
        _ = hubcli.nope


def test_signatures():
    load = inspect.signature(hubcli.load).parameters
    assert list(load) == [
        "repo_or_dir",
        "model",
        "args",
        "source",
        "force_reload",
        "trust_repo",
        "verbose",
        "skip_validation",
        "framework",
        "kwargs",
    ]
    assert load["repo_or_dir"].default is load["model"].default is inspect.Parameter.empty
    for function in (hubcli.list, hubcli.help, hubcli.pull, hubcli.load_state_dict_from_url):
        for parameter in inspect.signature(function).parameters.values():
            assert parameter.default in (inspect.Parameter.empty, None, True, False, "github", "auto")
    assert load["source"].default == "github"
    assert load["trust_repo"].default is None
    assert load["framework"].default == "auto"
    state = inspect.signature(hubcli.load_state_dict_from_url).parameters
    assert list(state) == [
        "url",
        "model_dir",
        "map_location",
        "progress",
        "check_hash",
        "file_name",
        "weights_only",
    ]
    download = inspect.signature(hubcli.download_url_to_file)
    assert list(download.parameters) == ["url", "dst", "hash_prefix", "progress"]


def test_importing_is_light():
    code = (
        "import sys, hubcli\nheavy = {'numpy', 'engine', 'git', 'requests', 'rich', 'click', "
        "'hubcli.torch_hub'}\nassert not heavy & set(sys.modules), heavy & set(sys.modules)\nhubcli.get_dir()\nheavy "
        "-= {'hubcli.torch_hub'}\nassert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(hubcli.__file__).parents[1])
