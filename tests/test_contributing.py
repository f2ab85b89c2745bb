"""The examples of CONTRIBUTING.md, executed as they are printed there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert not done.returncode, done.stderr
    return done.stdout


def test_an_op_is_one_function() -> None:
    """The worked example, under a name that is not taken, is an op with everything that it promises."""
    example = next(block for block in BLOCKS if block.startswith("@op("))
    assert "def mul(xp, input, other):" in example
    run(
        "import engine\n"
        "from engine.dispatch import OPS, derivative, op, samples\n"
        + example.replace("def mul(", "def contributed(")
        + "x = engine.tensor([1.0, 2.0], requires_grad=True, dtype=engine.float64)\n"
        "y = engine.tensor([[3.0], [4.0]], requires_grad=True, dtype=engine.float64)\n"
        "from engine import dispatch\n"
        "f = dispatch.PUBLIC['contributed']\n"
        "assert f(x, y).tolist() == [[3, 6], [4, 8]] and x.contributed(2).tolist() == [2, 4]\n"
        "out = engine.empty(2, 2, dtype=engine.float64)\n"
        "assert f(x.detach(), y.detach(), out=out) is out\n"
        "assert x.detach().clone().contributed_(3).tolist() == [3, 6]\n"
        "assert f(x, y).grad_fn.name() == 'ContributedBackward0'\n"
        "from engine.autograd import gradcheck, gradgradcheck\n"
        "assert gradcheck(f, (x, y)) and gradgradcheck(f, (x, y))\n"
        "assert len(OPS['contributed'].samples.__code__.co_consts) > 1\n"
    )


def test_the_generated_text_can_be_read() -> None:
    example = next(block for block in BLOCKS if "binder.source" in block)
    assert run(example).startswith("def ")


def test_the_files_that_it_names_exist() -> None:
    """Every path in backticks below one of our folders, patterns and place-holders aside."""
    named = set(re.findall(r"`((?:engine|hubcli|tests|docs|scripts|benchmarks)/[\w./]+?)[`:]", TEXT))
    assert named and not [
        one for one in sorted(named) if "/x/" not in one and "NAME" not in one and not (ROOT / one).exists()
    ]
