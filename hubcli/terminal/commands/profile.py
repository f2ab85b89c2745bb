"""`hub profile`: where the time and the memory of one pass of a model go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from hubcli.base import output, paths
from hubcli.errors import UsageError
from hubcli.terminal import repository, shared_options

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(cls=shared_options.Executing)
@click.argument("spec")
@click.argument("entrypoint", required=False)
@shared_options.entrypoint_arguments
@shared_options.input_shapes("A random input; once for each input of the model.", required=True)
@click.option("--backward", is_flag=True, help="Forward and backward.")
@click.option("--device", metavar="D", help="Run on cpu or cuda[:N].")
@click.option("--trace", type=_FILE, help="Write a trace for chrome://tracing or Perfetto.")
@click.option("--html", type=_FILE, help="Write one page with charts and a timeline.")
@shared_options.select
@shared_options.executing
def profile(
    spec: str,
    entrypoint: str | None,
    keywords: tuple[str, ...],
    positional: str | None,
    pretrained: bool | None,
    shapes: tuple[str, ...],
    backward: bool,
    device: str | None,
    trace: Path | None,
    html: Path | None,
    part: str | None,
    **options: Any,
) -> None:
    """Show where the time and the memory of one pass of ENTRYPOINT of SPEC go.

    The pass is in eval mode, on random inputs, after one that warms up.
    """
    given = shared_options.arguments(keywords, positional, pretrained)
    execution = shared_options.execution(**options)
    for option, file in (("--trace", trace), ("--html", html)):
        if file is not None and not file.parent.is_dir():
            raise UsageError(f"{option} {str(file)!r}: there is no folder {file.parent}")
    from hubcli.confined import jobs
    from hubcli.running import profiling, select
    from hubcli.workflows import check

    wanted: dict[str, Any] = {
        "shapes": [check.shape(text) for text in shapes],
        "backward": backward,
        "device": device,
        "select": part,
    }
    checkout, entrypoint = repository.chosen(spec, entrypoint, given, execution, "profile")
    confined = repository.confined("profile", checkout, entrypoint, given, execution, **wanted)
    if confined is not None:
        document = jobs.profile(*confined)
    else:
        result = select.selected(repository.call(checkout, entrypoint, given, execution), part)
        document = profiling.measure(result, wanted)
    measured = profiling.Profile.of(document)
    if trace is not None:
        text = output.visible_json(json.dumps(measured.chrome_trace(), ensure_ascii=False))
        paths.write_atomically(trace, text.encode())
    if html is not None:
        from hubcli.running import profile_page

        what = f"{', '.join(shapes)} on {device or 'cpu'}, {execution.framework}"
        what += ", forward and backward" if backward else ", forward"
        drawn = profile_page.page(measured, f"{checkout.spec} {entrypoint}", what)
        paths.write_atomically(html, drawn.encode("utf-8", "replace"))
    output.Output.current().result(
        {
            "ops": [_row(one) for one in measured.ops()],
            "modules": [_row(one) for one in measured.modules()],
            "module_classes": [_row(one) for one in measured.module_classes()],
            "wall_us": round(measured.wall_us, 3),
        },
        lambda: profiling.table(measured),
    )


def _row(one: Any) -> dict[str, Any]:
    return {
        "name": one.name.removeprefix("module: "),
        "calls": one.calls,
        "self_us": round(one.self_us, 3),
        "total_us": round(one.total_us, 3),
        "bytes": one.bytes,
    }
