"""The cache: a folder, and what can be done with it.

A `Cache` is passed to whoever works on one; `Cache.current()` is that of the settings.  Verbs import what they need
when they are called: a cache hit loads neither git nor the network.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hubcli.base import paths
from hubcli.base.request import Request
from hubcli.base.spec import RepoSpec
from hubcli.cache import checkouts, leases
from hubcli.cache.checkouts import CachedRepo, Checkout
from hubcli.errors import HubError

if TYPE_CHECKING:
    from hubcli.base.output import Progress
    from hubcli.cache.prune import Pruned
    from hubcli.cache.ref_table import Kind, Published
    from hubcli.cache.removing import Removal
    from hubcli.cache.usage import Usage
    from hubcli.cache.verify import Verified

DAY = 86400.0


class Cache:
    """A cache folder, which need not exist yet."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    @property
    def path(self) -> Path:
        """The folder.  HubError where it is that of the settings and the user has no home: a local spec needs none."""
        if self._path is None:
            self._path = paths.hub_dir()
        return self._path

    @classmethod
    def current(cls) -> Cache:
        """Return the cache of the settings: `set_dir` or --hub-dir, TORCH_HUB_DIR, ~/.torch/hub."""
        return cls()

    def __repr__(self) -> str:
        return f"Cache({str(self.path)!r})"

    def lookup(self, spec: RepoSpec) -> Checkout | None:
        """Return the published tree of `spec`, or None.  No network, no write, no git."""
        return checkouts.local(spec) if spec.kind == "local" else checkouts.lookup(self.path, spec)

    def checkout(self, spec: RepoSpec, request: Request | None = None, *, progress: Progress | None = None) -> Checkout:
        """Return the published tree of `spec`, fetched if it is not there or if `request` asks for it.

        `request.refresh` asks the remote and fetches what is missing.  Under a lock file it is the commit that
        stands there, whatever the ref means now.  A failed reload leaves the old tree in use.  Raises
        OfflineError, NotFoundError, NetworkError, IntegrityError (content that hub refuses, a tag that
        moved), LockMismatchError or LockTimeoutError.
        """
        request = Request.current() if request is None else request
        lock = request.lock
        if lock is None or spec.kind == "local":
            return self._held(spec, request, progress)
        pin = lock.repo(spec)
        found = self._held(spec.at(pin.commit), replace(request, refresh=False), progress)
        found = replace(found, spec=spec, ref=pin.ref, kind=pin.kind, checked_at=None)  # its age does not matter
        pin.verify(found)
        return found

    def _held(self, spec: RepoSpec, request: Request, progress: Progress | None) -> Checkout:
        """Return the tree once this process holds it, so that it stays for as long as the process runs."""
        for last in (False, False, True):
            try:
                checkout = self._found_or_fetched(spec, request, progress)
            except FileNotFoundError as error:
                if last or isinstance(error, HubError):
                    raise
                continue  # somebody has removed the folder that it was to be put in
            if checkout.kind == "local":
                break
            leases.hold(checkout.path, self.path)
            again = self.lookup(spec)
            if again is not None and again.path == checkout.path:
                break
            request = replace(request, reload=False, refresh=False)  # it was removed or replaced before it was held
        return checkout

    def _found_or_fetched(self, spec: RepoSpec, request: Request, progress: Progress | None) -> Checkout:
        if spec.kind == "remote":
            paths.check_owner(self.path)
        anew = (request.reload or request.refresh) and spec.kind == "remote"
        found = None if anew else self.lookup(spec)
        if found is None:
            from hubcli.cache import fetching  # for the weight: git and the network

            return fetching.fetch(self.path, spec, request, progress)
        if found.kind != "local":
            checkouts.touch(found.path)
        elif request.reload:
            from hubcli.cache import weights  # for the weight: the network

            weights.mark_stale(str(spec))
        return found

    def repos(self) -> list[CachedRepo]:
        """Return every cached ref, sorted by spec."""
        return checkouts.repos(self.path)

    def remember(self, spec: RepoSpec, kind: Kind, ref: str, commit: str) -> None:
        """Let `spec` mean `commit`, which is there, unless the cache knows better already."""
        checkouts.remember(self.path, spec, kind, ref, commit)

    def republish(self, spec: RepoSpec, entry: Published) -> None:
        """Replace a damaged generation by a whole one, for every ref that stands at it."""
        from hubcli.cache import fetching

        fetching.republish(self.path, spec, entry)

    def remove(self, spec: RepoSpec, *, dry_run: bool = False) -> Removal:
        """Take a ref of a repository out of the cache, or all its refs where `spec` names none."""
        from hubcli.cache import removing

        return removing.remove(self.path, spec, dry_run=dry_run)

    def prune(self, *, grace: float = DAY, max_size: int | None = None, dry_run: bool = False) -> Pruned:
        """Drop what nothing refers to, then the least recently used until `max_size` bytes are left."""
        from hubcli.cache import prune

        return prune.prune(self.path, grace=grace, max_size=max_size, dry_run=dry_run)

    def verify(self, *, repair: bool = False) -> Verified:
        """Hash every tree and every weight file again; with `repair` put right what differs."""
        from hubcli.cache import verify

        return verify.verify(self.path, repair=repair)

    def usage(self) -> Usage:
        """Return the bytes that the folder takes, by kind."""
        from hubcli.cache import usage

        return usage.measure(self.path)
