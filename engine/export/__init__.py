"""torch.export: a module's program as one graph.

`export` records a call (`engine.programs.record`) and gives the graph with what its inputs, parameters and outputs are
called.  Sizes follow the inputs, so a program serves other sizes too where its Python did nothing else with them;
constraints (`Dim`) are taken and not enforced.  Source: torch.export of release 2.13.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "Dim",
    "ExportGraphSignature",
    "ExportedProgram",
    "InputKind",
    "InputSpec",
    "OutputKind",
    "OutputSpec",
    "TensorArgument",
    "dims",
    "export",
    "load",
    "register_dataclass",
    "save",
]


class InputKind(enum.Enum):
    """The origin of a graph's input."""

    USER_INPUT = 1
    PARAMETER = 2
    BUFFER = 3
    CONSTANT_TENSOR = 4


class OutputKind(enum.Enum):
    """The destination of a graph's output."""

    USER_OUTPUT = 1
    BUFFER_MUTATION = 3


@dataclass
class TensorArgument:
    """A tensor of the graph, by the name of its node."""

    name: str


@dataclass
class InputSpec:
    """An input: its kind, its node, and for parameters and buffers the name in the module."""

    kind: InputKind
    arg: TensorArgument
    target: str | None
    persistent: bool | None = None


@dataclass
class OutputSpec:
    """An output: its kind and its node."""

    kind: OutputKind
    arg: TensorArgument
    target: str | None = None


@dataclass
class ExportGraphSignature:
    """The inputs and outputs of a graph, with their kinds and the names of parameters and buffers."""

    input_specs: list[InputSpec] = field(default_factory=list)
    output_specs: list[OutputSpec] = field(default_factory=list)

    def _targets(self, kind: InputKind) -> list[str]:
        return [str(s.target) for s in self.input_specs if s.kind is kind]

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters that the graph reads."""
        return self._targets(InputKind.PARAMETER)

    @property
    def buffers(self) -> list[str]:
        """Names of the buffers that the graph reads."""
        return self._targets(InputKind.BUFFER)

    @property
    def user_inputs(self) -> tuple[str, ...]:
        """The nodes of the arguments."""
        return tuple(s.arg.name for s in self.input_specs if s.kind is InputKind.USER_INPUT)

    @property
    def user_outputs(self) -> tuple[str, ...]:
        """The nodes of the results."""
        return tuple(s.arg.name for s in self.output_specs if s.kind is OutputKind.USER_OUTPUT)


class Dim:
    """A size that may vary.  Taken as a name; ranges are not enforced."""

    AUTO, DYNAMIC, STATIC = "AUTO", "DYNAMIC", "STATIC"

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        self.__name__, self.min, self.max = name, 0 if min is None else min, max

    def __repr__(self) -> str:
        return f"Dim('{self.__name__}')"


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Several Dims."""
    return tuple(Dim(name, min=min, max=max) for name in names)


class ExportedProgram:
    """A recorded module: `graph_module`, `graph`, `graph_signature`, `state_dict`, `module()`."""

    def __init__(self, graph_module: Any, signature: ExportGraphSignature, source: Any, example_inputs: Any) -> None:
        self.graph_module, self.graph_signature, self.example_inputs = graph_module, signature, example_inputs
        self._source = source

    @property
    def graph(self) -> Any:
        """The fx.Graph."""
        return self.graph_module.graph

    @property
    def state_dict(self) -> dict[str, Any]:
        """Parameters and persistent buffers of the module that was exported, by name."""
        return dict(self._source.state_dict())

    def named_parameters(self) -> Any:
        """(name, parameter) pairs of the exported module."""
        return self._source.named_parameters()

    def parameters(self) -> Any:
        """The parameters of the exported module."""
        return self._source.parameters()

    def named_buffers(self) -> Any:
        """(name, buffer) pairs of the exported module."""
        return self._source.named_buffers()

    def buffers(self) -> Any:
        """The buffers of the exported module."""
        return self._source.buffers()

    def module(self, check_guards: bool = True) -> Any:
        """A module that runs the program: called with the arguments as the exported one was."""
        from engine.nn.modules.module import Module
        from engine.programs.values import tensors_in

        graph_module = self.graph_module
        count = len(tensors_in(self.example_inputs))

        class Exported(Module):
            def __init__(self) -> None:
                super().__init__()
                self.graph_module = graph_module

            def forward(self, *args: Any, **kwargs: Any) -> Any:
                given = list({id(t): t for t in tensors_in((args, kwargs))}.values())
                if len(given) != count:
                    raise RuntimeError(f"the exported program takes {count} tensors, not {len(given)}")
                return self.graph_module(*given)

        return Exported()

    def run_decompositions(self, decomp_table: Any = None) -> ExportedProgram:
        """NotImplementedError: the graph holds the engine's operators, which are not taken apart."""
        raise NotImplementedError(
            "ExportedProgram.run_decompositions is not supported: the operators of the graph are the engine's own"
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` instead."
        )

    def __str__(self) -> str:
        return f"ExportedProgram:\n    {self.graph_module.code.strip()}\n\nGraph signature: {self.graph_signature}\n"


def export(
    mod: Any,
    args: tuple,
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: Any = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """Record the program of one call of a module: `mod(*args, **kwargs)` is run once.

    Args:
        mod: An nn.Module, in eval mode.
        args: A tuple of example arguments.
        kwargs: Example keyword arguments.
        dynamic_shapes: Accepted, not enforced.
        strict: Accepted, as are the other options.

    Returns:
        An `ExportedProgram`: its graph, signature and state; `module()` makes a module of it.

    Raises:
        TypeError: `mod` is no module, or `args` no tuple.
        RuntimeError: the program is not told by its operators: values of tensors that Python reads, random numbers,
            writes to parameters and buffers.
    """
    from engine.dispatch import with_fact
    from engine.nn.modules.module import Module
    from engine.programs.record import record

    if not isinstance(mod, Module):
        raise TypeError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if not isinstance(args, tuple):
        raise TypeError(f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}")
    whole = [name for name, why in with_fact("recorded").items() if why == "inference"]
    made = record(mod, args, kwargs, leaves=whole, strict=True)
    parameters, buffers = dict(mod.named_parameters()), dict(mod.named_buffers())
    signature = ExportGraphSignature()
    for node in made.graph.nodes:
        argument = TensorArgument(node.name)
        if node.op == "placeholder":
            signature.input_specs.append(InputSpec(InputKind.USER_INPUT, argument, None))
        elif node.op == "get_attr":
            name = str(node.target)
            kind = (
                InputKind.PARAMETER
                if name in parameters
                else InputKind.BUFFER
                if name in buffers
                else InputKind.CONSTANT_TENSOR
            )
            signature.input_specs.append(InputSpec(kind, argument, name))
        elif node.op == "output":
            signature.output_specs += [
                OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(n.name)) for n in _nodes(node.args)
            ]
    return ExportedProgram(made, signature, mod, (args, kwargs or {}))


def _nodes(value: Any) -> list[Any]:
    from engine.fx.node import Node
    from engine.programs.values import mapped

    found: list[Any] = []
    mapped(value, found.append, Node)
    return found


def save(ep: ExportedProgram, f: Any, **kwargs: Any) -> None:
    """NotImplementedError: torch's format of exported programs is not written."""
    raise NotImplementedError(
        "torch.export.save is not supported: save the module by torch.jit.save(torch.jit.trace(...)) or "
        "torch.onnx.export"
    )


def load(f: Any, **kwargs: Any) -> ExportedProgram:
    """NotImplementedError: torch's format of exported programs is not read."""
    raise NotImplementedError(
        "torch.export.load is not supported: the file needs real torch; archives of torch.jit.save load"
    )


def register_dataclass(cls: type, *, serialized_type_name: str | None = None) -> Callable[..., Any] | None:
    """Without effect: arguments are lists, tuples and dicts."""
    return None
