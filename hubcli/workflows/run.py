"""`hub run`: a forward pass on each input, in this process or in a child, and its result as a document."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hubcli.running import files, inference, invoke, select, transforms
from hubcli.running.images import Preprocessing
from hubcli.running.inference import Input, Pass, Ranked
from hubcli.running.result import Result


@dataclass(frozen=True)
class Inputs:
    """The files to read, each when its turn comes; the first was read before anything ran.

    `preprocessing` says how to prepare images, None: as the entrypoint does.
    """

    names: Sequence[str]
    preprocessing: Preprocessing | None
    first: tuple[Input, ...]

    @classmethod
    def of(cls, sources: Sequence[str], preprocessing: Preprocessing | None) -> Inputs:
        """Return the files that are meant; what is wrong with the first is found here."""
        names = files.expanded(sources)
        return cls(names, preprocessing, inference.read_inputs(names[0], preprocessing))

    def read(self) -> Iterator[tuple[str, tuple[Input, ...]]]:
        """Yield each file's name and what it holds."""
        for number, file in enumerate(self.names):
            yield file, inference.read_inputs(file, self.preprocessing) if number else self.first


def here(
    load: Callable[[], Result], inputs: Inputs, part: str | None, device: str | None, transform: str | None
) -> Pass:
    """Run the model that `load` gives, or its `part`, in this process."""
    whole = load()
    result = select.selected(whole, part)
    if device is not None:
        invoke.move(result, device)
    prepare = None if inputs.preprocessing is not None else transforms.preparation(whole, result, transform)
    return inference.passes(result, inputs.read(), len(inputs.names), device, prepare)


def document(passed: Pass, written: Sequence[str | None], ranked: Sequence[Ranked]) -> dict[str, Any]:
    """Return the result as the JSON document shows it; `written` are the files of its outputs."""
    return {
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
