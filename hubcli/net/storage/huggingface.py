"""Weights by `hf://owner/repo/file@revision`: the plain HTTPS address behind it, no client library.

HF_ENDPOINT (`settings.rewrite_url`) and HF_TOKEN (`credentials`) count for the address however it was written.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from hubcli.errors import UsageError

SCHEME = "hf://"
_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?"
_FORM = re.compile(rf"hf://({_PART})/({_PART})/([^@?#]+?)(?:@([^@?#\s]+))?\Z")


def address(owner: str, repo: str, file: str, revision: str | None = None) -> str:
    """Return where Hugging Face serves a file of a model repository; HUB_REWRITE or HF_ENDPOINT leads to a mirror."""
    return f"https://huggingface.co/{owner}/{repo}/resolve/{quote(revision or 'main', safe='')}/{quote(file)}"


def resolved(url: str) -> str:
    """Return the HTTPS URL of an hf:// one; any other as it is.  UsageError if it is malformed."""
    if not url.lower().startswith(SCHEME):
        return url
    match = _FORM.match(SCHEME + url[len(SCHEME) :])
    parts = match.group(3).split("/") if match else []
    if match is None or not all(part.isprintable() and part not in ("", ".", "..") for part in parts):
        raise UsageError(f"{url!r} is not hf://OWNER/REPO/FILE[@REVISION]", hint="e.g. hf://owner/repo/model.pth@main")
    return address(match.group(1), match.group(2), match.group(3), match.group(4))
