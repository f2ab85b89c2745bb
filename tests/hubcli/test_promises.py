"""README.md beside this file: every test that it names exists, and every promise has one."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def rows() -> list[tuple[str, str, list[str]]]:
    """(number, promise, tests) of the tables."""
    found = re.findall(r"^\| *(\d*) *\| (.+?) \| (.+?) \|$", (HERE / "README.md").read_text(encoding="utf-8"), re.M)
    return [(number, promise, tests.split()) for number, promise, tests in found if promise != "promise"]


def test_every_item_is_there():
    numbers = {int(number) for number, _, _ in rows() if number}
    assert numbers == set(range(1, 29))
    assert all(tests for _, _, tests in rows())


def test_the_tests_exist():
    texts: dict[Path, str] = {}
    for _, promise, tests in rows():
        for one in tests:
            file, _, name = one.partition("::")
            path = ROOT / file if file.startswith("tests/") else HERE / file
            text = texts.setdefault(path, path.read_text(encoding="utf-8") if path.is_file() else "")
            assert re.search(rf"^ *def {name}\(", text, re.M), f"{promise}: there is no {one}"


def test_attacks_that_are_said_to_run_in_each_mechanism_do():
    for _, promise, tests in rows():
        if "(each mechanism)" not in promise:
            continue

        def parameters(one: str) -> str:
            file, _, name = one.partition("::")
            text = (ROOT / file if file.startswith("tests/") else HERE / file).read_text(encoding="utf-8")
            found = re.search(rf"((?:^@.*\n(?:^[ )\]].*\n)*)*)^def {name}\((.*?)\)", text, re.M)
            assert found is not None
            return found.group(1) + found.group(2)

        assert any(re.search(r"\bmechanism\b|\"best-effort\"", parameters(one)) for one in tests), promise
