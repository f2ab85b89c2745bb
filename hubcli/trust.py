"""Who may execute: `trust.json`, and the gates in front of repository code.

`require` is the command line's: each commit needs somebody's word.  `consent` and `consent_to` are the Python
functions', with torch.hub's `trust_repo`.  `before_fetch` stands in front of what running code wants to have
fetched.  A consent is bound to the canonical URL of a repository, and lies in the user's config folder: a cache may
be shared.  A folder of one's own is always trusted.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from hubcli import output, paths, settings
from hubcli.cache import reftable, store, trees
from hubcli.cache.store import Checkout
from hubcli.errors import HubError, NotFoundError, UntrustedError, UsageError
from hubcli.spec import RepoSpec

Scope = Literal["commit", "repo"]
_VERSION = 2
_warned: set[str] = set()


@dataclass(frozen=True)
class Trusted:
    """One record: code of the repository at `url` may run at `commit`, or at any if that is None.

    `url` is canonical (`RepoSpec.canonical`), `spec` the repository as it was written, `when` an ISO time, `how` the
    way consent was given.
    """

    url: str
    spec: str
    commit: str | None
    when: str
    how: str

    @property
    def scope(self) -> Scope:
        """`commit` or `repo`."""
        return "repo" if self.commit is None else "commit"


def entries() -> tuple[Trusted, ...]:
    """Every record, in the order they were made."""
    file = paths.trust_file()
    if (what := _of_others(file)) is not None:
        if what not in _warned:
            _warned.add(what)
            output.warning(f"{what}: who may execute is not read from there")
        return ()
    try:
        if file.exists() and not file.is_file():  # a pipe would keep us waiting
            raise ValueError("it is no plain file")
        document = json.loads(file.read_bytes())
        if document["version"] != _VERSION:
            raise ValueError(f"version {document['version']!r}")
        return tuple(Trusted(**entry) for entry in document["trusted"])
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise HubError(f"{file} cannot be read: {error}", hint="remove it; every consent is asked for again") from None


def _of_others(file: Path) -> str | None:
    """Why others than this user may have written the list, or None."""
    return paths.belongs_to_others(file) or paths.belongs_to_others(file.parent)


def lookup(spec: RepoSpec, commit: str | None) -> Trusted | None:
    """The record that lets `spec` run at `commit`."""
    for entry in entries():
        if entry.url == spec.canonical and entry.commit in (None, commit):
            return entry
    return None


def _known_at_all(spec: RepoSpec) -> bool:
    """Whether somebody has allowed any commit of the repository."""
    return any(entry.url == spec.canonical for entry in entries())


def add(spec: RepoSpec, commit: str | None, how: str) -> Trusted:
    """Let the repository of `spec` run at `commit` (None: at any) from now on."""
    if spec.kind == "local":
        raise UsageError(f"{spec} is a folder of your own: it is trusted", spec=str(spec))
    new = _record(spec, commit, how)
    _append([new])
    return new


def _record(spec: RepoSpec, commit: str | None, how: str) -> Trusted:
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Trusted(spec.canonical, spec.repository, commit, when, how)


def _append(new: list[Trusted]) -> None:
    given = {(one.url, one.commit) for one in new}
    with _exclusive():
        kept = [one for one in entries() if (one.url, one.commit) not in given]
        _write([*kept, *new])


def remove(spec: RepoSpec, commit: str | None = None) -> tuple[Trusted, ...]:
    """Take back the consent for the repository: all of it, or that for one commit."""
    url = spec.canonical
    with _exclusive():
        everything = entries()
        gone = tuple(one for one in everything if one.url == url and (commit is None or one.commit == commit))
        if not gone:
            raise NotFoundError(f"{spec} is not trusted", hint="`hub trust ls` lists what is", spec=str(spec))
        _write([one for one in everything if one not in gone])
    return gone


def describe(checkout: Checkout) -> str:
    """`local`, `repo`, `commit` or `untrusted`: for `hub show`."""
    if checkout.kind == "local":
        return "local"
    found = lookup(checkout.spec, checkout.commit)
    return "untrusted" if found is None else found.scope


def require(checkout: Checkout, entrypoint: str, option: str | None = None) -> None:
    """Return if `checkout` may run on behalf of a command, else raise UntrustedError.

    Under --locked an entry of the lock file for that commit is consent.  `option` is --trust;
    without one HUB_TRUST counts, then a record, then the answer of whoever sits at the terminal.
    """
    if checkout.kind == "local":
        return
    trees.require_sound(checkout)
    lock = settings.current().lock
    if lock is not None and lock.repo(checkout.spec).commit == checkout.commit:
        return
    given = settings.current().trust
    choice = option or (given if given in settings.TRUST_CHOICES else None)
    if choice is None:
        if lookup(checkout.spec, checkout.commit) is not None:
            return
        choice = _ask(checkout, entrypoint)
        how = "prompt"
    else:
        how = "option" if option else "environment"
    _apply(checkout, choice, how)


def _apply(checkout: Checkout, choice: str, how: str) -> None:
    """Record a consent; it is made once only, and `once` is not recorded."""
    commit = None if choice == "repo" else checkout.commit
    if choice == "once" or any(one.url == checkout.spec.canonical and one.commit == commit for one in entries()):
        return
    add(checkout.spec, commit, how)


def _ask(checkout: Checkout, entrypoint: str) -> str:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise _untrusted(checkout)
    from hubcli import asking

    asked = request(checkout, entrypoint)
    sys.stderr.write(f"{_described(asked)}\n")
    known = asked.before is not None and asked.changes is not None
    choice = asking.choice(checkout, asked.before.commit if asked.before is not None and known else None)
    if choice is None:
        raise _untrusted(checkout)
    return choice


def before_fetch(spec: RepoSpec, entrypoint: str = "", *, reload: bool = False) -> None:
    """Return if code that is running may have `spec` fetched, else raise UntrustedError.

    Nothing goes out for a repository of which nobody has allowed any commit.  What has come is then for `require`.
    """
    now = settings.current()
    if spec.kind == "local":
        return
    if now.lock is not None:
        now.lock.repo(spec)
        return
    if (not reload and store.lookup(spec) is not None) or now.trust in settings.TRUST_CHOICES or _known_at_all(spec):
        return
    if sys.stdin.isatty() and sys.stderr.isatty():
        sys.stderr.write(f"Code that is running wants {spec} fetched from {_line(spec.url)}. Fetch it [y/N]? ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return
    _say_moved()
    raise UntrustedError(
        f"{spec}, which running code asks for, is not trusted: it was not fetched",
        hint=f"allow it first: hub trust add {shlex.quote(str(spec))}",
        spec=str(spec),
    )


def _untrusted(checkout: Checkout) -> UntrustedError:
    _say_moved()
    before = _last_trusted(checkout)
    instead = "" if before is None else f" (commit {before.commit} of it is, since {before.when})"
    exact = shlex.quote(str(checkout.spec.at(checkout.commit)))  # a branch may move meanwhile
    return UntrustedError(
        f"{checkout.spec} at commit {checkout.commit} is not trusted to run code{instead}",
        hint=f"read it in {checkout.path}, then allow it: hub trust add {exact} (or run again with --trust once)",
        spec=str(checkout.spec),
    )


@dataclass(frozen=True)
class Request:
    """What a consent would be for; all of it is read, nothing run.

    `signature` is a phrase (None: it is no tag), `call` the entrypoint with its signature,
    `before` the last consent for another commit, `changes` the (A, M, D or T; path) since then, or
    None where the cache has lost that commit.
    """

    checkout: Checkout
    signature: str | None
    call: str
    dependencies: tuple[str, ...]
    before: Trusted | None
    changes: tuple[tuple[str, str], ...] | None


def request(checkout: Checkout, entrypoint: str) -> Request:
    """What the prompt shows of `entrypoint` of `checkout`."""
    from hubcli.net import git
    from hubcli.reading import hubconf, signature

    db = paths.db(reftable.Table.read(checkout.spec).key)
    commit, name = str(checkout.commit), str(checkout.ref)
    phrase = None
    if checkout.kind == "tag":
        tag = git.tag_object(db, git.ref_in_db("tag", name), commit)
        if tag is None:
            phrase = "unknown: the cache has the commit, not the tag"
        else:
            phrase = signature.describe(tag, name, git.allowed_signers())
    call = entrypoint
    dependencies: tuple[str, ...] = ()
    with contextlib.suppress(HubError):  # a hubconf that cannot be read is not what is asked here
        conf = hubconf.read(checkout.path)
        dependencies = conf.dependencies
        call += next((one.signature or "" for one in conf.entrypoints if one.name == call), "")
    before = _last_trusted(checkout)
    found = None if before is None else git.changed_files(db, str(before.commit), commit)
    changes = None if found is None else tuple(found)
    return Request(checkout, phrase, call, dependencies, before, changes)


def _described(asked: Request) -> str:
    from hubcli.net import git

    checkout = asked.checkout
    rows = [
        ("repository", f"{checkout.spec.repository}  ({git.public(checkout.url)})"),
        ("ref", f"{checkout.kind} {checkout.ref}"),
        ("commit", str(checkout.commit)),
    ]
    if asked.signature is not None:
        rows.append(("signature", asked.signature))
    if asked.call:
        rows.append(("entrypoint", asked.call))
    rows.append(("dependencies", ", ".join(asked.dependencies) or "none"))
    rows.append(("code", str(checkout.path)))
    if asked.before is not None:
        rows.append(("trusted", f"commit {asked.before.commit}, since {asked.before.when}"))
        rows.append(("since then", _summary(asked.changes)))
        rows += [("", f"{kind}  {path}") for kind, path in _shown(asked.changes or ())]
    # line by line: what a repository names must not look like a line of ours
    lines = [(f"  {name}", _line(value)) for name, value in rows]
    return f"{checkout.spec} wants to run code on this machine:\n{output.table(lines)}"


def _summary(changes: tuple[tuple[str, str], ...] | None) -> str:
    if changes is None:
        return "what changed is not known: that commit is no longer in the cache"
    if not changes:
        return "no file changed"
    count = {word: 0 for word in ("changed", "added", "removed")}
    for kind, _ in changes:
        count[{"A": "added", "D": "removed"}.get(kind, "changed")] += 1
    said = ", ".join(f"{number} {word}" for word, number in count.items() if number)
    own = any(path == "hubconf.py" for _, path in changes)
    return f"files: {said}; hubconf.py {'CHANGED' if own else 'is the same'}"


def _shown(changes: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    """At most ten, hubconf.py and other code first."""
    ranked = sorted(changes, key=lambda one: (one[1] != "hubconf.py", not one[1].endswith(".py"), one[1]))
    more = [("", f"and {len(ranked) - 10} more")] if len(ranked) > 10 else []
    return [*ranked[:10], *more]


def _line(text: str) -> str:
    """`text` on one line of bounded length, nothing in it that could drive a terminal."""
    clean = "".join(character if character.isprintable() else "?" for character in text)
    return clean if len(clean) <= 300 else f"{clean[:300]}..."


def _last_trusted(checkout: Checkout) -> Trusted | None:
    """The youngest consent for another commit of the repository."""
    others = [
        one for one in entries() if one.url == checkout.spec.canonical and one.commit not in (None, checkout.commit)
    ]
    return others[-1] if others else None


def import_list(file: Path) -> tuple[Trusted, ...]:
    """Record what a file lists: torch.hub's `trusted_list`, or the trust.json that hub once kept in the cache.

    All of it or, where a line is malformed, nothing.
    """
    try:
        with file.open("rb") as opened:
            text = opened.read(1 << 20).decode()
    except FileNotFoundError:
        raise NotFoundError(f"there is no {file}", hint="torch keeps it in its hub folder") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is no list of repositories: it is not text") from None
    wanted = _of_hub(file, text) if text.lstrip().startswith("{") else [(one, None) for one in _of_torch(file, text)]
    known = {(one.url, one.commit) for one in entries()}
    new = [_record(spec, commit, "import") for spec, commit in dict.fromkeys(wanted)]
    new = [one for one in new if (one.url, one.commit) not in known]
    if new:
        _append(new)
    return tuple(new)


def _of_hub(file: Path, text: str) -> list[tuple[RepoSpec, str | None]]:
    """The repositories and commits of a trust.json."""
    found: list[tuple[RepoSpec, str | None]] = []
    try:
        for entry in json.loads(text)["trusted"]:
            spec, commit = RepoSpec.parse(entry["spec"]), entry["commit"]
            if spec.kind == "local" or not (commit is None or re.fullmatch("[0-9a-f]{40}([0-9a-f]{24})?", commit)):
                raise ValueError(f"{entry['spec']!r} at {commit!r}")
            found.append((spec, commit))
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{file} is no list of repositories: {error}", hint="nothing was imported") from None
    return found


def _of_torch(file: Path, text: str) -> list[RepoSpec]:
    """The repositories of a `trusted_list`: `owner_repo` a line.

    GitHub's owners have no underscore: the first one ends the owner's name.
    """
    specs = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        owner, underscore, repo = line.strip().partition("_")
        try:
            folder_like = set("./~") & set(owner) or "/" in repo
            if not (owner and underscore) or folder_like:
                raise UsageError(f"{line.strip()!r} is not owner_repo")
            specs.append(RepoSpec.parse(f"{owner}/{repo}"))
        except UsageError as error:
            raise UsageError(
                f"{file}, line {number}: {error.message}",
                hint="a line is owner_repo; nothing was imported",
            ) from None
    return specs


def consent(
    spec: RepoSpec,
    trust_repo: bool | str | None,
    function: str,
    ask: Callable[[str], str] | None = None,
    *,
    reload: bool = False,
) -> None:
    """torch.hub's gate, before anything is fetched: return if a call from Python may go on with `spec`.

    None warns once per repository and goes on (HUB_TRUST=strict: as "check"); True records the
    repository; "check" asks unless there is a record; False asks.  Where something will be fetched
    (`reload`, or it is not there) a record for another commit will do for now: see `consent_to`.
    """
    if spec.kind == "local":
        return
    if trust_repo not in (None, True, False, "check"):
        raise UsageError(f"trust_repo must be True, False, 'check' or None, not {trust_repo!r}", spec=str(spec))
    found = None if reload else store.lookup(spec)
    known = _known_at_all(spec) if found is None else lookup(spec, found.commit) is not None
    if trust_repo is True:
        if not any(one.url == spec.canonical and one.commit is None for one in entries()):
            add(spec, None, "python")
    elif trust_repo is False:
        _ask_as_torch(spec, ask or input)
    else:
        _settle(spec, known, trust_repo, function, ask)


def consent_to(
    checkout: Checkout,
    trust_repo: bool | str | None,
    function: str,
    ask: Callable[[str], str] | None = None,
) -> None:
    """The same gate for what was found or fetched: the commit that would run is the one that counts."""
    trees.require_sound(checkout)
    if checkout.kind == "local" or isinstance(trust_repo, bool):
        return
    _settle(checkout.spec, lookup(checkout.spec, checkout.commit) is not None, trust_repo, function, ask)


def _settle(
    spec: RepoSpec, known: bool, trust_repo: bool | str | None, function: str, ask: Callable[[str], str] | None
) -> None:
    setting = settings.current().trust
    if known:
        return
    if trust_repo is None and setting != "strict":
        if spec.canonical not in _warned:
            _warned.add(spec.canonical)
            _say_moved()
            warnings.warn(
                f"{function} runs code of {spec.repository}, which is not among the trusted repositories. Pass "
                "trust_repo=True to add it, trust_repo='check' to be asked.",
                stacklevel=5,
            )
    elif setting not in settings.TRUST_CHOICES:
        _say_moved()
        _ask_as_torch(spec, ask or input)


def _ask_as_torch(spec: RepoSpec, ask: Callable[[str], str]) -> None:
    question = (
        f"The repository {spec.owner}_{spec.repo} does not belong to the list of trusted repositories and as such "
        "cannot be downloaded. Do you trust this repository and wish to add it to the trusted list of repositories "
        "(y/N)?"
    )
    try:
        answer = ask(question).strip().lower()
    except EOFError:
        raise UntrustedError(
            f"{spec} is not trusted, and there is nobody to ask",
            hint=f"run `hub trust add {spec} --repo`, or pass trust_repo=True",
            spec=str(spec),
        ) from None
    if answer in ("y", "yes"):
        add(spec, None, "prompt")
    elif answer in ("", "n", "no"):
        raise UntrustedError("Untrusted repository.", spec=str(spec))
    else:
        raise UsageError(f"Unrecognized response {answer}.", spec=str(spec))


def _write(everything: list[Trusted]) -> None:
    document = {"version": _VERSION, "trusted": [asdict(one) for one in everything]}
    paths.write_atomically(paths.trust_file(), json.dumps(document, indent=1).encode())


def _exclusive() -> contextlib.AbstractContextManager[None]:
    """One writer at a time, in a folder that only the user writes."""
    folder = paths.trust_file().parent
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if (what := _of_others(paths.trust_file())) is not None:
        raise HubError(f"{what}: no consent is recorded there", hint="look at it, then chown and chmod it")
    return store.exclusive("trust", "the list of trusted repositories", folder)


def _say_moved() -> None:
    """Say once that what an older hub recorded in the cache no longer counts."""
    old = paths.hub_dir() / "trust.json"
    if "" not in _warned and not paths.trust_file().exists() and old.is_file():
        _warned.add("")
        output.message(
            f"{old} no longer counts, for others may write to a cache; to take over what it lists, after a look at it: "
            f"hub trust import {shlex.quote(str(old))}"
        )
