"""The credential helpers of the user's git configuration: what they know of a server."""

from __future__ import annotations

from urllib.parse import urlsplit

from hubcli.net.git import process


def credential(url: str) -> tuple[str, str] | None:
    """Return the user and the password that the user's own git credential helpers have for the server of `url`.

    Nobody is asked; None where no helper is set up or none knows.
    """
    helpers = process.user_config()
    parts = urlsplit(url)
    if not any(key.endswith(".helper") for key, _ in helpers) or not url.isprintable():
        return None
    query = f"protocol={parts.scheme}\nhost={parts.netloc}\npath={parts.path.lstrip('/')}\n\n"
    environment = {**process.environment_of([*process.CONFIG, *helpers]), **process.location(None)}
    status, out, _ = process.execute(["credential", "fill"], environment, query)
    answer = dict(line.partition("=")[::2] for line in out.splitlines())
    if status or not answer.get("password"):
        return None
    return answer.get("username", ""), answer["password"]
