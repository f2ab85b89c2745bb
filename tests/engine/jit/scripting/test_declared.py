"""Subclasses of ScriptModule, the way of torch 1.0 and 1.1: `script_method`, `__constants__`, `define`."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest

import engine
from engine import jit


class Cell(jit.ScriptModule):
    __constants__ = ["n"]

    def __init__(self, more: str = "") -> None:
        super().__init__()
        self.n = 3
        self.weight = engine.nn.Parameter(engine.ones(2, 2))
        self.register_buffer("bias", engine.zeros(2))
        self.define("def twice(self, x, k: int = 2):\n    return x * k\n" + more)

    @jit.script_method
    def forward(self, x):  # type: ignore[no-untyped-def]
        for _ in range(self.n):
            x = self.twice(x).mm(self.weight) + self.bias
        return x


class Derived(Cell):
    def __init__(self) -> None:
        super().__init__()
        self.n = 1

    @jit.script_method
    def negative(self, x):  # type: ignore[no-untyped-def]
        return -self.forward(x)


X = engine.ones(1, 2)


def test_methods_constants_and_definitions() -> None:
    cell = Cell()
    assert isinstance(cell, Cell) and isinstance(cell, jit.RecursiveScriptModule)
    assert cell(X).tolist() == [[64, 64]] and cell.twice(X, 5).tolist() == [[5, 5]]
    assert "self.twice(x, 2)" in cell.code and "prim::Loop" in str(cell.graph)
    cell(X).sum().backward()
    assert cell.weight.grad is not None and [n for n, _ in cell.named_parameters()] == ["weight"]
    cell.double()
    assert cell(X.double()).dtype is engine.float64
    cell.load_state_dict({"weight": engine.zeros(2, 2), "bias": engine.ones(2)})
    assert cell(X.double()).tolist() == [[1, 1]]


def test_saved_copied_and_contained() -> None:
    cell, buffer = Cell(), io.BytesIO()
    jit.save(cell, buffer)
    buffer.seek(0)
    assert engine.equal(jit.load(buffer)(X), cell(X)) and engine.equal(copy.deepcopy(cell)(X), cell(X))

    class Outer(jit.ScriptModule):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Cell()
            self.plain = engine.nn.Linear(2, 2)

        @jit.script_method
        def forward(self, x):  # type: ignore[no-untyped-def]
            return self.plain(self.inner(x))

    outer = Outer()
    assert engine.equal(outer(X), outer.plain(outer.inner(X)))


def test_derived_classes_are_compiled_once_their_init_is_done() -> None:
    derived = Derived()
    assert derived(X).tolist() == [[4, 4]] and derived.negative(X).tolist() == [[-4, -4]]


def test_what_is_not_declared_stays_python() -> None:
    class Mixed(jit.ScriptModule):
        @jit.script_method
        def compiled(self, x):  # type: ignore[no-untyped-def]
            return x + 1

        def forward(self, x: Any) -> str:
            return f"{self.compiled(x).tolist()}"

    class Plain(jit.ScriptModule):
        def forward(self, x: Any) -> Any:
            return [x]

    assert Mixed()(engine.ones(1)) == "[2.0]" and Plain()(1) == [1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = 1", "consists of methods"),
        ("def f(self, x: )", "expected the source of methods"),
        ("@g\ndef f(self):\n    return 1", "without decorators"),
        ("def f(self, x=open('a')):\n    return x", "the defaults of f"),
        ("def f(self, x):\n    return undefined_name(x)", "undefined_name"),
    ],
)
def test_bad_definitions(text: str, reason: str) -> None:
    with pytest.raises(RuntimeError, match=reason):
        Cell(text)


def test_a_finished_module_is_not_extended() -> None:
    with pytest.raises(RuntimeError, match="inside of __init__"):
        Cell().define("def f(self):\n    return 1")


class Typed(jit.ScriptModule):
    """Values with the types that they are declared with."""

    def __init__(self) -> None:
        super().__init__()
        self.table = jit.Attribute({"I": "am"}, dict[str, str])
        self.none = jit.Attribute([], list[int])
        self.number = jit.Attribute(2.5, float)

    @jit.script_method
    def forward(self):  # type: ignore[no-untyped-def]
        return self.table, self.none, self.number


def test_attributes_have_the_type_that_they_are_declared_with() -> None:
    module, file = Typed(), io.BytesIO()
    assert module() == ({"I": "am"}, [], 2.5)
    jit.save(module, file)
    file.seek(0)
    assert jit.load(file)() == ({"I": "am"}, [], 2.5)


def unit(text: str) -> Any:
    return jit.CompilationUnit(text + "\n")


def plus_one(x: engine.Tensor) -> engine.Tensor:
    return x + 1


def test_a_text_calls_functions_of_its_caller() -> None:
    local = jit.trace(plus_one, engine.zeros(2))
    assert jit.CompilationUnit("def f(x):\n    return local(x) + plus_one(x)\n").f(engine.zeros(1)).item() == 2
    assert local is not plus_one


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f():\n    return 1\ndef f():\n    return 2", "method 'f' already defined"),
        ("def f(x):\n    return x.unsqueeze", "builtin cannot be used as a value"),
        ("def f(x):\n    for _ in range():\n        pass\n    return x", r"range\(\) expects 1 argument but got 0"),
        ("def f(x):\n    for i in [1], [2]:\n        pass\n    return x", "List of iterables is not supported"),
        ("def f():\n    a, *b, *c = [1, 2, 3]\n    return a", "Only one starred expression is allowed on the lhs"),
        ("def f():\n    a, b += 1, 2\n    return a", "augmented assignment can only have one LHS expression"),
        ("def f(x):\n    a, (1, b) = x\n    return a", "Cannot pack a tuple into a non-variable"),
        ("def f():\n    1 + 2 = 3", "unexpected expression on left-hand side"),
        ("def f(x):\n    return plus_one(x, x)", "expected at most 1 arguments but found 2"),
    ],
)
def test_texts_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        unit(text)


def test_is_not_of_constants() -> None:
    text = "def f():\n    return True is not True, True is not False, True is True, None is not None"
    assert unit(text).f() == (False, True, True, False)


def test_the_place_of_what_a_list_lacks() -> None:
    with pytest.raises(RuntimeError, match="'5' is not in list"):
        unit("def f():\n    return [1, 2].index(5)").f()


def test_state_with_each_tensor_once() -> None:
    module = engine.nn.Module()
    module.a = module.b = engine.nn.Parameter(engine.ones(1))
    assert list(jit._unique_state_dict(module)) == ["a"]
    assert jit._unique_state_dict(module, keep_vars=True)["a"] is module.a


def test_a_variable_does_not_become_a_module() -> None:
    class Itself(jit.ScriptModule):
        @jit.script_method
        def forward(self, x):  # type: ignore[no-untyped-def]
            for _ in range(2):
                x = self
            return x

    with pytest.raises(RuntimeError, match="Cannot re-assign 'x' to a value of type module"):
        Itself()


class Holder(jit.ScriptModule):
    """Declares nothing: methods come after its `__init__`."""

    def __init__(self) -> None:
        super().__init__()
        self.submodule = engine.nn.Linear(2, 1, bias=False)


def test_defined_after_init() -> None:
    holder, file = Holder(), io.BytesIO()
    with engine.no_grad():
        holder.submodule.weight.fill_(2)
    holder.define("def forward(self, x):\n    return self.submodule(x) + 1")
    assert isinstance(holder, Holder) and isinstance(holder, jit.RecursiveScriptModule)
    assert holder(X).tolist() == [[5.0]] and "prim::CallMethod" in str(holder.graph)
    jit.save(holder, file)
    file.seek(0)
    assert jit.load(file)(X).tolist() == [[5.0]]
    with pytest.raises(RuntimeError, match="inside of __init__"):
        holder.define("def more(self, x):\n    return x")
