"""Who may execute: `trust.json`, and the two gates in front of repository code.

`require` is the command line's: each commit needs somebody's word.  `consent` is the Python
functions', with torch.hub's `trust_repo`.  A folder of one's own is always trusted.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Literal

from hubcli import output, paths, settings, store
from hubcli.errors import HubError, NotFoundError, UntrustedError, UsageError
from hubcli.spec import RepoSpec
from hubcli.store import Checkout

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
        raise HubError(
            f"{file} cannot be read: {error}", hint="remove it; every consent is asked for again"
        ) from None


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
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    new = Trusted(_repo(spec), spec.repository, commit, when, how)
    with store.exclusive("trust", "the list of trusted repositories"):
        kept = [one for one in entries() if (one.repo, one.commit) != (new.repo, commit)]
        _write([*kept, new])
    return new


def remove(spec: RepoSpec, commit: str | None = None) -> tuple[Trusted, ...]:
    """Take back the consent for the repository: all of it, or that for one commit."""
    with store.exclusive("trust", "the list of trusted repositories"):
        everything = entries()
        gone = tuple(
            one
            for one in everything
            if one.repo == _repo(spec) and (commit is None or one.commit == commit)
        )
        if not gone:
            raise NotFoundError(
                f"{spec} is not trusted", hint="`hub trust ls` lists what is", spec=str(spec)
            )
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

    `option` is --trust; without one HUB_TRUST counts, then a record, then the answer of whoever
    sits at the terminal.
    """
    if checkout.kind == "local":
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
    if choice == "once" or any(
        one.repo == _repo(checkout.spec) and one.commit == commit for one in entries()
    ):
        return
    add(checkout.spec, commit, how)


def _ask(checkout: Checkout, entrypoint: str) -> str:
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise _untrusted(checkout)
    what = f"'{entrypoint}' of " if entrypoint else ""
    sys.stderr.write(
        output.printable(
            f"{what}{checkout.spec} ({checkout.kind} {checkout.ref}, commit {checkout.commit}) "
            f"runs code on this machine.\nIts code is in {checkout.path}\n"
            "Allow it [o]nce, for this [c]ommit, for this [r]epository, or [N]ot? "
        )
    )
    sys.stderr.flush()
    answer = sys.stdin.readline().strip().lower()
    for choice in settings.TRUST_CHOICES:
        if answer and choice.startswith(answer):
            return choice
    raise _untrusted(checkout)


def _untrusted(checkout: Checkout) -> UntrustedError:
    return UntrustedError(
        f"{checkout.spec} at commit {checkout.commit} is not trusted to run code",
        hint=f"read it in {checkout.path}, then allow it: "
        f"hub trust add {checkout.spec} --commit (or run again with --trust once)",
        spec=str(checkout.spec),
    )


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
        raise UsageError(
            f"trust_repo must be True, False, 'check' or None, not {trust_repo!r}", spec=str(spec)
        )
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
