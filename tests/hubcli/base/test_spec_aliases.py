"""Addresses and names as people paste them: understood, or answered with the spec to type."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubcli.base.spec import RepoSpec
from hubcli.errors import UsageError

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GITHUB = "https://github.com/o/r"
HF = "https://huggingface.co/org/model"


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("o/r@v1.0", "o/r:v1.0"),
        ("o/r.git@v1.0", "o/r:v1.0"),
        ("gitlab.com/o/r@dev", "gitlab.com/o/r:dev"),
        ("o/r@feature/x", "o/r:feature/x"),
        ("github:o/r", "o/r"),
        ("gh:o/r:v1", "o/r:v1"),
        ("github:o/r#v1", "o/r:v1"),
        ("github:o/r@v1", "o/r:v1"),
        ("gitlab:o/r", "gitlab.com/o/r"),
        ("git+https://github.com/o/r.git@v1#egg=r", f"{GITHUB}.git@v1"),
        (f"{GITHUB}/", GITHUB),
        (f"{GITHUB}?tab=readme-ov-file#usage", GITHUB),
        ("https://www.github.com/o/r", GITHUB),
        (f"{GITHUB}@v1", f"{GITHUB}@v1"),
        (f"{GITHUB}@feature/x", f"{GITHUB}@feature/x"),
        (f"{GITHUB}/tree/v1", f"{GITHUB}@v1"),
        (f"{GITHUB}/tree/v1/", f"{GITHUB}@v1"),
        ("github.com/o/r/tree/v1", f"{GITHUB}@v1"),
        (f"{GITHUB}/blob/main/hubconf.py", f"{GITHUB}@main"),
        (f"{GITHUB}/commit/{COMMIT}", f"{GITHUB}@{COMMIT}"),
        (f"{GITHUB}/releases/tag/v1.0", f"{GITHUB}@v1.0"),
        (f"{GITHUB}/releases", GITHUB),
        (f"{GITHUB}/archive/refs/tags/v1.0.tar.gz", f"{GITHUB}@v1.0"),
        (f"{GITHUB}/archive/main.zip", f"{GITHUB}@main"),
        ("https://gitlab.com/g/sub/r/-/tree/main", "https://gitlab.com/g/sub/r@main"),
        ("https://git.example:8443/g/r/-/tree/main", "https://git.example:8443/g/r@main"),
        ("https://codeberg.org/o/r/src/branch/main", "https://codeberg.org/o/r@main"),
        ("hf:org/model", HF),
        ("hf.co/org/model", HF),
        (f"{HF}/tree/main", f"{HF}@main"),
        ("https://hf.co/spaces/o/demo/tree/main", "https://huggingface.co/spaces/o/demo@main"),
    ],
)
def test_understood(text: str, spec: str) -> None:
    found = RepoSpec.parse(text)
    assert str(found) == spec
    assert found == RepoSpec.parse(spec)


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            f"{GITHUB}/tree/feature/x",
            "may mean the branch 'feature/x', or a folder of 'feature'",
            f"write {GITHUB}@feature, or {GITHUB}@feature/x",
        ),
        (f"{GITHUB}/blob/main/src/net.py", f"is a file of {GITHUB}", f"write {GITHUB}@main"),
        (f"{HF}/resolve/main/model.safetensors", f"is a file of {HF}", f"write {HF}@main"),
        (f"{GITHUB}/issues/3", f"is a page of {GITHUB}, not the repository", f"write {GITHUB}"),
        (f"{GITHUB}:v1", "has a colon before the ref", f"write {GITHUB}@v1"),
    ],
)
def test_answered(text: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        RepoSpec.parse(text)
    assert message in caught.value.message
    assert caught.value.hint == hint
    assert RepoSpec.parse(hint.removeprefix("write ").partition(",")[0]).kind == "remote"


@pytest.mark.parametrize("text", ["https://git.example/o/r/tree/main", "ssh://git@github.com/o/r/tree/v1"])
def test_other_hosts_may_have_such_paths(text: str) -> None:
    assert str(RepoSpec.parse(text)) == text


def test_credentials_stay_refused() -> None:
    for text in ("https://u:p@github.com/o/r/tree/v1", "git+https://u:p@github.com/o/r"):
        with pytest.raises(UsageError) as caught:
            RepoSpec.parse(text)
        assert "carries credentials" in caught.value.message and "u:p" not in caught.value.message


def test_a_bare_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine" / "net").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert RepoSpec.parse("mine").path == tmp_path / "mine"
    assert RepoSpec.parse("mine/net").kind == "remote"  # a folder never stands in for what is trusted elsewhere
    with pytest.raises(UsageError):
        RepoSpec.parse("yours")
