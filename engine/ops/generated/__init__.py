"""Generated kernels of named ops on the CPU (the extra `jit`); imported at the first call of one where llvmlite is.

Activation functions are recorded from the op's own code; softmax, norms and losses are the rows of
`engine/kernels/rows.py`, with the same arrangement of operands as on a GPU (`engine/ops/cuda`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from engine.backends.cpu.fast import fast
from engine.core.layouts import ChannelsLast
from engine.dispatch import Op
from engine.kernels import processor
from engine.ops.generated import guard

__all__ = ["fused", "kernel_of", "variant_of"]


def kernel_of(record: Op, present: Callable[..., Any], into: int | None = None) -> Callable[..., Any] | None:
    """The generated kernel of an op in front of `present`, the route there is without it; None for ops without one.

    It returns NotImplemented for what it leaves to that route.  into: the operand that it may write its result to.
    """
    if not record.generated:
        return None
    variant = variant_of(record)
    plain = lambda xp, *args, **kwargs: variant(fast if xp is np else xp, *args, **kwargs)
    pointwise = record.blocks == "elements"
    # a kernel of the op's own may look at what was computed, which launches that are repeated would leave out
    launches = record.only_launches or (pointwise and "cpu" not in record.kernels)
    one = pointwise and not (record.outputs or record.many)
    light = record.generated != "many"
    images = record.images or (one and record.channels_last)
    multiplies = len(record.large_by) > 1
    made = guard.guarded(
        record.name, plain, present, launches, into, pointwise=one, light=light, images=images, multiplies=multiplies
    )
    if record.serves is not None:
        made = _limited(made, record.serves)
    if not record.image_kernel:
        return made
    import engine.ops.norm.generated  # noqa: F401  # for the weight: few programs normalize converted images

    whole = record.kernels.get("pass")
    if whole is None:
        return made

    def either(xp: Any, *args: Any, **kwargs: Any) -> Any:
        if args[0].__class__ is ChannelsLast:
            return whole(present, xp, *args, **kwargs)
        return made(xp, *args, **kwargs)

    either.why_not = made.why_not  # type: ignore[attr-defined]
    return either


def _limited(made: Callable[..., Any], serves: Callable[..., bool]) -> Callable[..., Any]:
    def kernel(xp: Any, *args: Any, **kwargs: Any) -> Any:
        return made(xp, *args, **kwargs) if serves(*args) else NotImplemented

    def why_not(args: Any, kwargs: Any) -> str:
        return made.why_not(args, kwargs) if serves(*args) else "not for such operands"  # type: ignore[attr-defined]

    kernel.why_not = why_not  # type: ignore[attr-defined]
    return kernel


def variant_of(record: Op, small: bool = False) -> Callable[..., Any]:
    """Return the function that launches the generated kernels of an op; small: one kernel rather than several."""
    if record.blocks == "elements" and record.kernels.keys().isdisjoint(("cpu", "cuda")):
        from engine.ops.cuda.elementwise import kernel_from

        return kernel_from(record.name, record.kernel, not (record.outputs or record.many))
    from engine.ops import cuda  # noqa: F401
    from engine.ops.generated import (  # noqa: F401
        bags,
        conversions,
        copies,
        distances,
        layers,
        lines,
        losses,
        matrices,
        places,
        planes,
        recurrent,
        rolls,
        scans,
        windows,
    )
    from engine.ops.products import generated  # noqa: F401

    first, second = ("direct", "cuda") if small else ("cuda", "direct")
    return record.kernels.get("cpu") or record.kernels.get(first) or record.kernels[second]


def fused(
    name: str, code: Callable[..., Any], present: Callable[..., Any] | None = None, into: int | None = None
) -> Callable[..., Any] | None:
    """`code(xp, *arrays)`, a chain of element by element steps with one result, as one kernel; None without the extra.

    The function returned has the same parameters, with numpy for `xp`.  It returns NotImplemented until a kernel pays,
    where none can be recorded, and where one was slower than `present` (by default the code itself) or differed.
    into: the operand that it may write its result to.  See engine/kernels/README.md.
    """
    if not processor.available():
        return None
    from engine.ops.cuda.elementwise import kernel_from

    recorded = kernel_from(name, code)

    def plain(xp: Any, *arrays: Any) -> Any:
        with np.errstate(all="ignore"):
            return code(xp, *arrays)

    variant = lambda xp, *arrays: recorded(fast if xp is np else xp, *arrays)
    return guard.guarded(name, variant, present or plain, True, into, pointwise=True)
