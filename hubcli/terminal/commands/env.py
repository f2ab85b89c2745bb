"""`hub env`: versions, paths and backends, for a bug report."""

from __future__ import annotations

from typing import Any

import click

from hubcli.base import output
from hubcli.errors import HubError
from hubcli.workflows import environment


@click.command()
@click.option(
    "--check",
    type=click.Choice(["cuda"]),
    help="Compare what the GPU computes with the CPU, route by route; the verdict is stored for this GPU and driver.",
)
@click.option(
    "--calibrate",
    is_flag=True,
    help="Time the engine's CPU kernels here, some seconds, and take the faster ones from now on.",
)
def env(check: str | None, calibrate: bool) -> None:
    """Show versions, paths and backends, for a bug report."""
    document = environment.described()
    if check is not None:
        document["check"] = environment.checked()
    if calibrate:
        document["calibration"] = environment.calibrated()
    output.Output.current().result(document, lambda: _table(document))
    wrong = [row["name"] for row in document.get("check", {}).get("rows", []) if row["verdict"] not in ("ok", "off")]
    if wrong:
        raise HubError(
            f"the GPU does not compute what the CPU computes: {', '.join(wrong)}",
            hint="report it with `hub --json env --check cuda`; use --device cpu meanwhile",
        )


def _table(document: dict[str, Any]) -> str:
    rows = []
    for key, value in document.items():
        if key == "check":
            rows += [(f"check.{row['name']}", _verdict(row)) for row in value["rows"]]
        elif key == "calibration":
            rows += [(f"calibration.{name}", _cell(value[name])) for name in ("file", "seconds", "routes", "changed")]
            rows += [
                (f"calibration.{row['name']}", _taken(row)) for row in value["rows"] if row["route"] != row["static"]
            ]
        elif key == "routes":
            rows += [(f"routes.{name}", value[name]) for name in ("mode", "verdicts")]
            rows += [(f"routes.{row['route']}", _served(row)) for row in value["routes"]]
        elif isinstance(value, dict):
            rows += [(f"{key}.{name}", _cell(item)) for name, item in value.items()]
        else:
            rows.append((key, str(value)))
    return output.table(rows)


def _verdict(row: dict[str, Any]) -> str:
    error = "" if row["error"] is None else f"{row['error']:.1e}, "
    return f"{row['verdict']} ({error}{row['milliseconds']:.1f} ms) {row['why']}".rstrip()


def _served(row: dict[str, Any]) -> str:
    return row["why"] if row["serves"] or row["why"].startswith("off") else f"no: {row['why']}"


def _taken(row: dict[str, Any]) -> str:
    times = row["microseconds"]
    route, static = row["route"], row["static"]
    return f"from {row['elements']} on: {route} ({times[route]:.1f} us), not {static} ({times[static]:.1f} us)"


def _cell(item: Any) -> str:
    if isinstance(item, dict):
        item = [f"{name} {value}" for name, value in item.items() if value is not None]
    return (", ".join(item) if isinstance(item, list) else str(item or "")) or "-"
