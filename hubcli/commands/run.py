"""`hub run`: one forward pass of a model on a file, in eval mode, without gradients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hubcli import output
from hubcli.commands import _options, _quantities, _repository
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
@click.option(
    "--transform",
    metavar="PATH",
    help="The part of the result that prepares pictures and sounds; none: leave them.  Default: found by its name.",
)
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
@click.option("--timeout", type=_quantities.SECONDS, metavar="S", help="End it after this many seconds.")
@click.option("--max-memory", type=_quantities.SIZE, metavar="SIZE", help="End it beyond this memory, e.g. 2GB.")
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
    transform: str | None,
    preset: str | None,
    resize: int | None,
    crop: int | None,
    mean: str | None,
    std: str | None,
    gray: bool,
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
    .csv becomes (rows, columns), .wav and .flac (channels, samples), a picture (1, 3, H, W), and .txt
    one string.  Pictures are prepared by the transform that the entrypoint offers, unless options say
    how: one beside the model or in it, that of its weights, or what its configuration says.  Results
    of several files are put together along the first dimension.
    """
    out = output.Output.current()
    if target == "-" and out.json:
        raise UsageError("--output - and --json would share stdout", hint="give --output a file")
    if labels is not None and top is None:
        raise UsageError("--labels names the classes of --top", hint="add --top 5")
    given = _options.arguments(keywords, positional, pretrained)
    execution = _options.execution(**options)
    from hubcli.running import archives, files, inference, invoke, modelfile, select, transforms

    told = gray or any(one is not None for one in (preset, resize, crop, mean, std))
    if told and transform not in (None, transforms.NONE):
        raise UsageError("--transform says how to prepare pictures, and so do --preset, --resize, --crop, ...")
    names = inference.read_labels(labels)
    picture = inference.Picture.of(preset, resize, crop, mean, std, gray) if told else None
    inputs = files.expanded(sources)
    first = inference.read_inputs(inputs[0], picture)  # what is wrong with it is found before anything runs
    inference.check_target(target, force)
    file = modelfile.named(spec, entrypoint)
    archive = archives.find(spec) if file is None else None
    if file is not None and execution.sandbox not in (None, "off"):
        raise UsageError("an ONNX file holds no code that a sandbox would confine", hint="leave out --sandbox")
    if archive is not None:
        checkout = archives.checkout_of(archive)
    elif file is None:
        checkout, entrypoint = _repository.chosen(spec, entrypoint, given, execution, "run")

    def read() -> Iterator[tuple[str, tuple[inference.Input, ...]]]:
        for number, file in enumerate(inputs):
            yield file, inference.read_inputs(file, picture) if number else first

    wanted: dict[str, Any] = {"device": device, "select": part, "transform": transform, "raw": not told}
    if archive is not None:
        if execution.framework == "torch":
            raise UsageError("archives run on the engine, not with --framework torch")
        wanted["archive"] = str(archive.resolve())
    bounded = timeout is not None or max_memory is not None
    confined = None
    if file is None:
        confined = _repository.confined("run", checkout, entrypoint or "", given, execution, bounded, **wanted)
    elif bounded:
        raise UsageError("--timeout and --max-memory are for code and archives, not for ONNX files")
    if confined is not None:
        from hubcli.confined import jobs

        passed = jobs.run_each(*confined, list(read()), timeout, max_memory)
    else:
        if file is not None:
            whole = modelfile.opened(file, execution.framework)
        elif archive is not None:
            whole = archives.load(archive, entrypoint, given.args, given.kwargs)
        else:
            whole = _repository.call(checkout, str(entrypoint), given, execution)
        result = select.selected(whole, part)
        if device is not None:
            invoke.move(result, device)
        prepare = None if told else transforms.preparation(whole, result, transform)
        passed = inference.passes(result, read(), len(inputs), device, prepare)
    if passed.prepared is not None:
        out.message(passed.prepared)
    ranked = inference.top(passed.outputs, top, names) if top is not None else []
    written = inference.write_outputs(target, passed.outputs, force)
    document = {
        "inputs": list(passed.given),
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
        "prepared": passed.prepared,
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
