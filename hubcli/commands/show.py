"""`hub show`: all that is known of a repository, without executing it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from hubcli import output, paths
from hubcli.commands import _options, _repository
from hubcli.errors import UsageError
from hubcli.reading import hubconf

_SHOWN = 20  # names of values that are no tensors


@click.command()
@click.argument("spec")
@_options.allowing
@_options.locking
def show(spec: str, locked: bool, frozen: bool, lock_file: Path | None, allow: tuple[str, ...]) -> None:
    """Show all that is known of SPEC: commit, size, entrypoints, dependencies, weights, trust.

    Of a TorchScript archive (model.pt): its methods with their types, its modules, its parameters.
    Of a torch.package archive: its modules, its pickles and what they name; none of its code runs.
    Of an ONNX file: its inputs, outputs, operators and size.
    Of a checkpoint (.pth, .safetensors, or the .index.json of one in several files): its tensors.
    """
    from hubcli.running import archives, checkpoints, modelfile

    checkpoints.check_names(allow) if allow else None

    file = modelfile.named(spec)
    if file is not None:
        told = modelfile.described(file)
        output.Output.current().result(told, lambda: output.printable(_file_table(told)))
        return
    archive = archives.find(spec) or checkpoints.find(spec)
    if archive is not None and not archives.is_archive(archive):
        told = checkpoints.document(archive, allow)
        output.Output.current().result(told, lambda: output.printable(_checkpoint(told)))
        return
    if archive is not None:
        told = archives.document(archive)
        table = _package if told["format"] == "package" else _archive
        output.Output.current().result(told, lambda: table(told))
        return
    if allow:
        raise UsageError("--allow is for a checkpoint", hint="hub show FILE --allow NAME")
    from hubcli import trust
    from hubcli.cache import weights

    checkout = _repository.located(spec, locked, frozen, lock_file)
    conf = hubconf.read(checkout.path)
    used = weights.used_by(str(checkout.spec))
    document: dict[str, Any] = {
        "spec": str(checkout.spec),
        "url": checkout.url,
        "ref": checkout.ref,
        "kind": checkout.kind,
        "commit": checkout.commit,
        "tree": checkout.tree,
        "size": None if checkout.kind == "local" else paths.disk_size(checkout.path),
        "path": str(checkout.path),
        "fetched_at": checkout.fetched_at,
        "checked_at": checkout.checked_at,
        "entrypoints": [entry.name for entry in conf.entrypoints],
        "dependencies": list(conf.dependencies),
        "weights": [{"file": one.file, "sha256": one.sha256, "size": one.size, "url": one.url} for one in used],
        "trust": trust.describe(checkout),
    }
    output.Output.current().result(document, lambda: _table(document))


def _table(document: dict[str, Any]) -> str:
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


def _archive(document: dict[str, Any]) -> str:
    plain = {key: document[key] for key in ("file", "format", "version", "class", "parameters", "buffers")}
    plain["size"] = output.size(document["size"])
    lines = [output.table([(key, str(value)) for key, value in plain.items()])]
    lines += ["", "methods", *(f"  {one['schema']}" for one in document["methods"])]
    if document["modules"]:
        rows = [(f"  {one['name']}", one["class"], str(one["parameters"] or "")) for one in document["modules"]]
        lines += ["", "modules", output.table(rows)]
    return output.printable("\n".join(lines))


def _package(document: dict[str, Any]) -> str:
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


def _checkpoint(document: dict[str, Any]) -> str:
    plain = {"file": document["file"], "format": document["format"], "size": output.size(document["size"])}
    plain["tensors"] = f"{len(document['tensors'])} ({output.size(document['bytes'])})"
    plain["files"] = ", ".join(document["files"])
    plain["metadata"] = ", ".join(f"{key}={value}" for key, value in document["metadata"].items()) or "-"
    plain["others"] = ", ".join(document["others"][:_SHOWN]) or "-"
    if len(document["others"]) > _SHOWN:
        plain["others"] += f" and {len(document['others']) - _SHOWN} more"
    rows = [(f"  {one['name']}", one["dtype"], " x ".join(map(str, one["shape"]))) for one in document["tensors"]]
    return "\n".join([output.table(list(plain.items())), *(["", "tensors", output.table(rows)] if rows else [])])


def _file_table(document: dict[str, Any]) -> str:
    from hubcli.commands.export import ports

    shown = dict(document)
    shown["size"] = output.size(document["size"])
    shown["parameters"] = f"{document['parameters']:,}"
    for kind in ("inputs", "outputs"):
        shown[kind] = ports(document[kind])
    shown["operators"] = ", ".join(f"{one['name']} ({one['count']})" for one in document["operators"])
    shown["unsupported"] = ", ".join(one["name"] for one in document["operators"] if not one["supported"])
    shown["metadata"] = ", ".join(f"{key}={value}" for key, value in document["metadata"].items())
    return output.table([(key, str(value or "-")) for key, value in shown.items()])
