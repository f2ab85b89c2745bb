"""torch.hub's functions, by its names and in its order; the engine serves them as `torch.hub`.

They are also the public functions of `hubcli`.  What differs from torch.hub:
`list` and `help` import the hubconf (as there), code of two repositories does not mix, and
`trust_repo=None` warns once per repository instead of asking.
"""

from __future__ import annotations

import functools
import os
import re
from builtins import list as _list
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from urllib.parse import urlparse

from hubcli import output, paths, settings, trust
from hubcli.cache import store, weights
from hubcli.cache.store import Checkout
from hubcli.errors import HubError, IntegrityError, NotFoundError, UsageError, hinting
from hubcli.net import http, huggingface
from hubcli.reading import binding, hubconf
from hubcli.reading.hubconf import missing_callable, near_names
from hubcli.running import checkpoints, invoke
from hubcli.spec import RepoSpec

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
    """The cache folder: `set_dir`, else TORCH_HUB_DIR, else `~/.torch/hub`."""
    return str(paths.hub_dir())


def _get_torch_home() -> str:
    """The folder above `get_dir()`: packages keep files of their own beside the hub's."""
    return str(paths.hub_dir().parent)


def set_dir(d: str | os.PathLike[str]) -> None:
    """Use folder `d` as the cache in this process; `~` is expanded."""
    paths.set_dir(d)


def pull(repo_or_dir: str, *, force_reload: bool = False, verbose: bool = True) -> Checkout:
    """Fetch a repository's code into the cache and return its `Checkout`; nothing is executed."""
    spec = RepoSpec.parse(repo_or_dir)
    with hinting():
        checkout = store.ensure(spec, force_reload=force_reload)
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
    """Names of all callables of a repository's hubconf, which is imported for that.

    `hub list` and `hubcli.reading.hubconf.read` do the same without running code.
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
    """The docstring of entrypoint `model`, or None; the hubconf is imported for that."""
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
    """Call entrypoint `model` of a repository with `*args, **kwargs`; what it returns.

    repo_or_dir: `owner/repo[:ref]`, a URL or a folder (`github=` is accepted for it).  source:
    "github", or "local" for a folder.  force_reload: fetch code and weights anew.  trust_repo: True
    records consent, False asks, "check" asks unless there is a record, None warns once per
    repository.  skip_validation has no effect: that a commit belongs to the repository is checked
    without an API.  framework: "engine", "torch", or "auto", which is torch if the process has
    imported it already.  Exceptions of the entrypoint pass unchanged.
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
    """Load the checkpoint at `url`, from `model_dir` (default: `<hub_dir>/checkpoints`) if it is there.

    A hash of at least 8 hex digits before the extension is always checked; where `check_hash` asks and
    the name has none, the digest is recorded, as of any file.  Files are read without pickle, so that
    `weights_only` matters only where torch itself is the framework.  The URL of an index (`.index.json`) stands for the
    sharded checkpoint: the files that it names are fetched from beside it, and their tensors are one state dict.
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
    """Download `url` to the file `dst`; a failure leaves what was there.

    Raises IntegrityError (a RuntimeError) unless the sha256 begins with `hash_prefix`.  What an entrypoint
    downloads is kept and recorded as weights are, wherever it wants its copy: so it is there offline.
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
        weights.require_prefix(fetched.sha256, hash_prefix, http.public(url))
        if special:
            paths.copy(fetched.path, target)
        else:
            os.replace(fetched.path, target)
    finally:
        fetched.release()


def _copy_from_cache(url: str, target: Path, hash_prefix: str | None, progress: bool) -> None:
    weight, path = weights.obtain(url, progress=progress, file_name=target.name)
    weights.require_prefix(weight.sha256, hash_prefix, http.public(url))
    paths.copy(path, target)


def _check_module_exists(name: str) -> bool:
    """Whether a module of that name can be imported."""
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
    gated = now is not None and now.gated
    known = None
    with hinting():
        if fits is not None and not force_reload and settings.current().lock is None:
            known = store.lookup(spec)
            if known is not None:
                fits(known)
        if gated:  # code that a command runs cannot consent in the user's place
            trust.before_fetch(spec, entrypoint, reload=force_reload)
        else:
            trust.consent(spec, trust_repo, function, reload=force_reload)
        checkout = store.ensure(spec, force_reload=force_reload)
    _say_cached(checkout, verbose)
    if fits is not None and known is None:
        fits(checkout)
    if gated:
        trust.require(checkout, entrypoint)
    else:
        trust.consent_to(checkout, trust_repo, function)
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
