"""Git remotes and databases: a remote's refs and the objects behind them, the content of a database.

Names reach git only behind `--` or inside a full refname, never as an option; `started` has the environment.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

from hubcli.base import settings
from hubcli.base.output import Progress, message
from hubcli.base.spec import newest_tag
from hubcli.errors import NotFoundError
from hubcli.net.git import process
from hubcli.net.git.access import Access
from hubcli.net.git.database import RepositoryError as RepositoryError
from hubcli.net.git.database import create as create
from hubcli.net.git.database import disarm, growth_limited
from hubcli.net.git.errors import failure, last_line
from hubcli.net.git.errors import public as public
from hubcli.net.http import secret_scope

_LISTED = 5_000  # refs among which a like name is looked for
# Servers that are busy, and another process that writes the same pack where locks do nothing.
_PASSING = re.compile(
    r"returned error: (408|425|429|500|502|503|504)\b|HTTP (429|50[0234])\b|unable to rename temporary '"
)
OBJECTS = "refs/hub"  # every ref that the cache keeps in a database lives below

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?\Z")


@dataclass(frozen=True)
class Resolved:
    """The meaning of a ref at the remote now: `source` is its full name there."""

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
    id: str = ""


@dataclass(frozen=True)
class Remote:
    """A repository to ask and fetch from: the URL after rewriting, and the environment for it.

    `access` has the other logins, and knows where the repository has moved.
    """

    url: str
    environment: Mapping[str, str]
    access: Access | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, url: str) -> Remote:
        """Return the remote that `url` means under the present settings; UsageError if not allowed."""
        target = settings.rewrite_url(url)
        settings.check_scheme(target)
        access = Access(target, secret_scope.may_have_secrets(target))
        return cls(target, access.environment, access)

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
        """Return what `ref` is: the default branch for None, a branch before a tag of the same name.

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
        """Return the tag with the highest version above that of tag `name`: `spec.newest_tag`."""
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

    def fetch(
        self, db: Path, refspec: str, *options: str, progress: Progress | None = None, limit: int | None = None
    ) -> None:
        """Fetch `refspec` into the bare repository `db`, which may grow by `limit` bytes; `progress` shows it."""
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
        with growth_limited(db, limit) as check:
            self._run(command, db, progress, check)

    def reaches(self, commit: str, scratch: Path, limit: int | None = None) -> bool:
        """Return whether a branch or tag of the remote reaches `commit`, looked up in a throw-away.

        Commits only (`--filter=tree:0`), else all there is where the server refuses filters.
        """
        create(scratch, commit)
        everything = "+refs/heads/*:refs/hub/heads/* +refs/tags/*:refs/hub/tags/*"
        try:
            self.fetch(scratch, everything, "--filter=tree:0", limit=limit)
        except RepositoryError:
            self.fetch(scratch, everything, limit=limit)
        # A commit that is missing must not be fetched on demand: servers give out forks' commits.
        cut_off = {**process.environment_of(process.CONFIG), **process.location(scratch), "GIT_ALLOW_PROTOCOL": "none"}
        command = ["for-each-ref", "--count=1", f"--contains={commit}", OBJECTS]
        status, out, _ = process.execute(command, cut_off)
        return status == 0 and bool(out.strip())

    def _run(
        self,
        command: Sequence[str],
        db: Path | None = None,
        progress: Progress | None = None,
        check: Callable[[], bool] | None = None,
    ) -> str:
        while True:
            url, environment = self._now()
            rewritten = [url if word == self.url else word for word in command]
            status, out, err = self._tried(rewritten, {**environment, **process.location(db)}, progress, check)
            if status == 0:
                if self.access is not None:
                    self.access.succeeded()
                return out
            if self.access is None or not self.access.another(err):
                raise failure(err, self.url) if self.access is None else self.access.failure(err)

    def _now(self) -> tuple[str, Mapping[str, str]]:
        return (self.url, self.environment) if self.access is None else (self.access.url, self.access.environment)

    def _tried(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        progress: Progress | None,
        check: Callable[[], bool] | None,
    ) -> tuple[int, str, str]:
        """Return the command's end, once more where its failure may pass."""
        for left in (3, 2, 1, 0):
            status, out, err = process.stream(command, environment, progress, check)
            if status and left and _PASSING.search(err) and (check is None or check()):
                message(f"{public(self.url)}: {last_line(err)}; trying again")
                time.sleep(2.0**-left)
            else:
                break
        return status, out, err


MIRRORED = "refs/heads/mirrored"


def write_pack(db: Path, commit: str, folder: Path) -> Path:
    """Return a commit of `db` with its files as a pack in the existing empty `folder`, without history."""
    listing = folder / "objects"
    listing.write_bytes(os.fsencode(process.run(["rev-list", "--objects", "--no-walk", commit], process.local(db))))
    status, _, err = process.execute(["pack-objects", "--quiet", str(folder / "pack")], process.local(db), listing)
    if status:
        raise failure(err, None)
    (made,) = folder.glob("pack-*.pack")
    return made


def has_commit(db: Path, commit: str) -> bool:
    """Return whether `db` has a commit and every file of it."""
    if not db.is_dir():
        return False
    status, _, _ = process.execute(["rev-list", "--objects", "--no-walk", "--quiet", commit], process.local(db))
    return status == 0


def open_pack(pack: Path, commit: str, scratch: Path) -> Remote:
    """Return a new repository `scratch` from a pack that is said to hold `commit`, to fetch MIRRORED from.

    Every object is what its id says, or git would not find it.  RepositoryError unless all of the commit is there.
    """
    create(scratch, commit)
    (scratch / "shallow").write_text(f"{commit}\n")
    for command in (
        ["index-pack", "--stdin"],
        ["rev-list", "--objects", "--no-walk", "--quiet", commit],
        ["update-ref", MIRRORED, commit],
    ):
        status, _, err = process.execute(command, process.local(scratch), pack if command[0] == "index-pack" else "")
        if status:
            raise RepositoryError(f"it is not the commit {commit}: {last_line(err)}")
    return Remote(str(scratch), {**process.environment_of(process.CONFIG), "GIT_ALLOW_PROTOCOL": "file"})


def commit_object(db: Path, commit: str) -> bytes:
    """Return the text of a commit in `db`; the commit's id is its digest."""
    return os.fsencode(process.run(["cat-file", "commit", commit], process.local(db)))


def ref_in_db(kind: str, name: str) -> str:
    """Return the name that a remote's ref has in the cache's database; flat, so that names never clash."""
    return f"{OBJECTS}/{kind}/{quote(name, safe='')}"


def identify(db: Path, name: str) -> tuple[str, str]:
    """Return the ids of the commit and of its tree that `name` (a full refname) has in `db`.

    NotFoundError where it is the name of a tree or of a file, as some tags are; it is taken out of `db`.
    """
    command = ["rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    status, commit, _ = process.execute(command, process.local(db))
    if status:
        _refuse_no_commit(db, name)
    command = ["rev-parse", f"{name}^{{commit}}", f"{name}^{{tree}}"]
    commit, tree = process.run(command, process.local(db)).split()
    return commit, tree


def _refuse_no_commit(db: Path, name: str) -> None:
    """NotFoundError if `name` leads to another object than a commit; what is damaged is left to git to say."""
    status, found, _ = process.execute(["rev-parse", "--verify", "--quiet", f"{name}^{{}}"], process.local(db))
    kind = "" if status else process.run(["cat-file", "-t", found.strip()], process.local(db)).strip()
    if kind not in ("tree", "blob"):
        return
    what, _, quoted = name.removeprefix(f"{OBJECTS}/").partition("/")
    process.execute(["update-ref", "-d", name], process.local(db))
    raise NotFoundError(
        f"{what} {unquote(quoted)!r} names a {'file' if kind == 'blob' else 'tree'}, not a commit of a repository",
        hint="name a branch, a tag of a commit, or a commit",
    )


def tag_object(db: Path, name: str, commit: str) -> bytes | None:
    """Return the annotated tag that `name` (a full refname) is in `db`, empty for a plain one.

    None where the database has no such name, or one that leads to another commit.
    """
    command = ["rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    status, out, _ = process.execute(command, process.local(db))
    if status or out.strip() != commit:
        return None
    status, out, _ = process.execute(["cat-file", "tag", name], process.local(db))
    return b"" if status else os.fsencode(out)


def changed_files(db: Path, old: str, new: str) -> list[tuple[str, str]] | None:
    """(A, M, D or T; path) of what differs between two commits; None where `db` lacks one."""
    if not (_COMMIT.match(old) and _COMMIT.match(new)):
        return None
    command = ["diff-tree", "-r", "-z", "--no-renames", "--no-ext-diff", "--name-status", old, new]
    status, out, _ = process.execute(command, process.local(db))
    parts = out.split("\0")
    return None if status else list(zip(parts[::2], parts[1::2]))


def difference(db: Path, old: str, new: str, name: str | None = None) -> str | None:
    """Return what differs between two commits, as text, perhaps in one file only; None where `db` lacks one."""
    if not (_COMMIT.match(old) and _COMMIT.match(new)):
        return None
    command = ["diff-tree", "-r", "-p", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", old, new]
    status, out, _ = process.execute([*command, "--", name] if name else command, process.local(db))
    return None if status else out


def allowed_signers() -> str | None:
    """Return the user's own gpg.ssh.allowedSignersFile."""
    return user_setting("gpg.ssh.allowedSignersFile", "--type=path")


def user_setting(name: str, *options: str) -> str | None:
    """Return what the user's own git configuration says."""
    command = ["config", "--includes", *options, "--get", name]
    own = {key: value for key, value in process.NEUTRAL.items() if key != "GIT_CONFIG_PARAMETERS"}
    status, out, _ = process.execute(command, {**own, "GIT_DIR": os.devnull})
    return None if status else out.rstrip("\n")


def init(folder: Path) -> None:
    """Make `folder` a work tree of a new repository with the branch main."""
    place = {"GIT_DIR": str(folder / ".git"), "GIT_WORK_TREE": str(folder)}
    process.run(["init", "--quiet", "--initial-branch=main"], {**process.environment_of(process.CONFIG), **place})


def entries(db: Path, commit: str) -> Iterator[Entry]:
    """All files, links and submodules of a commit's tree."""
    listing = process.run(["ls-tree", "-r", "-l", "-z", "--full-tree", commit], process.local(db))
    for line in listing.split("\0"):
        if line:
            mode, _, name, rest = line.split(None, 3)
            size, _, path = rest.partition("\t")
            yield Entry(mode, 0 if size == "-" else -1 if size == "BAD" else int(size), path, name)


def blobs(db: Path, commit: str) -> dict[str, str]:
    """`mode id` of every file and link of a commit's tree, by its path."""
    lines = process.run(["ls-tree", "-r", "-z", "--full-tree", commit], process.local(db)).split("\0")
    parts = (line.partition("\t") for line in lines if line)
    return {path: f"{head.split()[0]} {head.split()[2]}" for head, _, path in parts}


def contents(db: Path, ids: Sequence[str], folder: Path) -> Iterator[bytes]:
    """Yield the contents of files that are there, by the ids of `blobs`; `folder` takes a temporary file."""
    wanted_ids = folder / "asked"
    wanted_ids.write_text("\n".join([*ids, ""]))
    status, out, err = process.execute(["cat-file", "--batch"], process.local(db), wanted_ids)
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
        **process.local(db),
        "GIT_WORK_TREE": str(folder),
        "GIT_INDEX_FILE": str(index),
    }
    try:
        process.run(["read-tree", "-u", "--reset", commit], environment)
    finally:
        index.unlink(missing_ok=True)


def version() -> str:
    """git's own version."""
    return process.run(["version"], process.local(None)).removeprefix("git version ").strip()
