"""Settings, computed at every call: command-line option > environment > config.toml > default.

Nothing is read at import time: a program that changes `os.environ` after `import hubcli` is obeyed.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubcli.errors import UsageError

if TYPE_CHECKING:
    from hubcli.cache.lockfile import Lock

FRAMEWORKS = ("engine", "torch")
TRUST_CHOICES = ("once", "commit", "repo")
SCHEMES = ("https", "ssh", "http", "file")
MIRRORS = ("https", "http", "s3", "file")
HUGGING_FACE = ("huggingface.co", "hf.co")

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


@dataclass(frozen=True)
class Settings:
    """Every setting that the rest of `hubcli` obeys; `current()` makes one."""

    hub_dir: Path | None = None
    git_url: str = "https://{host}/{owner}/{repo}.git"
    host: str = "github.com"
    rewrite: tuple[tuple[str, str], ...] = ()
    mirror: str | None = None
    allow_protocols: tuple[str, ...] = ("https", "ssh")
    token: str | None = None
    hf_endpoint: str | None = None
    hf_token: str | None = None
    offline: bool = False
    lock_timeout: float = 600.0
    framework: str = "engine"
    trust: str | None = None
    debug: bool = False
    size_limit: int | None = None
    lfs: bool = False
    quiet: bool = False
    verbose: bool = False
    json: bool = False
    accept_changed: bool = False
    allow_missing: bool = False
    allow: tuple[str, ...] = ()  # classes that checkpoints may name
    lock: Lock | None = None

    def __repr__(self) -> str:
        secret = ("token", "hf_token")
        shown = (f"{name}={'***' if name in secret and value else repr(value)}" for name, value in vars(self).items())
        return f"Settings({', '.join(shown)})"


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{where} must be a string, not {value!r}")
    return value


def _stripped(value: Any, where: str) -> str:
    return _text(value, where).strip()


def _secret(value: Any, where: str) -> str | None:
    """Return a token without the white space that a file or a shell has left around it; None where nothing else is
    there.

    The value is shown in no error.
    """
    if not isinstance(value, str):
        raise UsageError(f"{where} must be a string")
    token = value.strip()
    if any(not "!" <= character <= "~" for character in token):
        raise UsageError(
            f"{where} has white space or other characters in the middle that no token has",
            hint="set it to the token alone, on one line",
        )
    return token or None


def expanded(path: str | os.PathLike[str]) -> Path:
    """`path` with `~` expanded; UsageError where this user has no home."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise _homeless(f"{os.fspath(path)} is nowhere") from None


def _homeless(what: str) -> UsageError:
    return UsageError(f"{what}: this user has no home folder", hint="set HOME to a folder of your own")


def _folder(value: Any, where: str) -> Path:
    if not value:  # which Path takes for the working folder
        raise UsageError(f"{where} is empty")
    return expanded(_text(value, where))


def _flag(value: Any, where: str) -> bool:
    if isinstance(value, bool):
        return value
    lowered = _text(value, where).strip().lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise UsageError(f"{where} must be on or off, not {value!r}", hint="use 1 or 0")


def _seconds(value: Any, where: str) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0.0 <= seconds < float("inf"):
        raise UsageError(f"{where} must be a number of seconds, not {value!r}")
    return seconds


def _choice(*choices: str) -> Callable[[Any, str], str]:
    def parse(value: Any, where: str) -> str:
        if value not in choices:
            raise UsageError(f"{where} must be one of {', '.join(choices)}, not {value!r}")
        return str(value)

    return parse


def _names(value: Any, where: str) -> tuple[str, ...]:
    parts = value if isinstance(value, list) else _text(value, where).split(",")
    return tuple(_text(part, where).strip() for part in parts if str(part).strip())


def _protocols(value: Any, where: str) -> tuple[str, ...]:
    names = tuple(name.lower() for name in _names(value, where))
    for name in names:
        if name not in SCHEMES:
            raise UsageError(f"{where} lists {name!r}; hub speaks {', '.join(SCHEMES)} only")
    return names


def _rewrites(value: Any, where: str) -> tuple[tuple[str, str], ...]:
    if isinstance(value, dict):
        return tuple((_text(old, where), _text(new, where)) for old, new in value.items())
    pairs = []
    for part in _names(value, where):
        old, equals, new = part.partition("=")
        if not (old and equals and new):
            raise UsageError(
                f"{where}: {part!r} is not FROM=TO",
                hint="e.g. https://github.com/=https://mirror.example/github/",
            )
        pairs.append((old, new))
    return tuple(pairs)


def mirror_address(value: Any, where: str) -> str:
    """Return the address of a mirror without a last `/`; a folder becomes a file: URL."""
    text = _text(value, where).strip().rstrip("/")
    scheme, separator, rest = text.partition("://")
    if not separator and (os.path.isabs(text) or text.startswith("~")):
        return expanded(text).as_uri()
    host = rest.partition("/")[0]
    if scheme not in MIRRORS or not (host or scheme == "file") or not text.isprintable() or "?" in text or "#" in text:
        raise UsageError(
            f"{where}: {text[:200]!r} is no mirror",
            hint="e.g. https://mirror.example/hub, s3://bucket/hub, or an absolute path",
        )
    if "@" in host:
        raise UsageError(f"{where} carries credentials", hint="leave them out; put them into ~/.netrc")
    check_address(text)
    return text


def _endpoint(value: Any, where: str) -> str | None:
    """Return the address of a server like huggingface.co, without a last `/`; None where it is huggingface.co
    itself."""
    from urllib.parse import urlsplit

    text = _text(value, where).strip().rstrip("/")
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("https", "http") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or not text.isprintable() or " " in text or "?" in text or "#" in text:
        raise UsageError(f"{where}: {text[:200]!r} is no address of a server", hint="e.g. https://hf-mirror.example")
    if "@" in parts.netloc:
        raise UsageError(f"{where} carries credentials", hint="leave them out; set HF_TOKEN, or use ~/.netrc")
    return None if (parts.scheme, parts.netloc.lower(), parts.path) == ("https", HUGGING_FACE[0], "") else text


def _template(value: Any, where: str) -> str:
    template = _stripped(value, where)
    try:
        template.format(host="h", owner="o", repo="r")
    except (KeyError, IndexError, ValueError) as error:
        raise UsageError(f"{where}: {template!r} is not a template: {error}") from None
    if "{owner}" not in template or "{repo}" not in template:
        raise UsageError(f"{where}: {template!r} must contain {{owner}} and {{repo}}")
    return template


_Parser = Callable[[Any, str], Any]

# setting -> (environment variable, parser); config.toml uses the setting's own name
_SOURCES: Mapping[str, tuple[str, _Parser]] = {
    "hub_dir": ("TORCH_HUB_DIR", _folder),
    "git_url": ("HUB_GIT_URL", _template),
    "host": ("HUB_HOST", _stripped),
    "rewrite": ("HUB_REWRITE", _rewrites),
    "mirror": ("HUB_MIRROR", mirror_address),
    "allow_protocols": ("HUB_ALLOW_PROTOCOLS", _protocols),
    "token": ("HUB_TOKEN", _secret),
    "hf_endpoint": ("HF_ENDPOINT", _endpoint),
    "hf_token": ("HF_TOKEN", _secret),
    "offline": ("HUB_OFFLINE", _flag),
    "lock_timeout": ("HUB_LOCK_TIMEOUT", _seconds),
    "framework": ("HUB_FRAMEWORK", _choice(*FRAMEWORKS)),
    "trust": ("HUB_TRUST", _choice(*TRUST_CHOICES, "strict")),
    "debug": ("HUB_DEBUG", _flag),
}

_overrides: dict[str, Any] = {}


def override(**values: Any) -> None:
    """Set process-wide values that win over environment and config.toml; None withdraws one."""
    for name, value in values.items():
        if name not in Settings.__dataclass_fields__:
            raise TypeError(f"no setting named {name!r}")
        if value is None:
            _overrides.pop(name, None)
        else:
            _overrides[name] = value


def use_hub_dir(folder: Path) -> None:
    """Use `folder` as the cache of this process from now on, as `set_dir` promises."""
    override(hub_dir=folder)


def inherit(**values: Any) -> None:
    """Take over what holds in the process that has started this one: the global options of its command line."""
    override(**values)


@contextlib.contextmanager
def overriding(**values: Any) -> Iterator[None]:
    """`override` for the length of a `with` block; what is set inside is withdrawn at its end."""
    before = dict(_overrides)
    try:
        override(**values)
        yield
    finally:
        _overrides.clear()
        _overrides.update(before)


def config_file() -> Path:
    """Return where config.toml is looked for: the user's config folder of this platform.  UsageError without a home."""
    if sys.platform == "linux" and "ANDROID_DATA" not in os.environ:
        # what platformdirs says in the plain cases; it would import a tenth of what `hub list` imports
        folder, home = os.environ.get("XDG_CONFIG_HOME", ""), os.environ.get("HOME", "")
        if folder[:1] == "/":
            return Path(folder, "hubcli", "config.toml")
        if home[:1] == "/":
            return Path(home.rstrip("/") or "/", ".config", "hubcli", "config.toml")
    import platformdirs

    try:
        return platformdirs.user_config_path("hubcli", appauthor=False) / "config.toml"
    except RuntimeError:
        raise _homeless("there is no place for settings") from None


@lru_cache(maxsize=4)
def _read_config(path: Path, mtime_ns: int, size: int) -> Mapping[str, Any]:
    import tomllib

    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    unknown = sorted(set(document) - set(_SOURCES))
    if unknown:
        raise UsageError(f"{path}: no setting named {unknown[0]!r}", hint=f"known: {', '.join(_SOURCES)}")
    return document


def current() -> Settings:
    """Return the settings as they are now."""
    config: Mapping[str, Any] = {}
    try:
        path = config_file()
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError, UsageError):  # without a home there is no such file
        path = Path("config.toml")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    else:
        if not stat.S_ISREG(status.st_mode):  # a pipe would keep us waiting
            raise UsageError(f"{path} is no plain file", hint="remove it, or write settings into it")
        config = _read_config(path, status.st_mtime_ns, status.st_size)
    values = dict(_overrides)
    for name, (variable, parse) in _SOURCES.items():
        if name in values:
            continue
        if os.environ.get(variable):
            values[name] = parse(os.environ[variable], variable)
        elif name in config:
            values[name] = parse(config[name], f"{path}: {name}")
    return Settings(**values)


def rewrite_url(url: str) -> str:
    """`url` after the first matching HUB_REWRITE prefix, else at HF_ENDPOINT where it is one of Hugging Face's.

    Unchanged where neither matches.
    """
    now = current()
    for old, new in now.rewrite:
        if url.startswith(old):
            return _below(new, url[len(old) :], "HUB_REWRITE")
    if now.hf_endpoint is not None:
        for host in HUGGING_FACE:
            if url.startswith(f"https://{host}/"):
                return _below(f"{now.hf_endpoint}/", url[len(f"https://{host}/") :], "HF_ENDPOINT")
    return url


def is_hugging_face(url: str) -> bool:
    """Return whether `url` is at Hugging Face, or at the server of HF_ENDPOINT."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    endpoint = urlsplit(current().hf_endpoint or f"https://{HUGGING_FACE[0]}")
    here = (parts.scheme, parts.netloc.lower())
    return here == (endpoint.scheme, endpoint.netloc.lower()) or here in [("https", host) for host in HUGGING_FACE]


def _below(target: str, rest: str, where: str) -> str:
    """`target` and `rest` joined and normalised; UsageError where `..` leads out of the target."""
    path, mark, query = rest.partition("?")
    if ".." in path or "%" in path:
        from posixpath import normpath
        from urllib.parse import quote, unquote

        plain = unquote(unquote(path)).replace("\\", "/")
        if ".." in plain.split("/"):
            path = normpath(plain.lstrip("/"))
            if path.split("/")[0] == "..":
                raise UsageError(
                    f"{where}: {rest[:200]!r} leads out of {target}",
                    hint="a mirror serves what is below its own address",
                )
            path = quote(path)
    return f"{target}{path}{mark}{query}"


def check_scheme(url: str) -> None:
    """Raise UsageError unless HUB_ALLOW_PROTOCOLS lists the scheme of `url` (after rewriting)."""
    allowed = current().allow_protocols
    scheme, separator, _ = url.partition("://")
    scheme = scheme.lower()
    if not separator:
        raise UsageError(f"{url} has no scheme", hint=f"begin it with one of {', '.join(allowed)}")
    check_address(url)
    if scheme not in allowed:
        raise UsageError(
            f"protocol {scheme} is not allowed: {url}",
            hint=f"set HUB_ALLOW_PROTOCOLS={','.join((*allowed, scheme))}"
            if scheme in SCHEMES
            else f"hub speaks {', '.join(SCHEMES)} only",
        )


def check_address(url: str) -> None:
    """Raise UsageError for a URL whose host or port cannot be understood, such as `http://[::1/`."""
    import re
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        _ = parts.port
        if re.search(r"\][^:]", parts.netloc):
            raise ValueError("something follows the brackets")
    except ValueError as error:
        shown = url.partition("://")[2].partition("/")[0].rpartition("@")[2]
        raise UsageError(f"{shown!r} is no host: {error}", hint="an IPv6 address is written [::1]:8080") from None
