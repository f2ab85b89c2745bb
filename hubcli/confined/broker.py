"""The parent's responses to a sandboxed child that needs weights, files or nested repositories, by hub's policy.

The child names URLs and specs; this side, which has the network and the cache, applies the rules of
any other download (schemes, rewrites, offline, hashes, whom the token is for), and of any other
repository (trust), and puts what was found into the child's inbox.  Requests are hostile input.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hubcli.base import settings
from hubcli.base.request import Request
from hubcli.base.spec import RepoSpec
from hubcli.cache import weights
from hubcli.cache.cache import Cache
from hubcli.cache.checkouts import Checkout
from hubcli.cache.weights import Weight
from hubcli.confined import jobs
from hubcli.errors import HubError, UsageError
from hubcli.net.http import fetch as http
from hubcli.net.http import secret_scope
from hubcli.running import checkpoints, invoke
from hubcli.trust import gates

MAX_REQUESTS = 256
_asking = threading.Lock()  # one question at a time on the terminal


class Broker:
    """The services of one child; `weights` are the files that it was given."""

    def __init__(
        self,
        checkout: Checkout,
        entrypoint: str,
        *,
        framework: str = "engine",
        fresh: bool = False,
        inbox: Path | None = None,
    ) -> None:
        self.checkout = checkout
        self.entrypoint = entrypoint
        self.framework = framework
        self.fresh = fresh
        self.inbox = inbox
        self.weights: list[Weight] = []
        self._checkouts = {str(checkout.spec): checkout}
        self._asked = self._placed = 0

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Do what is asked; raises HubError, which goes back to the child."""
        self._asked += 1
        if self._asked > MAX_REQUESTS:
            raise HubError(f"more than {MAX_REQUESTS} requests in one call")
        kind = request.get("ask")
        with secret_scope.naming(invoke.hosts(self.checkout)):
            return self._answer(kind, request)

    def _answer(self, kind: object, request: Mapping[str, Any]) -> dict[str, Any]:
        if kind == "weights":
            return self._weights(request)
        if kind == "fetch":
            return self._fetch(request)
        if kind == "checkout":
            return self._checkout(request)
        raise UsageError(f"a sandboxed process may not ask for {str(kind)[:40]!r}")

    def _weights(self, request: Mapping[str, Any]) -> dict[str, Any]:
        url = _url(request)
        name = request.get("file_name")
        with self._on_behalf(request) as now:
            weight, path = weights.obtain(
                url,
                progress=request.get("progress") is True,
                check_hash=request.get("check_hash") is True,
                file_name=name if isinstance(name, str) else None,
            )
            if request.get("checkpoint") is True:
                checkpoints.require_checkpoint(weight, path, checkpoints.permitted(self.checkout))
        self.weights += now.used
        return {"weight": jobs.weight_document(weight), "path": str(self._give(path, weight.file))}

    def _fetch(self, request: Mapping[str, Any]) -> dict[str, Any]:
        url = _url(request)
        expected = request.get("expected")
        with self._on_behalf(request):
            fetched = http.fetch(
                url,
                self._place("download"),
                refuse_html=request.get("refuse_html") is True,
                progress=request.get("progress") is True,
                expected=expected if isinstance(expected, str) else None,
            )
        path = self._place("download")
        try:
            os.replace(fetched.path, path)
        finally:
            fetched.release()
        return {
            "path": str(path),
            "size": fetched.size,
            "sha256": fetched.sha256,
            "etag": fetched.etag,
        }

    def _checkout(self, request: Mapping[str, Any]) -> dict[str, Any]:
        spec = RepoSpec.parse(_text(request, "spec"))
        if spec.kind == "local" or spec.repository.startswith("file:"):
            raise UsageError(f"{spec}: a sandboxed process reads no other folder of this machine")
        entrypoint = str(request.get("entrypoint") or "")[:200]
        wanted = Request.current(reload=request.get("force_reload") is True)
        with _asking:
            gates.before_fetch(spec, wanted)
        checkout = Cache.current().checkout(spec, wanted)
        with _asking:
            gates.require(checkout, entrypoint, wanted)
        self._checkouts[str(spec)] = checkout
        place = self._place("checkout")
        shutil.copytree(checkout.path, place, symlinks=True, copy_function=_link)
        return jobs.checkout_document(checkout) | {"path": str(place)}

    @contextlib.contextmanager
    def _on_behalf(self, request: Mapping[str, Any]) -> Iterator[weights.Caller]:
        """Name who uses the weights: this spec, or a nested one that was handed out."""
        spec, entrypoint = str(request.get("spec")), request.get("entrypoint")
        checkout = self._checkouts.get(spec, self.checkout)
        now = weights.Caller(
            str(checkout.spec),
            entrypoint[:200] if isinstance(entrypoint, str) else self.entrypoint,
            invoke.hosts(self.checkout),  # the user's own choice, also for what nested code asks
            self.framework,
            self.fresh,
            gated=True,
        )
        token = weights.caller.set(now)
        try:
            yield now
        finally:
            weights.caller.reset(token)

    def _give(self, path: Path, name: str) -> Path:
        """Return a file of the cache, in the inbox."""
        folder = self._place("weights")
        folder.mkdir()
        _link(path, folder / name)
        return folder / name

    def _place(self, kind: str) -> Path:
        assert self.inbox is not None
        self._placed += 1
        return self.inbox / f"{kind}-{self._placed}"


def _link(source: str | Path, target: str | Path) -> None:
    """The same file under another name; where that cannot be, a copy."""
    try:
        os.link(os.path.realpath(source), target)
    except OSError:
        shutil.copyfile(source, target)


def _url(request: Mapping[str, Any]) -> str:
    """Return a URL of the network: files of this machine are named by the user's own HUB_REWRITE alone."""
    url = _text(request, "url")
    if not url.isprintable() or " " in url:
        raise UsageError(f"{url[:200]!r} is no URL")
    if url.lstrip().lower().startswith("file:"):
        raise UsageError(f"{url[:200]}: a sandboxed process reads no other file of this machine")
    settings.rewrite_url(url)
    return url


def _text(request: Mapping[str, Any], name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str) or len(value) > 4096:
        raise UsageError(f"a sandboxed process asked without a proper {name}")
    return value
