"""`engine.ops.functions` serves what `engine` serves of torch's functions, as the same objects."""

from __future__ import annotations

import subprocess
import sys

import pytest

import engine
from engine import dispatch
from engine.core import dtypes
from engine.ops import functions


def test_they_are_the_functions_of_torch():
    dispatch.import_lazy()
    named = [*dispatch.PUBLIC, *dtypes.__all__, "Generator", "Size", "Tensor", "device", "no_grad", "pi", "strided"]
    assert [name for name in named if getattr(functions, name) is not getattr(engine, name)] == []


def test_no_other_module_is_served():
    with pytest.raises(AttributeError, match=r"module 'engine\.ops\.functions' has no attribute 'nn'"):
        functions.nn  # noqa: B018


def test_lazy_families_stay_lazy_until_one_of_their_functions_is_read():
    code = (
        "import sys\nfrom engine.ops import functions as torch\ntorch.add, torch.zeros\n"
        "assert 'engine.ops.lazy' not in sys.modules\ntorch.svd\nassert 'engine.ops.lazy' in sys.modules\n"
        "assert 'svd' in vars(torch)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
