"""Entrypoints that download by other means than `load_state_dict_from_url`: recorded, digested, there offline."""

from __future__ import annotations

import gc
import hashlib
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import engine
from hubcli.base import settings
from hubcli.base.spec import RepoSpec
from hubcli.cache import weights
from hubcli.cache.cache import Cache
from hubcli.errors import IntegrityError, OfflineError, RepositoryCodeError
from hubcli.running import invoke
from tests.servers import Served, file_server

SITE = {
    "gdown/__init__.py": "from .download import download\n",
    "gdown/download.py": "import shutil\nCALLS = []\n"
    "def download(url=None, output=None, quiet=False, *, id=None, fuzzy=False):\n"
    "    CALLS.append(url or id)\n    shutil.copyfile(SOURCE, output)\n    return output\n",
    "huggingface_hub/__init__.py": "def __getattr__(name):\n    if name != 'hf_hub_download':\n"
    "        raise AttributeError(name)\n"
    "    from . import file_download\n    return getattr(file_download, name)\n",
    "huggingface_hub/file_download.py": "CALLS = []\n"
    "def hf_hub_download(repo_id, filename, *, revision=None, subfolder=None,\n"
    "        repo_type=None, cache_dir=None):\n    CALLS.append(filename)\n    return 'the original'\n",
}

HUBCONF = """
import os
import urllib.request

def urlretrieve(url, name):
    return urllib.request.urlretrieve(url, name)[0]

def urlopen(url, name, **headers):
    import shutil
    request = urllib.request.Request(url, headers=headers) if headers else url
    with urllib.request.urlopen(request) as answer, open(name, "wb") as file:
        assert answer.status in (200, 206) and int(answer.headers["Content-Length"]) > 0
        shutil.copyfileobj(answer, file)

def urlopen_as_somebody(url, name):
    urlopen(url, name, **{"User-Agent": "Mozilla/5.0"})

def urlopen_in_vain(url, name):
    try:
        urlopen(url, name)
    except OSError:
        raise RuntimeError("no weights")

def requests_get(url, name, **headers):
    import requests
    answer = requests.get(url, headers=headers, timeout=60)
    answer.raise_for_status()
    with open(name, "wb") as file:
        file.write(answer.content)

def requests_stream(url, name):
    from requests import get
    with get(url, stream=True, allow_redirects=True) as answer, open(name, "wb") as file:
        assert answer.ok and int(answer.headers.get("content-length"))
        for chunk in answer.iter_content(chunk_size=1000):
            file.write(chunk)

def own_cache(url, home):
    path = os.path.join(os.path.expanduser("~/.cache"), "mine", "net.bin")
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path))
        requests_get(url, path)
    with open(path, "rb") as file:
        return file.read()

def torch_download(url, name):
    import torch.hub
    os.makedirs(os.path.dirname(name), exist_ok=True)
    torch.hub.download_url_to_file(url, name, progress=False)
    return name

def gdown(url, name):
    import gdown
    return gdown.download(url, name, quiet=True)

def gdown_id(url, name):
    import gdown
    return gdown.download(id=url, output=name)

def hf(file, **kwargs):
    from huggingface_hub import hf_hub_download
    return hf_hub_download("o/r", file, **kwargs)

def state(url):
    import torch.hub
    return torch.hub.load_state_dict_from_url(url, progress=False)
"""
BODY = b"weights" * 1000
SHA = hashlib.sha256(BODY).hexdigest()
Call = Callable[..., invoke.Result]


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "net.bin").write_bytes(BODY)
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    with file_server(tmp_path / "files") as served:
        monkeypatch.setenv("HUB_REWRITE", f"https://huggingface.co/o/r/resolve/main/={served.url}/")
        yield served


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Call]:
    for name, text in SITE.items():
        (tmp_path / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        source = str(tmp_path / "files" / "net.bin")
        (tmp_path / "site" / name).write_text(text.replace("SOURCE", repr(source)))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "hubconf.py").write_text(HUBCONF)
    checkout = Cache.current().checkout(RepoSpec.parse(str(tmp_path / "repo")))
    forget()

    def run(entrypoint: str, *args: Any, **kwargs: Any) -> invoke.Result:
        return invoke.call(checkout, entrypoint, args, kwargs, command=True, framework="engine")

    yield run
    forget()


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("gdown", "huggingface_hub")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    "entrypoint",
    ["urlretrieve", "torch_download", "urlopen", "urlopen_as_somebody", "requests_get", "requests_stream"],
)
def test_downloads_to_a_place_of_their_own(call: Call, served: Served, tmp_path: Path, entrypoint: str) -> None:
    target = tmp_path / "own" / "cache" / "net.bin"
    target.parent.mkdir(parents=True)
    first = call(entrypoint, f"{served.url}/net.bin", str(target))
    assert target.read_bytes() == BODY
    assert [(one.sha256, one.url) for one in first.weights] == [(SHA, f"{served.url}/net.bin")]
    (known,) = weights.list_blobs()
    assert known.used_by[0][1] == entrypoint
    target.unlink()
    with settings.overriding(offline=True):
        again = call(entrypoint, f"{served.url}/net.bin", str(target))
        assert target.read_bytes() == BODY and again.weights[0].sha256 == SHA
        with pytest.raises(OfflineError):
            call(entrypoint, f"{served.url}/other.bin", str(target))
    assert [request.method for request in served.requests] == ["GET"]


def test_a_cache_of_its_own_below_home(
    call: Call, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    url = f"{served.url}/net.bin"
    first = call("own_cache", url, None)
    assert first.value == BODY and [one.sha256 for one in first.weights] == [SHA]
    with settings.overriding(offline=True):
        assert call("own_cache", url, None).value == BODY
        (tmp_path / "home" / ".cache" / "mine" / "net.bin").unlink()
        (tmp_path / "home" / ".cache" / "mine").rmdir()
        assert call("own_cache", url, None).value == BODY
    assert [request.method for request in served.requests] == ["GET"]


@pytest.mark.parametrize("entrypoint", ["urlopen", "requests_get"])
@pytest.mark.parametrize(("file", "headers"), [("answer.json", {}), ("net.bin", {"Range": "bytes=0-4"})])
def test_what_is_no_plain_download_is_left_alone(
    call: Call, served: Served, tmp_path: Path, entrypoint: str, file: str, headers: dict[str, str]
) -> None:
    (tmp_path / "files" / "answer.json").write_bytes(b"12345")
    target = tmp_path / "out"
    for _ in range(2):
        assert call(entrypoint, f"{served.url}/{file}", str(target), **headers).weights == ()
    assert len(target.read_bytes()) == 5 and len(served.requests) == 2 and weights.list_blobs() == ()


@pytest.mark.parametrize("entrypoint", ["urlopen", "urlopen_in_vain"])
def test_an_answer_that_an_error_holds_is_closed(
    call: Call, served: Served, tmp_path: Path, entrypoint: str, recwarn: pytest.WarningsRecorder
) -> None:
    with pytest.raises(RepositoryCodeError):
        call(entrypoint, f"{served.url}/absent.bin", str(tmp_path / "out"))
    gc.collect()
    assert not [one for one in recwarn if one.category is ResourceWarning]


def test_what_is_not_there_is_said_in_the_librarys_words(call: Call, served: Served, tmp_path: Path) -> None:
    with pytest.raises(RepositoryCodeError, match="HTTPError: HTTP Error 404"):
        call("urlopen", f"{served.url}/absent.bin", str(tmp_path / "out"))
    with pytest.raises(RepositoryCodeError, match="HTTPError: 404 Client Error"):
        call("requests_get", f"{served.url}/absent.bin", str(tmp_path / "out"))


def test_outside_an_entrypoint_nothing_is_kept(served: Served, tmp_path: Path, call: Call) -> None:
    import urllib.request

    from hubcli import torch_hub

    call("hf", "net.bin")
    before = len(weights.list_blobs())
    urllib.request.urlretrieve(f"{served.url}/net.bin", tmp_path / "a")
    torch_hub.download_url_to_file(f"{served.url}/net.bin", tmp_path / "b", progress=False)
    assert len(weights.list_blobs()) == before
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == BODY


@pytest.mark.parametrize(
    ("entrypoint", "url"),
    [
        ("gdown", "https://drive.google.com/uc?id=ABC"),
        ("gdown", "https://drive.google.com/file/d/ABC/view?usp=sharing"),
        ("gdown_id", "ABC"),
    ],
)
def test_gdown(call: Call, served: Served, tmp_path: Path, entrypoint: str, url: str) -> None:
    target = tmp_path / "net.pth"
    result = call(entrypoint, url, str(target))
    assert [(one.sha256, one.url) for one in result.weights] == [(SHA, "https://drive.google.com/uc?id=ABC")]
    target.unlink()
    assert call(entrypoint, url, str(target)).value == str(target)
    assert target.read_bytes() == BODY
    assert [url] == sys.modules["gdown.download"].CALLS
    target.unlink()
    weights.remove("net.pth")
    (tmp_path / "files" / "net.bin").write_bytes(b"changed")
    with pytest.raises(IntegrityError, match="it has changed"):
        call(entrypoint, url, str(target))


def test_hf_hub_download(call: Call, served: Served) -> None:
    result = call("hf", "net.bin")
    assert Path(result.value).read_bytes() == BODY
    assert (result.weights[0].sha256, result.weights[0].url) == (
        SHA,
        "https://huggingface.co/o/r/resolve/main/net.bin",
    )
    with settings.overriding(offline=True):
        assert Path(call("hf", "net.bin").value).read_bytes() == BODY
    assert sys.modules["huggingface_hub.file_download"].CALLS == []


def test_hf_hub_download_of_what_hub_does_not_know(call: Call, served: Served) -> None:
    assert call("hf", "absent.bin").value == "the original"
    assert call("hf", "net.bin", cache_dir="x").value == "the original"
    assert call("hf", "net.bin", repo_type="dataset").value == "the original"


def test_a_release_asset(call: Call, served: Served, tmp_path: Path) -> None:
    """GitHub answers with a redirect to a signed address on another host."""
    engine.save({"w": engine.ones(2)}, tmp_path / "files" / "asset")
    with file_server(tmp_path / "files") as front:

        def redirect(handler: Any) -> bool:
            handler.answer(302, b"", {"Location": f"{served.url}/asset?sig=secret&name=net.pth"})
            return True

        front.fault = redirect
        url = f"{front.url}/o/r/releases/download/v1/net.pth"
        result = call("state", url)
        assert (result.weights[0].file, result.weights[0].url) == ("net.pth", url)
        with settings.overriding(offline=True):
            assert call("state", url).value["w"].tolist() == [1.0, 1.0]


@pytest.mark.filterwarnings("ignore:Falling back to the old format:FutureWarning")
def test_a_zip_with_a_checkpoint_inside(call: Call, served: Served, tmp_path: Path) -> None:
    engine.save({"w": engine.ones(3)}, tmp_path / "net.pth")
    with zipfile.ZipFile(tmp_path / "files" / "net.zip", "w") as archive:
        archive.mkdir("model")
        archive.write(tmp_path / "net.pth", "model/net.pth")
        archive.writestr("__MACOSX/model/._net.pth", b"\0")
    assert call("state", f"{served.url}/net.zip").value["w"].tolist() == [1.0, 1.0, 1.0]
    with settings.overriding(offline=True):
        assert call("state", f"{served.url}/net.zip").weights[0].file == "net.zip"


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")
@pytest.mark.long
@pytest.mark.parametrize("entrypoint", ["urlopen", "requests_get", "requests_stream"])
def test_in_a_sandbox_the_parent_fetches(served: Served, tmp_path: Path, entrypoint: str) -> None:
    from hubcli.confined import jobs, sandbox
    from hubcli.confined.broker import Broker

    found = next((name for name, reason in sandbox.reasons().items() if reason is None), None)
    if found is None:
        pytest.skip(f"no sandbox on this machine: {sandbox.reasons()}")
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "hubconf.py").write_text(HUBCONF)
    checkout = Cache.current().checkout(RepoSpec.parse(str(tmp_path / "repo")))
    for offline in (False, True):
        with settings.overriding(offline=offline):
            job = jobs.Job("load", checkout, entrypoint, (f"{served.url}/net.bin", "net.bin"), {}, "engine")
            loaded = jobs.load(job, sandbox.mechanism(found), Broker(checkout, entrypoint), None)
        assert [one.sha256 for one in loaded.weights] == [SHA]
    assert [request.method for request in served.requests] == ["GET"]
