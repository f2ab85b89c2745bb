"""`FileCheck`: whether texts stand in another text, one after the other, as LLVM's tool of that name looks for them.

https://github.com/pytorch/pytorch/wiki/PyTorch-IR describes the text that it mostly reads: `str(f.graph)`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

__all__ = ["FileCheck"]

_MARK = re.compile(r"#\s*CHECK(?:-([A-Z-]+?))?(?:-(\d+))?:\s?(.*)$")
_KINDS = {
    None: "CHECK",
    "NOT": "CHECK-NOT",
    "NEXT": "CHECK-NEXT",
    "SAME": "CHECK-SAME",
    "DAG": "CHECK-DAG",
    "COUNT": "CHECK-COUNT",
    "COUNT-EXACTLY": "CHECK-COUNT-EXACTLY",
    "REGEX": "CHECK-REGEX",
    "SOURCE-HIGHLIGHTED": "CHECK-SOURCE-HIGHLIGHTED",
}


@dataclass
class _Check:
    kind: str
    text: str
    count: int = 1

    def __str__(self) -> str:
        number = f"-{self.count}" if self.kind.startswith("CHECK-COUNT") else ""
        return f"{self.kind}{number}: {self.text}"


class FileCheck:
    """Checks, in the order in which they were added; `run` looks for them in a text.

    RuntimeError, with the check and the text, for the first that does not hold.
    """

    def __init__(self) -> None:
        self._checks: list[_Check] = []
        self._ran = False

    def __repr__(self) -> str:
        return "FileCheck checks:\n" + "".join(f"\t{check}\n" for check in self._checks)

    def _add(self, kind: str, text: str, count: int = 1) -> FileCheck:
        self._checks.append(_Check(kind, text, count))
        return self

    def check(self, test: str) -> FileCheck:
        """The text stands behind what was found last."""
        return self._add("CHECK", test)

    def check_not(self, test: str) -> FileCheck:
        """The text does not stand between what was found last and what is found next."""
        return self._add("CHECK-NOT", test)

    def check_same(self, test: str) -> FileCheck:
        """The text stands behind what was found last, in the same line."""
        return self._add("CHECK-SAME", test)

    def check_next(self, test: str) -> FileCheck:
        """The text stands in the line below what was found last."""
        return self._add("CHECK-NEXT", test)

    def check_count(self, test: str, count: int, exactly: bool = False) -> FileCheck:
        """The text stands `count` times behind what was found last, not more often if `exactly`."""
        return self._add("CHECK-COUNT-EXACTLY" if exactly else "CHECK-COUNT", test, count)

    def check_dag(self, test: str) -> FileCheck:
        """The text stands behind what was found last; checks of this kind in a row hold in any order."""
        return self._add("CHECK-DAG", test)

    def check_source_highlighted(self, test: str) -> FileCheck:
        """The text stands behind what was found last, and the line below marks it by `~`."""
        return self._add("CHECK-SOURCE-HIGHLIGHTED", test)

    def check_regex(self, test: str) -> FileCheck:
        """The regular expression fits behind what was found last."""
        return self._add("CHECK-REGEX", test)

    def run(self, *texts: Any, checks_file: str | None = None, test_file: Any = None, graph: Any = None) -> None:
        """Look for the checks in a text or a graph; of two arguments the first is a text with `# CHECK: ...` in it."""
        self._ran = True
        first = () if checks_file is None else (checks_file,)
        texts = (*first, *texts, *(x for x in (test_file, graph) if x is not None))
        checks = self._checks
        if len(texts) == 2:
            checks = [*checks, *_read(str(texts[0]))]
        if len(texts) not in (1, 2):
            raise TypeError(f"run() takes a text, or a text of checks and a text, got {len(texts)} arguments")
        _Search(str(texts[-1])).run(checks)


def _read(text: str) -> list[_Check]:
    found = []
    for line in text.splitlines():
        mark = _MARK.search(line)
        if mark is None:
            continue
        kind, number, rest = mark.groups()
        if kind not in _KINDS:
            raise RuntimeError(f"Could not parse check: {line.strip()}")
        found.append(_Check(_KINDS[kind], rest.strip(), int(number or 1)))
    if not found:
        raise RuntimeError("Could not parse any checks: none of the lines has a `# CHECK:`")
    return found


class _Search:
    """A text, and how far it was read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.start = self.end = 0  # of what was found last

    def run(self, checks: list[_Check]) -> None:
        refused: list[_Check] = []
        i = 0
        while i < len(checks):
            check = checks[i]
            if check.kind == "CHECK-NOT":
                refused.append(check)
                i += 1
                continue
            before = self.end
            if check.kind == "CHECK-DAG":
                group = []
                while i < len(checks) and checks[i].kind == "CHECK-DAG":
                    group.append(checks[i])
                    i += 1
                places = [self.find(one, before) for one in group]
                self.start = min(places)
                self.end = max(p + len(one.text) for p, one in zip(places, group))
            else:
                self.one(check)
                i += 1
            self.absent(refused, before, self.start)
            refused = []
        self.absent(refused, self.end, len(self.text))

    def one(self, check: _Check) -> None:
        kind, text = check.kind, check.text
        if kind == "CHECK-REGEX":
            found = re.compile(text).search(self.text, self.end)
            if found is None:
                self.fail(check, self.end)
            self.start, self.end = found.span()
        elif kind == "CHECK-SAME":
            place = self.find(check, self.end)
            if "\n" in self.text[self.end : place]:
                self.fail(check, self.end, "Expected to not find", " but found it", "\n")
            self.start, self.end = place, place + len(text)
        elif kind == "CHECK-NEXT":
            below = self.line_end(self.end) + 1
            self.within(check, min(below, len(self.text)), self.line_end(below))
        elif kind.startswith("CHECK-COUNT"):
            first = None
            for _ in range(check.count):
                place = self.find(check, self.end)
                first = place if first is None else first
                self.end = place + len(text)
            self.start = self.end if first is None else first
            if kind.endswith("EXACTLY"):
                self.absent([_Check("CHECK-NOT", text)], self.end, len(self.text))
        elif kind == "CHECK-SOURCE-HIGHLIGHTED":
            self.highlighted(check)
        else:
            self.start = self.find(check, self.end)
            self.end = self.start + len(text)

    def highlighted(self, check: _Check) -> None:
        place = self.end
        while (place := self.text.find(check.text, place)) >= 0:
            line = self.text.rfind("\n", 0, place) + 1
            below = self.line_end(place) + 1
            marks = self.text[below : self.line_end(below)][place - line : place - line + len(check.text)]
            if marks and not marks.strip("~"):
                self.start, self.end = place, place + len(check.text)
                return
            place += 1
        self.fail(check, self.end, "Expected to find highlighted")

    def line_end(self, place: int) -> int:
        found = self.text.find("\n", place)
        return len(self.text) if found < 0 else found

    def within(self, check: _Check, start: int, end: int) -> None:
        place = self.text.find(check.text, start, end)
        if place < 0:
            self.fail(check, start)
        self.start, self.end = place, place + len(check.text)

    def find(self, check: _Check, start: int) -> int:
        place = self.text.find(check.text, start)
        if place < 0:
            self.fail(check, start)
        return place

    def absent(self, refused: list[_Check], start: int, end: int) -> None:
        for check in refused:
            if self.text.find(check.text, start, end) >= 0:
                self.fail(check, start, "Expected to not find", " but found it")

    def fail(self, check: _Check, start: int, wanted: str = "Expected to find", how: str = "", text: str = "") -> Any:
        how = how or " but did not find it"
        raise RuntimeError(
            f'{wanted} "{text or check.text}"{how}\nSearched string:\n{self.text[start:]}\nFrom {check}\n'
        )
