"""Autocast: which ops compute in a 16-bit type, which in float32, while a context of `engine.amp` is active.

Note [Autocast]
The lists are torch's (https://docs.pytorch.org/docs/2.13/amp.html), by the names of the engine's ops: composites
reach those.  The text of a listed op has one line more, which casts its operands through the graph, so that gradients
come back in the parameters' own type; it is written into the ops when the first context is entered, and costs nothing
before.  A leaf that requires grad is cast once for the outermost context (its weights are read many times).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from engine import backends, dtypes
from engine.autograd.graph import registered
from engine.dispatch import COMPOSITES, OPS, Op, import_lazy
from engine.dispatch.listeners import copied
from engine.grad_mode import mode
from engine.tensor import Tensor

__all__ = ["LISTED", "State", "cast_operands", "changes", "install", "line", "state", "target_of"]

_PRODUCTS = frozenset(
    [
        "addbmm", "addmm", "attention", "baddbmm", "bmm", "convolution", "linear", "lstm_inference", "lstm_layer",
        "matmul", "mm", "prelu", "scaled_dot_product_attention",
    ]
)  # fmt: skip
_LOSSES = frozenset(
    [
        "bce_with_logits", "cosine_embedding_loss", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss",
        "margin_ranking_loss", "mse_loss", "multi_margin_loss", "multilabel_margin_loss", "nll_loss_maps",
        "nll_loss_rows", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss", "softmax_nll_maps",
        "softmax_nll_rows", "softmax_nll_smoothed", "triplet_margin_loss",
    ]
)  # fmt: skip
LOWER = {"cpu": _PRODUCTS, "cuda": _PRODUCTS | {"addmv", "addr", "gru_inference", "gru_layer", "mv", "recurrent"}}
FLOAT32 = {
    "cpu": _LOSSES
    | {
        "adaptive_avg_pool3d", "avg_pool3d", "binary_cross_entropy", "cdist", "nanquantile", "prod_all", "prod_dim",
        "quantile", "reflection_pad1d", "trace",
    },
    "cuda": _LOSSES
    | {
        "acos", "asin", "cdist", "cosh", "cumprod", "cumsum", "erfinv", "exp", "expm1", "layer_norm_inference",
        "linalg_vector_norm", "log", "log10", "log1p", "log2", "log_softmax", "native_layer_norm", "normalize_groups",
        "pow", "prod_all", "prod_dim", "reciprocal", "rsqrt", "sinh", "softmax", "softplus", "sum", "tan",
    },
}  # fmt: skip
WIDEST = frozenset(["dot", "scatter_add", "index_put"])
LISTED = LOWER["cuda"] | FLOAT32["cpu"] | FLOAT32["cuda"] | WIDEST
_CAST = frozenset(map(np.dtype, ("float32", "float16")))


class State(threading.local):
    """Of one thread: whether a context is active, its types by device, and the casts of weights."""

    def __init__(self) -> None:
        self.on = False  # for any device
        self.enabled: dict[str, bool] = {}
        self.types: dict[str, dtypes.dtype] = {"cpu": dtypes.bfloat16, "cuda": dtypes.float16}
        self.caching = True
        self.depth = 0
        self.casts: dict[int, tuple[Tensor, int, dtypes.dtype, bool, Tensor]] = {}
        self.count = 0  # how many operands were given in another type

    def enable(self, kind: str, enabled: bool) -> None:
        """Switch it for a kind of device."""
        self.enabled[kind] = enabled
        self.on = any(self.enabled.values())
        if enabled:
            install()


state = State()
_installed: list[bool] = []


def line(record: Op) -> str:
    """The line of an op's text that casts its operands; "" for an op that is in no list, or before the first use."""
    if not _installed or record.name not in LISTED or not record.tensors:
        return ""
    names = ", ".join(record.tensors)
    return f"if autocast_state.on: {names}, = cast_operands('{record.name}', ({names},))"


after_install: list[Callable[[], None]] = []  # of who has put code of its own into the functions that are written anew


def install() -> None:
    """Write the line into the listed ops, once in a process."""
    if _installed:
        return
    import_lazy()
    _installed.append(True)
    from engine.dispatch.binder import compile_into

    for name in LISTED:
        if name in COMPOSITES:
            _cast_before(name, COMPOSITES[name])
        record = OPS.get(name)
        if record is None:
            continue
        namespaces, record.namespaces = record.namespaces, []
        for space in namespaces:
            compile_into(space["_self"], record, space, space["_inplace"], space["_unsupported"])
    for step in after_install:
        step()


_AROUND = (lambda *args, **kwargs: _around_(args, kwargs)).__code__  # type: ignore[name-defined]  # noqa: F821


def _cast_before(name: str, public: Any) -> None:
    """Let a composite, whose public function has globals of its own (`arguments.checked`), cast its tensors."""
    space = public.__globals__
    if "_compile_" not in space:
        return
    space["_compile_"]()  # no matter if it was compiled before
    plain = copied(public)

    def around(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if state.on:
            values = cast_operands(name, (*args, *kwargs.values()))
            args, kwargs = values[: len(args)], dict(zip(kwargs, values[len(args) :]))
        return plain(*args, **kwargs)

    space["_around_"] = around
    public.__defaults__ = public.__kwdefaults__ = None
    public.__code__ = _AROUND.replace(co_name=public.__name__)


def target_of(name: str, operands: tuple[Any, ...]) -> dtypes.dtype | None:
    """The type that the active context asks of the operands of an op; None where it asks for none."""
    kind = next((_kind(x) for x in operands if isinstance(x, Tensor)), "cpu")
    if not state.enabled.get(kind):
        return None
    if name in LOWER.get(kind, ()):
        return state.types[kind]
    if name in FLOAT32.get(kind, ()):
        return dtypes.float32
    if name in WIDEST and kind == "cuda":
        floating = [x.dtype for x in operands if isinstance(x, Tensor) and x.dtype.is_floating_point]
        if len(set(floating)) > 1:
            return dtypes.float64 if dtypes.float64 in floating else dtypes.float32
    return None


def changes(tensor: Tensor, target: dtypes.dtype) -> bool:
    """Whether a tensor is cast to `target`: float32 and the 16-bit types are; float64, integers, complex are not."""
    have = tensor._array.dtype
    return (have in _CAST or tensor.dtype is dtypes.bfloat16) and tensor.dtype is not target


def cast_operands(name: str, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands of a listed op in the type that the active context asks for."""
    target = target_of(name, operands)
    if target is None:
        return operands
    return tuple([_as(x, target) if isinstance(x, Tensor) else x for x in operands])


def _kind(tensor: Tensor) -> str:
    array = tensor._array
    return "cpu" if isinstance(array, np.ndarray) else backends.of_array(array).kind


def _as(tensor: Tensor, target: dtypes.dtype) -> Tensor:
    """float32 and the 16-bit types as `target`; float64, integers and complex numbers as they are."""
    if not changes(tensor, target):
        return tensor
    state.count += 1
    if not (state.caching and tensor._requires_grad is True and tensor._edge is None and target.itemsize == 2):
        return _cast(tensor, target)
    found = state.casts.get(id(tensor))
    recorded = mode.enabled
    if (
        found is not None and found[0] is tensor and found[1] == tensor._vc[0] and found[2] is target
        and found[3] == recorded
    ):  # fmt: skip
        return found[4]
    made = _cast(tensor, target)
    state.casts[id(tensor)] = (tensor, tensor._vc[0], target, recorded, made)
    return made


def _cast(tensor: Tensor, target: dtypes.dtype) -> Tensor:
    made: Tensor = registered.cast(tensor, target)
    return made
