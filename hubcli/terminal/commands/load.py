"""`hub load`: call an entrypoint and describe the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hubcli.base import output
from hubcli.terminal import repository, shared_options


@click.command(cls=shared_options.Executing)
@click.argument("spec")
@click.argument("entrypoint", required=False)
@shared_options.entrypoint_arguments
@click.option("--device", metavar="D", help="Move the model to cpu or cuda[:N].")
@click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write its state dict: FILE.safetensors, FILE.pth or FILE.pt.",
)
@click.option("--force", is_flag=True, help="Replace the saved file if it exists.")
@shared_options.select
@shared_options.executing
def load(
    spec: str,
    entrypoint: str | None,
    keywords: tuple[str, ...],
    positional: str | None,
    pretrained: bool | None,
    device: str | None,
    save: Path | None,
    force: bool,
    part: str | None,
    **options: Any,
) -> None:
    """Call ENTRYPOINT of SPEC and describe the model that it returns."""
    from hubcli.running import invoke, select

    invoke.check_save(save, force)
    given = shared_options.arguments(keywords, positional, pretrained)
    execution = shared_options.execution(**options)
    checkout, entrypoint = repository.chosen(spec, entrypoint, given, execution, "load")
    confined = repository.confined(
        "load", checkout, entrypoint, given, execution, device=device, save=save is not None, select=part
    )
    from hubcli.confined import jobs

    if confined is not None:
        loaded = jobs.load(*confined, save)
    else:
        result = select.selected(repository.call(checkout, entrypoint, given, execution), part)
        if device is not None:
            invoke.move(result, device)
        if save is not None:
            invoke.save_state_dict(result, save)
        loaded = jobs.Loaded(invoke.describe(result), result.seconds, result.weights)
    model = loaded.model
    document = {
        "entrypoint": entrypoint,
        "class": model.name,
        "parameters": model.parameters,
        "buffers": model.buffers,
        "bytes": model.bytes,
        "device": model.device,
        "seconds": round(loaded.seconds, 6),
        "weights": [
            {"file": one.file, "sha256": one.sha256, "size": one.size, "url": one.url} for one in loaded.weights
        ],
    }
    rows = [
        ("class", model.name),
        ("parameters", f"{model.parameters:,}"),
        ("buffers", f"{model.buffers:,}"),
        ("size", output.size(model.bytes)),
        ("device", model.device or "-"),
        ("built in", f"{loaded.seconds:.3f} s"),
    ]
    rows += [("weights", f"{one.file} ({output.size(one.size)})") for one in loaded.weights]
    rows += [("saved", str(save))] if save is not None else []
    output.Output.current().result(document, lambda: output.printable(output.table(rows)))
