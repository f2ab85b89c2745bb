"""A mirror in a bucket: written by fsspec and read by clients, on moto's S3 server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hubcli.models import Model
from tests.servers import Served, file_server, git_server

ROOT = Path(__file__).parents[4]
# s3fs runs threads and an event loop: every hub here is a process of its own
HUB = [sys.executable, "-c", "from hubcli.terminal.cli import main; main()"]
SERVER = """
import logging, sys
from werkzeug.serving import make_server
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
logging.disable(logging.CRITICAL)
server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
print(server.port, flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The endpoint of an S3 server with the empty bucket `models`."""
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        url = f"http://127.0.0.1:{int(process.stdout.readline())}"
        yield url
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


class World:
    """A locked model, its origins and a bucket."""

    def __init__(self, tmp: Path, s3: str, model: Model, git: Served, files: Served) -> None:
        self.tmp, self.s3, self.model, self.git, self.files = tmp, s3, model, git, files

    def hub(
        self, *arguments: str, cache: str = "hub", status: int = 0, **more: str
    ) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "TORCH_HUB_DIR": str(self.tmp / cache),
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.s3,
            "HUB_TRUST": "once",
            **more,
        }
        done = subprocess.run(
            [*HUB, *arguments], cwd=self.tmp, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == status and "Traceback" not in done.stderr, done.stderr
        return done

    def python(self, code: str) -> str:
        """What the code prints that has `files`, an fsspec file system of the server."""
        head = f"import s3fs\nfiles = s3fs.S3FileSystem(key='testing', secret='testing', endpoint_url={self.s3!r})\n"
        return subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def world(tmp_path: Path, s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("HUB_ALLOW_PROTOCOLS", "http")
    (tmp_path / "files").mkdir()
    with file_server(tmp_path / "files") as files, git_server(tmp_path / "served") as git:
        model = Model.create(tmp_path, files.url)
        monkeypatch.setenv("HUB_GIT_URL", f"{git.url}/{{owner}}/{{repo}}.git")
        made = World(tmp_path, s3, model, git, files)
        made.python(f"files.mkdir({tmp_path.name.replace('_', '-')!r})")
        yield made


@pytest.mark.long
def test_a_bucket_is_a_mirror(world):
    bucket = world.tmp.name.replace("_", "-")
    url = f"s3://{bucket}/team/hub"
    world.hub("lock", "o/m:v1", "--weights", "net", "-k", f"url={world.model.url}")
    made = json.loads(world.hub("--json", "mirror", url).stdout)
    assert made["target"] == url and [one["written"] for one in made["files"]] == [True, True]
    listed = world.python(f"print('\\n'.join(files.find('{bucket}')))").split()
    assert sorted(listed) == sorted(
        f"{bucket}/team/hub/{one}" for one in ["index.json", *(f["file"] for f in made["files"])]
    )
    assert json.loads(world.hub("--json", "mirror", url).stdout)["written"] == 0

    world.git.reset()
    world.files.reset()
    world.hub("sync", "--locked", cache="another", HUB_MIRROR=url)
    assert not world.git.requests and not world.files.requests
    world.hub("load", "o/m:v1", "net", "-k", f"url={world.model.url}", "--frozen", cache="another", HUB_MIRROR=url)

    blob = made["files"][1]["file"]
    world.python(f"files.pipe_file('{bucket}/team/hub/{blob}', b'x' * 96)")
    done = world.hub("sync", "--locked", cache="third", HUB_MIRROR=url)
    assert done.stderr.count("warning: ") == 1 and "is left alone" in done.stderr
    assert len(world.files.requests) == 1 and not world.git.requests

    world.model.repository.commit({"more.py": ""}, tag="v2")
    world.hub("lock", "o/m:v2", "-o", "v2.lock")
    made = json.loads(world.hub("--json", "mirror", url, "--lock-file", "v2.lock", "--prune").stdout)
    assert made["removed"] == 2
    assert "sha256" not in world.python(f"print(files.find('{bucket}'))")


@pytest.mark.long
def test_a_bucket_that_is_not_there(world):
    world.hub("lock", "o/m:v1")
    done = world.hub("mirror", "s3://no-such-bucket/hub", status=3)
    assert "no-such-bucket" in done.stderr and "hint: " in done.stderr
    done = world.hub("sync", "--locked", cache="another", HUB_MIRROR="s3://no-such-bucket/hub")
    assert "warning" not in done.stderr  # it has nothing of it: the origin is asked


@pytest.mark.long
def test_a_store_that_is_down(world):
    world.hub("lock", "o/m:v1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        down = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{taken.getsockname()[1]}", "AWS_MAX_ATTEMPTS": "1"}
        began = time.monotonic()
        done = world.hub("sync", "--locked", cache="another", HUB_MIRROR="s3://models/hub", **down)
    assert done.stderr.count("warning: ") == 1, time.monotonic() - began


def test_without_the_extra_it_is_named(world):
    (world.tmp / "lacking").mkdir()
    (world.tmp / "lacking" / "s3fs.py").write_text("raise ImportError('not here', name='s3fs')")
    world.hub("lock", "o/m:v1")
    path = f"{world.tmp / 'lacking'}{os.pathsep}{ROOT}"
    done = world.hub("mirror", "s3://models/hub", status=1, PYTHONPATH=path)
    assert "s3:// needs s3fs, which is not installed" in done.stderr and "pip install s3fs" in done.stderr
