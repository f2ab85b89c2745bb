"""`hub convert`: rewrite a checkpoint in another format, without running anything that is in it."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from hubcli.base import output
from hubcli.errors import HubError, UsageError
from hubcli.terminal import shared_options

_NAMED = 5  # names that a message gives before it says how many more there are


@click.command()
@click.argument("source", metavar="IN", type=click.Path(dir_okay=False, exists=True))
@click.argument("target", metavar="OUT", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(("safetensors", "zip", "legacy")),
    help="What to write (default: by OUT's extension; .pth and .pt are zip).",
)
@click.option("--key", help="Write only this entry of the checkpoint, e.g. state_dict.")
@click.option("--force", is_flag=True, help="Replace OUT if it exists.")
@shared_options.allowing
def convert(source: str, target: Path, form: str | None, key: str | None, force: bool, allow: tuple[str, ...]) -> None:
    """Rewrite the checkpoint IN as OUT, safely.

    IN is a zip .pth, a legacy or tar file of older releases, safetensors or GGUF, whatever its name; of a
    TorchScript archive the parameters and buffers are written, its program is left out.  Quantized
    tensors of a GGUF file become float32.
    """
    if not Path(source).is_file():  # a pipe would keep us waiting
        raise UsageError(f"{source} is no plain file")
    if target.exists() and not force:
        raise UsageError(f"{target} exists", hint="--force replaces it")
    if not target.parent.is_dir():
        raise UsageError(f"there is no folder {target.parent}", hint="make it first")
    from engine import serialization
    from hubcli.running import checkpoints

    checkpoints.check_names(allow)
    try:
        done = serialization.convert(_weights(source), target, format=form, key=key, names=allow)
    except serialization.UnpicklingError as error:
        raise checkpoints.as_refused(source, error) from None
    except (TypeError, pickle.PicklingError) as error:
        raise HubError(
            f"{source} does not fit the format of {target}: {error}",
            hint="a .pth (--format zip) holds every value that can be read",
        ) from None
    except ValueError as error:
        raise UsageError(str(error), hint="see `hub convert --help`") from None
    except MemoryError:
        raise HubError(f"{source} does not fit into memory") from None
    out = output.Output.current()
    if done.skipped:
        out.message(f"left out, not tensors: {_few(done.skipped)}")
    for group in done.shared:
        out.message(f"these shared memory and are written each on its own: {_few(group)}")
    out.result(
        {
            "tensors": done.tensors,
            "bytes": done.bytes,
            "format": done.format,
            "skipped": list(done.skipped),
            "shared": [list(group) for group in done.shared],
        },
        f"{done.tensors} tensors, {output.size(done.bytes)} ({done.format}): {target}",
    )


def _weights(source: str) -> Any:
    """Return the file itself, or what a TorchScript archive's state dict would be as a checkpoint."""
    from engine import serialization

    if serialization.sniff(source) != "torchscript":
        return source
    import io

    from hubcli.running import archives

    checkpoint = io.BytesIO()
    serialization.save(archives.state_dict(Path(source)), checkpoint)
    checkpoint.seek(0)
    return checkpoint


def _few(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
