"""Results as people read them: tables of checks, caches, lock files, models and files."""

from __future__ import annotations

import shlex
import sys
import time
from typing import TYPE_CHECKING, Any

from hubcli.base import output, paths
from hubcli.errors import ExitStatus

if TYPE_CHECKING:
    from pathlib import Path

    import click

    from hubcli.cache.lockfile import Lock
    from hubcli.cache.usage import Usage
    from hubcli.cache.verify import Problem, Verified
    from hubcli.reading.dependencies import Report
    from hubcli.running.inference import Pass, Ranked
    from hubcli.workflows.check import Checked
    from hubcli.workflows.listing import Item
    from hubcli.workflows.preview import Preview

_SHOWN = 20  # names of values that are no tensors
_LONGEST = 80  # characters of a value of metadata, which may be a program (a chat template)
_STYLES = {"passed": "green", "failed": "bold red", "skipped": "yellow", "needs-network": "yellow"}


def repository(document: dict[str, Any]) -> str:
    shown = dict(document)
    if document["size"] is not None:
        shown["size"] = output.size(document["size"])
        for key in ("fetched_at", "checked_at"):
            shown[key] = document[key] and _moment(document[key])
    shown["entrypoints"] = ", ".join(document["entrypoints"])
    shown["dependencies"] = ", ".join(document["dependencies"])
    shown["weights"] = ", ".join(f"{one['file']} ({output.size(one['size'])})" for one in document["weights"])
    return output.table([(key, str(value or "-")) for key, value in shown.items()])


def _moment(seconds: float) -> str:
    """Return a time of the clock here and how long ago it was: `2026-11-26 01:12:56 (3 days ago)`."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    return f"{stamp} ({output.age(time.time() - seconds)} ago)"


def archive(document: dict[str, Any]) -> str:
    plain = {key: document[key] for key in ("file", "format", "version", "class", "parameters", "buffers")}
    plain["size"] = output.size(document["size"])
    lines = [output.table([(key, str(value)) for key, value in plain.items()])]
    lines += ["", "methods", *(f"  {one['schema']}" for one in document["methods"])]
    if document["modules"]:
        rows = [(f"  {one['name']}", one["class"], str(one["parameters"] or "")) for one in document["modules"]]
        lines += ["", "modules", output.table(rows)]
    return output.printable("\n".join(lines))


def package(document: dict[str, Any]) -> str:
    plain = {key: document[key] or "-" for key in ("file", "format", "python")}
    plain["size"], plain["tensors"] = output.size(document["size"]), output.size(document["bytes"])
    plain["extern"] = ", ".join(document["extern"]) or "-"
    lines = [output.table([(key, str(value)) for key, value in plain.items()])]
    for title, rows in (
        (
            "modules (Python source, not executed)",
            [(one["name"], output.size(one["size"])) for one in document["modules"]],
        ),
        ("pickles", [(one["file"], ", ".join(one["names"])) for one in document["pickles"]]),
        ("files", [(one["file"], output.size(one["size"])) for one in document["files"]]),
    ):
        if rows:
            lines += ["", title, output.table([(f"  {name}", text) for name, text in rows])]
    return output.printable("\n".join(lines))


def checkpoint(document: dict[str, Any]) -> str:
    plain = {"file": document["file"], "format": document["format"], "size": output.size(document["size"])}
    if document["architecture"] is not None:
        plain["architecture"] = document["architecture"]
    plain["parameters"] = f"{document['parameters']:,}"
    if document["context_length"] is not None:
        plain["context length"] = f"{document['context_length']:,}"
    plain["tensors"] = f"{len(document['tensors'])} ({output.size(document['bytes'])})"
    plain["files"] = ", ".join(document["files"])
    plain["metadata"] = ", ".join(f"{key}={value}" for key, value in document["metadata"].items()) or "-"
    plain["others"] = ", ".join(document["others"][:_SHOWN]) or "-"
    if len(document["others"]) > _SHOWN:
        plain["others"] += f" and {len(document['others']) - _SHOWN} more"
    rows = [(f"  {one['name']}", one["dtype"], " x ".join(map(str, one["shape"]))) for one in document["tensors"]]
    return "\n".join([output.table(list(plain.items())), *(["", "tensors", output.table(rows)] if rows else [])])


def gguf(document: dict[str, Any]) -> str:
    plain = {"file": document["file"], "format": document["format"], "size": output.size(document["size"])}
    plain["architecture"] = document["architecture"] or "-"
    bits = "" if document["bits"] is None else f" ({document['bits']:g} bits each)"
    plain["parameters"] = f"{document['parameters']:,}{bits}"
    plain["context length"] = "-" if document["context_length"] is None else f"{document['context_length']:,}"
    plain["types"] = ", ".join(f"{one['type']} ({one['tensors']})" for one in document["types"]) or "-"
    plain["tensors"] = f"{len(document['tensors'])} ({output.size(document['bytes'])})"
    metadata = [(f"  {key}", _metadata_value(value)) for key, value in document["metadata"].items()]
    tensors = [(f"  {one['name']}", one["dtype"], " x ".join(map(str, one["shape"]))) for one in document["tensors"]]
    lines = [output.table(list(plain.items()))]
    for title, rows in (("metadata", metadata), ("tensors", tensors)):
        if rows:
            lines += ["", title, output.table(rows)]
    return "\n".join(lines)


def _metadata_value(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value['length']:,} values"
    return output.cut(", ".join(map(str, value)) if isinstance(value, list) else str(value), _LONGEST)


def onnx(document: dict[str, Any]) -> str:
    shown = dict(document)
    shown["size"] = output.size(document["size"])
    shown["parameters"] = f"{document['parameters']:,}"
    for kind in ("inputs", "outputs"):
        shown[kind] = ports(document[kind])
    shown["operators"] = ", ".join(f"{one['name']} ({one['count']})" for one in document["operators"])
    shown["unsupported"] = ", ".join(one["name"] for one in document["operators"] if not one["supported"])
    shown["metadata"] = ", ".join(f"{key}={value}" for key, value in document["metadata"].items())
    return output.table([(key, str(value or "-")) for key, value in shown.items()])


def exported(document: dict[str, Any]) -> str:
    rows = [("written", f"{document['path']} ({output.size(document['bytes'])}, opset {document['opset']})")]
    rows += [(kind, ports(document[f"{kind}s"])) for kind in ("input", "output")]
    if document["runtime"] is None:
        rows.append(("checked", "no: onnxruntime is not installed (python -m pip install 'hubcli[onnx]')"))
    else:
        rows.append(("checked", f"{document['runtime']}, difference {document['difference']:.1e}"))
    return output.table(rows)


def ports(many: list[dict[str, Any]]) -> str:
    """Inputs or outputs on one line."""
    shown = []
    for one in many:
        sizes = "?" if one["shape"] is None else " x ".join("?" if n is None else str(n) for n in one["shape"])
        shown.append(f"{one['name']} {one['dtype']} {sizes or 'scalar'}")
    return ", ".join(shown)


def _checked(checked: Checked, document: dict[str, Any]) -> str | None:
    """Return a table: drawn on a terminal, in colour; else as text."""
    import io

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("entrypoint", "stage", "status", "time", ""):
        table.add_column(title, justify="right" if title == "time" else "left", overflow="fold")
    before = None
    for row in checked.rows:
        table.add_row(
            Text(" ".join(output.printable(row.entrypoint).split()) if row.entrypoint != before else ""),
            Text(row.stage),
            Text(row.status, style=_STYLES[row.status]),
            Text(f"{row.seconds:.2f} s" if row.seconds >= 0.005 else ""),
            Text(output.printable(row.described())),
        )
        before = row.entrypoint
    total = (
        f"{document['passed']} passed, {document['failed']} failed, {document['skipped']} skipped in "
        f"{checked.seconds:.1f} s"
    )
    drawn = sys.stdout.isatty()
    console = Console(width=None if drawn else 160, file=sys.stdout if drawn else io.StringIO())
    console.print(table)
    console.print(Text(total, style="red" if document["failed"] else "green"))
    if drawn:
        return None
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in text.splitlines())


def lock(lock: Lock, changes: tuple[str, ...]) -> None:
    """Print what the lock file says, and on stderr what has changed in it."""
    for line in changes:
        output.message(line)
    if not changes:
        output.message(f"{lock.path} is up to date")
    rows = [(one.spec, one.commit[:12], "") for one in lock.repos]
    rows += [(one.file, one.sha256[:12], output.size(one.size)) for one in lock.weights]
    output.Output.current().result(lock.document(), lambda: output.table(rows))


def passed(done: Pass, written: list[str | None], ranked: list[Ranked]) -> str:
    """Return the classes, or else shapes and files, with the values of what is small and not written."""
    from hubcli.running import files

    if ranked:
        several = len(set(done.items)) > 1 and len(done.items) > max(one.item for one in ranked)
        rows = [(f"{one.score:.4f}", str(one.index), one.label or "") for one in ranked]
        if several:
            rows = [(done.items[one.item], *row) for one, row in zip(ranked, rows)]  # type: ignore[misc]
        return output.table(rows)
    lines = []
    for one, file in zip(done.outputs, written):
        shape = " x ".join(map(str, one.array.shape)) or "scalar"
        lines.append((one.name, shape, str(one.array.dtype), file or ""))
    table = output.table(lines).splitlines()
    shown = []
    for row, one, file in zip(table, done.outputs, written):
        shown.append(row)
        small = "" if file else files.printed(one.array)
        shown += [f"  {line}" for line in small.splitlines()]
    return "\n".join(shown)


def dependencies(report: Report, installed: tuple[str, ...], spec: str) -> str:
    rows = [
        (one.name, "ok" if one.satisfied else "missing", one.provided_by or "", one.note or "")
        for one in report.dependencies
    ]
    parts = [output.printable(output.table(rows)) or "it declares no dependencies"]
    if installed:
        parts.append(f"installed: {', '.join(installed)}")
    if report.install is not None:
        itself = f"hub deps {shlex.quote(spec)} --install"
        parts.append(f"or let hub do it, which never brings torch along: {itself}\n\nrun: {report.install}")
    return "\n\n".join(parts)


def verified(found: Verified) -> str:
    lines = [
        f"{one.name}: {_state(one)}: {one.problem}\n  {one.path}"
        + "".join(f"\n    {what}: {file}" for file, what, *_ in one.files[:20] if one.kind == "code")
        + (f"\n    and {len(one.files) - 20} more" if len(one.files) > 20 else "")
        for one in found.problems
    ]
    what = f"{found.trees} trees and {found.weights} weight files, {output.size(found.bytes)}"
    count = sum(not one.superseded for one in found.problems)
    lines.append(f"{what}: {count or 'no'} problem{'s' * (count != 1)}")
    return "\n".join(lines)


def _state(one: Problem) -> str:
    return "repaired" if one.repaired else "superseded" if one.superseded else "PROBLEM"


def cached(repos: list[Item], weights: list[Item], taken: Usage, filtered: bool) -> str:
    rows = [
        (item.name, item.document[key][:12], output.size(item.size), _used(item))
        for items, key in ((repos, "commit"), (weights, "sha256"))
        for item in items
    ]
    kinds = {
        "code": taken.code,
        "weights": taken.weights,
        "git databases": taken.databases,
        "unfinished downloads": taken.partial,
        "records": taken.other,
    }
    parts = ", ".join(f"{name} {output.size(size)}" for name, size in kinds.items() if size)
    whole = f"{output.size(taken.total)} in {paths.hub_dir()}" + (f": {parts}" if parts else "")
    if not rows:
        return f"nothing {'fits' if filtered else 'is cached'} in {paths.hub_dir()}" + (f"\n{whole}" if parts else "")
    listed = f"{output.size(sum(item.size for item in (*repos, *weights)))} listed; " if filtered else ""
    return f"{output.table(rows)}\n{listed}{whole}"


def _used(item: Item) -> str:
    return f"used {output.age(item.idle)} ago"


def preview(made: Preview) -> None:
    """Print what a pull would bring."""
    weights = [{"url": one.url, "size": one.size, "cached": one.cached} for one in made.weights]
    names = ("ref", "kind", "commit", "cached", "files", "size", "larger")
    document = {"spec": str(made.spec), **{name: getattr(made, name) for name in names}, "weights": weights}
    rows = [
        ("spec", str(made.spec)),
        (made.kind, f"{made.ref or ''} {made.commit or ''}".strip() or "-"),
        ("code", f"{made.files} files, {output.size(made.size)}{', here already' if made.cached else ''}"),
    ]
    if made.larger:
        rows.append(("", f"and {made.larger} of more than {output.size(made.small)} each"))
    for one in made.weights:
        known = "?" if one.size is None else output.size(one.size)
        rows.append(("weights", f"{known}{', here already' if one.cached else ''}  {one.url}"))
    if made.weights and not made.trusted:
        output.message("the servers of the weights are queried for sizes once the code is trusted (--trust once)")
    output.Output.current().result(document, lambda: output.table(rows))


def finish_check(ctx: click.Context, checked: Checked, junit: Path | None) -> None:
    """Print what was found, and end with the status that it means."""
    from hubcli.workflows import check as checks

    out = output.Output.current()
    if junit is not None:
        paths.write_atomically(junit, checks.junit(checked))
    document = checks.document(checked)
    out.result(document, lambda: _checked(checked, document))
    waiting = checked.count("needs-network")
    if waiting:
        out.warning(f"{waiting} not checked for want of a network: --no-sandbox gives it one")
    if checked.count("failed"):
        ctx.exit(ExitStatus.FAILURE)
