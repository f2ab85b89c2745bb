"""Weight files: fetched once, stored by digest, checked, and read without pickle.

`checkpoints/<file>` is what torch.hub shows; the content is in `blobs/sha256/ab/<hex>`, once.
Beside them `blobs/files/*.json` records per file and URL: digest, size, the file's state when it
was last hashed, and which (spec, entrypoint) used it.  A cache hit needs no network and no write
access; a file whose state has changed is hashed again before it is used.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import time
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hubcli.base import output, paths, settings
from hubcli.base.request import Request
from hubcli.cache import first_seen, locks, records, torch_hub_cache, weight_files
from hubcli.cache.records import Record
from hubcli.cache.records import Weight as Weight  # as the rest of hub knows it
from hubcli.errors import (
    HubError,
    IntegrityError,
    LockMismatchError,
    NetworkError,
    NotFoundError,
    OfflineError,
)
from hubcli.net.http import fetch as http
from hubcli.net.http import secret_scope
from hubcli.net.storage import huggingface

if TYPE_CHECKING:
    from hubcli.cache import lockfile

_TOUCH_AFTER = 3600.0
STARTED = time.time()


@dataclass(frozen=True)
class Caller:
    """The entrypoint that weights are fetched for: set by `invoke` while an entrypoint runs.

    `hosts` may be sent the token.  `fresh` (--force-reload): a file that was fetched before `since` (seconds since the
    epoch; by default the start of this process, so that a command reloads a file once) is fetched anew, or its use
    fails.  `gated`: a `torch.hub.load` inside the entrypoint asks for consent as the command line does.
    """

    spec: str
    entrypoint: str
    hosts: frozenset[str]
    framework: str
    fresh: bool = False
    gated: bool = False
    since: float = STARTED
    used: list[Weight] = field(default_factory=list)


# What this process has fetched: (file, URL) -> what had been seen at the URL before.
_fetched: dict[tuple[Path, str], first_seen.Seen | None] = {}

caller: ContextVar[Caller | None] = ContextVar("hubcli_weights_caller", default=None)


def obtain(
    url: str,
    model_dir: str | os.PathLike[str] | None = None,
    *,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    checkpoint: bool = False,
    request: Request | None = None,
) -> tuple[Weight, Path]:
    """Return the weight file of `url` and the path to read it at, fetched if it is not in the cache.

    `checkpoint`: it will be read as one, which the parent of a sandboxed process tries before it hands the file over.

    A hash of at least 8 hex digits before the extension is checked, with `check_hash` one of any length; IntegrityError
    where it does not fit.  Where `check_hash` asks for one that the name lacks, the digest that comes is recorded and
    held against it from then on.
    """
    request = Request.current() if request is None else request
    url = huggingface.resolved(url)
    http.refuse_credentials(url)
    with http.disk_full_said(paths.hub_dir()):
        for last in (False, False, True):
            try:
                return _obtain(url, model_dir, progress, check_hash, file_name, request)
            except FileNotFoundError:  # removed while it was looked at or put in place
                if last:
                    raise
    raise AssertionError("unreachable")


def _obtain(
    url: str,
    model_dir: str | os.PathLike[str] | None,
    progress: bool,
    check_hash: bool,
    file_name: str | None,
    request: Request,
) -> tuple[Weight, Path]:
    name = weight_files.name_of(url, file_name)
    prefix = weight_files.expected_prefix(url, name, check_hash)
    folder = paths.checkpoints() if model_dir is None else paths.absolute(model_dir)
    target = folder / name
    if request.lock is not None:
        return _locked(request.lock.weight(url, http.public(url)), target, prefix, progress, request)
    record = records.read(target, url)
    if record is None and not records.known(target):
        record = _take_over(target, url, prefix)
    if record is None or not record.content().is_file():
        if check_hash and prefix is None:
            output.message(f"{name!r} names no hash to check: its sha256 is recorded, and checked from now on")
        record = _fetch(target, url, prefix, progress, request)
    elif _is_due(record):
        record = _renew(record, target, url, prefix, progress, request)
    else:
        record = _verified(record, prefix)
    return _note_use(record).weight(), record.content()


def _locked(
    pin: lockfile.Weights, target: Path, prefix: str | None, progress: bool, request: Request
) -> tuple[Weight, Path]:
    """Exactly the content that a lock file names, hashed again even if nothing has touched it."""
    weight_files.require_prefix(pin.sha256, prefix, f"the lock file's pin of {target.name}")
    record = records.read(target, pin.url)
    try:
        if record is None and not records.known(target):
            record = _take_over(target, pin.url, pin.sha256)
        if record is None or record.sha256 != pin.sha256 or not record.content().is_file() or _is_reloaded(record):
            record = _fetch(target, pin.url, pin.sha256, progress, request)
        else:
            record = _verified(record, pin.sha256, rehash=True)
        weight_files.require_prefix(record.sha256, pin.sha256, target.name)
    except IntegrityError as error:
        raise LockMismatchError(
            f"{target.name} is not what the lock file says: {error.message}",
            hint=f"the file at {http.public(pin.url)}, the cache or the lock file was changed; hub lock pins anew",
        ) from None
    if record.size != pin.size:
        raise LockMismatchError(
            f"{target.name} has {record.size} bytes, the lock file says {pin.size}",
            hint="the lock file was changed by hand; hub lock pins anew",
        )
    return _note_use(record).weight(), record.content()


def _is_due(record: Record) -> bool:
    """Return whether a file in the cache must be fetched anew: it is marked stale, this call reloads, or the file that
    its file: URL names has changed."""
    return record.stale or _is_reloaded(record) or _has_changed_source(record)


def _is_reloaded(record: Record) -> bool:
    """Return whether this call reloads (--force-reload) and has not fetched the file yet."""
    now = caller.get()
    return now is not None and now.fresh and record.first_seen < now.since


def _has_changed_source(record: Record) -> bool:
    """Return whether the file that a file: URL names has another size, mtime or inode than when it was read."""
    if record.url is None or not weight_files.is_file_url(record.url):
        return False
    source = weight_files.source_of(record.url)
    if source is None:
        output.warning(f"{http.public(record.url)} is not there any more; using the copy in the cache")
    return source is not None and source != record.source


# Queries of the cache, `hub show` and `hub cache`


def mark_stale(spec: str) -> int:
    """Have every file that `spec` is known to use fetched anew at its next use; their number."""
    count = 0
    for file, record in records.every():
        if not record.stale and any(user == spec for user, _ in record.used_by):
            records.write(file, replace(record, stale=True))
            count += 1
    return count


def used_by(spec: str) -> tuple[Weight, ...]:
    """Return the weight files that the entrypoints of `spec` have used."""
    return tuple(one for one in list_blobs() if any(user == spec for user, _ in one.used_by))


def list_blobs() -> tuple[Weight, ...]:
    """Every weight file in the cache, by name."""
    found = [record.weight() for _, record in records.every() if record.content().is_file()]
    return tuple(sorted(found, key=lambda one: (one.file, one.url or "")))


def remove(file: str, *, dry_run: bool = False) -> int:
    """Take the weight file of that name out of the cache; the bytes freed.

    Content that another file shares stays, and so does a file that somebody else has put in place.
    """
    everything = list(records.every())
    leaving = [(path, record) for path, record in everything if record.file == file]
    if not leaving:
        raise NotFoundError(f"no weight file {file!r} in the cache", hint="`hub cache ls` lists what is there")
    shared = {record.content() for _, record in everything if record.file != file}
    contents = {record.content(): record for _, record in leaving}
    freed = sum(record.size for content, record in contents.items() if content not in shared and content.is_file())
    if dry_run:
        return freed
    for path, _ in leaving:
        path.unlink(missing_ok=True)
    for content, record in contents.items():
        link = paths.hub_dir() / record.path
        if record.blob and weight_files.is_link_to(link, content):
            link.unlink(missing_ok=True)
        if content not in shared:
            content.unlink(missing_ok=True)
    for path, record in records.every():  # written while this one removed what they name
        if record.content() in contents and not record.content().is_file():
            path.unlink(missing_ok=True)
    return freed


def cached_file(url: str, name: str) -> Path | None:
    """Return the content of a file that `keep` took in under this URL and name, checked again if something touched
    it."""
    weight_files.check_name(name, url)
    record = records.read(paths.checkpoints() / name, url)
    if record is None or not record.content().is_file() or record.stale or _is_reloaded(record):
        return None
    return _note_use(_verified(record, None)).content()


def keep(url: str, name: str, file: Path) -> Weight:
    """Take in a file that repository code has fetched from `url` by means of its own."""
    weight_files.check_name(name, url)
    target = paths.checkpoints() / name
    weight_files.ensure_folder(target.parent)
    with locks.exclusive(f"weights-{records.key(target, url)}", name):
        temporary = paths.temporary_for(target)
        try:
            shutil.copyfile(file, temporary)
            digest = weight_files.digest_of(temporary)
            _refuse_changed(url, digest, Request.current())
            weight_files.place_blob(temporary, digest)
        finally:
            temporary.unlink(missing_ok=True)
        weight_files.link(target, paths.blob(digest))
        return _note_use(records.renew(target, url, digest, True)).weight()


def _verified(record: Record, prefix: str | None, rehash: bool = False) -> Record:
    """Return the record, after hashing the file again if its size, mtime or inode has changed."""
    content = record.content()
    status = content.stat()
    if records.state_of(status) == (record.size, record.mtime_ns, record.inode) and not rehash:
        weight_files.require_prefix(record.sha256, prefix, record.file)
        return record
    digest = weight_files.digest_of(content)
    if digest != record.sha256:
        raise IntegrityError(
            f'{content} has changed since it was fetched: expected sha256 "{record.sha256}", got "{digest}"',
            hint=f"remove the file, or run `hub cache rm {record.file}`; it is fetched at next use",
        )
    weight_files.require_prefix(digest, prefix, record.file)
    changed = replace(record, size=status.st_size, mtime_ns=status.st_mtime_ns, inode=status.st_ino)
    with contextlib.suppress(OSError):
        records.write(records.file_of(paths.hub_dir() / record.path, record.url), changed)
    return changed


# Fetching


def _fetch(target: Path, url: str, prefix: str | None, progress: bool, request: Request) -> Record:
    weight_files.ensure_folder(target.parent)
    known = records.read(target, url)
    with locks.exclusive(f"weights-{records.key(target, url)}", target.name):
        record = records.read(target, url)
        if record is not None and record != known and record.content().is_file():
            return record  # another process has fetched it while this one waited
        adopted = _adopt(target, url, prefix)
        if adopted is not None:
            return adopted
        output.message(f'Downloading: "{http.public(url)}" to {target}')
        inside = weight_files.in_cache(target)
        source = weight_files.source_of(url)  # before it is read: what is written meanwhile is seen at the next use
        fetched = http.fetch(
            url,
            target,
            token=_may_have_token(url),
            refuse_html=True,
            progress=progress,
            expected=prefix if known else _awaited(url, prefix, request),
            resumable=inside,
            request=request,
        )
        try:
            weight_files.require_prefix(fetched.sha256, prefix, http.public(url))
            before = first_seen.find("weights", url)
            _refuse_changed(url, fetched.sha256, request)
            _fetched[target, url] = before
            if inside:
                weight_files.place_blob(fetched.path, fetched.sha256)
                weight_files.link(target, paths.blob(fetched.sha256))
            else:
                os.replace(fetched.path, target)
        finally:
            fetched.release()
        return records.renew(target, url, fetched.sha256, inside, source)


def refused(weight: Weight, error: IntegrityError) -> None:
    """Forget a file that is no checkpoint, so that the next use fetches it again; `error` gets the hint what to do.

    A server may have answered with an error document, once.  What is a checkpoint, but holds what is not read,
    stays.
    """
    if weight.url is None or "nsupported" in error.message or "not supported" in error.message:
        return
    key = (weight.path, weight.url)
    file = records.file_of(weight.path, weight.url)
    record = records.parse(file)
    if key not in _fetched or record is None:
        error.hint = (
            f"if it was not always so, `hub cache rm {shlex.quote(weight.file)}` has it fetched again; "
            "--accept-changed (hub pull SPEC --weights ENTRYPOINT) takes what the server has now"
        )
        return
    before = _fetched.pop(key)
    with contextlib.suppress(OSError):
        file.unlink(missing_ok=True)
        content = record.content()
        if record.blob and weight_files.is_link_to(weight.path, content):
            weight.path.unlink(missing_ok=True)
        if all(other.content() != content for _, other in records.every()):
            content.unlink(missing_ok=True)
        if before is None:
            first_seen.file("weights", weight.url).unlink(missing_ok=True)
        else:
            first_seen.note("weights", weight.url, None, before.value, http.public(weight.url))
    error.hint = "nothing of it was stored: the server may have sent something else, this once; try again"


def _awaited(url: str, prefix: str | None, request: Request) -> str | None:
    """Return the whole digest that was seen first at the URL, for the mirror to be asked; else what the name says."""
    if settings.current().mirror is None:
        return prefix
    seen = first_seen.find("weights", url)
    fits = seen is not None and seen.value.startswith(prefix or "") and not request.accept_changed
    return seen.value if seen is not None and fits else prefix


def is_new(weight: Weight) -> bool:
    """Return whether this process has fetched the file."""
    return weight.url is not None and (weight.path, weight.url) in _fetched


def _refuse_changed(url: str, digest: str, request: Request) -> None:
    """Raise IntegrityError if `url` serves other content than was seen first; else record it.

    A file: URL names a file of the user's own, which training writes again: nothing is promised of it.
    """
    if weight_files.is_file_url(url):
        return
    seen = first_seen.find("weights", url)
    if seen is not None and seen.value != digest:
        was = f"{http.public(url)} had sha256 {seen.value} (seen {seen.when})"
        pinned = request.lock is not None  # to what the lock file names, else it would not be here
        if not (request.accept_changed or pinned):
            user = caller.get()
            if user is not None and user.spec and user.entrypoint:
                spec, entrypoint = shlex.quote(user.spec), user.entrypoint
                same = "with the arguments of this call, "
                accept = f"{same}hub pull {spec} --weights {entrypoint} --accept-changed"
            else:
                accept = f"remove {first_seen.file('weights', url)}"
            raise IntegrityError(
                f"{was}; it has changed to {digest}",
                hint=f"what a URL names should stay: ask the publisher why it changed; to accept it: {accept}",
            )
        output.message(f"{was}; accepted: it has {digest} now")
    first_seen.note("weights", url, None, digest, http.public(url))


def _renew(record: Record, target: Path, url: str, prefix: str | None, progress: bool, request: Request) -> Record:
    """Fetch a stale file anew; without network the old one stays in use, unless it must be new."""
    now = caller.get()
    try:
        return _fetch(target, url, prefix, progress, request)
    except (NetworkError, OfflineError) as error:
        if now is not None and now.fresh:
            raise
        output.warning(f"{record.file} could not be fetched anew ({error.message}); using the old")
        return _verified(record, prefix)
    except IntegrityError:  # what is served now is refused, once: the old stays in use
        with contextlib.suppress(OSError):
            records.write(records.file_of(target, url), replace(record, stale=False))
        raise


def _may_have_token(url: str) -> bool:
    """Repository code may not choose who gets the token; a user's own call may."""
    now = caller.get()
    if now is None:
        return True
    return secret_scope.host(settings.rewrite_url(url)) in now.hosts


def _take_over(target: Path, url: str, prefix: str | None) -> Record | None:
    """Return the record of a file that is there already, put by the user or by torch: it is used as torch uses it."""
    if not target.is_file():
        return None
    digest = weight_files.digest_of(target)
    weight_files.require_prefix(digest, prefix, str(target))
    record = records.make(target, url, digest, blob=False)
    with contextlib.suppress(OSError, HubError):
        records.write(records.file_of(target, url), record)
    return record


def _adopt(target: Path, url: str, prefix: str | None) -> Record | None:
    """Take the file from torch's own cache folders, if its name has a hash and the hash fits."""
    if prefix is None or not weight_files.in_cache(target) or records.read(target, url) is not None:
        return None
    for folder in torch_hub_cache.checkpoints():
        candidate = folder / target.name
        if not candidate.is_file() or candidate.resolve() == target.resolve():
            continue
        digest = weight_files.digest_of(candidate)
        if not digest.startswith(prefix):
            continue
        temporary = paths.partial() / f"{target.name}.{paths.unique()}"
        temporary.parent.mkdir(parents=True, exist_ok=True)
        try:
            try:
                os.link(candidate.resolve(), temporary)
            except OSError:
                shutil.copyfile(candidate, temporary)
                if weight_files.digest_of(temporary) != digest:
                    continue
            weight_files.place_blob(temporary, digest)
        finally:
            temporary.unlink(missing_ok=True)
        weight_files.link(target, paths.blob(digest))
        output.message(f"{target.name}: taken from {folder}")
        return records.renew(target, url, digest, True)
    return None


def refetch(record: Record) -> None:
    """Fetch the very content of a record again; what is there is replaced when it has come."""
    assert record.url is not None
    target = paths.hub_dir() / record.path
    with locks.exclusive(f"weights-{records.key(target, record.url)}", target.name):
        fetched = http.fetch(record.url, target, refuse_html=True, expected=record.sha256, resumable=record.blob)
        try:
            weight_files.require_prefix(fetched.sha256, record.sha256, http.public(record.url))
            if record.blob:
                weight_files.place_blob(fetched.path, fetched.sha256)
                weight_files.link(target, paths.blob(fetched.sha256))
            else:
                os.replace(fetched.path, target)
        finally:
            fetched.release()
        records.renew(target, record.url, record.sha256, record.blob)


def _note_use(record: Record) -> Record:
    """Record who used the file; a cache that cannot be written is none the worse for it."""
    now = caller.get()
    users = record.used_by
    if now is not None and now.spec:
        users = tuple(dict.fromkeys((*users, (now.spec, now.entrypoint))))
    if users != record.used_by or time.time() - record.last_used > _TOUCH_AFTER:
        record = replace(record, used_by=users, last_used=time.time())
        with contextlib.suppress(OSError):
            records.write(records.file_of(paths.hub_dir() / record.path, record.url), record)
    if now is not None:
        weight = record.weight()
        if all((one.path, one.url) != (weight.path, weight.url) for one in now.used):
            now.used.append(weight)
    return record
