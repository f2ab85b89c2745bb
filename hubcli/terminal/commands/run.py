"""`hub run`: one forward pass of a model on a file, in eval mode, without gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hubcli.base import output
from hubcli.errors import UsageError
from hubcli.terminal import generating, quantities, reports, repository, shared_options


@click.command(cls=shared_options.Executing)
@click.argument("spec")
@click.argument("entrypoint", required=False)
@shared_options.entrypoint_arguments
@click.option(
    "--input",
    "sources",
    multiple=True,
    metavar="FILE",
    help="Input: a file, a folder, a pattern, or - for a .npy on stdin.  Repeatable.",
)
@click.option(
    "--output", "target", metavar="FILE", help="Write the result: .npy, .npz, .json, .csv, .safetensors, .png, or -"
)
@click.option("--force", is_flag=True, help="Replace the output file if it exists.")
@shared_options.select
@shared_options.preparing
@click.option("--top", type=click.IntRange(1), help="Print the K most probable classes.")
@click.option(
    "--labels", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Names of the classes, one per line."
)
@click.option("--device", metavar="D", help="Run on cpu or cuda[:N].")
@click.option("--timeout", type=quantities.SECONDS, metavar="S", help="End it after this many seconds.")
@click.option("--max-memory", type=quantities.SIZE, metavar="SIZE", help="End it beyond this memory, e.g. 2GB.")
@generating.options
@shared_options.executing
def run(
    spec: str,
    entrypoint: str | None,
    keywords: tuple[str, ...],
    positional: str | None,
    pretrained: bool | None,
    sources: tuple[str, ...],
    target: str | None,
    force: bool,
    part: str | None,
    top: int | None,
    labels: Path | None,
    device: str | None,
    timeout: float | None,
    max_memory: int | None,
    **options: Any,
) -> None:
    """Run a forward pass of ENTRYPOINT of SPEC, or of an ONNX file, on each input file.

    SPEC may be a TorchScript archive (model.pt): ENTRYPOINT is then the method, forward by default, and
    -k and --args go to it beside the inputs.  It needs no trust.  A torch.package archive is refused: it
    carries Python source.
    .npy is one tensor; the keys of an .npz are keyword arguments (arr_0, arr_1, ... go by position);
    .csv becomes (rows, columns), .wav and .flac (channels, samples), an image (1, 3, H, W), and .txt
    one string.  Images are prepared by the transform that the entrypoint offers, unless options say
    how: one beside the model or in it, that of its weights, or what its configuration says.  Results
    of several files are put together along the first dimension.
    With --prompt SPEC is a GGUF file, or safetensors with config.json and tokenizer.json beside it.
    Printed is the answer, where the model has a chat template (-k sets what that reads), or what follows.
    """
    out = output.Output.current()
    text = generating.wanted(options)
    if text is not None:
        return generating.generate(spec, keywords, **text)
    generating.require_input(spec, sources)
    if target == "-" and out.json:
        raise UsageError("--output - and --json would share stdout", hint="give --output a file")
    if labels is not None and top is None:
        raise UsageError("--labels names the classes of --top", hint="add --top 5")
    given = shared_options.arguments(keywords, positional, pretrained)
    transform, preprocessing = shared_options.preparation(options)
    execution = shared_options.execution(**options)
    from hubcli.running import inference
    from hubcli.workflows import run as forward

    names = inference.read_labels(labels)
    inputs = forward.Inputs.of(sources, preprocessing)
    inference.check_target(target, force)
    job_options = {"device": device, "select": part, "transform": transform, "raw": preprocessing is None}
    passed = repository.passed(spec, entrypoint, given, execution, inputs, job_options, timeout, max_memory)
    if passed.prepared is not None:
        out.message(passed.prepared)
    ranked = inference.top(passed.outputs, top, names) if top is not None else []
    written = inference.write_outputs(target, passed.outputs, force)
    document = forward.document(passed, written, ranked)
    if target == "-":
        out.detail(f"{passed.seconds:.3f} s")
        return
    out.result(document, lambda: output.printable(reports.passed(passed, written, ranked)))
    out.detail(f"{passed.seconds:.3f} s")
