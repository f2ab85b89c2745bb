"""The layout and type checks of arrays for cuDNN, and whether there is cuDNN for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.backends import cudnn as settings
from engine.backends.cuda import cudnn as library
from engine.backends.cuda import runtime
from engine.backends.cuda.cudnn_graph import ALIGNMENT
from engine.backends.cuda.routes import Route
from engine.core.layouts import INNER, channels_last, channels_last_3d

TYPES = ("float16", "bfloat16", "float32", "float64")
FORMATS = {4: channels_last, 5: channels_last_3d}


def served(*arrays: Any) -> bool:
    """Return whether arrays are of one type that cuDNN knows, and not empty."""
    first = arrays[0].dtype
    return first.name in TYPES and all(a.dtype == first and a.size for a in arrays)


def dense(array: Any, wanted: Any = None) -> Any:
    """The array, or a copy of it, dense in a memory format (None: contiguous) and where 16 bytes load at once."""
    if wanted is None:
        if array.flags.c_contiguous and not array.data.ptr % ALIGNMENT:
            return array
        return array.copy()  # in C's order
    inner = INNER[array.ndim]
    relaid = array.transpose(inner)
    if not relaid.flags.c_contiguous or array.data.ptr % ALIGNMENT:
        relaid = relaid.copy()
    return relaid.transpose([inner.index(d) for d in range(array.ndim)])


def guarded(route: Route, compute: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the result of `compute`; NotImplemented for None, after an error of cuDNN, which disables the route."""
    try:
        found = compute(*args, **kwargs)
    except RuntimeError as error:
        if "out of memory" in str(error).lower():
            raise
        route.fail(error)
        found = None
    return NotImplemented if found is None else found


def used() -> library.Cudnn | None:
    """cuDNN, if it can be had and `torch.backends.cudnn.enabled`."""
    if not settings.enabled:
        return None
    if runtime.state.stand_in:
        return runtime.state.cudnn
    found = library.loaded()
    return found if isinstance(found, library.Cudnn) else None


def why_not() -> str | None:
    """One sentence that says why cuDNN is not used; None where it is."""
    if not settings.enabled:
        return "torch.backends.cudnn.enabled is False"
    found = runtime.state.cudnn or "the stand-in has no cuDNN" if runtime.state.stand_in else library.loaded()
    if isinstance(found, str):
        return found
    if found.frontend is None:
        return (
            "nvidia-cudnn-frontend was not found: pip install 'hubcli[cuda13]' (or cuda12); convolution and attention "
            "compute by products until then"
        )
    return None


def there() -> bool:
    """Return whether cuDNN's C functions can be called."""
    return used() is not None


def graphs_there() -> bool:
    """Return whether cuDNN and its frontend, which makes graphs, are there."""
    cudnn = used()
    return cudnn is not None and cudnn.frontend is not None


def on(route: Route) -> bool:
    """Return whether what a route needs is there, and it is good."""
    return route.ready() and route.on()
