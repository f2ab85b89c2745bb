"""The texts that people paste for a spec: addresses of pages, names in the form of other tools.

`understood` says the same as a spec; where that cannot be known, its error names the spec to type.
"""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from hubcli.errors import UsageError

_PREFIXES = {
    "github": "github.com",
    "gh": "github.com",
    "gitlab": "gitlab.com",
    "bitbucket": "bitbucket.org",
    "codeberg": "codeberg.org",
    "hf": "huggingface.co",
    "huggingface": "huggingface.co",
}
_HOSTS = {*_PREFIXES.values(), "hf.co", "www.github.com", "www.gitlab.com"}
_PREFIXED = re.compile(rf"({'|'.join(_PREFIXES)}):(?://)?(?=[^/])")
_SHORT_AT = re.compile(r"([A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+(?:/[A-Za-z0-9_.-]+)?)@([^@:]+)\Z")
_ARCHIVE = re.compile(r"\.(zip|tar\.gz|tar\.bz2)\Z")
_PAGES = ("tree", "blob", "src", "raw", "resolve", "commit", "commits", "releases", "archive")


def understood(text: str) -> str:
    """`text` as a spec: as it is, unless it is an address or a name of the kinds above."""
    if "://" not in text and re.fullmatch(r"[^/]+(/[^/]+)+/", text):
        text = text[:-1]
    if text.startswith("git+"):
        text = text.removeprefix("git+").partition("#")[0]
    if prefixed := _PREFIXED.match(text):
        host, rest = _PREFIXES[prefixed.group(1)], text[prefixed.end() :]
        if host == "huggingface.co":
            return understood(f"https://{host}/{rest.replace(':', '@')}")
        return understood(f"{host}/{rest.replace('#', ':')}")
    if at := _SHORT_AT.match(text):
        return f"{at.group(1)}:{at.group(2)}"
    bare = "://" not in text
    if bare and text.split("/")[0].lower() in _HOSTS and (text.count("/") > 2 or text.startswith(("hugging", "hf.co"))):
        text, bare = f"https://{text}", False
    return text if bare or not text.lower().startswith(("https://", "http://")) else _page(text)


def _page(text: str) -> str:
    """Return the address of a page of a forge as that of the repository; other addresses as they are."""
    try:
        parts = urlsplit(text)
        if parts.username is not None:
            return text
        host = (parts.hostname or "").removeprefix("www.")
    except ValueError:
        return text
    host = "huggingface.co" if host == "hf.co" else host
    names = parts.path.strip("/").split("/")
    known = host in _HOSTS
    if "-" in names[2:]:  # GitLab, also elsewhere than at gitlab.com: group/subgroup/name/-/tree/main
        count = names.index("-", 2)
        del names[count]
    elif known:
        count = 3 if host == "huggingface.co" and names[0] in ("datasets", "spaces") else 2
        count = len(names) if host == "gitlab.com" else count
    else:
        return text
    if "@" in parts.path:
        return text
    port = f":{parts.port}" if parts.port else ""
    host = f"[{host}]" if ":" in host else host
    repository = f"{parts.scheme}://{host}{port}/{'/'.join(names[:count])}"
    page, *rest = names[count:] or [""]
    if not page:
        if len(names) < count or ":" in names[-1]:
            return _colon(text, repository)
        return repository
    return _at(text, repository, page, [unquote(name) for name in rest])


def _at(text: str, repository: str, page: str, rest: list[str]) -> str:
    """Return the repository at the ref that the rest of a page's address names."""
    if page not in _PAGES:
        raise _answer(text, f"is a page of {repository}, not the repository", repository)
    if page == "releases":
        rest = rest[1:] if rest[:1] == ["tag"] else []
    if page == "archive":
        rest = [_ARCHIVE.sub("", "/".join(rest))] if rest else []
        rest = [rest[0].removeprefix("refs/tags/").removeprefix("refs/heads/")] if rest else []
    if page == "src" and rest[:1] in (["branch"], ["tag"], ["commit"]):
        rest = rest[1:]
    if not rest:
        return repository
    file = page in ("blob", "raw", "resolve") or (page == "src" and rest[-1].endswith(".py"))
    if len(rest) == 1 or (file and rest[1:] == ["hubconf.py"]) or page in ("releases", "archive"):
        return f"{repository}@{'/'.join(rest[:1] if file else rest)}"
    if file:
        raise _answer(text, f"is a file of {repository}, not the repository", f"{repository}@{rest[0]}")
    whole = f"{repository}@{'/'.join(rest)}"
    raise _answer(
        text,
        f"may mean the branch {'/'.join(rest)!r}, or a folder of {rest[0]!r}",
        f"{repository}@{rest[0]}, or {whole}",
    )


def _colon(text: str, repository: str) -> str:
    address, colon, ref = repository.rpartition(":")
    if colon and "/" in address.partition("://")[2] and ref:
        raise _answer(text, "has a colon before the ref", f"{address}@{ref}")
    return text


def _answer(text: str, what: str, spec: str) -> UsageError:
    return UsageError(f"{text} {what}", hint=f"write {spec}", spec=text)
