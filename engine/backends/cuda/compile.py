"""Kernel source to something that can be called, by one of three builders.

- the device: what `runtime.py` hands in by `use(builder)`, NVRTC through CuPy;
- `Nvrtc`: compiles for a named architecture and keeps the cubin; needs the wheels of the extra `cudatest`, no GPU;
- `Shim`: g++ and `kernels/shim.h`, one fiber a thread: the same source computes on the CPU, for tests.

`module(source)` gives an object whose `function(name)` is called as `(grid, block, args, shared_mem=0, stream=None)`:
grid and block are tuples of 1 to 3 ints, args are arrays and numpy scalars of exactly the parameters' types.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from engine.backends.file_cache import Cache

KERNELS = Path(__file__).with_name("kernels")
ARCHITECTURES = ("sm_80", "sm_90a", "sm_100")  # what the tests compile for: Ampere, Hopper, Blackwell

_INCLUDE = re.compile(r'^#include "(\w+\.cuh?)"\n', re.MULTILINE)
_ENTRY = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\s*\(")
_GROUPS = re.compile(r"__syncthreads|__syncwarp|__shfl_")  # what makes threads wait for each other


class Module(Protocol):
    """A compiled module: kernels by name."""

    def function(self, name: str) -> Callable[..., None]:
        """The kernel of that name.  Raises KeyError without one."""


class Builder(Protocol):
    """Makes modules."""

    def module(self, source: str, options: tuple[str, ...], name: str) -> Module:
        """Compile a source without includes.  Raises CompileError."""


class CompileError(RuntimeError):
    """A compiler refused a kernel; the message has its words."""


_builder: list[Builder] = []
generation = 0  # of builders: what one compiled is not called under the next


def use(builder: Builder | None) -> Builder | None:
    """Make `builder` the one that `module` uses (None: none); returns the one before."""
    global generation
    before = _builder[0] if _builder else None
    generation += 1
    _builder[:] = [] if builder is None else [builder]
    return before


def in_use() -> bool:
    """Return whether there is a builder."""
    return bool(_builder)


def simulated() -> bool:
    """Return whether the CPU stands for the device: the shim, whose arrays are numpy's."""
    return bool(_builder) and getattr(_builder[0], "simulates", False)


def module(source: str, options: Sequence[str] = (), name: str = "kernel") -> Module:
    """Compile `source`; its `#include "x.cuh"` lines mean files of `kernels/`.  Raises CompileError, RuntimeError."""
    if not _builder:
        raise RuntimeError("no builder of CUDA kernels is in use; engine.cuda.init() sets it")
    return _builder[0].module(expanded(source), tuple(options), name)


def expanded(source: str) -> str:
    """The source with each include of `kernels/` replaced by the file, once."""
    seen: set[str] = set()

    def text(found: re.Match[str]) -> str:
        name = found.group(1)
        if name in seen:
            return ""
        seen.add(name)
        return expanded_file(name)

    return _INCLUDE.sub(text, source)


@functools.cache
def expanded_file(name: str) -> str:
    """The text of a header of `kernels/`."""
    return (KERNELS / name).read_text(encoding="utf-8")


cache = Cache()  # on disk


# --- NVRTC


class Nvrtc:
    """NVIDIA's run-time compiler for one architecture (`sm_90a`); gives cubins, launches nothing."""

    def __init__(self, architecture: str, files: Cache | None = None) -> None:
        self.architecture, self._cache = architecture, files or cache

    def compile(self, source: str, options: Sequence[str] = (), name: str = "kernel") -> bytes:
        """The cubin of a source.  Raises CompileError with NVRTC's log, ImportError without the wheels."""
        nvrtc = _nvrtc()
        text = expanded(source)
        flags = [f"--gpu-architecture={self.architecture}", "--std=c++17", *options]
        version = "{}.{}".format(*_checked(nvrtc, nvrtc.nvrtcVersion()))

        def make(path: Path) -> None:
            path.write_bytes(self._compiled(nvrtc, text, flags, name))

        return self._cache.get(["nvrtc", version, *flags, text], ".cubin", make).read_bytes()

    def _compiled(self, nvrtc: Any, text: str, flags: list[str], name: str) -> bytes:
        (program,) = _checked(nvrtc, nvrtc.nvrtcCreateProgram(text.encode(), f"{name}.cu".encode(), 0, [], []))
        try:
            (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), [f.encode() for f in flags])
            if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
                (size,) = _checked(nvrtc, nvrtc.nvrtcGetProgramLogSize(program))
                log = b" " * size
                _checked(nvrtc, nvrtc.nvrtcGetProgramLog(program, log))
                raise CompileError(f"NVRTC refused {name} for {self.architecture}:\n{log.decode().strip(chr(0))}")
            (size,) = _checked(nvrtc, nvrtc.nvrtcGetCUBINSize(program))
            cubin = b" " * size
            _checked(nvrtc, nvrtc.nvrtcGetCUBIN(program, cubin))
            return cubin
        finally:
            nvrtc.nvrtcDestroyProgram(program)


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError, OSError) as error:
        raise ImportError(
            f"compiling CUDA kernels needs NVRTC: pip install 'hubcli[cudatest]' ({type(error).__name__}: {error})"
        ) from error
    return nvrtc


def _checked(nvrtc: Any, answer: Any) -> tuple[Any, ...]:
    status, *values = answer
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise CompileError(f"NVRTC: {nvrtc.nvrtcGetErrorString(status)[1].decode()}")
    return tuple(values)


# --- the shim

_FLAGS = ("-std=c++17", "-fPIC", "-shared", "-fwrapv", "-ffp-contract=off", "-fno-exceptions", "-fno-rtti")


class Shim:
    """Compiles for the CPU by g++.  `sanitize`: under AddressSanitizer, whose library the process must have loaded
    first (LD_PRELOAD).  `backwards`: threads run from the last to the first, for what one order hides.  `change`: is
    given the source of each translation unit and gives another, for tests that plant faults.
    """

    simulates = True

    def __init__(
        self,
        sanitize: bool = False,
        backwards: bool = False,
        files: Cache | None = None,
        change: Callable[[str], str] | None = None,
    ) -> None:
        self.sanitize, self.backwards, self._cache, self._change = sanitize, backwards, files or cache, change
        self._modules: dict[tuple[str, tuple[str, ...]], ShimModule] = {}

    @staticmethod
    def missing() -> str:
        """Return the reason why there can be no shim here, or ""."""
        if os.name == "nt" or shutil.which("g++") is None:
            return "the CPU shim of CUDA kernels needs g++"
        return ""

    def library(self, text: str, options: Sequence[str] = (), name: str = "kernel") -> Path:
        """A shared library of C++ text."""
        if self._change is not None:
            text = self._change(text)
        flags = [*_FLAGS, *options, *(["-fsanitize=address", "-g", "-O1"] if self.sanitize else ["-O1"])]

        def make(path: Path) -> None:
            source = path.with_suffix(".cpp")
            source.write_text(text, encoding="utf-8")
            done = subprocess.run(
                ["g++", *flags, "-o", str(path), str(source)], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise CompileError(f"g++ refused {name}:\n{done.stderr[:8000]}")

        return self._cache.get(["shim", platform.machine(), _compiler(), *flags, text], ".so", make)

    @functools.cached_property
    def _scheduler(self) -> Any:
        library = ctypes.PyDLL(str(self.library((KERNELS / "shim.cpp").read_text(encoding="utf-8"), name="shim.cpp")))
        library.shim_begin.restype = ctypes.c_void_p
        return library

    def module(self, source: str, options: tuple[str, ...] = (), name: str = "kernel") -> ShimModule:
        """The kernels of a CUDA source as functions of this process."""
        key = source, options
        found = self._modules.get(key)
        if found is None:
            library = ctypes.PyDLL(str(self._among_others(source, options, name)))
            found = self._modules[key] = ShimModule(self, library, entries(source), fibers(source))
        return found

    def _among_others(self, source: str, options: tuple[str, ...], name: str) -> Path:
        """The library that `prepare` made of a source and others in whatever process, else one of its own."""
        found = None if options else self._cache.find(self._place(source), ".txt")
        if found is not None and (shared := found.with_name(found.read_text())).exists():
            return shared
        return self.library(shim_text([source]), options, name)

    def _place(self, source: str) -> list[str]:
        change = "" if self._change is None else str(id(self))  # a planted fault is this process's own
        return ["place", platform.machine(), _compiler(), str(self.sanitize), change, expanded_file("shim.h"), source]

    def prepare(self, sources: Sequence[str], each: int = 80) -> None:
        """Compile many sources, whose kernels have names of their own, `each` at a time in one translation unit."""
        wanted = [s for s in map(expanded, sources) if (s, ()) not in self._modules]
        parts = [wanted[i : i + each] for i in range(0, len(wanted), each)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            libraries = list(pool.map(lambda part: self.library(shim_text(part)), parts))
        for part, path in zip(parts, libraries):
            library = ctypes.PyDLL(str(path))
            for source in part:
                self._cache.get(self._place(source), ".txt", functools.partial(_write, path.name))
                self._modules[source, ()] = ShimModule(self, library, entries(source), fibers(source))


def _write(text: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8")


def entries(source: str) -> list[str]:
    """The names of the kernels in a source."""
    return _ENTRY.findall(source)


def fibers(source: str) -> bool:
    """Return whether threads of a source wait for each other; else they are run one after another."""
    return _GROUPS.search(source) is not None


def shim_text(sources: Sequence[str]) -> str:
    """C++ for g++ from CUDA sources."""
    text = expanded("\n".join(sources))
    return "\n".join([expanded_file("shim.h"), text, *(f"SHIM_KERNEL({name})" for name in entries(text)), ""])


@functools.cache
def _compiler() -> str:
    return subprocess.run(["g++", "-dumpfullversion"], capture_output=True, text=True, check=True).stdout.strip()


class ShimModule:
    """Kernels that run on the CPU, over arrays whose memory this process can read."""

    def __init__(self, builder: Shim, library: Any, names: list[str], wait: bool) -> None:
        self._builder, self._library, self._names, self._wait = builder, library, names, wait
        state = builder._scheduler.shim_begin((ctypes.c_uint * 6)(1, 1, 1, 1, 1, 1))
        library.shim_attach(ctypes.c_void_p(state))

    def function(self, name: str) -> Callable[..., None]:
        """The kernel `name`, called as on a device; it has run when the call returns."""
        if name not in self._names:
            raise KeyError(name)
        launch = getattr(self._library, f"shim_launch_{name}")
        found = (ctypes.c_int * 256)()
        count = getattr(self._library, f"shim_sizes_{name}")(found)
        sizes = list(found[:count])
        begin, wait, backwards = self._builder._scheduler.shim_begin, int(self._wait), int(self._builder.backwards)
        owner = self._library  # the code lives as long as the function

        def call(grid: Any, block: Any, args: Sequence[Any], shared_mem: int = 0, stream: Any = None) -> None:
            assert owner is not None
            values = [argument(a) for a in args]
            if [v.itemsize for v in values] != sizes:
                raise TypeError(f"kernel {name} takes arguments of {sizes} bytes, got {[v.itemsize for v in values]}")
            pointers = (ctypes.c_void_p * max(1, len(values)))(*[v.ctypes.data for v in values])
            begin((ctypes.c_uint * 6)(*grid, *(1,) * (3 - len(grid)), *block, *(1,) * (3 - len(block))))
            status = launch(pointers, wait, backwards)
            if status:
                raise RuntimeError(f"kernel {name}: {_PROBLEMS[status]}")

        return call


_PROBLEMS = {
    1: "threads of one block wait at different barriers",
    2: "a block has 1 to 1024 threads",
    3: "no memory for the threads' stacks",
}


def address(array: Any) -> int:
    """Return the address of an array's first element."""
    if isinstance(array, np.ndarray):
        return array.__array_interface__["data"][0]
    return array.data.ptr  # CuPy's and the stand-in's


def argument(value: Any) -> np.ndarray[Any, Any]:
    """One argument as a kernel reads it: of an array its address, of a numpy scalar its bytes.  Raises TypeError for
    Python numbers, whose width is not known."""
    if isinstance(value, np.generic):
        return np.asarray(value)
    if isinstance(value, np.ndarray):
        return np.asarray(value.ctypes.data, dtype=np.uint64)
    pointer = getattr(getattr(value, "data", None), "ptr", None)
    if pointer is None:
        raise TypeError(f"a kernel's argument is an array or a numpy scalar, not {type(value).__name__}")
    return np.asarray(pointer, dtype=np.uint64)
