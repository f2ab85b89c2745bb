"""`hub show`: all that is known of a repository, without executing it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hubcli.base import output, paths
from hubcli.errors import UsageError
from hubcli.reading import hubconf
from hubcli.terminal import reports, repository, shared_options


@click.command()
@click.argument("spec")
@shared_options.allowing
@shared_options.locking
def show(spec: str, locked: bool, frozen: bool, lock_file: Path | None, allow: tuple[str, ...]) -> None:
    """Show all that is known of SPEC: commit, size, entrypoints, dependencies, weights, trust.

    Of a TorchScript archive (model.pt): its methods with their types, its modules, its parameters.
    Of a torch.package archive: its modules, its pickles and what they name; none of its code runs.
    Of an ONNX file: its inputs, outputs, operators and size.
    Of a checkpoint (.pth, .safetensors, the .index.json of several files, a folder with these): its tensors.
    Of a GGUF file: also the architecture, the context length, the kinds of quantization, the metadata.
    """
    from hubcli.running import archives, checkpoints, onnx_files

    checkpoints.check_names(allow) if allow else None

    file = onnx_files.named(spec)
    if file is not None:
        document_ = onnx_files.described(file)
        output.Output.current().result(document_, lambda: output.printable(reports.onnx(document_)))
        return
    archive = archives.find(spec) or checkpoints.find(spec) or checkpoints.in_folder(spec)
    if archive is not None and not archives.is_archive(archive):
        document_ = checkpoints.document(archive, allow)
        report = reports.gguf if document_["format"] == "gguf" else reports.checkpoint
        output.Output.current().result(document_, lambda: output.printable(report(document_)))
        return
    if archive is not None:
        document_ = archives.document(archive)
        table = reports.package if document_["format"] == "package" else reports.archive
        output.Output.current().result(document_, lambda: table(document_))
        return
    if allow:
        raise UsageError("--allow is for a checkpoint", hint="hub show FILE --allow NAME")
    from hubcli.cache import weights
    from hubcli.trust import gates

    checkout = repository.located(spec, locked, frozen, lock_file)
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
        "trust": gates.describe(checkout),
    }
    output.Output.current().result(document, lambda: reports.repository(document))
