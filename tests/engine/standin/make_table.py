"""What CuPy offers, as read from the installed wheel: names, parameters, and the loops of its ufuncs.

    python -m tests.engine.standin.make_table [--write]

`cupy_api.json` is what it wrote with CuPy 14.2.0; the stand-in lets nothing else pass, and
tests/engine/backends/cuda/test_cupy_api.py compares the two where a wheel is installed.  CuPy imports without a GPU.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import inspect
import json
import re
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("cupy_api.json")
MODULES = ("", "fft", "linalg", "lib.stride_tricks", "cuda", "cuda.runtime", "cuda.profiler", "cuda.nvtx")
CLASSES = (
    "ndarray",
    "cuda.Device",
    "cuda.Event",
    "cuda.ExternalStream",
    "cuda.Graph",
    "cuda.Memory",
    "cuda.MemoryPointer",
    "cuda.MemoryPool",
    "cuda.PinnedMemoryPool",
    "cuda.PinnedMemoryPointer",
    "cuda.Stream",
    "cuda.UnownedMemory",
    "RawModule",
    "RawKernel",
    "ufunc",
)
FLAGS = ("c_contiguous", "f_contiguous", "owndata", "forc", "fnc")
SIGNATURE = re.compile(r"^[\w.]+\((.*)\)(?: ?->.*)?$", re.S)


def names_in(text: str) -> list[str] | None:
    """The parameters in the first line of a docstring, `f(self, a, int n=1, *, out=None)`; None if it is no signature.

    Cython writes types before the names; what stands in brackets is cut, since a default may hold commas.
    """
    match = SIGNATURE.match(text.strip().partition("\n\n")[0].replace("\n", " ").strip())
    if match is None:
        return None
    inner = re.sub(r"\([^()]*\)|\[[^\[\]]*\]", "", match[1])
    parts = [p.partition("=")[0].strip().rpartition(" ")[2] for p in inner.split(",")]
    return [p for p in parts if p and p not in ("/", "*", "\\*")]


def parameters(found: Any) -> list[str] | None:
    """The parameters of a function; None where nothing says them.  `*name` and `**name` keep their stars."""
    try:
        stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
        return [stars.get(p.kind, "") + p.name for p in inspect.signature(found).parameters.values()]
    except (TypeError, ValueError):
        return names_in(found.__doc__ or "")


def entry(found: Any) -> Any:
    """What the table says of a name: a dict of a ufunc, a list of parameters, or None for other things."""
    if type(found).__name__ == "ufunc" and type(found).__module__.startswith("cupy"):
        return {"loops": sorted(set(found.types)), "nin": found.nin}
    return parameters(found) if callable(found) else None


def is_public(name: str, found: Any) -> bool:
    return not name.startswith("_") and not isinstance(found, types.ModuleType)


@functools.cache
def nccl() -> types.ModuleType:
    """What `cupy.cuda.nccl` is where libnccl (200 MB, and of no use without GPUs) is installed: the wheel's extension
    over a library that has its symbols alone.  Needs nm and g++."""
    import cupy_backends.cuda.libs

    (extension,) = Path(cupy_backends.cuda.libs.__path__[0]).glob("nccl*.so")
    listed = subprocess.run(["nm", "-D", "--undefined-only", extension], capture_output=True, text=True, check=True)
    symbols = sorted(set(re.findall(r"\bnccl\w+", listed.stdout)))
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "nccl.c"), Path(folder, "libnccl.so.2")
        source.write_text("".join(f"int {name}(void) {{ return 5; }}\n" for name in symbols))
        options = ["-x", "c", "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2"]
        subprocess.run(["g++", *options, "-o", library, source], check=True)
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        return importlib.import_module("cupy_backends.cuda.libs.nccl")


def nccl_names() -> dict[str, Any]:
    """The names of `cupy.cuda.nccl` and of its communicator."""
    module = nccl()
    names = {f"cuda.nccl.{n}": entry(v) for n, v in vars(module).items() if is_public(n, v)}
    members = {n: inspect.getattr_static(module.NcclCommunicator, n) for n in dir(module.NcclCommunicator)}
    return names | {f"cuda.nccl.NcclCommunicator.{n}": entry(v) for n, v in members.items() if is_public(n, v)}


def table() -> dict[str, Any]:
    """{"version": ..., "names": {"add": {...}, "ndarray.sum": [...], ...}} of the CuPy that is installed."""
    import cupy

    names: dict[str, Any] = {}
    for where in (*MODULES, *CLASSES):
        holder = cupy
        for part in where.split(".") if where else ():
            holder = getattr(holder, part)
        for name in dir(holder):
            found = inspect.getattr_static(holder, name) if where in CLASSES else getattr(holder, name)
            if isinstance(found, staticmethod | classmethod):
                found = found.__func__
            if is_public(name, found):
                names[f"{where}.{name}" if where else name] = entry(found)
    for name in FLAGS:
        names[f"flags.{name}"] = None
    names |= nccl_names()
    return {"version": cupy.__version__, "names": dict(sorted(names.items()))}


def text_of(found: dict[str, Any]) -> str:
    """One line a name, so that a change can be read."""
    rows = ",\n".join(f"{json.dumps(n)}: {json.dumps(e)}" for n, e in found["names"].items())
    return f'{{"version": {json.dumps(found["version"])}, "names": {{\n{rows}\n}}}}\n'


if __name__ == "__main__":
    if "--write" in sys.argv:
        TABLE.write_text(text_of(table()))
    else:
        sys.stdout.write(text_of(table()))
