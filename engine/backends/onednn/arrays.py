"""Products, norms, pooling, softmax and element-wise functions on float32 arrays of any strides.

Each function writes into arrays the caller made and returns False, nothing written, where oneDNN has no fast kernel.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from engine.backends.cpu import empty
from engine.backends.onednn import _abi, library
from engine.backends.onednn.primitives import (
    Desc,
    Primitive,
    PrimitiveDesc,
    Unsupported,
    activation_desc,
    address,
    attributes,
    desc_of,
    null,
    primitive,
    ready,
    reorder_between,
    strides_of,
    use_threads,
)


def _desc(array: np.ndarray) -> Desc:
    element = _abi.F32 if array.itemsize == 4 else _abi.F16 if array.dtype.kind == "f" else _abi.BF16
    return Desc(array.shape, strides_of(array), element)


def reorder(source: np.ndarray, target: np.ndarray) -> bool:
    """target[...] = source for two layouts of one shape."""
    key = ("reorder", source.shape, source.strides, target.strides)
    found = primitive(key, lambda: reorder_between(_desc(source), _desc(target)))
    if found is None:
        return False
    found(address(source), address(target))
    return True


# --- products


def _matrix(a: np.ndarray) -> tuple[bytes, int] | None:
    """(transposed or not, leading dimension) of a 2-d array as BLAS reads it; None if it cannot."""
    (n, m), (r, c) = a.shape, a.strides
    if c == 4 and (r >= 4 * m or n == 1) and not r % 4:
        return b"N", max(r // 4, m, 1)
    if r == 4 and (c >= 4 * n or m == 1) and not c % 4:
        return b"T", max(c // 4, n, 1)
    return None


# Without AVX-512 oneDNN reads a transposed left operand place by place down its columns.  Where its rows lie a multiple
# of 4 KiB apart they all fall into the same few lines of the cache: the gradient of the weights of an LSTM of 256
# (1024 x 1024 with 1024 x 256) takes 15 ms, and 8 with rows that lie 64 bytes further apart, copy included;
# half of 4 KiB apart, as for layers of 512, three quarters.
# The right operand of a product of few rows is read so, too (of many rows it is packed first): by 16 rows a matrix of
# width 1024 or 2048 takes two to three times as long as one of rows further apart, by 128 one of 512 1.4 times.
_HALF = 512  # elements of float32, so far apart that every other row falls into the same lines
_FEW = range(16, 385)  # rows whose right operand is read as it is laid out, and that pay for a copy of it


@functools.cache
def _wide() -> bool:
    return (library.instructions() or "AVX512").startswith(("AVX512", "AVX10"))


def _spread(a: np.ndarray) -> np.ndarray:
    """A copy of a transposed matrix (n, m) whose columns are further apart in memory."""
    n, m = a.shape
    rows = empty((m, n + 16), np.float32)[:, :n]
    rows[...] = a.T
    return rows.T


def spread(b: np.ndarray, n: int) -> np.ndarray:
    """The right operand (k, m) of a product of n rows: itself, or where that pays a copy with rows further apart."""
    if n not in _FEW or b.strides[1] != 4 or b.strides[0] % (4 * _HALF) or min(b.shape) < 64 or _wide():
        return b
    return _spread(b.T).T


def sgemm(a: np.ndarray, b: np.ndarray, out: np.ndarray, alpha: float = 1.0, beta: float = 0.0) -> bool:
    """out (n, m) = alpha a (n, k) @ b (k, m) + beta out; transposed operands are read as they lie."""
    left, right, target = _matrix(a), _matrix(b), _matrix(out)
    if left is None or right is None or target is None or target[0] != b"N":
        return False
    if not ready():
        return False
    if left[0] == b"T" and not left[1] % _HALF and b.shape[1] >= 64 and a.shape[1] >= 64 and not _wide():
        a = _spread(a)
        left = b"T", a.strides[1] // 4
    if right[0] == b"N" and not right[1] % _HALF:
        further = spread(b, a.shape[0])
        if further is not b:
            b, right = further, (b"N", further.strides[0] // 4)
    use_threads(a.shape[0] * a.shape[1] * b.shape[1] / 32)
    status = library.state.library.dnnl_sgemm(
        left[0], right[0], a.shape[0], b.shape[1], a.shape[1], alpha, address(a), left[1], address(b), right[1],
        beta, address(out), target[1],
    )  # fmt: skip
    return status == 0


def gemm_u8s8(a: np.ndarray, b: np.ndarray, zero: int) -> np.ndarray | None:
    """(a - zero) @ b.T in int32, of uint8 a (n, k) and int8 b (m, k), both contiguous; None where oneDNN is not.

    Values of `a` above 127 may overflow on processors without VNNI, which add pairs of products in 16 bits.
    """
    if not ready():
        return None
    (n, k), m = a.shape, b.shape[0]
    out = np.empty((n, m), np.int32)
    use_threads(n * m * k / 64)
    none = library.state.ffi.new("int32_t *", 0)
    status = library.state.library.dnnl_gemm_u8s8s32(
        b"N", b"T", b"F", n, m, k, 1.0, address(a), k, zero, address(b), k, 0, 0.0, address(out), m, none
    )
    return out if status == 0 else None


@functools.lru_cache(16)
def _ones(count: int) -> np.ndarray:
    ones = np.ones((1, count), np.float32)
    ones.flags.writeable = False
    return ones


def column_sums(rows: np.ndarray, out: np.ndarray) -> bool:
    """out (m) = the sum over the rows of a matrix (n, m): a product with ones, far faster than numpy's sum."""
    return sgemm(_ones(rows.shape[0]), rows, out.reshape(1, -1))


def matmul(a: np.ndarray, b: np.ndarray, out: np.ndarray, bias: np.ndarray | None = None, post: tuple = ()) -> bool:
    """out = a @ b (+ bias) for arrays of one rank; batch dims of size 1 broadcast.  (..., n, k), (..., k, m).

    float32, or all of one 16-bit type.
    """
    key = (
        "matmul",
        a.dtype.char,
        a.shape,
        a.strides,
        b.shape,
        b.strides,
        out.strides,
        None if bias is None else (bias.shape, bias.strides),
        post,
    )

    def make() -> Primitive:
        x, w, y = _desc(a), _desc(b), _desc(out)
        descs = {_abi.SRC: x, _abi.WEIGHTS: w, _abi.DST: y}
        if bias is not None:
            descs[_abi.BIAS] = _desc(bias)
        return Primitive(
            PrimitiveDesc(
                "matmul",
                x,
                w,
                descs.get(_abi.BIAS, null()),
                y,
                attributes(post),
                work=out.size * a.shape[-1] / 32,
            ),
            descs,
        )

    found = primitive(key, make)
    if found is None:
        return False
    given = [a, b, out] if bias is None else [a, b, out, bias]
    if a.itemsize == 2:
        given = [x.view(np.uint16) for x in given]  # whose memory cffi can see
    found(*map(address, given))
    return True


# --- norms


_PLAIN_FEW = 1 << 12  # elements up to which oneDNN's batch norm of planes costs less than numpy's calls
_PLAIN_THREADS = 4  # up to which numpy, on one, is faster on more: 2 to 5 times, measured


def slow_planes(x: np.ndarray) -> bool:
    """Return whether numpy is faster: oneDNN has no vector code for batch norm of (N, C, *size) that is not
    channels-last.
    """
    return x.ndim > 2 and x.size > _PLAIN_FEW and x.flags.c_contiguous and library.thread_count() <= _PLAIN_THREADS


def _refuse_plain(plan: PrimitiveDesc, x: np.ndarray) -> None:
    """Raises Unsupported where oneDNN would take its code for planes, and that is slow."""
    if plan.implementation.startswith("ncsp") and slow_planes(x):
        raise Unsupported(f"oneDNN: {plan.implementation} is slower than numpy")


def batch_norm(
    x: np.ndarray,
    out: np.ndarray,
    mean: np.ndarray,
    var: np.ndarray,
    scale: np.ndarray,
    shift: np.ndarray,
    eps: float,
    given: bool,
) -> bool:
    """out = (x - mean) / sqrt(var + eps) * scale + shift by channel; mean and var (C) are read if `given`, else made.

    x (N, C, *size); var is the biased variance.
    """
    key = ("batch_norm", x.shape, x.strides, out.strides, eps, given)

    def make() -> Primitive:
        flags = _abi.USE_SCALE | _abi.USE_SHIFT | (_abi.GLOBAL_STATS if given else 0)
        source, target, each = activation_desc(x), activation_desc(out), desc_of(mean.shape, (1,))
        mode = _abi.INFERENCE if given else _abi.TRAINING
        plan = PrimitiveDesc("batch_normalization_forward", mode, source, target, eps, flags, attributes())
        _refuse_plain(plan, x)
        descs = {_abi.SRC: source, _abi.DST: target}
        descs |= dict.fromkeys((_abi.MEAN, _abi.VARIANCE, _abi.SCALE, _abi.SHIFT), each)
        return Primitive(plan, descs)

    found = primitive(key, make)
    if found is None:
        return False
    found(*map(address, (x, out, mean, var, scale, shift)))
    return True


def batch_norm_backward(
    grad: np.ndarray,
    x: np.ndarray,
    mean: np.ndarray,
    var: np.ndarray,
    scale: np.ndarray,
    of_x: np.ndarray,
    of_scale: np.ndarray,
    of_shift: np.ndarray,
    eps: float,
    given: bool = False,
) -> bool:
    """The gradients of `batch_norm`; `given`: mean and var (C) are constants, else the batch's own, var biased."""
    key = ("batch_norm_backward", x.shape, x.strides, grad.strides, of_x.strides, eps, given)

    def make() -> Primitive:
        flags = _abi.USE_SCALE | _abi.USE_SHIFT | (_abi.GLOBAL_STATS if given else 0)
        source, each = activation_desc(x), desc_of(mean.shape, (1,))
        hint = PrimitiveDesc(
            "batch_normalization_forward", _abi.TRAINING, source, source, eps, flags, attributes(), hint=True
        )
        of_source, of_target = activation_desc(of_x), activation_desc(grad)
        plan = PrimitiveDesc(
            "batch_normalization_backward",
            _abi.BACKWARD,
            of_source,
            of_target,
            source,
            eps,
            flags,
            hint,
            attributes(),
        )
        _refuse_plain(plan, x)
        descs = {_abi.SRC: source, _abi.DIFF_DST: of_target, _abi.DIFF_SRC: of_source}
        descs |= dict.fromkeys((_abi.MEAN, _abi.VARIANCE, _abi.SCALE), each)
        return Primitive(plan, descs | dict.fromkeys((_abi.DIFF_SCALE, _abi.DIFF_SHIFT), each))

    found = primitive(key, make)
    if found is None:
        return False
    found(*map(address, (x, grad, of_x, mean, var, scale, of_scale, of_shift)))
    return True


def _rows(n: int, d: int) -> Desc:
    return desc_of((n, d), (d, 1))


def layer_norm(
    x: np.ndarray, out: np.ndarray, mean: np.ndarray, var: np.ndarray, scale: np.ndarray, shift: np.ndarray, eps: float
) -> bool:
    """out = (x - mean) / sqrt(var + eps) * scale + shift by row; makes mean and var.

    n rows of d elements, all contiguous: x and out n d elements in whatever shape, mean and var n, scale and shift d.
    """
    key = ("layer_norm", mean.size, scale.size, eps)

    def make() -> Primitive:
        source = target = _rows(mean.size, scale.size)
        stat, each = _line(mean), _line(scale)
        flags = _abi.USE_SCALE | _abi.USE_SHIFT
        plan = PrimitiveDesc(
            "layer_normalization_forward", _abi.TRAINING, source, target, stat, eps, flags, attributes()
        )
        descs = {_abi.SRC: source, _abi.DST: target, _abi.MEAN: stat, _abi.VARIANCE: stat}
        return Primitive(plan, descs | dict.fromkeys((_abi.SCALE, _abi.SHIFT), each))

    found = primitive(key, make)
    if found is None:
        return False
    found(*map(address, (x, out, mean, var, scale, shift)))
    return True


def layer_norm_backward(
    grad: np.ndarray,
    x: np.ndarray,
    mean: np.ndarray,
    var: np.ndarray,
    scale: np.ndarray,
    of_x: np.ndarray,
    of_scale: np.ndarray,
    of_shift: np.ndarray,
    eps: float,
) -> bool:
    """The gradients of `layer_norm`, in arrays as it takes them."""
    key = ("layer_norm_backward", mean.size, scale.size, eps)

    def make() -> Primitive:
        source = of_target = of_source = _rows(mean.size, scale.size)
        stat, each, flags = _line(mean), _line(scale), _abi.USE_SCALE | _abi.USE_SHIFT
        hint = PrimitiveDesc(
            "layer_normalization_forward", _abi.TRAINING, source, source, stat, eps, flags, attributes(), hint=True
        )
        plan = PrimitiveDesc(
            "layer_normalization_backward",
            _abi.BACKWARD,
            of_source,
            of_target,
            source,
            stat,
            eps,
            flags,
            hint,
            attributes(),
        )
        descs = {_abi.SRC: source, _abi.DIFF_DST: of_target, _abi.DIFF_SRC: of_source}
        descs |= {_abi.MEAN: stat, _abi.VARIANCE: stat}
        # version 3.2 wants the shift too, though no gradient depends on it
        names = (_abi.SCALE, _abi.SHIFT, _abi.DIFF_SCALE, _abi.DIFF_SHIFT)
        return Primitive(plan, descs | dict.fromkeys(names, each))

    found = primitive(key, make)
    if found is None:
        return False
    found(*map(address, (x, grad, of_x, mean, var, scale, scale, of_scale, of_shift)))
    return True


# --- pooling


def _windows(x: np.ndarray, y: np.ndarray, kernel: Any, stride: Any, padding: Any, dilation: Any) -> list:
    right = [
        (m - 1) * s + d * (k - 1) + 1 - n - p
        for n, m, k, s, p, d in zip(x.shape[2:], y.shape[2:], kernel, stride, padding, dilation)
    ]
    return [list(stride), list(kernel), [d - 1 for d in dilation], list(padding), right]


def pooling(
    x: np.ndarray,
    out: np.ndarray,
    algorithm: int,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    keep: bool = False,
) -> Any:
    """out (N, C, *out) = the maximum or mean of each window of x (N, C, *size); False, or True.

    `keep`: of a maximum, the workspace that `pooling_backward` reads (bytes) instead of True.
    """
    key = (
        "pooling",
        x.shape,
        x.strides,
        out.strides,
        algorithm,
        kernel,
        stride,
        padding,
        dilation,
        keep,
    )

    def make() -> Primitive:
        source, target = activation_desc(x), activation_desc(out)
        mode = _abi.TRAINING if keep else _abi.INFERENCE
        windows = _windows(x, out, kernel, stride, padding, dilation)
        plan = PrimitiveDesc("pooling_forward", mode, algorithm, source, target, *windows, attributes())
        descs = {_abi.SRC: source, _abi.DST: target}
        if keep:
            descs[_abi.WORKSPACE] = plan.desc(_abi.WORKSPACE_MD)
        return Primitive(plan, descs, saved=descs[_abi.WORKSPACE].nbytes if keep else 0)

    found = primitive(key, make)
    if found is None:
        return False
    if not keep:
        found(address(x), address(out))
        return True
    saved = np.empty(found.extra["saved"], np.uint8)
    found(address(x), address(out), address(saved))
    return saved


def pooling_backward(
    grad: np.ndarray,
    of_x: np.ndarray,
    algorithm: int,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    saved: np.ndarray | None = None,
) -> bool:
    """of_x (N, C, *size) = the gradient of `pooling`; `saved` is its workspace."""
    key = ("pooling_backward", of_x.shape, of_x.strides, grad.strides, algorithm, kernel, stride, padding, dilation,
           saved is None)  # fmt: skip

    def make() -> Primitive:
        source, target = activation_desc(of_x), activation_desc(grad)
        windows = _windows(of_x, grad, kernel, stride, padding, dilation)
        hint = PrimitiveDesc(
            "pooling_forward", _abi.TRAINING, algorithm, source, target, *windows, attributes(), hint=True
        )
        plan = PrimitiveDesc("pooling_backward", algorithm, source, target, *windows, hint, attributes())
        descs = {_abi.DIFF_DST: target, _abi.DIFF_SRC: source}
        if saved is not None:
            descs[_abi.WORKSPACE] = plan.desc(_abi.WORKSPACE_MD)
        return Primitive(plan, descs)

    found = primitive(key, make)
    if found is None:
        return False
    more = [] if saved is None else [address(saved)]
    found(address(grad), address(of_x), *more)
    return True


# --- softmax


_LONG = 8192  # elements a lane: of what oneDNN sums one after another, more have lost 2e-5 of the sum


def long_row(length: int) -> bool:
    """Return whether softmax of a row loses too much of its sum."""
    return length > _LONG * _lanes()


@functools.cache
def _lanes() -> int:
    """Return the number of partial sums of a row that softmax computes side by side."""
    name = library.instructions() or ""
    return 16 if name.startswith("AVX512") else 8 if name.startswith("AVX2") else 4


def softmax(x: np.ndarray, out: np.ndarray, dim: int, log: bool) -> bool:
    """out = softmax (or its logarithm) of x along `dim`."""
    long = long_row(x.shape[dim])
    if long and (log or dim != x.ndim - 1):
        return False
    key = ("softmax", x.shape, x.strides, out.strides, dim, log)

    def make() -> Primitive:
        source, target = _desc(x), _desc(out)
        kind = _abi.LOG_SOFTMAX if log else _abi.SOFTMAX
        plan = PrimitiveDesc("softmax_forward", _abi.INFERENCE, kind, source, target, dim, attributes())
        return Primitive(plan, {_abi.SRC: source, _abi.DST: target})

    found = primitive(key, make)
    if found is None:
        return False
    found(address(x), address(out))
    if long:
        out /= np.add.reduce(out, axis=dim, keepdims=True)  # numpy sums pairwise
    return True


def softmax_backward(grad: np.ndarray, y: np.ndarray, out: np.ndarray, dim: int, log: bool) -> bool:
    """out = the gradient of `softmax` given its result y."""
    key = ("softmax_backward", y.shape, y.strides, grad.strides, out.strides, dim, log)

    def make() -> Primitive:
        result, of_result, of_source = _desc(y), _desc(grad), _desc(out)
        kind = _abi.LOG_SOFTMAX if log else _abi.SOFTMAX
        hint = PrimitiveDesc("softmax_forward", _abi.TRAINING, kind, of_source, result, dim, attributes(), hint=True)
        plan = PrimitiveDesc("softmax_backward", kind, of_source, of_result, result, dim, hint, attributes())
        return Primitive(plan, {_abi.DST: result, _abi.DIFF_DST: of_result, _abi.DIFF_SRC: of_source})

    found = primitive(key, make)
    if found is None:
        return False
    found(address(y), address(grad), address(out))
    return True


# --- element-wise


def _line(array: np.ndarray) -> Desc:
    """A dense array as one line: element-wise kernels do not care about dims."""
    return desc_of((array.size,), (1,)) if array.itemsize == 4 else _desc(array.view(np.ndarray).reshape(-1, order="A"))


def _start(array: np.ndarray) -> Any:
    """The address of an array; of 16-bit floats through integers, whose memory cffi can see."""
    return address(array) if array.itemsize == 4 else address(array.view(np.uint16))


def eltwise(x: np.ndarray, out: np.ndarray, algorithm: int, alpha: float = 0.0, beta: float = 0.0) -> bool:
    """out = f(x) for dense arrays that lie alike."""
    key = ("eltwise", x.size, algorithm, alpha, beta, x.dtype.str)

    def make() -> Primitive:
        line = _line(x)
        plan = PrimitiveDesc("eltwise_forward", _abi.INFERENCE, algorithm, line, line, alpha, beta, attributes())
        return Primitive(plan, {_abi.SRC: line, _abi.DST: line})

    found = primitive(key, make)
    if found is None:
        return False
    found(_start(x), _start(out))
    return True


def eltwise_backward(
    grad: np.ndarray, data: np.ndarray, out: np.ndarray, algorithm: int, alpha: float = 0.0, beta: float = 0.0
) -> bool:
    """out = grad * f'(data) for dense arrays that lie alike; data is the result for `..._RESULT` algorithms."""
    key = ("eltwise_backward", data.size, algorithm, alpha, beta, data.dtype.str)
    of_result = algorithm in (_abi.RELU_RESULT, _abi.TANH_RESULT, _abi.LOGISTIC_RESULT)

    def make() -> Primitive:
        line = _line(data)
        hint = PrimitiveDesc(
            "eltwise_forward", _abi.TRAINING, algorithm, line, line, alpha, beta, attributes(), hint=True
        )
        plan = PrimitiveDesc("eltwise_backward", algorithm, line, line, line, alpha, beta, hint, attributes())
        which = _abi.DST if of_result else _abi.SRC
        return Primitive(plan, {which: line, _abi.DIFF_DST: line, _abi.DIFF_SRC: line})

    found = primitive(key, make)
    if found is None:
        return False
    found(_start(data), _start(grad), _start(out))
    return True


def prelu(x: np.ndarray, weight: np.ndarray, out: np.ndarray) -> bool:
    """out = x where positive, else weight * x; x and out of one rank and layout, weight contiguous with sizes 1."""
    key = ("prelu", x.shape, x.strides, weight.shape)

    def make() -> Primitive:
        source, factors = activation_desc(x), _desc(weight)
        plan = PrimitiveDesc("prelu_forward", _abi.INFERENCE, source, factors, source, attributes())
        return Primitive(plan, {_abi.SRC: source, _abi.WEIGHTS: factors, _abi.DST: source})

    found = primitive(key, make)
    if found is None:
        return False
    found(address(x), address(weight), address(out))
    return True


def prelu_backward(
    grad: np.ndarray, x: np.ndarray, weight: np.ndarray, of_x: np.ndarray, of_weight: np.ndarray
) -> bool:
    """The gradients of `prelu`, each laid out as its operand; grad is laid out as x."""
    key = ("prelu_backward", x.shape, x.strides, weight.shape)

    def make() -> Primitive:
        source, factors = activation_desc(x), _desc(weight)
        hint = PrimitiveDesc("prelu_forward", _abi.TRAINING, source, factors, source, attributes(), hint=True)
        plan = PrimitiveDesc("prelu_backward", source, factors, source, factors, source, hint, attributes())
        descs = {_abi.SRC: source, _abi.WEIGHTS: factors, _abi.DIFF_DST: source}
        return Primitive(plan, descs | {_abi.DIFF_SRC: source, _abi.DIFF_WEIGHTS: factors})

    found = primitive(key, make)
    if found is None:
        return False
    found(address(x), address(weight), address(grad), address(of_x), address(of_weight))
    return True


def binary(a: np.ndarray, b: np.ndarray, out: np.ndarray, algorithm: int) -> bool:
    """out = a + b, a - b or a * b for dense arrays that lie alike; out may be a."""
    key = ("binary", a.size, algorithm, a.dtype.str)

    def make() -> Primitive:
        line = _line(a)
        plan = PrimitiveDesc("binary", algorithm, line, line, line, attributes())
        return Primitive(plan, {_abi.SRC: line, _abi.SRC_1: line, _abi.DST: line})

    found = primitive(key, make)
    if found is None:
        return False
    found(_start(a), _start(b), _start(out))
    return True


def scale(x: np.ndarray, factor: Any, out: np.ndarray) -> bool:
    """out = x times a number, for dense arrays that lie alike."""
    key = ("scale", x.size)
    number = np.array(factor, np.float32).reshape(1)

    def make() -> Primitive:
        line, one = _line(x), _line(number)
        plan = PrimitiveDesc("binary", _abi.BINARY_MUL, line, one, line, attributes())
        return Primitive(plan, {_abi.SRC: line, _abi.SRC_1: one, _abi.DST: line})

    found = primitive(key, make)
    if found is None:
        return False
    found(address(x), address(number), address(out))
    return True


def multiply_add(a: np.ndarray, b: np.ndarray, c: np.ndarray, out: np.ndarray) -> bool:
    """out = a * b + c for dense arrays that lie alike."""
    key = ("multiply_add", a.size)

    def make() -> Primitive:
        line = _line(a)
        post = (("binary", _abi.BINARY_ADD, line),)
        plan = PrimitiveDesc("binary", _abi.BINARY_MUL, line, line, line, attributes(post))
        descs = {_abi.SRC: line, _abi.SRC_1: line, _abi.DST: line}
        return Primitive(plan, descs | {_abi.POST_OP | _abi.SRC_1: line})

    found = primitive(key, make)
    if found is None:
        return False
    found(address(a), address(b), address(out), address(c))
    return True


def by_channel(x: np.ndarray, factor: np.ndarray, summand: np.ndarray, out: np.ndarray) -> bool:
    """out = x * factor + summand, by channel, for contiguous (N, C, L) and vectors (C); out may be x."""
    if x.shape[2] == 1:
        return False  # version 3.2 takes the first channel's for all
    key = ("by_channel", x.shape)

    def make() -> Primitive:
        maps, each = _desc(x), desc_of((1, x.shape[1], 1), (x.shape[1], 1, 1))
        post = (("binary", _abi.BINARY_ADD, each),)
        plan = PrimitiveDesc("binary", _abi.BINARY_MUL, maps, each, maps, attributes(post))
        descs = {_abi.SRC: maps, _abi.SRC_1: each, _abi.DST: maps}
        return Primitive(plan, descs | {_abi.POST_OP | _abi.SRC_1: each})

    found = primitive(key, make)
    if found is None:
        return False
    found(address(x), address(factor), address(out), address(summand))
    return True


def concat(arrays: list[np.ndarray], out: np.ndarray, dim: int) -> bool:
    """out = the arrays one after another along `dim`."""
    key = ("concat", tuple((a.shape, a.strides) for a in arrays), out.strides, dim)

    def make() -> Primitive:
        sources, target = [_desc(a) for a in arrays], _desc(out)
        handles = library.state.ffi.new("void *[]", [s.handle for s in sources])
        plan = PrimitiveDesc("concat", target, len(sources), dim, handles, attributes())
        descs = {_abi.MULTIPLE_SRC + i: s for i, s in enumerate(sources)}
        return Primitive(plan, {_abi.DST: target, **descs})

    found = primitive(key, make)
    if found is None:
        return False
    found(address(out), *map(address, arrays))
    return True


__all__ = [
    "batch_norm", "batch_norm_backward", "binary", "by_channel", "column_sums", "concat", "eltwise", "eltwise_backward",
    "layer_norm", "layer_norm_backward", "matmul", "multiply_add", "pooling", "pooling_backward", "prelu",
    "prelu_backward", "reorder", "scale", "sgemm", "softmax", "softmax_backward",
]  # fmt: skip
