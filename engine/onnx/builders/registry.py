"""The table of ONNX forms: operator of the engine -> what writes its nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.core import dtypes
from engine.onnx.errors import OnnxExporterError
from engine.onnx.writer import Value, Writer

__all__ = [
    "BUILDERS",
    "Builder",
    "along",
    "axes",
    "builds",
    "common",
    "expanded",
    "is_float",
    "numeric",
    "operands",
]

# parameters that change nothing of the values
_SILENT = frozenset(
    [
        "back",
        "cudnn_enable",
        "cudnn_enabled",
        "device",
        "generator",
        "layout",
        "memory_format",
        "names",
        "non_blocking",
        "out",
        "padding_idx",
        "pin_memory",
        "requires_grad",
        "scale_grad_by_freq",
        "sparse",
        "sparse_grad",
        "stable",
        "where",
        "inplace",
        "momentum",
        "dropout_p",
        "by_product",
    ]
)


class Builder:
    """`build(writer, **arguments)`; `parameters` are the arguments that it looks at, of all that the operator has."""

    def __init__(self, build: Callable[..., Any], back: str = "") -> None:
        code = build.__code__
        self.build, self.back = build, back
        self.parameters = frozenset(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])

    def ignores(self, parameter: str, value: Any, target: Any) -> bool:
        """Return whether an argument that `build` does not look at may have this value: its default, or what says
        nothing.
        """
        if parameter in _SILENT or value is None or value is False or (isinstance(value, dict) and not value):
            return True
        record = getattr(target, "op", None)
        if record is not None:
            return parameter in record.defaults and record.defaults[parameter] == value
        defaults = dict(zip(reversed(_names(target)), reversed(_inner(target).__defaults__ or ())))
        defaults.update(_inner(target).__kwdefaults__ or {})
        return parameter in defaults and defaults[parameter] == value


def _inner(function: Any) -> Any:
    return getattr(function, "__wrapped__", function)


def _names(function: Any) -> tuple[str, ...]:
    code = _inner(function).__code__
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount]
    return names


BUILDERS: dict[str, Builder] = {}


def builds(*names: str, back: str = "") -> Callable[[Any], Any]:
    """The decorated `build(writer, ...)` writes the operators of these names.

    Its parameters are some of the operator's own: tensors as Values, sizes as ints or scalar Values.  `result` is a
    Value without name that says what dtype and shape the operator gave.  It returns a Value, or a list of them for an
    operator with several outputs; dtype and shape of what it returns are corrected to those of the operator.
    back: how what is written to its result, a view, gets into the operand: by "reshape" or "index"; "" has no form.
    """

    def add(build: Any) -> Any:
        for name in names:
            if name in BUILDERS:
                raise ValueError(f"{name} has two ONNX forms")
            BUILDERS[name] = Builder(build, back)
        return build

    return add


def is_float(dtype: Any) -> bool:
    """Return whether a dtype is floating."""
    return bool(dtype.is_floating_point)


def operands(w: Writer, dtype: Any, *values: Any) -> list[Value]:
    """Values of one dtype."""
    return [w.value(v, dtype) for v in values]


def common(*values: Any) -> Any:
    """torch's result dtype of Values and numbers: 0-dim tensors and numbers count by their kind alone."""
    from engine.dispatch import PUBLIC

    levels: list[list[Any]] = [[], [], []]
    for v in values:
        if isinstance(v, Value):
            levels[v.shape == ()].append(v.dtype)
        else:
            levels[2].append(_of_number(v))
    found = None
    for dtypes_there in levels:
        for dtype in dtypes_there:
            if found is None or dtypes_there is levels[0] or dtype.category > found.category:
                found = dtype if found is None else PUBLIC["promote_types"](found, dtype)
    return found


def _of_number(v: Any) -> Any:
    if isinstance(v, bool):
        return dtypes.bool
    return dtypes.int64 if isinstance(v, int) else dtypes.get_default_dtype()


def axes(dim: Any, rank: int) -> list[int]:
    """The dims of a reduction, counted from 0; all for None and ()."""
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        return list(range(rank))
    dims = [dim] if isinstance(dim, int) else list(dim)
    return [d % rank if rank else 0 for d in dims] if rank else []


def along(x: Value, dim: int) -> int:
    """A dim counted from 0.  ONNX has none in a 0-dim tensor, where torch takes 0 and -1."""
    if not x.rank:
        raise OnnxExporterError("a 0-dim tensor has no dim in ONNX")
    return dim % x.rank


def numeric(w: Writer, x: Value) -> Value:
    """A truth as an integer: operators that order their operands take no truths."""
    return w.cast(x, dtypes.int32) if x.dtype is dtypes.bool else x


def expanded(value: Any, count: int) -> list[int]:
    """An int or a tuple of one as `count` ints."""
    items = [value] if isinstance(value, int) else list(value)
    return [int(n) for n in (items * count if len(items) == 1 else items)]
