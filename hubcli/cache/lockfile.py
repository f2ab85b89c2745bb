"""`hub.lock`: which commit, tree and weights a project uses, in TOML.

    version = 1

    [[repo]]
    spec = "owner/repo:v1.0"                  what was written; the key
    url = "https://github.com/owner/repo.git"
    kind = "tag"                              branch, tag or commit
    ref = "v1.0"
    commit = "<40 hex>"                       64 in a repository with SHA-256 names
    tree = "<40 hex>"                         git's id of the tree
    dirhash = "h1:<base64 of a sha256>"       see `dirhash`
    allow = ["__main__.Config"]               classes that its checkpoints may name (--allow); may be absent

    [[weights]]
    url = "https://example.org/net-1a2b3c4d.pth"
    file = "net-1a2b3c4d.pth"
    size = 46827520
    sha256 = "<64 hex>"
    used_by = ["owner/repo:v1.0#net"]

An entry with nothing but `spec` (or `url`) is wanted, not pinned yet: `hub sync` completes it.
Everything else that differs from this form is refused, for others write this file too.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shlex
import stat
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from hubcli.base import output, paths
from hubcli.base.spec import RepoSpec
from hubcli.cache import trees, weight_files, weights
from hubcli.cache.checkouts import Checkout
from hubcli.cache.ref_table import Kind
from hubcli.errors import (
    IntegrityError,
    LockMismatchError,
    UsageError,
)

VERSION = 1
NAME = "hub.lock"

_HEAD = "# Written by `hub lock`. Commit it; `hub sync` fetches exactly this.\n"
_LARGEST = 16 << 20  # bytes; a lock file of 10,000 entries has a tenth
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_DIRHASH = re.compile(r"h1:[A-Za-z0-9+/]{43}=\Z")
_USER = re.compile(r".+#[^\W\d]\w*\Z")
_CLASS = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+\Z")
_SIGNED = re.compile(r"(?i)(^|[-_])(sig|signature|token|credential|expires|key|secret|auth|password)($|[-_])")


@dataclass(frozen=True)
class Repo:
    """The pin of one spec."""

    spec: str
    url: str
    kind: Kind
    ref: str
    commit: str
    tree: str
    dirhash: str
    allow: tuple[str, ...] = ()

    @classmethod
    def of(cls, checkout: Checkout, allow: Iterable[str] = ()) -> Repo:
        """Return the pin that a published tree deserves; `allow` are the classes that its checkpoints may name."""
        if checkout.commit is None or checkout.tree is None or checkout.ref is None:
            raise UsageError(f"{checkout.spec} is a folder: it has no commit to lock", spec=str(checkout.spec))
        found = trees.identity(checkout.path)
        if found != checkout.tree:
            raise IntegrityError(
                f"{checkout.path} was changed: its tree must be {checkout.tree}, is {found}",
                hint="mend it with hub cache verify --repair, then lock it",
                spec=str(checkout.spec),
            )
        return cls(
            str(checkout.spec),
            checkout.url,
            checkout.kind,
            checkout.ref,
            checkout.commit,
            checkout.tree,
            dirhash(checkout.path),
            tuple(sorted(set(allow))),
        )

    def verify(self, checkout: Checkout) -> None:
        """Raise LockMismatchError unless the tree on disk is the one that is pinned."""
        for what, wanted, found in (
            ("commit", self.commit, checkout.commit),
            ("tree", self.tree, checkout.tree),
            ("dirhash", self.dirhash, dirhash(checkout.path)),
        ):
            if wanted != found:
                raise LockMismatchError(
                    f"{self.spec} is not what the lock file says: {what} must be {wanted}, is {found}",
                    hint="the cache or the lock file was changed by hand: hub cache verify --repair "
                    f"mends the cache, hub lock {shlex.quote(self.spec)} pins anew",
                    spec=self.spec,
                )


@dataclass(frozen=True)
class Weights:
    """The pin of one weight file.  `size` in bytes, `used_by` as `spec#entrypoint`."""

    url: str
    file: str
    size: int
    sha256: str
    used_by: tuple[str, ...] = ()

    @classmethod
    def of(cls, weight: weights.Weight, used_by: Iterable[str] = ()) -> Weights:
        """Return the pin of a file in the cache that came from a URL."""
        assert weight.url is not None
        for key in (part.partition("=")[0] for part in urlsplit(weight.url).query.split("&")):
            if _SIGNED.search(key):
                raise UsageError(
                    f"{weight.file} came from a URL that carries {key}=...: it is a secret or expires, and has no "
                    "place in a lock file",
                    hint="have the entrypoint load the weights from a lasting URL",
                )
        return cls(weight.url, weight.file, weight.size, weight.sha256, tuple(sorted(used_by)))


@dataclass(frozen=True)
class Lock:
    """A lock file as it was read, or is to be written; entries sorted.

    `wanted` are specs and `wanted_weights` URLs that are not pinned yet.
    """

    path: Path
    repos: tuple[Repo, ...] = ()
    weights: tuple[Weights, ...] = ()
    wanted: tuple[str, ...] = ()
    wanted_weights: tuple[str, ...] = ()

    def repo(self, spec: RepoSpec) -> Repo:
        """Return the pin of `spec`; LockMismatchError if there is none, or one for another URL."""
        text = str(spec)
        for one in self.repos:
            if one.spec == text:
                if one.url != spec.url:
                    raise LockMismatchError(
                        f"{text} is {one.url} in {self.path}, and {spec.url} by the settings",
                        hint="use HUB_REWRITE for a mirror, or lock it anew",
                        spec=text,
                    )
                return one
        for one in self.repos:
            if spec.is_commit and (one.url, one.commit) == (spec.url, spec.ref):
                return replace(one, spec=text, kind="commit", ref=one.commit)
        raise LockMismatchError(f"{text} is not in {self.path}", hint=f"hub lock {shlex.quote(text)}", spec=text)

    def weight(self, url: str, shown: str) -> Weights:
        """Return the pin of the weights at `url`, which may be shown as `shown`."""
        for one in self.weights:
            if one.url == url:
                return one
        raise LockMismatchError(
            f"the weights {shown} are not in {self.path}",
            hint="hub lock SPEC --weights ENTRYPOINT runs the entrypoint and pins what it loads",
        )

    def document(self) -> dict[str, Any]:
        """Return the lock as the JSON documents show it."""
        return {
            "path": str(self.path),
            "repos": [
                {
                    "spec": one.spec,
                    "commit": one.commit,
                    "tree": one.tree,
                    "dirhash": one.dirhash,
                    "allow": list(one.allow),
                }
                for one in self.repos
            ],
            "weights": [{"url": one.url, "sha256": one.sha256, "size": one.size} for one in self.weights],
        }


def dirhash(folder: Path) -> str:
    """`h1:` and the base64 sha256 of the sorted lines `<sha256>  <path>` of all files in `folder`.

    That is Go's `dirhash.Hash1`.  For a symbolic link, which Go has not, the content is
    `link:<target>`.  A file that came from Git LFS counts as the pointer to its content, whether
    that was fetched or not.  A tree that hub has published holds nothing else.
    """
    lines = []
    pointers = trees.lfs_pointers(folder)
    for parent, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        for name in (*files, *links):
            path = os.path.join(parent, name)
            if os.path.islink(path):
                digest = hashlib.sha256(b"link:" + os.fsencode(os.readlink(path))).hexdigest()
            else:
                with open(path, "rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
            shown = os.path.relpath(path, folder).replace(os.sep, "/")
            pointer = pointers.get(shown, "").encode()
            if f"\noid sha256:{digest}\n".encode() in pointer:
                digest = hashlib.sha256(pointer).hexdigest()
            relative = os.fsencode(shown)
            # Go refuses such a name; doubled, it cannot pass for two lines
            lines.append((relative, digest.encode() + b"  " + relative.replace(b"\n", b"\n\n")))
    text = b"".join(line + b"\n" for _, line in sorted(lines))
    return "h1:" + base64.b64encode(hashlib.sha256(text).digest()).decode()


# Reading and writing


def read(path: Path) -> Lock | None:
    """Return the lock file at `path`, or None where there is none.

    LockMismatchError names the first thing that is wrong in it.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            raise LockMismatchError(f"{path} is not a plain file", hint="remove it and run hub lock SPEC...")
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except FileNotFoundError:
        return None
    return loads(path, content)


def loads(path: Path, content: bytes) -> Lock:
    """Return the lock file of that content, named `path`; as `read`."""
    import tomllib

    try:
        if len(content) > _LARGEST:
            raise ValueError(f"it has more than {output.size(_LARGEST)}")
        return _parse(path, tomllib.loads(content.decode()))
    except (ValueError, RecursionError) as error:  # TOML and UTF-8 errors are ValueErrors
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise LockMismatchError(
            f"{path} is no lock file that hub can use: {reason}",
            hint="restore it from version control, or remove it and run hub lock SPEC...",
        ) from None


def require(path: Path) -> Lock:
    """Return the lock file at `path`, with every entry pinned: what --locked demands."""
    lock = read(path)
    if lock is None:
        raise LockMismatchError(f"there is no {path}", hint="make it with hub lock SPEC...")
    for name in (*lock.wanted, *lock.wanted_weights):
        raise LockMismatchError(f"{path} would change: {name} is not pinned yet", hint="run hub sync without --locked")
    return lock


def write(lock: Lock) -> None:
    """Write the lock file, whole or not at all."""
    if not lock.path.parent.is_dir():
        raise UsageError(f"there is no folder {lock.path.parent} for {lock.path.name}")
    paths.write_atomically(lock.path, dump(lock).encode())


def dump(lock: Lock) -> str:
    """Return the text of the lock file."""
    import tomli_w

    repos: list[dict[str, Any]] = [_without_empty(asdict(one)) for one in lock.repos]
    repos += [{"spec": spec} for spec in lock.wanted]
    files = [{**asdict(one), "used_by": list(one.used_by)} for one in lock.weights]
    files += [{"url": url} for url in lock.wanted_weights]
    document: dict[str, Any] = {"version": VERSION}
    if repos:
        document["repo"] = repos
    if files:
        document["weights"] = files
    return f"{_HEAD}{tomli_w.dumps(document)}"


def _without_empty(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry as it is written: without `allow` where nothing is allowed."""
    allow = entry.pop("allow")
    return {**entry, "allow": list(allow)} if allow else entry


def _parse(path: Path, document: Mapping[str, Any]) -> Lock:
    version = document.get("version")
    if version != VERSION or isinstance(version, bool):
        raise ValueError(f"version {version!r} is not {VERSION}; a newer hub may know it")
    _only(document, {"version", "repo", "weights"}, "the file")
    repos: dict[str, Repo] = {}
    wanted: dict[str, None] = {}
    for number, entry in enumerate(_tables(document, "repo"), 1):
        where = f"repo {number}"
        spec = _text(entry, "spec", where)
        parsed = RepoSpec.parse(spec)
        if parsed.kind == "local" or str(parsed) != spec:
            raise ValueError(f"{where}: {spec!r} is not how hub writes a remote spec")
        if spec in repos or spec in wanted:
            raise ValueError(f"{where}: {spec} is there twice")
        if set(entry) == {"spec"}:
            wanted[spec] = None
        else:
            repos[spec] = _repo(entry, spec, where)
    files: dict[tuple[str, str], Weights] = {}
    wanted_weights: dict[str, None] = {}
    digests: dict[str, str] = {}
    for number, entry in enumerate(_tables(document, "weights"), 1):
        where = f"weights {number}"
        if set(entry) == {"url"}:
            wanted_weights[_url(entry, where)] = None
            continue
        pin = _weights(entry, where)
        if (pin.url, pin.file) in files or digests.setdefault(pin.url, pin.sha256) != pin.sha256:
            raise ValueError(f"{where}: {pin.url} is there twice")
        files[pin.url, pin.file] = pin
    return sorted_lock(path, repos.values(), files.values(), wanted, wanted_weights)


def _repo(entry: Mapping[str, Any], spec: str, where: str) -> Repo:
    _only(entry, {"spec", "url", "kind", "ref", "commit", "tree", "dirhash", "allow"}, where)
    kind = _text(entry, "kind", where)
    if kind not in ("branch", "tag", "commit"):
        raise ValueError(f"{where}: kind {kind!r} is not branch, tag or commit")
    allow = entry.get("allow", [])
    if not isinstance(allow, list) or not all(isinstance(name, str) and _CLASS.match(name) for name in allow):
        raise ValueError(f"{where}: allow is not a list of classes (package.module.Class)")
    return Repo(
        spec,
        _url(entry, where),
        cast(Kind, kind),
        _text(entry, "ref", where),
        _matching(entry, "commit", _COMMIT, where),
        _matching(entry, "tree", _COMMIT, where),
        _matching(entry, "dirhash", _DIRHASH, where),
        tuple(allow),
    )


def _weights(entry: Mapping[str, Any], where: str) -> Weights:
    _only(entry, {"url", "file", "size", "sha256", "used_by"}, where)
    url, file = _url(entry, where), _text(entry, "file", where)
    weight_files.check_name(file, url)
    size = entry.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise ValueError(f"{where}: size {size!r} is not a number of bytes")
    users = entry.get("used_by", [])
    if not isinstance(users, list) or not all(
        isinstance(user, str) and user.isprintable() and _USER.match(user) for user in users
    ):
        raise ValueError(f"{where}: used_by is not a list of spec#entrypoint")
    return Weights(url, file, size, _matching(entry, "sha256", _SHA256, where), tuple(users))


def _tables(document: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = document.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ValueError(f"{name} is not a list of tables ([[{name}]])")
    return found


def _only(entry: Mapping[str, Any], known: set[str], where: str) -> None:
    unknown = sorted(set(entry) - known)
    if unknown:
        raise ValueError(f"{where} has {unknown[0]!r}, which this hub does not know")


def _text(entry: Mapping[str, Any], key: str, where: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError(f"{where}: {key} is {'missing' if value is None else repr(value)[:100]}")
    return value


def _url(entry: Mapping[str, Any], where: str) -> str:
    url = _text(entry, "url", where)
    if not urlsplit(url).scheme or "://" not in url:
        raise ValueError(f"{where}: {url!r} is not a URL")
    return url


def _matching(entry: Mapping[str, Any], key: str, form: re.Pattern[str], where: str) -> str:
    value = _text(entry, key, where)
    if not form.match(value):
        raise ValueError(f"{where}: {key} {value[:100]!r} has not the form of one")
    return value


def sorted_lock(
    path: Path,
    repos: Iterable[Repo],
    files: Iterable[Weights],
    wanted: Iterable[str] = (),
    wanted_weights: Iterable[str] = (),
) -> Lock:
    """Return a lock with its entries in their order."""
    return Lock(
        path,
        tuple(sorted(repos, key=lambda one: one.spec)),
        tuple(sorted(files, key=lambda one: (one.url, one.file))),
        tuple(sorted(wanted)),
        tuple(sorted(wanted_weights)),
    )


def changes(old: Lock, new: Lock) -> tuple[str, ...]:
    """Return what differs, a line each."""
    lines = []
    before = {one.spec: one for one in old.repos}
    for one in new.repos:
        was = before.pop(one.spec, None)
        if was is None:
            lines.append(f"{one.spec}: added at {one.commit}")
        elif was.commit != one.commit:
            lines.append(f"{one.spec}: {was.commit} -> {one.commit}")
        elif was != one:
            lines.append(f"{one.spec}: other {_differing(was, one)}")
    lines += [f"{spec}: removed" for spec in before]
    files = {(pin.url, pin.file): pin for pin in old.weights}
    for pin in new.weights:
        known = files.pop((pin.url, pin.file), None)
        if known is None:
            lines.append(f"weights {pin.file}: added with sha256 {pin.sha256}")
        elif known.sha256 != pin.sha256:
            lines.append(f"weights {pin.file}: sha256 {known.sha256} -> {pin.sha256}")
        elif known != pin:
            lines.append(f"weights {pin.file}: other {_differing(known, pin)}")
    lines += [f"weights {file}: removed" for _, file in files]
    return tuple(lines)


def _differing(old: Repo | Weights, new: Repo | Weights) -> str:
    values = asdict(new)
    return ", ".join(key for key, value in asdict(old).items() if value != values[key])
