"""The causes of an exception of repository code, one line each: `raise ... from`, context, members of a group, notes.

A repository that wraps each of its errors in one sentence, or a library that does, hides what went wrong in what the
wrapper was raised from.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator

from hubcli.errors import Cause, DependencyError, HubError, masked

MAX_SHOWN = 8  # lines; of a longer chain those nearest to the error, and the deepest
_MAX_WALKED = 10_000
_MAX_DEPTH = 4  # groups inside groups
_MAX_LETTERS = 500

Place = Callable[[BaseException], str]
Has = Callable[[BaseException], bool]


def text(error: BaseException) -> str:
    """Return an exception's words on one line; `__str__` of a stranger's class may fail."""
    try:
        said = " ".join(str(error).split())
    except Exception:
        said = ""
    return said or "no message"


def of(error: BaseException, place: Place, internal: Has) -> tuple[Cause, ...]:
    """Return the causes of an error, the nearest first, with `place` before each.

    What is `internal` (caught and reported in other words by the engine or by hub) is left out.
    """
    return _lines(list(_walked(error, internal)), place)


def of_ours(error: HubError, place: Place, own: Has) -> tuple[Cause, ...]:
    """Return the same for an error of hub's that came up inside repository code: what passed through `own` code alone.

    Its own cause is reported in its message.
    """
    if isinstance(error, DependencyError):  # it tells of the import that failed
        return ()
    start = error.__cause__ or error
    found = [
        (kind, one)
        for kind, one in _walked(start, lambda one: False)
        if isinstance(one, str) or (own(one) and text(one) not in error.message)
    ]
    return _lines(found, place)


def exit_text(error: SystemExit) -> str:
    """In which words code has ended the process: what argparse refused, or the status."""
    parser = getattr(sys.modules.get("argparse"), "ArgumentParser", ())
    for frame, _ in traceback.walk_tb(error.__traceback__):
        said = frame.f_locals.get("message")
        if frame.f_code.co_name == "error" and isinstance(said, str) and isinstance(frame.f_locals.get("self"), parser):
            return f"the code reads a command line, and there is none here: {' '.join(said.split())}"
    return f"the code called sys.exit({'' if error.code is None else repr(error.code)})"


def _walked(error: BaseException, internal: Has) -> Iterator[tuple[str, BaseException | str]]:
    """Kind and exception (or note) of all that led to an error, from the nearest on."""
    seen: set[int] = set()
    waiting: list[tuple[str, BaseException, int]] = [("", error, 0)]
    while waiting and len(seen) < _MAX_WALKED:
        kind, one, depth = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if kind:
            yield kind, one
        yield from (("note", note) for note in _notes(one))
        before = one.__cause__ if one.__cause__ is not None or one.__suppress_context__ else one.__context__
        if before is not None:
            kind = "context" if one.__cause__ is None else "cause"
            waiting.append(("" if internal(before) else kind, before, depth))
        if isinstance(one, BaseExceptionGroup) and depth < _MAX_DEPTH:
            waiting += [("part", part, depth + 1) for part in reversed(one.exceptions)]


def _notes(error: BaseException) -> list[str]:
    notes = None if isinstance(error, HubError) else getattr(error, "__notes__", None)  # ours repeat the hint
    return [one for one in notes if isinstance(one, str)] if isinstance(notes, list | tuple) else []


def _lines(found: list[tuple[str, BaseException | str]], place: Place) -> tuple[Cause, ...]:
    left = max(len(found) - MAX_SHOWN, 0)
    first = found[: MAX_SHOWN // 2] if left else found
    made = [_line(kind, one, place) for kind, one in first]
    if left:
        made.append(Cause("note", f"{left} more between these"))
        made += [_line(kind, one, place) for kind, one in found[-MAX_SHOWN // 2 :]]
    return tuple(made)


def _line(kind: str, one: BaseException | str, place: Place) -> Cause:
    if isinstance(one, str):
        return Cause(kind, masked(" ".join(one.split()))[:_MAX_LETTERS])
    hint = f" (hint: {one.hint})" if isinstance(one, HubError) and one.hint else ""
    return Cause(kind, f"{place(one)}{type(one).__name__}: {masked(text(one))[:_MAX_LETTERS]}{hint}")
