"""The child of `sandbox`: confines itself, then runs one job; what it needs, the parent fetches.

Before foreign code runs, the functions that would use the network or the cache are replaced by ones
that ask the parent; the child has neither.  Those replacements serve code that means well.  What
holds back code that does not is the kernel.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import os
import shutil
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, NoReturn

_NETWORK_EVENTS = ("socket.getaddrinfo", "socket.gethostbyname", "socket.connect")
_NETWORK_ERRORS = set(
    "builtins.ConnectionError builtins.TimeoutError socket.gaierror socket.herror urllib.URLError http.HTTPException "
    "requests.RequestException urllib3.HTTPError httpx.TransportError aiohttp.ClientError".split()
)
_UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENETDOWN)


@dataclass(frozen=True)
class Given:
    """A file that the parent has fetched, as `http.Fetched` describes one."""

    path: Path
    url: str
    size: int
    sha256: str
    etag: str | None

    def release(self) -> None:
        """Delete what is left of it."""
        self.path.unlink(missing_ok=True)


class Parent:
    """The pipes to the parent."""

    def __init__(self, request_in: int, reply_out: int) -> None:
        self.request_in, self.reply_out = request_in, reply_out

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message, as length and JSON."""
        text = json.dumps(message, default=str).encode()
        whole = memoryview(struct.pack("<I", len(text)) + text)
        while whole:
            whole = whole[os.write(self.request_in, whole) :]

    def ask(self, kind: str, **values: Any) -> dict[str, Any]:
        """Ask for something and wait for it; raises the HubError that the parent answers with."""
        from hubcli import errors
        from hubcli.cache import weights

        now = weights.caller.get()
        who = {} if now is None else {"spec": now.spec, "entrypoint": now.entrypoint}
        self.send({**who, **values, "ask": kind})
        answer = json.loads(self._read(*struct.unpack("<I", self._read(4))))
        if "error" in answer:
            raise errors.as_error(answer["error"])
        value: dict[str, Any] = answer["answer"]
        return value

    def _read(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            part = os.read(self.reply_out, count - len(parts))
            if not part:
                raise EOFError("the parent has gone")
            parts += part
        return bytes(parts)


def main(inbox: str, request_in: int, reply_out: int) -> NoReturn:
    """Run the job in `inbox/job.json`; nothing of the process survives, whatever the code left."""
    parent = Parent(request_in, reply_out)
    try:
        _run(parent, json.loads(Path(inbox, "job.json").read_text(encoding="utf-8")))
    except SystemExit as error:  # of our own code: there is none
        parent.send({"error": {"message": f"exit {error.code}"}})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _run(parent: Parent, document: Mapping[str, Any]) -> None:
    from hubcli.confined import restrict

    wanted = document["confinement"]
    limits = restrict.Limits(**wanted["limits"])
    lists = {name: tuple(wanted[name]) for name in ("layers", "read", "write", "devices", "listed")}
    if lists["layers"]:
        try:
            restrict.apply(restrict.Confinement(**lists, limits=limits))
        except (OSError, ValueError) as error:
            parent.send({"error": {"message": f"the sandbox could not be set up: {error}"}})
            return
    parent.send({"event": {"stage": "", "status": "ready"}})
    attempts: list[str] = []  # the hosts that code tried to reach
    if document["brokered"]:
        sys.addaudithook(_recorder(attempts))

    from hubcli import errors
    from hubcli.base import request, settings
    from hubcli.confined import jobs
    from hubcli.errors import HubError, NeedsNetworkError, RepositoryCodeError

    given = document["settings"]
    settings.inherit(**{name: given[name] or None for name in ("quiet", "verbose", "debug")})
    wanted = request.Request(allow_missing=given["allow_missing"], allow=tuple(given["allow"]))
    if document["brokered"]:
        _replace(parent, Path(document["scratch"]))
    elif document["lock"] is not None:
        from hubcli.cache import lockfile

        wanted = replace(wanted, lock=lockfile.loads(Path("hub.lock"), document["lock"].encode()))
    request.establish(wanted)
    job = jobs.Job.of(document["job"])
    sys.argv = [str(job.checkout.path / "hubconf.py")]  # also for what runs on when the call has ended
    report = lambda event: parent.send({"event": event})
    try:
        result = jobs.perform(job, Path(document["inbox"]), Path(document["scratch"]), report)
    except HubError as error:
        if settings.current().debug:
            import traceback

            traceback.print_exception(error)
        if type(error) is RepositoryCodeError and _wanted_network(error, bool(attempts)):
            error = NeedsNetworkError(
                f"{error.message} (it tried to reach {attempts[-1] if attempts else 'the network'})",
                hint="a sandbox has no network; --no-sandbox runs the code with it",
                spec=error.spec,
                causes=error.causes,
            )
        parent.send({"error": errors.as_document(error)})
        return
    except KeyboardInterrupt:
        parent.send({"error": {"message": "interrupted"}})
        return
    except Exception as error:  # ours: the repository's were made HubErrors
        import traceback

        traceback.print_exception(error)
        text = f"{type(error).__name__}: {error}"
        parent.send({"error": {"code": "internal", "message": text}})
        return
    parent.send({"result": result})


def _recorder(attempts: list[str]) -> Callable[[str, tuple[Any, ...]], None]:
    """Return an audit hook that notes where code tried to connect; it hinders nothing."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _NETWORK_EVENTS and len(attempts) < 8:
            with contextlib.suppress(Exception):
                if event == "socket.connect":
                    if isinstance(arguments[1], tuple):
                        attempts.append(":".join(map(str, arguments[1][:2])))
                else:
                    attempts.append(_name(arguments[0]))

    return hook


def _wanted_network(error: BaseException, tried: bool) -> bool:
    """Return whether an error says that the network is missing, and not something else after some attempt.

    Libraries raise their own kinds from a socket's OSError, or catch it and then miss the file that should have come.
    """
    seen: set[int] = set()
    current: BaseException | None = error.__cause__
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        kinds = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(current).__mro__}
        if kinds & _NETWORK_ERRORS or getattr(current, "errno", None) in _UNREACHABLE:
            return True
        if tried and isinstance(current, FileNotFoundError):
            return True
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return False


def _name(host: object) -> str:
    return host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)


def _replace(parent: Parent, scratch: Path) -> None:
    """Let the functions that fetch send their requests to the parent."""
    from hubcli.base import paths
    from hubcli.cache import weights
    from hubcli.cache.cache import Cache
    from hubcli.cache.checkouts import Checkout
    from hubcli.confined import jobs
    from hubcli.net.http import fetch as http
    from hubcli.trust import gates

    own_obtain, own_checkout = weights.obtain, Cache.checkout

    def obtain(
        url: str,
        model_dir: Any = None,
        *,
        progress: bool = True,
        check_hash: bool = False,
        file_name: str | None = None,
        checkpoint: bool = False,
        request: Any = None,
    ) -> tuple[weights.Weight, Path]:
        """`weights.obtain`: the parent's file, unless `model_dir` holds one already."""
        if model_dir is not None:
            name = file_name or url.partition("?")[0].rpartition("/")[2]
            if Path(model_dir, name).is_file():
                return own_obtain(url, model_dir, progress=progress, check_hash=check_hash, file_name=file_name)
        answer = parent.ask(
            "weights", url=url, progress=progress, check_hash=check_hash, file_name=file_name, checkpoint=checkpoint
        )
        weight, path = jobs.as_weight(answer["weight"]), Path(answer["path"])
        if model_dir is not None:  # code may look there afterwards; if it cannot be, so be it
            with contextlib.suppress(OSError):
                os.makedirs(model_dir, exist_ok=True)
                os.symlink(path, Path(model_dir, weight.file))
        now = weights.caller.get()
        if now is not None:
            now.used.append(weight)
        return weight, path

    def fetch(
        url: str,
        beside: Path,
        *,
        refuse_html: bool = False,
        progress: bool = True,
        expected: str | None = None,
        **others: Any,
    ) -> Given:
        """`http.fetch`: a copy of what the parent fetched."""
        answer = parent.ask("fetch", url=url, refuse_html=refuse_html, progress=progress, expected=expected)
        own = beside.with_name(f"{beside.name}.{os.urandom(4).hex()}.partial")
        shutil.copyfile(answer["path"], own)
        return Given(own, url, answer["size"], answer["sha256"], answer["etag"])

    def checkout(cache: Cache, spec: Any, request: Any = None, **others: Any) -> Checkout:
        """`Cache.checkout`: a folder stays one's own, a repository comes from the parent."""
        if spec.kind == "local":
            return own_checkout(cache, spec)
        answer = parent.ask("checkout", spec=str(spec), force_reload=request is not None and request.reload)
        return jobs.as_checkout(answer)

    def urlretrieve(url: Any, filename: Any = None, reporthook: Any = None, data: Any = None) -> tuple[str, Any]:
        """`urllib.request.urlretrieve`; the headers are empty."""
        import email.message

        if not isinstance(url, str) or data is not None:
            found: tuple[str, Any] = originals[0](url, filename, reporthook, data)
            return found
        target = Path(filename) if filename is not None else scratch / os.urandom(8).hex()
        given = fetch(url, scratch / os.urandom(8).hex())
        paths.copy(given.path, target)
        given.path.unlink()
        if reporthook is not None:
            reporthook(1, given.size, given.size)
        return str(target), email.message.Message()

    weights.obtain = obtain
    Cache.checkout = checkout  # type: ignore[method-assign, assignment]
    # the parent asks before it fetches, and before it gives the checkout
    gates.require = lambda *rest, **more: None
    gates.before_fetch = lambda *rest, **more: None
    http.fetch = fetch  # type: ignore[assignment]

    def change(module: Any) -> None:
        originals.append(module.urlretrieve)
        module.urlretrieve = urlretrieve

    originals: list[Any] = []
    _when_imported("urllib.request", change)


def _when_imported(name: str, change: Callable[[Any], None]) -> None:
    """Change module `name` once something imports it: importing it here would cost time."""
    if name in sys.modules:
        change(sys.modules[name])
        return

    class PatchOnImport(MetaPathFinder):
        def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
            if fullname != name:
                return None
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(fullname)
            if spec is not None and spec.loader is not None:
                execute = spec.loader.exec_module

                def changed(module: Any) -> None:
                    execute(module)
                    change(module)

                spec.loader.exec_module = changed  # type: ignore[method-assign]
            return spec

    sys.meta_path.insert(0, PatchOnImport())
