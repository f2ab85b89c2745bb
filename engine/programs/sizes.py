"""Sizes as a part of a recorded program: ints that remember which value's size they are."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from engine.programs.values import mapped
from engine.tensor import Size, Tensor

if TYPE_CHECKING:
    from engine.programs.recorder import Recorder

__all__ = ["Dim", "Sizes"]

T = TypeVar("T")
# ("size", number, dim), or an operator's name and its operands
Whence = tuple[str, int, int]


class Dim(int):
    """A size that remembers where it is from: `("size", number, dim)`, or an operator's name and its operands."""

    sizes: Sizes
    whence: Whence

    def __new__(cls, value: int, whence: Whence, sizes: Sizes) -> Dim:
        made = super().__new__(cls, value)
        made.sizes, made.whence = sizes, whence
        return made

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


def _arithmetic(name: str, reflected: bool) -> Callable[[Dim, int], object]:
    plain = getattr(int, f"__{'r' * reflected}{name}__")

    def method(self: Dim, other: int) -> object:
        value = plain(self, other)
        if type(value) is not int or not self.sizes.open:
            return value
        operands = (other, self) if reflected else (self, other)
        return Dim(value, (name, *operands), self.sizes)

    return method


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    for _reflected in (False, True):
        setattr(Dim, f"__{'r' * _reflected}{_name}__", _arithmetic(_name, _reflected))


def _negative(self: Dim) -> int:
    return Dim(-int(self), ("mul", self, -1), self.sizes) if self.sizes.open else -int(self)


Dim.__neg__ = _negative  # type: ignore[method-assign, assignment]  # of a Dim, as the rest


class Sizes:
    """Whether sizes are remembered (`open`), and what a recorder asks of its arguments."""

    open = False

    @staticmethod
    def plain(value: T) -> T:
        """Arguments with ints for such sizes."""
        found: T = mapped(value, int, Dim)
        return found

    @staticmethod
    def among(value: object) -> bool:
        """Return whether a size is among the arguments."""
        found: list[Dim] = []
        mapped(value, found.append, Dim)
        return bool(found)

    def of(self, recorder: Recorder, tensor: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape as ints that remember it, of what depends on an input."""
        if not self.open or not recorder.active():
            return shape
        number = recorder.numbers.get(id(tensor))
        if number is None:
            recorder.attempt(recorder.ref, tensor)  # an alias is known by its memory
            number = recorder.numbers.get(id(tensor))
        if number is None or not recorder.derived[number]:
            return shape
        return tuple(Dim(n, ("size", number, d), self) for d, n in enumerate(shape))

    @contextlib.contextmanager
    def remembered(self, recorder: Recorder) -> Iterator[None]:
        """`shape`, `size()` and `numel()` of tensors tell where they are from."""
        names = ("shape", "size", "numel", "nelement")
        own = {name: Tensor.__dict__[name] for name in names if name in Tensor.__dict__}
        plain = own["shape"].fget

        def shape(tensor: Tensor) -> Size:
            return Size(self.of(recorder, tensor, tuple(plain(tensor))))

        def size(tensor: Tensor, dim: int | None = None) -> Size | int:
            if dim is None:
                return shape(tensor)
            n = own["size"](tensor, dim)  # with its errors
            sizes = shape(tensor)
            found: int = sizes[operator.index(dim)] if sizes else n
            return found

        def numel(tensor: Tensor) -> int:
            count: int = 1
            for n in shape(tensor):
                count = n * count
            return count

        self.open = True
        try:
            for name, value in {"shape": property(shape), "size": size, "numel": numel, "nelement": numel}.items():
                if name in own:
                    setattr(Tensor, name, value)
            yield
        finally:
            self.open = False
            for name, value in own.items():
                setattr(Tensor, name, value)
