"""The output for the user: one document on stdout, messages and progress bars on stderr.

Core modules call `message`, `warning` and `progress`; only commands call `Output.result`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from hubcli.base import settings
from hubcli.errors import Cause, HubError

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

SCHEMA_VERSION = 1


class Output(NamedTuple):
    """The form of output: JSON or text for people, and how much."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False

    @classmethod
    def current(cls) -> Self:
        """Return the output that the present settings ask for."""
        now = settings.current()
        return cls(now.json, now.quiet, now.verbose)

    def result(self, document: Mapping[str, Any], human: Callable[[], object] | str = "") -> None:
        """Print the command's result: `document` as JSON, else `human` (text, or what makes it)."""
        if self.json:
            import json

            document = {"schema_version": SCHEMA_VERSION, **document}
            text = visible_json(json.dumps(document, ensure_ascii=False, indent=2, default=str))
        else:
            made = human if isinstance(human, str) else human()
            text = printable(made) if isinstance(made, str) else ""
        if text:
            sys.stdout.write(encodable(text if text.endswith("\n") else text + "\n", sys.stdout))
        sys.stdout.flush()

    def piece(self, text: str) -> None:
        """Print a part of the result as soon as it is there; nothing with --json, whose document comes at the end."""
        if not self.json:
            sys.stdout.write(encodable(printable(text), sys.stdout))
            sys.stdout.flush()

    def message(self, text: str) -> None:
        """Say something on stderr, unless --quiet."""
        if not self.quiet:
            self._stderr(text)

    def detail(self, text: str) -> None:
        """Say something on stderr under --verbose only."""
        if self.verbose and not self.quiet:
            self._stderr(text)

    def warning(self, text: str) -> None:
        """Say on stderr, also under --quiet, that something needs attention."""
        self._stderr(f"warning: {text}")

    def _stderr(self, text: str) -> None:
        sys.stderr.write(encodable(indented(printable(text)) + "\n", sys.stderr))
        sys.stderr.flush()


def message(text: str) -> None:
    """`Output.message` under the present settings."""
    Output.current().message(text)


def detail(text: str) -> None:
    """`Output.detail` under the present settings."""
    Output.current().detail(text)


def warning(text: str) -> None:
    """`Output.warning` under the present settings."""
    Output.current().warning(text)


def printable(text: str) -> str:
    """`text` as a terminal may have it: no control character but newline and tab, no HUB_TOKEN or HF_TOKEN.

    What a server or a repository says ends here, so that it neither drives the terminal (escape
    sequences, text written from right to left) nor echoes the secret that it was sent.
    """
    for secret in _secrets():
        text = text.replace(secret, "***")
    if text.isprintable():
        return text
    return "".join(c for c in text if c in "\n\t" or c.isprintable())


def causes(many: Sequence[Cause], where: str = "") -> list[str]:
    """Return the causes of an error as lines, the nearest first; under HUB_DEBUG the deepest, as Python prints them.

    `where` stands before the words of each.
    """
    try:
        deepest_first = settings.current().debug
    except HubError:  # the settings themselves are what is wrong
        deepest_first = False
    lines = [f"{one.kind}: {where}{' '.join(one.text.split())}" for one in many]
    return lines[::-1] if deepest_first else lines


def indented(text: str) -> str:
    """`text` with all lines but the first moved in: words of others in it look like no line of ours."""
    return text.replace("\n", "\n  ")


def visible_json(text: str) -> str:
    r"""JSON with every character that a terminal would obey written as \uXXXX: the same document."""
    for secret in _secrets():
        text = text.replace(secret, "***")
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else _escaped(c) for c in text)


def encodable(text: str, stream: Any) -> str:
    r"""`text` with what `stream` cannot encode written as \uXXXX, which in JSON means the same."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return "".join(c if _fits(c, encoding) else _escaped(c) for c in text)
    return text


def _fits(character: str, encoding: str) -> bool:
    try:
        character.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return character < "\x7f"
    return True


def cut(text: str, length: int) -> str:
    """`text`, of what is too long the beginning."""
    return text if len(text) <= length else f"{text[: length - 3]}..."


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def _secrets() -> list[str]:
    try:
        now = settings.current()
    except HubError:  # the settings themselves are what is wrong
        return []
    return [token for token in (now.token, now.hf_token) if token and len(token) >= 4]


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Rows as aligned columns, separated by two spaces; no trailing blanks, and a line per row whatever is in it."""
    if not rows:
        return ""
    rows = [tuple(cell.replace("\n", " ").replace("\t", " ") for cell in row) for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def a(name: str) -> str:
    """Return the name with its article: `a dict`, `an int`."""
    return f"{'an' if name[:1] in 'aeioAEIO' else 'a'} {name}"


def size(count: int) -> str:
    """Return a number of bytes for people: `46.8 MB` (powers of 1000)."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def age(seconds: float) -> str:
    """Return a span of time for people: `3 hours`.  One that a changed clock makes negative is none."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        count = int(seconds // length)
        if count > 0:
            return f"{count} {unit}{'s' * (count != 1)}"
    return "less than a minute"


@contextlib.contextmanager
def fd1_to_stderr() -> Iterator[None]:
    """Point file descriptor 1 and `sys.stdout` to stderr, for the time that repository code runs.

    What C libraries print goes there too.  Both are restored at the end, also after an error.
    """
    sys.stdout.flush()
    try:
        saved: int | None = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # descriptor 1 or 2 is closed: nothing can reach stdout through it
        saved = None
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stderr.flush()
        if saved is not None:
            _flush_c_streams()
            os.dup2(saved, 1)
            os.close(saved)


def _flush_c_streams() -> None:
    import ctypes

    with contextlib.suppress(OSError, AttributeError):  # a platform without such a C library
        ctypes.CDLL(None).fflush(None)


class Progress:
    """A progress bar; this one shows nothing, as where stderr is no terminal."""

    shown = False

    def update(self, n: int = 1) -> None:
        """Advance by `n`."""

    def set(self, completed: float, total: float | None, label: str | None = None) -> None:
        """Go to `completed` of `total`, perhaps under another label."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class _Bar(Progress):
    """A line of the one display that rich allows at a time: parallel downloads share it."""

    shown = True
    _lock = threading.Lock()
    _display: ClassVar[RichProgress | None] = None
    _users = 0

    def __init__(self, label: str, total: float | None, unit: str) -> None:
        self._label, self._total, self._unit = label, total, unit

    def update(self, n: int = 1) -> None:
        self._bar.advance(self._task, n)

    def set(self, completed: float, total: float | None, label: str | None = None) -> None:
        description = None if label is None else printable(label)
        self._bar.update(self._task, completed=completed, total=total, description=description)
        if total is None:  # which `update` takes for the total that there was
            for task in self._bar.tasks:
                if task.id == self._task:
                    task.total = None

    def __enter__(self) -> Self:
        with _Bar._lock:
            if _Bar._display is None:
                _Bar._display = _display(self._unit)
                _Bar._display.start()
            _Bar._users += 1
            self._bar = _Bar._display
            self._task = self._bar.add_task(printable(self._label), total=self._total)
        return self

    def __exit__(self, *error: object) -> None:
        with _Bar._lock:
            _Bar._users -= 1
            if _Bar._users:
                self._bar.remove_task(self._task)
            else:
                _Bar._display = None
                self._bar.stop()


def _display(unit: str) -> RichProgress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.text import Text

    class Percentage(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.percentage:>3.0f}%" if task.total else "")

    # a file's name is text, never markup
    columns: list[ProgressColumn] = [TextColumn("{task.description}", markup=False), BarColumn()]
    if unit == "B":
        columns += [DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()]
    else:
        columns += [Percentage()]
    if sys.stderr.isatty():
        return Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
    # a cell shows HTML; colours would be escape codes in the text beside it
    cell = Console(force_jupyter=True, color_system=None, width=100)
    return Progress(*columns, console=cell, transient=True, redirect_stdout=False, redirect_stderr=False)


def progress(label: str, total: float | None = None, *, unit: str = "B") -> Progress:
    """Return a progress bar on stderr if that is a terminal, or in a notebook's cell; else a mute one.  Use it in a
    `with`."""
    if settings.current().quiet or not (sys.stderr.isatty() or _in_notebook()):
        return Progress()
    return _Bar(label, total, unit)


def _in_notebook() -> bool:
    """Return whether this is a notebook's kernel that can show a bar: rich draws it through ipywidgets."""
    ipython = sys.modules.get("IPython")
    if ipython is None:
        return False
    shell = type(ipython.get_ipython())
    if shell.__name__ != "ZMQInteractiveShell" and not shell.__module__.startswith("google.colab"):
        return False
    import importlib.util

    return importlib.util.find_spec("ipywidgets") is not None
