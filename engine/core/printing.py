"""Printing, exactly as torch prints.  Works on host arrays; `tensor_repr` is what `Tensor.__repr__` calls."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import backends
from engine.core import dtypes

if TYPE_CHECKING:
    from engine.core.arrays import Array
    from engine.tensor import Tensor

__all__ = ["get_printoptions", "printoptions", "set_printoptions", "tensor_repr"]


class _Options:
    precision = 4
    threshold: float = 1000
    edgeitems = 3
    linewidth = 80
    sci_mode: bool | None = None


PRINT_OPTS = _Options()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are printed: digits, elements before summarizing, edge items, characters per line, scientific
    notation.

    profile: "default", "short" or "full" sets several at once.
    """
    options = PRINT_OPTS
    if profile is not None:
        digits, limit, items = {
            "default": (4, 1000, 3),
            "short": (2, 1000, 2),
            "full": (4, math.inf, 3),
        }.get(profile, (options.precision, options.threshold, options.edgeitems))
        options.precision, options.threshold, options.edgeitems, options.linewidth = (
            digits,
            limit,
            items,
            80,
        )
    if precision is not None:
        options.precision = precision
    if threshold is not None:
        options.threshold = threshold
    if edgeitems is not None:
        options.edgeitems = edgeitems
    if linewidth is not None:
        options.linewidth = linewidth
    options.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """The present options, as keyword arguments of `set_printoptions`."""
    return {k: getattr(PRINT_OPTS, k) for k in ("precision", "threshold", "edgeitems", "linewidth", "sci_mode")}


@contextlib.contextmanager
def printoptions(**kwargs: Any) -> Iterator[None]:
    """`set_printoptions` for the length of a block."""
    kept = get_printoptions()
    set_printoptions(**{**kept, **kwargs})
    try:
        yield
    finally:
        set_printoptions(**kept)


class _Formatter:
    """One column width and one notation for all elements of a real array."""

    def __init__(self, array: Array) -> None:
        self.floating = array.dtype.kind == "f"
        self.integers, self.scientific, self.width = True, False, 1
        if not self.floating:
            self.width = max((len(str(v)) for v in array.reshape(-1).tolist()), default=1)
            return
        values = array[np.isfinite(array) & (array != 0)].astype(np.float64)
        if not values.size:
            return
        size = np.abs(values)
        low, high = float(size.min()), float(size.max())
        self.integers = bool((values == np.ceil(values)).all())
        if PRINT_OPTS.sci_mode is None:
            self.scientific = high / low > 1000.0 or high > 1.0e8 or low < 1.0e-4
        else:
            self.scientific = PRINT_OPTS.sci_mode
        digits = PRINT_OPTS.precision
        if self.scientific:
            shown = (f"{v:.{digits}e}" for v in values.tolist())
        elif self.integers:
            shown = (f"{v:.0f}." for v in values.tolist())
        else:
            shown = (f"{v:.{digits}f}" for v in values.tolist())
        self.width = max(1, *map(len, shown))

    def format(self, value: float) -> str:
        if not self.floating:
            text = str(value)
        elif self.scientific:
            text = f"{value:{self.width}.{PRINT_OPTS.precision}e}"
        elif self.integers:
            text = f"{value:.0f}" + ("." if math.isfinite(value) else "")
        else:
            text = f"{value:.{PRINT_OPTS.precision}f}"
        return text.rjust(self.width)


class _ComplexFormatter:
    """Real and imaginary parts, each with a formatter of its own."""

    def __init__(self, array: Array) -> None:
        self.real, self.imag = _Formatter(array.real), _Formatter(array.imag)
        self.width = self.real.width + self.imag.width + 1

    def format(self, value: complex) -> str:
        imag = (self.imag.format(value.imag) + "j").lstrip()
        return self.real.format(value.real) + (imag if imag[0] in "+-" else "+" + imag)


def _vector(array: Array, indent: int, summarize: bool, formatter: _Formatter | _ComplexFormatter) -> str:
    per_line = max(1, (PRINT_OPTS.linewidth - indent) // (formatter.width + 2))
    edge = PRINT_OPTS.edgeitems
    if summarize and not edge:
        data = ["..."]
    elif summarize and array.shape[0] > 2 * edge:
        data = [formatter.format(v) for v in array[:edge].tolist()]
        data += [" ...", *(formatter.format(v) for v in array[-edge:].tolist())]
    else:
        data = [formatter.format(v) for v in array.tolist()]
    lines = [", ".join(data[i : i + per_line]) for i in range(0, len(data), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _nested(array: Array, indent: int, summarize: bool, formatter: _Formatter | _ComplexFormatter) -> str:
    if not array.ndim:
        return str(formatter.format(array.item()))
    if array.ndim == 1:
        return _vector(array, indent, summarize, formatter)
    edge = PRINT_OPTS.edgeitems
    if summarize and array.shape[0] > 2 * edge:
        rows = [_nested(array[i], indent + 1, summarize, formatter) for i in range(edge)]
        rows.append("...")
        rows += [
            _nested(array[i], indent + 1, summarize, formatter) for i in range(array.shape[0] - edge, array.shape[0])
        ]
    else:
        rows = [_nested(row, indent + 1, summarize, formatter) for row in array]
    separator: str = "," + "\n" * (array.ndim - 1) + " " * (indent + 1)
    return f"[{separator.join(rows)}]"


def _corners(array: Array) -> Array:
    """The elements that a summary shows."""
    edge = PRINT_OPTS.edgeitems
    for dim, n in enumerate(array.shape):
        if n > 2 * edge:
            keep = np.r_[0:edge, n - edge : n].astype(np.intp)
            array = np.take(array, keep, axis=dim)
    return array


def contents(array: Array, indent: int) -> str:
    """The elements of a host array as nested lists."""
    if not array.size:
        return "[]"
    if array.dtype.kind == "W":  # type: ignore[comparison-overlap]  # complex32
        array = array.astype(np.complex64)
    elif array.dtype.kind not in "biufc" or array.dtype == np.float16:
        array = array.astype(np.float32)
    summarize = array.size > PRINT_OPTS.threshold
    kind = _ComplexFormatter if array.dtype.kind == "c" else _Formatter
    return _nested(array, indent, summarize, kind(_corners(array) if summarize else array))


def tensor_repr(tensor: Tensor, tensor_contents: str | None = None) -> str:
    """The text of a Tensor: elements, then what of device, size, dtype and history does not go without saying."""
    kind = type(tensor)
    plain = kind.__name__ == "Parameter" or (kind.__module__, kind.__name__) == ("engine.tensor", "Tensor")
    prefix = "tensor(" if plain else f"{kind.__name__}("
    array, dtype = tensor._array, tensor.dtype
    suffixes = []
    if tensor.device.type != "cpu":
        suffixes.append(f"device='{tensor.device}'")
    if tensor.device.type == "meta" and tensor_contents is None:
        tensor_contents = "..."
        suffixes.append(f"size={tuple(array.shape)}")
        if dtype is not dtypes.get_default_dtype():
            suffixes.append(f"dtype={dtype!r}")
    elif not array.size:
        if array.ndim != 1:
            suffixes.append(f"size={tuple(array.shape)}")
        if dtype is not dtypes.get_default_dtype():
            suffixes.append(f"dtype={dtype!r}")
        text = "[]"
    else:
        if dtype not in (
            dtypes.get_default_dtype(),
            dtypes.default_complex(),
            dtypes.int64,
            dtypes.bool,
        ):
            suffixes.append(f"dtype={dtype!r}")
        text = ""
    if tensor_contents is not None:
        text = tensor_contents
    elif array.size:
        text = contents(backends.of_array(array).to_host(array), len(prefix))
    try:
        node = tensor.grad_fn
        name = None if node is None else type(node).__name__
    except RuntimeError:
        name = "Invalid"
    if name is not None:
        suffixes.append(f"grad_fn=<{name}>")
    elif tensor.requires_grad:
        suffixes.append("requires_grad=True")
    return _with_suffixes(prefix + text, suffixes, len(prefix))


def _with_suffixes(text: str, suffixes: list[str], indent: int, force_newline: bool = False) -> str:
    parts = [text]
    used = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if force_newline or used + len(suffix) + 2 > PRINT_OPTS.linewidth:
            force_newline = False
            parts.append(",\n" + " " * indent + suffix)
            used = indent + len(suffix)
        else:
            parts.append(", " + suffix)
            used += len(suffix) + 2
    return "".join(parts) + ")"


# the names that packages which print subclasses of Tensor use


def _tensor_str(self: Tensor, indent: int) -> str:
    array = self._array
    return contents(backends.of_array(array).to_host(array), indent)


def _add_suffixes(tensor_str: str, suffixes: list[str], indent: int, force_newline: bool) -> str:
    return _with_suffixes(tensor_str, suffixes, indent, force_newline)


def _str_intern(inp: Tensor, *, tensor_contents: str | None = None) -> str:
    return tensor_repr(inp, tensor_contents)
