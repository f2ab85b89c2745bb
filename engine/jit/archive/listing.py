"""The listing of a compiled function, which torch calls its graph, to be read: `print(f.graph)`, `graph.nodes()`.

A program is stored as text (`code`); a Listing is made of it when somebody asks (`reading.py`), and changing one
changes nothing: it has blocks inside nodes and a name for each value, and nothing runs it.  What runs, and what passes
change, is the one form of a program, `engine/fx/graph.py`.  https://docs.pytorch.org/docs/2.13/jit.html#inspecting-code
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.jit.archive.kinds import TENSOR, Kind

__all__ = ["Block", "Listing", "Node", "Use", "Value"]


class Type:
    """The type of a value: `str(t)` is its name, `kind()` its class in torch."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind

    def __str__(self) -> str:
        return "NoneType" if self._kind.name == "None" else self._kind.schema_text

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def kind(self) -> str:
        """`TensorType`, `IntType`, `ListType`, ..."""
        name = {"str": "String"}.get(self._kind.name, self._kind.name)
        return f"{name[0].upper()}{name[1:]}Type" if not name.startswith("__torch__") else "ClassType"

    annotation_str = property(lambda self: str(self._kind), doc="The type as an annotation.")


class Use:
    """A place where a value is read: `user` and the position `offset` among its inputs."""

    def __init__(self, user: Node, offset: int) -> None:
        self.user, self.offset = user, offset


class Value:
    """A value of a listing: a name, a type and the node that makes it."""

    def __init__(self, node: Node, kind: Kind = TENSOR, name: str = "") -> None:
        self._node, self._kind, self._name = node, kind, name
        self._uses: list[Use] = []

    def debugName(self) -> str:
        """The name, without `%`."""
        return self._name

    def type(self) -> Type:
        """The type."""
        return Type(self._kind)

    def node(self) -> Node:
        """The node that makes it."""
        return self._node

    def uses(self) -> list[Use]:
        """Where it is read."""
        return list(self._uses)

    def isCompleteTensor(self) -> bool:
        """False: sizes are not part of a type."""
        return False

    def toIValue(self) -> Any:
        """The value of a constant, else None."""
        return self._node._constants.get("value") if self._node.kind() == "prim::Constant" else None

    def __repr__(self) -> str:
        return f"{self._name} defined in ({self._node})"


class Node:
    """A step of a listing: a kind (`aten::add`), inputs, outputs, constants and blocks."""

    def __init__(self, owner: Block, kind: str, inputs: list[Value], constants: dict[str, Any]) -> None:
        self._owner, self._kind, self._constants = owner, kind, constants
        self._inputs: list[Value] = []
        self._outputs: list[Value] = []
        self._blocks: list[Block] = []
        for value in inputs:
            self._read(value)

    def _read(self, value: Value) -> None:
        value._uses.append(Use(self, len(self._inputs)))
        self._inputs.append(value)

    def kind(self) -> str:
        """`aten::add`, `prim::If`, ..."""
        return self._kind

    def inputs(self) -> Iterator[Value]:
        """What it reads."""
        return iter(self._inputs)

    def outputs(self) -> Iterator[Value]:
        """What it makes."""
        return iter(self._outputs)

    def inputsSize(self) -> int:
        """The number of inputs."""
        return len(self._inputs)

    def outputsSize(self) -> int:
        """The number of outputs."""
        return len(self._outputs)

    def inputsAt(self, i: int) -> Value:
        """One of the inputs."""
        return self._inputs[i]

    def outputsAt(self, i: int) -> Value:
        """One of the outputs."""
        return self._outputs[i]

    def input(self) -> Value:
        """The one input.  RuntimeError where there are others."""
        if len(self._inputs) != 1:
            raise RuntimeError(f"{self._kind} has {len(self._inputs)} inputs")
        return self._inputs[0]

    def output(self) -> Value:
        """The one output.  RuntimeError where there are others."""
        if len(self._outputs) != 1:
            raise RuntimeError(f"{self._kind} has {len(self._outputs)} outputs")
        return self._outputs[0]

    def blocks(self) -> Iterator[Block]:
        """The blocks of a condition or a loop."""
        return iter(self._blocks)

    def owningBlock(self) -> Block:
        """The block that it stands in."""
        return self._owner

    def attributeNames(self) -> list[str]:
        """The names of its constants."""
        return list(self._constants)

    def hasAttribute(self, name: str) -> bool:
        """Return whether it has a constant of that name."""
        return name in self._constants

    def hasAttributes(self) -> bool:
        """Return whether it has constants."""
        return bool(self._constants)

    def kindOf(self, name: str) -> str:
        """`i`, `f`, `s` or `t`: what a constant is."""
        value = self._constants[name]
        if isinstance(value, bool | int):
            return "i"
        return "f" if isinstance(value, float) else "s" if isinstance(value, str) else "t"

    def _constant(self, name: str) -> Any:
        return self._constants[name]

    i = f = s = t = ival = c = _constant

    def scopeName(self) -> str:
        """The empty text: modules are called, not written out."""
        return ""

    def findNode(self, kind: str, recurse: bool = True) -> Node | None:
        """The first node of a kind in its blocks, or None."""
        return next(iter(self.findAllNodes(kind, recurse)), None)

    def findAllNodes(self, kind: str, recurse: bool = True) -> list[Node]:
        """The nodes of a kind in its blocks."""
        return [n for block in self._blocks for n in block.findAllNodes(kind, recurse)]

    def isNondeterministic(self) -> bool:
        """Return whether it draws random numbers."""
        space, _, name = self._kind.partition("::")
        return space == "aten" and name in _DRAWS

    def mustBeNone(self) -> bool:
        """Return whether it makes None."""
        return self._kind == "prim::Constant" and self._constants.get("value", ...) is None

    def _lines(self, indent: str) -> Iterator[str]:
        made = ", ".join(f"%{v._name} : {v.type()}" for v in self._outputs)
        constants = {n: v for n, v in self._constants.items() if v is not None}
        inside = ", ".join(f"{n}={_shown(v)}" for n, v in constants.items())
        given = ", ".join(f"%{v._name}" for v in self._inputs)
        yield f"{indent}{made + ' = ' if made else ''}{self._kind}{f'[{inside}]' if inside else ''}({given})"
        for number, block in enumerate(self._blocks):
            taken = ", ".join(f"%{v._name} : {v.type()}" for v in block._inputs)
            yield f"{indent}  block{number}({taken}):"
            for node in block._nodes:
                yield from node._lines(indent + "    ")
            yield f"{indent}    -> ({', '.join(f'%{v._name}' for v in block._return._inputs)})"

    def __str__(self) -> str:
        return "\n".join(self._lines("")) + "\n"

    __repr__ = __str__


_DRAWS = frozenset(
    """_sample_dirichlet _standard_gamma alpha_dropout bernoulli bernoulli_ binomial cauchy_ dropout exponential_
    feature_alpha_dropout feature_dropout geometric_ log_normal_ multinomial normal normal_ poisson rand rand_like
    randint randint_like randn randn_like random_ randperm rrelu uniform_""".split()
)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    text = repr(value)
    return "<Tensor>" if text.startswith(("tensor(", "Parameter")) else text


class Block:
    """Nodes in their order, with inputs and outputs."""

    def __init__(self, owner: Node | None = None) -> None:
        self._owner = owner
        self._nodes: list[Node] = []
        self._param = Node(self, "prim::Param", [], {})
        self._return = Node(self, "prim::Return", [], {})

    _inputs = property(lambda self: self._param._outputs)

    def nodes(self) -> Iterator[Node]:
        """The nodes."""
        return iter(list(self._nodes))

    def inputs(self) -> Iterator[Value]:
        """What it is given."""
        return self._param.outputs()

    def outputs(self) -> Iterator[Value]:
        """What it gives."""
        return self._return.inputs()

    def paramNode(self) -> Node:
        """The node that stands for what it is given."""
        return self._param

    param_node = paramNode

    def returnNode(self) -> Node:
        """The node that reads what it gives."""
        return self._return

    return_node = returnNode

    def owningNode(self) -> Node | None:
        """The node that it belongs to."""
        return self._owner

    def findAllNodes(self, kind: str, recurse: bool = True) -> list[Node]:
        """The nodes of a kind, those of inner blocks too."""
        found = []
        for node in self._nodes:
            if node.kind() == kind:
                found.append(node)
            if recurse:
                found += node.findAllNodes(kind)
        return found

    def findNode(self, kind: str, recurse: bool = True) -> Node | None:
        """The first node of a kind, or None."""
        return next(iter(self.findAllNodes(kind, recurse)), None)


class Listing(Block):
    """A function or method as nodes and values."""

    _origin: Any = None  # the program and the record that it was read from

    def block(self) -> Block:
        """Itself, the outermost block."""
        return self

    def copy(self) -> Listing:
        """Itself: a listing is not changed."""
        return self

    def lint(self) -> None:
        """Nothing: what is built of a checked program is well formed."""

    def alive(self) -> bool:
        """True."""
        return True

    def str(self, print_source_ranges: bool = True) -> str:
        """The text."""
        return f"{self}"

    def __str__(self) -> str:
        given = ",\n      ".join(f"%{v._name} : {v.type()}" for v in self._inputs)
        lines = [f"graph({given}):"]
        for node in self._nodes:
            lines += node._lines("  ")
        return "\n".join([*lines, f"  return ({', '.join(f'%{v._name}' for v in self._return._inputs)})"]) + "\n"

    __repr__ = __str__


Listing.__name__ = Listing.__qualname__ = "Graph"  # as torch calls it
