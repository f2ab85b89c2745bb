"""The `reduction` of losses, and the deprecated `size_average`, `reduce`."""

from __future__ import annotations

import warnings


def get_enum(reduction: str) -> int:
    """0 none, 1 mean, 2 sum."""
    codes = {"none": 0, "mean": 1, "elementwise_mean": 1, "sum": 2}
    if reduction == "elementwise_mean":
        warnings.warn(
            "reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.",
            stacklevel=2,
        )
    if not isinstance(reduction, str) or reduction not in codes:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return codes[reduction]


def legacy_get_string(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> str:
    """The `reduction` that `size_average` and `reduce` ask for."""
    size_average = True if size_average is None else size_average
    reduce = True if reduce is None else reduce
    result = "none" if not reduce else "mean" if size_average else "sum"
    if emit_warning:
        warnings.warn(
            f"size_average and reduce args will be deprecated, please use reduction='{result}' instead.",
            stacklevel=3,
        )
    return result


def legacy_get_enum(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> int:
    """As `legacy_get_string`, as a code."""
    return get_enum(legacy_get_string(size_average, reduce, emit_warning))
