"""Many processes, one cache, and everything goes wrong: kills, server faults, full disks, removals.

    python -m tests.torture [--seconds 900] [--operations 2000] [--processes 8] [--seed 0] [--json FILE]
                            [--plant NAME | --plants]

Real commands (`hub pull`, `load`, `cache rm`, `prune`, `verify`, ...) run on a cache of a few MB,
against real servers that break off, lie and drip.  Some are killed with SIGKILL, half of them have no
locks (as on file systems where flock does nothing), the disk (a small tmpfs where the system lets us
mount one, else a limit on the size of files) fills up now and then.  All the while an observer reads
what the cache shows.  It must never see half a tree, a wrong digest or a broken table; no command may
print a traceback, end with a status that its trouble does not explain, or wait for a lock for good;
and in the end nothing may be left but downloads that can be gone on with.  Prints the counts; status
1 if anything is wrong.  The sequence of operations follows from the seed, their timing does not.

`--plant` runs hub with a fault of `tests.plants`, which must be found; `--plants` tries each until it
is found, and has status 1 if one is not.  At the end writers meet at one table, `--rounds` times.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import hashlib
import importlib
import itertools
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests import plants, witness
from tests.servers import Repository, Served, file_server, git_server

ROOT = Path(__file__).parents[1]
REPOSITORIES = 3
TAGS = ("v1", "v2", "v3")
DISK = 48_000_000  # bytes of the tmpfs
_KILLED = -signal.SIGKILL

HUBCONF = '''
import hashlib, os, torch
dependencies = ["torch"]


def net(url, name):
    """Reads its own files and its weights, and looks at both."""
    here = os.path.dirname(__file__)
    with open(os.path.join(here, "manifest")) as file:
        for line in file:
            path, digest = line.split()
            with open(os.path.join(here, path), "rb") as part:
                assert hashlib.sha256(part.read()).hexdigest() == digest, "CORRUPT code: " + path
    state = torch.hub.load_state_dict_from_url(url, file_name=name, progress=False)
    value, count = state["x"], state["n"]
    assert value.shape[0] == int(count[0]), "CORRUPT weights: length"
    assert bool((value == count[0]).all()), "CORRUPT weights: content"
    model = torch.nn.Linear(2, 2)
    return model
'''


class Torture:
    """One run: servers, workers, observer, and the counts of all."""

    def __init__(self, folder: Path, options: argparse.Namespace, mounted: bool) -> None:
        self.folder, self.options, self.mounted = folder, options, mounted
        self.disk = folder / "disk"
        self.hub = self.disk / "hub"
        self.counts: dict[str, Counter[str]] = {
            kind: Counter() for kind in ("operations", "statuses", "faults", "observed", "events")
        }
        self.wrong: list[str] = []
        self.lock = threading.Lock()
        self.done = threading.Event()
        self.left = options.operations
        self.faulty = True
        self.removals = self.removing = 0
        self.digests: dict[str, str] = {}

    # what is served

    def build(self) -> None:
        """Repositories that know their own digests, and weights that know their own content."""
        import numpy as np
        from safetensors.numpy import save_file

        noise = random.Random(self.options.seed)
        self.repositories = []
        for number in range(REPOSITORIES):
            repo = Repository.create(self.folder / "served", f"o/r{number}")
            self.repositories.append(repo)
            for tag in TAGS:
                self.commit(repo, noise, tag)
        files = self.folder / "files"
        files.mkdir()
        for number, size in enumerate((1, 1000, 20_000, 60_000, 200_000, 400_000)):
            path = files / f"w{number}.safetensors"
            arrays = {"x": np.full(size, size, np.float32), "n": np.array([size], np.float32)}
            save_file(arrays, path)
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            if number % 2:
                path = path.rename(files / f"w{number}-{digest[:8]}.safetensors")
            self.digests[path.name] = digest

    def commit(self, repo: Repository, noise: random.Random, tag: str | None = None) -> None:
        """Another commit with a manifest of all its files."""
        contents: dict[str, bytes] = {"hubconf.py": HUBCONF.encode()}
        for number in range(12):
            contents[f"data/{number % 3}/{number}.bin"] = noise.randbytes(noise.choice((10, 2000, 60_000)))
        lines = [f"{n} {hashlib.sha256(c).hexdigest()}\n" for n, c in contents.items()]
        repo.commit({**contents, "manifest": "".join(lines)}, tag=tag)

    def fault(self, handler: Any) -> bool | int:
        """What the servers do to some requests."""
        is_git = ".git" in handler.path
        if not self.faulty or random.random() > (0.08 if is_git else 0.5):
            return False
        kinds = ["503", "reset", "cut"]
        if not is_git:
            kinds += ["cut", "cut", "length", "html", "gzip", "etag", "etag", "drip", "range", "other"]
        kind = random.choice(kinds)
        self.count("faults", f"{'git' if is_git else 'file'} {kind}")
        if kind == "cut":
            return random.choice((0, 1, random.randrange(2000), random.randrange(1_000_000)))
        if kind == "503":
            handler.answer(503, b"", {"Retry-After": "0"})
        elif kind == "reset":
            handler.hang_up()
        elif kind == "html":
            handler.answer(200, b"<!DOCTYPE html>log in", {"Content-Type": "text/html"})
        elif kind == "gzip":
            handler.answer(200, b"x" * 1000, {"Content-Encoding": "gzip"})
        else:
            return self._lie(handler, kind)
        return True

    def _lie(self, handler: Any, kind: str) -> bool:
        path = self.folder / "files" / Path(handler.path).name
        content = path.read_bytes() if path.is_file() else b"?"
        headers = {"ETag": '"another"'}
        if kind == "length":  # promises more than there is
            headers["Content-Length"] = str(len(content) + 17)
            handler.answer(200, content, headers)
            handler.hang_up()
        elif kind == "etag":  # another file of the same length under another name, and never all of it
            handler.cut = random.randrange(len(content))
            handler.answer(200, bytes(255 - byte for byte in content), headers)
        elif kind == "other":  # what the name's hash does not fit; without one nobody could know
            hashed = re.search(r"-[0-9a-f]{8}\.", path.name)
            others = [one for one in path.parent.iterdir() if one != path] if hashed else [path]
            handler.answer(200, random.choice(others).read_bytes(), {})
        elif kind == "range":  # a range that nobody has asked for
            headers["Content-Range"] = f"bytes 1-{len(content) - 1}/{len(content)}"
            handler.answer(206, content[1:], headers)
        else:
            for start in range(0, min(len(content), 3000), 1000):
                handler.wfile.write(b"" if start else b"HTTP/1.1 200 OK\r\n\r\n")
                handler.wfile.write(content[start : start + 1000])
                time.sleep(0.1)
            handler.hang_up()
        return True

    # the operations

    def operation(self, dice: random.Random) -> list[str]:
        """The arguments of the next command."""
        repo = f"o/r{dice.randrange(REPOSITORIES)}"
        spec = dice.choice((repo, *(f"{repo}:{tag}" for tag in TAGS)))
        name = dice.choice(sorted(self.digests))
        kind = dice.choices(
            ("pull", "reload", "load", "list", "show", "ls", "rm", "rm file", "prune", "evict", "verify", "repair"),
            (18, 8, 34, 5, 3, 3, 8, 12, 4, 2, 3, 2),
        )[0]
        return {
            "pull": ["pull", spec],
            "reload": ["pull", spec, "--force-reload"],
            "load": [
                "load",
                spec,
                "net",
                "-k",
                f"url={self.files.url}/{name}",
                "-k",
                f"name={name}",
            ],
            "list": ["list", spec],
            "show": ["show", spec],
            "ls": ["cache", "ls"],
            "rm": ["cache", "rm", spec, "--yes"],
            "rm file": ["cache", "rm", name, "--yes"],
            "prune": ["cache", "prune", "--grace", dice.choice(("1d", "30s"))],
            "evict": ["cache", "prune", "--max-size", dice.choice(("2MB", "6MB"))],
            "verify": ["cache", "verify"],
            "repair": ["cache", "verify", "--repair"],
        }[kind]

    def work(self, number: int) -> None:
        """One of the processes: operation after operation, each in a child that may be killed."""
        dice = random.Random(f"{self.options.seed}/{number}")
        with self.zygote(number % 2 == 0) as run:
            while not self.done.is_set():
                with self.lock:
                    if self.left <= 0:
                        return
                    self.left -= 1
                arguments = self.operation(dice)
                kill = dice.random() < 0.15
                delay = dice.random() ** 2 * 1.2 if kill else None
                limit = dice.randrange(400_000) if dice.random() < 0.04 else None
                before = self.begin(arguments)
                try:
                    status, out, err = run(arguments, delay, limit, dice.random() < 0.5)
                except Exception as error:
                    self.fail(f"harness: {arguments}: {type(error).__name__}: {error}")
                    return
                self.judge(arguments, status, out, err, limited=limit is not None)
                self.end(arguments, status, before)

    @contextlib.contextmanager
    def zygote(self, locks: bool) -> Iterator[Any]:
        """A process that has everything imported and forks one child per command."""
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "HOME": str(self.folder),
            "TORCH_HUB_DIR": str(self.hub),
            "HUB_ALLOW_PROTOCOLS": "http",
            "HUB_GIT_URL": f"{self.git.url}/{{owner}}/{{repo}}.git",
            "HUB_TRUST": "commit",
            "HUB_LOCK_TIMEOUT": "120",
            "TORTURE_PLANT": self.options.plant or "",
            "TORTURE_HUB": str(self.hub),
            "TORTURE_LOCKS": "1" if locks else "",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.torture", "--zygote"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=ROOT,
        )
        assert process.stdin and process.stdout
        stdin, stdout = process.stdin, process.stdout
        out, err = self.folder / f"out{id(process)}", self.folder / f"err{id(process)}"

        def run(arguments: list[str], delay: float | None, limit: int | None, group: bool) -> tuple[int, str, str]:
            request = {"arguments": arguments, "out": str(out), "err": str(err), "limit": limit}
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
            child = int(stdout.readline())
            if delay is not None:
                time.sleep(delay)
                with contextlib.suppress(ProcessLookupError):
                    if group:  # with its git
                        os.killpg(child, signal.SIGKILL)
                    else:
                        os.kill(child, signal.SIGKILL)
            status = int(stdout.readline())
            return status, out.read_text(errors="replace"), err.read_text(errors="replace")

        try:
            yield run
        finally:
            stdin.close()
            process.wait()

    def judge(self, arguments: list[str], status: int, out: str, err: str, *, limited: bool) -> None:
        """Count how a command has ended, and say so if it should not have ended like that."""
        verb = " ".join(arguments[:2]) if arguments[0] == "cache" else arguments[0]
        self.count("operations", verb)
        self.count("statuses", "killed" if status == _KILLED else str(status))
        text = out + err
        code = ""
        if status > 0:
            with contextlib.suppress(ValueError, KeyError):
                code = json.loads(out)["error"]["code"]
        full = re.search(r"[Nn]o space|File too large|disk full|quota|index-pack failed", text) is not None
        problems: list[str] = []
        with contextlib.suppress(ValueError, KeyError):
            problems = [one["problem"] for one in json.loads(out)["problems"]]
        accepted = (
            status in (0, _KILLED)
            or (status == 1 and full)
            # what was just removed is missing, and a server may refuse to give it again
            or (status == 1 and problems and all(one.startswith("missing") for one in problems))
            or (status == 3 and arguments[:2] == ["cache", "rm"])
            or (status == 4 and verb in ("pull", "load", "list", "show"))
            or (status == 6 and re.search("web page|as gzip|invalid hash value", text))
        )
        if "Traceback" in text or code == "internal" or "CORRUPT" in text or not accepted:
            self.fail(f"{arguments} ended with {status}: {text[-1500:]}")
        elif arguments[0] == "load" and status == 0:
            for one in json.loads(out)["weights"]:
                if one["sha256"] != self.digests[one["file"]]:
                    self.fail(f"{arguments}: {one}")
        elif arguments[0] == "pull" and status == 0:
            self.look_at_tree(Path(json.loads(out)["path"]))
        if full:
            self.count("events", "commands that met a full disk or a limit")

    def begin(self, arguments: list[str]) -> int:
        """What could remove a ref, so far; a command that may is counted when it begins and when it ends."""
        with self.lock:
            if arguments[0] != "pull":
                self.removals += arguments[0] == "cache"
                self.removing += arguments[0] == "cache"
            return -1 if self.removing else self.removals

    def end(self, arguments: list[str], status: int, before: int) -> None:
        """A ref that was pulled is there unless something has removed it meanwhile."""
        spec, _, ref = arguments[1].partition(":") if arguments[0] == "pull" else ("", "", "")
        there = True
        if spec and status == 0:
            tables = (self.hub / "refs").glob(f"*/{spec}.json")
            there = any((ref or "main") in one["refs"] for t in tables for one in _remotes(t))
        with self.lock:
            self.removing -= arguments[0] == "cache"
            if spec and status == 0 and before == self.removals:
                self.counts["events"]["refs looked for after a pull"] += 1
                self.counts["events"]["refs lost"] += not there

    # the observer

    def observe(self) -> None:
        """Look at everything that a look-up could see, again and again."""
        while not self.done.is_set():
            for table in (self.hub / "refs").rglob("*.json"):
                with contextlib.suppress(FileNotFoundError):
                    self.look_at_table(table)
            for link in (self.hub / "checkpoints").glob("*"):
                self.look_at_file(link, self.digests.get(link.name))
            for blob in (self.hub / "blobs" / "sha256").glob("*/*"):
                self.look_at_file(blob, blob.name)
            self.done.wait(0.05)

    def look_at_table(self, file: Path) -> None:
        """Every table is whole, and every tree that it shows is whole or gone."""
        try:
            document = json.loads(file.read_bytes())
            sections = list(document["remotes"].values())
        except (ValueError, KeyError) as error:
            self.fail(f"{file}: {error!r}")
            return
        self.count("observed", "tables")
        for section in sections:
            for entry in section["refs"].values():
                tree = self.hub / "checkouts" / section["key"] / (f"{entry['commit']}.{entry['generation']}")
                if tree.with_name(f"{tree.name}.json").is_file():
                    self.look_at_tree(tree)

    def look_at_tree(self, tree: Path) -> None:
        """A tree under its own name has all its files with their digests."""
        try:
            inode = tree.stat().st_ino
            wrong = None
            try:
                for line in (tree / "manifest").read_text().splitlines():
                    name, digest = line.split()
                    made = hashlib.sha256((tree / name).read_bytes()).hexdigest()
                    if made != digest:
                        wrong = f"{name} has sha256 {made}, not {digest}"
            except FileNotFoundError as error:
                wrong = str(error)
            if wrong and tree.stat().st_ino == inode:
                self.fail(f"visible tree {tree}: {wrong}")
            self.count("observed", "trees")
        except FileNotFoundError:
            self.count("observed", "trees gone")

    def look_at_file(self, path: Path, digest: str | None) -> None:
        """A weight file is there with its digest, or it is not there."""
        try:
            made = hashlib.sha256(path.read_bytes()).hexdigest()
        except FileNotFoundError:
            self.count("observed", "weights gone")
            return
        self.count("observed", "weights")
        if made != digest:
            self.fail(f"visible file {path} has sha256 {made}, not {digest}")

    # what else happens

    def fill(self) -> None:
        """Fill the disk to the last kilobytes, for a moment."""
        dice = random.Random(f"{self.options.seed}/disk")
        filler = self.disk / "filler"
        while not self.done.wait(dice.uniform(2, 6)):
            with contextlib.suppress(OSError), filler.open("wb") as file:
                free = shutil.disk_usage(self.disk).free
                os.posix_fallocate(file.fileno(), 0, max(free - dice.choice((0, 3000, 100_000)), 1))
            self.count("events", "full disks")
            self.done.wait(dice.uniform(0.2, 1.5))
            filler.unlink(missing_ok=True)
        filler.unlink(missing_ok=True)

    def publish(self) -> None:
        """Branches move on."""
        noise = random.Random(f"{self.options.seed}/branches")
        while not self.done.wait(3):
            self.commit(noise.choice(self.repositories), noise)
            self.count("events", "branches moved")

    def together(self) -> None:
        """Writers of one table at the same moment, most of them without locks: what each has written is there."""
        self.faulty = False
        specs = ["", *(f":{tag}" for tag in TAGS[1:])]
        with contextlib.ExitStack() as stack:
            runs = [stack.enter_context(self.zygote(number == 0)) for number in range(len(specs))]

            def pull(run: Any, spec: str) -> None:
                status, out, err = run(["pull", spec], None, None, False)
                if status:
                    self.fail(f"together: pull {spec} ended with {status}: {(out + err)[-1500:]}")

            for number in range(self.options.rounds):
                repo = f"o/r{number % REPOSITORIES}"
                pull(runs[0], f"{repo}:{TAGS[0]}")  # keeps the database: the others are ready at nearly the same time
                for spec in specs:
                    runs[0](["cache", "rm", f"{repo}{spec}", "--yes"], None, None, False)
                threads = [threading.Thread(target=pull, args=(run, f"{repo}{spec}")) for run, spec in zip(runs, specs)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                tables = [one for t in (self.hub / "refs").glob(f"*/{repo}.json") for one in _remotes(t)]
                lost = {spec[1:] or "main" for spec in specs} - {ref for one in tables for ref in one["refs"]}
                self.count("events", "rounds of writers together")
                if lost:
                    self.fail(f"together: {repo} has lost {', '.join(sorted(lost))}")

    def finish(self) -> None:
        """Afterwards: no stuck lock, nothing left, everything whole, everything works."""
        from filelock import FileLock, Timeout

        self.faulty = False
        if lost := self.counts["events"]["refs lost"]:
            self.fail(f"{lost} refs were lost")
        time.sleep(1)  # a git whose parent was killed may still be writing
        for file in (self.hub / "locks").glob("*.lock"):
            try:
                FileLock(file).acquire(timeout=0).lock.release()
            except Timeout:
                self.fail(f"stuck lock {file}")
        before = self.leftovers()
        self.counts["events"]["left beyond partial/ before prune"] = len(before)
        with self.zygote(True) as run:

            def must(*arguments: str) -> dict[str, Any]:
                status, out, err = run(list(arguments), None, None, False)
                if status:
                    self.fail(f"afterwards {arguments} ended with {status}: {(out + err)[-1500:]}")
                return json.loads(out)

            must("settle")  # a minute passes
            must("cache", "prune")
            for path in self.leftovers():
                self.fail(f"left beyond partial/: {path}")
            for path in (self.hub / "partial").glob("*"):
                if (path / "body").is_file():
                    self.counts["events"]["downloads that can be gone on with"] += 1
                else:
                    self.fail(f"left in partial/: {path}")
            for problem in must("cache", "verify")["problems"]:
                self.fail(f"afterwards: {problem}")
            names = itertools.cycle(sorted(self.digests))
            for number in range(REPOSITORIES):
                for ref, name in zip(("", *(f":{tag}" for tag in TAGS)), names, strict=False):
                    url = f"url={self.files.url}/{name}"
                    must("load", f"o/r{number}{ref}", "net", "-k", url, "-k", f"name={name}")
                must("pull", f"o/r{number}", "--force-reload")
            for problem in must("cache", "verify")["problems"]:
                self.fail(f"afterwards: {problem}")

    def leftovers(self) -> list[Path]:
        """What lies outside partial/ and belongs to no complete object."""
        found = []
        for path in self.hub.rglob("*"):
            place = path.relative_to(self.hub)
            if place.parts[0] in ("partial", "locks"):
                continue
            unmarked = (
                place.parts[0] == "checkouts"
                and re.fullmatch(r"[0-9a-f]{40}\.[0-9]+", path.name)
                and not path.with_name(f"{path.name}.json").exists()
            )
            temporary = re.search(r"^\.|\.tmp$|^tmp_|\.lock$|\.trash$|\.index$", path.name)
            inside = place.parts[0] == "checkouts" and len(place.parts) > 5
            if unmarked or (temporary and not inside):
                found.append(path)
        return found

    # counting

    def count(self, kind: str, what: str) -> None:
        """One more of it."""
        with self.lock:
            self.counts[kind][what] += 1

    def fail(self, what: str) -> None:
        """Something is wrong."""
        with self.lock:
            self.wrong.append(what)
        print(f"WRONG {what}", file=sys.stderr, flush=True)

    def run(self) -> dict[str, Any]:
        """All of it; the counts."""
        self.disk.mkdir(exist_ok=True)
        if self.mounted:
            size = f"size={DISK}"
            subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", self.disk], check=True)
        self.build()
        start = time.monotonic()
        with git_server(self.folder / "served") as git, file_server(self.folder / "files") as files:
            self.git: Served = git
            self.files: Served = files
            git.fault = files.fault = self.fault
            others = [self.observe, self.publish] + ([self.fill] if self.mounted else [])
            background = [threading.Thread(target=one, daemon=True) for one in others]
            workers = [
                threading.Thread(target=self.work, args=(number,), daemon=True)
                for number in range(self.options.processes)
            ]
            for thread in (*background, *workers):
                thread.start()
            while any(one.is_alive() for one in workers):
                enough = self.options.plant and self.wrong
                if enough or time.monotonic() - start > self.options.seconds:
                    with self.lock:
                        self.left = 0
                time.sleep(0.1)
            self.done.set()
            for thread in (*background, *workers):
                thread.join()
            seconds = time.monotonic() - start
            if not (self.options.plant and self.wrong):
                self.together()
                self.finish()
        return {
            "seed": self.options.seed,
            "processes": self.options.processes,
            "seconds": round(seconds, 1),
            "disk": "tmpfs" if self.mounted else "limits on the size of files only",
            "total": sum(self.counts["operations"].values()),
            **{kind: dict(sorted(counter.items())) for kind, counter in self.counts.items()},
            "bytes sent": {"git": git.sent, "files": files.sent},
            "wrong": self.wrong,
        }


def _remotes(table: Path) -> list[dict[str, Any]]:
    try:
        return list(json.loads(table.read_bytes())["remotes"].values())
    except FileNotFoundError:
        return []


def zygote() -> None:
    """Fork a child for every line of stdin; print its number, then its exit status."""
    # what children need is imported once
    modules = "engine engine.nn engine.serialization git requests hubcli.running.invoke hubcli.cache.fetching"
    commands = "cache list load pull show"
    for name in [*modules.split(), *(f"hubcli.terminal.commands.{name}" for name in commands.split())]:
        importlib.import_module(name)
    from hubcli.cache import locks, prune
    from hubcli.terminal import cli

    if not os.environ["TORTURE_LOCKS"]:
        locks.exclusive = lambda *_: contextlib.nullcontext()  # type: ignore[assignment]
    witness.install(Path(os.environ["TORTURE_HUB"]))
    if os.environ["TORTURE_PLANT"]:
        plants.PLANTS[os.environ["TORTURE_PLANT"]]()
    for line in sys.stdin:
        request = json.loads(line)
        if request["arguments"] == ["settle"]:
            prune._ABANDONED = -1.0
            Path(request["out"]).write_text("{}")
            Path(request["err"]).write_text("")
            print("0\n0", flush=True)
            continue
        child = os.fork()
        if child == 0:
            status = 70
            try:
                os.setpgid(0, 0)
                for descriptor, name in ((1, "out"), (2, "err")):
                    file = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                    os.dup2(file, descriptor)
                if request["limit"] is not None:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (request["limit"],) * 2)
                cli.hub.main(["--json", *request["arguments"]])
            except SystemExit as ending:
                status = int(ending.code or 0)
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                atexit._run_exitfuncs()
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        with contextlib.suppress(OSError):
            os.setpgid(child, child)
        print(child, flush=True)
        _, ended = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(ended), flush=True)


def try_plants(options: argparse.Namespace) -> int:
    """Run with each fault, until it is found or the operations are done; 1 if one is not."""
    found = {}
    for name in plants.PLANTS:
        command = [sys.executable, "-m", "tests.torture", "--plant", name, "--seed", str(options.seed)]
        command += ["--operations", str(options.operations), "--seconds", str(options.seconds)]
        done = subprocess.run([*command, "--processes", str(options.processes)], capture_output=True, text=True)
        lines = [line for line in done.stderr.splitlines() if line.startswith("WRONG ")]
        found[name] = lines[0][:160] if lines else None
        print(f"{name}: {found[name] or 'NOT FOUND'}", flush=True)
    count = sum(line is not None for line in found.values())
    print(f"{count} of {len(found)} planted faults found")
    return int(count < len(found))


def may_mount() -> bool:
    """Whether this user can have a mount of their own."""
    command = ["unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "tmpfs"]
    try:
        with tempfile.TemporaryDirectory() as name:
            return not subprocess.run([*command, name], capture_output=True, check=False).returncode
    except OSError:
        return False


def main() -> int:
    """Run, print the counts as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=900)
    parser.add_argument("--operations", type=int, default=2000)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=20, help="of writers of one table at the same moment")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--plant", choices=plants.PLANTS, help="run hub with this fault")
    parser.add_argument("--plants", action="store_true", help="try whether every fault is found")
    parser.add_argument("--zygote", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--mounted", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.zygote:
        zygote()
        return 0
    if options.plants:
        return try_plants(options)
    if not options.mounted and may_mount():
        again = [sys.executable, "-m", "tests.torture", "--mounted", *sys.argv[1:]]
        os.execvp("unshare", ["unshare", "--map-root-user", "--mount", *again])
    with tempfile.TemporaryDirectory() as name:
        torture = Torture(Path(name), options, options.mounted)
        try:
            found = torture.run()
        finally:
            if options.mounted:
                subprocess.run(["umount", "-l", torture.disk], check=False)
    text = json.dumps(found, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")
    return 1 if torture.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
