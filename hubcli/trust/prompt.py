"""The prompt in front of repository code: its answers, and what one may look at before one gives one."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path

from hubcli.base import paths
from hubcli.base.output import printable
from hubcli.cache import ref_table
from hubcli.cache.checkouts import Checkout
from hubcli.net.git import remote as git

_CHOICES = {
    **dict.fromkeys(("y", "yes", "o", "once"), "once"),
    **dict.fromkeys(("c", "commit"), "commit"),
    **dict.fromkeys(("r", "repo", "repository"), "repo"),
}
_DECLINED = ("", "n", "no", "not", "q", "quit")
_LINES = 500  # of a file or a difference that are shown at once
_BYTES = 1 << 20
_HELP = """\
  o  this time only (also y, yes)
  c  this commit, now and later
  r  this repository at any commit, also those that are yet to come
  n  not at all
  v  view hubconf.py; v FILE views another file of the repository
"""
_HELP_DIFF = "  d  what changed since the commit that you trusted; d FILE in one file\n"


def choice(checkout: Checkout, before: str | None) -> str | None:
    """`once`, `commit`, `repo`, or None for no; asks until it has an answer.

    `before` is the commit that was trusted last, where the cache still has it.
    """
    diff = ", [d]iff" if before else ""
    question = f"Allow it [o]nce, for this [c]ommit, this [r]epository, or [n]ot at all ([v]iew{diff}, ? for help)? "
    while True:
        _say(question)
        line = sys.stdin.readline()
        word, _, name = line.strip().partition(" ")
        word = word.lower()
        if word in _CHOICES and not name:
            return _CHOICES[word]
        if not line or (word in _DECLINED and not name):
            return None
        if word in ("v", "view"):
            _shown(functools.partial(view, checkout, name.strip() or "hubconf.py"))
        elif word in ("d", "diff") and before:
            _shown(functools.partial(difference, checkout, before, name.strip()))
        elif word in ("?", "h", "help"):
            _say(_HELP + (_HELP_DIFF if before else ""))
        else:
            _say(f"{_clean(line.strip())[:60]!r} is no answer.\n")


def view(checkout: Checkout, name: str) -> str:
    """Return a file of the checkout with line numbers, and which other code files there are."""
    root = checkout.path.resolve()
    file = (root / name).resolve()
    if not (file.is_relative_to(root) and file.is_file()):
        return f"there is no file {name!r} in the repository"
    with file.open("rb") as opened:
        text = opened.read(_BYTES).decode("utf-8", "replace")
    lines = [f"{number:5}  {line}" for number, line in enumerate(text.splitlines(), 1)]
    others = [one for one in _code(root) if one != name]
    more = f"\nother code: {', '.join(others[:20])}{' ...' if len(others) > 20 else ''}" if others else ""
    return _cut(lines, str(file)) + more


def difference(checkout: Checkout, before: str, name: str) -> str:
    """Return what changed between the commit that was trusted and this one."""
    db = paths.db(ref_table.Table.read(checkout.spec).key)
    found = git.difference(db, before, str(checkout.commit), name or None)
    if found is None:
        return "what changed is not known: that commit is no longer in the cache"
    return _cut(found[:_BYTES].splitlines(), "the rest: d FILE") if found else "no change"


def _code(root: Path) -> list[str]:
    return sorted(str(file.relative_to(root)) for file in root.rglob("*.py"))


def _cut(lines: list[str], where: str) -> str:
    more = [f"... {len(lines) - _LINES} more lines ({where})"] if len(lines) > _LINES else []
    return "\n".join([*lines[:_LINES], *more])


def _shown(make: Callable[[], str]) -> None:
    """Print what was read of the repository, marked so that no line of it looks like one of ours."""
    try:
        text = make()
    except OSError as error:
        text = str(error)
    _say("".join(f"| {_clean(line)}\n" for line in text.splitlines()))


def _clean(line: str) -> str:
    return printable("".join(one if one.isprintable() or one == "\t" else "?" for one in line))


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
