"""Kernels in the source form as machine code of this processor, by llvmlite (the extra `jit`).

`build(kernel)` gives a function of arrays and numbers.  What was compiled is kept in the cache folder of kernels, by
what was printed, the processor's features and llvmlite's version; a file that is damaged is made anew, a folder that
cannot be written is not needed.  Nothing of llvmlite is imported before the first kernel is built.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine.backends.cpu import threads
from engine.backends.kept import Cache
from engine.kernels import llvm_ir, processor, team
from engine.kernels.form import Array, Kernel, Pointers

__all__ = ["Built", "build", "tiles"]

_CODES = {
    "bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q",
    "uint64": "Q", "float32": "f", "float64": "d", "index": "q",
}  # fmt: skip
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64)
SHARE = 1 << 15  # elements' worth of much work (some hundred operations each) that another thread is woken for
OPERATIONS = 3 << 20  # the same of any work, in operations
PIECES = 4  # a thread, so that one that is held up leaves little

cache = Cache()


class _Compiler:
    """LLVM, and the code it has linked into this process; one lock, which a fork waits for."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.llvm: Any = None
        self.machine: Any = None
        self.linker: Any = None
        self.kept: list[Any] = []  # what LLVM must not give back

    def start(self) -> None:
        """Import llvmlite."""
        if self.llvm is not None:
            return
        import llvmlite.binding as llvm

        try:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
        except RuntimeError:  # later versions do so themselves
            pass
        found = processor.target()
        assert found is not None
        made = llvm.Target.from_default_triple()
        self.machine = made.create_target_machine(
            cpu=found.processor, features=found.features, opt=3, reloc="pic", codemodel="small", jit=True
        )
        self.linker = llvm.create_lljit_compiler(
            made.create_target_machine(cpu=found.processor, features=found.features, opt=3, jit=True),
            use_jit_link=False, suppress_errors=True,
        )  # fmt: skip
        self.llvm = llvm

    def _optimized(self, text: str) -> Any:
        llvm = self.llvm
        module = llvm.parse_assembly(text)
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.loop_vectorization = options.slp_vectorization = options.loop_interleaving = True
        options.loop_unrolling = False
        builder = llvm.create_pass_builder(self.machine, options)
        builder.getModulePassManager().run(module, builder)
        return module

    def compile(self, text: str) -> bytes:
        """An object file."""
        return self.machine.emit_object(self._optimized(text))

    def assembly(self, text: str) -> str:
        """The instructions that a text becomes, for those who look."""
        with self.lock:
            self.start()
            return self.machine.emit_assembly(self._optimized(text))

    def link(self, code: bytes, name: str) -> int:
        """The address of the function `name` of an object file."""
        builder = self.llvm.JITLibraryBuilder()
        library = (
            builder.add_object_img(code)
            .add_current_process()
            .export_symbol(name)
            .link(self.linker, f"{name}-{len(self.kept)}")
        )
        self.kept.append(library)
        return library[name]


compiler = _Compiler()
if hasattr(os, "register_at_fork"):  # no child begins in the middle of a compilation
    os.register_at_fork(
        before=lambda: compiler.lock.acquire(),
        after_in_parent=lambda: compiler.lock.release(),
        after_in_child=lambda: compiler.lock.release(),
    )


class Built:
    """A kernel ready to run: `built(arrays and numbers, count)`, in the order of its parameters.

    Arrays must have the memory that the kernel reads and writes, and live until it has done so.
    """

    def __init__(self, kernel: Kernel, entry: Any, known: Mapping[str, int]) -> None:
        self.kernel, self.entry = kernel, entry
        self.address = address(entry)
        self.operations = operations(kernel)  # of an element
        self.alone = OPERATIONS // self.operations  # elements that are too few to be shared
        if llvm_ir.serial(kernel):
            self.alone = 1 << 62
        parts = []
        for p in kernel.parameters:
            code = "Q" if isinstance(p, Array | Pointers) else _CODES[p.type]
            parts.append(code + "x" * (8 - struct.calcsize("<" + code)))
        self.pack = struct.Struct("<" + "".join(parts)).pack

    def __call__(self, given: Sequence[Any], count: int, each: int = 1) -> None:
        """Do all `count` elements or rows; `each` is how much work one of them is, in elements."""
        args = self.pack(*[id(a) if isinstance(a, np.ndarray) else a for a in given])
        if count * each <= self.alone:
            self.entry(args, 0, count)
        else:
            self.shared(args, count, each)

    def rounded(self, numbers: Sequence[Any]) -> list[Any]:
        """The numbers that follow the arrays as their types have them: infinite where float32 has no such number."""
        types = [p.type for p in self.kernel.parameters][-len(numbers) :]
        with np.errstate(over="ignore"):
            return [float(np.float32(n)) if type == "float32" else n for n, type in zip(numbers, types)]

    def shared(self, args: bytes, count: int, each: int) -> None:
        """Among threads, in pieces that begin at multiples of 64."""
        entry, several = self.entry, threads.get_num_threads()
        step = -(-count // (several * PIECES))
        step = -(-step // 64) * 64 if step > 256 else step
        if several == 1 or step >= count:
            entry(args, 0, count)
            return
        pieces = [(args, at, min(at + step, count)) for at in range(0, count, step)]
        if not team.run(self.address, pieces):
            threads.run(lambda piece: entry(*piece), pieces)


def operations(kernel: Kernel) -> int:
    """About how many additions take the time of one element (of rows: of one place of a row)."""

    def count(body: Sequence[Any]) -> int:
        found = 0
        for s in body:
            found += _COSTS.get(getattr(s, "op", ""), 1)
            found += count(getattr(s, "body", ()))
        return found

    return max(1, count(kernel.body))


_CALLS = "exp exp2 expm1 log log2 log10 log1p sin cos tan tanh sinh cosh erf erfc pow".split()
_COSTS = {"div": 4, "sqrt": 4, "rsqrt": 8, "rest": 8, "quotient": 8, **dict.fromkeys(_CALLS, 16)}


def address(entry: Any) -> int:
    """Where the code of an entry lies."""
    return ctypes.cast(entry, ctypes.c_void_p).value or 0


def build(
    kernel: Kernel, *, columns: bool = False, known: Mapping[str, int] | None = None, short: bool = False
) -> Built:  # fmt: skip
    """The machine code of a kernel.

    columns: rows lie side by side; short: rows are short (`llvm_ir.printed`).  known: numbers among the parameters that
    are always these; they are given in calls all the same.  Raises FormError for a kernel that has a function without
    generated code, ImportError without llvmlite.
    """
    found = processor.target()
    if found is None:
        raise ImportError(processor.describe())
    if not found.halves and any(getattr(p, "type", "") == "float16" for p in kernel.parameters):
        raise llvm_ir.FormError("this processor does not convert float16")
    options = dict(
        columns=columns, known=known, attributes=found.attributes, offset=processor.OFFSET, short=short and found.masks
    )
    entry = linked(llvm_ir.printed(kernel, "KERNEL", **options))  # type: ignore[arg-type]
    return Built(kernel, entry, known or {})


def tiles(type: str, lanes: int, rows: int, vectors: int) -> Any:
    """The product of `llvm_tiles` for a type: a function of its PARAMETERS, as addresses and numbers, and of how many
    tiles there are.  ImportError without llvmlite.
    """
    from engine.kernels import llvm_tiles

    found = processor.target()
    if found is None:
        raise ImportError(processor.describe())
    entry = linked(llvm_tiles.printed("KERNEL", type, lanes, rows, vectors, found.attributes))
    pack = llvm_tiles.pack
    return lambda *given: entry(pack(*given[:-1]), 0, given[-1])


@functools.lru_cache(4096)
def linked(text: str) -> Any:
    """The function of a text."""
    import hashlib

    name = "k" + hashlib.sha256(text.encode()).hexdigest()[:24]
    text = text.replace("@KERNEL(", f"@{name}(", 1)
    with compiler.lock:
        compiler.start()
        made = processor.target()
        assert made is not None
        from llvmlite import __version__ as version

        host = compiler.llvm.get_host_cpu_name()
        parts = ["llvm", version, host, made.processor, made.features, text]
        code = cache.content(parts, ".o", lambda: compiler.compile(text))
        return _ENTRY(compiler.link(code, name))
