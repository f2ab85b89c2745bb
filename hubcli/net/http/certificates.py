"""Certificate authorities: a private one, named by any one of the usual settings, serves everything.

Git and the downloads have settings of their own (`GIT_SSL_CAINFO`, `REQUESTS_CA_BUNDLE`), which replace the ordinary
authorities there, as they always did.  What the settings of others name is believed beside those: code and weights
come from one server by one setting, and a setting for one server does not cut off all the rest.  A file that is not
there, or is no list of certificates, is an error that names the setting.  Certificates are always checked:
`GIT_SSL_NO_VERIFY` and `http.sslVerify=false` are not obeyed, and the error says so where it matters.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import ssl
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hubcli.base import settings
from hubcli.errors import UsageError

_SYSTEM = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # macOS, BSD
)
_LARGEST = 16 << 20  # bytes of all the certificates of a setting
_GIT = ("GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "http.sslCAInfo", "http.sslCAPath")
_REQUESTS = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_COMMON = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_FOLDERS = ("SSL_CERT_DIR", "GIT_SSL_CAPATH", "http.sslCAPath")

_made: dict[str, str] = {}  # what was put together in this process, by what is in it
_lock = threading.Lock()


@dataclass(frozen=True)
class Source:
    """A file or folder of certificates, and the setting that names it."""

    setting: str
    path: Path

    @property
    def where(self) -> str:
        """Return the setting as a sentence has it."""
        return f"{self.setting} of your git configuration" if self.setting.startswith("http.") else self.setting


def for_files(url: str, config: Mapping[str, str]) -> str | bool:
    """Return what requests takes as `verify` for `url`; `config` is git's for it.

    UsageError if a setting names no authority.
    """
    if not url.startswith("https://"):
        return True
    sources = _sources(config)
    # requests itself looks no further once it has found one
    own = [one for one in sources if one.setting in _REQUESTS][:1]
    others = [one for one in sources if one.setting not in _REQUESTS]
    if not others:
        return _together(own) if own else True  # OpenSSL itself wants the files of a folder under special names
    import certifi

    return _together([*own, *others] if own else [Source("", Path(certifi.where())), *others])


def for_git(url: str, config: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that has git believe the same for `url`."""
    if not url.startswith("https://"):
        return {}
    sources = _sources(config)
    own = [one for one in sources if one.setting in _GIT]
    others = [one for one in sources if one.setting not in _GIT]
    if others:
        return {"GIT_SSL_CAINFO": _together([*(own or _ordinary()), *others])}
    # the path made absolute: git is started in another folder
    return {
        "GIT_SSL_CAPATH" if one.setting in _FOLDERS else "GIT_SSL_CAINFO": str(_checked(one).path)
        for one in reversed(own)  # the environment, which comes first, counts
    }


def for_objects(url: str) -> str | bool | None:
    """Return what botocore takes as `verify` for object storage; None where AWS's own setting is there."""
    return None if os.environ.get("AWS_CA_BUNDLE") else for_files(url, {})


def advice(config: Mapping[str, str], reason: str) -> str:
    """Return what to do about a certificate that was refused for `reason`, in OpenSSL's or git's words."""
    low = reason.lower()
    if "expired" in low or "not yet valid" in low:
        return "is this machine's clock right? If it is, tell whoever runs the server"
    if "mismatch" in low or "does not match" in low or "not valid for" in low:
        return "the certificate has another name than the server that was asked for: check the address"
    named = list(dict.fromkeys(f"{one.where} ({one.path})" for one in _sources(config)))
    found = f"neither the ordinary authorities nor {' nor '.join(named)} signed it" if named else ""
    ignored = [name for name in ("GIT_SSL_NO_VERIFY",) if name in os.environ]
    if config.get("http.sslverify", "").lower() in ("false", "no", "off", "0"):
        ignored.append("http.sslVerify=false")
    said = f"certificates are always checked, {' and '.join(ignored)} or not" if ignored else ""
    do = "set SSL_CERT_FILE to the file of your own authority, if there is one; it counts for code and weights"
    return "; ".join(part for part in (found, said, do) if part)


def _sources(config: Mapping[str, str]) -> list[Source]:
    """Every file and folder that some setting names, in the order in which they are looked at."""
    found = []
    for setting in (*_REQUESTS, *_GIT, *_COMMON):
        value = config.get(setting.lower(), "") if setting.startswith("http.") else os.environ.get(setting, "")
        values = value.split(os.pathsep) if setting == "SSL_CERT_DIR" else [value]
        paths = [Path(os.path.abspath(settings.expanded(one))) for one in values if one]
        # a list of folders may name some that are not there, as OpenSSL's own does
        there = [path for path in paths if path.is_dir()] if len(paths) > 1 else paths
        found += [Source(setting, path) for path in there or paths]
    return found


def _ordinary() -> list[Source]:
    """Return what git believes where nothing is set: the system's authorities, else those that come with requests."""
    for name in (ssl.get_default_verify_paths().openssl_cafile, *_SYSTEM):
        if os.path.isfile(name):
            return [Source("", Path(name))]
    import certifi

    return [Source("", Path(certifi.where()))]


def _checked(source: Source) -> Source:
    """`source`, if there are certificates in it; UsageError otherwise."""
    _content(source)
    return source


def _content(source: Source) -> bytes:
    """All the certificates of a source, as PEM."""
    wants_folder = source.setting in _FOLDERS
    path = source.path
    kind = "folder" if wants_folder else "file"
    try:
        if path.is_dir() and (wants_folder or source.setting in _REQUESTS):
            files = sorted({one.resolve() for one in path.iterdir() if one.is_file()})
        elif path.is_dir() or (wants_folder and path.exists()):
            raise _wrong(source, f"is no {kind}")
        else:
            files = [path]
        parts: list[bytes] = []
        size = 0
        for file in files:
            if not file.is_file():
                raise _wrong(source, "does not exist" if not file.exists() else "is no plain file")
            size += file.stat().st_size
            if size > _LARGEST:
                raise _wrong(source, "is larger than any list of authorities")
            content = file.read_bytes()
            if b"-----BEGIN " in content:
                parts.append(content.rstrip() + b"\n")
    except OSError as error:
        raise _wrong(source, f"cannot be read: {error.strerror}") from None
    content = b"".join(parts)
    if b"CERTIFICATE-----" not in content:
        raise _wrong(source, "has no certificate in it")
    if len(files) == 1:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=str(files[0]))
        except ssl.SSLError as error:
            raise _wrong(source, f"has a certificate that cannot be read: {error.reason}") from None
    return content


def _wrong(source: Source, what: str) -> UsageError:
    return UsageError(
        f"{source.where} names {source.path}, which {what}",
        hint="it must name certificates in PEM form; mend or unset it",
    )


def _remove(folder: str, process: int) -> None:
    """Delete what `process` has made; not at the end of a child that was forked from it."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _together(sources: Sequence[Source]) -> str:
    """One file with the certificates of all `sources`, gone at the end of the process; of one, that file itself."""
    contents = list(dict.fromkeys(_content(one) for one in sources))
    if len(contents) == 1 and sources[0].path.is_file():
        return str(sources[0].path)
    content = b"".join(contents)
    key = hashlib.sha256(content).hexdigest()
    with _lock:
        if not os.path.isfile(_made.get(key, "")):
            folder = tempfile.mkdtemp(prefix="hub-authorities-")
            atexit.register(_remove, folder, os.getpid())
            file = os.path.join(folder, "authorities.pem")
            with open(file, "xb") as made:
                made.write(content)
            _made[key] = file
        return _made[key]
