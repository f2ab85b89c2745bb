"""Machine code of LLVM's text, compiled and linked into this process by llvmlite (the extra `jit`).

What was compiled is cached in the folder of kernels, by the text, the processor's features and llvmlite's version; a
file that is damaged is made anew, a folder that cannot be written is not needed.  Nothing of llvmlite is imported
before the first text is compiled.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable
from typing import Any

from engine.backends.file_cache import Cache
from engine.kernels import processor

__all__ = ["address", "linked"]

Entry = Callable[[bytes, int, int], None]  # a function of ctypes: arguments, begin, end
_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64)

cache = Cache()


class _Compiler:
    """LLVM, and the code it has linked into this process; one lock, which a fork waits for."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.llvm: Any = None
        self.machine: Any = None
        self.linker: Any = None
        self.retained: list[Any] = []  # what LLVM must not give back

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
            use_jit_link=False,
            suppress_errors=True,
        )
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
        return bytes(self.machine.emit_object(self._optimized(text)))

    def link(self, code: bytes, name: str) -> int:
        """The address of the function `name` of an object file."""
        builder = self.llvm.JITLibraryBuilder()
        library = (
            builder.add_object_img(code)
            .add_current_process()
            .export_symbol(name)
            .link(self.linker, f"{name}-{len(self.retained)}")
        )
        self.retained.append(library)
        return int(library[name])


compiler = _Compiler()
if hasattr(os, "register_at_fork"):  # no child begins in the middle of a compilation
    os.register_at_fork(
        before=lambda: compiler.lock.acquire(),
        after_in_parent=lambda: compiler.lock.release(),
        after_in_child=lambda: compiler.lock.release(),
    )


def address(entry: Entry) -> int:
    """Return the address of the code of an entry."""
    return ctypes.cast(entry, ctypes.c_void_p).value or 0  # type: ignore[arg-type]  # a function of ctypes


@functools.lru_cache(4096)
def linked(text: str) -> Entry:
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
