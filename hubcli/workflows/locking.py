"""`hub lock`, `hub sync`, `hub outdated`: pin what specs mean now, fetch exactly that, and see what has moved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from hubcli.base import output, settings
from hubcli.base.request import Request
from hubcli.base.spec import RepoSpec
from hubcli.cache import weights
from hubcli.cache.cache import Cache
from hubcli.cache.checkouts import Checkout
from hubcli.cache.lockfile import Lock, Repo, Weights, sorted_lock
from hubcli.cache.ref_table import Kind
from hubcli.errors import HubError, NotFoundError, OfflineError
from hubcli.net.http import secret_scope

_PARALLEL = 4  # files fetched at once


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
    return sorted_lock(lock.path, repos.values(), kept, wanted, lock.wanted_weights)


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


def complete(lock: Lock, request: Request | None = None) -> Lock:
    """Pin what is wanted: the specs at what they mean now, the weights as they are served now."""
    request = replace(request or Request.current(), refresh=not settings.current().offline)
    cache = Cache.current()
    with secret_scope.naming(_own_hosts()):
        checkouts = [cache.checkout(RepoSpec.parse(spec), request) for spec in lock.wanted]
    new = lock_repos(lock, checkouts)
    fetched = _parallel(lambda url: _obtain(url, None, (), request), [url for url in new.wanted_weights])
    known = {(pin.url, pin.file) for pin in new.weights}
    added = [Weights.of(one) for one in fetched if (one.url, one.file) not in known]
    return sorted_lock(new.path, new.repos, [*new.weights, *added])


def _own_hosts() -> frozenset[str]:
    """Return the hosts that the user's settings name: a lock file may be a stranger's, and names no host for a
    token."""
    now = settings.current()
    return secret_scope.hosts(now.git_url.format(host=now.host, owner="o", repo="r"))


def fetch(lock: Lock, request: Request | None = None) -> tuple[weights.Weight, ...]:
    """Fetch exactly the trees and weights of `lock`, the latter in its order; LockMismatchError if they are others."""
    request = replace(request or Request.current(), lock=lock)
    cache = Cache.current()
    with secret_scope.naming(_own_hosts()):
        for one in lock.repos:
            spec = RepoSpec.parse(one.spec)
            cache.checkout(spec, request)
            cache.remember(spec, one.kind, one.ref, one.commit)
        return tuple(_parallel(lambda pin: _obtain(pin.url, pin.file, pin.used_by, request), lock.weights))


def _obtain(url: str, file: str | None, users: Sequence[str], request: Request) -> weights.Weight:
    """Fetch one file in the name of its first user."""
    spec, _, entrypoint = users[0].rpartition("#") if users else ("", "", "")
    token = weights.caller.set(weights.Caller(spec, entrypoint, _own_hosts(), "engine"))
    try:
        return weights.obtain(url, file_name=file, request=request)[0]
    finally:
        weights.caller.reset(token)


Item = TypeVar("Item")
Made = TypeVar("Made")


def _parallel(work: Callable[[Item], Made], items: Sequence[Item]) -> list[Made]:
    if len(items) < 2:
        return [work(item) for item in items]
    with ThreadPoolExecutor(_PARALLEL) as pool:
        return list(pool.map(work, items))


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
        """Return whether the ref is at another commit."""
        return self.current not in (None, self.locked)


def outdated(lock: Lock, specs: Sequence[RepoSpec] = ()) -> tuple[Outdated, ...]:
    """Return the locked specs (all, or these) whose refs are elsewhere now or that have newer tags; asks the
    remotes only."""
    from hubcli.net.git import remote as git

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
