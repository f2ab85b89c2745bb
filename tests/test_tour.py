"""docs/tutorial/tour.md is executed: every command of it, one after the other, prints what the page shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.servers import Repository, git_server

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "tutorial" / "tour.md"
BLOCKS = re.compile(r"^```console\n(.*?)^```", re.M | re.S)


def prepare(folder: Path) -> None:
    """The repository of the page, and the files of its reader."""
    repository = Repository.create(folder / "served", "hub-models/digits")
    files = {
        str(path.relative_to(ROOT / "sample_hubconf")): path.read_bytes()
        for path in sorted((ROOT / "sample_hubconf").rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    repository.commit(files, tag="v1.0")
    with np.load(ROOT / "sample_hubconf" / "data" / "digits.npz") as data:
        images, held_out = data["images"], data["held_out"]
    digits = images[held_out].astype(np.float64) / 16
    (folder / "here").mkdir()
    picture = Image.fromarray((digits[3] * 255).astype(np.uint8)).resize((64, 64), Image.Resampling.NEAREST)
    picture.save(folder / "here" / "digit.png")
    rows = [",".join(f"{value:g}" for value in digit.ravel()) for digit in digits[:3]]
    (folder / "here" / "digits.csv").write_text("\n".join(rows) + "\n")


def session(folder: Path, url: str, commands: list[str]) -> list[str]:
    """What each command prints, as it stands on a terminal: both streams together."""
    program = folder / "bin" / "hub"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from hubcli.terminal.cli import main; main()" "$@"\n')
    program.chmod(0o755)
    environment = {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "HUB_ALLOW_PROTOCOLS": "http",
        "HUB_GIT_URL": f"{url}/{{owner}}/{{repo}}.git",
        **{name: os.environ[name] for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS") if name in os.environ},
    }
    shown = []
    for command in commands:
        done = subprocess.run(
            ["sh", "-c", f"{command} 2>&1"],
            cwd=folder / "here",
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        shown.append(done.stdout.rstrip("\n"))
    return shown


def steps() -> Iterator[tuple[str, str]]:
    """The commands of the page, and what it shows after each."""
    for block in BLOCKS.findall(PAGE.read_text()):
        for step in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, shown = step.partition("\n")
            yield command, shown.rstrip("\n")


def matches(shown: str, printed: str) -> bool:
    """Whether the page shows what was printed; `...` is anything on one line, on a line of its own any lines."""
    pattern = ""
    for line in shown.split("\n"):
        if line == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += r"[^\n]*".join(map(re.escape, line.split("..."))) + r"\n"
    return re.fullmatch(pattern, printed + "\n") is not None


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("tour")
    prepare(folder)
    with git_server(folder / "served") as served:
        return session(folder, served.url, [command for command, _ in steps()])


@pytest.mark.skipif(shutil.which("sh") is None, reason="there is no shell")
@pytest.mark.parametrize("number", range(len(list(steps()))))
def test_the_page_shows_what_is_printed(printed: list[str], number: int) -> None:
    command, shown = list(steps())[number]
    assert matches(shown, printed[number]), f"$ {command}\n{printed[number]}"


def test_matching() -> None:
    assert matches("a ... b\n...\nend", "a x b\n1\n2\nend")
    assert matches("a\n...\nend", "a\nend")
    assert not matches("a ... b", "a\n b")
    assert not matches("a", "a\nb")
