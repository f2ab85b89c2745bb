"""Weight files: fetched once, checked always, never lost by a failure."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from hubcli.base import paths, settings
from hubcli.cache import weight_files, weights
from hubcli.cache.weights import Caller
from hubcli.errors import IntegrityError, NetworkError, NotFoundError, OfflineError, UsageError
from hubcli.net.http import fetch as http
from hubcli.torch_hub import download_url_to_file, load_state_dict_from_url
from tests.servers import Served, file_server

BODY = b"weights " * 500
SHA = hashlib.sha256(BODY).hexdigest()
HASHED = f"net-{SHA[:8]}.pth"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    for name in ("net.pth", HASHED):
        (folder / name).write_bytes(BODY)
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "https,http")
    monkeypatch.setattr(http.time, "sleep", lambda seconds: None)
    return folder


@pytest.fixture
def served(files: Path) -> Iterator[Served]:
    with file_server(files) as server:
        yield server


def caller(spec: str = "o/r:v1", entrypoint: str = "net", **options) -> Caller:
    return Caller(spec, entrypoint, frozenset({"github.com"}), "engine", **options)


@pytest.fixture
def acting():
    """Set the caller for the rest of the test."""
    tokens = []
    yield lambda who: tokens.append(weights.caller.set(who))
    for token in reversed(tokens):
        weights.caller.reset(token)


def test_fetched_once_kept_by_digest(served, hub_root):
    weight, path = weights.obtain(f"{served.url}/{HASHED}")
    assert path == hub_root / "blobs" / "sha256" / SHA[:2] / SHA
    link = hub_root / "checkpoints" / HASHED
    assert link.is_symlink()
    assert not os.path.isabs(os.readlink(link))
    assert link.read_bytes() == path.read_bytes() == BODY
    assert (weight.file, weight.path, weight.sha256, weight.size) == (HASHED, link, SHA, len(BODY))
    served.reset()
    with settings.overriding(offline=True):
        assert weights.obtain(f"{served.url}/{HASHED}")[1] == path
    assert served.requests == []


def test_many_at_once_fetch_once(served):
    served.delay = 0.05
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(weights.obtain, [f"{served.url}/{HASHED}"] * 6))
    assert {path.read_bytes() for _, path in found} == {BODY}
    assert len(served.requests) == 1


def test_content_is_shared_between_names(served, hub_root):
    weights.obtain(f"{served.url}/{HASHED}")
    weights.obtain(f"{served.url}/net.pth")
    blobs = [path for path in (hub_root / "blobs" / "sha256").rglob("*") if path.is_file()]
    assert len(blobs) == 1


def test_the_same_name_at_another_address_is_another_file(served, files):
    (files / "other").mkdir()
    (files / "other" / "net.pth").write_bytes(b"other")
    first = weights.obtain(f"{served.url}/net.pth")[1]
    second = weights.obtain(f"{served.url}/other/net.pth")[1]
    assert (first.read_bytes(), second.read_bytes()) == (BODY, b"other")
    served.reset()
    assert weights.obtain(f"{served.url}/net.pth")[1].read_bytes() == BODY
    assert served.requests == []


def test_file_name_and_folder_of_ones_own(served, tmp_path):
    folder = tmp_path / "mine"
    weight, path = weights.obtain(f"{served.url}/net.pth", folder, file_name="other.pth")
    assert path == weight.path == folder / "other.pth"
    assert not path.is_symlink()
    served.reset()
    weights.obtain(f"{served.url}/net.pth", folder, file_name="other.pth")
    assert served.requests == []
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("name", ["", "..", "a/b", "a\\b", "a\nb", "x" * 300])
def test_names_that_are_none(served, name):
    with pytest.raises(UsageError):
        weights.obtain(f"{served.url}/net.pth", file_name=name)


def test_a_hash_that_does_not_fit(served, files, hub_root):
    (files / "net-00000000.pth").write_bytes(BODY)
    with pytest.raises(RuntimeError) as caught:
        weights.obtain(f"{served.url}/net-00000000.pth")
    assert str(caught.value) == f'invalid hash value (expected "00000000", got "{SHA}")'
    assert caught.value.status == 6
    assert list((hub_root / "checkpoints").iterdir()) == []
    assert list((hub_root / "partial").iterdir()) == []


@pytest.mark.parametrize("digits", [1, 4, 7, 8, 64])
def test_a_check_compares_a_hash_of_any_length(served, files, digits):
    """As torch does; without a check, a short run of digits is more likely a version."""
    wrong = ("0" if SHA[0] != "0" else "1") + SHA[1:digits]
    for name in (f"net-{SHA[:digits]}.pth", f"net-{wrong}.pth"):
        (files / name).write_bytes(BODY)
    assert weights.obtain(f"{served.url}/net-{SHA[:digits]}.pth", check_hash=True)[0].sha256 == SHA
    with pytest.raises(IntegrityError, match="invalid hash value"):
        weights.obtain(f"{served.url}/net-{wrong}.pth", check_hash=True)
    if digits < 8:
        assert weights.obtain(f"{served.url}/net-{wrong}.pth")[0].sha256 == SHA


@pytest.mark.parametrize("name", ["net.pth", "net-abcdefgh.pth", "net-.pth"])
def test_a_check_of_a_name_without_hash_records_what_came(served, files, name, capsys):
    (files / name).write_bytes(BODY)
    weight, path = weights.obtain(f"{served.url}/{name}", check_hash=True)
    assert (weight.sha256, path.read_bytes()) == (SHA, BODY)
    assert "names no hash to check: its sha256 is recorded" in capsys.readouterr().err
    weights.obtain(f"{served.url}/{name}", check_hash=True)
    assert "names no hash" not in capsys.readouterr().err
    (files / name).write_bytes(b"other")
    weights.remove(name)
    with pytest.raises(IntegrityError, match="it has changed"):
        weights.obtain(f"{served.url}/{name}", check_hash=True)


def test_the_last_hash_counts_and_upper_case_too(served, files):
    for name in (f"net-1.0-{SHA[:10]}.pth", f"net-{SHA[:8].upper()}.tar.gz"):
        (files / name).write_bytes(BODY)
        assert weights.obtain(f"{served.url}/{name}", check_hash=True)[0].sha256 == SHA


def test_a_date_is_a_hash_only_on_request(served, files):
    (files / "net-20220131.pth").write_bytes(BODY)
    weights.obtain(f"{served.url}/net-20220131.pth")
    with pytest.raises(IntegrityError, match="invalid hash value"):
        weights.obtain(f"{served.url}/net-20220131.pth", check_hash=True)


def test_the_hash_in_the_address_counts_under_another_name(served, files):
    (files / "net-00000000.pth").write_bytes(BODY)
    with pytest.raises(IntegrityError):
        weights.obtain(f"{served.url}/net-00000000.pth", file_name="mine.pth")


def test_a_file_that_lies_there_is_used(served, hub_root):
    (hub_root / "checkpoints").mkdir(parents=True)
    (hub_root / "checkpoints" / "net.pth").write_bytes(b"mine")
    assert weights.obtain(f"{served.url}/net.pth")[1].read_bytes() == b"mine"
    (hub_root / "checkpoints" / HASHED).write_bytes(b"wrong")
    with pytest.raises(IntegrityError, match="invalid hash value"):
        weights.obtain(f"{served.url}/{HASHED}")
    assert served.requests == []


def test_a_changed_file_is_hashed_again(served, tmp_path):
    url = f"{served.url}/net.pth"
    _, path = weights.obtain(url)
    os.utime(path, ns=(1, 1))
    assert weights.obtain(url)[1] == path
    path.chmod(0o644)
    path.write_bytes(b"x" * len(BODY))
    with pytest.raises(IntegrityError, match="has changed since it was fetched"):
        weights.obtain(url)
    path.unlink()
    assert weights.obtain(url)[1].read_bytes() == BODY


def test_an_unchanged_file_is_not_hashed_again(served, monkeypatch):
    weights.obtain(f"{served.url}/net.pth")
    monkeypatch.setattr(weight_files, "digest_of", lambda path: pytest.fail("hashed"))
    weights.obtain(f"{served.url}/net.pth")


def test_a_read_only_cache_serves_hits(served, monkeypatch):
    url = f"{served.url}/net.pth"
    weights.obtain(url)

    def refuse(*args, **kwargs):
        raise PermissionError(13, "read-only")

    monkeypatch.setattr(paths, "write_atomically", refuse)
    monkeypatch.setattr(weights.locks, "exclusive", refuse)
    token = weights.caller.set(caller())
    try:
        assert weights.obtain(url)[1].read_bytes() == BODY
    finally:
        weights.caller.reset(token)


def test_torchs_own_files_are_adopted(served, isolated, monkeypatch, tmp_path):
    home = tmp_path / "torchhome"
    (home / "hub" / "checkpoints").mkdir(parents=True)
    (home / "hub" / "checkpoints" / HASHED).write_bytes(BODY)
    (home / "hub" / "checkpoints" / "net.pth").write_bytes(BODY)
    monkeypatch.setenv("TORCH_HOME", str(home))
    assert weights.obtain(f"{served.url}/{HASHED}")[1].read_bytes() == BODY
    assert served.requests == []
    weights.obtain(f"{served.url}/net.pth")  # no hash, no proof
    assert len(served.requests) == 1
    shutil.rmtree(home)
    assert weights.obtain(f"{served.url}/{HASHED}")[1].read_bytes() == BODY


def test_files_that_do_not_fit_are_not_adopted(served, isolated):
    folder = isolated / "cache" / "torch" / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / HASHED).write_bytes(b"half of it")
    assert weights.obtain(f"{served.url}/{HASHED}")[1].read_bytes() == BODY


def test_who_used_what(served, acting):
    who = caller()
    acting(who)
    weights.obtain(f"{served.url}/net.pth")
    weights.obtain(f"{served.url}/net.pth")
    assert [one.file for one in who.used] == ["net.pth"]
    acting(caller(entrypoint="other"))
    weights.obtain(f"{served.url}/net.pth")
    (found,) = weights.used_by("o/r:v1")
    assert found.used_by == (("o/r:v1", "net"), ("o/r:v1", "other"))
    assert weights.used_by("o/r:v2") == ()


def test_stale_files_are_fetched_anew_once(served, files, acting):
    acting(caller())
    weights.obtain(f"{served.url}/net.pth")
    assert weights.mark_stale("o/r:v2") == 0
    assert weights.mark_stale("o/r:v1") == 1
    served.reset()
    assert weights.obtain(f"{served.url}/net.pth")[1].read_bytes() == BODY
    assert weights.obtain(f"{served.url}/net.pth")[1].read_bytes() == BODY
    assert len(served.requests) == 1


def test_a_file_that_changed_is_refused_once_and_can_be_accepted(served, files, acting, hub_root):
    url = f"{served.url}/net.pth"
    newer = hashlib.sha256(b"newer").hexdigest()
    acting(caller())
    weights.obtain(url)
    (files / "net.pth").write_bytes(b"newer")
    weights.mark_stale("o/r:v1")
    with pytest.raises(IntegrityError) as caught:
        weights.obtain(url)
    assert SHA in caught.value.message and newer in caught.value.message
    accept = "hub pull o/r:v1 --weights net --accept-changed"
    assert str(caught.value.hint).endswith(accept)
    assert weights.obtain(url)[1].read_bytes() == BODY  # the old stays in use
    weights.remove("net.pth")
    with pytest.raises(IntegrityError, match="has changed to"):  # the record outlives the file
        weights.obtain(url)
    acting(None)
    with pytest.raises(IntegrityError) as caught:
        weights.obtain(url)
    (record,) = (hub_root / "seen" / "weights").iterdir()
    assert str(caught.value.hint).endswith(f"remove {record}")
    with settings.overriding(accept_changed=True):
        assert weights.obtain(url)[1].read_bytes() == b"newer"
    weights.remove("net.pth")
    assert weights.obtain(url)[0].sha256 == newer


def test_a_secret_in_a_url_is_not_recorded(served, files, hub_root):
    weights.obtain(f"{served.url}/net.pth?signature=secret")
    (record,) = (hub_root / "seen" / "weights").iterdir()
    assert "secret" not in record.read_text() and "net.pth?..." in record.read_text()


def test_a_failed_renewal_keeps_the_old(files, acting):
    with file_server(files) as served:
        url = f"{served.url}/net.pth"
        acting(caller())
        weights.obtain(url)
        weights.mark_stale("o/r:v1")
        with settings.overriding(offline=True):
            assert weights.obtain(url)[1].read_bytes() == BODY
    acting(caller(fresh=True))
    with pytest.raises(NetworkError):
        weights.obtain(url)
    with settings.overriding(offline=True), pytest.raises(OfflineError):
        weights.obtain(url)
    acting(caller())
    assert weights.obtain(url)[1].read_bytes() == BODY


def test_listing_and_removing(served, hub_root):
    weights.obtain(f"{served.url}/net.pth")
    weights.obtain(f"{served.url}/{HASHED}")
    assert [(one.file, one.size) for one in weights.list_blobs()] == [
        (HASHED, len(BODY)),
        ("net.pth", len(BODY)),
    ]
    assert weights.remove("net.pth") == 0  # the content is shared
    assert not (hub_root / "checkpoints" / "net.pth").is_symlink()
    assert weights.remove(HASHED, dry_run=True) == len(BODY)
    assert weights.remove(HASHED) == len(BODY)
    assert weights.list_blobs() == ()
    assert not [path for path in (hub_root / "blobs" / "sha256").rglob("*") if path.is_file()]
    with pytest.raises(NotFoundError):
        weights.remove(HASHED)


def test_the_cache_can_be_moved(served, hub_root, tmp_path):
    weights.obtain(f"{served.url}/net.pth")
    os.rename(hub_root, tmp_path / "moved")
    with settings.overriding(hub_dir=tmp_path / "moved", offline=True):
        assert weights.obtain(f"{served.url}/net.pth")[1].is_relative_to(tmp_path / "moved")


def test_damaged_records_count_as_none(served, hub_root):
    weights.obtain(f"{served.url}/net.pth")
    for record in (hub_root / "blobs" / "files").iterdir():
        record.write_text("{")
    assert weights.list_blobs() == ()
    assert weights.obtain(f"{served.url}/net.pth")[1].read_bytes() == BODY


def test_the_token_stays_with_the_repositorys_host(served, acting, files):
    with settings.overriding(token="s3cret"):
        acting(caller())
        weights.obtain(f"{served.url}/net.pth")
        assert "Authorization" not in served.requests[-1].headers
        host = served.url.removeprefix("http://")
        acting(Caller("o/r", "net", frozenset({host}), "engine"))
        weights.obtain(f"{served.url}/{HASHED}")
        assert "Authorization" in served.requests[-1].headers


def test_state_dicts_are_read(served, files):
    arrays = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3)}
    save_file(arrays, files / "net.safetensors")
    state = load_state_dict_from_url(f"{served.url}/net.safetensors", progress=False)
    assert list(state) == ["weight"]
    assert state["weight"].numpy().tolist() == arrays["weight"].tolist()


def test_a_file_zipped_by_hand(served, files, hub_root):
    save_file({"x": np.ones(3, np.float32)}, files / "inner.safetensors")
    with zipfile.ZipFile(files / "net.zip", "w") as archive:
        archive.write(files / "inner.safetensors", "../../evil.safetensors")
    with pytest.warns(FutureWarning, match="old format"):
        state = load_state_dict_from_url(f"{served.url}/net.zip")
    assert state["x"].numpy().tolist() == [1, 1, 1]
    assert list((hub_root / "partial").iterdir()) == []


def test_refused_checkpoints(served, files):
    (files / "evil.pth").write_bytes(b"\x80\x02cposix\nsystem\nX\x02\x00\x00\x00id\x85R.")
    with pytest.raises(IntegrityError, match=r"evil\.pth was refused") as caught:
        load_state_dict_from_url(f"{served.url}/evil.pth")
    assert caught.value.status == 6


def test_download_url_to_file(served, tmp_path):
    target = tmp_path / "out" / "net.pth"
    with pytest.raises(NotFoundError):
        download_url_to_file(f"{served.url}/net.pth", target)
    target.parent.mkdir()
    target.write_bytes(b"old")
    with pytest.raises(RuntimeError, match=r'invalid hash value \(expected "ffff", got "') as caught:
        download_url_to_file(f"{served.url}/net.pth", target, "ffff")
    assert caught.value.status == 6
    assert target.read_bytes() == b"old"
    download_url_to_file(f"{served.url}/net.pth", str(target), SHA[:6], progress=False)
    assert target.read_bytes() == BODY
    assert [path.name for path in target.parent.iterdir()] == ["net.pth"]


def test_a_call_that_reloads_fetches_each_file_once(served, files, acting):
    url = f"{served.url}/net.pth"
    weights.obtain(url)  # by no known spec, so nothing marks it stale
    served.reset()
    since = time.time()
    acting(caller(fresh=True, since=since))
    assert weights.obtain(url)[1].read_bytes() == BODY
    assert weights.obtain(url)[1].read_bytes() == BODY
    assert len(served.requests) == 1
    acting(caller(fresh=True, since=time.time()))  # another call of the same process
    weights.obtain(url)
    assert len(served.requests) == 2
    acting(caller())
    weights.obtain(url)
    assert len(served.requests) == 2


def test_a_reload_asks_for_downloads_of_the_codes_own_again(files, acting, tmp_path):
    url = "https://drive.google.com/uc?id=abc"
    weights.keep(url, "own.pth", files / "net.pth")
    assert weights.cached_file(url, "own.pth") is not None
    acting(caller(fresh=True, since=time.time()))
    assert weights.cached_file(url, "own.pth") is None
    weights.keep(url, "own.pth", files / "net.pth")
    assert weights.cached_file(url, "own.pth") is not None
    weights.mark_stale("o/r:v1")
    acting(caller())
    assert weights.cached_file(url, "own.pth") is None


def test_a_file_url_is_read_again_when_the_file_has_changed(files, monkeypatch, acting):
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "https,file")
    source = files / "best.pth"
    source.write_bytes(b"first")
    url = source.as_uri()
    assert weights.obtain(url)[1].read_bytes() == b"first"
    assert weights.obtain(url)[0].sha256 == hashlib.sha256(b"first").hexdigest()
    before = source.stat()
    source.write_bytes(b"other")  # as many bytes
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    with settings.overriding(offline=True):  # a file of this machine needs no network
        assert weights.obtain(url)[1].read_bytes() == b"other"
    replacement = files / "new"
    replacement.write_bytes(b"third")
    os.utime(replacement, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    os.replace(replacement, source)  # same size and mtime, another inode
    assert weights.obtain(url)[1].read_bytes() == b"third"
    blob = weights.obtain(url)[1]
    assert weights.obtain(url)[1] == blob


def test_a_file_url_whose_file_is_gone_is_served_from_the_cache(files, monkeypatch, capsys):
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "https,file")
    url = (files / "net.pth").as_uri()
    weights.obtain(url)
    (files / "net.pth").unlink()
    assert weights.obtain(url)[1].read_bytes() == BODY
    assert "is not there any more; using the copy in the cache" in capsys.readouterr().err


def test_a_file_url_in_a_record_of_an_older_hub_is_read_again(files, monkeypatch, hub_root):
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "https,file")
    url = (files / "net.pth").as_uri()
    weights.obtain(url)
    (file,) = (hub_root / "blobs" / "files").glob("*.json")
    document = json.loads(file.read_text())
    del document["source"]
    file.write_text(json.dumps(document))
    (files / "net.pth").write_bytes(b"newer")
    assert weights.obtain(url)[1].read_bytes() == b"newer"
    document["source"] = ["a", None]
    file.write_text(json.dumps(document))
    assert weights.obtain(url)[1].read_bytes() == b"newer"


def test_download_to_a_pipe_and_to_a_link(served, tmp_path):
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_bytes)
        download_url_to_file(f"{served.url}/net.pth", pipe, progress=False)
        assert read.result(10) == BODY and pipe.is_fifo()
    link.symlink_to(file)
    download_url_to_file(f"{served.url}/net.pth", link, progress=False)
    assert link.is_symlink() and file.read_bytes() == BODY
