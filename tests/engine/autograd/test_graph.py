"""grad_fn and the graph of nodes (rules GF01-GF12)."""

import re
import weakref

import numpy as np
import pytest

import engine
from engine.autograd import Function

from ._util import Witness, check, constant, keep, leaf, no_gc, tracer


def test_gf01_next_functions():
    """GF01: next_functions lists (node, index) for each input; leaves appear as AccumulateGrad
    with .variable.
    """
    x, y = leaf(2, seed=1), leaf(2, seed=2)
    z = x * y
    (a, i), (b, j) = z.grad_fn.next_functions
    assert type(a).__name__ == type(b).__name__ == "AccumulateGrad"
    assert a.variable is x and b.variable is y
    assert (i, j) == (0, 0)
    assert isinstance(z.grad_fn.next_functions, tuple)
    s = z.sum()
    assert s.grad_fn.next_functions[0][0] is z.grad_fn


def test_gf01_index_of_an_output():
    """GF01: next_functions lists (node, index) for each input; leaves appear as AccumulateGrad
    with .variable.
    """
    x = leaf(4)
    parts = x.split(1)
    y = parts[2].exp()
    node, index = y.grad_fn.next_functions[0]
    assert node is parts[0].grad_fn
    assert index == 2
    joined = engine.cat([parts[3], parts[1]])
    assert [i for _, i in joined.grad_fn.next_functions] == [3, 1]


def test_gf02_a_node_is_one_object():
    """GF02: a node is one object: b.grad_fn.next_functions[0][0] is a.grad_fn; inputs without
    grad give None.
    """
    x = leaf(2)
    a = x.exp()
    b = a.sin()
    assert a.grad_fn is a.grad_fn
    assert b.grad_fn.next_functions[0][0] is a.grad_fn
    c = a * constant(2)
    assert c.grad_fn.next_functions[0][0] is a.grad_fn
    assert c.grad_fn.next_functions[1][0] is None
    d = constant(2) * a
    assert d.grad_fn.next_functions[0][0] is None
    assert len({a.grad_fn, b.grad_fn.next_functions[0][0], c.grad_fn}) == 2


def test_gf02_a_python_function_is_its_node():
    """GF02: a node is one object: b.grad_fn.next_functions[0][0] is a.grad_fn; inputs without
    grad give None.
    """
    trace = tracer([])
    x = leaf(2)
    a = trace(x, "a")
    b = trace(a, "b")
    assert b.grad_fn.next_functions[0][0] is a.grad_fn
    assert a.grad_fn.tag == "a"
    assert a.grad_fn.next_functions[0][0].variable is x


def test_gf03_one_accumulate_grad_per_leaf():
    """GF03: one AccumulateGrad per leaf, shared by all its uses."""
    x = leaf(2)
    y, z = x.exp(), x * 2
    node = y.grad_fn.next_functions[0][0]
    assert z.grad_fn.next_functions[0][0] is node
    square = x * x
    assert [n for n, _ in square.grad_fn.next_functions] == [node, node]
    assert (x.view(2) + x).grad_fn.next_functions[1][0] is node


def changed(x):
    """A clone of `x` after a write to a part of it."""
    y = x.clone()
    y[0] = 1
    return y


@pytest.mark.parametrize(
    "expected, f",
    [
        ("Add", lambda x: x + 1),
        ("Sub", lambda x: x - x),
        ("Mul", lambda x: x * 2),
        ("Div", lambda x: x / 2),
        ("Neg", lambda x: -x),
        ("Exp", lambda x: x.exp()),
        ("Log", lambda x: x.log()),
        ("Tanh", lambda x: x.tanh()),
        ("Sigmoid", lambda x: x.sigmoid()),
        ("Relu", lambda x: engine.relu(x)),
        ("Pow", lambda x: x**2),
        ("Sum", lambda x: x.sum()),
        ("Mean", lambda x: x.mean()),
        ("Mm", lambda x: x.mm(x)),
        ("View", lambda x: x.view(4)),
        ("T", lambda x: x.t()),
        ("Transpose", lambda x: x.transpose(0, 1)),
        ("Permute", lambda x: x.permute(1, 0)),
        ("Select", lambda x: x[0]),
        ("Slice", lambda x: x[:1]),
        ("Unsqueeze", lambda x: x.unsqueeze(0)),
        ("Expand", lambda x: x.expand(3, 2, 2)),
        ("Cat", lambda x: engine.cat([x, x])),
        ("Stack", lambda x: engine.stack([x, x])),
        ("Clone", lambda x: x.clone()),
        ("Index", lambda x: x[[0, 1]]),
        ("Softmax", lambda x: x.softmax(0)),
        ("CopySlices", lambda x: changed(x)),
    ],
)
def test_gf04_class_names(expected, f):
    """GF04: node class names say the operation and end in Backward (a digit may follow); name()
    gives it.
    """
    node = f(leaf(2, 2, low=0.5, high=1.5)).grad_fn
    name = type(node).__name__
    assert expected in name
    if expected != "CopySlices":
        assert re.search(r"Backward\d*$", name)
        assert node.name() == name


def test_gf04_repr():
    """GF04: node class names say the operation and end in Backward (a digit may follow); name()
    gives it.
    """
    assert repr((leaf(2) * 2).grad_fn).startswith("<MulBackward0 object at 0x")


def test_gf04_python_functions():
    """GF04: node class names say the operation and end in Backward (a digit may follow); name()
    gives it.
    """

    class MyOwn(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    node = MyOwn.apply(leaf(2)).grad_fn
    assert type(node).__name__ == "MyOwnBackward"
    assert node.name() == "MyOwnBackward"


def test_gf05_output_nr():
    """GF05: output_nr tells the outputs of one node apart."""
    x = leaf(6)
    a, b, c = x.split(2)
    assert [t.output_nr for t in (a, b, c)] == [0, 1, 2]
    assert a.grad_fn is b.grad_fn is c.grad_fn
    assert x.output_nr == 0 and x.exp().output_nr == 0
    assert [t.output_nr for t in x.view(2, 3).unbind()] == [0, 1]
    values, _ = x.view(2, 3).max(0)
    assert values.output_nr == 0
    assert [t.output_nr for t in x.chunk(3)] == [0, 1, 2]


def test_gf06_calling_a_node():
    """GF06: a node can be called as a function of gradients; wrong counts raise TypeError."""
    x, y = leaf(2, seed=1), leaf(2, seed=2)
    g = constant(2, seed=3)
    product = x * y
    by_x, by_y = product.grad_fn(g)
    check(by_x, (g * y).tolist())
    check(by_y, (g * x).tolist())
    check(x.exp().grad_fn(g), (g * x.exp()).tolist())
    check(x.sum().grad_fn(engine.ones((), dtype=engine.float64)), [1, 1])
    for wrong in ((), (g, g)):
        with pytest.raises(TypeError):
            product.grad_fn(*wrong)


def test_gf07_control_flow():
    """GF07: the graph is rebuilt by every forward: control flow decides it."""
    x = leaf(2, low=0.5, high=1.0)

    def f(x, steps):
        for step in range(steps):
            x = x * 2 if step % 2 == 0 else x.exp()
        return x

    for steps in (1, 2, 3):
        y = f(x, steps)
        depth, node = 0, y.grad_fn
        while type(node).__name__ != "AccumulateGrad":
            node, depth = node.next_functions[0][0], depth + 1
        assert depth == steps
    y, z = f(x, 2), f(x, 2)
    assert y.grad_fn is not z.grad_fn
    y.sum().backward()
    check(x.grad, (2 * (2 * x).exp()).tolist())
    branch = x * 2 if float(x.detach().sum()) > 0 else x * 3
    x.grad = None
    branch.sum().backward()
    check(x.grad, [2, 2])


def _walk(root):
    """All nodes below `root`, each once."""
    seen, queue = [], [root]
    while queue:
        node = queue.pop()
        if node is not None and node not in seen:
            seen.append(node)
            queue.extend(n for n, _ in node.next_functions)
    return seen


def test_gf08_walking_reaches_every_leaf_once():
    """GF08: walking next_functions from the root reaches every leaf once."""
    leaves = [leaf(2, 2, seed=i) for i in range(4)]
    a, b, c, d = leaves
    out = (a.mm(b) + (a * c).exp() + d.t()[0] + b.sum() + constant(2, 2)).sum() + d.mean()
    found = [n.variable for n in _walk(out.grad_fn) if type(n).__name__ == "AccumulateGrad"]
    assert len(found) == 4
    assert {id(t) for t in found} == {id(t) for t in leaves}


def test_gf09_dropping_the_root_frees_the_nodes():
    """GF09: dropping the last reference to the root frees the nodes and what they saved."""
    with no_gc():
        witness = Witness()
        dead = weakref.ref(witness)
        x = leaf(2)
        h = keep(x, witness)
        root = ((h.exp() * h) + x).view(2, 1).sum()
        del witness, h
        assert dead() is not None
        del root
        assert dead() is None


def test_gf09_what_they_saved():
    """GF09: dropping the last reference to the root frees the nodes and what they saved."""
    with no_gc():
        array = np.ones(5)
        dead = weakref.ref(array)
        x = leaf(5)
        y = x * engine.from_numpy(array)
        del array
        assert dead() is not None
        del y
        assert dead() is None


def test_gf09_after_backward_what_was_saved_is_gone():
    """GF09: dropping the last reference to the root frees the nodes and what they saved."""
    with no_gc():
        array = np.ones(5)
        dead = weakref.ref(array)
        x = leaf(5)
        y = (x * engine.from_numpy(array)).sum()
        del array
        y.backward()
        assert dead() is None
        check(x.grad, [1, 1, 1, 1, 1])


def test_gf09_a_kept_node_keeps_the_nodes_below():
    """GF09: dropping the last reference to the root frees the nodes and what they saved."""
    with no_gc():
        witness = Witness()
        dead = weakref.ref(witness)
        x = leaf(2)
        y = keep(x, witness) + 1
        node = y.grad_fn
        del witness, y
        assert dead() is not None
        del node
        assert dead() is None


@pytest.mark.parametrize("index", range(8))
def test_gf10_unneeded_intermediates_die(index):
    """GF10: an intermediate that no backward needs is not kept alive by the graph."""
    f = [
        lambda y: y + 1,
        lambda y: y - 3,
        lambda y: -y,
        lambda y: y.sum(),
        lambda y: y.mean(0),
        lambda y: y * 2,
        lambda y: y / 2,
        lambda y: y * constant(2, 2),
    ][index]
    with no_gc():
        x = leaf(2, 2)
        y = x * 3
        z = f(y)
        dead = weakref.ref(y)
        del y
        assert dead() is None
        z.sum().backward()
        assert x.grad is not None


def test_gf10_memory_of_an_unneeded_intermediate():
    """GF10: an intermediate that no backward needs is not kept alive by the graph."""
    with no_gc():
        array = np.ones((2, 2))
        dead = weakref.ref(array)
        w = leaf(2, 2)
        buffer = engine.from_numpy(array)
        del array
        y = buffer.add_(w)
        z = (y + 1).sum()
        del buffer, y
        assert dead() is None
        z.backward()
        check(w.grad, [[1, 1], [1, 1]])


def test_gf11_metadata():
    """GF11: grad_fn.metadata is a dict of the user's."""
    y = leaf(2) * 2
    node = y.grad_fn
    assert node.metadata == {}
    node.metadata["mine"] = [1]
    assert y.grad_fn.metadata["mine"] == [1]
    assert (leaf(2) * 2).grad_fn.metadata == {}


def test_gf12_cannot_be_assigned():
    """GF12: grad_fn cannot be assigned."""
    x = leaf(2)
    y = x * 2
    node = y.grad_fn
    for t in (x, y, x.detach()):
        with pytest.raises(AttributeError):
            t.grad_fn = None
        with pytest.raises(AttributeError):
            t.grad_fn = node
    assert y.grad_fn is node and x.grad_fn is None


def test_a_gradient_edge_stands_for_a_tensor() -> None:
    from engine.autograd.graph import GradientEdge, get_gradient_edge

    x = engine.ones(2, requires_grad=True)
    y = x * 3
    edge, leaf = get_gradient_edge(y), get_gradient_edge(x)
    assert isinstance(edge, GradientEdge) and (edge.node.name(), edge.output_nr) == ("MulBackward0", 0)
    z = (y * y).sum()
    del y
    found = engine.autograd.grad(z, [edge, leaf], retain_graph=True)
    assert [g.tolist() for g in found] == [[6, 6], [18, 18]]
    assert engine.autograd.grad(edge, x, engine.ones(2), retain_graph=True)[0].tolist() == [3, 3]
    engine.autograd.backward(edge, engine.ones(2), inputs=leaf)
    assert x.grad.tolist() == [3, 3]
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        engine.autograd.grad(edge, x)
    with pytest.raises(TypeError, match="gradients can be either Tensors or None, but got list"):
        engine.autograd.grad(edge, x, [[1.0, 1.0]])
    with pytest.raises(RuntimeError, match="gradient edges of leaves only"):
        engine.autograd.backward(z, inputs=edge)
    with pytest.raises(RuntimeError, match="get the gradient edge for a Tensor that does not require"):
        get_gradient_edge(engine.ones(2))
