"""GraphModule: code, submodules, copies, pickles; texts are PyTorch 2.13's."""

from __future__ import annotations

import copy
import io
import pickle
import runpy
from pathlib import Path

import pytest

import engine
from engine import fx, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.w = nn.Parameter(engine.zeros(4))
        self.l = nn.ModuleList([nn.ReLU()])

    def forward(self, x, n=2):
        return self.l[0](self.lin(x) + self.w * n)


CODE = """


def forward(self, x, n = 2):
    lin = self.lin(x);  x = None
    w = self.w
    mul = w * n;  w = n = None
    add = lin + mul;  lin = mul = None
    l_0 = getattr(self.l, "0")(add);  add = None
    return l_0
    """
STRUCTURE = """Net(
  (lin): Linear(in_features=4, out_features=4, bias=True)
  (l): Module(
    (0): ReLU()
  )
)"""


def test_code_and_texts() -> None:
    module = fx.symbolic_trace(Net())
    assert module.code == CODE and repr(module) == STRUCTURE
    assert str(module) == (f"{STRUCTURE}\n{CODE}\n# To see more debug info, please use `graph_module.print_readable()`")
    assert module.print_readable(print_output=False) == (
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x, n = 2):\n"
        "        # No stacktrace found for following nodes\n"
        "        lin = self.lin(x);  x = None\n"
        "        w = self.w\n"
        "        mul = w * n;  w = n = None\n"
        "        add = lin + mul;  lin = mul = None\n"
        '        l_0 = getattr(self.l, "0")(add);  add = None\n'
        "        return l_0\n"
    )


def test_runs_and_trains() -> None:
    net = Net()
    module = fx.symbolic_trace(net)
    x = engine.randn(2, 4)
    assert engine.equal(module(x), net(x)) and engine.equal(module(x, n=3), net(x, 3))
    module(x).sum().backward()
    assert net.lin.weight.grad is not None  # the same parameters
    assert module.state_dict().keys() == net.state_dict().keys()


def test_changed_graph() -> None:
    module = fx.symbolic_trace(Net())
    add = next(n for n in module.graph.nodes if n.name == "add")
    add.target = engine.sub
    assert module.code == CODE  # until it is compiled anew
    module.recompile()
    assert "add = torch.sub(lin, mul)" in module.code
    x = engine.randn(2, 4)
    assert engine.equal(module(x), engine.relu(module.lin(x) - module.w * 2))


def test_submodules() -> None:
    module = fx.symbolic_trace(Net())
    assert module.delete_submodule("l.0") and not module.delete_submodule("zz")
    assert module.add_submodule("a.b.c", nn.ReLU()) and not module.add_submodule("w.b", nn.ReLU())
    with pytest.raises(RuntimeError, match=r"Node l_0 target l.0 references nonexistent attribute 0 of l"):
        module.graph.lint()
    assert module.add_submodule("l.0", nn.ReLU())
    module.delete_all_unused_submodules()
    assert [name for name, _ in module.named_modules()] == ["", "lin", "l", "l.0"]


def test_error_shows_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    module = fx.symbolic_trace(lambda x: x + x.missing)
    with pytest.raises(AttributeError):
        module(engine.ones(1))
    shown = capsys.readouterr().err
    assert shown.startswith("Call using an FX-traced Module, line 5 of the traced Module's generated forward function:")
    assert "getattr_1 = x.missing" in shown.split("<--- HERE")[0]


def test_root_as_dict() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_module("a.b", (graph.call_function(engine.add, (x, graph.get_attr("c"))),)))
    module = fx.GraphModule({"a.b": nn.ReLU(), "c": engine.ones(2)}, graph)
    assert module(engine.tensor([-2.0, 1.0])).tolist() == [0.0, 2.0] and list(module.state_dict()) == ["c"]
    with pytest.raises(RuntimeError, match=r"referenced target a\.b but that target was not provided in ``root``!"):
        fx.GraphModule({"c": engine.ones(2)}, graph)


def test_copies() -> None:
    module = fx.symbolic_trace(Net())
    module.meta["note"] = 1
    twin = copy.deepcopy(module)
    assert twin.code == module.code and twin.meta == {"note": 1} and type(twin).__name__ == "Net"
    assert twin.lin.weight is not module.lin.weight and twin.graph.owning_module is twin
    x = engine.randn(2, 4)
    assert engine.equal(twin(x), module(x))
    assert copy.copy(module).lin is module.lin


def test_pickled() -> None:
    module = fx.symbolic_trace(Net())
    twin = pickle.loads(pickle.dumps(module))
    x = engine.randn(2, 4)
    assert twin.code == module.code and engine.equal(twin(x), module(x)) and repr(twin) == STRUCTURE
    import_block = module.__reduce__()[1][1]
    assert import_block == (
        "NoneType = type(None)\nfrom math import inf\nfrom math import nan\nfrom torch import device\nimport torch\n"
        "import torch.fx._pytree as fx_pytree\nimport torch.utils._pytree as pytree"
    )


def test_safe_reader_refuses_programs() -> None:
    file = io.BytesIO()
    engine.save(fx.symbolic_trace(Net()), file)
    file.seek(0)
    with pytest.raises(Exception, match="reduce_graph_module"):
        engine.load(file)


def test_lambda_in_code_cannot_be_pickled() -> None:
    graph = fx.Graph()
    graph.output(graph.call_function(lambda x: x, (graph.placeholder("x"),)))
    with pytest.raises(RuntimeError, match="cannot be imported, so the code that uses it cannot be saved"):
        pickle.dumps(fx.GraphModule({}, graph))


def test_folder(tmp_path: Path) -> None:
    from engine import torch_alias

    assert torch_alias.installed is not None
    module = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    module.to_folder(tmp_path / "out", "Saved")
    text = (tmp_path / "out" / "module.py").read_text()
    assert "class Saved(torch.nn.Module):" in text and "setattr(self, '0', Linear(in_features=2" in text
    if torch_alias.installed():
        made = runpy.run_path(str(tmp_path / "out" / "module.py"))["Saved"]()
        x = engine.randn(1, 2)
        assert engine.equal(made(x), module(x))


def test_hooks() -> None:
    module = fx.symbolic_trace(Net())
    seen: list[str] = []
    module._register_create_node_hook(lambda node: seen.append(f"+{node.name}"))
    module._register_erase_node_hook(lambda node: seen.append(f"-{node.name}"))
    node = module.graph.call_method("neg", (next(iter(module.graph.nodes)),))
    module.graph.erase_node(node)
    assert seen == ["+neg", "-neg"]
    with module._set_replace_hook(lambda old, new, user: seen.append(f"{old}>{new}@{user}")):
        first, second = list(module.graph.nodes)[:2]
        first.replace_all_uses_with(second)
    assert seen[2:] == ["x>n@lin"]


def test_nested_arguments() -> None:
    module = fx.symbolic_trace(lambda x: {"s": x[0] + x[1]["a"]}, concrete_args={"x": (fx.PH, {"a": fx.PH})})
    one = engine.ones(1)
    assert module((one, {"a": one}))["s"].tolist() == [2.0]
    twin = pickle.loads(pickle.dumps(module))
    assert twin.code == module.code and twin((one, {"a": one}))["s"].tolist() == [2.0]
