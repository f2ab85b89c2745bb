"""The names of nodes, as PyTorch 2.13 gives them for the same call (node_names.txt).

A line of the table is a case of the registry and the name of each output's `grad_fn` ("-" for none); " _" after the
case is the twin in place.  A public op's case without a line has the name that follows from that of the op.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import engine
from engine.dispatch import camel
from engine.tensor import Tensor
from tests.engine.samples import Case, cases

TABLE = dict(
    line.split("\t")
    for line in (Path(__file__).with_name("node_names.txt")).read_text("utf-8").splitlines()
    if not line.startswith("#")
)


def twin(case: Case) -> Any:
    """The method (or function) that does the same in place, or None."""
    if case.op is not None and case.op.inplace:
        return case.op.inplace_function
    return getattr(Tensor, (case.name if case.op is None else case.op.called) + "_", None)


def flat(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [t for x in result for t in flat(x)] if isinstance(result, tuple | list) else []


def names(result: Any) -> str:
    return ",".join("-" if t.grad_fn is None else type(t.grad_fn).__name__ for t in flat(result))


CASES = [c for c in cases() if c.deterministic]
PUBLIC = [c for c in CASES if c.op is not None and (c.op.public or c.op.called != c.op.name)]
PLAIN = [c for c in CASES if str(c) in TABLE or c in PUBLIC]
INPLACE = [c for c in CASES if f"{c} _" in TABLE or (c in PUBLIC and c.op.inplace)]


def expected(case: Case, key: str, found: str) -> str:
    default = camel(case.op.called) + "Backward0" if case.op is not None else None
    return TABLE.get(key, ",".join("-" if n == "-" else default or "?" for n in found.split(",")))


@pytest.mark.filterwarnings("ignore:`nn.functional.upsample` is deprecated")
@pytest.mark.parametrize("name", sorted({c.name for c in PLAIN}))
def test_names(name: str) -> None:
    for case in PLAIN:
        if case.name == name:
            found = names(case.call())
            assert found == expected(case, str(case), found), case


@pytest.mark.parametrize("name", sorted({c.name for c in INPLACE}))
def test_names_in_place(name: str) -> None:
    for case in INPLACE:
        args, kwargs = case.arguments()
        if case.name != name or not isinstance(args[0], Tensor):
            continue
        try:
            found = names(twin(case)(args[0].clone(), *args[1:], **kwargs))
        except RuntimeError:  # a result of another shape or type
            assert f"{case} _" not in TABLE
            continue
        assert found == expected(case, f"{case} _", found), case


def test_every_line_is_a_case() -> None:
    known = {str(c) for c in CASES} | {f"{c} _" for c in CASES}
    assert not TABLE.keys() - known


def test_a_tensor_prints_the_name() -> None:
    x = engine.ones(2, requires_grad=True)
    assert repr(x.sum()) == "tensor(2., grad_fn=<SumBackward0>)"
    assert repr(x.sum(0)) == "tensor(2., grad_fn=<SumBackward1>)"
    assert repr(2 / x) == "tensor([2., 2.], grad_fn=<MulBackward0>)"


def test_a_name_is_not_given_to_an_older_node() -> None:
    """What an operation in place records nothing for keeps the node that it had."""
    x = engine.ones(3, requires_grad=True) * 2
    with engine.no_grad():
        x.clamp_(0)
        x.random_()
    assert x.grad_fn.name() == "MulBackward0"
    base = engine.ones(4, requires_grad=True) * 2
    view = base.view(2, 2)
    made = view.grad_fn
    engine.celu_(view)
    assert made.name() == "ViewBackward0"
    assert view.grad_fn.name() == "AsStridedBackward0"
    assert base.grad_fn.name() == "torch::autograd::CopySlices"
    assert repr(base.grad_fn).startswith("<CopySlices object at 0x")


def chain(node: Any) -> Any:
    """The names of a graph, without what all have in common."""
    if node is None or node.name() == "torch::autograd::AccumulateGrad":
        return node and "."
    return node.name().removesuffix("Backward0"), *(chain(n) for n, _ in node.next_functions)


ADDMM = ("Addmm", ".", ("Mul", ".", None), ("T", "."))
FLAT = ("Addmm", ".", ("View", ("Mul", ".", None)), ("T", "."))


@pytest.mark.parametrize(
    ("shape", "bias", "expected"),
    [
        ((2, 3), True, ADDMM),
        ((2, 3), False, ("Mm", ("Mul", ".", None), ("T", "."))),
        ((2, 5, 3), True, ("View", FLAT)),
        ((2, 5, 3), False, ("UnsafeView", ("Mm", ("View", ("Mul", ".", None)), ("T", ".")))),
        ((3,), True, ("View", FLAT)),
    ],
)
def test_linear_shows_the_nodes_of_torch(shape: tuple, bias: bool, expected: tuple) -> None:
    x, w, b = (engine.ones(*s, requires_grad=True) for s in (shape, (4, 3), (4,)))
    node = engine.nn.functional.linear(x * 2, w, b if bias else None).grad_fn
    assert chain(node) == expected
    assert node.next_functions[0][0] is node.next_functions[0][0]


NUMBERS = """x**2 Pow0 x|2**x Pow2 x|x**y Pow1 xy|x-1 Sub0 x-|1-x Rsub1 x|x*2 Mul0 x-|x%2 Remainder0 x|x%y Remainder1 xy
x.fmod(2) Fmod0 x|x.clamp(0) Clamp1 x|x.clamp_min(0) ClampMin0 x|x.copysign(1) Copysign1 x"""


@pytest.mark.parametrize("line", NUMBERS.replace("\n", "|").split("|"))
def test_a_number_is_no_input_of_some_nodes(line: str) -> None:
    text, name, inputs = line.split()
    x, y = (engine.ones(3, requires_grad=True) for _ in range(2))
    node = eval(text, {"x": x, "y": y}).grad_fn
    letters = ["-" if n is None else "x" if n.variable is x else "y" for n, _ in node.next_functions]
    assert (node.name().replace("Backward", ""), "".join(letters)) == (name, inputs)


def test_a_number_by_a_tensor_is_a_product_with_its_reciprocal() -> None:
    x = engine.ones(3, requires_grad=True)
    (reciprocal, _), number = (2 / x).grad_fn.next_functions
    assert (reciprocal.name(), number) == ("ReciprocalBackward0", (None, 0))
    assert reciprocal.next_functions[0][0].variable is x


def test_what_is_only_shown_has_no_hooks() -> None:
    x, w = engine.ones(2, 3), engine.ones(4, 3, requires_grad=True)
    turned = engine.nn.functional.linear(x, w).grad_fn.next_functions[1][0]
    assert (turned.name(), turned.next_functions[0][0].variable is w) == ("TBackward0", True)
    for use in (turned, turned.register_hook, turned.register_prehook):
        with pytest.raises(RuntimeError, match="neither calls nor hooks are possible"):
            use(print)


INDEXED = """[0,:] Select|[None,:] Unsqueeze|[:,None] Unsqueeze|[...,None] Unsqueeze|[:,0] Select|[...,0:2] Slice
[0:2,:] Slice|[0:2,0] Select|[:,None,0:2] Slice|[::2] Slice|[0,1:] Slice|[:] Slice|[:,:] Alias|[...] Alias|[0] Select
[[True,False,True]] Index|[0,None] Unsqueeze|[None] Unsqueeze|[...,None,0] Select|[0:2,[1]] Index"""


@pytest.mark.parametrize("line", INDEXED.replace("\n", "|").split("|"))
def test_an_index_is_named_by_its_last_step(line: str) -> None:
    index, name = line.split()
    result = eval("x" + index, {"x": engine.ones(3, 4, requires_grad=True).clone()})
    assert result.grad_fn.name() == name + "Backward0"
