"""First-seen records: the commit of a tag and the digest of a weight URL, stored for good.

The record outlives what is cached (`hub cache rm` leaves it), so that a tag that moved and a file
that changed are noticed also by who fetches them again.  Branches are meant to move and have none.
`hub pull --accept-changed` is the one option to accept another value, beside a lock file that names it.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from hubcli.base import output, paths

Kind = Literal["tag", "weights"]
_SCHEMA = 1


@dataclass(frozen=True)
class Seen:
    """One record: `value` is a commit id for a tag, a sha256 for weights; `when` an ISO time.

    `source` is the URL as it may be shown, without credentials and query; `ref` the tag's name.
    """

    kind: Kind
    source: str
    ref: str | None
    value: str
    when: str


def find(kind: Kind, url: str, ref: str | None = None) -> Seen | None:
    """Return the record of a tag `ref` of the repository `url`, or of the weights at `url`."""
    path = file(kind, url, ref)
    try:
        values = json.loads(path.read_bytes())
        if values.pop("schema") != _SCHEMA or not isinstance(values["value"], str):
            raise ValueError("unknown form")
        return Seen(**values)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError):
        output.warning(f"{path} is damaged; what it recorded counts as never seen")
        return None


def note(kind: Kind, url: str, ref: str | None, value: str, shown: str) -> None:
    """Record `value`, in place of any other: the caller has compared.  `shown` is `Seen.source`."""
    before = find(kind, url, ref)
    if before is not None and before.value == value:
        return
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    record = Seen(kind, shown, ref, value, when)
    path = file(kind, url, ref)
    paths.ensure_root()
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"schema": _SCHEMA, **asdict(record)}, indent=1)
    paths.write_atomically(path, text.encode())


def file(kind: Kind, url: str, ref: str | None = None) -> Path:
    """Return where the record is; to remove it is to forget."""
    import hashlib  # costs start-up time

    # a URL may carry a signature in its query: it becomes a name by its digest
    key = hashlib.sha256(f"{url}\0{ref or ''}".encode()).hexdigest()[:40]
    return paths.seen() / kind / f"{key}.json"
