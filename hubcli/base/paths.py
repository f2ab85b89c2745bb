"""The paths on disk: the cache folder and the names below it.

`root` arguments default to `hub_dir()`; nothing here creates a folder but `ensure_root`.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import stat
import zlib
from pathlib import Path
from urllib.parse import quote

from hubcli.base import settings
from hubcli.errors import HubError, UsageError

CACHE_VERSION = 1
_UNIQUE = r"(?<![0-9a-f])([0-9a-f]{8})-([0-9a-f]+)-[0-9a-f]{12}(?![0-9a-f])"
_CACHEDIR_TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This file marks a cache folder of hub (https://bford.info/cachedir/).\n"
)


def hub_dir() -> Path:
    """Return the cache folder: `set_dir` or --hub-dir, else TORCH_HUB_DIR, else ~/.torch/hub."""
    chosen = settings.current().hub_dir
    return absolute(Path("~/.torch/hub") if chosen is None else chosen)


def set_dir(d: str | os.PathLike[str]) -> None:
    """Use folder `d` as the cache from now on in this process; `~` is expanded.  UsageError for an empty name."""
    if not os.fspath(d):  # which Path takes for the working folder
        raise UsageError("the cache folder has an empty name", hint="give --hub-dir a folder, or leave it out")
    settings.use_hub_dir(settings.expanded(d))


def config_file() -> Path:
    """Return where config.toml is looked for."""
    return settings.config_file()


def absolute(path: str | os.PathLike[str]) -> Path:
    """`path` with `~` expanded and made absolute, symlinks left as they are."""
    return Path(os.path.abspath(settings.expanded(path)))


def ensure_root(root: Path | None = None) -> Path:
    """Create the cache folder with CACHEDIR.TAG and VERSION; refuse a cache of a newer hub."""
    root = root or hub_dir()
    version = root / "VERSION"
    try:
        found = version.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        root.mkdir(parents=True, exist_ok=True)
        write_atomically(root / "CACHEDIR.TAG", _CACHEDIR_TAG.encode())
        write_atomically(version, f"{CACHE_VERSION}\n".encode())
        return root
    if not found.isdigit() or int(found) > CACHE_VERSION:
        raise HubError(
            f"{root} has cache version {found[:20]!r}; this hub knows up to {CACHE_VERSION}",
            hint="upgrade hub, or choose another folder with --hub-dir",
        )
    return root


@functools.cache
def check_owner(root: Path) -> None:
    """Warn once where others could write to the cache, or put another in its place; root refuses to use such a one.

    Code is run from it: whoever writes there could choose which.
    """
    real = Path(os.path.realpath(root))  # a link may lead through folders that no name shows
    for folder in dict.fromkeys((root, real, *root.parents, *real.parents)):
        what = belongs_to_others(folder, above=folder not in (root, real))
        if what is None:
            continue
        hint = f"chown and chmod it, or choose another cache with --hub-dir (this one is {root})"
        if os.geteuid() == 0:
            raise HubError(f"{what}, so that code from there is not safe to run as root", hint=hint)
        from hubcli.base import output

        output.warning(f"{what}, so that others may choose what runs: {hint}")
        return


def belongs_to_others(path: Path, *, above: bool = False) -> str | None:
    """Return why others than this user and root decide what is at `path`, in a few words, or None.

    `above`: it is a folder in whose depth something is, where the sticky bit keeps what is not theirs.
    """
    if not hasattr(os, "geteuid"):
        return None
    own = os.geteuid()
    try:
        status = os.stat(path)
    except OSError:
        return None
    if status.st_uid not in (0, own):
        return f"{path} belongs to another user (number {status.st_uid})"
    others = status.st_mode & 0o002 or (status.st_mode & 0o020 and status.st_gid not in (0, own))
    if others and not (above and status.st_mode & stat.S_ISVTX):
        return f"others may write to {path}"
    return None


def is_special(path: Path) -> bool:
    """Return whether `path` is a device, a pipe or a socket, also by way of links (/dev/stdout)."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def copy(source: Path, path: Path) -> None:
    """Copy `source` to `path`, which a user or a repository's code named, whole or not at all.

    A device or a pipe is written to and stays what it is; behind a link the file is replaced, not the link.
    """
    import shutil

    if is_special(path):
        with open(source, "rb") as file, open(path, "wb") as target:
            shutil.copyfileobj(file, target)
        return
    path = path.resolve() if path.is_symlink() else path
    temporary = temporary_for(path)
    try:
        shutil.copyfile(source, temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace `path` by `content`: unique temporary, fsync, rename.

    A device or a pipe is written to and stays what it is; outside the cache a link stays a link.
    """
    if is_special(path):
        with open(path, "wb") as file:
            file.write(content)
        return
    if path.is_symlink() and not path.is_relative_to(hub_dir()):
        path = path.resolve()
    temporary = temporary_for(path)
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        place(temporary, path)
    except BaseException as error:
        if isinstance(error, OSError) and error.errno is not None:  # what is meant, not the temporary file
            error.filename, error.filename2 = os.fspath(path), None
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def temporary_for(path: Path) -> Path:
    """Return where to make what shall become `path`: for the cache's own files in partial/, else beside.

    So that a process that is killed leaves nothing where others look.
    """
    root = hub_dir()
    if not path.is_relative_to(root):
        return path.with_name(f".{path.name[:100]}.{unique()}.tmp")
    folder = partial(root)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{path.name[:100]}.{unique()}.tmp"


def place(temporary: Path, path: Path) -> None:
    """Rename `temporary` to `path`, by way of a copy where a linked folder is on another disk."""
    try:
        os.replace(temporary, path)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    import shutil

    beside = path.with_name(f".{path.name[:100]}.{unique()}.tmp")
    try:
        shutil.copyfile(temporary, beside, follow_symlinks=False)
        if not beside.is_symlink():
            with open(beside, "rb") as file:
                os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    temporary.unlink(missing_ok=True)


def discard(path: Path, root: Path | None = None) -> None:
    """Take `path` out of sight at once, then delete it."""
    trash = partial(root) / f"{unique()}.trash"
    trash.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        try:
            os.rename(path, trash)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            trash = path.with_name(f".{unique()}.trash")
            os.rename(path, trash)
        delete(trash)


def delete(path: Path) -> None:
    """Delete a file or a folder, read-only ones too; nothing there is fine."""
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    # Folders are taken up to the top before they are emptied: however deep the tree is, no path grows
    # and nothing recurses.
    name, count = unique(), 0
    with contextlib.suppress(FileNotFoundError):  # somebody else is deleting it, too
        while folders := _emptied(path):
            for folder in folders:
                for inner in _emptied(folder):
                    count += 1
                    _unlock(inner)
                    os.rename(inner, path / f"{name}.{count}")
                os.rmdir(folder)
        os.rmdir(path)


def _emptied(folder: Path) -> list[Path]:
    """Return the folders in `folder`, once all else in it is deleted."""
    _unlock(folder)
    folders = []
    with os.scandir(folder) as found:
        for entry in list(found):
            if entry.is_dir(follow_symlinks=False):
                folders.append(Path(entry.path))
            else:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)
    return folders


def _unlock(folder: Path) -> None:
    with contextlib.suppress(OSError):
        os.chmod(folder, stat.S_IRWXU)


def disk_size(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder; what goes meanwhile counts nothing."""
    if not path.is_dir() or path.is_symlink():
        with contextlib.suppress(FileNotFoundError):
            return os.lstat(path).st_size
        return 0
    total, pending = 0, [str(path)]
    while pending:  # what is too deep to be named counts nothing
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as found:
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    with contextlib.suppress(OSError):
                        total += entry.stat(follow_symlinks=False).st_size
    return total


def json_files(folder: Path) -> list[Path]:
    """Return what is named `*.json` in a folder and in those in it, sorted, without what another process removes
    meanwhile.

    A folder of such a name is among them: whoever reads it says that it is none of ours.
    """
    walked = os.walk(folder)  # which passes over folders that have gone; Path.rglob raises
    return sorted(Path(at, name) for at, inner, names in walked for name in (*inner, *names) if name.endswith(".json"))


def sync(folder: Path) -> None:
    """Make the names in `folder` durable, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def unique() -> str:
    """Return a name part that no other process or thread uses, on no machine; `abandoned` reads it."""
    return f"{_machine()}-{os.getpid():x}-{os.urandom(6).hex()}"


def abandoned(name: str) -> bool:
    """Return whether the process that made `name` with `unique` is known to be dead.

    Of other machines, containers and boots nothing is known: they share no process numbers.
    """
    match = re.search(_UNIQUE, name)
    if match is None or match.group(1) != _machine() or os.name != "posix":
        return False
    try:
        os.kill(int(match.group(2), 16), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def of_this_boot(name: str) -> bool:
    """Return whether `name` was made with `unique` on this machine since it started."""
    match = re.search(_UNIQUE, name)
    return match is not None and match.group(1) == _machine()


@functools.cache
def _machine() -> str:
    """Eight hex digits for the boot of this machine and the space of its process numbers."""
    import platform

    parts = [platform.node()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return f"{zlib.crc32(' '.join(parts).encode()):08x}"


def repository_key(host: str, owner: str, repo: str, url: str) -> str:
    """`<host>/<owner>/<repo>-<hash of url>`: where db/ and checkouts/ keep a repository."""
    import hashlib

    digest = hashlib.sha256(url.encode()).hexdigest()[:16]
    return f"{_segments(host, *owner.split('/'), repo)}-{digest}"


def _segments(*names: str) -> str:
    return "/".join(quote(name, safe="-_.~") for name in names)


def db(key: str, root: Path | None = None) -> Path:
    """Return the bare database of the repository `key`."""
    return (root or hub_dir()) / "db" / f"{key}.git"


def checkouts(key: str, root: Path | None = None) -> Path:
    """Return the folder of the published trees of the repository `key`."""
    return (root or hub_dir()) / "checkouts" / key


def refs(root: Path | None = None) -> Path:
    """Return the folder of the ref tables."""
    return (root or hub_dir()) / "refs"


def refs_file(host: str, owner: str, repo: str, root: Path | None = None) -> Path:
    """Return the ref table of one repository: the only file that look-ups read."""
    return refs(root) / f"{_segments(host, *owner.split('/'), repo)}.json"


def blobs(root: Path | None = None) -> Path:
    """Weights by digest: `blobs/sha256/ab/<hex>`."""
    return (root or hub_dir()) / "blobs" / "sha256"


def blob(sha256: str, root: Path | None = None) -> Path:
    """Return the weight file of one digest."""
    return blobs(root) / sha256[:2] / sha256


def checkpoints(root: Path | None = None) -> Path:
    """Weights by file name, as torch.hub names them."""
    return (root or hub_dir()) / "checkpoints"


def partial(root: Path | None = None) -> Path:
    """Downloads and trees that are not complete yet."""
    return (root or hub_dir()) / "partial"


def written(name: str) -> Path:
    """Return where what code has written into a checkout is moved."""
    return hub_dir() / "written" / name


def locks(root: Path | None = None) -> Path:
    """Lock files; they only save double work."""
    return (root or hub_dir()) / "locks"


def trust_file() -> Path:
    """Who may execute: in the user's own config folder, for others may write to a cache."""
    return settings.config_file().with_name("trust.json")


def seen(root: Path | None = None) -> Path:
    """Return what was seen first at a tag or a weight URL; it outlives what is cached."""
    return (root or hub_dir()) / "seen"
