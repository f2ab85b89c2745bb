"""What a repository imports from elsewhere, found without running a line of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubcli.reading import imports


def names(root: Path, files: dict[str, str]) -> dict[str, str]:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {one.name: one.place for one in imports.read(root)}


def test_imports_are_followed_through_the_repository(tmp_path: Path) -> None:
    found = names(
        tmp_path,
        {
            "hubconf.py": "import os, torch, torch.nn as nn\nimport models.net\nfrom lib import thing\n",
            "models/__init__.py": "import in_package\n",
            "models/net.py": "from . import part\nfrom .other import x\nimport google.protobuf.text_format\n",
            "models/part.py": "import in_part\n",
            "models/other.py": "import in_other\n",
            "lib/thing.py": "from in_thing.deep import name\n",
            "never.py": "import not_reached\n",
        },
    )
    assert found == {
        "in_package": "models/__init__.py:1",
        "google.protobuf.text_format": "models/net.py:3",
        "in_part": "models/part.py:1",
        "in_other": "models/other.py:1",
        "in_thing.deep": "lib/thing.py:1",
    }


@pytest.mark.parametrize(
    "code",
    [
        "try:\n    import maybe\nexcept ImportError:\n    maybe = None\n",
        "try:\n    import maybe\nexcept (ModuleNotFoundError, OSError):\n    pass\n",
        "try:\n    import maybe\nexcept:\n    pass\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import maybe\n",
        "if __name__ == '__main__':\n    import maybe\n",
        "import sys\nif sys.version_info < (3, 8):\n    import maybe\n",
        "def net(pretrained=False):\n    if pretrained:\n        import maybe\n",
        "from .nowhere import maybe\n",
        "from contextlib import suppress\nwith suppress(ImportError):\n    import maybe\n",
        "import helpers\ndef net(session):\n    return session.run()\n",
    ],
)
def test_what_need_not_be_there(tmp_path: Path, code: str) -> None:
    files = {"hubconf.py": code, "helpers.py": "def run():\n    import maybe\n"}
    assert names(tmp_path, files) == {}


@pytest.mark.parametrize(
    "code",
    [
        "import needed\n",
        "def net():\n    import needed\n",
        "class Net:\n    import needed\n",
        "with open('x'):\n    from needed import y\n",
        "try:\n    import needed\nexcept KeyError:\n    pass\n",
        "try:\n    import needed\nfinally:\n    pass\n",
        "if True:\n    import needed\n",
    ],
)
def test_what_must_be_there(tmp_path: Path, code: str) -> None:
    assert set(names(tmp_path, {"hubconf.py": code})) == {"needed"}


def test_functions_of_other_modules_may_never_run(tmp_path: Path) -> None:
    files = {"hubconf.py": "import helpers\n", "helpers.py": "def train():\n    import wandb\n"}
    assert names(tmp_path, files) == {}


def test_a_factory_imports_the_module_of_what_it_makes(tmp_path: Path) -> None:
    files = {
        "hubconf.py": "from models import create\ndef net(): return create('a')\n",
        "models/__init__.py": "def create(name):\n    if name == 'a':\n        from .a import A as N\n    return N()\n"
        "def export():\n    import models.exporting\nif __name__ == '__main__':\n    export()\n",
        "models/a.py": "import needed\nclass A:\n    def later(self):\n        import not_needed\n",
        "models/exporting.py": "import tensorflow\n",
    }
    assert names(tmp_path, files) == {"needed": "models/a.py:1"}


def test_what_the_functions_on_the_way_import(tmp_path: Path) -> None:
    files = {
        "hubconf.py": "from tools import fetch, Session\ndef net(onnx=False):\n    fetch()\n    return Session()\n",
        "tools.py": "def fetch():\n    import yaml_x\n    if yaml_x.old:\n        import not_needed\n"
        "class Session:\n    def __init__(self):\n        import runtime_x\n"
        "    def other(self):\n        import not_needed\n",
    }
    assert names(tmp_path, files) == {"yaml_x": "tools.py:2", "runtime_x": "tools.py:7"}


def test_a_folder_on_the_search_path(tmp_path: Path) -> None:
    files = {
        "hubconf.py": "import os,sys\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), 's'))\nimport inner\n",
        "s/inner.py": "import beyond\n",
    }
    assert names(tmp_path, files) == {"beyond": "s/inner.py:1"}


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    assert names(tmp_path, {"hubconf.py": "import broken, fine\n", "broken.py": "def (\n"}) == {"fine": "hubconf.py:1"}
    assert names(tmp_path, {"hubconf.py": "def (\n"}) == {}


@pytest.mark.parametrize(
    "guard",
    [
        "    try:\n        from fast import Layer\n    except ImportError:\n        from slow import Layer\n",
        "    import contextlib\n    with contextlib.suppress(ImportError):\n        from fast import Layer\n",
        "    if torch.cuda.is_available():\n        from fast import Layer\n    else:\n        import slow\n",
        "    if not torch.cuda.is_available():\n        import slow\n    else:\n        from fast import Layer\n",
        "    if not torch.cuda.is_available():\n        return None\n    from fast import Layer\n",
        "    if HAS_APEX and x:\n        from fast import Layer\n",
        "    if importlib.util.find_spec('x') is not None:\n        from fast import Layer\n",
        "    if is_flash_attn_available():\n        from fast import Layer\n",
        "    for _ in range(2):\n        try:\n            import fast.deep\n        except Exception: pass\n",
        "    from typing import TYPE_CHECKING\n    if TYPE_CHECKING:\n        from fast import Layer\n",
    ],
)
@pytest.mark.parametrize("where", ["module", "function", "method"])
def test_what_only_guarded_imports_reach_is_optional(tmp_path: Path, guard: str, where: str) -> None:
    code = {
        "module": "def make(x=1):\n" + guard,
        "function": "def outer():\n    return make()\ndef make(x=1):\n" + guard,
        "method": "class make:\n    def build(self, x=1):\n" + "".join(f"    {line}\n" for line in guard.splitlines()),
    }[where]
    files = {
        "hubconf.py": "from factory import make\ndef net():\n    return make()\n",
        "factory.py": f"import importlib, torch\n{code}",
        "fast/__init__.py": "from .more import Layer\n",
        "fast/more.py": "from .kernel import Layer\n",
        "fast/kernel.py": "import lightconv_cuda\nclass Layer: pass\n",
        "fast/deep.py": "import another_cuda\n",
        "slow.py": "class Layer: pass\n",
    }
    assert names(tmp_path, files) == {}


def test_what_an_unguarded_import_reaches_too_is_needed(tmp_path: Path) -> None:
    files = {
        "hubconf.py": "from a import make\nfrom b import other\ndef net(): return make()\n",
        "a.py": "def make():\n    try:\n        import kernel\n    except ImportError:\n        pass\n",
        "b.py": "import kernel\ndef other(): pass\n",
        "kernel.py": "import lightconv_cuda\n",
    }
    assert names(tmp_path, files) == {"lightconv_cuda": "kernel.py:1"}
