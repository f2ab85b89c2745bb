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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from hubcli import output, paths, settings
from hubcli.cache import store, trees, weights
from hubcli.cache.reftable import Kind
from hubcli.cache.store import Checkout
from hubcli.errors import (
    HubError,
    IntegrityError,
    LockMismatchError,
    NotFoundError,
    OfflineError,
    UsageError,
)
from hubcli.net import behalf
from hubcli.spec import RepoSpec

VERSION = 1
NAME = "hub.lock"

_HEAD = "# Written by `hub lock`. Commit it; `hub sync` fetches exactly this.\n"
_LARGEST = 16 << 20  # bytes; a lock file of 10,000 entries has a tenth
_PARALLEL = 4  # files fetched at once
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
        """The pin that a published tree deserves; `allow` are the classes that its checkpoints may name."""
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
        """The pin of a file in the cache that came from a URL."""
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
        """The pin of `spec`; LockMismatchError if there is none, or one for another URL."""
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
        """The pin of the weights at `url`, which may be shown as `shown`."""
        for one in self.weights:
            if one.url == url:
                return one
        raise LockMismatchError(
            f"the weights {shown} are not in {self.path}",
            hint="hub lock SPEC --weights ENTRYPOINT runs the entrypoint and pins what it loads",
        )

    def document(self) -> dict[str, Any]:
        """The lock as the JSON documents show it."""
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
    """The lock file at `path`, or None where there is none.

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
    """The lock file of that content, named `path`; as `read`."""
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
    """The lock file at `path`, with every entry pinned: what --locked demands."""
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
    """The text of the lock file."""
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
    """An entry as it is written: without `allow` where nothing is allowed."""
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
    return _sorted(path, repos.values(), files.values(), wanted, wanted_weights)


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
    weights.check_name(file, url)
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


def _sorted(
    path: Path,
    repos: Iterable[Repo],
    files: Iterable[Weights],
    wanted: Iterable[str] = (),
    wanted_weights: Iterable[str] = (),
) -> Lock:
    return Lock(
        path,
        tuple(sorted(repos, key=lambda one: one.spec)),
        tuple(sorted(files, key=lambda one: (one.url, one.file))),
        tuple(sorted(wanted)),
        tuple(sorted(wanted_weights)),
    )


# Locking


def lock_repos(
    lock: Lock,
    checkouts: Sequence[Checkout],
    called: Mapping[str, Sequence[weights.Weight]] | None = None,
    allow: Sequence[str] = (),
) -> Lock:
    """`lock` with these trees pinned, and with the weights that their specs are known to use.

    `called` maps `spec#entrypoint` to what a call has just read: exactly that is pinned for it.
    `allow` are classes that checkpoints of these trees may name; without any, those that are recorded stay.
    Other pins stay; weights that no spec of the lock uses any more go.
    """
    called = called or {}
    repos = {one.spec: one for one in lock.repos}
    for one in checkouts:
        before = repos.get(str(one.spec))
        repos[str(one.spec)] = Repo.of(one, allow or (before.allow if before else ()))
    users: dict[tuple[str, str], set[str]] = {}
    pins: dict[tuple[str, str], Weights] = {}
    for pin in lock.weights:
        pins[pin.url, pin.file] = pin
        users[pin.url, pin.file] = {user for user in pin.used_by if user not in called}
    unused = {key for key, pin in pins.items() if not pin.used_by}  # named by hand: they stay
    for checkout in checkouts:
        for weight in weights.used_by(str(checkout.spec)):
            by = {
                f"{spec}#{entrypoint}"
                for spec, entrypoint in weight.used_by
                if spec == str(checkout.spec) and entrypoint
            }
            _pin(pins, users, weight, by - called.keys())
    for user, read_by_it in called.items():
        for weight in read_by_it:
            _pin(pins, users, weight, {user})
    kept = []
    for key, pin in pins.items():
        alive = {user for user in users[key] if user.rpartition("#")[0] in repos}
        if alive or key in unused:
            kept.append(replace(pin, used_by=tuple(sorted(alive))))
    wanted = [spec for spec in lock.wanted if spec not in repos]
    return _sorted(lock.path, repos.values(), kept, wanted, lock.wanted_weights)


def _pin(
    pins: dict[tuple[str, str], Weights],
    users: dict[tuple[str, str], set[str]],
    weight: weights.Weight,
    by: set[str],
) -> None:
    if weight.url is None or not by:
        return
    for key in [key for key in pins if key[0] == weight.url]:  # one URL has one content
        pins[key] = replace(pins[key], size=weight.size, sha256=weight.sha256)
    key = (weight.url, weight.file)
    pins[key] = Weights.of(weight)
    users.setdefault(key, set()).update(by)


def changes(old: Lock, new: Lock) -> tuple[str, ...]:
    """What differs, a line each."""
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


# Fetching what is locked


def complete(lock: Lock) -> Lock:
    """Pin what is wanted: the specs at what they mean now, the weights as they are served now."""
    with behalf.naming(_own_hosts()):
        refresh = not settings.current().offline
        checkouts = [store.ensure(RepoSpec.parse(spec), refresh=refresh) for spec in lock.wanted]
    new = lock_repos(lock, checkouts)
    fetched = _parallel(lambda url: _obtain(lock, url, None, ()), [url for url in new.wanted_weights])
    known = {(pin.url, pin.file) for pin in new.weights}
    added = [Weights.of(one) for one in fetched if (one.url, one.file) not in known]
    return _sorted(new.path, new.repos, [*new.weights, *added])


def _own_hosts() -> frozenset[str]:
    """The hosts that the user's settings name: a lock file may be a stranger's, and names no host for a token."""
    now = settings.current()
    return behalf.hosts(now.git_url.format(host=now.host, owner="o", repo="r"))


def fetch(lock: Lock) -> tuple[weights.Weight, ...]:
    """Fetch exactly the trees and weights of `lock`, the latter in its order; LockMismatchError if they are others."""
    with settings.overriding(lock=lock), behalf.naming(_own_hosts()):
        for one in lock.repos:
            spec = RepoSpec.parse(one.spec)
            store.ensure(spec)
            store.remember(spec, one.kind, one.ref, one.commit)
        return tuple(_parallel(lambda pin: _obtain(lock, pin.url, pin.file, pin.used_by), lock.weights))


def _obtain(lock: Lock, url: str, file: str | None, users: Sequence[str]) -> weights.Weight:
    """Fetch one file on behalf of its first user."""
    spec, _, entrypoint = users[0].rpartition("#") if users else ("", "", "")
    token = weights.caller.set(weights.Caller(spec, entrypoint, _own_hosts(), "engine"))
    try:
        return weights.obtain(url, file_name=file)[0]
    finally:
        weights.caller.reset(token)


Item = TypeVar("Item")


def _parallel(work: Any, items: Sequence[Item]) -> list[Any]:
    if len(items) < 2:
        return [work(item) for item in items]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_PARALLEL) as pool:
        return list(pool.map(work, items))


# What has moved


@dataclass(frozen=True)
class Outdated:
    """A locked spec whose ref is elsewhere now (`current` None: the remote has none such), or that has a newer tag."""

    spec: str
    kind: Kind
    locked: str
    current: str | None
    newer: str | None

    @property
    def moved(self) -> bool:
        """Whether the ref is at another commit."""
        return self.current not in (None, self.locked)


def outdated(lock: Lock, specs: Sequence[RepoSpec] = ()) -> tuple[Outdated, ...]:
    """The locked specs (all, or these) whose refs are elsewhere now or that have newer tags; asks the remotes only."""
    from hubcli.net import git

    if settings.current().offline:
        raise OfflineError("what has moved cannot be known offline", hint="run without --offline")
    chosen = [lock.repo(spec) for spec in specs] or lock.repos

    def ask(pin: Repo) -> Outdated | None:
        spec = RepoSpec.parse(pin.spec)
        lock.repo(spec)  # its URL is still the locked one
        if spec.is_commit:
            return None
        remote = git.Remote.of(spec.url)
        newer: str | None = None
        try:
            newer = remote.newest_tag(pin.ref) if pin.kind == "tag" else None
            current: str | None = remote.resolve(spec.ref).commit
        except NotFoundError as error:
            output.warning(f"{pin.spec}: {error.message}")
            current = None
        except HubError as error:
            error.spec = pin.spec
            raise
        if current == pin.commit and newer is None:
            return None
        return Outdated(pin.spec, pin.kind, pin.commit, current, newer)

    return tuple(one for one in _parallel(ask, chosen) if one is not None)
