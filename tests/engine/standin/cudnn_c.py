"""libcudnn on the stand-in: the C functions of `engine.backends.cuda.cudnn.SIGNATURES`, every argument checked,
pooling and recurrent networks computed by numpy from the descriptors alone."""

from __future__ import annotations

import ctypes
import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.backends.cuda.cudnn import SIGNATURES
from tests.engine.standin import cudnn_networks as networks
from tests.engine.standin import machine
from tests.engine.standin.cudnn_graphs import array_at, done
from tests.engine.standin.machine import here

VERSION = 92700
BAD, UNSUPPORTED = 2000, 3000  # CUDNN_STATUS_BAD_PARAM, CUDNN_STATUS_NOT_SUPPORTED

_numbers = itertools.count(1)


@dataclass
class Thing:
    """What a descriptor or handle holds."""

    kind: str
    values: dict[str, Any] = field(default_factory=dict)


things: dict[int, Thing] = {}


def reset() -> None:
    """No handle and no descriptor is left."""
    things.clear()
    networks.inputs.clear()
    networks.pending.clear()


def check_handle(handle: Any) -> Thing:
    """A handle of the current device whose stream is the current one."""
    found = things.get(handle)
    assert found is not None and found.kind == "handle", f"{handle} is no handle of cuDNN"
    assert found.values["device"] == here.device, "the handle is another device's"
    assert found.values.get("stream") == machine.current_stream().ptr, "cuDNN works on another stream"
    return found


def _dtype(code: int) -> np.dtype:
    import ml_dtypes

    return np.dtype({0: np.float32, 1: np.float64, 2: np.float16, 9: ml_dtypes.bfloat16}[code])


def _made(kind: str, out: Any, **values: Any) -> int:
    number = next(_numbers) * 64
    things[number] = Thing(kind, values)
    out._obj.value = number
    return 0


def _of(kind: str, number: Any) -> dict[str, Any]:
    found = things.get(number)
    assert found is not None and found.kind == kind, f"{number} is no {kind} descriptor"
    return found.values


def _whole(value: Any, letter: str) -> bool:
    if letter == "p":
        return value is None or isinstance(value, int) or hasattr(value, "_obj") or hasattr(value, "_length_")
    if letter == "f":
        return isinstance(value, float | int)
    limit = {"i": 31, "u": 32, "z": 64, "q": 64}[letter]
    return isinstance(value, int) and -(1 << 31 if letter == "i" else 0) <= value < 1 << limit


class Library:
    """The functions; each is given what ctypes would be."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name not in SIGNATURES:
            raise AttributeError(f"undefined symbol: {name}")
        letters = SIGNATURES[name]
        function = globals().get("_" + name)
        if function is None:
            kind = name.removeprefix("cudnnCreate").removeprefix("cudnnDestroy").removesuffix("Descriptor")
            if name.startswith("cudnnCreate"):

                def function(out: Any) -> int:
                    return _made(kind, out)
            else:

                def function(number: int) -> int:
                    _of(kind, number)
                    del things[number]
                    return 0

        def call(*args: Any) -> Any:
            assert len(args) == len(letters), f"{name} takes {len(letters)} arguments, not {len(args)}"
            wrong = [i for i, (a, c) in enumerate(zip(args, letters)) if not _whole(a, c)]
            assert not wrong, f"{name}: arguments {wrong} are not what C expects"
            self.calls.append(name)
            return function(*args)

        return call


def _cudnnCreate(out: Any) -> int:
    return _made("handle", out, device=here.device)


def _cudnnDestroy(handle: int) -> int:
    del things[handle]
    return 0


def _cudnnSetStream(handle: int, stream: int) -> int:
    _of("handle", handle)["stream"] = stream
    return 0


def _cudnnGetVersion() -> int:
    return VERSION


def _cudnnGetErrorString(status: int) -> bytes:
    return {BAD: b"CUDNN_STATUS_BAD_PARAM", UNSUPPORTED: b"CUDNN_STATUS_NOT_SUPPORTED"}[status]


def _cudnnSetTensorNdDescriptor(number: int, dtype: int, count: int, dims: Any, strides: Any) -> int:
    dims, strides = list(dims), list(strides)
    if not 3 <= count <= 8 or len(dims) != count or len(strides) != count or min(dims) < 1 or min(strides) < 1:
        return BAD
    _of("Tensor", number).update(dtype=_dtype(dtype), dims=dims, strides=strides)
    return 0


def _cudnnGetTensorNdDescriptor(number: int, room_: int, dtype: Any, count: Any, dims: Any, strides: Any) -> int:
    found = _of("Tensor", number)
    count._obj.value = len(found["dims"])
    for i, (n, s) in enumerate(zip(found["dims"][:room_], found["strides"])):
        dims[i], strides[i] = n, s
    return 0


# --- pooling


def _cudnnSetPoolingNdDescriptor(
    number: int, mode: int, nan: int, count: int, window: Any, padding: Any, stride: Any
) -> int:
    values = [list(v) for v in (window, padding, stride)]
    if mode not in (0, 1, 2, 3) or nan not in (0, 1) or not all(len(v) == count for v in values):
        return BAD
    if any(p >= w for w, p in zip(*values[:2])) or min(values[2]) < 1:
        return BAD
    _of("Pooling", number).update(mode=mode, nan=nan, window=values[0], padding=values[1], stride=values[2])
    return 0


def _one_and_nothing(alpha: Any, beta: Any, dtype: np.dtype) -> None:
    number = ctypes.c_double if dtype == np.float64 else ctypes.c_float
    for given, wanted in ((alpha, 1), (beta, 0)):
        assert isinstance(given._obj, number) and given._obj.value == wanted


def _pooled(p: dict[str, Any], x: dict[str, Any], y: dict[str, Any]) -> bool:
    out = [(n + 2 * q - w) // s + 1 for n, w, q, s in zip(x["dims"][2:], p["window"], p["padding"], p["stride"])]
    return y["dims"] == [*x["dims"][:2], *out] and x["dtype"] == y["dtype"] and len(x["dims"]) in (4, 5)


def _at(address: int, how: dict[str, Any], output: bool = False) -> Any:
    return array_at(address, how["dims"], how["strides"], how["dtype"], output)


def _windows(p: dict[str, Any], x: np.ndarray, fill: float) -> tuple[np.ndarray, np.ndarray]:
    """(N, C, *out, elements of a window), and the flat place in x of each, -1 in the padding."""
    places = np.arange(int(np.prod(x.shape[2:]))).reshape(1, 1, *x.shape[2:])
    pads = [(0, 0), (0, 0), *((q, q) for q in p["padding"])]
    axes = tuple(range(2, x.ndim))
    found = []
    for a, with_ in ((x, fill), (places, -1)):
        a = np.pad(a, pads, constant_values=with_)
        a = np.lib.stride_tricks.sliding_window_view(a, p["window"], axes)
        a = a[(slice(None), slice(None), *(slice(None, None, s) for s in p["stride"]))]
        found.append(a.reshape(*a.shape[: x.ndim], -1))
    return found[0], found[1]


def _cudnnPoolingForward(
    handle: int, pool: int, alpha: Any, x_desc: int, x: int, beta: Any, y_desc: int, y: int
) -> int:
    check_handle(handle)
    p, of_x, of_y = _of("Pooling", pool), _of("Tensor", x_desc), _of("Tensor", y_desc)
    if not _pooled(p, of_x, of_y):
        return BAD
    _one_and_nothing(alpha, beta, of_x["dtype"])
    (source, m), (target, n) = _at(x, of_x), _at(y, of_y, True)

    def work() -> None:
        values = source.astype(np.float64)
        if p["mode"] in (0, 3):
            seen, _ = _windows(p, values, -np.inf)
            target[...] = seen.max(-1) if p["nan"] else np.fmax.reduce(seen, -1)
        else:
            seen, places = _windows(p, values, 0)
            count = places.shape[-1] if p["mode"] == 1 else (places >= 0).sum(-1)
            target[...] = seen.sum(-1) / count

    done(work, [m], [n], 0, 0)
    return 0


def _cudnnPoolingBackward(
    handle: int,
    pool: int,
    alpha: Any,
    y_desc: int,
    y: int,
    dy_desc: int,
    dy: int,
    x_desc: int,
    x: int,
    beta: Any,
    dx_desc: int,
    dx: int,
) -> int:
    check_handle(handle)
    p = _of("Pooling", pool)
    of_y, of_dy, of_x, of_dx = (_of("Tensor", d) for d in (y_desc, dy_desc, x_desc, dx_desc))
    if not _pooled(p, of_x, of_y) or of_dy["dims"] != of_y["dims"] or of_dx["dims"] != of_x["dims"]:
        return BAD
    if of_dy["strides"] != of_y["strides"] or of_dx["strides"] != of_x["strides"]:
        return UNSUPPORTED
    _one_and_nothing(alpha, beta, of_x["dtype"])
    (_, a), (g, b), (source, c), (target, d) = _at(y, of_y), _at(dy, of_dy), _at(x, of_x), _at(dx, of_dx, True)

    def work() -> None:
        values, made = source.astype(np.float64), np.zeros((*of_x["dims"][:2], int(np.prod(of_x["dims"][2:]))))
        is_max = p["mode"] in (0, 3)
        seen, places = _windows(p, values, -np.inf if is_max else 0)
        grads = g.astype(np.float64)
        places = np.broadcast_to(places, seen.shape)
        if is_max:
            first = np.where(np.isnan(seen).any(-1), np.isnan(seen).argmax(-1), seen.argmax(-1))
            chosen = np.take_along_axis(places, first[..., None], -1)
            share = grads[..., None]
        else:
            count = places.shape[-1] if p["mode"] == 1 else (places >= 0).sum(-1)
            chosen, share = places, np.broadcast_to((grads / count)[..., None], places.shape)
        rows = np.broadcast_to(
            np.arange(made.shape[0] * made.shape[1]).reshape(*made.shape[:2], *(1,) * (chosen.ndim - 2)), chosen.shape
        )
        inside = chosen >= 0
        np.add.at(made.reshape(-1), (rows * made.shape[2] + chosen)[inside], share[inside])
        target[...] = made.reshape(target.shape)

    done(work, [a, b, c], [d], 0, 0)
    return 0


# --- recurrent networks


def _cudnnSetDropoutDescriptor(number: int, handle: int, rate: float, states: Any, size: int, seed: int) -> int:
    check_handle(handle)
    if rate and not states:
        return BAD
    _of("Dropout", number).update(rate=rate)
    return 0


def _cudnnSetRNNDescriptor_v8(number: int, *args: Any) -> int:
    *about, dropout, flags = args
    assert _of("Dropout", dropout)["rate"] == 0
    network = networks.set_network(*about, flags)
    if network is None:
        return UNSUPPORTED
    _of("RNN", number)["network"] = network
    return 0


def _cudnnSetRNNDataDescriptor(
    number: int, code: int, layout: int, longest: int, count: int, width: int, lengths: Any, fill: Any
) -> int:
    lengths = list(lengths)
    if layout != 1 or len(lengths) != count or max(lengths) != longest or min(lengths) < 1 or width < 1:
        return BAD
    if lengths != sorted(lengths, reverse=True):  # the packed layout wants the longest first
        return BAD
    _of("RNNData", number).update(code=code, lengths=lengths, width=width)
    return 0


def _cudnnGetRNNWeightSpaceSize(handle: int, rnn: int, size: Any) -> int:
    check_handle(handle)
    size._obj.value = _of("RNN", rnn)["network"].size
    return 0


def _cudnnGetRNNTempSpaceSizes(handle: int, rnn: int, mode: int, x: int, work: Any, reserve: Any) -> int:
    check_handle(handle)
    assert _of("RNNData", x)["width"] == _of("RNN", rnn)["network"].inputs
    work._obj.value, reserve._obj.value = networks.WORKSPACE, networks.RESERVE if mode else 0
    return 0


def _cudnnGetRNNWeightParams(
    handle: int, rnn: int, cell: int, size: int, base: int, number: int, matrix: int, at: Any, bias: int, bias_at: Any
) -> int:
    check_handle(handle)
    n = _of("RNN", rnn)["network"]
    if size != n.size or not 0 <= cell < n.layers * n.directions or not 0 <= number < len(n.places[cell]):
        return BAD
    place, (rows, columns) = n.places[cell][number]
    dtype = networks.dtype_of(n.code)
    at._obj.value = base + place
    _of("Tensor", matrix).update(dtype=dtype, dims=[1, rows, columns], strides=[rows * columns, columns, 1])
    given = n.biases[cell]
    bias_at._obj.value = base + given[number] if number < len(given) else None
    _of("Tensor", bias).update(dtype=dtype, dims=[1, n.hidden, 1] if given else [], strides=[n.hidden, 1, 1])
    return 0


def _shared(rnn: int, x: int, y: int, h: int, c: Any, ends: Any, train: bool) -> networks.Call:
    weights, space, work, work_at, reserve, reserve_at = ends
    return networks.Call(
        _of("RNN", rnn)["network"],
        _of("RNNData", x),
        _of("RNNData", y),
        _of("Tensor", h),
        _of("Tensor", h if c is None else c),
        (weights, space),
        (work, work_at),
        (reserve, reserve_at),
        train,
    )


def _cudnnRNNForward(
    handle: int,
    rnn: int,
    mode: int,
    lengths: Any,
    x_desc: int,
    x: int,
    y_desc: int,
    y: int,
    h_desc: int,
    h: Any,
    hy: Any,
    c_desc: int,
    c: Any,
    cy: Any,
    *ends: Any,
) -> int:
    check_handle(handle)
    call = _shared(rnn, x_desc, y_desc, h_desc, c_desc, ends, mode == 1)
    return networks.forward(call, mode, x, y, h, hy, c, cy)


def _cudnnRNNBackwardData_v8(
    handle: int,
    rnn: int,
    lengths: Any,
    y_desc: int,
    y: int,
    dy: int,
    x_desc: int,
    dx: int,
    h_desc: int,
    h: Any,
    dhy: Any,
    dhx: Any,
    c_desc: int,
    c: Any,
    dcy: Any,
    dcx: Any,
    *ends: Any,
) -> int:
    check_handle(handle)
    call = _shared(rnn, x_desc, y_desc, h_desc, c_desc, ends, True)
    return networks.backward_data(call, y, dy, dx, h, dhy, dhx, c, dcy, dcx)


def _cudnnRNNBackwardWeights_v8(
    handle: int,
    rnn: int,
    add: int,
    lengths: Any,
    x_desc: int,
    x: int,
    h_desc: int,
    h: Any,
    y_desc: int,
    y: int,
    *ends: Any,
) -> int:
    check_handle(handle)
    if add != 0:
        return UNSUPPORTED
    network = _of("RNN", rnn)["network"]
    of_h = _of("Tensor", h_desc)
    cells = {**of_h, "dims": [*of_h["dims"][:2], network.hidden]}
    cells["strides"] = [cells["dims"][1] * network.hidden, network.hidden, 1]
    weights, space, work, work_at, reserve, reserve_at = ends
    call = networks.Call(
        network,
        _of("RNNData", x_desc),
        _of("RNNData", y_desc),
        of_h,
        cells,
        (weights, space),
        (work, work_at),
        (reserve, reserve_at),
        True,
    )
    return networks.backward_weights(call, x, h, y)
