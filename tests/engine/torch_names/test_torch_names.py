"""Every name that a module of torch, or one of the engine before its move, has: one module, under all of them."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import subprocess
import sys
from typing import Any

import pytest

import engine
from engine import torch_names
from engine.fx._names import qualified_name
from engine.torch_names import home, torch_name

MOVED = [
    "_checks",
    "_extensions.image",
    "_foreach",
    "_library.custom_ops",
    "_library.schema",
    "_ops",
    "_tensor_str",
    "_utils",
    "classes",
    "compiler",
    "device",
    "dtypes",
    "grad_mode",
    "hooks",
    "jit.annotations",
    "jit.frontend",
    "layouts",
    "profiler",
    "quantized",
    "quasirandom",
    "random",
    "return_types",
    "signal.windows",
    "storage",
    "tensor",
    "testing",
    "typed_storage",
    "version",
]


@pytest.mark.parametrize("name", MOVED)
def test_one_module_under_every_name(name: str) -> None:
    real = importlib.import_module(home(f"torch.{name}"))
    spec = real.__spec__
    assert importlib.import_module(f"engine.{name}") is real
    assert real.__spec__ is spec and spec is not None and spec.name == real.__name__  # its own is left


def test_every_row_of_the_table_is_a_module() -> None:
    for name in sorted(torch_names.MODULES | {*torch_names._HOMES, "jit.annotations", "jit.frontend"}):
        assert importlib.util.find_spec(home(f"torch.{name}")) is not None, name


@pytest.mark.parametrize("package", ["engine", "torch"])
def test_an_import_hides_no_class_and_no_function(package: str) -> None:
    code = (
        "import engine\nfrom engine import torch_alias\n"
        + ("torch_alias.install()\n" if package == "torch" else "")
        + f"import {package}\nbefore = {{n: getattr({package}, n) for n in ('device', 'tensor')}}\n"
        f"import {package}.device, {package}.tensor\n"
        f"from {package}.device import device\nfrom {package}.tensor import Tensor\n"
        f"assert {{n: getattr({package}, n) for n in before}} == before\n"
        f"assert {package}.device('cpu') == device('cpu') and isinstance({package}.tensor([1.0]), Tensor)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_other_attribute_of_the_engine_has_the_name_of_a_module() -> None:
    """Whoever adds one to the table adds it to `hide_no_attribute`, too."""
    code = (
        "import engine, types\nfrom engine import torch_names\n"
        "names = torch_names.MODULES | set(torch_names._HOMES)\n"
        "print(sorted(n for n in names if not isinstance(getattr(engine, n, engine), types.ModuleType)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "['device']\n"


def test_what_is_missing_is_named() -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module("engine._library.nothing")
    assert caught.value.name == "engine._library.nothing"


def test_pickles_that_name_the_old_modules() -> None:
    old = b"cengine.device\ndevice\n."
    assert pickle.loads(old) is engine.device
    assert pickle.loads(b"cengine.storage\nUntypedStorage\n.") is engine.UntypedStorage


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (engine.device, "torch.device"),
        (engine.Tensor, "torch.Tensor"),
        (engine.UntypedStorage, "torch.storage.UntypedStorage"),
        (engine.no_grad, "torch.autograd.grad_mode.no_grad"),
        (engine.library.custom_op, "torch._library.custom_ops.custom_op"),
        (engine.library.infer_schema, "torch._library.infer_schema.infer_schema"),
        (engine.ao.quantization.QuantStub, "torch.ao.quantization.QuantStub"),
        (engine.profiler.profile, "torch.profiler.profile"),
        (engine.nn.Linear, "torch.nn.modules.linear.Linear"),
        (engine.jit.annotate, "torch.jit.annotate"),
        (engine.jit.Future, "torch.jit.Future"),
        (engine.jit.ScriptModule, "torch.jit.ScriptModule"),
    ],
)
def test_a_class_has_the_name_of_torch_in_the_text_of_a_graph(value: Any, name: str) -> None:
    assert qualified_name(value) == name


def test_torch_name_is_the_inverse_of_home() -> None:
    for name in ("storage", "device", "dtypes", "_tensor_str", "testing", "ao.nn.quantized", "utils.data", "_ops"):
        assert torch_name(home(f"torch.{name}")) == f"torch.{name}"
    assert torch_name("engine") == "torch" and torch_name("engine.dispatch.gate") == "torch.dispatch.gate"
