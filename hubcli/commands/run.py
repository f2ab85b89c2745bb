"""`hub run`: one forward pass of a model on a file, in eval mode, without gradients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hubcli import output
from hubcli.commands import _options, _repository
from hubcli.errors import UsageError


@click.command(cls=_options.Executing)
@click.argument("spec")
@click.argument("entrypoint", required=False)
@_options.entrypoint_arguments
@click.option("--input", "source", required=True, metavar="FILE", help=".npy, .npz, picture, or -")
@click.option("--output", "target", metavar="FILE", help="Write the result: .npy, .npz, or -")
@click.option("--preset", type=click.Choice(("imagenet",)), help="How to prepare a picture.")
@click.option("--resize", type=click.IntRange(1, 16384), help="Shorter side of a picture.")
@click.option("--crop", type=click.IntRange(1, 16384), help="Side of its central square.")
@click.option("--mean", metavar="R,G,B", help="Subtracted from the channels, which are in 0..1.")
@click.option("--std", metavar="R,G,B", help="What they are divided by.")
@click.option("--top", type=click.IntRange(1), help="Print the K most probable classes.")
@click.option("--labels", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Names of the classes, one a line.")  # fmt: skip
@click.option("--device", metavar="D", help="Run on cpu or cuda[:N].")
@_options.executing
def run(
    spec: str,
    entrypoint: str | None,
    keywords: tuple[str, ...],
    positional: str | None,
    pretrained: bool | None,
    source: str,
    target: str | None,
    preset: str | None,
    resize: int | None,
    crop: int | None,
    mean: str | None,
    std: str | None,
    top: int | None,
    labels: Path | None,
    device: str | None,
    **options: Any,
) -> None:
    """Run one forward pass of ENTRYPOINT of SPEC on an input file.

    .npy is one input, .npz several, in the order of their names; a picture becomes (1, 3, H, W).
    """
    out = output.Output.current()
    if target == "-" and out.json:
        raise UsageError("--output - and --json would share stdout", hint="give --output a file")
    if labels is not None and top is None:
        raise UsageError("--labels names the classes of --top", hint="add --top 5")
    given = _options.arguments(keywords, positional, pretrained)
    execution = _options.execution(**options)
    from hubcli.running import inference, invoke

    names = inference.read_labels(labels)
    picture = inference.Picture.of(preset, resize, crop, mean, std)
    inputs = inference.read_inputs(source, picture)
    inference.check_target(target)
    checkout, entrypoint = _repository.chosen(spec, entrypoint, execution, "run")
    confined = _repository.confined("run", checkout, entrypoint, given, execution, device=device)
    if confined is not None:
        from hubcli.confined import jobs

        passed = jobs.run(*confined, inputs)
    else:
        result = _repository.call(checkout, entrypoint, given, execution)
        if device is not None:
            invoke.move(result, device)
        passed = inference.forward(result, inputs, device)
    ranked = inference.top(passed.outputs, top, names) if top is not None else []
    files = inference.write_outputs(target, passed.outputs)
    document = {
        "inputs": [{"shape": list(one.array.shape), "dtype": str(one.array.dtype)} for one in inputs],
        "outputs": [
            {"shape": list(one.array.shape), "dtype": str(one.array.dtype), "file": file}
            for one, file in zip(passed.outputs, files)
        ],
        "top": [{"item": one.item, "class": one.index, "label": one.label, "score": one.score} for one in ranked],
        "seconds": round(passed.seconds, 6),
    }
    if target == "-":
        out.detail(f"{passed.seconds:.3f} s")
        return
    rows = [(f"{one.score:.4f}", str(one.index), one.label or "") for one in ranked]
    shapes = [
        (
            one.name,
            " x ".join(map(str, one.array.shape)) or "scalar",
            str(one.array.dtype),
            file or "",
        )
        for one, file in zip(passed.outputs, files)
    ]
    out.result(document, lambda: output.printable(output.table(rows or shapes)))
    out.detail(f"{passed.seconds:.3f} s")
