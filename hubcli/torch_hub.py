"""torch.hub's functions, by its names and in its order; the engine serves them as `torch.hub`.

They are also the public functions of `hubcli`.  What differs from torch.hub:
`list` and `help` import the hubconf (as there), code of two repositories does not mix, and
`trust_repo=None` warns once per repository instead of asking.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
from builtins import list as _list
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlparse

from hubcli.base import output, paths
from hubcli.base.request import Request
from hubcli.base.spec import RepoSpec
from hubcli.cache import weight_files, weights
from hubcli.cache.cache import Cache
from hubcli.cache.checkouts import Checkout
from hubcli.errors import HubError, IntegrityError, NotFoundError, UsageError, hinting
from hubcli.net.http import fetch as http
from hubcli.net.storage import huggingface
from hubcli.reading import binding, hubconf
from hubcli.reading.hubconf import missing_callable, near_names
from hubcli.running import checkpoints, frameworks, invoke
from hubcli.trust import gates

__all__ = [
    "HASH_REGEX",
    "download_url_to_file",
    "get_dir",
    "help",
    "list",
    "load",
    "load_state_dict_from_url",
    "load_url",
    "pull",
    "set_dir",
    "urlparse",
]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # model code imports it; ours is stricter

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _takes_github(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """`function`, which may get its first argument as `github=`, the name that it had before torch 1.8."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if not args and "repo_or_dir" not in kwargs and "github" in kwargs:
            kwargs["repo_or_dir"] = kwargs.pop("github")
        return function(*args, **kwargs)

    return call


def get_dir() -> str:
    """Return the cache folder: `set_dir`, else TORCH_HUB_DIR, else `~/.torch/hub`.

    Returns:
        The folder's path; it need not exist yet.

    Raises:
        UsageError: this user has no home folder, and no setting names another.
    """
    return str(paths.hub_dir())


def _get_torch_home() -> str:
    """Return the folder above `get_dir()`: packages keep files of their own beside the hub's."""
    return str(paths.hub_dir().parent)


def set_dir(d: str | os.PathLike[str]) -> None:
    """Use a folder as the cache in this process.

    Args:
        d: The folder; `~` is expanded.

    Raises:
        UsageError: the path is empty, or `~` cannot be expanded.
    """
    paths.set_dir(d)


def pull(repo_or_dir: str, *, force_reload: bool = False, verbose: bool = True) -> Checkout:
    """Fetch a repository's code into the cache; nothing is executed.

    Args:
        repo_or_dir: `owner/repo[:ref]`, a URL or a folder.
        force_reload: Fetch the code anew.
        verbose: Say on stderr what is taken from the cache.

    Returns:
        The `Checkout`: its path, ref, kind and commit.

    Raises:
        HubError: the repository or ref cannot be found, fetched or accepted; `status` and `code` say why.
    """
    spec = RepoSpec.parse(repo_or_dir)
    with hinting():
        checkout = Cache.current().checkout(spec, Request.current(reload=force_reload))
    _say_cached(checkout, verbose)
    return checkout


@_takes_github
def list(
    repo_or_dir: str | os.PathLike[str],
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: bool | str | None = None,
    verbose: bool = True,
    *,
    source: str = "github",
    framework: str = "auto",
) -> _list[str]:
    """Return the names of all callables of a repository's hubconf, which is imported for that.

    `hub list` and `hubcli.reading.hubconf.read` do the same without running code.

    Args:
        repo_or_dir: `owner/repo[:ref]`, a URL or a folder.
        force_reload: Fetch the code anew.
        skip_validation: No effect.
        trust_repo: True records consent, False asks, "check" asks unless there is a record, None warns once per
            repository.
        verbose: Say on stderr what is taken from the cache.
        source: "github", or "local" for a folder.
        framework: "engine", "torch", or "auto", which is torch if the process has imported it already.

    Returns:
        The names.

    Raises:
        HubError: the repository cannot be fetched, or is not trusted.
        Exception: whatever the hubconf raises.
    """
    checkout = _checkout(_path(repo_or_dir), source, force_reload, trust_repo, verbose, "list")
    return [entry.name for entry in invoke.listing(checkout, framework=framework).entrypoints]


@_takes_github
def help(
    repo_or_dir: str | os.PathLike[str],
    model: str,
    force_reload: bool = False,
    skip_validation: bool = False,
    trust_repo: bool | str | None = None,
    *,
    source: str = "github",
    framework: str = "auto",
) -> str | None:
    """Return the docstring of an entrypoint; the hubconf is imported for that.

    Args:
        repo_or_dir: `owner/repo[:ref]`, a URL or a folder.
        model: The entrypoint's name.
        force_reload: Fetch the code anew.
        skip_validation: No effect.
        trust_repo: As in `list`.
        source: "github", or "local" for a folder.
        framework: "engine", "torch", or "auto".

    Returns:
        The docstring, or None where there is none.

    Raises:
        NotFoundError: no entrypoint has that name.
        HubError: the repository cannot be fetched, or is not trusted.
    """
    repo = _path(repo_or_dir)
    if not isinstance(model, str):
        raise UsageError("Invalid input: model should be a string of function name")
    checkout = _checkout(repo, source, force_reload, trust_repo, True, "help")
    found = invoke.listing(checkout, framework=framework).entrypoints
    for entry in found:
        if entry.name == model:
            return entry.doc
    with hinting():
        near = near_names(model, [entry.name for entry in found])
        raise missing_callable(model, near, str(checkout.spec), checkout.renewal())


@_takes_github
def load(
    repo_or_dir: str | os.PathLike[str],
    model: str,
    *args: Any,
    source: str = "github",
    force_reload: bool = False,
    trust_repo: bool | str | None = None,
    verbose: bool = True,
    skip_validation: bool = False,
    framework: str = "auto",
    **kwargs: Any,
) -> Any:
    """Call an entrypoint of a repository and return what it returns.

    Args:
        repo_or_dir: `owner/repo[:ref]`, a URL or a folder (`github=` is accepted for it).
        model: The entrypoint's name.
        *args: Arguments of the entrypoint.
        source: "github", or "local" for a folder.
        force_reload: Fetch code and weights anew.
        trust_repo: True records consent, False asks, "check" asks unless there is a record, None warns once per
            repository.
        verbose: Say on stderr what is taken from the cache.
        skip_validation: No effect: that a commit belongs to the repository is checked without an API.
        framework: "engine", "torch", or "auto", which is torch if the process has imported it already.
        **kwargs: Keyword arguments of the entrypoint.

    Returns:
        The entrypoint's result, usually an `nn.Module`.

    Raises:
        HubError: the repository cannot be fetched, is not trusted, or lacks the entrypoint or a dependency.
        TypeError: the entrypoint's signature does not take the arguments; nothing has run.
        Exception: exceptions of the entrypoint pass unchanged.
    """
    repo = _path(repo_or_dir)
    if not isinstance(model, str):
        raise UsageError("Invalid input: model should be a string of function name")

    def fits(found: Checkout) -> None:
        _require_fit(found, model, args, kwargs)

    checkout = _checkout(repo, source, force_reload, trust_repo, verbose, "load", entrypoint=model, fits=fits)
    with hinting():
        result = invoke.call(checkout, model, args, kwargs, framework=framework, fresh=force_reload)
    return result.value


def load_state_dict_from_url(
    url: str,
    model_dir: str | os.PathLike[str] | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool | None = None,
) -> Any:
    """Load the checkpoint at a URL, from the cache if it is there.

    A hash of at least 8 hex digits before the extension is always checked.  Files are read without pickle.

    Args:
        url: The file's address.  That of an index (`.index.json`) stands for the sharded checkpoint: the files that it
            names are fetched from beside it, and their tensors are one state dict.
        model_dir: A folder for the file; by default `<hub_dir>/checkpoints`.
        map_location: As in `engine.load`.
        progress: Show a bar.
        check_hash: Compare the hash in the name, of 1 digit or more; where the name has none, the digest is recorded.
        file_name: Another name for the file on disk.
        weights_only: Only where torch itself is the framework.

    Returns:
        The state dict, or whatever the file holds.

    Raises:
        IntegrityError: the digest differs from the name's, or from the one that was seen first (a RuntimeError).
        HubError: the file cannot be fetched.
        UnpicklingError: the file is damaged, or names classes that are not allowed.
    """
    index = checkpoints.is_index(url)
    for last in (False, False, True):
        with hinting():
            weight, path = weights.obtain(
                url, model_dir, progress=progress, check_hash=check_hash, file_name=file_name, checkpoint=not index
            )
        try:
            if index:
                return checkpoints.read_sharded(
                    url, path, weight.file, map_location, model_dir=model_dir, progress=progress
                )
            return checkpoints.read_state_dict(path, weight.file, map_location, weights_only=weights_only)
        except FileNotFoundError:  # removed from the cache just now: fetch it again
            if last or path.exists():
                raise
        except IntegrityError as error:
            weights.refused(weight, error)
            raise
    raise AssertionError("unreachable")


load_url = load_state_dict_from_url  # torch.utils.model_zoo


def download_url_to_file(
    url: str,
    dst: str | os.PathLike[str],
    hash_prefix: str | None = None,
    progress: bool = True,
) -> None:
    """Download a URL to a file; a failure leaves what was there.

    What an entrypoint downloads is recorded as weights are, wherever it wants its copy: so it is there offline.

    Args:
        url: The file's address.
        dst: The path to write; a device or pipe is written to, not replaced.
        hash_prefix: Digits with which the sha256 must begin.
        progress: Show a bar.

    Raises:
        IntegrityError: the sha256 begins otherwise (a RuntimeError).
        HubError: the file cannot be fetched.
    """
    target = Path(dst).expanduser()
    if not target.parent.is_dir():
        raise NotFoundError(f"no folder {target.parent} to download to", hint="create it first")
    url = huggingface.resolved(url)
    if weights.caller.get() is not None:
        _copy_from_cache(url, target, hash_prefix, progress)
        return
    special = paths.is_special(target)
    target = target if special else target.resolve()  # behind a link the file is replaced, not the link
    beside = target
    if special:
        beside = paths.partial(paths.ensure_root()) / target.name
        beside.parent.mkdir(parents=True, exist_ok=True)
    fetched = http.fetch(url, beside, progress=progress, expected=hash_prefix)
    try:
        weight_files.require_prefix(fetched.sha256, hash_prefix, http.public(url))
        if special:
            paths.copy(fetched.path, target)
        else:
            os.replace(fetched.path, target)
    finally:
        fetched.release()


def _copy_from_cache(url: str, target: Path, hash_prefix: str | None, progress: bool) -> None:
    weight, path = weights.obtain(url, progress=progress, file_name=target.name)
    weight_files.require_prefix(weight.sha256, hash_prefix, http.public(url))
    paths.copy(path, target)


def _check_module_exists(name: str) -> bool:
    """Return whether a module of that name can be imported."""
    import importlib.util

    return importlib.util.find_spec(name) is not None


def __getattr__(name: str) -> Any:
    """`tqdm`, which code imports from torch.hub and torch.utils.model_zoo."""
    if name == "tqdm":
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return _Progress
        return tqdm
    raise AttributeError(f"module 'torch.hub' has no attribute '{name}'")


class _Progress:
    """tqdm's place where it is not installed: counts without showing."""

    def __init__(self, iterable: Any = None, total: Any = None, **options: Any) -> None:
        self.iterable, self.total, self.n = iterable, total, 0

    def __iter__(self) -> Iterator[Any]:
        return iter(self.iterable)

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def update(self, n: float = 1) -> None:
        """Count on."""
        self.n += n  # type: ignore[assignment]

    def close(self) -> None:
        """Nothing."""

    set_description = set_postfix = write = lambda self, *args, **kwargs: None


def serve_torch() -> None:
    """Let torch's own hub functions be these, in the process of a command that has torch for its framework.

    Else weights would bypass the cache, its checks and its records.  A Python program's torch is
    left as it is.
    """
    frameworks.import_framework("torch")
    modules = (importlib.import_module(f"torch.{name}") for name in ("hub", "utils.model_zoo"))
    for module in modules:
        for name in __all__:
            if hasattr(module, name):
                setattr(module, name, globals()[name])


def _path(value: Any) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        raise UsageError(f"repo_or_dir must be a string, not {value!r}")
    return value


def _checkout(
    repo_or_dir: str,
    source: str,
    force_reload: bool,
    trust_repo: bool | str | None,
    verbose: bool,
    function: str,
    entrypoint: str = "",
    fits: Callable[[Checkout], None] | None = None,
) -> Checkout:
    source = source.lower()
    if source not in ("github", "local"):
        raise UsageError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "local":
        repo_or_dir = os.path.abspath(os.path.expanduser(repo_or_dir))
    spec = RepoSpec.parse(repo_or_dir)
    now = weights.caller.get()
    gated = now is not None and now.gated  # code that a command runs cannot consent in the user's place
    request = Request.current(reload=force_reload)
    if not gated:
        request = replace(request, trust=gates.of_trust_repo(trust_repo, spec))
    known = None
    with hinting():
        if fits is not None and not request.reload and request.lock is None:
            known = Cache.current().lookup(spec)
            if known is not None:
                fits(known)
        if gated:
            gates.before_fetch(spec, request)
        else:
            gates.consent(spec, request, function)
        checkout = Cache.current().checkout(spec, request)
    _say_cached(checkout, verbose)
    if fits is not None and known is None:
        fits(checkout)
    if gated:
        gates.require(checkout, entrypoint, request)
    else:
        gates.consent_to(checkout, request, function)
    return checkout


def _require_fit(checkout: Checkout, model: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise the TypeError of a call that cannot fit before anybody is asked and before anything runs."""
    if not (checkout.path / "hubconf.py").is_file():
        return
    try:
        conf = hubconf.read(checkout.path)
    except HubError:  # running it tells what is wrong with it
        return
    refusal = binding.refusal(checkout.path, conf, model, args, kwargs)
    if refusal is not None:
        refusal.error.add_note(f"hint: {refusal.hint}")
        raise refusal.error


def _say_cached(checkout: Checkout, verbose: bool) -> None:
    if verbose and checkout.cached and checkout.kind != "local":
        output.message(f"Using cache found in {checkout.path}")
