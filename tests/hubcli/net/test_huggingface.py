"""`hf://` addresses, and the digest that their server announces."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hubcli.cache import weights
from hubcli.errors import IntegrityError, OfflineError, UsageError
from hubcli.net import huggingface
from tests.servers import Served, file_server

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
