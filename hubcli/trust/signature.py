"""Signatures of tags, as far as this machine can check them without a network.

gpg runs with the user's own keyring, ssh-keygen with the user's own list of allowed signers;
neither fetches a key.  Where the key is not known the phrase says so: a signature by an unknown key
proves nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

_MARKERS = {
    b"-----BEGIN PGP SIGNATURE-----": "OpenPGP",
    b"-----BEGIN PGP MESSAGE-----": "OpenPGP",
    b"-----BEGIN SSH SIGNATURE-----": "SSH",
    b"-----BEGIN SIGNED MESSAGE-----": "X.509",
}
_BEGIN = re.compile(rb"^(" + b"|".join(_MARKERS) + rb")", re.MULTILINE)
_TAGGER = re.compile(rb"^tagger (.*) \d+ [+-]\d+$", re.MULTILINE)
_NAME = re.compile(rb"^tag (.*)$", re.MULTILINE)
_TIMEOUT = 10.0  # seconds for one look at a keyring


def describe(tag: bytes, name: str, allowed_signers: str | None) -> str:
    """One phrase on the signature of the tag object `tag`, which stands under the name `name`.

    `allowed_signers` is the file of git's gpg.ssh.allowedSignersFile.
    """
    if not tag:
        return "not signed"
    found = list(_BEGIN.finditer(tag))
    if not found:
        return "not signed"
    start = found[-1].start()
    payload, signature, kind = tag[:start], tag[start:], _MARKERS[found[-1].group(1)]
    said = _first(_TAGGER, payload)
    named = _first(_NAME, payload)
    if kind == "OpenPGP":
        phrase = _openpgp(payload, signature, said)
    elif kind == "SSH":
        phrase = _ssh(payload, signature, said, allowed_signers)
    else:
        phrase = f"signed by {said}, so the tag says (X.509); not verified: hub checks no certificates"
    if named != name:
        phrase += f"; the signature is for a tag named {named!r}"
    return phrase


def _first(pattern: re.Pattern[bytes], text: bytes) -> str:
    match = pattern.search(text.partition(b"\n\n")[0])
    return match.group(1).decode("utf-8", "replace") if match else "nobody"


def _openpgp(payload: bytes, signature: bytes, said: str) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "signature"
        file.write_bytes(signature)
        home = Path(os.environ.get("GNUPGHOME") or "~/.gnupg").expanduser()
        command = ["gpg", "--batch", "--no-tty", "--status-fd=1"]
        command += ["--no-auto-key-retrieve", "--disable-dirmngr"]
        if not home.is_dir():  # gpg would make it
            command.append(f"--homedir={scratch}")
        out = _run([*command, "--verify", str(file), "-"], payload)
    if out is None:
        return f"signed by {said}, so the tag says (OpenPGP); not verified: there is no gpg here"
    status: dict[str, list[str]] = {}
    for line in out[1].splitlines():
        if line.startswith("[GNUPG:] "):
            word, *values = line.split()[1:]
            status.setdefault(word, values)

    def signer(word: str) -> str:
        return f"{' '.join(status[word][1:])} (OpenPGP key {status[word][0]})"

    if "BADSIG" in status:
        return f"BAD SIGNATURE: this is not what {signer('BADSIG')} signed"
    for word, why in (("EXPKEYSIG", "expired"), ("REVKEYSIG", "was revoked")):
        if word in status:
            return f"signed by {signer(word)}, not verified: the key {why}"
    if "EXPSIG" in status:
        return f"signed by {signer('EXPSIG')}, not verified: the signature expired"
    if "GOODSIG" in status and "VALIDSIG" in status:
        if {"TRUST_FULLY", "TRUST_ULTIMATE"} & status.keys():
            return f"signed by {signer('GOODSIG')}, verified by your keyring"
        return (
            f"signed by {signer('GOODSIG')}, not verified: the key is in your keyring, which does not say that it is "
            "theirs"
        )
    key = f" (OpenPGP key {status['ERRSIG'][0]})" if status.get("ERRSIG") else " (OpenPGP)"
    why = "the key is not in your keyring" if "NO_PUBKEY" in status else "gpg cannot check it"
    return f"signed by {said}, so the tag says{key}; not verified: {why}"


def _ssh(payload: bytes, signature: bytes, said: str, allowed_signers: str | None) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "signature"
        file.write_bytes(signature)
        check = ["ssh-keygen", "-Y", "check-novalidate", "-n", "git", "-s", str(file)]
        out = _run(check, payload)
        if out is None:
            return f"signed by {said}, so the tag says (SSH); not verified: there is no ssh-keygen here"
        if out[0] != 0:
            return f"BAD SIGNATURE: this is not what was signed (SSH) by {said}, so the tag says"
        match = re.search(r"key (SHA256:\S+)", out[1])
        key = f"SSH key {match.group(1) if match else 'unknown'}"
        if allowed_signers is None or not os.path.isfile(allowed_signers):
            why = "git's gpg.ssh.allowedSignersFile names no file"
            return f"signed by {said}, so the tag says ({key}); not verified: {why}"
        command = ["ssh-keygen", "-Y", "find-principals", "-f", allowed_signers, "-s", str(file)]
        found = _run(command, b"")
        principal = found[1].splitlines()[0] if found and not found[0] and found[1] else None
        if principal is not None:
            verify = ["ssh-keygen", "-Y", "verify", "-n", "git", "-f", allowed_signers]
            checked = _run([*verify, "-I", principal, "-s", str(file)], payload)
            if checked is not None and checked[0] == 0:
                return f"signed by {principal} ({key}), verified by your allowed signers"
    return f"signed by {said}, so the tag says ({key}); not verified: not among your allowed signers"


def _run(command: Sequence[str], stdin: bytes) -> tuple[int, str] | None:
    """Status and stdout; None where there is no such program, or it does not end."""
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command,
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            timeout=_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.returncode, done.stdout.decode("utf-8", "replace")
