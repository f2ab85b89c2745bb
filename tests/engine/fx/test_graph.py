"""Graphs made and changed by hand; texts are PyTorch 2.13's."""

from __future__ import annotations

import copy
import operator
import sys
import types

import pytest

import engine
from engine import fx


def small() -> fx.Graph:
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.placeholder("y", engine.Tensor, 3.0)
    a = graph.call_function(engine.add, (x, y))
    b = graph.call_method("relu", (a,))
    c = graph.get_attr("p.q")
    d = graph.call_module("sub.mod.0", (b, c), {"k": [a]})
    graph.output((d, b))
    return graph


def named(graph: fx.Graph) -> dict[str, fx.Node]:
    return {n.name: n for n in graph.nodes}


def test_text() -> None:
    graph = small()
    assert str(graph) == (
        "graph():\n    %x : [num_users=1] = placeholder[target=x]\n    %y : torch.Tensor [num_users=1] = "
        "placeholder[target=y](default=3.0)\n    %add : [num_users=2] = call_function[target=torch.add](args = (%x, "
        "%y), kwargs = {})\n    %relu : [num_users=2] = call_method[target=relu](args = (%add,), kwargs = {})\n    "
        "%p_q : [num_users=1] = get_attr[target=p.q]\n    %sub_mod_0 : [num_users=1] = "
        "call_module[target=sub.mod.0](args = (%relu, %p_q), kwargs = {k: [%add]})\n    return (sub_mod_0, relu)"
    )
    assert graph.python_code("self").src == (
        "\n\n\ndef forward(self, x, y : torch.Tensor = 3.0):\n    add = torch.add(x, y);  x = y = None\n    relu = "
        "add.relu()\n    p_q = self.p.q\n"
        '    sub_mod_0 = getattr(self.sub.mod, "0")(relu, p_q, k = [add]);  p_q = add = None\n'
        "    return (sub_mod_0, relu)\n    "
    )


def test_names() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    targets = [
        "relu",
        "relu_1",
        "relu_1",
        "_x",
        "for",
        "None",
        "a.b",
        "__len__",
        "x2y",
        "add_100",
        "add_100",
        "F",
        "torch",
        "self",
        "inf",
        "print",
        "HTTPServer",
        "addBmm",
        "a1",
        "a_",
        "_",
        "0",
        "list",
        "tensor",
        "None_1",
    ]
    assert [graph.call_method(t, (x,)).name for t in targets] == [
        "relu",
        "relu_1",
        "relu_2",
        "_x",
        "for_1",
        "none",
        "a_b",
        "len_1",
        "x2y",
        "add_100",
        "add_101",
        "f",
        "torch_1",
        "self",
        "inf_1",
        "print_1",
        "httpserver",
        "add_bmm",
        "a1",
        "a_",
        "_",
        "_0",
        "list_1",
        "tensor",
        "none_1",
    ]
    functions = [engine.add, operator.add, print, len, max, engine.nn.functional.relu, operator.getitem, getattr]
    assert [graph.call_function(f, (x,)).name for f in functions] == [
        "add",
        "add_102",
        "print_2",
        "len_2",
        "max_1",
        "relu_3",
        "getitem",
        "getattr_1",
    ]
    assert graph.create_node("placeholder", "x", name="hello world").name == "hello_world"


def test_users_follow_arguments() -> None:
    graph = small()
    nodes = named(graph)
    x, add, relu = nodes["x"], nodes["add"], nodes["relu"]
    assert list(add.users) == [relu, nodes["sub_mod_0"]]
    assert add.all_input_nodes == [x, nodes["y"]]
    relu.args = (x,)
    assert list(add.users) == [nodes["sub_mod_0"]] and list(x.users) == [add, relu]
    nodes["sub_mod_0"].update_kwarg("k", x)
    assert not add.users
    relu.insert_arg(1, [nodes["y"]])
    assert relu.args == (x, [nodes["y"]]) and relu in nodes["y"].users
    relu.update_arg(0, add)
    assert list(add.users) == [relu]
    relu.replace_input_with(add, nodes["p_q"])
    assert relu.args[0] is nodes["p_q"]
    with pytest.raises(TypeError, match="does not support mutation"):
        relu.args[1].append(x)
    with pytest.raises(TypeError, match="does not support mutation"):
        nodes["sub_mod_0"].kwargs["k"] = 1


def test_erase_and_replace() -> None:
    graph = small()
    nodes = named(graph)
    with pytest.raises(RuntimeError) as caught:
        graph.erase_node(nodes["add"])
    assert str(caught.value) == (
        "Tried to erase Node add but it still had 2 users in the graph: {relu: None, sub_mod_0: None}!"
    )
    with graph.inserting_after(nodes["add"]):
        new = graph.call_function(engine.mul, (nodes["add"], 2))
    assert nodes["add"].next is new and new.prev is nodes["add"]
    changed = nodes["add"].replace_all_uses_with(new, lambda user: user is not new)
    assert changed == [nodes["relu"], nodes["sub_mod_0"]]
    assert list(nodes["add"].users) == [new]
    graph.lint()
    seen = []
    for node in graph.nodes:  # erasing while walking
        seen.append(node.name)
        if node.name == "x":
            graph.erase_node(graph.call_method("gone", (node,)))
    assert "gone" not in [n.name for n in graph.nodes] and len(graph.nodes) == 8


def test_order() -> None:
    graph = small()
    nodes = named(graph)
    nodes["x"].prepend(nodes["p_q"])
    assert [n.name for n in graph.nodes][:2] == ["p_q", "x"]
    nodes["x"].append(nodes["p_q"])
    assert [n.name for n in graph.nodes][:2] == ["x", "p_q"]
    assert next(iter(reversed(graph.nodes))).name == "output"
    assert nodes["x"] < nodes["p_q"] <= nodes["y"]
    with graph.inserting_before():
        assert graph.placeholder("first").next is nodes["x"]
    with graph.inserting_before(nodes["relu"]):
        one, two = graph.call_method("one", (nodes["x"],)), graph.call_method("two", (nodes["x"],))
    assert one.next is two and two.next is nodes["relu"]
    with pytest.raises(AssertionError, match=r"Node to insert before is not in graph\."):
        graph.inserting_before(fx.Graph().placeholder("z"))
    with pytest.raises(AssertionError, match="Attempting to move a Node into a different Graph"):
        nodes["x"].prepend(fx.Graph().placeholder("z"))


def test_lint() -> None:
    graph = small()
    nodes = named(graph)
    graph.lint()
    nodes["add"].append(nodes["x"])
    with pytest.raises(RuntimeError, match="Argument 'x' of Node 'add' was used before it has been defined!"):
        graph.lint()
    nodes["y"].prepend(nodes["x"])
    graph.lint()
    stranger = fx.Graph().placeholder("z")
    with graph.inserting_after(nodes["x"]):
        graph.call_method("neg", (stranger,))
    with pytest.raises(RuntimeError, match="Argument 'z' of Node 'neg' does not belong to this Graph"):
        graph.lint()


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (lambda g: g.create_node("foo", "x"), AssertionError, "op 'foo' is not in _legal_ops"),
        (lambda g: g.call_method(3), AssertionError, "Expected target to be str, got <class 'int'>"),
        (lambda g: g.call_function("x"), ValueError, "target x has type str but a Callable is expected"),
    ],
)
def test_refused(make, kind, text) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(kind, match=text):
        make(fx.Graph())


def test_copies() -> None:
    graph = small()
    named(graph)["add"].meta["note"] = 1
    twin = copy.deepcopy(graph)
    assert str(twin) == str(graph) and named(twin)["add"].meta == {"note": 1}
    assert not set(twin.nodes) & set(graph.nodes)
    other = fx.Graph()
    values: dict[fx.Node, fx.Node] = {}
    result = other.graph_copy(graph, values)
    assert [n.name for n in result] == ["sub_mod_0", "relu"] and all(n.graph is other for n in result)
    assert len(other.nodes) == len(graph.nodes) - 1


def test_dead_code_and_search() -> None:
    class P(engine.nn.Module):
        def forward(self, x):
            y = x + 1
            z = y * 2  # noqa: F841
            x.sin()
            engine._assert(x, "m")
            x.add_(1)
            engine.rand(3) + x
            return y

    graph = fx.symbolic_trace(P()).graph
    assert graph.eliminate_dead_code()
    assert [n.name for n in graph.nodes if n.op == "call_function"] == ["add", "_assert"]
    assert not graph.eliminate_dead_code()
    assert [n.name for n in graph.find_nodes(op="call_function", target=operator.add)] == ["add"]
    assert [n.name for n in graph.find_nodes(op="placeholder")] == ["x"]
    assert graph.output_node().op == "output"


def test_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "tabulate", None)
    with pytest.raises(ImportError):
        small().print_tabular()
    assert "`print_tabular` relies on the library `tabulate`" in capsys.readouterr().out
    stand_in = types.SimpleNamespace(tabulate=lambda rows, headers: f"{headers} {[row[:2] for row in rows][:2]}")
    monkeypatch.setitem(sys.modules, "tabulate", stand_in)
    small().print_tabular()
    assert capsys.readouterr().out == (
        "['opcode', 'name', 'target', 'args', 'kwargs'] [['placeholder', 'x'], ['placeholder', 'y']]\n"
    )


def test_in_place_operators() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(operator.iadd, (x, 1))
    graph.call_function(operator.setitem, (x, 0, 1))
    graph.output(x)
    code = graph.python_code("self").src
    assert "    x += 1;  iadd = x;  iadd = None\n    x[0] = 1;  setitem = x;  setitem = None\n    return x\n" in code


def test_lines_are_transformed() -> None:
    graph = small()
    with graph.on_generate_code(lambda old: lambda body: ["# first\n", *body]):
        assert "# first" in graph.python_code("self").src
    assert "# first" not in graph.python_code("self").src
