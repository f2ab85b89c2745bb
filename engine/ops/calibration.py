"""Times the kernels of ops that have several, on this machine: what `engine.backends.calibrate()` runs.

Note [Measured routes] in `engine/backends/routes.py` says what becomes of it.  Arrays are random numbers of fixed
seeds, never the user's; kernels are called as ops call them.  A case is an op and its operands at a number of elements;
where an op has two shapes of that size, the geometric mean of both decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.backends import routes
from engine.core.trials import Terms, Trial
from engine.dispatch import OPS, choosing, providers

__all__ = ["CASES", "LEFT", "ROUTES", "Row", "names", "run"]

ROUTES = ("numpy", "blocks", "onednn")
MARGIN = 0.9  # of the time of what the op says: what another route must stay below, twice
FEWEST, ROUNDS = 3, 24  # calls of each route
ENOUGH = 0.004  # seconds for those of one route

# ops whose kernels depend on more than a size: what they say stands
LEFT = {
    "convolution": "window, stride and channels decide, and oneDNN is several times faster",
    "convolution_backward_input": "as convolution",
    "convolution_backward_weight": "as convolution",
    "products_of_places": "as convolution",
    "max_pool2d_values": "the window decides",
    "max_pool3d_values": "the window decides",
    "max_pool_gradient": "the window decides",
    "avg_pool2d_values": "the window decides",
    "avg_pool3d_values": "the window decides",
    "avg_pool_backward": "the window decides",
    "attention": "made of products",
    "attention_backward": "made of products",
    "attention_inference": "made of products",
    "lstm_layer": "made of products",
    "lstm_layer_backward": "made of products",
    "lstm_inference": "oneDNN does all steps in one call",
    "gru_layer": "made of products",
    "gru_layer_backward": "made of products",
    "gru_inference": "oneDNN does all steps in one call",
    "rnn_layer": "made of products",
    "rnn_layer_backward": "made of products",
    "euclidean_cdist": "made of a product",
    **dict.fromkeys(
        ("mm", "addmm", "linear", "bmm", "batched", "linear_each"),
        "alone numpy's BLAS may win, but its threads spin when they have worked and take the processors of oneDNN's: "
        "a step of an LSTM that mixed both took 2.7 times as long (two cores of Zen 4)",
    ),
    "softmax_nll_maps": "as softmax_nll_rows, whose routes it does not share",
    "softmax_nll_smoothed": "as softmax_nll_maps",
}


@dataclass(frozen=True)
class Row:
    """An op at one class of sizes: seconds of each route that serves it, what the op says, what is taken."""

    name: str
    elements: int  # the least of the class; the greatest is 4 times that, less 1
    seconds: dict[str, float]
    static: str
    chosen: str
    differs: tuple[str, ...] = ()  # routes whose numbers are not those of the plain kernel


# --- operands


def _floats(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def _elements(*more: Any, arrays: int = 1, positive: bool = False) -> Callable[[int], list[tuple[Any, ...]]]:
    def made(n: int) -> list[tuple[Any, ...]]:
        given = [_floats(i, n) for i in range(arrays)]
        if positive:  # a result: of tanh, sigmoid, relu
            given[-1] = np.abs(np.tanh(given[-1]))
        return [(*given, *more)]

    return made


def _widths(n: int) -> list[int]:
    return [w for w in (16, 256) if w <= n] or [n]


def _rows(make: Callable[[int, int], tuple[Any, ...]]) -> Callable[[int], list[tuple[Any, ...]]]:
    """make(rows, width) for narrow and for wide rows."""
    return lambda n: [make(max(1, n // width), width) for width in _widths(n)]


def _softmax_of(n: int, width: int) -> Any:
    p = np.exp(_floats(1, n, width))
    return p / p.sum(1, keepdims=True)


def _maps(n: int) -> tuple[int, ...]:
    """(N, C, H, W) of n elements or so."""
    channels = min(64, max(2, math.isqrt(n) // 4))
    batch = 4 if n >= 16 * channels else 2
    return batch, channels, max(1, n // (batch * channels)), 1


def _channels(n: int, count: int) -> list[Any]:
    return [np.abs(_floats(i, _maps(n)[1])) + np.float32(0.5) for i in range(count)]


def _groups(n: int) -> tuple[int, int, int]:
    return 2, 16, max(1, n // 32)


def _grouped_backward(n: int) -> list[tuple[Any, ...]]:
    x = _floats(0, *_groups(n))
    parts = x.reshape(2, 4, -1)
    mean, rstd = parts.mean(-1), 1 / (parts.std(-1) + np.float32(1e-3))
    return [(_floats(1, *x.shape), x, mean, rstd, _floats(2, 16), 4, 1e-5)]


def _layer_backward(n: int, width: int) -> tuple[Any, ...]:
    x = _floats(0, n, width)
    mean, rstd = x.mean(1, keepdims=True), 1 / (x.std(1, keepdims=True) + np.float32(1e-3))
    return _floats(1, n, width), x, mean, rstd, _floats(2, width), (width,), 1e-5


def _batch_backward(n: int) -> list[tuple[Any, ...]]:
    x = _floats(0, *_maps(n))
    mean, rstd = x.mean((0, 2, 3)), 1 / (x.std((0, 2, 3)) + np.float32(1e-3))
    return [(_floats(1, *x.shape), x, mean, rstd, _channels(n, 1)[0], 1e-5)]


def _slopes(n: int) -> Any:
    return _floats(2, 1, _maps(n)[1], 1, 1)


def _labels(n: int, classes: int) -> Any:
    return np.random.default_rng(3).integers(0, classes, n)


def _loss_backward(n: int, width: int) -> tuple[Any, ...]:
    return _softmax_of(n, width), np.array(1, np.float32), _labels(n, width), np.array(n, np.float32)


ELEMENTS = range(3, 11)  # 64 to 4 million

CASES: dict[str, tuple[range, Callable[[int], list[tuple[Any, ...]]]]] = {
    **{name: (ELEMENTS, _elements(arrays=2)) for name in ("add", "sub", "mul")},
    "plus_noisy": (ELEMENTS, _elements(arrays=3)),
    **{
        name: (ELEMENTS, _elements())
        for name in ("relu", "hardtanh", "sigmoid", "silu", "hardswish", "hardsigmoid", "gelu")
    },
    "leaky_relu": (ELEMENTS, _elements(0.01)),
    **{name: (ELEMENTS, _elements(arrays=2, positive=True)) for name in ("tanh_backward", "sigmoid_backward")},
    "threshold_backward": (ELEMENTS, _elements(0, arrays=2, positive=True)),
    **{name: (ELEMENTS, _elements(arrays=2)) for name in ("silu_backward", "mish_backward", "hardswish_backward")},
    "leaky_relu_backward": (ELEMENTS, _elements(0.01, arrays=2)),
    "gelu_backward": (ELEMENTS, _elements("none", arrays=2)),
    "elu_backward": (ELEMENTS, _elements(1.0, 1.0, 1.0, arrays=2)),
    "softplus_backward": (ELEMENTS, _elements(1.0, 20.0, arrays=2)),
    "inside_backward": (ELEMENTS, _elements(-1.0, 1.0, 1.0, arrays=2)),
    "prelu_kernel": (ELEMENTS, lambda n: [(_floats(0, *_maps(n)), _slopes(n))]),
    "prelu_backward": (ELEMENTS, lambda n: [(_floats(1, *_maps(n)), _floats(0, *_maps(n)), _slopes(n))]),
    "softmax": (ELEMENTS, _rows(lambda n, w: (_floats(0, n, w), 1))),
    "log_softmax": (ELEMENTS, _rows(lambda n, w: (_floats(0, n, w), 1))),
    "softmax_backward": (ELEMENTS, _rows(lambda n, w: (_floats(0, n, w), _softmax_of(n, w), 1))),
    "log_softmax_backward": (ELEMENTS, _rows(lambda n, w: (_floats(0, n, w), np.log(_softmax_of(n, w)), 1))),
    "softmax_nll_rows": (ELEMENTS, _rows(lambda n, w: (_floats(0, n, w), _labels(n, w)))),
    "softmax_nll_backward": (ELEMENTS, _rows(_loss_backward)),
    "native_layer_norm": (ELEMENTS, _rows(lambda n, w: (_floats(0, n, w), (w,), _floats(1, w), _floats(2, w), 1e-5))),
    "layer_norm_inference": (
        ELEMENTS,
        _rows(lambda n, w: (_floats(0, n, w), (w,), _floats(1, w), _floats(2, w), 1e-5)),
    ),
    "native_layer_norm_backward": (ELEMENTS, _rows(_layer_backward)),
    "batch_norm_train": (ELEMENTS, lambda n: [(_floats(0, *_maps(n)), *_channels(n, 2), 1e-5)]),
    "batch_norm_eval": (ELEMENTS, lambda n: [(_floats(0, *_maps(n)), *_channels(n, 4), 1e-5)]),
    "batch_norm_backward": (ELEMENTS, _batch_backward),
    "batch_norm_eval_backward": (
        ELEMENTS,
        lambda n: [(_floats(1, *_maps(n)), _floats(0, *_maps(n)), *_channels(n, 3), 1e-5)],
    ),
    "normalize_groups": (ELEMENTS, lambda n: [(_floats(0, *_groups(n)), 4, _floats(1, 16), _floats(2, 16), 1e-5)]),
    "native_group_norm_backward": (ELEMENTS, _grouped_backward),
    "sum": (ELEMENTS, _rows(lambda n, w: (_floats(0, n, w), 0))),
    "mean": (ELEMENTS, _rows(lambda n, w: (_floats(0, n, w), 0))),
    "sum_to_size": (ELEMENTS, _rows(lambda n, w: (_floats(0, n, w), (w,)))),
}


def names() -> list[str]:
    """The ops that can be measured."""
    return list(CASES)


# --- measuring


def run(ops: Iterable[str] | None = None, progress: Callable[[int, int, str], None] | None = None) -> list[Row]:
    """See `engine.backends.calibrate`."""
    wanted = list(CASES) if ops is None else list(ops)
    unknown = [name for name in wanted if name not in CASES]
    if unknown:
        raise ValueError(f"calibrate(): no kernels to choose from: {', '.join(unknown)}; there are {', '.join(CASES)}")
    choosing.onednn_kernels()  # so that its kernels are there
    found: list[Row] = []
    with np.errstate(all="ignore"):
        for i, name in enumerate(wanted):
            if progress is not None:
                progress(i, len(wanted), name)
            sizes, operands = CASES[name]
            found += [_row(name, k, operands) for k in sizes]
    routes.keep({name: {routes.size_class(r.elements): r.chosen for r in found if r.name == name} for name in wanted})
    return found


def _row(name: str, k: int, operands: Callable[[int], list[tuple[Any, ...]]]) -> Row:
    elements = 4**k
    cases = operands(2 * elements)
    differs = set()
    for args in cases:
        plain = OPS[name].kernel(np, *args)
        differs |= {to for to, call in _calls(name, args).items() if not _agree(call(), plain)}
    first = _measured(name, cases)
    static = _static(name, elements, first)
    best = _best(first, static, differs)
    if best != static and _best(_measured(name, cases), static, differs) != best:
        best = static  # not twice: noise
    return Row(name, elements, first, static, best, tuple(sorted(differs)))


def _static(name: str, elements: int, found: dict[str, float]) -> str:
    """The route that the op's own number gives."""
    if 2 * elements < OPS[name].large:
        return "numpy"
    return "onednn" if "onednn" in found else "blocks" if "blocks" in found else "numpy"


def _best(found: dict[str, float], static: str, differs: set[str]) -> str:
    allowed = {to: s for to, s in found.items() if to not in differs}
    best = min(allowed, key=lambda to: allowed[to])
    return best if allowed[best] < MARGIN * found[static] else static


def _calls(name: str, args: tuple[Any, ...]) -> dict[str, Callable[[], Any]]:
    """The routes that serve these operands."""
    record = OPS[name]
    found: dict[str, Callable[[], Any]] = {"numpy": lambda: record.kernel(np, *args)}
    blocks = providers.blocks(record)
    found["blocks"] = lambda: blocks(np, *args)
    variant = record.kernels.get("onednn") if choosing.onednn_kernels() else None
    if variant is not None and variant(np, *args) is not NotImplemented:
        found["onednn"] = lambda: variant(np, *args)
    return found


def _measured(name: str, cases: list[tuple[Any, ...]]) -> dict[str, float]:
    """Seconds of each route: the least of calls in turns, the geometric mean over the cases."""
    each = [_timed(_calls(name, args)) for args in cases]
    alike = [to for to in ROUTES if all(to in one for one in each)]
    return {to: math.exp(sum(math.log(one[to]) for one in each) / len(each)) for to in alike}


def _timed(calls: dict[str, Callable[[], Any]]) -> dict[str, float]:
    trial = Trial(calls, Terms(FEWEST, ROUNDS, ENOUGH * len(calls))).run(calls)
    return {to: trial.seconds(to) for to in calls}


def _agree(found: Any, wanted: Any) -> bool:
    """Return whether two results are the same within the tolerance of their dtype and number of terms."""
    if isinstance(wanted, tuple | list):
        return len(found) == len(wanted) and all(map(_agree, found, wanted))
    if wanted is None or found is None:
        return wanted is found
    x, y = (np.asarray(a, np.float64) for a in (found, wanted))
    if x.shape != y.shape:
        return False
    largest = max(1.0, float(np.abs(y).max(initial=0.0)))
    return bool((np.abs(x - y) <= routes.TOLERANCE * largest).all())
