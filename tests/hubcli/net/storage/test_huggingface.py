"""`hf://` addresses, and the digest that their server announces."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hubcli.cache import weights
from hubcli.errors import IntegrityError, NotFoundError, OfflineError, UsageError
from hubcli.net.git import remote as git
from hubcli.net.http import credentials, secret_scope
from hubcli.net.storage import huggingface
from tests.servers import Repository, Served, file_server, git_server

BODY = b"a checkpoint" * 100
SHA = hashlib.sha256(BODY).hexdigest()


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("hf://o/r/model.pth", "o/r/resolve/main/model.pth"),
        ("hf://o/r/model.pth@v1.0", "o/r/resolve/v1.0/model.pth"),
        ("HF://o/r.x/sub/a b.bin@refs/pr/3", "o/r.x/resolve/refs%2Fpr%2F3/sub/a%20b.bin"),
    ],
)
def test_addresses(url: str, path: str) -> None:
    assert huggingface.resolved(url) == f"https://huggingface.co/{path}"


def test_other_urls_stay() -> None:
    assert huggingface.resolved("https://h/o/r/x@y") == "https://h/o/r/x@y"


@pytest.mark.parametrize(
    "url",
    [
        "hf://o/r",
        "hf://o/r/",
        "hf://o/../x",
        "hf://o/r/../x",
        "hf://o/r/a//b",
        "hf://o/r/x?y",
        "hf://-o/r/x",
        "hf:///r/x",
    ],
)
def test_malformed(url: str) -> None:
    with pytest.raises(UsageError, match="OWNER/REPO/FILE"):
        huggingface.resolved(url)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server that redirects `/o/r/resolve/...` to `/store/...` on another host name, as Hugging Face does."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "model.pth").write_bytes(BODY)
    with file_server(tmp_path) as served, file_server(tmp_path) as store:
        served.announced = SHA  # type: ignore[attr-defined]

        def redirect(handler) -> bool:
            headers = {"Location": f"{store.url}/store/model.pth?key=secret", "X-Linked-Etag": f'"{served.announced}"'}
            handler.answer(302, b"", headers)
            return True

        served.fault = redirect
        monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
        monkeypatch.setenv("HUB_REWRITE", f"https://huggingface.co/={served.url}/")
        yield served


def test_a_weight_by_its_hf_address(hub: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    weight, path = weights.obtain("hf://o/r/model.pth@v1")
    assert (weight.sha256, path.read_bytes(), weight.file) == (SHA, BODY, "model.pth")
    assert weight.url == "https://huggingface.co/o/r/resolve/v1/model.pth"
    assert hub.requests[0].path == "/o/r/resolve/v1/model.pth"
    monkeypatch.setenv("HUB_OFFLINE", "1")
    assert weights.obtain("hf://o/r/model.pth@v1")[1].read_bytes() == BODY
    with pytest.raises(OfflineError):
        weights.obtain("hf://o/r/model.pth@v2")


def test_what_comes_is_not_what_was_announced(hub: Served, hub_root: Path) -> None:
    hub.announced = "0" * 64  # type: ignore[attr-defined]
    with pytest.raises(IntegrityError, match="its server says 0000"):
        weights.obtain("hf://o/r/model.pth")
    assert list((hub_root / "partial").iterdir()) == []


def test_an_etag_that_is_no_sha256_says_nothing(hub: Served) -> None:
    hub.announced = "0" * 40  # type: ignore[attr-defined]
    assert weights.obtain("hf://o/r/model.pth")[0].sha256 == SHA


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """The server of HF_ENDPOINT, with a file that takes HF_TOKEN."""
    folder = tmp_path / "hf" / "o" / "r" / "resolve" / "main"
    folder.mkdir(parents=True)
    (folder / "model.pth").write_bytes(BODY)
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    with file_server(tmp_path / "hf") as served:
        monkeypatch.setenv("HF_ENDPOINT", f"{served.url}/")
        yield served


def sent(served: Served) -> list[str | None]:
    return [one.headers.get("Authorization") for one in served.requests]


@pytest.mark.parametrize("url", ["hf://o/r/model.pth", "https://huggingface.co/o/r/resolve/main/model.pth"])
def test_endpoint_and_token_of_hugging_face(endpoint: Served, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_t0ken\n")
    weight, path = weights.obtain(url)
    assert (path.read_bytes(), weight.url) == (BODY, "https://huggingface.co/o/r/resolve/main/model.pth")
    assert sent(endpoint) == ["Bearer hf_t0ken"]


def test_the_token_of_hugging_face_goes_nowhere_else(
    endpoint: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_t0ken")
    with file_server(tmp_path / "hf") as other:
        weights.obtain(f"{other.url}/o/r/resolve/main/model.pth")
        assert sent(other) == [None]
    with secret_scope.naming(frozenset({"elsewhere"})):  # repository code asks
        weights.obtain("hf://o/r/model.pth")
    assert sent(endpoint) == [None]
    assert credentials.tokens("https://huggingface.co/x")[0].authorization == "Bearer hf_t0ken"
    for url in ("http://huggingface.co/x", "https://huggingface.co.evil/x", "https://huggingface.co:444/x"):
        assert credentials.tokens(url) == []


def test_a_stale_token_of_hugging_face_is_left_out(
    endpoint: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of-last-year")

    def fault(handler) -> bool:
        if "Authorization" not in handler.headers:
            return False
        handler.answer(401, b"", {})
        return True

    endpoint.fault = fault
    assert weights.obtain("hf://o/r/model.pth")[1].read_bytes() == BODY
    said = capsys.readouterr().err
    assert "refuses HF_TOKEN (401)" in said and "hf_of-last-year" not in said


def test_a_repository_at_the_endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    Repository.create(tmp_path / "git", "o/r").commit({"a": "1"})
    with git_server(tmp_path / "git") as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        monkeypatch.setenv("HF_TOKEN", "hf_t0ken")
        assert git.Remote.of("https://huggingface.co/o/r").resolve(None).name == "main"
        assert sent(served)[0] == credentials._basic("hf_user", "hf_t0ken")


def test_a_gated_model_names_the_token_that_it_wants(endpoint: Served) -> None:
    endpoint.credentials = "another"
    with pytest.raises(NotFoundError) as caught:
        weights.obtain("hf://o/r/model.pth")
    assert "set HF_TOKEN" in str(caught.value.hint)
