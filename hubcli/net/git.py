"""The only module that starts git: through GitPython, with an environment that trusts no remote.

No prompt, hook, submodule, filter or foreign protocol runs; of the user's own git configuration an
allow-list passes; names reach git only behind `--` or inside a full refname, never as an option.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote, urlsplit

from hubcli import settings
from hubcli.errors import (
    HubError,
    IntegrityError,
    NotFoundError,
    keep_secret,
)
from hubcli.net import behalf
from hubcli.net.database import RepositoryError as RepositoryError
from hubcli.net.database import create as create
from hubcli.net.database import disarm
from hubcli.net.failures import failure, last_line
from hubcli.net.failures import public as public
from hubcli.output import Progress, message, size
from hubcli.spec import newest_tag

if TYPE_CHECKING:
    from git import Git

LOW_SPEED_SECONDS = 30  # a transfer below 1 kB/s for this long is given up
_END_SECONDS = 10  # for git and its helpers to end after they were told to
_CHECK_SECONDS = 0.2  # how often the size of what arrives is looked at
_LONGEST, _LARGEST = 1 << 16, 64 << 20  # characters of a line that git says, and of all that it says of a remote
_LISTED = 5_000  # refs among which a like name is looked for
_PASSING = re.compile(r"returned error: (408|425|429|500|502|503|504)\b|HTTP (429|50[0234])\b")
OBJECTS = "refs/hub"  # every ref that the cache keeps in a database lives below

_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_USER_CONFIG = r"^(credential\..*|http\.proxy|http\.sslcainfo|url\..*\.insteadof)$"

# What an inherited variable could change, set to what it is without one (GitPython's `env=` can
# replace a variable but not remove it).
_NEUTRAL = {
    "GIT_ALTERNATE_OBJECT_DIRECTORIES": "",
    "GIT_ASKPASS": "",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_PARAMETERS": "",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NAMESPACE": "",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TRACE": "0",
    "GIT_TRACE_CURL": "0",
    "GIT_TRACE_PACKET": "0",
    "SSH_ASKPASS": "",
}

_HARDENED = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_PROTOCOL_FROM_USER": "0",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
}

_CONFIG = (
    ("core.hooksPath", os.devnull),
    ("core.fsmonitor", "false"),
    ("core.attributesFile", os.devnull),
    ("core.autocrlf", "false"),
    ("core.symlinks", "true"),
    ("checkout.workers", "0"),
    ("core.protectHFS", "true"),
    ("core.protectNTFS", "true"),
    ("transfer.fsckObjects", "true"),
    ("fetch.fsckObjects", "true"),
    ("transfer.bundleURI", "false"),
    # What old, well-known repositories carry and no program trips over is let through.
    ("fetch.fsck.zeroPaddedFilemode", "warn"),
    ("fetch.fsck.badTimezone", "warn"),
    ("fetch.fsck.missingSpaceBeforeDate", "warn"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("credential.helper", ""),
    ("http.lowSpeedLimit", "1000"),
)


@dataclass(frozen=True)
class Resolved:
    """What a ref means at the remote now: `source` is its full name there."""

    kind: Literal["branch", "tag", "commit"]
    name: str
    source: str
    commit: str
    ambiguous: bool = False
    tip: bool = True


@dataclass(frozen=True)
class Entry:
    """One line of a commit's tree; `size` -1 for what was left out when it was fetched."""

    mode: str
    size: int
    path: str


@dataclass(frozen=True)
class Remote:
    """A repository to ask and fetch from: the URL after rewriting, and the environment for it."""

    url: str
    environment: Mapping[str, str]

    @classmethod
    def of(cls, url: str) -> Remote:
        """The remote that `url` means under the present settings; UsageError if not allowed."""
        now = settings.current()
        target = settings.rewrite_url(url)
        settings.check_scheme(target)
        allowed = behalf.may_have_secrets(target)
        own = [pair for pair in _user_config() if allowed or not pair[0].startswith("credential.")]
        config = [*_CONFIG, *own, ("http.lowSpeedTime", str(LOW_SPEED_SECONDS))]
        parts = urlsplit(target)
        if now.token and allowed and parts.scheme in ("http", "https"):
            basic = base64.b64encode(f"x-access-token:{now.token}".encode()).decode()
            keep_secret(now.token, basic)
            origin = f"{parts.scheme}://{parts.netloc}/"
            config.append((f"http.{origin}.extraHeader", f"Authorization: Basic {basic}"))
            # git sends an extra header on after a redirect, to whichever host that names
            config.append(("http.followRedirects", "false"))
        else:
            config.append(("http.followRedirects", "initial"))
        environment = _environment(config)
        environment["GIT_ALLOW_PROTOCOL"] = ":".join(now.allow_protocols)
        return cls(target, environment)

    def refs(self, *patterns: str) -> tuple[dict[str, str], str | None]:
        """`ls-remote --symref`: full name -> id for the patterns, and the branch HEAD names."""
        found: dict[str, str] = {}
        head: str | None = None
        command = ["ls-remote", "--symref", "--", self.url, *patterns]
        for line in self._run(command).splitlines():
            value, _, name = line.partition("\t")
            if value.startswith("ref: refs/heads/") and name == "HEAD":
                head = value.removeprefix("ref: refs/heads/")
            elif _COMMIT.match(value):
                found[name] = value
        return found, head

    def resolve(self, ref: str | None) -> Resolved:
        """What `ref` is: the default branch for None, a branch before a tag of the same name.

        One `ls-remote`.  Raises NotFoundError with the closest names when there is no such ref.
        """
        if ref is None:
            return self._default()
        if _COMMIT.match(ref):
            found, _ = self.refs("refs/heads/*", "refs/tags/*")
            return Resolved("commit", ref, ref, ref, tip=ref in found.values())
        short = ref.removeprefix("refs/heads/").removeprefix("refs/tags/")
        branch, tag = f"refs/heads/{short}", f"refs/tags/{short}"
        found, _ = self.refs(branch, tag, f"{tag}^{{}}")
        if ref == tag:
            found.pop(branch, None)
        elif ref == branch:
            found.pop(tag, None)
        if branch in found:
            return Resolved("branch", short, branch, found[branch], ambiguous=tag in found)
        if tag in found:
            return Resolved("tag", short, tag, found.get(f"{tag}^{{}}", found[tag]))
        raise NotFoundError(f"no branch or tag {short!r} in {public(self.url)}", hint=self._similar(short))

    def newest_tag(self, name: str) -> str | None:
        """The tag with the highest version above that of tag `name`: `spec.newest_tag`."""
        found, _ = self.refs("refs/tags/*")
        return newest_tag(name, {full.removeprefix("refs/tags/").removesuffix("^{}") for full in found})

    def _default(self) -> Resolved:
        found, head = self.refs("HEAD", "refs/heads/master", "refs/heads/main")
        for name in (head, "master", "main"):
            # HEAD's branch is listed as HEAD only; it may also be one that does not exist yet
            commit = found.get("HEAD" if name == head else f"refs/heads/{name}")
            if name is not None and commit is not None:
                return Resolved("branch", name, f"refs/heads/{name}", commit)
        raise NotFoundError(
            f"{public(self.url)} has no default branch",
            hint="name a branch or tag: owner/repo:ref",
        )

    def _similar(self, name: str) -> str | None:
        import difflib

        if re.fullmatch(r"[0-9a-f]{7,39}", name):
            return "a commit is named by its full 40 hex digits"
        found, _ = self.refs("refs/heads/*", "refs/tags/*")
        names = {full.split("/", 2)[2] for full in list(found)[:_LISTED] if full.count("/") > 1 and full[-3:] != "^{}"}
        close = difflib.get_close_matches(name, sorted(names), 3, 0.5)
        if close:
            return f"did you mean {' or '.join(close)}?"
        return f"there are {', '.join(sorted(names)[:5])}" if names else "the repository is empty"

    def fetch(self, db: Path, refspec: str, *options: str, progress: Progress | None = None) -> None:
        """Fetch `refspec` into the bare repository `db`, telling `progress` how far it is."""
        fixed = [
            "fetch",
            "--force",
            "--no-tags",
            "--no-recurse-submodules",
            "--no-write-fetch-head",
            "--no-auto-maintenance",
        ]
        shown = ["--progress"] if progress else ["--quiet"]
        command = [*fixed, *shown, *options, "--", self.url, *refspec.split()]
        disarm(db)
        with _growth_limited(db) as check:
            self._run(command, db, progress, check)

    def reaches(self, commit: str, scratch: Path) -> bool:
        """Whether a branch or tag of the remote reaches `commit`, looked up in a throw-away.

        Commits only (`--filter=tree:0`), else all there is where the server refuses filters.
        """
        create(scratch)
        everything = "+refs/heads/*:refs/hub/heads/* +refs/tags/*:refs/hub/tags/*"
        try:
            self.fetch(scratch, everything, "--filter=tree:0")
        except RepositoryError:
            self.fetch(scratch, everything)
        # A commit that is missing must not be fetched on demand: servers give out forks' commits.
        cut_off = {**_environment(_CONFIG), **_location(scratch), "GIT_ALLOW_PROTOCOL": "none"}
        command = ["for-each-ref", "--count=1", f"--contains={commit}", OBJECTS]
        status, out, _ = _execute(command, cut_off)
        return status == 0 and bool(out.strip())

    def _run(
        self,
        command: Sequence[str],
        db: Path | None = None,
        progress: Progress | None = None,
        check: Callable[[], bool] | None = None,
    ) -> str:
        environment = {**self.environment, **_location(db)}
        for left in (3, 2, 1, 0):
            status, out, err = _stream(command, environment, progress, check)
            if status == 0:
                return out
            if not (left and _PASSING.search(err) and (check is None or check())):
                break
            message(f"{public(self.url)}: {last_line(err)}; trying again")
            time.sleep(2.0**-left)
        raise failure(err, self.url)


MIRRORED = "refs/heads/mirrored"


def write_pack(db: Path, commit: str, folder: Path) -> Path:
    """A commit of `db` with its files as a pack in the existing empty `folder`, without history."""
    listing = folder / "objects"
    listing.write_bytes(os.fsencode(_local_run(["rev-list", "--objects", "--no-walk", commit], _local(db))))
    status, _, err = _execute(["pack-objects", "--quiet", str(folder / "pack")], _local(db), listing)
    if status:
        raise failure(err, None)
    (made,) = folder.glob("pack-*.pack")
    return made


def has_commit(db: Path, commit: str) -> bool:
    """Whether `db` has a commit and every file of it."""
    if not db.is_dir():
        return False
    status, _, _ = _execute(["rev-list", "--objects", "--no-walk", "--quiet", commit], _local(db))
    return status == 0


def open_pack(pack: Path, commit: str, scratch: Path) -> Remote:
    """A new repository `scratch` from a pack that is said to hold `commit`, to fetch MIRRORED from.

    Every object is what its id says, or git would not find it.  RepositoryError unless all of the commit is there.
    """
    create(scratch)
    (scratch / "shallow").write_text(f"{commit}\n")
    for command in (
        ["index-pack", "--stdin"],
        ["rev-list", "--objects", "--no-walk", "--quiet", commit],
        ["update-ref", MIRRORED, commit],
    ):
        status, _, err = _execute(command, _local(scratch), pack if command[0] == "index-pack" else "")
        if status:
            raise RepositoryError(f"it is not the commit {commit}: {last_line(err)}")
    return Remote(str(scratch), {**_environment(_CONFIG), "GIT_ALLOW_PROTOCOL": "file"})


def commit_object(db: Path, commit: str) -> bytes:
    """The text of a commit in `db`, of which its id is the digest."""
    return os.fsencode(_local_run(["cat-file", "commit", commit], _local(db)))


def ref_in_db(kind: str, name: str) -> str:
    """The name that a remote's ref has in the cache's database; flat, so that names never clash."""
    return f"{OBJECTS}/{kind}/{quote(name, safe='')}"


def identify(db: Path, name: str) -> tuple[str, str]:
    """The ids of the commit and of its tree that `name` (a full refname) has in `db`."""
    command = ["rev-parse", f"{name}^{{commit}}", f"{name}^{{tree}}"]
    commit, tree = _local_run(command, _local(db)).split()
    return commit, tree


def tag_object(db: Path, name: str, commit: str) -> bytes | None:
    """The annotated tag that `name` (a full refname) is in `db`, empty for a plain one.

    None where the database has no such name, or one that leads to another commit.
    """
    command = ["rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    status, out, _ = _execute(command, _local(db))
    if status or out.strip() != commit:
        return None
    status, out, _ = _execute(["cat-file", "tag", name], _local(db))
    return b"" if status else os.fsencode(out)


def changed_files(db: Path, old: str, new: str) -> list[tuple[str, str]] | None:
    """(A, M, D or T; path) of what differs between two commits; None where `db` lacks one."""
    if not (_COMMIT.match(old) and _COMMIT.match(new)):
        return None
    command = ["diff-tree", "-r", "-z", "--no-renames", "--no-ext-diff", "--name-status", old, new]
    status, out, _ = _execute(command, _local(db))
    parts = out.split("\0")
    return None if status else list(zip(parts[::2], parts[1::2]))


def difference(db: Path, old: str, new: str, name: str | None = None) -> str | None:
    """What differs between two commits, as text, perhaps in one file only; None where `db` lacks one."""
    if not (_COMMIT.match(old) and _COMMIT.match(new)):
        return None
    command = ["diff-tree", "-r", "-p", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", old, new]
    status, out, _ = _execute([*command, "--", name] if name else command, _local(db))
    return None if status else out


def allowed_signers() -> str | None:
    """The user's own gpg.ssh.allowedSignersFile."""
    return user_setting("gpg.ssh.allowedSignersFile", "--type=path")


def user_setting(name: str, *options: str) -> str | None:
    """What the user's own git configuration says."""
    command = ["config", "--includes", *options, "--get", name]
    environment = {**_NEUTRAL, "GIT_DIR": os.devnull, "GIT_CONFIG_COUNT": "0"}
    status, out, _ = _execute(command, environment)
    return None if status else out.rstrip("\n")


def init(folder: Path) -> None:
    """Make `folder` a work tree of a new repository with the branch main."""
    place = {"GIT_DIR": str(folder / ".git"), "GIT_WORK_TREE": str(folder)}
    _local_run(["init", "--quiet", "--initial-branch=main"], {**_environment(_CONFIG), **place})


def entries(db: Path, commit: str) -> Iterator[Entry]:
    """All files, links and submodules of a commit's tree."""
    listing = _local_run(["ls-tree", "-r", "-l", "-z", "--full-tree", commit], _local(db))
    for line in listing.split("\0"):
        if line:
            mode, _, _, rest = line.split(None, 3)
            size, _, path = rest.partition("\t")
            yield Entry(mode, 0 if size == "-" else -1 if size == "BAD" else int(size), path)


def blobs(db: Path, commit: str) -> dict[str, str]:
    """`mode id` of every file and link of a commit's tree, by its path."""
    lines = _local_run(["ls-tree", "-r", "-z", "--full-tree", commit], _local(db)).split("\0")
    parts = (line.partition("\t") for line in lines if line)
    return {path: f"{head.split()[0]} {head.split()[2]}" for head, _, path in parts}


def contents(db: Path, ids: Sequence[str], folder: Path) -> Iterator[bytes]:
    """The contents of files that are there, by the ids of `blobs`; `folder` takes a temporary file."""
    asked = folder / "asked"
    asked.write_text("\n".join([*ids, ""]))
    status, out, err = _execute(["cat-file", "--batch"], _local(db), asked)
    if status:
        raise failure(err, None)
    rest = os.fsencode(out)
    for _ in ids:
        head, _, rest = rest.partition(b"\n")
        size = int(head.split()[2])
        yield rest[:size]
        rest = rest[size + 1 :]


def checkout(db: Path, commit: str, folder: Path) -> None:
    """Write the tree of `commit` into the existing empty `folder`."""
    index = folder.with_name(folder.name + ".index")
    environment = {
        **_local(db),
        "GIT_WORK_TREE": str(folder),
        "GIT_INDEX_FILE": str(index),
    }
    try:
        _local_run(["read-tree", "-u", "--reset", commit], environment)
    finally:
        index.unlink(missing_ok=True)


def credential(url: str) -> tuple[str, str] | None:
    """User and password that the user's own git credential helpers have for the server of `url`.

    Nobody is asked; None where no helper is set up or none knows.
    """
    helpers = _user_config()
    parts = urlsplit(url)
    if not any(key.endswith(".helper") for key, _ in helpers) or not url.isprintable():
        return None
    query = f"protocol={parts.scheme}\nhost={parts.netloc}\npath={parts.path.lstrip('/')}\n\n"
    environment = {**_environment([*_CONFIG, *helpers]), **_location(None)}
    status, out, _ = _execute(["credential", "fill"], environment, query)
    answer = dict(line.partition("=")[::2] for line in out.splitlines())
    if status or not answer.get("password"):
        return None
    return answer.get("username", ""), answer["password"]


def version() -> str:
    """git's own version."""
    return _local_run(["version"], _local(None)).removeprefix("git version ").strip()


def _environment(config: Sequence[tuple[str, str]]) -> dict[str, str]:
    environment = {**_NEUTRAL, **_HARDENED, "GIT_CONFIG_COUNT": str(len(config))}
    for number, (key, value) in enumerate(config):
        environment[f"GIT_CONFIG_KEY_{number}"] = key
        environment[f"GIT_CONFIG_VALUE_{number}"] = value
    return environment


def _location(db: Path | None) -> dict[str, str]:
    """Where git works: in `db`, or in no repository at all, whatever the present folder is."""
    if db is None:
        return {"GIT_DIR": os.devnull}
    return {
        "GIT_DIR": str(db),
        "GIT_COMMON_DIR": str(db),
        "GIT_OBJECT_DIRECTORY": str(db / "objects"),
    }


def _local(db: Path | None) -> dict[str, str]:
    """The environment for work that no remote takes part in."""
    if db is not None:
        disarm(db)
    return {**_environment(_CONFIG), **_location(db), "GIT_ALLOW_PROTOCOL": "none"}


def _user_config() -> list[tuple[str, str]]:
    """Credential helpers, proxy, CA file and insteadOf rules of the user's own git configuration."""
    command = ["config", "--includes", "-z", "--get-regexp", _USER_CONFIG]
    _, out, _ = _execute(command, {**_NEUTRAL, "GIT_DIR": os.devnull, "GIT_CONFIG_COUNT": "0"})
    pairs = (item.partition("\n") for item in out.split("\0") if item)
    return [(key, value) for key, _, value in pairs]


def _local_run(command: Sequence[str], environment: Mapping[str, str]) -> str:
    status, out, err = _execute(command, environment)
    if status != 0:
        raise failure(err, None)
    return out


@functools.cache
def _launcher() -> type[Git]:
    try:
        from git import Git
    except ImportError as error:
        raise HubError(
            "git is not installed, or GIT_PYTHON_GIT_EXECUTABLE names no git",
            hint="install git (https://git-scm.com) and run again",
        ) from error
    return Git


def _execute(command: Sequence[str], environment: Mapping[str, str], stdin: str | Path = "") -> tuple[int, str, str]:
    """Run a quick command to its end: status, stdout (file names as the system has them), stderr."""
    launcher = _launcher()
    if isinstance(stdin, str):
        read, write = os.pipe()  # a pipe holds the few lines that there ever are
        os.write(write, stdin.encode())
        os.close(write)
    with open(stdin if isinstance(stdin, Path) else read, "rb") as pipe:
        status, out, err = launcher(os.sep).execute(
            [launcher.GIT_PYTHON_GIT_EXECUTABLE, *command],
            istream=pipe,
            with_extended_output=True,
            with_exceptions=False,
            stdout_as_string=False,
            strip_newline_in_stdout=False,
            shell=False,
            env=environment,
        )
    return int(status), os.fsdecode(out), str(err)


def _stream(
    command: Sequence[str],
    environment: Mapping[str, str],
    progress: Progress | None,
    check: Callable[[], bool] | None = None,
) -> tuple[int, str, str]:
    """Run a command that may last: stderr's progress lines go to `progress`, interruptible.

    It is ended when `check`, asked every so often, says no.
    """
    launcher = _launcher()
    process = launcher(os.sep).execute(
        [launcher.GIT_PYTHON_GIT_EXECUTABLE, *command],
        as_process=True,
        universal_newlines=True,
        shell=False,
        env=environment,
    )
    out: list[str] = []
    err: list[str] = []
    length = 0

    def told(line: str) -> None:
        nonlocal length
        length += len(line)
        if length > _LARGEST:
            raise IntegrityError(f"the server's list of refs has more than {size(_LARGEST)}")
        out.append(line)

    on_progress = _progress_reader(progress, err) if progress else err.append
    proc = process.proc
    assert proc is not None
    done = threading.Event()

    def watch() -> None:
        while check and not done.wait(_CHECK_SECONDS):
            if not check():
                proc.terminate()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    if check:
        watcher.start()
    readers = [_Reader(proc.stdout, told), _Reader(proc.stderr, on_progress)]
    try:
        for reader in readers:
            reader.join()
            if reader.error is not None:
                raise reader.error
        return proc.wait(), "".join(out), "".join(err)
    except BaseException:
        proc.terminate()
        for reader in readers:  # the streams are not to be closed under them
            reader.tell = _unheard
            reader.join(_END_SECONDS)
        with contextlib.suppress(subprocess.TimeoutExpired):
            proc.wait(_END_SECONDS)
        raise
    finally:
        done.set()


def _unheard(line: str) -> None:
    """Nobody waits for the line any more."""


class _Reader(threading.Thread):
    """Gives each line of a stream to `tell`, to the end; `error` is what `tell` raised."""

    def __init__(self, stream: Any, tell: Callable[[str], object]) -> None:
        super().__init__(daemon=True)
        self._stream, self.tell = stream, tell
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        """Read until the stream ends or `tell` fails."""
        try:
            while line := self._stream.readline(_LONGEST):
                self.tell(line)
        except BaseException as error:
            if not self._stream.closed:
                self.error = error
        finally:
            self._stream.close()


@contextlib.contextmanager
def _growth_limited(db: Path) -> Iterator[Callable[[], bool] | None]:
    """Asks whether `db` has grown by no more than --size-limit; IntegrityError at the end if it has.

    git itself has no limit on what it receives.
    """
    limit = settings.current().size_limit
    if limit is None:
        yield None
        return
    before = _size(db)
    try:
        yield lambda: _size(db) - before <= limit
    finally:
        if _size(db) - before > limit:
            sweep(db)
            raise IntegrityError(
                f"the repository is larger than the limit of {size(limit)}",
                hint="raise --size-limit if you want it",
            ) from None


def sweep(db: Path) -> None:
    """Delete what a git that was killed has left in `db`; whoever is fetching now begins anew."""
    for pattern in ("objects/pack/tmp_*", "objects/*/tmp_obj_*", "**/*.lock"):
        for path in db.glob(pattern):
            with contextlib.suppress(OSError):
                path.chmod(0o600)
                path.unlink()


def _size(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(parent, name)).st_size
    return total


def _progress_reader(progress: Progress, rest: list[str]) -> Callable[[str], None]:
    from git import RemoteProgress

    labels = {
        RemoteProgress.COUNTING: "counting",
        RemoteProgress.COMPRESSING: "compressing",
        RemoteProgress.RECEIVING: "receiving",
        RemoteProgress.RESOLVING: "resolving",
    }

    class Reader(RemoteProgress):
        before: tuple[str, float] | None = None

        def update(
            self,
            op_code: int,
            cur_count: str | float,
            max_count: str | float | None = None,
            message: str = "",
        ) -> None:
            label = labels.get(op_code & self.OP_MASK)
            if label:
                count = float(cur_count or 0)
                # git counts objects: while a large one comes nothing but the bytes grow, and a bar without end moves
                still = self.before == (label, count) and count != float(max_count or 0) and label == "receiving"
                self.before = (label, count)
                total = float(max_count) if max_count and not still else None
                progress.set(count, total, f"{label} {message}".rstrip())

    read = Reader().new_message_handler()

    def on_line(line: str) -> None:
        if not re.match(r"(remote: )?[A-Z][a-z]+ (objects|deltas|sources):", line):
            rest.append(line)
        with contextlib.suppress(UnicodeError, ValueError):
            read(line)

    return on_line
