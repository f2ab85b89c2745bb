"""Names of `torch._library.utils` that packages use."""

from __future__ import annotations

from typing import Any

from engine.library import operators as _ops
from engine.library.schema import FunctionSchema, parse_schema

__all__ = ["is_functional_schema", "lookup_op", "mutates_and_returns_first_arg", "parse_namespace"]


def parse_namespace(qualname: str) -> tuple[str, str]:
    """("ns", "op") of "ns::op"; ValueError otherwise."""
    parts = qualname.split("::")
    if len(parts) != 2:
        raise ValueError(
            f"Expected `qualname` to be of the form `namespace::name`, but got {qualname}. The qualname passed to the "
            "torch.library APIs must consist of a namespace and a name, e.g. aten::sin"
        )
    return parts[0], parts[1]


def lookup_op(qualname: str) -> _ops.OpOverload:
    """The operator of that name."""
    parse_namespace(qualname)
    return _ops.find(qualname)


def is_functional_schema(schema: FunctionSchema | str, **kwargs: Any) -> bool:
    """Return whether nothing is written, and no result shares memory with an argument."""
    parsed = parse_schema(schema) if isinstance(schema, str) else schema
    return not any(a.alias_info is not None for a in (*parsed.arguments, *parsed.returns))


def mutates_and_returns_first_arg(op: _ops.OpOverload) -> bool:
    """Return whether the operator writes its first argument, and it alone, and returns it."""
    schema = op._schema
    written = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments]
    if len(schema.returns) != 1 or not written or not written[0] or any(written[1:]):
        return False
    return schema.returns[0].alias_info == schema.arguments[0].alias_info
