"""A repository whose checkout carries the package that it is about, without compiled parts or a version file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from hubcli.terminal import cli
from tests.servers import Repository, git_server

FILES = {
    "hubconf.py": """
dependencies = ["torch"]
from carried.models import get_model
from carried.models.nets import small
from carried.models.detection import detector, DEFAULTS
from carried.models import *
from carried import models as _models
""",
    "carried/__init__.py": """
import warnings
try:
    from .version import __version__
except ImportError:
    pass
from carried import models, ops
from .extension import has_ops
""",
    "carried/extension.py": """
import importlib.machinery
import os

def compiled_part(name):
    details = (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES)
    found = importlib.machinery.FileFinder(os.path.dirname(__file__), details).find_spec(name)
    if found is None:
        raise ImportError(name)
    return found.origin

def has_ops():
    try:
        compiled_part("_C")
    except ImportError:
        return False
    return True
""",
    "carried/ops.py": "def keep(x): return x\n",
    "carried/models/__init__.py": "from .nets import *\n"
    "from .registry import get_model, list_models\nfrom . import detection\n",
    "carried/models/nets.py": """
from functools import partial
import torch
from ..ops import keep
from .registry import register_model, handle_legacy

__all__ = ["Net", "small", "large"]

class Net(torch.nn.Module):
    '''Linear.'''
    def __init__(self, width=2):
        super().__init__()
        self.layer = torch.nn.Linear(3, width)
    def forward(self, x):
        return keep(self.layer(x))

@register_model()
@handle_legacy(weights=("pretrained", None))
def small(*, weights=None, progress: bool = True, **kwargs) -> Net:
    '''The small one.'''
    return Net(2)

@register_model("large_model")
def large(**kwargs) -> Net:
    return Net(4)
""",
    "carried/models/registry.py": """
import functools
BUILTIN = {}

def register_model(name=None):
    def wrapper(fn):
        BUILTIN[name or fn.__name__] = fn
        return fn
    return wrapper

def handle_legacy(**pairs):
    def outer(builder):
        @functools.wraps(builder)
        def inner(*args, **kwargs):
            return builder(*args, **kwargs)
        return inner
    return outer

def get_model(name, **config):
    'By name.'
    return BUILTIN[name](**config)

def list_models():
    return sorted(BUILTIN)
""",
    "carried/models/detection/__init__.py": "from .boxes import *\n",
    "carried/models/detection/boxes.py": "from ..nets import Net\nDEFAULTS = {'a': 1}\n"
    "def detector(): 'Finds.'; return Net(1)\n",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    root = tmp_path_factory.mktemp("carried")
    Repository.create(root / "served", "o/v").commit(FILES, tag="v1")
    with git_server(root / "served") as server:
        yield {
            "HUB_ALLOW_PROTOCOLS": "http",
            "HUB_GIT_URL": f"{server.url}/{{owner}}/{{repo}}.git",
            "TORCH_HUB_DIR": str(root / "hub"),
            "HUB_TRUST": "commit",
        }


def hub(served: dict[str, str], *arguments: str) -> dict[str, object]:
    result = CliRunner().invoke(cli.hub, ["--json", *arguments], env=served)
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


def test_names_are_resolved_through_the_package(served: dict[str, str]) -> None:
    listed = hub(served, "list", "o/v:v1")
    ran = hub(served, "list", "o/v:v1", "--exec", "--no-sandbox")
    names = [entry["name"] for entry in listed["entrypoints"]]
    assert names == [entry["name"] for entry in ran["entrypoints"]]
    assert names == ["Net", "detector", "get_model", "large", "list_models", "small"]
    assert listed["dynamic"] is False


def test_help_is_read_from_the_package(served: dict[str, str]) -> None:
    assert hub(served, "help", "o/v:v1", "small") == {
        "schema_version": 1,
        "name": "small",
        "signature": "(*, weights=None, progress: bool = True, **kwargs) -> Net",
        "doc": "The small one.",
    }


def test_its_own_package_is_no_dependency(served: dict[str, str]) -> None:
    assert [one["name"] for one in hub(served, "deps", "o/v:v1")["dependencies"]] == ["torch"]


@pytest.mark.parametrize("options", [[], ["-k", "name=large_model"]])
def test_load(served: dict[str, str], options: list[str]) -> None:
    made = hub(served, "load", "o/v:v1", "get_model" if options else "small", *options)
    assert made["class"] == "carried.models.nets.Net"
    assert made["parameters"] == (16 if options else 8)


def test_run(served: dict[str, str], tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((1, 3), np.float32))
    made = hub(served, "run", "o/v:v1", "detector", "--input", str(tmp_path / "x.npy"))
    assert made["outputs"][0]["shape"] == [1, 1]


def test_operators_that_the_engine_has_need_no_compiled_part(tmp_path: Path) -> None:
    extensions = pytest.importorskip("engine.library.extensions")
    assert "torchvision" in extensions.packages()
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("")
    (tmp_path / "torchvision" / "extension.py").write_text(
        FILES["carried/extension.py"] + "import torch\ntorch.ops.load_library(compiled_part('_C'))\n"
    )
    (tmp_path / "hubconf.py").write_text(
        "import torch\nfrom torchvision.extension import compiled_part, has_ops\n"
        "def net():\n    assert has_ops()\n"
        "    boxes = torch.tensor([[0., 0., 2., 2.], [0., 0., 2., 2.]])\n"
        "    assert torch.ops.torchvision.nms(boxes, torch.tensor([1., 0.5]), 0.5).tolist() == [0]\n"
        "    return torch.nn.Linear(2, 2)\n"
        "def other():\n    return compiled_part('nothing')\n"
    )
    result = CliRunner().invoke(cli.hub, ["load", str(tmp_path), "net"])
    assert result.exit_code == 0, result.output
    assert CliRunner().invoke(cli.hub, ["load", str(tmp_path), "other"]).exit_code == 70
