"""`.graph` of compiled programs as text and nodes, and `FileCheck`, which reads such texts; kinds are PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest

import engine
from engine import jit
from engine.jit.archive.listing import Listing
from engine.torch_names import _C
from engine.torch_names.testing import FileCheck


def branches(x: engine.Tensor, n: int = 2) -> engine.Tensor:
    if bool(x.sum() > 0):
        r = x + 1
    else:
        r = x - 1
    for i in range(n):
        r = r * i
    return r


class Net(engine.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = engine.nn.Linear(2, 2)
        self.n = 3

    def forward(self, x: engine.Tensor) -> engine.Tensor:
        return self.l(x) * self.n


def kinds(graph: Any) -> list[str]:
    return [node.kind() for node in graph.nodes()]


TEXT = """\
graph(%x : Tensor,
      %n : int):
  %1 : NoneType = prim::Constant()
  %2 : Tensor = aten::sum(%x, %1)
  %3 : int = prim::Constant[value=0]()
  %4 : Tensor = aten::gt(%2, %3)
  %5 : bool = aten::Bool(%4)
  %r.13 : Tensor = prim::If(%5)
    block0():
      %6 : int = prim::Constant[value=1]()
      %7 : int = prim::Constant[value=1]()
      %r : Tensor = aten::add(%x, %6, %7)
      -> (%r)
    block1():
      %9 : int = prim::Constant[value=1]()
      %10 : int = prim::Constant[value=1]()
      %r.12 : Tensor = aten::sub(%x, %9, %10)
      -> (%r.12)
  %14 : bool = prim::Constant[value=1]()
  %r.19 : Tensor = prim::Loop(%n, %14, %r.13)
    block0(%i : int, %r.15 : Tensor):
      %r.17 : Tensor = aten::mul(%r.15, %i)
      %18 : bool = prim::Constant[value=1]()
      -> (%18, %r.17)
  return (%r.19)
"""


def test_the_text_and_the_nodes_of_a_function() -> None:
    graph = jit.script(branches).graph
    assert type(graph) is Listing is jit.Graph is _C.Graph and Listing.__name__ == "Graph" and str(graph) == TEXT
    condition = graph.findNode("prim::If")
    assert condition.input().type().kind() == "BoolType" and condition.outputsSize() == 1
    assert [[n.kind() for n in block.nodes()][-1] for block in condition.blocks()] == ["aten::add", "aten::sub"]
    assert [n.kind() for n in graph.findAllNodes("aten::mul")] == ["aten::mul"]
    add = graph.findNode("aten::add")
    assert add.inputsAt(1).toIValue() == 1 and add.inputsAt(1).node().i("value") == 1
    x = next(graph.inputs())
    assert (x.debugName(), str(x.type())) == ("x", "Tensor") and {u.user.kind() for u in x.uses()} == {
        "aten::sum",
        "aten::add",
        "aten::sub",
    }
    assert next(graph.outputs()).node().kind() == "prim::Loop"


def test_graphs_of_modules_and_traces() -> None:
    net = Net()
    module = jit.script(net)
    assert kinds(module.graph) == ["prim::GetAttr", "prim::CallMethod", "prim::GetAttr", "aten::mul"]
    FileCheck().check('prim::GetAttr[name="weight"]').check("aten::linear").check_not("CallMethod").run(
        module.inlined_graph
    )
    assert kinds(module.forward.graph if hasattr(module.forward, "graph") else module.graph)[0] == "prim::GetAttr"
    traced = jit.trace(lambda a: a * 2, engine.ones(2))
    assert "aten::mul" in kinds(traced.graph) and "aten::linear" in kinds(jit.trace(net, engine.ones(1, 2)).graph)


def test_file_check() -> None:
    text = "one two\nthree two\nfour\n"
    FileCheck().check("one").check_same("two").check_next("three").check_not("five").check("four").run(text)
    FileCheck().check_count("two", 2, exactly=True).run(text)
    FileCheck().check_dag("three").check_dag("one").check("four").run(text)
    FileCheck().check_regex(r"t\w+ee").check("four").run(text)
    FileCheck().check_source_highlighted("a + b").run("  x = a + b\n      ~~~~~ HERE")
    FileCheck().run("# CHECK: one\n# CHECK-COUNT-2: two\n# CHECK-NOT: three\n", text)
    for check, reason in (
        (FileCheck().check("five"), 'Expected to find "five" but did not find it\nSearched string:\none two'),
        (FileCheck().check("four").check("one"), "From CHECK: one"),
        (FileCheck().check_not("two"), 'Expected to not find "two" but found it'),
        (FileCheck().check("one").check_not("three").check("four"), "From CHECK-NOT: three"),
        (FileCheck().check("one").check_same("three"), "From CHECK-SAME: three"),
        (FileCheck().check("one").check_next("four"), "From CHECK-NEXT: four"),
        (FileCheck().check_count("two", 1, exactly=True), "but found it"),
        (FileCheck().check_count("two", 3), "From CHECK-COUNT-3: two"),
        (FileCheck().check_source_highlighted("four"), "Expected to find highlighted"),
    ):
        with pytest.raises(RuntimeError, match=reason):
            check.run(text)
    with pytest.raises(RuntimeError, match="Could not parse"):
        FileCheck().run("nothing here", text)


def test_private_switches_change_nothing() -> None:
    before = _C._jit_set_profiling_mode(False)
    assert _C._jit_set_profiling_mode(before) is False and _C._jit_set_profiling_mode(before) is before
    _C._debug_set_autodiff_subgraph_inlining(False)
    _C._jit_set_emit_hooks(None, None)
    graph = jit.script(branches).graph
    assert _C._jit_pass_inline(graph) is None and _C._jit_pass_lint(graph) is None and str(graph) == TEXT
    assert any(s.name == "aten::add" for s in _C._jit_get_all_schemas())
    with pytest.raises(AttributeError):
        _C._jit_pass_of_nobody  # noqa: B018


def test_the_function_that_a_graph_was_read_from() -> None:
    traced = jit.trace(lambda x: engine.diag(x, 1) + 1, engine.ones(3, 3))
    again = _C._create_function_from_graph("forward", traced.graph)
    assert again.name == "forward"
    assert again(engine.ones(3, 3)).tolist() == [2, 2]
    with pytest.raises(TypeError, match="is not the graph of a compiled function"):
        _C._create_function_from_graph("forward", None)


def test_values_are_of_the_types_of_a_graph() -> None:
    output = next(jit.trace(lambda x: (x, x), engine.ones(2)).graph.outputs())
    assert str(output.type()) == "(Tensor, Tensor)"
    _C._jit_assert_is_instance((engine.ones(1), engine.ones(1)), output.type())
    with pytest.raises(RuntimeError, match="is needed, not 'int'"):
        _C._jit_assert_is_instance((1, 2), output.type())
