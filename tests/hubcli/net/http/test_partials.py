"""Downloads that break off: gone on with where that is safe, begun anew where it is not."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hubcli.base import paths
from hubcli.errors import HubError, NetworkError
from hubcli.net.http import fetch as http
from hubcli.net.http.partials import Partial
from tests.servers import Scripted, file_server, scripted_server, send

BODY = random.Random(0).randbytes(50_000)
SHA = hashlib.sha256(BODY).hexdigest()
ETAG = '"one"'
REAL_SLEEP = time.sleep


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    with scripted_server() as made:
        yield made


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "https,http")
    monkeypatch.setattr(http.time, "sleep", lambda seconds: None)


@pytest.fixture
def target(hub_root: Path) -> Path:
    return hub_root / "checkpoints" / "net.pth"


def fetch(scripted: Scripted, target: Path, **options) -> http.Fetched:
    return http.fetch(f"{scripted.url}/net.pth", target, resumable=True, **options)


def ranged(body: bytes = BODY, etag: str | None = ETAG, cut: int | None = None, **more):
    """A server of `body` that obeys Range and If-Range, and hangs up `cut` bytes later."""

    def answer(handler, count):
        wanted = re.match(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        fresh = handler.headers.get("If-Range") in (etag, more.get("Last_Modified"))
        start = int(wanted.group(1)) if wanted and fresh else 0
        extra = {"Content_Range": f"bytes {start}-{len(body) - 1}/{len(body)}"} if start else {}
        part = body[start:] if cut is None else body[start : start + cut]
        length = str(len(body) - start)
        status = 206 if start else 200
        send(handler, status, part, Content_Length=length, ETag=etag, **extra, **more)

    return answer


def ranges(scripted: Scripted) -> list[str | None]:
    return [headers.get("Range") for _, headers in scripted.seen]


def folders(hub_root: Path) -> list[Path]:
    return sorted((hub_root / "partial").iterdir())


def interrupted(scripted: Scripted, target: Path, have: int, **options) -> None:
    """Leave a partial download of `have` bytes behind, as a process that was killed does."""
    scripted.answer = ranged(cut=have, **options)
    with pytest.raises(NetworkError):
        saved = http.ATTEMPTS
        http.ATTEMPTS = 1
        try:
            fetch(scripted, target)
        finally:
            http.ATTEMPTS = saved
    scripted.seen.clear()
    (home,) = (target.parents[1] / "partial").iterdir()
    os.rename(home, home.with_name(_dead(home.name)))


def _dead(name: str) -> str:
    """The name that a process of this boot would have given which is dead now."""
    child = subprocess.Popen(["true"])
    child.wait()
    machine, _, rest = name.rpartition(".")[2].split("-")
    return f"{name.rpartition('.')[0]}.{machine}-{child.pid:x}-{rest}"


def test_a_body_that_breaks_off_is_gone_on_with(scripted, target, hub_root):
    scripted.answer = ranged(cut=20_000)
    fetched = fetch(scripted, target)
    assert ranges(scripted) == [None, "bytes=20000-", "bytes=40000-"]
    assert scripted.seen[1][1]["If-Range"] == ETAG
    assert (fetched.sha256, fetched.path.read_bytes()) == (SHA, BODY)
    fetched.release()
    assert folders(hub_root) == []


def test_a_later_process_goes_on(scripted, target, hub_root):
    interrupted(scripted, target, 30_000)
    scripted.answer = ranged()
    fetched = fetch(scripted, target)
    assert ranges(scripted) == ["bytes=30000-"]
    assert (fetched.sha256, fetched.size, fetched.path.read_bytes()) == (SHA, len(BODY), BODY)
    assert len(folders(hub_root)) == 1  # it was taken over, not copied


def test_a_complete_file_asks_for_its_last_byte_only(scripted, target):
    scripted.answer = ranged()
    fetch(scripted, target)  # complete, but its process dies before it is put in place
    (home,) = (target.parents[1] / "partial").iterdir()
    os.rename(home, home.with_name(_dead(home.name)))
    scripted.seen.clear()
    fetched = fetch(scripted, target)
    assert ranges(scripted) == [f"bytes={len(BODY) - 1}-"]
    assert (fetched.sha256, fetched.path.read_bytes()) == (SHA, BODY)


def test_a_changed_file_is_fetched_whole_in_the_same_answer(scripted, target, hub_root):
    interrupted(scripted, target, 30_000)
    other = BODY[::-1]
    scripted.answer = ranged(other, '"two"')
    fetched = fetch(scripted, target)
    assert ranges(scripted) == ["bytes=30000-"]
    assert fetched.path.read_bytes() == other
    assert fetched.sha256 == hashlib.sha256(other).hexdigest()


@pytest.mark.parametrize(
    "headers",
    [
        {"Content_Range": f"bytes 29999-{len(BODY) - 1}/{len(BODY)}"},
        {"Content_Range": f"bytes 30000-{len(BODY)}/{len(BODY) + 1}"},
        {"Content_Range": "bytes 30000-"},
        {"Content_Range": f"bytes 30000-{len(BODY) - 1}/{len(BODY)}", "ETag": '"two"'},
        {},
    ],
    ids=["start", "total", "malformed", "etag", "missing"],
)
def test_a_range_that_was_not_asked_for_is_not_used(scripted, target, headers):
    interrupted(scripted, target, 30_000)

    def answer(handler, count):
        if "Range" in handler.headers:
            send(handler, 206, BODY[30_000:], **headers)
        else:
            send(handler, 200, BODY, ETag='"two"')

    scripted.answer = answer
    assert fetch(scripted, target).path.read_bytes() == BODY
    assert ranges(scripted) == ["bytes=30000-", None]


def test_416_begins_anew(scripted, target):
    interrupted(scripted, target, 30_000)
    scripted.answer = lambda handler, count: (
        send(handler, 416, b"") if "Range" in handler.headers else send(handler, 200, b"short")
    )
    assert fetch(scripted, target).path.read_bytes() == b"short"


@pytest.mark.parametrize("etag", [None, 'W/"weak"', '"with space and \x01"', '""'])
def test_without_a_strong_validator_all_is_fetched_again(scripted, target, etag):
    scripted.answer = ranged(cut=20_000, etag=etag)
    with pytest.raises(NetworkError):
        fetch(scripted, target)
    assert set(ranges(scripted)) <= {None, "bytes=20000-"}
    scripted.seen.clear()
    scripted.answer = ranged(etag=etag)
    assert fetch(scripted, target).path.read_bytes() == BODY


def test_an_old_date_is_a_validator_and_a_young_one_is_not(scripted, target):
    old = "Wed, 01 Jan 2020 00:00:00 GMT"
    scripted.answer = ranged(cut=30_000, etag=None, Last_Modified=old)
    assert fetch(scripted, target).path.read_bytes() == BODY
    assert scripted.seen[1][1]["If-Range"] == old
    scripted.seen.clear()
    young = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
    scripted.answer = ranged(cut=30_000, etag=None, Last_Modified=young)
    with pytest.raises(NetworkError):
        http.fetch(f"{scripted.url}/other.pth", target, resumable=True)
    assert set(ranges(scripted)) == {None}


def test_what_may_still_be_written_is_copied(scripted, target, hub_root):
    interrupted(scripted, target, 30_000)
    (home,) = folders(hub_root)
    alive = home.with_name(re.sub(r"-[0-9a-f]+-", f"-{os.getppid():x}-", home.name))
    os.rename(home, alive)
    with open(alive / "body", "ab") as writer:
        scripted.answer = ranged()
        fetched = fetch(scripted, target)
        writer.write(b"garbage")  # the other one goes on in its own file
    assert ranges(scripted) == ["bytes=30000-"]
    assert (fetched.sha256, fetched.path.read_bytes()) == (SHA, BODY)
    fetched.release()
    assert folders(hub_root) == [alive]


def test_another_boots_bytes_need_a_digest(scripted, target, hub_root):
    interrupted(scripted, target, 30_000)
    (home,) = folders(hub_root)
    foreign = home.with_name(re.sub(r"\.[0-9a-f]{8}-", ".00000000-", home.name))
    os.rename(home, foreign)
    with open(foreign / "body", "r+b") as file:
        file.write(bytes(1000))  # lost when the power failed
    scripted.answer = ranged()
    assert fetch(scripted, target).sha256 == SHA
    assert ranges(scripted) == [None]
    for one in folders(hub_root):
        if one != foreign:
            shutil.rmtree(one)
    scripted.seen.clear()
    # with a digest the damage is found, and all is fetched
    fetched = fetch(scripted, target, expected=SHA[:8])
    assert ranges(scripted) == ["bytes=30000-", None]
    assert (fetched.sha256, fetched.path.read_bytes()) == (SHA, BODY)


def test_every_url_has_its_own(scripted, target):
    interrupted(scripted, target, 30_000)
    scripted.answer = ranged()
    http.fetch(f"{scripted.url}/net.pth?version=2", target, resumable=True)
    assert ranges(scripted) == [None]


@pytest.mark.parametrize("damage", ["origin", "body", "empty"])
def test_damaged_leftovers_are_no_obstacle(scripted, target, hub_root, damage):
    interrupted(scripted, target, 30_000)
    (home,) = folders(hub_root)
    if damage == "origin":
        (home / "origin.json").write_text('{"url": 3}')
    elif damage == "body":
        (home / "body").unlink()
    else:
        (home / "body").write_bytes(b"")
    scripted.answer = ranged()
    assert fetch(scripted, target).path.read_bytes() == BODY
    assert ranges(scripted) == [None]


def test_a_disk_that_fills_up_keeps_what_came(scripted, target, hub_root, monkeypatch):
    scripted.answer = ranged()
    real = Partial.append

    def append(self, part):
        real(self, part[:5_000])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Partial, "append", append)
    with pytest.raises(HubError, match="no space in") as caught:
        fetch(scripted, target)
    assert caught.value.status == 1
    monkeypatch.setattr(Partial, "append", real)
    (home,) = folders(hub_root)
    had = (home / "body").stat().st_size
    scripted.seen.clear()
    assert fetch(scripted, target).path.read_bytes() == BODY
    assert ranges(scripted) == [f"bytes={had}-"] and had <= 5_000


CHILD = """
import sys
from pathlib import Path
from hubcli.net.http import fetch as http
http.fetch(sys.argv[1], Path(sys.argv[2]), resumable=True)
"""


def test_kill_9_at_any_byte(tmp_path, hub_root, target):
    """Killed again and again, the file still arrives, and nothing is moved twice but a little."""
    (tmp_path / "files").mkdir()
    body = random.Random(1).randbytes(24_000_000)
    (tmp_path / "files" / "net.pth").write_bytes(body)
    moment = random.Random(2)
    with file_server(tmp_path / "files") as served:
        url = f"{served.url}/net.pth"
        size, kills = 0, 0
        while size < 16_000_000:
            aim = size + moment.randrange(1, 8_000_000)
            child = subprocess.Popen([sys.executable, "-c", CHILD, url, str(target)])
            while size < aim and child.poll() is None:
                REAL_SLEEP(0.002)
                bodies = list((hub_root / "partial").glob("*/body"))
                with_sizes = [one.stat().st_size for one in bodies if one.exists()]
                size = max([size, *with_sizes])
            child.send_signal(signal.SIGKILL)
            assert child.wait() in (0, -signal.SIGKILL)
            kills += 1
        had = max(one.stat().st_size for one in (hub_root / "partial").glob("*/body"))
        served.reset()
        fetched = http.fetch(url, target, resumable=True)
    assert kills >= 2 and served.sent <= max(len(body) - had, 1)
    assert fetched.sha256 == hashlib.sha256(body).hexdigest()
    assert fetched.path.read_bytes() == body
    fetched.release()
    assert [one for one in folders(hub_root) if not paths.abandoned(one.name)] == []
