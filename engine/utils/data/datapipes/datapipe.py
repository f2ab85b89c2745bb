"""The bases of data pipes: `IterDataPipe`, `MapDataPipe`, and `functional_datapipe`, which gives a pipe a method."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from engine.utils.data.dataset import Dataset, IterableDataset

__all__ = ["IterDataPipe", "MapDataPipe", "functional_datapipe"]


class _Pipe:
    """`pipe.NAME(...)` makes the pipe that was registered as NAME, with this one as its source."""

    functions: dict[str, Any]

    def __getattr__(self, attribute: str) -> Any:
        made = type(self).functions.get(attribute)
        if made is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{attribute}'")
        return functools.partial(made, self)

    @classmethod
    def register_datapipe_as_function(
        cls, function_name: str, cls_to_register: Any, enable_df_api_tracing: bool = False
    ) -> None:
        """Make `pipe.function_name(...)` mean cls_to_register(pipe, ...).  Exception when the name is taken."""
        if function_name in cls.functions:
            raise Exception(  # torch's type
                f"Unable to add DataPipe function name {function_name} as it is already taken"
            )
        cls.functions[function_name] = cls_to_register

    register_function = register_datapipe_as_function

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return type(self).__qualname__


class IterDataPipe(_Pipe, IterableDataset):
    """Base of pipes that are streams: subclasses define `__iter__`."""

    functions = {}

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError("Subclasses of IterDataPipe should implement __iter__.")

    def reset(self) -> None:
        """Nothing: called before each pass by subclasses that need it."""


class MapDataPipe(_Pipe, Dataset):
    """Base of pipes with an index: subclasses define `__getitem__`."""

    functions = {}


class functional_datapipe:
    """Class decorator: `@functional_datapipe("batch")` makes `pipe.batch(...)`.  TypeError for no pipe."""

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name = name

    def __call__(self, cls: Any) -> Any:
        if not (isinstance(cls, type) and issubclass(cls, IterDataPipe | MapDataPipe)):
            raise TypeError("functional_datapipe can only decorate IterDataPipe or MapDataPipe")
        base: Callable[..., Any] = IterDataPipe if issubclass(cls, IterDataPipe) else MapDataPipe
        base.register_datapipe_as_function(self.name, cls)  # type: ignore[attr-defined]
        return cls
