"""Importing a module of a package leaves the function of the same name there."""

from __future__ import annotations

import subprocess
import sys

import pytest

CASES = {
    "engine.autograd": "gradcheck",
    "engine.nn.parallel": "data_parallel",
    "engine.nn.utils": "weight_norm",
    "torch.autograd": "gradcheck",
    "torch.nn.parallel": "data_parallel",
    "torch.nn.utils": "spectral_norm",
}


@pytest.mark.parametrize("package", CASES)
def test_the_function_stays(package: str) -> None:
    name, alias = CASES[package], package.startswith("torch")
    code = (
        ("from engine import torch_alias\ntorch_alias.install()\n" if alias else "import engine\n")
        + f"import {package}.{name}\nfrom {package}.{name} import {name}\n"
        f"assert {package}.{name} is {name}, {package}.{name}\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
