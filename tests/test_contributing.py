"""The examples of CONTRIBUTING.md, executed as they are printed there."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubcli.errors import ExitStatus
from hubcli.terminal import cli

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
OP = (
    "import engine\n"
    "from engine import dispatch\n"
    "from engine.dispatch import OPS, derivative, op, samples\n"
    + next(block for block in BLOCKS if block.startswith("@op(")).replace("def mul(", "def contributed(")
    + "f = dispatch.PUBLIC['contributed']\n"
)


def block(part: str) -> str:
    """Return the one example that contains a text."""
    (found,) = (one for one in BLOCKS if part in one)
    return found


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert not done.returncode, done.stderr
    return done.stdout


def test_an_op_is_one_function() -> None:
    """The worked example, under a name that is not taken, is an op with everything that it promises."""
    assert "def contributed(xp, input, other):" in OP
    run(
        OP + "x = engine.tensor([1.0, 2.0], requires_grad=True, dtype=engine.float64)\n"
        "y = engine.tensor([[3.0], [4.0]], requires_grad=True, dtype=engine.float64)\n"
        "assert f(x, y).tolist() == [[3, 6], [4, 8]] and x.contributed(2).tolist() == [2, 4]\n"
        "out = engine.empty(2, 2, dtype=engine.float64)\n"
        "assert f(x.detach(), y.detach(), out=out) is out\n"
        "assert x.detach().clone().contributed_(3).tolist() == [3, 6]\n"
        "assert f(x, y).grad_fn.name() == 'ContributedBackward0'\n"
        "from engine.autograd import gradcheck, gradgradcheck\n"
        "assert gradcheck(f, (x, y)) and gradgradcheck(f, (x, y))\n"
        "assert len(OPS['contributed'].samples.__code__.co_consts) > 1\n"
    )


def test_a_kernel_of_that_op_is_chosen_and_equals_it() -> None:
    """For large arrays of one shape; what it leaves goes to the op's own code."""
    code = OP + block('@kernel(mul, "blocks")').replace("kernel(mul,", "kernel(contributed,")
    printed = run(
        code + "results = []\n"
        "own = OPS['contributed'].kernels['blocks']\n"
        "def noted(*args, **kwargs):\n"
        "    results.append(own(*args, **kwargs) is not NotImplemented)\n"
        "    return own(*args, **kwargs)\n"
        "OPS['contributed'].kernels['blocks'] = noted\n"
        "x, y = engine.randn(300, 400), engine.randn(300, 400)\n"
        "assert engine.equal(f(x, y), x * y)\n"
        "assert engine.equal(f(x, 2.5), x * 2.5) and engine.equal(f(x, y[0]), x * y[0])\n"
        "assert engine.equal(f(x.double(), y.double()), x.double() * y.double())\n"
        "print(results, processor.available())\n"
    )
    chosen, available = printed.strip().rsplit(" ", 1)
    assert json.loads(chosen.lower()) == [available == "True", False, False, False]


def test_a_pass_changes_the_graph() -> None:
    code = block("def skip_first_relu")
    run(
        "import engine\n"
        "from engine.programs import passes\n"
        "from engine.programs.graph import check, graph_of\n"
        "from engine.programs.inference import lowering\n"
        "from engine.programs.listening import run_recorded\n"
        "from engine.programs.passes.constants import drop_unused\n"
        f"{code}"
        "passes.check_each = True\n"
        "model = lambda x: engine.tanh(engine.relu(engine.relu(x)))\n"
        "kept = lambda x: engine.relu(engine.relu(x).mul_(-1))\n"
        "def names(function, *through):\n"
        "    x = engine.randn(3, 4)\n"
        "    recorder, _ = run_recorded(lambda: function(x), [x])\n"
        "    graph = graph_of(recorder, recorder.result)\n"
        "    passes.apply(graph, through)\n"
        "    return [name(node) for node in graph.nodes if node.op == 'call_function']\n"
        "assert names(model) == ['relu', 'relu', 'tanh']\n"
        "assert names(model, skip_first_relu, drop_unused) == ['relu', 'tanh']\n"
        "assert names(kept, skip_first_relu, drop_unused) == names(kept)\n"
        "lowering.PASSES.append(skip_first_relu)\n"
        "class Model(engine.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return model(x)\n"
        "plan, x = engine.compile(Model().eval()), engine.randn(3, 4)\n"
        "with engine.no_grad():\n"
        "    assert engine.equal(plan(x), model(x)) and engine.equal(plan(-x), model(-x))\n"
        "assert [name(node) for node in plan.graph.nodes if node.op == 'call_function'] == ['relu', 'tanh']\n"
    )


@pytest.fixture
def where(monkeypatch: pytest.MonkeyPatch) -> str:
    """The command of the example, as a row of COMMANDS."""
    name = "hubcli.terminal.commands.where"
    module = types.ModuleType(name)
    exec(compile(block('"""`hub where`'), name, "exec"), vars(module))
    monkeypatch.setitem(sys.modules, name, module)
    row = re.search(r'`"where": (\(".*?"\))`', TEXT)
    assert row
    monkeypatch.setitem(cli.COMMANDS, "where", eval(row[1]))  # type: ignore[index]
    return "where"


def test_a_command_is_a_file_and_a_row(where: str, tmp_path: Path) -> None:
    (tmp_path / "hubconf.py").write_text("def net():\n    return 1\n")
    hub = CliRunner()
    assert f"  {where} " in hub.invoke(cli.hub, ["--help"]).output
    found = hub.invoke(cli.hub, [where, str(tmp_path)])
    assert (found.exit_code, found.output) == (0, f"{tmp_path}\n")
    document = json.loads(hub.invoke(cli.hub, ["--json", where, str(tmp_path)]).output)
    assert document["path"] == str(tmp_path)
    missing = hub.invoke(cli.hub, [where, "owner/repo:v1"])
    assert missing.exit_code == ExitStatus.NOT_FOUND and "hint: run `hub pull owner/repo:v1`" in missing.output


def test_the_generated_text_can_be_read() -> None:
    assert run(block("binder.source")).startswith("def ")


def test_the_files_that_it_names_exist() -> None:
    """Every path in backticks below one of our folders, patterns and place-holders aside."""
    named = set(re.findall(r"`((?:engine|hubcli|tests|docs|scripts|benchmarks)/[\w./]+?)[`:]", TEXT))
    invented = {"hubcli/terminal/commands/where.py"}  # by the example
    assert named and not [
        one for one in sorted(named - invented) if "/x/" not in one and "NAME" not in one and not (ROOT / one).exists()
    ]
