"""The command: a script is executed twice, under Python's profiler and under the engine's, and three summaries printed.

The script is executed as its user's own code, so only a script that may be executed should be given.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import os
import pstats
import runpy
import sys
import tokenize
from collections.abc import Callable, Sequence
from typing import Any

from engine.autograd import profiler
from engine.backends import registered
from engine.core import version

__all__ = ["main"]

_ROWS = 15
_RULE = "-" * 80


def _section(title: str) -> str:
    return f"{_RULE}\n  {title}\n{_RULE}\n"


def _environment() -> str:
    cuda = any(backend.kind == "cuda" for backend in registered())
    python = ".".join(map(str, sys.version_info[:3]))
    return (
        f"engine {version.__version__} on Python {python} ({sys.platform}), {os.cpu_count()} processors, "
        f"CUDA {'in use' if cuda else 'not in use'}\n"
    )


class _Failed(Exception):
    """The script raised; its traceback was printed."""


def _executed(script: str, arguments: Sequence[str], around: Callable[[Callable[[], Any]], Any]) -> Any:
    """`around(run)`, where run() executes the script as `__main__` with its own arguments and folder."""
    before_argv, before_path = sys.argv, list(sys.path)
    sys.argv = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    try:
        return around(lambda: _run(script))
    finally:
        sys.argv, sys.path[:] = before_argv, before_path


def _run(script: str) -> None:
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            raise _Failed(f"the script ended with status {end.code}") from None
    except Exception as error:
        import traceback

        frames = [f for f in traceback.extract_tb(error.__traceback__) if not _own(f.filename)]
        text = "".join(traceback.format_list(frames) + traceback.format_exception_only(error))
        raise _Failed(f"the script raised an exception:\n{text.rstrip()}") from None


def _own(file: str) -> bool:
    return file == __file__ or file == runpy.__file__ or file.startswith("<frozen runpy")


def _python_summary(script: str, arguments: Sequence[str]) -> str:
    profile = cProfile.Profile()

    def around(run: Callable[[], Any]) -> None:
        profile.enable()
        try:
            run()
        finally:
            profile.disable()

    _executed(script, arguments, around)
    out = io.StringIO()
    pstats.Stats(profile, stream=out).sort_stats("tottime").print_stats(_ROWS)
    return _section("cProfile output: functions of Python by their own time") + out.getvalue().strip() + "\n\n"


def _engine_summary(script: str, arguments: Sequence[str]) -> str:
    def around(run: Callable[[], Any]) -> profiler.profile:
        with profiler.profile() as found:
            run()
        return found

    found = _executed(script, arguments, around)
    table = found.key_averages().table(sort_by="self_cpu_time_total", row_limit=_ROWS)
    longest = found.table(sort_by="cpu_time_total", row_limit=_ROWS)
    return (
        _section(f"autograd profiler output: operations by their own time, top {_ROWS}")
        + table
        + "\n"
        + _section(f"autograd profiler output: the longest single calls, top {_ROWS}")
        + longest
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m engine.utils.bottleneck",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Execute a script under Python's profiler and under the engine's, and summarise both.",
        epilog="The script is executed twice and has to end; what it prints is printed.  Its time under a profiler is "
        "longer than without.\nOn CUDA use `torch.autograd.profiler.profile(use_cuda=True)`: it waits for the device.",
    )
    parser.add_argument("scriptfile", help="the script that is executed")
    parser.add_argument("args", nargs=argparse.REMAINDER, help="arguments of the script")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The command.  0; 1 where the script fails, 2 where it cannot be read."""
    given = _parser().parse_args(arguments)
    script = given.scriptfile
    try:
        with tokenize.open(script) as file:
            compile(file.read(), script, "exec", dont_inherit=True)
    except (OSError, SyntaxError, UnicodeDecodeError, ValueError) as error:
        print(f"error: cannot read the script {script}: {error}\nhint: name a file of Python source", file=sys.stderr)
        return 2
    from engine import torch_alias  # only the command takes torch's name

    torch_alias.install()
    try:
        first = _python_summary(script, given.args)
        second = _engine_summary(script, given.args)
    except _Failed as error:
        print(f"error: {error}\nhint: run it by itself first: python {script}", file=sys.stderr)
        return 1
    print(_section("Environment summary") + _environment() + "\n" + first + second, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
