"""One test file of PyTorch, run by `scripts/conformance.py`: python scripts/conformance_tests.py FILE LOG [SKIP]

Whatever `import torch` gives here is tested.  Every test leaves one line of JSON in LOG, [name, outcome, message], and
a line [name, "running", ""] before it; the tests that the file SKIP names, one a line, are left out.  What Python,
numpy and torch have dropped since the files were written is put back where the tests need it to be read at all, on
both sides alike.
"""

from __future__ import annotations

import builtins
import collections
import collections.abc
import fractions
import importlib
import inspect
import io
import json
import math
import os
import signal
import sys
import time
import types
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT = float(os.environ.get("CONFORMANCE_LIMIT", "60"))  # seconds for a test
WHOLE = ("uint8", "int8", "int16", "int32", "int64")


class TooLong(BaseException):
    """A test took longer than LIMIT; no `except Exception` of the test keeps it."""


class Absent(types.ModuleType):
    """Stands for a name of torch that is not there: the file can be imported, and the tests that use the name fail."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"absent: {self.__name__}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType):
            return lambda *a, **k: self.__getattr__("__call__")  # a decorator: its test fails, not the file
        raise AttributeError(f"absent: {self.__name__}")

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (object,)


def old_python_and_numpy() -> None:
    """Put back the names that Python 3.10 to 3.12 and numpy 2 took away."""
    import numpy as np

    for name in collections.abc.__all__:
        if not hasattr(collections, name):
            setattr(collections, name, getattr(collections.abc, name))
    spec = collections.namedtuple("spec", "args varargs keywords defaults")
    case = unittest.TestCase
    for owner, name, value in (
        (inspect, "getargspec", lambda function: spec(*inspect.getfullargspec(function)[:4])),
        (time, "clock", time.perf_counter),
        (fractions, "gcd", math.gcd),
        (case, "assertRaisesRegexp", case.assertRaisesRegex),
        (case, "assertEquals", case.assertEqual),
        (case, "assertRegexpMatches", case.assertRegex),
        (np, "float", float),
        (np, "int", int),
        (np, "complex", complex),
        (np, "object", object),
        (np, "float_", np.float64),
        (np, "NaN", np.nan),
        (np, "Inf", np.inf),
        (np, "alltrue", np.all),
        (np, "sometrue", np.any),
    ):
        if name not in vars(owner):
            setattr(owner, name, value)


def old_torch(torch: Any) -> None:
    """Put back what the helpers of the tests ask at import: facts of the build, modules, the default of `load`."""
    six: Any = types.ModuleType("torch._six")
    vars(six).update(
        PY2=False,
        PY3=True,
        PY37=True,
        inf=math.inf,
        nan=math.nan,
        string_classes=(str, bytes),
        int_classes=int,
        container_abcs=collections.abc,
        builtins=builtins,
        StringIO=io.StringIO,
        FileNotFoundError=FileNotFoundError,
        istuple=lambda x: isinstance(x, tuple),
    )
    sys.modules["torch._six"] = torch._six = six
    for name, value in (
        ("has_lapack", True),
        ("has_openmp", True),
        ("has_mkl", False),
        ("has_cudnn", False),
        ("has_mkldnn", True),
        ("_debug_set_autodiff_subgraph_inlining", lambda on: None),
        ("_jit_clear_class_registry", lambda: None),
        ("_jit_set_emit_hooks", lambda *hooks: None),
    ):
        if not hasattr(torch._C, name):
            setattr(torch._C, name, value)
    for name in ("fbgemm_is_cpu_supported", "_nnpack_available"):
        if not hasattr(torch, name):
            setattr(torch, name, lambda: False)
    internal = importlib.import_module("torch._jit_internal")
    for name in ("weak_script", "weak_module", "weak_script_method"):  # decorators of torch's own modules then
        if not hasattr(internal, name):
            setattr(internal, name, lambda decorated: decorated)
    testing = importlib.import_module("torch.testing")
    dtypes = [getattr(torch, name) for name in WHOLE] + [torch.float32, torch.float64]
    for name, value in (
        ("get_all_device_types", lambda: ["cpu"]),
        ("get_all_math_dtypes", lambda device: list(dtypes)),
        ("get_all_dtypes", lambda: [*dtypes, torch.bool, torch.float16]),
    ):
        if not hasattr(testing, name):
            setattr(testing, name, value)
    cudnn = importlib.import_module("torch.backends.cudnn")
    if not hasattr(cudnn, "disable_global_flags"):
        cudnn.disable_global_flags = lambda: None
    load = torch.load

    def trusting(*args: Any, **kwargs: Any) -> Any:
        return load(*args, **{"weights_only": False, **kwargs})

    torch.load = torch.serialization.load = trusting


def tolerant_import(folder: Path) -> Callable[..., Any]:
    """Return `__import__` as the files of `folder` get it: a name of torch that is missing is Absent, no error."""
    plain = builtins.__import__

    def module(name: str) -> Any:
        try:
            return importlib.import_module(name)
        except (ImportError, AttributeError, NotImplementedError):
            return sys.modules.setdefault(name, Absent(name))

    def imported(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        wanted = fromlist
        asks = Path((globals or {}).get("__file__") or "/").parent == folder
        if not asks or level or name.partition(".")[0] != "torch":
            return plain(name, globals, locals, wanted, level)
        found = module(name)
        if not wanted:
            owner, _, last = name.rpartition(".")
            if isinstance(found, Absent) and owner and not hasattr(sys.modules.get(owner), last):
                setattr(module(owner), last, found)
            return plain("torch")
        if "*" in wanted:
            return found
        parts = types.SimpleNamespace()
        for part in wanted:
            value = getattr(found, part, None) if not isinstance(found, Absent) else None
            setattr(parts, part, module(f"{name}.{part}") if value is None else value)
        return parts

    return imported


def masks_compare_as_bytes(case: Any, torch: Any) -> None:
    """Masks were bytes when the tests were written; their `assertEqual` subtracts what it compares."""

    def byte(x: Any) -> Any:
        return x.to(torch.uint8) if isinstance(x, torch.Tensor) and x.dtype == torch.bool else x

    for name in ("assertEqual", "assertNotEqual"):
        plain = vars(case)[name]
        setattr(case, name, lambda self, x, y, *a, _plain=plain, **k: _plain(self, byte(x), byte(y), *a, **k))
    case.assertEquals = case.assertEqual


class Log(unittest.TestResult):
    """Writes a line for every test as it goes."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self.file = open(path, "a", buffering=1)  # noqa: SIM115  # one file for the life of the process
        self.process = os.getpid()

    def _say(self, test: Any, outcome: str, message: str = "") -> None:
        if os.getpid() == self.process and isinstance(test, unittest.TestCase):
            self.file.write(json.dumps([label(test), outcome, message[:500]]) + "\n")

    def startTest(self, test: Any) -> None:
        self._say(test, "running")

    def addSuccess(self, test: Any) -> None:
        self._say(test, "passed")

    def addSkip(self, test: Any, reason: str) -> None:
        self._say(test, "skipped", reason)

    def addFailure(self, test: Any, err: Any) -> None:
        self._say(test, "timeout" if err[0] is TooLong else "failed", f"{err[0].__name__}: {err[1]}")

    addError = addFailure

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self._say(test, "skipped", "expected to fail")

    def addUnexpectedSuccess(self, test: Any) -> None:
        self._say(test, "failed", "expected to fail, and does not")

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self.addFailure(test, err)


def label(test: Any) -> str:
    """Return Class.method."""
    return f"{type(test).__name__}.{test._testMethodName}"


def tests_of(suite: Any) -> list[Any]:
    """Return the tests of nested suites."""
    return [test for part in suite for test in (tests_of(part) if isinstance(part, unittest.TestSuite) else [part])]


def run(tests: list[Any], log: Log, torch: Any) -> None:
    """Run tests one by one, each with a limit of time and with the default dtype that the file began with."""
    start = torch.get_default_dtype()

    def too_long(*_: Any) -> None:
        raise TooLong(f"longer than {LIMIT:g} s")

    signal.signal(signal.SIGALRM, too_long)
    for test in tests:
        torch.set_default_dtype(start)
        signal.setitimer(signal.ITIMER_REAL, LIMIT)
        try:
            test.run(log)
        except TooLong as error:
            log._say(test, "timeout", str(error))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


def prepare(folder: Path) -> Any:
    """Make the files of `folder` importable, and return torch."""
    old_python_and_numpy()
    import torch

    old_torch(torch)
    sys.argv[1:] = []  # the helpers read options
    sys.path.insert(0, str(folder))
    builtins.__import__ = tolerant_import(folder)  # for good: tests import inside, too
    return torch


def main(path: Path, log: str, done: set[str]) -> None:
    """Import the file and run its tests but those of `done`."""
    torch = prepare(path.parent)
    for helpers in ("common_utils", "common"):
        if (path.parent / f"{helpers}.py").exists():
            masks_compare_as_bytes(importlib.import_module(helpers).TestCase, torch)
    module = importlib.import_module(path.stem)
    vars(module).pop("load_tests", None)  # it asks for a program of its own
    tests = [t for t in tests_of(unittest.defaultTestLoader.loadTestsFromModule(module)) if label(t) not in done]
    run(tests, Log(log), torch)


if __name__ == "__mp_main__":  # a process that a test spawned
    prepare(Path(os.environ["CONFORMANCE_FOLDER"]))
if __name__ == "__main__":
    skip = set(Path(sys.argv[3]).read_text().split("\n")) if len(sys.argv) > 3 else set()
    main(Path(sys.argv[1]).resolve(), sys.argv[2], skip)
