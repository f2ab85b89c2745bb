"""Object storage (`s3://bucket/key`), through fsspec: the only module that imports it.  Needs the extra `mirror`.

Keys, region and endpoint come from where AWS's own tools look for them: the environment (AWS_ACCESS_KEY_ID,
AWS_ENDPOINT_URL, ...) or ~/.aws.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hubcli.errors import HubError, NetworkError, NotFoundError
from hubcli.net.http import certificates

_PART = 8 << 20  # bytes of one request


def filesystem() -> Any:
    """fsspec's view of S3; HubError with the command to type where the extra is missing."""
    try:
        import fsspec
        import s3fs  # noqa: F401
    except ImportError as error:
        raise HubError(
            f"s3:// needs {error.name}, which is not installed", hint="run: python -m pip install s3fs"
        ) from None
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "https://s3.amazonaws.com"
    verify = certificates.for_objects(endpoint)
    own = {"client_kwargs": {"verify": verify}} if isinstance(verify, str) else {}
    # no listing is kept: others write to the bucket, too
    return fsspec.filesystem("s3", use_listings_cache=False, skip_instance_cache=True, **own)


def info(url: str, files: Any = None) -> tuple[int, str | None]:
    """Size and ETag of an object; NotFoundError if there is none."""
    with said(url):
        found = (files or filesystem()).info(url)
        if found.get("type") != "file":
            raise FileNotFoundError(url)
        return int(found["size"]), found.get("ETag")


def parts(url: str, start: int, size: int) -> Iterator[bytes]:
    """Yield the bytes of an object from `start` on."""
    files = filesystem()
    while start < size:
        with said(url):
            part = files.cat_file(url, start=start, end=min(start + _PART, size))
        if not part:
            raise NetworkError(f"{url} ends after {start} of {size} bytes", hint="try again")
        yield part
        start += len(part)


def write(files: Any, url: str, content: Path | bytes) -> None:
    """Put an object there, whole or not at all."""
    with said(url):
        if isinstance(content, bytes):
            files.pipe_file(url, content)
        else:
            files.put_file(str(content), url)


def read(files: Any, url: str, limit: int) -> bytes:
    """Return a small object."""
    size, _ = info(url, files)
    if size > limit:
        raise NetworkError(f"{url} has {size} bytes, more than {limit}")
    with said(url):
        return bytes(files.cat_file(url))


def delete(files: Any, url: str) -> None:
    """Remove an object; nothing there is fine."""
    with said(url), contextlib.suppress(FileNotFoundError):
        files.rm_file(url)


@contextlib.contextmanager
def said(url: str) -> Iterator[None]:
    """Raise the store's errors as hub's own."""
    try:
        yield
    except HubError:
        raise
    except FileNotFoundError:
        raise NotFoundError(f"{url}: no such object or bucket", hint="check bucket and key") from None
    except PermissionError as error:
        raise NotFoundError(f"{url}: {error}", hint="it does not exist or is private: check your AWS keys") from None
    except Exception as error:  # botocore, aiohttp and asyncio have dozens
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise NetworkError(
            f"{url}: {reason}", hint="check AWS_ENDPOINT_URL, the region and the keys of this machine"
        ) from None
