"""Who may execute: `trust.json`, and the two gates in front of repository code.

`require` is the command line's: each commit needs somebody's word.  `consent` is the Python
functions', with torch.hub's `trust_repo`.  A folder of one's own is always trusted.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from hubcli import output, paths, settings
from hubcli.cache import reftable, store
from hubcli.cache.store import Checkout
from hubcli.errors import HubError, NotFoundError, UntrustedError, UsageError
from hubcli.spec import RepoSpec

Scope = Literal["commit", "repo"]
_VERSION = 1
_warned: set[str] = set()


@dataclass(frozen=True)
class Trusted:
    """One record: code of `repo` (host/owner/repo) may run at `commit`, or at any if that is None.

    `spec` is the repository as it was written, `when` an ISO time, `how` the way consent was given.
    """

    repo: str
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
    try:
        document = json.loads(file.read_bytes())
        if document["version"] != _VERSION:
            raise ValueError(f"version {document['version']!r}")
        return tuple(Trusted(**entry) for entry in document["trusted"])
    except FileNotFoundError:
        return ()
    except (ValueError, TypeError, KeyError) as error:
        raise HubError(f"{file} cannot be read: {error}", hint="remove it; every consent is asked for again") from None


def lookup(spec: RepoSpec, commit: str | None) -> Trusted | None:
    """The record that lets `spec` run at `commit`."""
    for entry in entries():
        if entry.repo == _repo(spec) and entry.commit in (None, commit):
            return entry
    return None


def add(spec: RepoSpec, commit: str | None, how: str) -> Trusted:
    """Let the repository of `spec` run at `commit` (None: at any) from now on."""
    if spec.kind == "local":
        raise UsageError(f"{spec} is a folder of your own: it is trusted", spec=str(spec))
    new = _record(spec, commit, how)
    _append([new])
    return new


def _record(spec: RepoSpec, commit: str | None, how: str) -> Trusted:
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Trusted(_repo(spec), spec.repository, commit, when, how)


def _append(new: list[Trusted]) -> None:
    given = {(one.repo, one.commit) for one in new}
    with store.exclusive("trust", "the list of trusted repositories"):
        kept = [one for one in entries() if (one.repo, one.commit) not in given]
        _write([*kept, *new])


def remove(spec: RepoSpec, commit: str | None = None) -> tuple[Trusted, ...]:
    """Take back the consent for the repository: all of it, or that for one commit."""
    with store.exclusive("trust", "the list of trusted repositories"):
        everything = entries()
        gone = tuple(one for one in everything if one.repo == _repo(spec) and (commit is None or one.commit == commit))
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
    if choice == "once" or any(one.repo == _repo(checkout.spec) and one.commit == commit for one in entries()):
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


def _untrusted(checkout: Checkout) -> UntrustedError:
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
        one for one in entries() if one.repo == _repo(checkout.spec) and one.commit not in (None, checkout.commit)
    ]
    return others[-1] if others else None


def import_list(file: Path) -> tuple[Trusted, ...]:
    """Record what torch.hub's `trusted_list` names: `owner_repo` a line, any commit of it.

    All lines or, where one is malformed, none.  GitHub's owners have no underscore: the first one
    ends the owner's name.
    """
    try:
        with file.open("rb") as opened:
            lines = opened.read(1 << 20).decode().splitlines()
    except FileNotFoundError:
        raise NotFoundError(f"there is no {file}", hint="torch keeps it in its hub folder") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is no list of repositories: it is not text") from None
    specs = []
    for number, line in enumerate(lines, 1):
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
    known = {(one.repo, one.commit) for one in entries()}
    new = [_record(spec, None, "import") for spec in dict.fromkeys(specs)]
    new = [one for one in new if (one.repo, None) not in known]
    if new:
        _append(new)
    return tuple(new)


def consent(
    spec: RepoSpec,
    trust_repo: bool | str | None,
    function: str,
    ask: Callable[[str], str] | None = None,
) -> None:
    """torch.hub's gate: return if a call of `function` from Python may run code of `spec`.

    None warns once per repository and goes on (HUB_TRUST=strict: as "check"); True records the
    repository; "check" asks unless there is a record; False asks.
    """
    if spec.kind == "local":
        return
    if trust_repo not in (None, True, False, "check"):
        raise UsageError(f"trust_repo must be True, False, 'check' or None, not {trust_repo!r}", spec=str(spec))
    setting = settings.current().trust
    if trust_repo is None and setting == "strict":
        trust_repo = "check"
    found = store.lookup(spec)
    known = lookup(spec, found.commit if found is not None else None) is not None
    if trust_repo is True:
        if not known:
            add(spec, None, "python")
    elif trust_repo is None:
        if not known and _repo(spec) not in _warned:
            _warned.add(_repo(spec))
            warnings.warn(
                f"{function} runs code of {spec.repository}, which is not among the trusted "
                f"repositories. Pass trust_repo=True to add it, trust_repo='check' to be asked.",
                stacklevel=4,
            )
    elif trust_repo is False or not (known or setting in settings.TRUST_CHOICES):
        _ask_as_torch(spec, ask or input)


def _ask_as_torch(spec: RepoSpec, ask: Callable[[str], str]) -> None:
    question = (
        f"The repository {spec.owner}_{spec.repo} does not belong to the list of trusted "
        "repositories and as such cannot be downloaded. Do you trust this repository and wish to "
        "add it to the trusted list of repositories (y/N)?"
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


def _repo(spec: RepoSpec) -> str:
    return f"{spec.host}/{spec.owner}/{spec.repo}".lower()


def _write(everything: list[Trusted]) -> None:
    document = {"version": _VERSION, "trusted": [asdict(one) for one in everything]}
    paths.ensure_root()
    paths.write_atomically(paths.trust_file(), json.dumps(document, indent=1).encode())
