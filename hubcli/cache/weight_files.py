"""Weight files on disk: their names and digests, the blobs, and the links that torch.hub's users look for."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path
from urllib.parse import urlsplit

from hubcli.base import paths
from hubcli.cache import records, torch_hub_cache
from hubcli.errors import IntegrityError, UsageError
from hubcli.net.http import fetch as http

_PREFIX = re.compile(r"-([0-9a-fA-F]{1,64})\.[A-Za-z0-9_.]{1,24}\Z")
_DATE = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])\Z")


def name_of(url: str, given: str | None) -> str:
    """Return the file name of a URL, or the name that is given for it; UsageError where it is none."""
    name = urlsplit(url).path.rpartition("/")[2] if given is None else given
    check_name(name, url)
    return name


def check_name(name: str, url: str) -> None:
    """Raise UsageError unless `name` is a plain file name, and no path."""
    bad = name in ("", ".", "..") or "/" in name or "\\" in name or not name.isprintable()
    if bad or len(name.encode()) > 200:
        raise UsageError(
            f"{name!r} is no name for a weight file (from {http.public(url)})",
            hint="pass file_name=... with a plain file name",
        )


def expected_prefix(url: str, name: str, check_hash: bool) -> str | None:
    """Return the digest's beginning, from the file's name or else the URL's.

    A version and a date are hex digits, too: what is no date and has 8 digits or more counts as a hash, and all where
    `check_hash` asks for it, as in torch.
    """
    for candidate in (name, urlsplit(url).path.rpartition("/")[2]):
        match = _PREFIX.search(candidate)
        if match and (check_hash or (len(match.group(1)) >= 8 and not _DATE.match(match.group(1)))):
            return match.group(1).lower()
    return None


def require_prefix(digest: str, prefix: str | None, what: str) -> None:
    """Raise IntegrityError with torch.hub's sentence unless `digest` begins with `prefix`."""
    if prefix is not None and not digest.startswith(prefix.lower()):
        raise IntegrityError(
            f'invalid hash value (expected "{prefix}", got "{digest}")',
            hint=f"{what} is not the file that its name promises; nothing of it was stored",
        )


def digest_of(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_file_url(url: str) -> bool:
    """Return whether a URL names a file of this machine."""
    return url[:5].lower() == "file:"


def source_of(url: str) -> tuple[int, int, int] | None:
    """Return the state of the file that a file: URL names; None for other URLs and where there is no file."""
    if not is_file_url(url):
        return None
    try:
        return records.state_of(http.file_path(url).stat())
    except (OSError, ValueError):
        return None


def in_cache(target: Path) -> bool:
    """Return whether a weight file is in the cache's own folder, and so a link to a blob."""
    return target.parent == paths.checkpoints()


def ensure_folder(folder: Path) -> None:
    """Make the folder of a weight file."""
    if folder == paths.checkpoints():
        torch_hub_cache.say_at_first_use()
        paths.ensure_root()
    folder.mkdir(parents=True, exist_ok=True)


def place_blob(temporary: Path, digest: str) -> None:
    """Move a file to the blob of its digest."""
    blob = paths.blob(digest)
    blob.parent.mkdir(parents=True, exist_ok=True)
    paths.place(temporary, blob)
    paths.sync(blob.parent)


def link(link: Path, blob: Path) -> None:
    """Make a relative link, or where the file system has none a hard link or a copy."""
    temporary = paths.temporary_for(link)
    try:
        try:
            temporary.symlink_to(os.path.relpath(blob, link.parent))  # as seen from the link
        except OSError:
            try:
                os.link(blob, temporary)
            except OSError:
                shutil.copyfile(blob, temporary)
        paths.place(temporary, link)
    finally:
        temporary.unlink(missing_ok=True)


def is_link_to(link: Path, blob: Path) -> bool:
    """Return whether `link` is a symbolic link to `blob`."""
    return link.is_symlink() and Path(os.path.realpath(link)) == Path(os.path.realpath(blob))


def put(file: Path, *, dry_run: bool = False) -> tuple[str, bool]:
    """Put a file of torch.hub's where the first use of its URL finds it; return its sha256, and whether it is new here.

    IntegrityError if its name has another digest.  What is there already stays.
    """
    check_name(file.name, file.as_uri())
    digest = digest_of(file)
    require_prefix(digest, expected_prefix(file.as_uri(), file.name, False), str(file))
    target = paths.checkpoints() / file.name
    if os.path.lexists(target) or dry_run:
        return digest, not os.path.lexists(target)
    ensure_folder(target.parent)
    temporary = paths.temporary_for(target)
    try:
        try:
            os.link(file.resolve(), temporary)
        except OSError:
            shutil.copyfile(file, temporary)
            require_prefix(digest_of(temporary), digest, str(file))
        paths.place(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return digest, True
