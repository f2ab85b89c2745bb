"""`hub run`: one forward pass of a model on a file, in eval mode, without gradients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hubcli import output
from hubcli.commands import _options, _repository
from hubcli.errors import UsageError

if TYPE_CHECKING:
    from hubcli.running.inference import Pass, Ranked


@click.command(cls=_options.Executing)
@click.argument("spec")
@click.argument("entrypoint", required=False)
@_options.entrypoint_arguments
@click.option(
    "--input",
    "sources",
    required=True,
    multiple=True,
    metavar="FILE",
    help="Input: a file, a folder, a pattern, or - for a .npy on stdin.  Repeatable.",
)
@click.option(
    "--output", "target", metavar="FILE", help="Write the result: .npy, .npz, .json, .csv, .safetensors, .png, or -"
)
@click.option("--force", is_flag=True, help="Replace the output file if it exists.")
@_options.select
@click.option("--preset", type=click.Choice(("imagenet",)), help="How to prepare a picture.")
@click.option("--resize", type=click.IntRange(1, 16384), help="Shorter side of a picture.")
@click.option("--crop", type=click.IntRange(1, 16384), help="Side of its central square.")
@click.option("--mean", metavar="R,G,B", help="Subtracted from the channels, which are in 0..1.")
@click.option("--std", metavar="R,G,B", help="Divide the channels by these.")
@click.option("--gray", is_flag=True, help="One channel instead of three.")
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
    sources: tuple[str, ...],
    target: str | None,
    force: bool,
    part: str | None,
    preset: str | None,
    resize: int | None,
    crop: int | None,
    mean: str | None,
    std: str | None,
    gray: bool,
    top: int | None,
    labels: Path | None,
    device: str | None,
    **options: Any,
) -> None:
    """Run a forward pass of ENTRYPOINT of SPEC, or of an ONNX file, on each input file.

    .npy is one tensor; the keys of an .npz are keyword arguments (arr_0, arr_1, ... go by position);
    .csv becomes (rows, columns), .wav and .flac (channels, samples), a picture (1, 3, H, W), and .txt
    one string.  Results of several files are put together along the first dimension.
    """
    out = output.Output.current()
    if target == "-" and out.json:
        raise UsageError("--output - and --json would share stdout", hint="give --output a file")
    if labels is not None and top is None:
        raise UsageError("--labels names the classes of --top", hint="add --top 5")
    given = _options.arguments(keywords, positional, pretrained)
    execution = _options.execution(**options)
    from hubcli.running import files, inference, invoke, modelfile, select

    names = inference.read_labels(labels)
    picture = inference.Picture.of(preset, resize, crop, mean, std, gray)
    inputs = files.expanded(sources)
    first = inference.read_inputs(inputs[0], picture)  # what is wrong with it is found before anything runs
    inference.check_target(target, force)
    file = modelfile.named(spec, entrypoint)
    described: list[dict[str, Any]] = []

    def read(picture: inference.Picture) -> Iterator[tuple[str, tuple[inference.Input, ...]]]:
        for number, file in enumerate(inputs):
            again = number > 0 or inference.is_picture(file)
            group = inference.read_inputs(file, picture) if again else first
            described.extend(one.document(file) for one in group)
            yield file, group

    wanted = {"device": device, "select": part}
    confined = None
    if file is None:
        checkout, entrypoint = _repository.chosen(spec, entrypoint, execution, "run")
        confined = _repository.confined("run", checkout, entrypoint, given, execution, **wanted)
    elif execution.sandbox not in (None, "off"):
        raise UsageError("an ONNX file holds no code that a sandbox would confine", hint="leave out --sandbox")
    if confined is not None:
        from hubcli.confined import jobs

        passed = jobs.run_each(*confined, list(read(picture)))
    else:
        if file is None:
            result = select.selected(_repository.call(checkout, str(entrypoint), given, execution), part)
        else:
            result = modelfile.opened(file, execution.framework)
        if device is not None:
            invoke.move(result, device)
        untouched = not gray and all(one is None for one in (preset, resize, crop, mean, std))
        if untouched and any(map(inference.is_picture, inputs)):
            own = inference.Picture.of_model(result.value)
            if own is not None:
                out.message(f"pictures as the model says: --resize {own.resize} --crop {own.crop} and its mean and std")
                picture = own
        passed = inference.passes(result, read(picture), len(inputs), device)
    ranked = inference.top(passed.outputs, top, names) if top is not None else []
    written = inference.write_outputs(target, passed.outputs, force)
    document = {
        "inputs": described,
        "outputs": [
            {
                "name": one.name,
                "shape": list(one.array.shape),
                "dtype": str(one.array.dtype),
                "file": file,
                "values": files.values(one.array) if one.array.size <= files.MAX_VALUES else None,
            }
            for one, file in zip(passed.outputs, written)
        ],
        "top": [{"item": one.item, "class": one.index, "label": one.label, "score": one.score} for one in ranked],
        "seconds": round(passed.seconds, 6),
    }
    if target == "-":
        out.detail(f"{passed.seconds:.3f} s")
        return
    out.result(document, lambda: output.printable(_text(passed, written, ranked)))
    out.detail(f"{passed.seconds:.3f} s")


def _text(passed: Pass, written: list[str | None], ranked: list[Ranked]) -> str:
    """The classes, or else shapes and files, with the values of what is small and not written."""
    from hubcli.running import files

    if ranked:
        several = len(set(passed.items)) > 1 and len(passed.items) > max(one.item for one in ranked)
        rows = [(f"{one.score:.4f}", str(one.index), one.label or "") for one in ranked]
        if several:
            rows = [(passed.items[one.item], *row) for one, row in zip(ranked, rows)]  # type: ignore[misc]
        return output.table(rows)
    lines = []
    for one, file in zip(passed.outputs, written):
        shape = " x ".join(map(str, one.array.shape)) or "scalar"
        lines.append((one.name, shape, str(one.array.dtype), file or ""))
    table = output.table(lines).splitlines()
    shown = []
    for row, one, file in zip(table, passed.outputs, written):
        shown.append(row)
        small = "" if file else files.printed(one.array)
        shown += [f"  {line}" for line in small.splitlines()]
    return "\n".join(shown)
