"""Facts about ops are options of the ops: how many tables of op names are left, and which ops the tables by function
leave out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine.dispatch import COMPOSITES, OPS, PUBLIC, Op, composite, has, import_lazy, op, with_fact
from engine.func import _table  # noqa: F401  # it fills RULES
from engine.func._rules import RULES
from engine.onnx.builders import BUILDERS
from engine.ops import deformable, detection  # noqa: F401  # families that nothing else imports

ENGINE = Path(__file__).parents[3] / "engine"
MOST = 15
FEWEST, SHARE = 3, 0.6  # words from which a collection is a table of op names, and how many of them are


# Tables of op names that are none of facts: each says why.
TABLES = {
    "dispatch: _SENTENCES": "torch's sentences for `out=` of another dtype, each with the functions that say it",
    "encoded: _AVERAGES": "what functions, also of nn.functional, do with quantized tensors",
    "encoded: _CHOOSES": "as _AVERAGES",
    "encoded: _MOVES": "as _AVERAGES",
    "library: _name": "operators whose results are lists in aten, and tuples to torch",
    "ops: CASES": "operands to measure an op with, made only by `hub env --calibrate`",
    "ops: LEFT": "why an op is not among CASES; with CASES it names every op that oneDNN serves",
    "torch_names: FOREACH_BINARY": "torch's `_foreach_*`, which `import engine` lists without importing an op",
    "torch_names: FOREACH_TERNARY": "as FOREACH_BINARY",
    "torch_names: FOREACH_UNARY": "as FOREACH_BINARY",
    "jit: _DRAWS": "operators of TorchScript that draw, by the names in a stored program",
    "jit: _EXTENSIONS": "operators of torchvision's library in a stored program",
    "jit: _FLOATS": "operators of TorchScript that take Python numbers, too, and what they do with them",
    "jit: _LEAVES": "what torch's tracer notes as one call; most are functions of nn.functional, which are no ops",
}
# Other words that are spelt as ops are: of a language, a library or an argument.
WORDS = {
    "backends: GATES": "modes of cuDNN's recurrent layers",
    "backends: MODES": "modes of cuDNN's recurrent layers",
    "backends: _MAKERS": "functions of CuPy",
    "core: iinfo.__slots__": "attributes of torch.iinfo",
    "programs: _name": "Python's operators on sizes",
    "fx: magic_methods": "Python's operators, and their text",
    "jit: COMPARED": "Python's operators, and their text",
    "jit: (_name, _function)": "Python's functions",
    "jit: _EDGES": "values of math's functions at zero",
    "jit: _name": "values of TorchScript's types",
    "nn: _LINEAR": "values of the argument `nonlinearity`",
    "ops: (_name, _kind, _cornered)": "the functions that the loop makes",
    "ops: _GATES": "values of the argument `mode`",
    "ops: _SEGMENTS": "values of the argument `reduce`",
    # instructions of the kernels' source form, which knows no ops
    **dict.fromkeys(
        [
            f"kernels: {name}"
            for name in "ARITHMETIC BOUNDS CALLS COMPARISONS FLOAT_TESTS FUNCTIONS IDENTITY MATHS REDUCTIONS ROUNDINGS "
            "TESTS UFUNCS UNSIGNED_OPS _ALIASES _CALLS _COSTS _name".split()
        ]
        + ["kernels: (_name, _ufunc)"],
        "instructions of the kernels' source form, and numpy's functions that become them",
    ),
}


@cache
def op_names() -> frozenset[str]:
    import_lazy()
    return frozenset(OPS) | frozenset(COMPOSITES) | frozenset(PUBLIC)


def statements(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.expr]]:
    """The names and values that a module or a class binds, and what its loops run over."""
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            yield prefix + ast.unparse(target), node.value
        elif isinstance(node, ast.ClassDef):
            yield from statements(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.For):
            yield prefix + ast.unparse(node.target), node.iter
            yield from statements(node.body, prefix)
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from statements(node.body, prefix)


def words(value: ast.expr) -> set[str]:
    """The strings among the elements and keys of collections, and the words of texts that list ops."""
    found: set[str] = set()
    for node in ast.walk(value):
        elements: list[ast.expr | None] = []
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            elements = [*node.elts]
        elif isinstance(node, ast.Dict):
            elements = [*node.keys]
        found.update(e.value for e in elements if isinstance(e, ast.Constant) and isinstance(e.value, str))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and is_table(set(node.value.split())):
            found.update(node.value.split())
    return found


def is_table(found: set[str]) -> bool:
    return len(found) >= FEWEST and len(found & op_names()) >= SHARE * len(found)


def tables(root: Path = ENGINE) -> dict[str, str]:
    """Every table of op names by its folder and name, which stay when a module moves in it; and where it is.

    What `make stubs` writes from the registry states no fact of its own.
    """
    found = {}
    for path in sorted(root.rglob("*.py")):
        tree = ast.parse(path.read_text())
        if (ast.get_docstring(tree) or "").startswith("Generated by scripts/stubs.py"):
            continue
        for name, value in statements(tree.body):
            if name.rpartition(".")[2] != "__all__" and is_table(words(value)):
                place = path.relative_to(root)
                found[f"{place.parts[0]}: {name}"] = place.as_posix()
    return found


def test_every_table_of_op_names_says_why_it_is_one() -> None:
    found = tables()
    new = {name: place for name, place in found.items() if name not in TABLES.keys() | WORDS.keys()}
    assert not new, "a fact about an op is an option of it (engine/dispatch: op), not a table elsewhere"
    assert sorted(TABLES.keys() - found.keys()) == [], "no longer there"
    assert sorted(WORDS.keys() - found.keys()) == [], "no longer there"
    assert len(TABLES) <= MOST


@pytest.mark.parametrize(
    "text",
    [
        "A = ['add', 'mul', 'sub']",
        "A = frozenset('add mul sub nothing'.split())",
        "A = {'add': 1, 'mul': 2, **dict.fromkeys(('sub', 'div'), 3)}",
        "class C:\n    A = ('add', 'mul', 'sub')",
        "for name in ('add', 'mul', 'sub'):\n    pass",
        "if True:\n    A |= {'add', 'mul', 'sub'}",
    ],
)
def test_the_finder_sees_a_table(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan" / "new.py").write_text(text)
    assert list(tables(tmp_path).values()) == ["plan/new.py"]


@pytest.mark.parametrize("text", ["A = ['add', 'mul']", "A = ['add', 'x', 'y']", "__all__ = ['add', 'mul', 'sub']"])
def test_the_finder_leaves_the_rest(text: str, tmp_path: Path) -> None:
    (tmp_path / "new.py").write_text(text)
    assert tables(tmp_path) == {}


# --- tables by function


def left_out() -> dict[str, set[str]]:
    """The ops without an entry, by table: of `left_out.txt`."""
    found: dict[str, set[str]] = {}
    names: set[str] = set()
    for line in (Path(__file__).parent / "left_out.txt").read_text().splitlines():
        if line.startswith("["):
            found[line.strip("[]")] = names = set()
        elif not line.startswith("#"):
            names.update(line.split())
    return found


def needs_a_rule(record: Op) -> bool:
    return not (record.broadcast or record.blocks == "elements")


@pytest.mark.parametrize(
    ("table", "without"),
    [
        ("vmap", lambda record: needs_a_rule(record) and record not in RULES),
        ("onnx", lambda record: record.name not in BUILDERS),
    ],
)
def test_ops_without_an_entry(table: str, without: Any) -> None:
    """A new op has an entry, or its name is added to the list: nobody forgets it."""
    import_lazy()
    own = [record for record in OPS.values() if record.kernel.__module__.startswith("engine.ops")]
    assert {record.name for record in own if without(record)} == left_out()[table]


# --- facts


def test_facts_of_composites_and_methods_are_found_by_name() -> None:
    assert with_fact("recorded")["zeros"] == "creation"
    assert with_fact("recorded")["bernoulli_"] == "draw"
    assert with_fact("autocast")["mm"] == "lower"
    assert with_fact("autocast")["mv"] == {"cuda": "lower"}
    assert "add" not in with_fact("autocast")


def test_unknown_options_are_refused() -> None:
    with pytest.raises(TypeError, match="unknown options \\['autocat'\\]"):
        op(autocat="lower")(lambda xp, input: input)
    with pytest.raises(TypeError, match="unknown options \\['autocat'\\]"):
        composite(autocat="lower")(lambda input: input)
    with pytest.raises(TypeError, match="unknown options \\['large'\\]"):
        has(large=1)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("generated", {"one", "some", "many"}),
        ("recorded", {"creation", "constant", "draw", "fill", "size", "arrays", "inference"}),
    ],
)
def test_values_of_options(option: str, values: set[str]) -> None:
    assert set(with_fact(option).values()) == values


def test_words_of_autocast_and_out_as() -> None:
    categories = {c for v in with_fact("autocast").values() for c in ([v] if isinstance(v, str) else v.values())}
    assert categories == {"lower", "float32", "widest"}
    treatments = {word for value in with_fact("out_as").values() for word in value.split()}
    assert treatments == {"graph", "dtype", "disjoint", "unexpanded"}


if __name__ == "__main__":
    print("\n".join(f"{place}: {name}" for name, place in sorted(tables().items())))
