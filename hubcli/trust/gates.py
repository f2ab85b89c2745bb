"""Who may execute: `trust.json`, and the gates in front of repository code.

`require` is the command line's: each commit needs somebody's word.  `consent` and `consent_to` are the Python
functions', for requests made of torch.hub's `trust_repo` by `of_trust_repo`.  `before_fetch` checks a repository that
running code wants to have fetched.  All read `Request.trust`, which code that runs does not inherit.  A consent is
bound to the canonical URL of a repository, and is in the user's config folder: a cache may be shared.  A folder of
one's own is always trusted.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from hubcli.base import once, output, paths, settings
from hubcli.base.request import Request, Trust
from hubcli.base.spec import RepoSpec
from hubcli.cache import ref_table, trees
from hubcli.cache.cache import Cache
from hubcli.cache.checkouts import Checkout
from hubcli.errors import HubError, UntrustedError, UsageError
from hubcli.trust import records
from hubcli.trust.records import Trusted


def describe(checkout: Checkout) -> str:
    """`local`, `repo`, `commit` or `untrusted`: for `hub show`."""
    if checkout.kind == "local":
        return "local"
    found = records.lookup(checkout.spec, checkout.commit)
    return "untrusted" if found is None else found.scope


def require(checkout: Checkout, entrypoint: str, request: Request) -> None:
    """Return if `checkout` may run for a command, else raise UntrustedError.

    Under --locked an entry of the lock file for that commit is consent.  `request.trust` is --trust;
    without one HUB_TRUST counts, then a record, then the answer of whoever sits at the terminal.
    """
    if checkout.kind == "local":
        return
    trees.require_sound(checkout)
    lock = request.lock
    if lock is not None and lock.repo(checkout.spec).commit == checkout.commit:
        return
    option, setting = (
        value if value in settings.TRUST_CHOICES else None for value in (request.trust, settings.current().trust)
    )
    choice = option or setting
    if choice is None:
        if records.lookup(checkout.spec, checkout.commit) is not None:
            return
        choice = _ask(checkout, entrypoint)
        how = "prompt"
    else:
        how = "option" if option else "environment"
    _apply(checkout, choice, how)


def _apply(checkout: Checkout, choice: str, how: str) -> None:
    """Record a consent; it is made once only, and `once` is not recorded."""
    commit = None if choice == "repo" else checkout.commit
    if choice == "once" or any(
        one.url == checkout.spec.canonical and one.commit == commit for one in records.entries()
    ):
        return
    records.add(checkout.spec, commit, how)


def _ask(checkout: Checkout, entrypoint: str) -> str:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise _untrusted(checkout)
    from hubcli.trust import prompt

    subject = question(checkout, entrypoint)
    sys.stderr.write(f"{_described(subject)}\n")
    known = subject.before is not None and subject.changes is not None
    choice = prompt.choice(checkout, subject.before.commit if subject.before is not None and known else None)
    if choice is None:
        raise _untrusted(checkout)
    return choice


def before_fetch(spec: RepoSpec, request: Request) -> None:
    """Return if code that is running may have `spec` fetched, else raise UntrustedError.

    Nothing goes out for a repository without a consent for any of its commits.  What has come is then for `require`.
    """
    if spec.kind == "local":
        return
    if request.lock is not None:
        request.lock.repo(spec)
        return
    there = not request.reload and Cache.current().lookup(spec) is not None
    if there or settings.current().trust in settings.TRUST_CHOICES or records.known_at_all(spec):
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
class Question:
    """The facts of a consent to ask for; all of it is read, nothing run.

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


def question(checkout: Checkout, entrypoint: str) -> Question:
    """Return what the prompt shows of `entrypoint` of `checkout`."""
    from hubcli.net.git import remote as git
    from hubcli.reading import hubconf
    from hubcli.trust import signature

    db = paths.db(ref_table.Table.read(checkout.spec).key)
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
    return Question(checkout, phrase, call, dependencies, before, changes)


def _described(subject: Question) -> str:
    from hubcli.net.git import remote as git

    checkout = subject.checkout
    rows = [
        ("repository", f"{checkout.spec.repository}  ({git.public(checkout.url)})"),
        ("ref", f"{checkout.kind} {checkout.ref}"),
        ("commit", str(checkout.commit)),
    ]
    if subject.signature is not None:
        rows.append(("signature", subject.signature))
    if subject.call:
        rows.append(("entrypoint", subject.call))
    rows.append(("dependencies", ", ".join(subject.dependencies) or "none"))
    rows.append(("code", str(checkout.path)))
    if subject.before is not None:
        rows.append(("trusted", f"commit {subject.before.commit}, since {subject.before.when}"))
        rows.append(("since then", _summary(subject.changes)))
        rows += [("", f"{kind}  {path}") for kind, path in _shown(subject.changes or ())]
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
    """Return the youngest consent for another commit of the repository."""
    others = [
        one
        for one in records.entries()
        if one.url == checkout.spec.canonical and one.commit not in (None, checkout.commit)
    ]
    return others[-1] if others else None


def of_trust_repo(value: bool | str | None, spec: RepoSpec) -> Trust | None:
    """Return the meaning of torch.hub's `trust_repo`; UsageError for another value, unless `spec` is a folder."""
    if value is True:
        return "repo"
    if value is False:
        return "ask"
    if value is None:
        return "warn"
    if value not in (True, False, "check") and spec.kind != "local":
        raise UsageError(f"trust_repo must be True, False, 'check' or None, not {value!r}", spec=str(spec))
    return "check"


def consent(spec: RepoSpec, request: Request, function: str, ask: Callable[[str], str] | None = None) -> None:
    """torch.hub's gate, before anything is fetched: return if a call from Python may go on with `spec`.

    "warn" warns once per repository and goes on (HUB_TRUST=strict: as "check"); "repo" records the
    repository; "check" asks unless there is a record; "ask" asks.  Where something will be fetched
    (`request.reload`, or it is not there) a record for another commit will do for now: see `consent_to`.
    """
    if spec.kind == "local":
        return
    found = None if request.reload else Cache.current().lookup(spec)
    known = records.known_at_all(spec) if found is None else records.lookup(spec, found.commit) is not None
    if request.trust == "repo":
        if not any(one.url == spec.canonical and one.commit is None for one in records.entries()):
            records.add(spec, None, "python")
    elif request.trust == "ask":
        _ask_as_torch(spec, ask or input)
    else:
        _decide(spec, known, request, function, ask)


def consent_to(checkout: Checkout, request: Request, function: str, ask: Callable[[str], str] | None = None) -> None:
    """The same gate for what was found or fetched: the commit that would run is the one that counts."""
    trees.require_sound(checkout)
    if checkout.kind == "local" or request.trust in ("repo", "ask"):
        return
    _decide(checkout.spec, records.lookup(checkout.spec, checkout.commit) is not None, request, function, ask)


def _decide(spec: RepoSpec, known: bool, request: Request, function: str, ask: Callable[[str], str] | None) -> None:
    setting = settings.current().trust
    if known:
        return
    if request.trust == "warn" and setting != "strict":
        if once.first("untrusted", spec.canonical):
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
        records.add(spec, None, "prompt")
    elif answer in ("", "n", "no"):
        raise UntrustedError("Untrusted repository.", spec=str(spec))
    else:
        raise UsageError(f"Unrecognized response {answer}.", spec=str(spec))


def _say_moved() -> None:
    """Say once that what an older hub recorded in the cache no longer counts."""
    old = paths.hub_dir() / "trust.json"
    if not paths.trust_file().exists() and old.is_file() and once.first("trust.json in the cache"):
        output.message(
            f"{old} no longer counts, for others may write to a cache; to take over what it lists, after a look at it: "
            f"hub trust import {shlex.quote(str(old))}"
        )
