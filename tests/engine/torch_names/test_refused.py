"""Names that can be imported and not used: each is what its users do with it at import, and says what is missing."""

from __future__ import annotations

import enum
import importlib
import pickle
from types import ModuleType
from typing import Any

import pytest

from engine.torch_names import refused

ENTRIES = [
    (module, why, name) for module, (why, text) in refused.MODULES.items() for name in refused.names(module, text, why)
]


def load(name: str) -> ModuleType:
    return importlib.import_module(f"engine.{name}")


def value(module: str, name: str) -> Any:
    made = refused.module(module, load)
    assert made is not None
    return getattr(made, name)


@pytest.mark.parametrize("module", [*refused.MODULES, *refused.ALSO])
def test_the_modules_are_there(module: str) -> None:
    made = refused.module(module, load)
    assert made is not None and made.__name__ == f"torch.{module}" and made.__path__ == []
    assert refused.has(module) and all(hasattr(made, name) for name in made.__all__)
    parent = module.rpartition(".")[0]
    assert not parent or parent in refused.PARENTS


@pytest.mark.parametrize(("module", "why", "name"), ENTRIES, ids=[f"{m}.{n}" for m, _, n in ENTRIES])
def test_using_a_name_says_what_is_missing(module: str, why: str, name: str) -> None:
    found = value(module, name)
    if isinstance(found, type) and issubclass(found, enum.Enum):
        assert len(found) > 0 and all(member.name.isupper() for member in found)
        return
    text = refused.MODULES[module][1]
    if f"{name}~" in text.split():
        marked = found("v", "i")(load)
        assert marked is load
        return
    with pytest.raises(NotImplementedError) as caught:
        found(1, option=2)
    assert str(caught.value) == f"torch.{module}.{name} is not supported: {why}"


def test_a_class_is_used_as_classes_are_at_import() -> None:
    kind = value("distributed.tensor.parallel", "ParallelStyle")

    class Own(kind):
        def __repr__(self) -> str:
            return "own"

    assert not isinstance(3, kind) and issubclass(Own, kind) and kind[int] is kind
    assert (kind | None) is not None and kind.__module__ == "torch.distributed.tensor.parallel"
    with pytest.raises(NotImplementedError, match=r"torch\.distributed\.tensor\.parallel\.Own is not supported"):
        Own()


def test_a_function_knows_its_place() -> None:
    save = value("distributed.checkpoint", "save")
    assert (save.__name__, save.__module__) == ("save", "torch.distributed.checkpoint")


def test_a_module_of_further_names_shows_those_that_are_there() -> None:
    made = refused.module("profiler.profiler", load)
    assert made is not None and made.profile is load("profiler").profile
    with pytest.raises(AttributeError):
        made.no_such_name  # noqa: B018


def test_what_the_tables_lack() -> None:
    assert refused.module("nowhere", load) is None and not refused.has("distributed.nowhere")


def test_capitals_are_classes_and_all_else_functions() -> None:
    made = refused.names("m", "Kind _Hidden make _hidden Choice(A B) mark~", "why")
    assert isinstance(made["Kind"], type) and isinstance(made["_Hidden"], type)
    assert not isinstance(made["make"], type) and callable(made["_hidden"])
    assert [one.name for one in made["Choice"]] == ["A", "B"]
    assert list(made) == ["Kind", "_Hidden", "make", "_hidden", "Choice", "mark"]
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(made["make"])
