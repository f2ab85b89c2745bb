"""`hub search`: published repositories by words."""

from __future__ import annotations

import click

from hubcli.base import output
from hubcli.errors import UsageError
from hubcli.workflows import catalogue


@click.command()
@click.argument("words", nargs=-1, metavar="[WORDS...]")
@click.option("--update", "url", metavar="URL", help="Fetch a list from there first; it is stored beside hub's own.")
@click.option("--sha256", metavar="HEX", help="With --update: the sha256 that the list must have.")
def search(words: tuple[str, ...], url: str | None, sha256: str | None) -> None:
    """Find published repositories that have all WORDS in name, topics or description; without WORDS all are listed.

    The list is short and made by hand; what it lacks may be as good.  Nothing is fetched unless --update asks.
    """
    if sha256 is not None and url is None:
        raise UsageError("--sha256 is for --update", hint="name the list: --update URL")
    if url is not None:
        made = catalogue.update(url, sha256)
        is_new = f"sha256 {made.sha256}" if made.changed else "as before"
        output.message(f"{made.url}: {made.repositories} repositories, {is_new}")
    found = catalogue.search(words)
    output.Output.current().result(
        {"words": list(words), "repositories": [catalogue.document(one) for one in found]},
        lambda: output.table([(one.name, one.description) for one in found]),
    )
