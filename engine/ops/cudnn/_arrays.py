"""What the kernels of this folder ask of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.backends.cuda import cudnn as library
from engine.backends.cuda.cudnn_graph import ALIGNMENT
from engine.backends.cuda.routes import Route
from engine.layouts import INNER, channels_last, channels_last_3d

TYPES = ("float16", "bfloat16", "float32", "float64")
FORMATS = {4: channels_last, 5: channels_last_3d}


def served(*arrays: Any) -> bool:
    """Whether arrays are of one type that cuDNN knows, and not empty."""
    first = arrays[0].dtype
    return first.name in TYPES and all(a.dtype == first and a.size for a in arrays)


def dense(array: Any, wanted: Any = None) -> Any:
    """The array, or a copy of it, dense in a memory format (None: contiguous) and where 16 bytes load at once."""
    if wanted is None:
        if array.flags.c_contiguous and not array.data.ptr % ALIGNMENT:
            return array
        return array.copy()  # in C's order
    inner = INNER[array.ndim]
    turned = array.transpose(inner)
    if not turned.flags.c_contiguous or array.data.ptr % ALIGNMENT:
        turned = turned.copy()
    return turned.transpose([inner.index(d) for d in range(array.ndim)])


def guarded(route: Route, compute: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What `compute` gives; NotImplemented for None, and for an error of cuDNN's, which switches the route off."""
    try:
        found = compute(*args, **kwargs)
    except RuntimeError as error:
        if "out of memory" in str(error).lower():
            raise
        route.fail(error)
        found = None
    return NotImplemented if found is None else found


def there() -> bool:
    """Whether cuDNN's C functions can be called."""
    return library.used() is not None


def graphs_there() -> bool:
    """Whether cuDNN and its frontend, which makes graphs, are there."""
    cudnn = library.used()
    return cudnn is not None and cudnn.frontend is not None


def on(route: Route) -> bool:
    """Whether what a route needs is there, and it is good."""
    return route.ready() and route.on()
