"""`hub export`: write a model as an ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hubcli.base import output
from hubcli.errors import ExitStatus, UsageError
from hubcli.terminal import reports, repository, shared_options


@click.command(cls=shared_options.Executing)
@click.argument("spec")
@click.argument("entrypoint", required=False)
@shared_options.entrypoint_arguments
@click.option("--format", "form", type=click.Choice(("onnx",)), default="onnx", help="What to write.")
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="The file to write.",
)
@shared_options.input_shapes("A random example input; once for each input of the model.")
@click.option("--input", "source", metavar="FILE", help="An example input: .npy, .npz or an image.")
@click.option(
    "--dynamic",
    multiple=True,
    metavar="NAME",
    help="A size that may vary: batch (the first of each input), or INPUT:DIM[=NAME].",
)
@click.option("--opset", type=click.IntRange(17, 23), default=18, show_default=True, help="Version of the operators.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@shared_options.select
@shared_options.executing
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
    in it, too, and the difference is reported; one above 1e-4 of the largest value is an error.
    """
    given = shared_options.arguments(keywords, positional, pretrained)
    execution = shared_options.execution(**options)
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
    from hubcli.running import exporting, images, inference, select
    from hubcli.workflows import check

    wanted = [check.shape(text) for text in shapes]
    preprocessing = images.Preprocessing.of(None, None, None, None, None)
    read = () if source is None else inference.read_inputs(source, preprocessing)
    checkout, entrypoint = repository.chosen(spec, entrypoint, given, execution, "export")
    result = select.selected(repository.call(checkout, entrypoint, given, execution), part)
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
    names = ("bytes", "opset", "inputs", "outputs", "runtime", "difference")
    document = {"path": str(target), "format": form, **{name: getattr(done, name) for name in names}}
    out.result(document, lambda: output.printable(reports.exported(document)))
    if done.difference is not None and not done.difference <= exporting.TOLERANCE:
        out.message(f"error: {done.runtime} differs from the model by more than {exporting.TOLERANCE:g}")
        raise click.exceptions.Exit(int(ExitStatus.FAILURE))
