"""The content of a repository: what hub refuses to publish, and how a tree is made fit for it."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from hubcli.base import output, paths
from hubcli.base.request import Request
from hubcli.base.spec import RepoSpec
from hubcli.errors import HubError, IntegrityError

if TYPE_CHECKING:
    from hubcli.cache.checkouts import Checkout
    from hubcli.net.git import lfs
    from hubcli.net.git import remote as git

SUBMODULE = "160000"  # git's mode of a commit of another repository; never fetched, its folder is empty
# git's ids of the tree without entries
_EMPTY = {
    "sha1": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "sha256": "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}


def refuse_too_large(spec: RepoSpec, size: int, limit: int | None) -> None:
    """Before anything is written: what git sends in a few bytes may be many."""
    if limit is not None and size > limit:
        why = f"the limit is {output.size(limit)}; raise --size-limit if you want it"
        raise IntegrityError(f"{spec} is refused: its files have {output.size(size)}", hint=why, spec=str(spec))
    import shutil  # with the compressors that it imports

    free = shutil.disk_usage(paths.hub_dir()).free
    if size > free:
        raise HubError(
            f"no space in {paths.hub_dir()}: the files of {spec} have {output.size(size)}, {output.size(free)} are "
            "free",
            hint="`hub cache prune` and `hub cache ls` show what could go",
            spec=str(spec),
        )


def refuse_bad_names(spec: RepoSpec, listing: list[git.Entry], folder: Path) -> None:
    """Refuse `.git` components, and names that are one name on the file system of `folder`, which is empty.

    On Windows and macOS `A` and `a` mostly are one, and one spelling of an accent the other.  On the way to Python code
    they are refused everywhere: what is read here and what is executed there would be two files.
    """
    import unicodedata

    alike: dict[tuple[str, str], dict[str, None]] = {}
    code: set[tuple[str, str]] = set()
    for entry in listing:
        parent = ""
        for part in entry.path.split("/"):
            folded = unicodedata.normalize("NFC", part).casefold()
            if folded in (".git", "git~1", "", ".", ".."):
                raise _refused(spec, f"{entry.path!r} has a part {part!r}", "no tree may have it")
            alike.setdefault((parent, folded), {})[part] = None
            if entry.path[-3:].lower() == ".py":
                code.add((parent, folded))
            parent = f"{parent}{part}/"
    for (parent, folded), names in alike.items():
        if len(names) < 2:
            continue
        executed = (parent, folded) in code
        pair = list(names)[:2] if executed else _same(list(names), folder)
        if pair:
            what = f"{parent + pair[0]!r} and {parent + pair[1]!r} differ by case only"
            why = "other code would be executed on other systems" if executed else "the cache's file system folds them"
            raise _refused(spec, what, why)


def _same(names: list[str], folder: Path) -> list[str] | None:
    """Two of the names that the file system takes for one; None where it distinguishes them all.

    What it cannot hold, the checkout says.
    """
    probe, made = folder / "names", list[str]()
    probe.mkdir()
    try:
        for name in names:
            if Path(name).name != name:  # Windows: a backslash or a drive would lead out of the folder
                return names[:2]
            with contextlib.suppress(OSError):
                try:
                    (probe / name).mkdir()
                    made.append(name)
                except FileExistsError:
                    first = next((one for one in made if os.path.samefile(probe / one, probe / name)), None)
                    if first is not None:
                        return [first, name]
    finally:
        paths.delete(probe)
    return None


def seal(spec: RepoSpec, folder: Path, listing: list[git.Entry]) -> list[str]:
    """Refuse links that leave the tree, make files read-only, sync them; the LFS pointers found."""
    root = os.path.realpath(folder)
    files = []
    for entry in listing:
        path = os.path.join(folder, entry.path)
        if entry.mode == SUBMODULE:
            continue
        if entry.mode != "120000":
            files.append((path, 0o555 if entry.mode == "100755" else 0o444))
            continue
        target = os.readlink(path)
        if os.path.isabs(target) or os.path.commonpath((root, os.path.realpath(path))) != root:
            what = f"{entry.path!r} links to {target!r}, outside the tree"
            raise _refused(spec, what, "running it could reach any file of yours")
    if len(files) > 50:
        from concurrent.futures import ThreadPoolExecutor

        # each waits for the disk: together they wait once
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(_seal_file, files))
    else:
        for file in files:
            _seal_file(file)
    for parent, _, _ in os.walk(folder):
        os.chmod(parent, 0o755)
        paths.sync(Path(parent))
    filtered = any(
        b"filter=lfs" in Path(path).read_bytes() for path, _ in files if os.path.basename(path) == ".gitattributes"
    )
    return [entry.path for entry in listing if _is_pointer(folder, entry)] if filtered else []


def _seal_file(file: tuple[str, int]) -> None:
    path, mode = file
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.chmod(path, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_pointer(folder: Path, entry: git.Entry) -> bool:
    if not 100 <= entry.size < 1024 or not entry.mode.startswith("100"):
        return False
    from hubcli.net.git import lfs

    return lfs.parse(entry.path, (folder / entry.path).read_bytes()) is not None


def fill(spec: RepoSpec, folder: Path, url: str, pointers: list[str], request: Request) -> dict[str, str]:
    """Fetch what the Git LFS pointers stand for; the pointers' texts by path, for the marker."""
    from hubcli.net.git import lfs

    found = [lfs.parse(path, (folder / path).read_bytes()) for path in pointers]
    wanted = [pointer for pointer in found if pointer is not None]
    refuse_too_large(spec, sum(pointer.size for pointer in wanted), request.size_limit)
    lfs.fill(url, folder, wanted, request)
    return {pointer.path: pointer.text.decode() for pointer in wanted}


def _refused(spec: RepoSpec, what: str, why: str) -> IntegrityError:
    return IntegrityError(f"{spec} is refused: {what}", hint=f"{why}; tell the publisher", spec=str(spec))


def identity(folder: Path) -> str:
    """git's id of the tree in `folder`, from what is there now: content, modes, names and links.

    A file that has come from Git LFS, as the marker beside the tree says, counts as the pointer to
    its content, and the empty folder of a submodule as the commit it stands for.  Raises OSError for
    what cannot be read.  A file that git does not know counts like any other.
    """
    return _identity(folder, "", lfs_pointers(folder), submodules(folder), _format(folder.name.partition(".")[0]))


def _format(commit: str) -> str:
    """Return the digest that names the objects of a repository, which has `commit`."""
    return "sha256" if len(commit) == 64 else "sha1"


def require_sound(checkout: Checkout) -> None:
    """Raise IntegrityError unless the tree is that of its commit, by digests alone; once in a process.

    Whoever may write to the cache may have changed it, and what the cache says about it.
    """
    if checkout.kind != "local":
        _require_sound(checkout.path, str(checkout.commit), checkout.spec)


@functools.cache
def _require_sound(path: Path, commit: str, spec: RepoSpec) -> None:
    hint = f"hub pull {spec} --force-reload writes it anew; `hub cache verify` looks at the rest"
    try:
        text = json.loads(path.with_name(f"{path.name}.json").read_bytes()).get("object")
        if isinstance(text, str):
            raw = text.encode("latin-1")
        else:  # by an older hub
            from hubcli.cache import ref_table
            from hubcli.net.git import remote as git

            raw = git.commit_object(paths.db(ref_table.Table.read(spec).key), commit)
        tree = _of_commit(raw, commit)
        whole = tree is not None and identity(path) == tree
    except (OSError, ValueError, AttributeError, HubError) as error:
        raise IntegrityError(f"{path} cannot be verified: {error}", hint=hint, spec=str(spec)) from None
    if not whole:
        raise IntegrityError(
            f"{path} is not what commit {commit} holds: it was changed in the cache", hint=hint, spec=str(spec)
        )


def _of_commit(raw: bytes, commit: str) -> str | None:
    """Return the tree of a commit from its text; None where that is not the text of `commit`."""
    first = raw.partition(b"\n")[0]
    if _object(b"commit", raw, _format(commit)) != commit or not first.startswith(b"tree "):
        return None
    return first[5:].decode("ascii")


def lfs_pointers(folder: Path) -> dict[str, str]:
    """Return the pointers, by path, whose contents Git LFS has put in their place in a published tree."""
    return _noted(folder, "lfs")


def submodules(folder: Path) -> dict[str, str]:
    """Return the commits, by path, that a published tree has for its submodules; their folders are empty."""
    return {
        path: name
        for path, name in _noted(folder, "submodules").items()
        if re.fullmatch("[0-9a-f]{40}([0-9a-f]{24})?", str(name))
    }


def _noted(folder: Path, what: str) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return dict(json.loads(folder.with_name(f"{folder.name}.json").read_bytes()).get(what) or {})
    return {}


def pointers(folder: Path) -> list[lfs.Pointer]:
    """Return the Git LFS pointers of the commit in a published tree, whether their contents have come or not, by
    path."""
    from hubcli.net.git import lfs

    marker = json.loads(folder.with_name(f"{folder.name}.json").read_bytes())
    texts = {path: str(text).encode() for path, text in (marker.get("lfs") or {}).items()}
    texts |= {path: (folder / path).read_bytes() for path in marker.get("pointers") or ()}
    found = (lfs.parse(path, text) for path, text in sorted(texts.items()))
    return [one for one in found if one is not None]


def _identity(folder: Path, place: str, pointers: dict[str, str], modules: dict[str, str], sha: str) -> str:
    with os.scandir(folder) as found:
        entries = list(found)
    lines = []
    for entry in entries:
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            kind, name = b"40000", _identity(Path(entry.path), f"{place}{entry.name}/", pointers, modules, sha)
            if name == _EMPTY[sha]:
                if place + entry.name not in modules:  # git has no empty folders
                    continue
                kind, name = SUBMODULE.encode(), modules[place + entry.name]
        elif stat.S_ISLNK(mode):
            kind, name = b"120000", _object(b"blob", os.fsencode(os.readlink(entry.path)), sha)
        elif stat.S_ISREG(mode):
            kind = b"100755" if mode & stat.S_IXUSR else b"100644"
            name = _file(entry.path, pointers.get(place + entry.name), sha)
        else:  # a pipe or a device: nothing that git could have written
            kind, name = b"0", _EMPTY[sha]
        written = os.fsencode(entry.name)
        order = written + b"/" * (kind == b"40000")  # a submodule counts as a file
        lines.append((order, kind + b" " + written + b"\0" + bytes.fromhex(name)))
    return _object(b"tree", b"".join(line for _, line in sorted(lines)), sha)


def differences(folder: Path, wanted: dict[str, str]) -> list[tuple[str, str, str | None, str | None]]:
    """(file, changed|missing|extra, expected, found) of what is not as `wanted` (`git.blobs`) says, by name."""
    pointers, found, sha = lfs_pointers(folder), dict[str, str](), _format(folder.name.partition(".")[0])
    for parent, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        for name in (*names, *links):
            path = os.path.join(parent, name)
            place = os.path.relpath(path, folder).replace(os.sep, "/")
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                found[place] = f"120000 {_object(b'blob', os.fsencode(os.readlink(path)), sha)}"
            elif stat.S_ISREG(mode):
                kind = "100755" if mode & stat.S_IXUSR else "100644"
                found[place] = f"{kind} {_file(path, pointers.get(place), sha)}"
            else:
                found[place] = "no plain file"
    for place, commit in submodules(folder).items():
        with contextlib.suppress(OSError):
            if not os.listdir(folder / place):
                found[place] = f"{SUBMODULE} {commit}"
    made = []
    for name in sorted(wanted.keys() | found.keys()):
        before, after = wanted.get(name), found.get(name)
        if before != after:
            what = "changed" if before and after else "missing" if before else "extra"
            made.append((name, what, before, after))
    return made


def _file(path: str, pointer: str | None, sha: str) -> str:
    import hashlib  # start-up does without

    with open(path, "rb") as file:
        if pointer is not None:
            from hubcli.net.git import lfs

            text = pointer.encode()
            found = lfs.parse(path, text)
            if found and hashlib.file_digest(file, "sha256").hexdigest() == found.oid:
                return _object(b"blob", text, sha)
            file.seek(0)
        size = os.fstat(file.fileno()).st_size
        digest = hashlib.new(sha, b"blob %d\0" % size, usedforsecurity=False)
        return hashlib.file_digest(file, lambda: digest).hexdigest()


def _object(kind: bytes, content: bytes, sha: str) -> str:
    import hashlib

    head = b"%s %d\0" % (kind, len(content))
    return hashlib.new(sha, head + content, usedforsecurity=False).hexdigest()
