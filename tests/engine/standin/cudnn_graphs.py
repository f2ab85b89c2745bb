"""cudnn-frontend on the stand-in: the graphs that the engine describes, checked, and computed by numpy from the
descriptors alone: dims, strides, types and addresses are all it knows.

The names and parameters are those of NVIDIA's module and no others (`test_cudnn_api.py` compares them with the wheel).
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.engine.standin.blas import memory_at
from tests.engine.standin.machine import Memory, before_write, launch

WORKSPACE = 1536  # bytes that every plan wants here
ALIGNMENT = 16


class cudnnGraphNotSupportedError(RuntimeError):
    """No engine for the graph."""


class data_type(enum.Enum):
    NOT_SET = 0
    FLOAT = 1
    DOUBLE = 2
    HALF = 3
    BFLOAT16 = 4


class heur_mode(enum.Enum):
    A = 0
    FALLBACK = 1


class build_plan_policy(enum.Enum):
    HEURISTICS_CHOICE = 0
    ALL = 1


class numerical_note(enum.Enum):
    TENSOR_CORE = 0
    DOWN_CONVERT_INPUTS = 1
    NONDETERMINISTIC = 2


class diagonal_alignment(enum.Enum):
    TOP_LEFT = 0
    BOTTOM_RIGHT = 1


def numpy_type(kind: data_type) -> np.dtype:
    import ml_dtypes

    found: dict[data_type, Any] = {
        data_type.FLOAT: np.float32,
        data_type.DOUBLE: np.float64,
        data_type.HALF: np.float16,
        data_type.BFLOAT16: ml_dtypes.bfloat16,
    }
    return np.dtype(found[kind])


class tensor:
    """A tensor of a graph; virtual until it is given memory or made an output."""

    def __init__(self, dim: Sequence[int], stride: Sequence[int], data_type: data_type, uid: int, virtual: bool):
        self.dim, self.stride, self.type, self.uid, self.virtual = list(dim), list(stride), data_type, uid, virtual

    def set_output(self, value: bool) -> tensor:
        self.virtual = not value
        return self

    def set_uid(self, value: int) -> tensor:
        self.uid = value
        return self

    def set_dim(self, value: Sequence[int]) -> tensor:
        self.dim = [int(n) for n in value]
        return self

    def set_stride(self, value: Sequence[int]) -> tensor:
        self.stride = [int(n) for n in value]
        return self

    def set_data_type(self, data_type: Any) -> tensor:
        self.type = data_type
        return self

    def get_dim(self) -> list[int]:
        return self.dim

    def get_stride(self) -> list[int]:
        return self.stride

    def get_uid(self) -> int:
        return self.uid


class pygraph:
    """A graph: validated, built, planned, supported, executed, in this order."""

    def __init__(
        self,
        name: str = "",
        io_data_type: data_type = data_type.NOT_SET,
        intermediate_data_type: data_type = data_type.NOT_SET,
        compute_data_type: data_type = data_type.NOT_SET,
        handle: int | None = None,
    ) -> None:
        self.io, self.intermediate, self.compute = io_data_type, intermediate_data_type, compute_data_type
        self.handle, self.stage = handle, 0
        self.given: list[tensor] = []
        self.made: list[tensor] = []
        self.nodes: list[tuple[str, dict[str, Any], list[tensor]]] = []
        self.deselected: set[numerical_note] = set()
        self.policy: build_plan_policy | None = None

    def tensor(
        self, dim: Sequence[int], stride: Sequence[int], data_type: data_type = data_type.NOT_SET, uid: int = -1
    ) -> tensor:
        kind = self.io if data_type is type(data_type).NOT_SET else data_type
        self.given.append(tensor(dim, stride, kind, uid, False))
        return self.given[-1]

    def _node(self, name: str, outputs: int, **about: Any) -> list[tensor]:
        made = [tensor([], [], self.intermediate, -1, True) for _ in range(outputs)]
        self.made += made
        self.nodes.append((name, about, made))
        return made

    def conv_fprop(self, image: tensor, weight: tensor, padding: Any, stride: Any, dilation: Any) -> tensor:
        about = {"image": image, "weight": weight, "padding": padding, "stride": stride, "dilation": dilation}
        return self._node("conv_fprop", 1, **about)[0]

    def conv_dgrad(self, loss: tensor, filter: tensor, padding: Any, stride: Any, dilation: Any) -> tensor:
        about = {"loss": loss, "filter": filter, "padding": padding, "stride": stride, "dilation": dilation}
        return self._node("conv_dgrad", 1, **about)[0]

    def conv_wgrad(self, image: tensor, loss: tensor, padding: Any, stride: Any, dilation: Any) -> tensor:
        about = {"image": image, "loss": loss, "padding": padding, "stride": stride, "dilation": dilation}
        return self._node("conv_wgrad", 1, **about)[0]

    def bias(self, input: tensor, bias: tensor) -> tensor:
        return self._node("bias", 1, input=input, bias=bias)[0]

    def sdpa(
        self,
        q: tensor,
        k: tensor,
        v: tensor,
        attn_scale: float | None = None,
        bias: tensor | None = None,
        diagonal_alignment: diagonal_alignment = diagonal_alignment.TOP_LEFT,
        diagonal_band_right_bound: int | None = None,
        generate_stats: bool | None = None,
    ) -> list[tensor]:
        if generate_stats is None:
            raise ValueError("one of generate_stats and is_inference must be set")
        return self._node(
            "sdpa",
            2,
            q=q,
            k=k,
            v=v,
            scale=attn_scale,
            bias=bias,
            align=diagonal_alignment,
            right=diagonal_band_right_bound,
        )

    def sdpa_backward(
        self,
        q: tensor,
        k: tensor,
        v: tensor,
        o: tensor,
        dO: tensor,
        stats: tensor,
        attn_scale: float | None = None,
        bias: tensor | None = None,
        diagonal_alignment: diagonal_alignment = diagonal_alignment.TOP_LEFT,
        diagonal_band_right_bound: int | None = None,
        use_deterministic_algorithm: bool = False,
    ) -> list[tensor]:
        return self._node(
            "sdpa_backward",
            3,
            q=q,
            k=k,
            v=v,
            o=o,
            dO=dO,
            stats=stats,
            scale=attn_scale,
            bias=bias,
            align=diagonal_alignment,
            right=diagonal_band_right_bound,
        )

    # --- building

    def _step(self, before: int, name: str) -> None:
        if self.stage < before:
            raise RuntimeError(f"{name} was called too early")
        self.stage = max(self.stage, before + 1)

    def real(self) -> list[tensor]:
        """The tensors with memory."""
        return self.given + [t for t in self.made if not t.virtual]

    def validate(self) -> None:
        self._step(0, "validate")
        for name, about, outputs in self.nodes:
            CHECKS[name](about, outputs)
        for t in self.real():
            if not t.dim or len(t.dim) != len(t.stride) or min(t.dim) < 1 or min(t.stride) < 0:
                raise ValueError(f"tensor {t.uid}: dims {t.dim} and strides {t.stride}")
            if t.type is data_type.NOT_SET:
                raise ValueError(f"tensor {t.uid} has no data type")
        uids = [t.uid for t in self.real()]
        if len(set(uids)) != len(uids) or min(uids) < 0:
            raise ValueError(f"uids {uids}")

    def build_operation_graph(self) -> None:
        self._step(1, "build_operation_graph")
        if data_type.NOT_SET in (self.compute, self.intermediate):
            raise RuntimeError("CUDNN_BACKEND_OPERATION_DESCRIPTOR: the compute type is not set")
        if not self.handle:
            raise RuntimeError("the graph has no handle")

    def create_execution_plans(self, arg0: list[heur_mode]) -> None:
        self._step(2, "create_execution_plans")
        if not arg0:
            raise RuntimeError("no heuristics")

    def deselect_numeric_notes(self, arg0: list[numerical_note]) -> None:
        self._step(3, "deselect_numeric_notes")
        self.deselected |= set(arg0)

    def check_support(self) -> None:
        self._step(3, "check_support")
        for name, about, outputs in self.nodes:
            why = unsupported(name, about, outputs, self.io)
            if why:
                raise cudnnGraphNotSupportedError(f"No execution plans support the graph: {why}")

    def build_plans(self, policy: build_plan_policy = build_plan_policy.HEURISTICS_CHOICE) -> None:
        self._step(4, "build_plans")
        self.policy = policy

    def get_workspace_size(self) -> int:
        self._step(5, "get_workspace_size")
        return WORKSPACE

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return WORKSPACE * (index + 1)

    def get_execution_plan_count(self) -> int:
        return 3

    # --- executing

    def execute(self, tensor_to_device_buffer: dict[int, int], workspace: int, handle: int | None = None) -> None:
        self._run(tensor_to_device_buffer, workspace, WORKSPACE, handle)

    def execute_plan_at_index(
        self, tensor_to_device_buffer: dict[int, int], workspace: int, index: int, handle: int | None = None
    ) -> None:
        if self.policy is not build_plan_policy.ALL or not 0 <= index < 3:
            raise RuntimeError(f"plan {index} is not built")
        if index == 1:
            raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED: this engine does not run")
        self._run(tensor_to_device_buffer, workspace, WORKSPACE * (index + 1), handle)

    def _run(self, pack: dict[int, int], workspace: int, size: int, handle: int | None) -> None:
        self._step(5, "execute")
        from tests.engine.standin.cudnn_c import check_handle

        check_handle(self.handle if handle is None else handle)
        real = {t.uid: t for t in self.real()}
        if set(pack) != set(real):
            raise RuntimeError(f"addresses are bound for uids {sorted(pack)}, the graph has {sorted(real)}")
        arrays, reads, writes = {}, [], [room(workspace, size)]
        outputs = {t.uid for t in self.made if not t.virtual}
        for uid, t in real.items():
            assert not pack[uid] % ALIGNMENT, f"tensor {uid} is not aligned to {ALIGNMENT} bytes"
            arrays[uid], memory = array_at(pack[uid], t.dim, t.stride, numpy_type(t.type), uid in outputs)
            (writes if uid in outputs else reads).append(memory)
        calls.append(self.nodes[0][0])

        def work() -> None:
            values: dict[int, Any] = {id(t): arrays[t.uid].astype(np.float64) for t in self.given}
            for name, about, made in self.nodes:
                inputs = {k: values[id(v)] if isinstance(v, tensor) else v for k, v in about.items()}
                dims = [t.dim for t in made]
                for t, value in zip(made, COMPUTE[name](dims, **inputs)):
                    values[id(t)] = value
                    if not t.virtual:
                        arrays[t.uid][...] = value

        done(work, reads, writes, workspace, size)


calls: list[str] = []  # what was executed


def done(work: Callable[[], None], reads: list[Memory], writes: list[Memory], workspace: int, size: int) -> None:
    """Do work of the current stream, now or at the launches of a graph; its workspace is scribbled on."""
    read, written = [m.chunk for m in reads], [m.chunk for m in writes]
    scratch = np.zeros(0, np.uint8)
    if size:
        memory = memory_at(workspace)
        scratch = memory.chunk.raw[workspace - memory.ptr :][:size]

    def now() -> None:
        scratch[:] = 0xAB
        with np.errstate(all="ignore"):
            work()

    def again() -> None:
        launch(read, written)
        now()

    before_write(written)
    launch(read, written, again)
    now()


def room(address: int, size: int) -> Memory:
    """The memory of `size` bytes at an address, which are all its own."""
    memory = memory_at(address)
    assert address + size <= memory.ptr + memory.size, "the workspace is too small"
    assert address % ALIGNMENT == 0
    return memory


def array_at(address: int, dims: Any, strides: Any, dtype: np.dtype, output: bool) -> tuple[np.ndarray, Memory]:
    """An array over memory of the device, all of it inside one block; an output's elements are apart."""
    memory = memory_at(address)
    last = sum((n - 1) * s for n, s in zip(dims, strides)) + 1
    assert address + last * dtype.itemsize <= memory.ptr + memory.size, "a tensor reaches outside its memory"
    if output:
        span = 1
        for s, n in sorted((s, n) for n, s in zip(dims, strides) if n > 1):
            assert s >= span, "elements of an output overlap"
            span = s * (n - 1) + span
    strides = [s * dtype.itemsize for s in strides]
    return np.ndarray(tuple(dims), dtype, memory.chunk.raw, address - memory.ptr, tuple(strides)), memory


# --- checks


def _conv_dims(x: Sequence[int], w: Sequence[int], about: dict[str, Any]) -> list[int]:
    n = len(x) - 2
    if n not in (2, 3) or len(w) != len(x) or any(len(about[k]) != n for k in ("padding", "stride", "dilation")):
        raise ValueError("a convolution has two or three spatial dims, and as many paddings, strides and dilations")
    if x[1] % w[1] or w[0] % (x[1] // w[1]):
        raise ValueError(f"{x[1]} channels and a filter of {w}")
    geometry = zip(x[2:], w[2:], about["padding"], about["stride"], about["dilation"])
    return [x[0], w[0], *((size + 2 * p - d * (k - 1) - 1) // s + 1 for size, k, p, s, d in geometry)]


def _fprop(about: dict[str, Any], outputs: list[tensor]) -> None:
    wanted = _conv_dims(about["image"].dim, about["weight"].dim, about)
    if not outputs[0].dim:
        outputs[0].set_dim(wanted)
    if outputs[0].dim != wanted:
        raise ValueError(f"the output is {outputs[0].dim}, not {wanted}")


def _grad(about: dict[str, Any], outputs: list[tensor]) -> None:
    if not outputs[0].dim:
        raise ValueError("For dgrad and wgrad nodes, output dimension inferencing is not possible.")
    x = about["image"].dim if "image" in about else outputs[0].dim
    w = about["filter"].dim if "filter" in about else outputs[0].dim
    wanted = _conv_dims(x, w, about)
    if about["loss"].dim != wanted:
        raise ValueError(f"the loss is {about['loss'].dim}, not {wanted}")


def _bias(about: dict[str, Any], outputs: list[tensor]) -> None:
    wanted = about["input"].dim
    if about["bias"].dim != [1, wanted[1], *[1] * (len(wanted) - 2)]:
        raise ValueError(f"a bias of {about['bias'].dim}")
    if not outputs[0].dim:
        outputs[0].set_dim(wanted)
    if outputs[0].dim != wanted:
        raise ValueError(f"the output is {outputs[0].dim}, not {wanted}")


def _attention(about: dict[str, Any], outputs: list[tensor]) -> None:
    q, k, v = (about[n].dim for n in "qkv")
    if not len(q) == len(k) == len(v) == 4 or q[0] != k[0] or k[:3] != v[:3] or q[3] != k[3] or q[1] % k[1]:
        raise ValueError(f"attention of {q}, {k} and {v}")
    if about["scale"] is None:
        raise ValueError("no scale")
    rows = [q[0], q[1], q[2], 1]
    if "dO" in about:
        shapes = [(t.dim, about[n].dim) for t, n in zip(outputs, "qkv")]
        shapes += [(about[n].dim, [*q[:3], v[3]]) for n in ("o", "dO")] + [(about["stats"].dim, rows)]
        if about["stats"].type is not data_type.FLOAT:
            raise ValueError("the statistics are float32")
    else:
        shapes = [(outputs[0].dim, [*q[:3], v[3]]), (outputs[1].dim, rows)]
        if outputs[1].type is not data_type.FLOAT:
            raise ValueError("the statistics are float32")
    for found, wanted in shapes:
        if list(found) != list(wanted):
            raise ValueError(f"{found} where attention has {wanted}")
    mask = about["bias"]
    if mask is not None and any(a not in (1, b) for a, b in zip(mask.dim, [q[0], q[1], q[2], k[2]])):
        raise ValueError(f"a mask of {mask.dim}")


CHECKS: dict[str, Callable[[dict[str, Any], list[tensor]], None]] = {
    "conv_fprop": _fprop,
    "conv_dgrad": _grad,
    "conv_wgrad": _grad,
    "bias": _bias,
    "sdpa": _attention,
    "sdpa_backward": _attention,
}


def unsupported(name: str, about: dict[str, Any], outputs: list[tensor], io: data_type) -> str:
    """Why there is no engine, as on a card: attention is for 16-bit types, a fused bias for channels-last ones."""
    half = io in (data_type.HALF, data_type.BFLOAT16)
    assert io is not data_type.DOUBLE, "the frontend gives alpha in float32, which cuDNN reads as float64"
    if name.startswith("sdpa"):
        assert about["bias"] is None or about["right"] is None, "a mask and causality together give NaN on a card"
        if not half:
            return "attention of 32-bit types"
        if any(about[n].dim[3] % 8 or about[n].dim[3] > 128 or about[n].stride[3] != 1 for n in "qkv"):
            return "the width of the heads"
    if name == "bias" and (not half or outputs[0].stride[1] != 1):
        return "a bias"
    return ""


# --- numpy


def _taps(kernel: Sequence[int], stride: Any, dilation: Any, out: Sequence[int]) -> Any:
    for at in itertools.product(*map(range, kernel)):
        yield (
            at,
            (
                slice(None),
                slice(None),
                *(slice(i * d, i * d + (n - 1) * s + 1, s) for i, d, n, s in zip(at, dilation, out, stride)),
            ),
        )


def _padded(x: np.ndarray, padding: Any) -> np.ndarray:
    return np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])


def _grouped(x: np.ndarray, groups: int) -> np.ndarray:
    return x.reshape(x.shape[0], groups, x.shape[1] // groups, -1)


def conv_fprop(dims: Any, image: Any, weight: Any, padding: Any, stride: Any, dilation: Any) -> list[np.ndarray]:
    n, k, *out = dims[0]
    x, groups = _padded(image, padding), image.shape[1] // weight.shape[1]
    made = np.zeros((n, groups, k // groups, int(np.prod(out))))
    for at, where in _taps(weight.shape[2:], stride, dilation, out):
        w = weight[(slice(None), slice(None), *at)].reshape(groups, k // groups, -1)
        made += np.einsum("ngcl,gkc->ngkl", _grouped(x[where], groups), w)
    return [made.reshape(dims[0])]


def conv_dgrad(dims: Any, loss: Any, filter: Any, padding: Any, stride: Any, dilation: Any) -> list[np.ndarray]:
    shape = dims[0]
    made = _padded(np.zeros(shape), padding)
    groups = shape[1] // filter.shape[1]
    for at, where in _taps(filter.shape[2:], stride, dilation, loss.shape[2:]):
        w = filter[(slice(None), slice(None), *at)].reshape(groups, filter.shape[0] // groups, -1)
        share = np.einsum("ngkl,gkc->ngcl", _grouped(loss, groups), w)
        made[where] += share.reshape(loss.shape[0], shape[1], *loss.shape[2:])
    inside = tuple(slice(p, p + n) for p, n in zip(padding, shape[2:]))
    return [made[(slice(None), slice(None), *inside)]]


def conv_wgrad(dims: Any, image: Any, loss: Any, padding: Any, stride: Any, dilation: Any) -> list[np.ndarray]:
    shape = dims[0]
    x, made = _padded(image, padding), np.zeros(shape)
    groups = image.shape[1] // shape[1]
    for at, where in _taps(shape[2:], stride, dilation, loss.shape[2:]):
        share = np.einsum("ngcl,ngkl->gkc", _grouped(x[where], groups), _grouped(loss, groups))
        made[(slice(None), slice(None), *at)] = share.reshape(shape[:2])
    return [made]


def bias(dims: Any, input: Any, bias: Any) -> list[np.ndarray]:
    return [input + bias]


def _scores(q: Any, k: Any, scale: float, bias: Any, align: diagonal_alignment, right: int | None) -> np.ndarray:
    assert align is diagonal_alignment.TOP_LEFT
    found = np.einsum("nhle,nhse->nhls", q, np.repeat(k, q.shape[1] // k.shape[1], 1)) * scale
    if bias is not None:
        found = found + bias
    if right is not None:
        rows, columns = np.indices(found.shape[2:])
        found[..., columns > rows + right] = -np.inf
    return found


def sdpa(dims: Any, q: Any, k: Any, v: Any, scale: float, bias: Any, align: Any, right: Any) -> list[np.ndarray]:
    scores = _scores(q, k, scale, bias, align, right)
    top = scores.max(-1, keepdims=True)
    total = np.exp(scores - top).sum(-1, keepdims=True)
    stats = top + np.log(total)  # NaN in rows that see nothing
    return [np.exp(scores - stats) @ np.repeat(v, q.shape[1] // v.shape[1], 1), stats]


def sdpa_backward(
    dims: Any, q: Any, k: Any, v: Any, o: Any, dO: Any, stats: Any, scale: float, bias: Any, align: Any, right: Any
) -> list[np.ndarray]:
    times = q.shape[1] // k.shape[1]
    weights = np.exp(_scores(q, k, scale, bias, align, right) - stats)
    of_weights = dO @ np.repeat(v, times, 1).swapaxes(2, 3)
    of_scores = weights * (of_weights - (dO * o).sum(-1, keepdims=True)) * scale
    shared = (k.shape[0], k.shape[1], times)
    of_k = (of_scores.swapaxes(2, 3) @ q).reshape(*shared, *k.shape[2:]).sum(2)
    of_v = (weights.swapaxes(2, 3) @ dO).reshape(*shared, *v.shape[2:]).sum(2)
    return [of_scores @ np.repeat(k, times, 1), of_k, of_v]


COMPUTE: dict[str, Callable[..., list[np.ndarray]]] = {
    "conv_fprop": conv_fprop,
    "conv_dgrad": conv_dgrad,
    "conv_wgrad": conv_wgrad,
    "bias": bias,
    "sdpa": sdpa,
    "sdpa_backward": sdpa_backward,
}
