"""`hub export`: write a model as an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hubcli import output
from hubcli.commands import _options, _repository
from hubcli.errors import ExitStatus, UsageError


@click.command(cls=_options.Executing)
@click.argument("spec")
@click.argument("entrypoint", required=False)
@_options.entrypoint_arguments
@click.option("--format", "form", type=click.Choice(("onnx",)), default="onnx", help="What to write.")
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="The file to write.",
)
@click.option("--input-shape", "shapes", multiple=True, metavar="N,C,H,W[:DTYPE]",
              help="A random example input; once for each input of the model.")  # fmt: skip
@click.option("--input", "source", metavar="FILE", help="An example input: .npy, .npz or a picture.")
@click.option("--dynamic", multiple=True, metavar="NAME",
              help="A size that may vary: batch (the first of each input), or INPUT:DIM[=NAME].")  # fmt: skip
@click.option("--opset", type=click.IntRange(17, 23), default=18, show_default=True, help="Version of the operators.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@_options.select
@_options.executing
def export(
    spec: str,
    entrypoint: str | None,
    keywords: tuple[str, ...],
    positional: str | None,
    pretrained: bool | None,
    form: str,
    target: Path,
    shapes: tuple[str, ...],
    source: str | None,
    dynamic: tuple[str, ...],
    opset: int,
    force: bool,
    part: str | None,
    **options: Any,
) -> None:
    """Write the model that ENTRYPOINT of SPEC returns as an ONNX file.

    The model runs once on example inputs, and what it does is written.  Where onnxruntime is installed the file runs
    in it, too, and the difference is told; one above 1e-4 of the largest value is an error.
    """
    given = _options.arguments(keywords, positional, pretrained)
    execution = _options.execution(**options)
    if (not shapes) == (source is None):
        raise UsageError("give the example input by --input-shape or by --input", hint="e.g. --input-shape 1,3,224,224")
    if target.exists() and not force:
        raise UsageError(f"{target} exists", hint="--force replaces it")
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent}", hint="make it first")
    if execution.framework == "torch":
        raise UsageError("export writes what the engine runs", hint="leave out --framework torch")
    if execution.sandbox not in (None, "off"):
        raise UsageError("export is not supported in a sandbox", hint="leave out --sandbox")
    from hubcli import check
    from hubcli.running import exporting, inference, select

    wanted = [check.shape(text) for text in shapes]
    picture = inference.Picture.of(None, None, None, None, None)
    read = () if source is None else inference.read_inputs(source, picture)
    checkout, entrypoint = _repository.chosen(spec, entrypoint, given, execution, "export")
    result = select.selected(_repository.call(checkout, entrypoint, given, execution), part)
    tensors = inference.random_inputs("engine", wanted, None) if shapes else []
    named: dict[str, Any] = {}
    for one, tensor in inference.example_tensors(result, read):
        if one.name is None:
            tensors.append(tensor)
        else:
            named[one.name] = tensor
    done = exporting.export(result, tensors, named, target, dynamic, opset)
    out = output.Output.current()
    for text in done.warnings:
        out.message(f"warning: {text}")
    document = {
        "path": str(target),
        "format": form,
        "bytes": done.bytes,
        "opset": done.opset,
        "inputs": list(done.inputs),
        "outputs": list(done.outputs),
        "runtime": done.runtime,
        "difference": done.difference,
    }
    out.result(document, lambda: output.printable(_text(document)))
    if done.difference is not None and not done.difference <= exporting.TOLERANCE:
        out.message(f"error: {done.runtime} differs from the model by more than {exporting.TOLERANCE:g}")
        raise click.exceptions.Exit(int(ExitStatus.FAILURE))


def _text(document: dict[str, Any]) -> str:
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
