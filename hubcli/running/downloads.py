"""Downloads of entrypoints by other people's functions, stored in hub's cache: recorded, digested, there offline.

`urllib.request.urlretrieve`, `gdown.download` and `huggingface_hub.hf_hub_download` are wrapped once something has
imported them, and for URLs that end as weights do `urllib.request.urlopen` and `requests.get`.  Outside an entrypoint,
and for whatever a wrapper does not understand, they are what they were.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from hubcli.base import paths
from hubcli.cache import weights
from hubcli.errors import NetworkError, NotFoundError
from hubcli.net.storage import huggingface

Original = Callable[..., Any]


def install() -> None:
    """Wrap the functions that are there, and the others when they are imported."""
    for name in _WRAPPERS:
        if name in sys.modules:
            _wrap(sys.modules[name])
    if not any(isinstance(finder, _PatchOnImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _PatchOnImport())


def _wrap(module: ModuleType) -> None:
    for function, wrapper in _WRAPPERS[module.__name__].items():
        original = getattr(module, function, None)
        if original is not None and getattr(original, "hub_original", None) is None:
            _wrap_one(module, function, original, wrapper)


def _wrap_one(module: ModuleType, function: str, original: Original, wrapper: Callable[..., Any]) -> None:
    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if weights.caller.get() is None:
            return original(*args, **kwargs)
        return wrapper(original, *args, **kwargs)

    wrapped.hub_original = original  # type: ignore[attr-defined]
    setattr(module, function, wrapped)
    above = sys.modules.get(module.__name__.rpartition(".")[0])  # a package that shows the function of its module
    if above is not None and getattr(above, function, None) is original:
        setattr(above, function, wrapped)


class _PatchOnImport(MetaPathFinder):
    """Wraps a module's function as soon as it has run."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _WRAPPERS:
            return None
        place = sys.meta_path.index(self)
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            sys.meta_path.insert(place, self)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def executed(module: ModuleType) -> None:
            execute(module)
            _wrap(module)

        spec.loader.exec_module = executed  # type: ignore[method-assign]
        return spec


def _urlretrieve(original: Original, url: Any, filename: Any = None, reporthook: Any = None, data: Any = None) -> Any:
    """`urllib.request.urlretrieve`; the headers are empty."""
    name = unquote(urlsplit(url).path.rpartition("/")[2]) if isinstance(url, str) else ""
    if data is not None or not name or not url.lower().startswith(("http://", "https://")):
        return original(url, filename, reporthook, data)
    from email.message import Message

    weight, path = weights.obtain(url, file_name=Path(filename).name if filename is not None else name)
    if filename is None:
        filename = Path(tempfile.mkdtemp(prefix="hub-"), name)
    paths.copy(path, Path(filename))
    if reporthook is not None:
        reporthook(1, weight.size, weight.size)
    return str(filename), Message()


def _is_weights(url: Any) -> bool:
    """Return whether a URL ends as files of weights do: what an API answers must not come from a cache."""
    if not isinstance(url, str) or not url.lower().startswith(("http://", "https://")):
        return False
    return urlsplit(url).path.lower().endswith(_WEIGHTS)


def _obtained(url: str) -> tuple[int, Path] | None:
    """Size and place of the file of a URL; None where the original says it in the words that its callers know."""
    try:
        weight, path = weights.obtain(url, file_name=unquote(urlsplit(url).path.rpartition("/")[2]))
    except (NetworkError, NotFoundError):
        return None
    return weight.size, path


def _urlopen(original: Original, url: Any, data: Any = None, *args: Any, **kwargs: Any) -> Any:
    """`urllib.request.urlopen` of a plain address, or of a request that says no more than who asks."""
    address = url
    if data is None and not isinstance(url, str) and getattr(url, "data", url) is None:
        address = url.full_url if url.get_method() == "GET" and _says_little(dict(url.header_items())) else None
    got = _obtained(address) if data is None and _is_weights(address) else None
    if got is None:
        return original(url, data, *args, **kwargs)
    from email.message import Message
    from urllib.response import addinfourl

    headers = Message()
    headers["Content-Length"] = str(got[0])
    return addinfourl(got[1].open("rb"), headers, address, 200)


def _requests_get(original: Original, url: Any, params: Any = None, **kwargs: Any) -> Any:
    """`requests.get` of a plain address."""
    given = {name for name, value in kwargs.items() if value is not None}
    plain = given <= {"stream", "timeout", "allow_redirects", "verify", "headers", "proxies"} and not params
    plain = plain and kwargs.get("verify", True) is True and _says_little(kwargs.get("headers") or {})
    got = _obtained(url) if plain and _is_weights(url) else None
    if got is None:
        return original(url, params=params, **kwargs)
    from hubcli.net.http import sessions

    made = sessions.as_answered(url, got[1], got[0])
    if not kwargs.get("stream"):
        _ = made.content
    return made


def _says_little(headers: Any) -> bool:
    """Return whether the headers of a request ask for no part of a file and carry no secret."""
    return isinstance(headers, Mapping) and {str(name).lower() for name in headers} <= {
        "accept",
        "accept-encoding",
        "user-agent",
    }


def _gdown(original: Original, url: Any = None, output: Any = None, *args: Any, **kwargs: Any) -> Any:
    """`gdown.download` of one file: the original fetches it, which knows Google's questions."""
    name = kwargs.get("id") or _drive_id(url)
    if name is None or not isinstance(output, str | os.PathLike) or not Path(output).name or Path(output).is_dir():
        return original(url, output, *args, **kwargs)
    target, address = Path(output), f"https://drive.google.com/uc?id={name}"
    kept = weights.cached_file(address, target.name)
    if kept is None:
        made = original(url, output, *args, **kwargs)
        if made is not None and Path(made).is_file():
            weights.keep(address, target.name, Path(made))
        return made
    paths.copy(kept, target)
    return str(output)


def _drive_id(url: Any) -> str | None:
    """Return the id of a file on Google Drive, from either form of its address."""
    if not isinstance(url, str):
        return None
    parts = urlsplit(url)
    found = parse_qs(parts.query).get("id", [None])[0]
    steps = parts.path.split("/")
    return found or (steps[steps.index("d") + 1] if "d" in steps[:-1] else None)


def _hf_hub_download(original: Original, repo_id: Any = None, filename: Any = None, **kwargs: Any) -> Any:
    """`huggingface_hub.hf_hub_download` of a public model's file; for all else the original."""
    known = {"revision", "subfolder", "library_name", "library_version", "user_agent"}
    given = {name for name, value in kwargs.items() if value is not None}
    if kwargs.get("repo_type") == "model":
        given.discard("repo_type")
    if not (given <= known and isinstance(repo_id, str) and repo_id.count("/") == 1 and isinstance(filename, str)):
        return original(repo_id, filename, **kwargs)
    owner, _, repo = repo_id.partition("/")
    file = f"{kwargs['subfolder']}/{filename}" if kwargs.get("subfolder") else filename
    url = huggingface.address(owner, repo, file, kwargs.get("revision"))
    name = f"{owner}--{repo}--{file.replace('/', '--')}"
    try:
        weights.obtain(url, file_name=name)
    except NotFoundError:  # private, or not there: the library says it in the words that its callers know
        return original(repo_id, filename, **kwargs)
    return str(paths.checkpoints() / name)


_WEIGHTS = tuple(
    (
        ".pth .pt .th .tar .bin .ckpt .safetensors .gguf .onnx .npz .npy .h5 .hdf5 .pkl .pickle .mat .model .params "
        ".weights .zip .gz .tgz .bz2 .xz .7z"
    ).split()
)
_WRAPPERS: dict[str, dict[str, Callable[..., Any]]] = {
    "urllib.request": {"urlretrieve": _urlretrieve, "urlopen": _urlopen},
    "requests.api": {"get": _requests_get},
    "gdown.download": {"download": _gdown},
    "huggingface_hub.file_download": {"hf_hub_download": _hf_hub_download},
}
