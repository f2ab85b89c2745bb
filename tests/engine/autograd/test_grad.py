"""autograd.grad (rules AG01-AG10)."""

import pytest

import engine
from engine.autograd import grad

from ._util import check, constant, leaf, tracer

UNUSED = (
    r"appears to not have been used in the graph\. "
    r"Set allow_unused=True if this is the desired behavior\."
)


def test_ag01_tuple_in_order():
    """AG01: grad returns a tuple in the order of inputs and touches no .grad."""
    a, b, c = (leaf(2, seed=i) for i in range(3))
    y = (a * b + b * c).sum()
    result = grad(y, [c, a, b], retain_graph=True)
    assert isinstance(result, tuple) and len(result) == 3
    check(result[0], b.tolist())
    check(result[1], b.tolist())
    check(result[2], (a + c).tolist())
    assert a.grad is None and b.grad is None and c.grad is None
    (only,) = grad(y, (b,))
    check(only, (a + c).tolist())
    assert a.grad is None and b.grad is None and c.grad is None


def test_ag02_unused():
    """AG02: an unused input is an error naming allow_unused; with allow_unused=True it gives
    None.
    """
    x, other = leaf(2), leaf(2)
    for inputs in ([x, other], other):
        with pytest.raises(RuntimeError, match=UNUSED):
            grad((x * 2).sum(), inputs)
    gx, none = grad((x * 2).sum(), [x, other], allow_unused=True)
    check(gx, [2, 2])
    assert none is None
    assert grad((x * 2).sum(), other, allow_unused=True) == (None,)


def test_ag02_message():
    """AG02: an unused input is an error naming allow_unused; with allow_unused=True it gives
    None.
    """
    x, other = leaf(2), leaf(2)
    with pytest.raises(RuntimeError, match="The differentiated Tensor at index 0 " + UNUSED):
        grad((x * 2).sum(), other)


def test_ag02_a_result_that_is_not_on_the_path():
    """AG02: an unused input is an error naming allow_unused; with allow_unused=True it gives
    None.
    """
    x = leaf(2)
    side = x * 3
    with pytest.raises(RuntimeError, match=UNUSED):
        grad((x * 2).sum(), side)
    assert grad((x * 2).sum(), side, allow_unused=True) == (None,)
    with pytest.raises(RuntimeError, match=UNUSED):
        grad((x * 2).detach().requires_grad_().sum(), x)


def test_ag03_non_leaves():
    """AG03: inputs may be non-leaves, also several depths of one path."""
    x = leaf(2)
    y = x * 2
    z = y.exp()
    w = z * z
    gw, gz, gy, gx = grad(w.sum(), [w, z, y, x])
    check(gw, [1, 1])
    check(gz, (2 * z).tolist())
    check(gy, (2 * z * z).tolist())
    check(gx, (4 * z * z).tolist())


def test_ag03_one_output_of_several():
    """AG03: inputs may be non-leaves, also several depths of one path."""
    x = leaf(4)
    a, b = (x * 2).chunk(2)
    ga, gb = grad((a * b).sum(), [a, b])
    check(ga, b.tolist())
    check(gb, a.tolist())


def test_ag03_the_output_itself():
    """AG03: inputs may be non-leaves, also several depths of one path."""
    x = leaf(2)
    y = x.sum()
    (g,) = grad(y, y)
    check(g, 1)
    s = engine.tensor(2.0, requires_grad=True)
    (g,) = grad(s, s)
    check(g, 1)


def test_ag04_grad_outputs():
    """AG04: grad_outputs weight the outputs; None stands for one of a scalar."""
    x = leaf(2)
    y, z = x * 2, x.exp()
    v = constant(2, seed=3)
    (g,) = grad(y, x, v, retain_graph=True)
    check(g, (2 * v).tolist())
    (g,) = grad([y, z], [x], [v, v * 2], retain_graph=True)
    check(g, (2 * v + 2 * v * z).tolist())
    (g,) = grad([z.sum(), y], x, [None, v], retain_graph=True)
    check(g, (z + 2 * v).tolist())
    (g,) = grad((y.sum(), z.sum()), x, grad_outputs=None)
    check(g, (2 + z).tolist())
    with pytest.raises(RuntimeError, match="implicitly created only for scalar outputs"):
        grad(x * 2, x)
    with pytest.raises(RuntimeError, match="implicitly created only for scalar outputs"):
        grad([x.sum(), x * 2], x, [None, None])


def test_ag05_other_nodes_do_not_run():
    """AG05: nodes that lead to no wanted input are not run."""
    log = []
    trace = tracer(log)
    x, w = leaf(2, seed=1), leaf(2, seed=2)
    h = trace(x, "below x")
    k = trace(w, "w")
    out = trace(trace(h, "above h") * k, "out").sum()
    grad(out, h, retain_graph=True)
    assert log == ["out", "above h"]
    log.clear()
    grad(out, w, retain_graph=True)
    assert log == ["out", "w"]
    log.clear()
    grad(out, [x, k])
    assert sorted(log) == ["above h", "below x", "out"]


def test_ag05_and_keep_what_they_saved():
    """AG05: nodes that lead to no wanted input are not run."""
    x, w = leaf(2, seed=1), leaf(2, seed=2)
    left, right = x.exp(), w.sin()
    out = (left + right).sum()
    grad(out, w)
    (g,) = grad(left.sum(), x)
    check(g, x.exp().tolist())
    with pytest.raises(RuntimeError, match="second time"):
        grad(right.sum(), w)


def test_ag06_inputs_without_grad():
    """AG06: an input that does not require grad is an error."""
    x, data = leaf(2), constant(2)
    y = (x * data).sum()
    with pytest.raises(RuntimeError, match="One of the differentiated Tensors does not require grad"):
        grad(y, data)
    with pytest.raises(RuntimeError, match="does not require grad"):
        grad(y, [x, data], allow_unused=True)
    with pytest.raises(RuntimeError, match="element 0 of tensors does not require grad"):
        grad(data.sum(), x)
    with pytest.raises(RuntimeError, match="does not require grad"):
        grad(y.detach(), x)


def test_ag07_hooks_on_a_captured_input():
    """AG07: a hook on a non-leaf input acts on the captured gradient, and only once."""
    seen = []
    x = leaf(2)
    y = x * 2
    y.register_hook(lambda g: seen.append(g.tolist()) or g * 10)
    z = (y * 3 + y).sum()
    gy, gx = grad(z, [y, x], retain_graph=True)
    assert seen == [[4, 4]]
    assert gy is not None
    check(gx, [80, 80])
    (gy,) = grad(z, y)
    assert len(seen) == 2
    check(gy, [40, 40])


def test_ag07_hooks_on_a_captured_leaf():
    """AG07: a hook on a non-leaf input acts on the captured gradient, and only once."""
    seen = []
    x = leaf(2)
    x.register_hook(lambda g: seen.append(g.tolist()) or g + 1)
    (g,) = grad((x * 2 + x).sum(), x)
    assert seen == [[3, 3]]
    check(g, [4, 4])
    assert x.grad is None


def test_ag08_the_same_input_twice():
    """AG08: the same input asked twice gets its gradient twice."""
    x = leaf(2)
    y = x * 2
    a, b, c = grad((y * y).sum(), [x, y, x])
    check(a, (8 * x).tolist())
    check(c, (8 * x).tolist())
    check(b, (4 * x).tolist())


def test_ag09_only_inputs():
    """AG09: only_inputs=True is accepted (it is the default)."""
    x, w = leaf(2), leaf(2)
    (g,) = grad((x * w).sum(), x, only_inputs=True)
    check(g, w.tolist())
    assert x.grad is None and w.grad is None


def test_ag10_single_tensors():
    """AG10: a single tensor is accepted for outputs and inputs."""
    x = leaf(2)
    result = grad((x * 2).sum(), x)
    assert isinstance(result, tuple) and len(result) == 1
    check(result[0], [2, 2])
    check(grad(outputs=x * 2, inputs=x, grad_outputs=constant(2))[0], (2 * constant(2)).tolist())
    check(grad([(x * 2).sum()], (x,))[0], [2, 2])


def test_a_batch_of_weights_has_the_shape_of_the_outputs():
    x = engine.ones(3, requires_grad=True)
    for weights in (engine.ones(3, 2), engine.ones(())):
        with pytest.raises(RuntimeError, match="we interpret the first dimension of each grad_output as the batch"):
            grad(x.sum(), x, weights, is_grads_batched=True)
