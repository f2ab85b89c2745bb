"""RepoSpec: what a user writes to name a repository, parsed and validated part by part.

`owner/repo[:ref]`, `host/owner/repo[:ref]`, `https|ssh|http|file://...[@ref]`, or a folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Self
from urllib.parse import quote, unquote, urlsplit

from hubcli.base import settings
from hubcli.errors import NotFoundError, UsageError

_HINT = "write owner/repo[:ref], host/owner/repo[:ref], a URL[@ref], or a folder such as ./dir"
# patterns are compiled where they are used: no command needs them all
_HOST = r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]{2,45}\])(:[0-9]{1,5})?\Z"
_NAME = r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,99}\Z"
_USER = r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z"
_URL = r"([A-Za-z][A-Za-z0-9+.-]*)://"
_URL_PATH = r"[A-Za-z0-9_.~%/+-]+\Z"
_PLAIN = r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+(:[^@]*)?\Z"
_COMMIT = r"[0-9a-f]{40}([0-9a-f]{24})?\Z"  # by SHA-1, or by SHA-256
_SCP = r"([^:/]*)@(\[[^\]]*\]|[^:/\[]*)(?:[:/](.*))?\Z"
# what to do with a file that stands where a repository is expected, by its suffix
_SHOW = "`hub show {0}` describes it"
_FILES = {
    ".gguf": f"{_SHOW}, `hub run {{0}} --prompt TEXT` generates text with it",
    ".safetensors": f"{_SHOW}, `hub run {{0}} --prompt TEXT` generates text with a model that it belongs to",
    ".onnx": f"{_SHOW}, `hub run {{0}} --input FILE` runs it",
    ".pt": f"{_SHOW}, `hub run {{0}} --input FILE` runs it where it is a TorchScript archive",
    ".pth": _SHOW,
    ".json": "a repository is owner/repo, a URL or a folder",
}
_FORGES = ("github.com", "gitlab.com", "bitbucket.org", "codeberg.org")
_PORTS = {"https": "443", "http": "80", "ssh": "22"}
_NOT_IN_REF = r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//"


@dataclass(frozen=True)
class RepoSpec:
    """A repository at a ref, or a folder.

    `url` is the clone URL before HUB_REWRITE; `ref` None means the repository's default branch.
    """

    text: str = field(compare=False)
    kind: Literal["remote", "local"]
    host: str
    owner: str
    repo: str
    ref: str | None
    url: str
    path: Path | None
    base: str = field(default="", repr=False)

    @classmethod
    def parse(cls, text: str | os.PathLike[str]) -> Self:
        """Read a spec; raise UsageError naming the part that is wrong.

        A word without `/` is a folder where there is one of that name.
        """
        text = os.fspath(text)
        if not text:
            raise UsageError("the spec is empty", hint=_HINT)
        if text != text.strip() or not text.isprintable():
            raise UsageError(f"spec {text!r} contains spaces or control characters", hint=_HINT)
        _refuse_file(text)
        if text[0] in "./~" or ("/" not in text and ":" not in text and os.path.isdir(text)):
            return cls._local(text)
        if not re.match(_PLAIN, text):
            from hubcli.base import spec_aliases

            text = spec_aliases.understood(text)
        if match := re.match(_URL, text):
            return cls._from_url(text, match.group(1).lower())
        return cls._short(text)

    @classmethod
    def _local(cls, text: str) -> Self:
        path = Path(os.path.abspath(settings.expanded(text)))
        name = path.name or "root"
        return cls(text, "local", "", "", name, None, path.as_uri(), path, str(path))

    @classmethod
    def _short(cls, text: str) -> Self:
        if scp := re.match(_SCP, text):
            user, host, path = scp.groups()
            raise UsageError(
                f"spec {text!r} looks like an scp address",
                hint=f"write ssh://{user}@{host}/{path}" if path else _HINT,
                spec=text,
            )
        address = re.match(r"\[[^\]/]*\](:[^/]*)?", text)  # of IPv6, whose colons begin no ref
        start = address.end() if address else 0
        rest, colon, ref = text[start:].partition(":")
        path = text[:start] + rest
        parts = path.split("/")
        if len(parts) not in (2, 3):
            raise UsageError(
                f"spec {text!r} has {len(parts)} part{'s' * (len(parts) != 1)} before the ref, not owner/repo or "
                "host/owner/repo",
                hint=_HINT,
                spec=text,
            )
        defaults = settings.current()
        host = (
            canonical_host(parts[0], f"spec {text!r}") if len(parts) == 3 else canonical_host(defaults.host, "HUB_HOST")
        )
        owner, repo = parts[-2], parts[-1].removesuffix(".git")
        _check(_HOST, host, "host", text)
        _check(_NAME, owner, "owner", text)
        _check(_NAME, repo, "repository", text)
        if colon:
            _check_ref(ref, text)
        short = f"{owner}/{repo}"
        return cls(
            text,
            "remote",
            host,
            owner,
            repo,
            _default_is_none(ref),
            defaults.git_url.format(host=host, owner=owner, repo=repo),
            None,
            short if host == canonical_host(defaults.host, "HUB_HOST") else f"{host}/{short}",
        )

    @classmethod
    def _from_url(cls, text: str, scheme: str) -> Self:
        if scheme not in settings.SCHEMES:
            raise UsageError(
                f"spec {text!r}: hub does not speak {scheme}://",
                hint=f"use one of {', '.join(settings.SCHEMES)}",
                spec=text,
            )
        authority, slash, rest = text[len(scheme) + 3 :].partition("/")
        path, at, ref = rest.partition("@")
        if at:
            _check_ref(ref, text)
        if "?" in path or "#" in path:
            raise UsageError(f"spec {text!r}: a query or fragment has no place here", spec=text)
        try:
            parts = urlsplit(f"{scheme}://{authority}/")
            host = parts.hostname or ""
            host = f"[{host}]" if "[" in parts.netloc else host
            host += f":{parts.port}" if parts.port else ""
            if re.search(r"\][^:]", parts.netloc):
                raise ValueError("something follows the brackets")
        except ValueError as error:
            raise UsageError(f"spec {_without_userinfo(text)!r}: {error}", hint=_HINT, spec=text) from None
        if parts.password is not None or (parts.username is not None and scheme != "ssh"):
            raise UsageError(
                f"spec {_without_userinfo(text)!r} carries credentials",
                hint="leave them out of the URL; set HUB_TOKEN or use git's credential helper",
            )
        if parts.username is not None:
            _check(_USER, parts.username, "user", text)
        if scheme == "file":
            if host not in ("", "localhost"):
                raise UsageError(f"spec {text!r}: file:// names the host {host!r}", spec=text)
            host = "localhost"
        host = canonical_host(host, f"spec {text!r}")
        _check(_HOST, host, "host", text)
        segments = path.rstrip("/").split("/")
        if not slash or not re.match(_URL_PATH, path) or not segments[-1]:
            raise UsageError(f"spec {text!r}: {path!r} is no repository path", hint=_HINT, spec=text)
        names = [unquote(segment) for segment in segments]
        for name in names:
            if name in ("", ".", "..") or name.startswith("-") or "/" in name or "\\" in name:
                raise UsageError(f"spec {text!r}: path part {name!r} is not allowed", spec=text)
            if not name.isprintable():
                raise UsageError(f"spec {text!r}: path part {name!r} is not printable", spec=text)
        repo = names[-1].removesuffix(".git")
        if not repo:
            raise UsageError(f"spec {text!r} names no repository", hint=_HINT, spec=text)
        owner = names[-2] if scheme == "file" and len(names) > 1 else "/".join(names[:-1])
        user = f"{parts.username}@" if parts.username else ""
        url = f"{scheme}://{user}{'' if scheme == 'file' else host}/{'/'.join(segments)}"
        owner = owner or host
        return cls(text, "remote", host, owner, repo, _default_is_none(ref), url, None, url)

    @property
    def name(self) -> str:
        """torch.hub's visible cache name, `owner_repo_ref` with `/` as `_` (no ref: two parts)."""
        if self.kind == "local":
            return self.repo
        parts = (self.owner, self.repo) if self.ref is None else (self.owner, self.repo, self.ref)
        return re.sub(r"[\[\]]", "", "_".join(parts).replace("/", "_").replace(":", "_"))

    @property
    def canonical(self) -> str:
        """Return the URL that consent is bound to: one spelling a repository, scheme included, before HUB_REWRITE.

        On the large forges case and `.git` do not matter; elsewhere they name another repository.
        """
        scheme, _, rest = self.url.partition("://")
        authority, _, path = rest.partition("/")
        user, at, host = authority.rpartition("@")
        name, port = _split_port(host.lower())
        if port and port != _PORTS.get(scheme):
            name = f"{name}:{port}"
        path = quote(unquote(path), safe="/~").rstrip("/")
        if name in _FORGES:
            path = path.removesuffix(".git").lower()
        return f"{scheme}://{user}{at}{name}/{path}"

    @property
    def is_commit(self) -> bool:
        """Return whether the ref is a full commit id."""
        return self.ref is not None and re.match(_COMMIT, self.ref) is not None

    @property
    def repository(self) -> str:
        """Return the spec without its ref, in canonical form."""
        return self.base

    def at(self, ref: str | None) -> Self:
        """Return the same repository at another ref."""
        changed = replace(self, ref=ref)
        return replace(changed, text=str(changed))

    def __str__(self) -> str:
        if self.ref is None or self.kind == "local":
            return self.base
        return f"{self.base}{'@' if '://' in self.base else ':'}{self.ref}"


def _split_port(host: str) -> tuple[str, str]:
    """Name and port of `name:port`, where the name may be an IPv6 address in brackets."""
    match = re.match(r"(\[[^\]]*\]|[^:]*)(?::(.*))?\Z", host)
    return (match.group(1), match.group(2) or "") if match else (host, "")


def canonical_host(host: str, where: str) -> str:
    """`host`, perhaps with a port, in lower case; an IPv6 address in its shortest form.  UsageError if it is none."""
    name, port = _split_port(host.lower())
    if name.startswith("["):
        import ipaddress

        try:
            address = ipaddress.IPv6Address(name[1:-1])
        except ValueError:
            raise UsageError(f"{where}: {name!r} is no IPv6 address", hint="write [::1] or [::1]:8080") from None
        if address.scope_id:
            raise UsageError(f"{where}: a zone such as %{address.scope_id} has no place here")
        name = f"[{address.compressed}]"
    return f"{name}:{port}" if port else name


def _refuse_file(text: str) -> None:
    """Raise an error where the spec is the name of a file: UsageError, NotFoundError for one that is not there."""
    hint = next((hint for suffix, hint in _FILES.items() if text.endswith(suffix)), None)
    if hint is None or "://" in text:
        return
    if os.path.isfile(os.path.expanduser(text)):
        raise UsageError(f"{text} is a file, not a repository", hint=hint.format(text), spec=text)
    if "/" not in text and ":" not in text and not os.path.isdir(text):
        raise NotFoundError(f"there is no file {text}", hint="a repository is owner/repo, a URL or a folder", spec=text)


def _check(pattern: str, value: str, part: str, text: str) -> None:
    if not value:
        raise UsageError(f"spec {text!r}: the {part} is empty", hint=_HINT, spec=text)
    if not re.match(pattern, value) or value in (".", "..") or value.lower() == ".git":
        raise UsageError(f"spec {text!r}: {value!r} is not a valid {part}", hint=_HINT, spec=text)


def _check_ref(ref: str, text: str) -> None:
    """The rules of git-check-ref-format, and no name that an option could be taken for."""
    if not ref:
        raise UsageError(f"spec {text!r}: the ref is empty", hint=_HINT, spec=text)
    bad = (
        re.search(_NOT_IN_REF, ref) is not None
        or ref[0] in "-/"
        or ref[-1] in "./"
        or ref == "@"
        or len(ref) > 255
        or any(part.startswith(".") or part.endswith(".lock") for part in ref.split("/"))
    )
    if bad:
        raise UsageError(f"spec {text!r}: {ref!r} is not a valid branch, tag or commit", hint=_HINT, spec=text)
    if ref.startswith("refs/") and not ref.startswith(("refs/heads/", "refs/tags/")):
        raise UsageError(
            f"spec {text!r}: {ref!r} is neither a branch nor a tag",
            hint="only refs/heads/... and refs/tags/... are accepted",
            spec=text,
        )


def _default_is_none(ref: str) -> str | None:
    return None if ref in ("", "HEAD") else ref


def _without_userinfo(text: str) -> str:
    return re.sub(r"://[^/@]*@", "://***@", text)


def newest_tag(name: str, tags: Collection[str]) -> str | None:
    """Return the tag with the highest version above that of tag `name`; None where there is none, or `name` is no
    version.

    Versions before a release count only where `name` is one.
    """
    from packaging.version import InvalidVersion, Version

    def version(tag: str) -> Version | None:
        try:
            return Version(tag.removeprefix("v"))
        except InvalidVersion:
            return None

    own = version(name)
    if own is None:
        return None
    newer = [(v, tag) for tag in tags if (v := version(tag)) and v > own and (own.is_prerelease or not v.is_prerelease)]
    return max(newer)[1] if newer else None
