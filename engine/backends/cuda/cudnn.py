"""cuDNN 9: its library, handles, streams, workspace, and the cached plans of its problems.

Two interfaces lead into the one libcudnn.so.9.  Convolutions and attention are graphs, made through NVIDIA's
cudnn-frontend (`cudnn_graph.py`), which knows how attention is composed and which engine serves what.  Recurrent
networks (`cudnn_rnn.py`) and pooling (`cudnn_pool.py`) exist in no frontend for Python, so that the C functions of
`SIGNATURES` are called by ctypes; the handles are theirs in both cases.  Workspace is memory of CuPy's allocator on
the stream of the call: of the graph's own pool while one is captured.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
import sysconfig
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from engine.backends.cuda import runtime
from engine.core.lru import LRU

__all__ = ["DATA", "SIGNATURES", "Cudnn", "CudnnError", "loaded"]

DATA = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}  # cudnnDataType_t
PLANS = 2048

# The functions that are called, with a letter for each parameter: p pointer, i int or enumeration, u unsigned int,
# z size_t, f float, q unsigned long long.  All return cudnnStatus_t but for those of `_OTHERS`.
SIGNATURES = {
    "cudnnCreate": "p",
    "cudnnDestroy": "p",
    "cudnnSetStream": "pp",
    "cudnnGetVersion": "",
    "cudnnGetErrorString": "i",
    "cudnnCreateTensorDescriptor": "p",
    "cudnnDestroyTensorDescriptor": "p",
    "cudnnSetTensorNdDescriptor": "piipp",
    "cudnnGetTensorNdDescriptor": "pipppp",
    "cudnnCreatePoolingDescriptor": "p",
    "cudnnDestroyPoolingDescriptor": "p",
    "cudnnSetPoolingNdDescriptor": "piiippp",
    "cudnnPoolingForward": "pppppppp",
    "cudnnPoolingBackward": "pppppppppppp",
    "cudnnCreateDropoutDescriptor": "p",
    "cudnnDestroyDropoutDescriptor": "p",
    "cudnnSetDropoutDescriptor": "ppfpzq",
    "cudnnCreateRNNDescriptor": "p",
    "cudnnDestroyRNNDescriptor": "p",
    "cudnnSetRNNDescriptor_v8": "piiiiiiiiiiiipu",
    "cudnnCreateRNNDataDescriptor": "p",
    "cudnnDestroyRNNDataDescriptor": "p",
    "cudnnSetRNNDataDescriptor": "piiiiipp",
    "cudnnGetRNNTempSpaceSizes": "ppippp",
    "cudnnGetRNNWeightSpaceSize": "ppp",
    "cudnnGetRNNWeightParams": "ppizpipppp",
    "cudnnRNNForward": "ppipppppppppppzpzpzp",
    "cudnnRNNBackwardData_v8": "ppppppppppppppppzpzpzp",
    "cudnnRNNBackwardWeights_v8": "ppipppppppzpzpzp",
}
_OTHERS = {"cudnnGetVersion": ctypes.c_size_t, "cudnnGetErrorString": ctypes.c_char_p}
_LETTERS = {
    "p": ctypes.c_void_p,
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "z": ctypes.c_size_t,
    "f": ctypes.c_float,
    "q": ctypes.c_ulonglong,
}


class CudnnError(RuntimeError):
    """cuDNN refused a call; the message names the call and what cuDNN says."""


class Unsupported(Exception):
    """cuDNN has no engine for this; the fallback computes."""


class Cudnn:
    """cuDNN on whatever device is current.

    library: the C functions; frontend: the module of cudnn-frontend, or None without it.
    """

    def __init__(self, library: Any, frontend: Any = None) -> None:
        self.library, self.frontend = library, frontend
        self._own = threading.local()
        self._plans: OrderedDict[Any, Any] = OrderedDict()
        self.known: LRU[Any, weakref.ref[Any]] = LRU(PLANS)  # by what calls are made of: `cudnn_graph.run_again`
        self._lock = threading.RLock()
        self.made = self.found = 0

    def call(self, name: str, *args: Any) -> None:
        """Call a function that returns a status.  Raises CudnnError."""
        status = getattr(self.library, name)(*args)
        if status:
            text = self.library.cudnnGetErrorString(status)
            raise CudnnError(f"cuDNN refused {name}: {text.decode() if isinstance(text, bytes) else status}")

    def version(self) -> int:
        """As `torch.backends.cudnn.version()`: 92700 is 9.27.0."""
        return int(self.library.cudnnGetVersion())

    def handle(self) -> int:
        """This thread's handle of the current device, which works on the current stream."""
        module = runtime.library()
        device, stream = int(module.cuda.runtime.getDevice()), int(module.cuda.get_current_stream().ptr)
        handles = self._own.__dict__.setdefault("handles", {})
        entry = handles.get(device)
        if entry is None:
            made = ctypes.c_void_p()
            self.call("cudnnCreate", ctypes.byref(made))
            entry = handles[device] = [int(made.value or 0), None]
        if entry[1] != stream:
            self.call("cudnnSetStream", entry[0], stream)
            entry[1] = stream
        return int(entry[0])

    def workspace(self, size: int) -> Any:
        """`size` bytes of the current stream; keep the array until the call that uses it is made."""
        return runtime.library().empty((max(size, 1),), "uint8")

    def plan(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the cached result of `make()` for a key on the current device; None where it raised Unsupported."""
        key = int(runtime.library().cuda.runtime.getDevice()), key
        with self._lock:
            if key in self._plans:
                self._plans.move_to_end(key)
                self.found += 1
                return self._plans[key]
        try:
            made = make()
        except Unsupported:
            made = None
        with self._lock:
            self.made += 1
            self._plans[key] = made
            while len(self._plans) > PLANS:
                self._plans.popitem(last=False)
        return made

    def cache_info(self) -> dict[str, int]:
        """Return the numbers of plans cached, made and found again."""
        return {"kept": len(self._plans), "made": self.made, "found": self.found}

    @contextlib.contextmanager
    def tensor(self, type: str, shape: Any, strides: Any) -> Iterator[int]:
        """A tensor descriptor; strides in elements."""
        with self.descriptor("Tensor") as made:
            self.call("cudnnSetTensorNdDescriptor", made, DATA[type], len(shape), ints(shape), ints(strides))
            yield made

    @contextlib.contextmanager
    def descriptor(self, kind: str) -> Iterator[int]:
        """A descriptor of a kind that lives as long as the context."""
        made = self.create(kind)
        try:
            yield made
        finally:
            self.call(f"cudnnDestroy{kind}Descriptor", made)

    def create(self, kind: str) -> int:
        """A descriptor of a kind."""
        made = ctypes.c_void_p()
        self.call(f"cudnnCreate{kind}Descriptor", ctypes.byref(made))
        return int(made.value or 0)


def ints(values: Any) -> Any:
    """A C array of ints."""
    values = [int(v) for v in values]
    return (ctypes.c_int * len(values))(*values)


# --- finding it


def _folders() -> list[Path]:
    """Return the folders where the wheels put cuDNN, in the frontend's order: both must load the same file."""
    pure = Path(sysconfig.get_path("purelib"))
    inner = "bin" if sys.platform == "win32" else "lib"
    return [pure / "nvidia" / wheel / inner for wheel in ("cudnn", "cudnn_jit")]


def _open() -> Any:
    name = "cudnn64_9.dll" if sys.platform == "win32" else "libcudnn.so.9"
    for path in [str(f / name) for f in _folders() if (f / name).exists()] + [name]:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(path)
    raise RuntimeError(
        "cuDNN 9 was not found: pip install 'hubcli[cuda13]' (or cuda12); convolution, pooling, attention and "
        "recurrent networks compute by products and CuPy until then"
    )


def declared(library: Any) -> Any:
    """The library with the types of its functions set.  AttributeError names a function that it lacks."""
    for name, letters in SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes = [_LETTERS[c] for c in letters]
        function.restype = _OTHERS.get(name, ctypes.c_int)
    return library


@functools.cache
def loaded() -> Cudnn | str:
    """cuDNN, or one sentence that says why there is none."""
    with contextlib.suppress(Exception):  # what its parts need of CUDA, where the wheels have it
        from cuda.pathfinder import load_nvidia_dynamic_lib

        for part in ("cublas", "cublasLt", "nvrtc"):
            load_nvidia_dynamic_lib(part)
    try:
        library = declared(_open())
    except (RuntimeError, AttributeError) as error:
        return str(error)
    found = int(library.cudnnGetVersion())
    if found < 91000:
        return f"cuDNN {found} is installed, and the engine needs 9.10: pip install -U 'hubcli[cuda13]' (or cuda12)"
    return Cudnn(library, _frontend())


def _frontend() -> Any:
    try:
        import cudnn
    except Exception:  # no wheel, or one that does not load: each has its own error, all mean the fallback
        return None
    return cudnn if hasattr(cudnn, "pygraph") and hasattr(cudnn.pygraph, "sdpa") else None
