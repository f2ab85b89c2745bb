"""Matrix products by cublasLt, bound with ctypes: CuPy wraps none of it, and its own products cannot be captured.

A product is described once (descriptors, layouts, the algorithm that the library's heuristic names) and cached under
all that the description depends on; a further call costs one look-up and `cublasLtMatmul`.  Transposed operands are
flags, batches strides, the bias of `linear` an epilogue: nothing is copied that a leading dimension can describe.

The numbers of the enumerations are those of cublasLt.h and library_types.h (CUDA 12 and 13).  `Blas` gets the library
handed in: ctypes' on a device (`load`), one that checks every argument in tests.  Complex numbers and integers stay
with CuPy, whose wrapper of cuBLAS cannot be captured.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from ctypes import byref, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from engine.backends.cuda import routes, runtime
from engine.backends.cuda.compile import address
from engine.backends.cuda.flags import matmul as settings

TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}  # cudaDataType
COMPUTE_32F, COMPUTE_32F_TF32, COMPUTE_64F = 68, 77, 70
# cublasLtMatmulDescAttributes_t
DESC_TRANSA, DESC_TRANSB, DESC_EPILOGUE, DESC_BIAS_POINTER = 3, 4, 7, 8
# cublasLtMatrixLayoutAttribute_t
LAYOUT_BATCH_COUNT, LAYOUT_BATCH_OFFSET = 5, 6
# cublasLtMatmulPreferenceAttributes_t: bytes of workspace, alignment of A, B, C and D
PREF_WORKSPACE, PREF_ALIGNMENT = 1, (5, 6, 7, 8)
EPILOGUE_DEFAULT, EPILOGUE_BIAS = 1, 4  # cublasLtEpilogue_t
WORKSPACE = 32 << 20  # bytes: what NVIDIA recommends for Hopper
PLANS = 2048


class BlasError(RuntimeError):
    """cublasLt refused a call; the message names the call and its status."""


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algo", c_uint64 * 8),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    ]


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix as cublasLt sees it, column by column: rows x cols with a leading dimension, `transposed` where the
    product takes its transpose.  stride: elements from one batch to the next (0: the same for all)."""

    rows: int
    cols: int
    ld: int
    transposed: bool = False
    stride: int = 0


@dataclass(frozen=True, slots=True)
class Problem:
    """All that a plan depends on.  aligned: the bytes that divide each address of a, b, d and the
    bias (at most 256)."""

    type: str
    compute: int
    a: Operand
    b: Operand
    d: Operand
    batch: int
    bias: bool
    aligned: tuple[int, int, int, int]


@dataclass(slots=True)
class Plan:
    """The descriptors and the algorithm that cublasLt uses for a problem."""

    desc: c_void_p
    layouts: tuple[c_void_p, c_void_p, c_void_p]
    found: _Heuristic


class _Call:
    """The arguments of cublasLtMatmul for one plan, of which only addresses change."""

    def __init__(self, library: Any, handle: c_void_p, problem: Problem, plan: Plan) -> None:
        self.a, self.b, self.d, self.bias, self.workspace, self.stream = (c_void_p() for _ in range(6))
        number = c_double if problem.type == "float64" else c_float
        self.function, self.size, self.plan = library.cublasLtMatmul, plan.found.workspace, plan
        self.of_bias = plan.desc, c_int(DESC_BIAS_POINTER), byref(self.bias), c_size_t(ctypes.sizeof(self.bias))
        self.numbers = number(1), number(0)
        of_a, of_b, of_d = plan.layouts
        self.args = (
            handle,
            plan.desc,
            byref(self.numbers[0]),
            self.a,
            of_a,
            self.b,
            of_b,
            byref(self.numbers[1]),
            self.d,
            of_d,
            self.d,
            of_d,
            byref(plan.found, 0),
            self.workspace,
            c_size_t(self.size),
            self.stream,
        )


def operand(shape: Sequence[int], strides: Sequence[int]) -> Operand | None:
    """A row-major (n, m) matrix with strides in elements, as cublasLt sees it; None where it must be copied first.

    Row by row it is its own transpose column by column; a transposed view is a matrix column by column.
    """
    (n, m), (down, along) = shape, strides
    if along == 1 or m == 1:
        ld = down if n > 1 else max(1, m)
        if ld >= max(1, m):
            return Operand(m, n, ld)
    if down == 1 or n == 1:
        ld = along if m > 1 else max(1, n)
        if ld >= max(1, n):
            return Operand(n, m, ld, transposed=True)
    return None


def alignment(address: int) -> int:
    """The largest power of two up to 256 that divides an address."""
    return min(256, address & -address) or 256


class Blas:
    """cublasLt on whatever device is current.

    library: the functions of libcublasLt.  device: the number of the current device.  stream: the address of its
    current stream.  workspace: bytes -> address of memory of that stream, 256-byte aligned, that no other stream
    writes.
    """

    def __init__(
        self, library: Any, device: Callable[[], int], stream: Callable[[], int], workspace: Callable[[int], int]
    ) -> None:
        self._library, self._device, self._stream, self._workspace = library, device, stream, workspace
        self._handles: dict[int, c_void_p] = {}
        self._plans: OrderedDict[tuple[int, Problem], Plan] = OrderedDict()
        self._lock = threading.Lock()
        self._calls: dict[Any, _Call] = {}  # by all that says which product: `again`
        self.made = 0

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self._library, name)(*args)
        if status:
            raise BlasError(f"{name} failed with status {status}")

    def _handle(self, device: int) -> c_void_p:
        found = self._handles.get(device)
        if found is None:
            found = c_void_p()
            self._call("cublasLtCreate", byref(found))
            self._handles[device] = found
        return found

    def _set(self, name: str, target: c_void_p, attribute: int, value: Any) -> None:
        self._call(name, target, c_int(attribute), byref(value), c_size_t(ctypes.sizeof(value)))

    def _layout(self, type: str, matrix: Operand, batch: int) -> c_void_p:
        made = c_void_p()
        code, rows, cols = c_int(TYPES[type]), c_uint64(matrix.rows), c_uint64(matrix.cols)
        self._call("cublasLtMatrixLayoutCreate", byref(made), code, rows, cols, c_int64(matrix.ld))
        if batch > 1:
            self._set("cublasLtMatrixLayoutSetAttribute", made, LAYOUT_BATCH_COUNT, c_int32(batch))
            self._set("cublasLtMatrixLayoutSetAttribute", made, LAYOUT_BATCH_OFFSET, c_int64(matrix.stride))
        return made

    def _plan(self, device: int, problem: Problem, bias: int) -> Plan:
        key = device, problem
        found = self._plans.get(key)
        if found is None:
            found = self._plans[key] = self._make(device, problem, bias)
            while len(self._plans) > PLANS:
                self._forget(self._plans.popitem(last=False)[1])
        else:
            self._plans.move_to_end(key)
        return found

    def _make(self, device: int, problem: Problem, bias: int) -> Plan:
        self.made += 1
        p, desc, preference = problem, c_void_p(), c_void_p()
        scale = TYPES["float64" if p.type == "float64" else "float32"]
        self._call("cublasLtMatmulDescCreate", byref(desc), c_int(p.compute), c_int(scale))
        for attribute, one in ((DESC_TRANSA, p.a), (DESC_TRANSB, p.b)):
            self._set("cublasLtMatmulDescSetAttribute", desc, attribute, c_int32(int(one.transposed)))
        self._set(
            "cublasLtMatmulDescSetAttribute",
            desc,
            DESC_EPILOGUE,
            c_uint32(EPILOGUE_BIAS if p.bias else EPILOGUE_DEFAULT),
        )
        if bias:  # the heuristic looks at its alignment
            self._set("cublasLtMatmulDescSetAttribute", desc, DESC_BIAS_POINTER, c_void_p(bias))
        layouts = tuple([self._layout(p.type, one, p.batch) for one in (p.a, p.b, p.d)])
        self._call("cublasLtMatmulPreferenceCreate", byref(preference))
        self._set("cublasLtMatmulPreferenceSetAttribute", preference, PREF_WORKSPACE, c_uint64(WORKSPACE))
        for attribute, bytes_ in zip(PREF_ALIGNMENT, (*p.aligned[:3], p.aligned[2])):
            self._set("cublasLtMatmulPreferenceSetAttribute", preference, attribute, c_uint32(bytes_))
        found, count = _Heuristic(), c_int()
        a, b, d = layouts
        self._call(
            "cublasLtMatmulAlgoGetHeuristic",
            self._handle(device),
            desc,
            a,
            b,
            d,
            d,
            preference,
            c_int(1),
            byref(found),
            byref(count),
        )
        self._call("cublasLtMatmulPreferenceDestroy", preference)
        plan = Plan(desc, (a, b, d), found)
        if not count.value or found.state:
            self._forget(plan)
            raise BlasError(f"cublasLt has no algorithm for {problem}")
        return plan

    def _forget(self, plan: Plan) -> None:
        self._calls = {key: call for key, call in self._calls.items() if call.plan is not plan}
        for layout in plan.layouts:
            self._call("cublasLtMatrixLayoutDestroy", layout)
        self._call("cublasLtMatmulDescDestroy", plan.desc)

    def clear(self) -> None:
        """Forget all plans and handles."""
        while self._plans:
            self._forget(self._plans.popitem()[1])
        self._calls.clear()
        while self._handles:
            self._call("cublasLtDestroy", self._handles.popitem()[1])

    def run(self, problem: Problem, a: int, b: int, d: int, bias: int = 0, key: Any = None) -> None:
        """d = a @ b (+ bias); a, b, d, bias are addresses of the current device.  Raises BlasError.

        key: names the product for `again`, where all addresses are multiples of 256.
        """
        with self._lock:  # a plan's descriptor holds the bias of one call
            device = self._device()
            if key is not None and not (a | b | d | bias) & 255:
                if len(self._calls) > PLANS:
                    self._calls.clear()
                plan = self._plan(device, problem, bias)
                self._calls[device, key] = _Call(self._library, self._handle(device), problem, plan)
            self._run(device, problem, a, b, d, bias)

    def again(self, key: Any, a: int, b: int, d: int, bias: int = 0) -> bool:
        """The product that `run` did under this key, on other memory; False where it did none or the memory is less
        aligned."""
        if (a | b | d | bias) & 255:
            return False
        with self._lock:
            call = self._calls.get((self._device(), key))
            if call is None:
                return False
            call.a.value, call.b.value, call.d.value = a, b, d
            if bias:
                call.bias.value = bias
                self._call("cublasLtMatmulDescSetAttribute", *call.of_bias)
            if call.size:
                call.workspace.value = self._workspace(call.size)
            call.stream.value = self._stream()
            status = call.function(*call.args)
            if status:
                raise BlasError(f"cublasLtMatmul failed with status {status}")
        return True

    def _run(self, device: int, problem: Problem, a: int, b: int, d: int, bias: int) -> None:
        plan = self._plan(device, problem, bias)
        if bias:
            self._set("cublasLtMatmulDescSetAttribute", plan.desc, DESC_BIAS_POINTER, c_void_p(bias))
        number = c_double if problem.type == "float64" else c_float
        size = plan.found.workspace
        of_a, of_b, of_d = plan.layouts
        self._call(
            "cublasLtMatmul",
            self._handle(device),
            plan.desc,
            byref(number(1)),
            c_void_p(a),
            of_a,
            c_void_p(b),
            of_b,
            byref(number(0)),
            c_void_p(d),
            of_d,
            c_void_p(d),
            of_d,
            byref(plan.found, 0),
            c_void_p(self._workspace(size) if size else None),
            c_size_t(size),
            c_void_p(self._stream()),
        )


def product(blas: Blas, xp: Any, a: Any, b: Any, bias: Any = None, tf32: bool = False, out: Any = None) -> Any:
    """a @ b (+ bias, a vector of b's columns), of floats of one type; `out` if that is given.

    a (*, n, k), b (*, k, m) whose batch dims broadcast, bias (m) -> (*, n, m).  Sizes are not 0.  What no leading
    dimension or batch stride describes is copied first.
    """
    key = None
    if bias is None or bias.flags.c_contiguous:
        steps = None if out is None else out.strides
        key = a.shape, a.strides, b.shape, b.strides, a.dtype, bias is None, tf32, steps
        if (made := _again(blas, xp, key, a, b, bias, out)) is not None:
            return made
    lead: tuple[int, ...] = ()
    if a.ndim > 2 or b.ndim > 2:
        lead = a.shape[:-2]
        if lead != b.shape[:-2]:
            lead = np.broadcast_shapes(lead, b.shape[:-2])
    n, m = a.shape[-2], b.shape[-1]
    made, result = out, None
    if out is not None:
        result = _target(out)
    if result is None:
        made = xp.empty((*lead, n, m), a.dtype)
        result = Operand(m, n, m, stride=n * m if lead else 0)
    batch = prod(lead)
    given = a, b
    (a, left), (b, right) = (_described(xp, x, lead) for x in given)
    if (address(a), address(b)) != (address(given[0]), address(given[1])) or (out is not None and made is not out):
        key = None  # it took copies
    type = a.dtype.name
    compute = COMPUTE_64F if type == "float64" else COMPUTE_32F_TF32 if type == "float32" and tf32 else COMPUTE_32F
    at = [address(b), address(a), address(made)]  # row by row the product is that of the transposes, in reverse order
    vector = None if bias is None else xp.ascontiguousarray(bias)
    at.append(0 if vector is None else address(vector))
    aligned = alignment(at[0]), alignment(at[1]), alignment(at[2]), alignment(at[3])
    blas.run(Problem(type, compute, right, left, result, batch, bias is not None, aligned), *at, key=key)
    if key is not None:
        if len(_SHAPES) > PLANS:
            _SHAPES.clear()
        _SHAPES[key] = (*lead, n, m)
    if out is not None and made is not out:
        out[...] = made
        return out
    return made


_SHAPES: dict[Any, tuple[int, ...]] = {}  # of the results of products that took no copies


def _again(blas: Blas, xp: Any, key: Any, a: Any, b: Any, bias: Any, out: Any) -> Any:
    """The product that was done under this key, of other arrays; None if there was none or they are less aligned."""
    shape = _SHAPES.get(key)
    if shape is None:
        return None
    left, right, vector = address(a), address(b), 0 if bias is None else address(bias)
    if (left | right | vector) & 255:
        return None
    made = xp.empty(shape, a.dtype) if out is None else out
    return made if blas.again(key, right, left, address(made), vector) else None


def repeated(xp: Any, a: Any, b: Any) -> Any:
    """a @ b where `product` has done one like it: of the same shapes, strides and type.  None otherwise."""
    blas = runtime.state.products
    if not blas or a.dtype is not b.dtype or not ROUTE.on():
        return None
    key = a.shape, a.strides, b.shape, b.strides, a.dtype, True, settings.tf32(), None
    return _again(blas, xp, key, a, b, None, None)


def _target(out: Any) -> Operand | None:
    """Return the operand that describes an array to write into; None where cublasLt cannot write there."""
    size = out.itemsize
    if any(s % size for s in out.strides):
        return None
    strides = [s // size for s in out.strides]
    found = operand(out.shape[-2:], strides[-2:])
    step = _step(out.shape[:-2], strides[:-2])
    if found is None or found.transposed or step is None:
        return None
    if prod(out.shape[:-2]) > 1 and step < found.ld * (out.shape[-2] - 1) + out.shape[-1]:
        return None  # matrices that overlap, or lie within each other
    return Operand(found.rows, found.cols, found.ld, stride=step)


def _described(xp: Any, array: Any, lead: tuple[int, ...]) -> tuple[Any, Operand]:
    """(the array, broadcast to the batch dims, or a copy of it; how cublasLt sees it)."""
    size = array.itemsize
    if array.shape[:-2] != lead and any(n != 1 for n in array.shape[:-2]):
        array = xp.broadcast_to(array, (*lead, *array.shape[-2:]))
    if not any(s % size for s in array.strides):
        strides = [s // size for s in array.strides]
        found = operand(array.shape[-2:], strides[-2:])
        step = _step(array.shape[:-2], strides[:-2])
        if found is not None and step is not None:
            return array, Operand(found.rows, found.cols, found.ld, found.transposed, step)
    copy = xp.ascontiguousarray(array)
    found = operand(copy.shape[-2:], (max(1, copy.shape[-1]), 1))
    assert found is not None
    return copy, Operand(
        found.rows, found.cols, found.ld, found.transposed, prod(copy.shape[-2:]) if array.ndim > 2 else 0
    )


def _step(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """The one stride that walks all batch dims in order; None where there is none."""
    found: int | None = None
    span = 1
    for n, s in zip(reversed(shape), reversed(strides)):
        if n == 1:
            continue
        if found is None:
            found = s
        elif s != found * span:
            return None
        span *= n
    return None if found is not None and found < 0 else found or 0


# --- the one in use


def used() -> Blas | None:
    """The binding for the devices of this process, made at first use; None without the library, or a device in use."""
    state = runtime.state
    if state.library is None:
        return None
    if state.products is None:
        library = state.blas if state.stand_in else _library()
        state.products = library is not None and Blas(library, _device, _stream, _workspace)
    return state.products or None


def _device() -> int:
    return int(runtime.state.library.cuda.runtime.getDevice())


def _stream() -> int:
    return int(runtime.state.library.cuda.get_current_stream().ptr)


def _workspace(size: int) -> int:
    """Memory for the current stream, or for the graph that it records: two of one stream's products never overlap."""
    spaces = runtime.memory.workspaces()
    key = _device(), _stream()
    found = spaces.get(key)
    if found is None or found.size < size:
        found = spaces[key] = runtime.library().empty(max(size, WORKSPACE), np.uint8)
    return int(found.data.ptr)


def _library() -> Any:
    """libcublasLt of the CUDA wheels or of the system; None where it is not found."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib  # comes with CuPy

        found = ctypes.CDLL(load_nvidia_dynamic_lib("cublasLt").abs_path)
        return found if found.cublasLtMatmul else None
    except Exception:  # no wheel, no such library: each has its own error, all mean CuPy's route
        return None


def serves(a: Any, b: Any) -> bool:
    """Return whether this route takes two operands of `matmul`."""
    return a.ndim > 1 and b.ndim > 1 and a.dtype == b.dtype and _known(a.dtype) and ready() and ROUTE.on()


@functools.lru_cache(32)
def _known(dtype: Any) -> bool:
    return dtype.name in TYPES


def ready() -> bool:
    """Return whether the library is there."""
    return bool(runtime.state.products) or used() is not None


def matmul(xp: Any, a: Any, b: Any, out: Any = None) -> Any:
    """a @ b for operands that `serves` takes.  (*, n, k), (*, k, m) -> (*, n, m).  ValueError for sizes that differ."""
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"shapes {a.shape} and {b.shape} not aligned: {a.shape[-1]} != {b.shape[-2]}")
    if not a.size or not b.size:
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        made = xp.empty((*lead, a.shape[-2], b.shape[-1]), a.dtype) if out is None else out
        made[...] = 0
        return made
    blas = used()
    assert blas is not None
    return product(blas, xp, a, b, tf32=settings.tf32(), out=out)


def _check(xp: Any) -> Iterator[tuple[Any, Any]]:
    """Layouts, batches, types and biases on small numbers."""
    blas = used()
    assert blas is not None
    for dtype, near in (("float32", 1e-5), ("float64", 1e-12), ("float16", 1e-2), ("bfloat16", 5e-2)):
        if dtype == "bfloat16":
            import ml_dtypes  # noqa: F401
        shapes = (3, 24, 16), (3, 8, 16), (8,)
        a, b, v = (routes.numbers(*s, seed=n, dtype=dtype) for n, s in enumerate(shapes))
        x, y, bias = (xp.asarray(one) for one in (a, b, v))
        wide = [one.astype(np.float64) for one in (a, b, v)]
        plain = wide[0] @ wide[1].swapaxes(1, 2)
        yield _near(product(blas, xp, x, y.swapaxes(1, 2)), plain, near)
        yield _near(product(blas, xp, x[:, 4:20], y[0].T), wide[0][:, 4:20] @ wide[1][0].T, near)
        yield _near(product(blas, xp, y[1], x[1].T), plain[1].T, near)
        if dtype != "float64":
            yield _near(product(blas, xp, x[0], y[0].T, bias), plain[0] + wide[2], near)


def _near(found: Any, wanted: Any, near: float) -> tuple[Any, Any]:
    """The pair, with differences below what the type explains taken away."""
    host = runtime.to_host(found).astype(np.float64)
    if host.shape != wanted.shape or not np.abs(host - wanted).max() <= near * max(1.0, np.abs(wanted).max()):
        return found, wanted.astype(found.dtype)
    return found, runtime.to_host(found)


ROUTE = routes.route("cublasLt", check=_check, fallback="CuPy's wrapper of cuBLAS", tolerance=0, ready=ready)
