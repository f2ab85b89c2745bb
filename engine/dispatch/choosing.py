"""The choice of a kernel for large CPU arrays: oneDNN's, generated code, or the op's own in blocks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from engine.backends import routes
from engine.dispatch.record import Op
from engine.dispatch.table import providers

if TYPE_CHECKING:
    from engine.core.arrays import Array, ArrayModule
    from engine.dispatch.record import Arrays, Generated, Kernel, Launch, Public

    Operands = Sequence[Any]  # of a kernel: arrays in the place of tensors, numbers, options
    ArrayGradient = Callable[[Array, Array], Arrays]  # of (grad, result)

    class Explained(Protocol):
        """A kernel of several routes, which says of a call what each of them did."""

        explained: Callable[[Operands, dict[str, object]], Iterable[Choice]]

        def __call__(self, xp: ArrayModule, *args: Any, into: Array | None = None, **kwargs: object) -> Arrays: ...


measured = routes.chosen
# Elements from which a generated kernel is asked for, by the passes that numpy takes instead (option `generated`).
ASKED_FROM = {"many": 512, "some": 1 << 11, "one": 1 << 15}


class Choice(NamedTuple):
    """A route in one call: whether it was taken, and why or why not."""

    route: str
    taken: bool
    why: str


class Inquiry(list[Choice]):
    """What `explain` passes to a kernel of several routes: the choices are noted, and the op's own code is not run."""

    def leave(self, route: str, why: str) -> None:
        """Note a route that does not serve the call."""
        self.append(Choice(route, False, why))

    def take(self, route: str, why: str) -> Arrays:
        """Note the route that serves the call; NotImplemented, as nothing is computed."""
        self.append(Choice(route, True, why))
        return NotImplemented  # type: ignore[no-any-return]  # of no type


def large_kernel(record: Op) -> Explained:
    """The kernel for large and for converted arrays: oneDNN's variant, and for what that leaves the op's own, in
    blocks.

    `into`: the target of an in-place op; a kernel that has written there returns it.  `explained(args, kwargs)` of what
    is returned yields the `Choice`s of such a call in the order of its routes; it asks them as a call does.
    """
    blocks: Kernel | None = None
    least, plain = record.large if generated(record) and not record.large_by else 0, np.ndarray
    size = result_size if several_elements(record) else _size

    def present(
        xp: ArrayModule, *args: Any, into: Array | None = None, inquiry: Inquiry | None = None, **kwargs: object
    ) -> Arrays:
        nonlocal blocks
        row = measured.get(record.name)  # Note [Measured routes] in engine/backends/routes.py
        route = None
        if row is not None and args[0].__class__ is plain:
            route = routes.route(row, size(args))
            if route == "numpy":
                if inquiry is not None:
                    return inquiry.take("numpy", f"calibrated: the fastest for {_elements(record, args)}")
                return record.kernel(xp, *args, **kwargs)
        if route is None and least and args[0].__class__ is plain and size(args) < least:
            if inquiry is not None:
                return inquiry.take(
                    "numpy", f"{_elements(record, args)}; other kernels than generated code from {least}"
                )
            return record.kernel(xp, *args, **kwargs)
        if route != "blocks":
            library = onednn_kernels()
            variant = record.kernels.get("onednn") if library else _images(record, args[0])
            if variant is not None:
                if into is not None and "into" in variant.__code__.co_varnames:
                    found = variant(xp, *args, into=into, **kwargs)
                else:
                    found = variant(xp, *args, **kwargs)
                if found is not NotImplemented:
                    if inquiry is not None:
                        how = " (calibrated)" * (route == "onednn")
                        return inquiry.take("onednn" if library else "images", f"serves such operands{how}")
                    return found
            if inquiry is not None:
                _note_left(inquiry, library, variant, args)
        if record.large_by and args[0].size < Op.large:
            if inquiry is not None:
                return inquiry.take("numpy", "few elements of much work")
            return record.kernel(xp, *args, **kwargs)
        if inquiry is not None:
            if record.blocks or "blocks" in record.kernels:
                how = " (calibrated)" * (route == "blocks")
                return inquiry.take("blocks", f"the op's own code on all threads{how}")
            return inquiry.take("numpy", "the op's own code; it has no other that serves")
        if blocks is None:
            blocks = providers.blocks(record)
        return blocks(xp, *args, into=into, **kwargs)

    def asked(args: Operands, kwargs: dict[str, Any]) -> Inquiry:
        inquiry = Inquiry()
        present(np, *args, inquiry=inquiry, **kwargs)
        return inquiry

    present.explained = asked  # type: ignore[attr-defined]
    if not generated(record) or record.lists:
        return present  # type: ignore[return-value]  # it has the attribute
    made: Generated | None = None
    over: Generated | None = None

    def kernel(xp: ArrayModule, *args: Any, into: Array | None = None, **kwargs: Any) -> Arrays:
        nonlocal made, over
        if made is None and not worth_loading(size(args)):
            return present(xp, *args, into=into, **kwargs)
        if into is not None and into is args[0] and _disjoint(into, args[1:]):
            if over is None:
                over = providers.generated(record, present, 0)
            found = over(xp, *args, **kwargs)
        else:
            if made is None:
                made = providers.generated(record, present)
            found = made(xp, *args, **kwargs)
        return present(xp, *args, into=into, **kwargs) if found is NotImplemented else found

    def explained(args: Operands, kwargs: dict[str, object]) -> Iterator[Choice]:
        ready = made or over
        if ready is None:
            yield Choice("generated", False, _NOT_LOADED)
        else:
            why = ready.why_not(args, kwargs)
            yield Choice("generated", not why, why or "right, and not slower than the routes below")
            if not why:
                return
        yield from asked(args, kwargs)

    kernel.explained = explained  # type: ignore[attr-defined]
    return kernel  # type: ignore[return-value]  # as above


def of_few(record: Op, args: Operands) -> Iterator[Choice]:
    """Yield the one route of a call with few elements."""
    if record.view:
        yield Choice("numpy", True, "a view")
    elif record.large_by:
        yield Choice("numpy", True, f"little work; other kernels from {asked_from(record)} in all operands multiplied")
    else:
        yield Choice("numpy", True, f"{_elements(record, args)}; other kernels from {asked_from(record)}")


def without_launch(function: Launch) -> Choice:
    """Return why a direct launch has left a call: `function` is what was asked."""
    counts = getattr(function, "__name__", "") == "counting"
    return Choice("direct", False, _NOT_LOADED if counts else "no launch for such operands; tried when calls repeat")


def _elements(record: Op, args: Operands) -> str:
    found = [a.size for a in args if isinstance(a, np.ndarray)]
    count = result_size(args) if found and several_elements(record) else max(found, default=0)
    return f"{count} element" + "s" * (count != 1)


def _note_left(inquiry: Inquiry, library: bool, variant: Kernel | None, args: Operands) -> None:
    """Note the route of a library, or of kernels of pictures, that does not serve."""
    if variant is not None:
        inquiry.leave("onednn" if library else "images", f"does not serve such operands ({_kinds(args)})")
    elif not library:
        inquiry.leave("onednn", _without_library())


def _without_library() -> str:
    from engine.backends import onednn

    return onednn.describe()


def _kinds(args: Operands) -> str:
    kinds = dict.fromkeys(str(a.dtype) for a in args if isinstance(a, np.ndarray))
    return ", ".join(kinds) or "no arrays"


def _images(record: Op, first: Array) -> Kernel | None:
    """The kernel of channels-last pictures where no library serves; None for ops without one, and until generated code
    is worth loading."""
    if not record.image_kernel or not worth_loading(first.size) or not _pictured():
        return None
    return record.kernels.get("images")


@functools.cache
def _pictured() -> bool:
    """Return whether there are such kernels; the first call imports them."""
    from engine.kernels import processor

    return processor.available() and bool(providers.images())


_NOT_LOADED = "not loaded before a program has computed some millions of elements"
_LOADED_FOR = 3 << 22  # elements; a first pass of ResNet-18 over one picture is 8 million
_left = [_LOADED_FOR]  # elements until generated code is loaded
_MANY = 1 << 14  # elements for which a call counts as one more
_COUNTED = 64  # small calls that are counted at once, as _SMALL elements
_SMALL = 1 << 14


def worth_loading(size: int, least: int = 1 << 16) -> bool:
    """Return whether so much was computed, `size` elements included (or `least`), that the modules of generated code
    are worth loading: a program that runs a small model once does without them."""
    if _left[0] > 0:
        from engine.kernels import processor

        _left[0] -= max(size, least) if not processor.always() else _LOADED_FOR
    return _left[0] <= 0


def direct_calls(record: Op) -> Launch | None:
    """Return the function that small calls of an op try first: Note [Direct calls] in engine/kernels/direct.py.  Until
    generated code is worth loading, it counts calls; None for ops without generated code.

    Its arguments are the op's, keyword-only ones last, of a list its elements; it returns NotImplemented for what is
    left to other kernels.
    """
    if record.quick is ...:
        record.quick = _counting(record) if generated(record) else None
    return record.quick


def _counting(record: Op) -> Launch:
    calls = 0
    often = 1 if fewest(record) == 1 else _COUNTED
    small = min(record.large, ASKED_FROM[record.generated]) if record.blocks == "elements" else record.large
    size = _judged_by(record)

    def counting(*args: object) -> Arrays:
        nonlocal calls
        calls += 1 + getattr(args[0], "size", 0) // _MANY
        if calls >= often:
            calls = 0
            if not worth_loading(_SMALL, 0):
                return NotImplemented  # type: ignore[no-any-return]  # of no type
            large = large_kernel(record)

            def present(xp: ArrayModule, *given: Any, **named: Any) -> Arrays:
                few = record.lists or size(given) < small
                return (record.kernel if few else large)(xp, *given, **named)

            record.quick = providers.direct(record, present)
            for space in record.namespaces:
                if space["direct"] is not None:
                    space["direct"] = record.quick
        return NotImplemented  # type: ignore[no-any-return]  # of no type

    return counting


def run_direct(function: Any, *args: object) -> Arrays:
    """Run a small call of an op by generated code, on arrays; NotImplemented where there is none for it."""
    found = function.op.quick
    if found is ...:
        found = direct_calls(function.op)
    return NotImplemented if found is None else found(*args)


_large = functools.cache(large_kernel)


def run_on_arrays(function: Any, *args: Array | None) -> Arrays:
    """Run an op on arrays: a launch where the call repeats one, else as many elements are."""
    found = run_direct(function, *args)
    return _large(function.op)(np, *args) if found is NotImplemented else found


def quickly(backward: Public, own: ArrayGradient, *more: object) -> ArrayGradient:
    """`own(grad, result)`, a gradient over arrays, behind what the op `backward` has for small calls."""

    def gradient(grad: Array, result: Array) -> Arrays:
        found = run_direct(backward, grad, result, *more)
        return own(grad, result) if found is NotImplemented else found

    return gradient


def several_elements(record: Op) -> bool:
    """Return whether an element of an op's result depends on one of each of several tensors, which are broadcast."""
    return record.blocks == "elements" and len(record.tensors) > 1


def _judged_by(record: Op) -> Callable[[Operands], int]:
    """Return the function of operands that gives the size by which a call is judged: Note [Size of a result]."""
    if not record.large_by:
        return result_size if several_elements(record) else _size
    places = [record.params.index(name) for name in record.large_by]
    return lambda args: prod([args[place].size for place in places])


def result_size(args: Operands) -> int:
    """Return the elements that operands have once they are broadcast.  ValueError where they cannot be."""
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    first = arrays[0]
    if all([a.ndim == 0 or a.shape == first.shape for a in arrays[1:]]):
        return first.size
    return np.broadcast(*arrays).size


def few(least: int, *args: object) -> bool:
    """Return whether operands have fewer elements once they are broadcast: a row and a column may give many."""
    return result_size(args) < least


def _size(args: Operands) -> int:
    """Elements of the first operand, or of the second where that is a number."""
    found: int = args[0].size if isinstance(args[0], np.ndarray) else args[1].size
    return found


def _disjoint(target: Array, others: Operands) -> bool:
    """Return whether what is written can be read meanwhile: no other operand has a part of its memory."""
    return not any(isinstance(a, np.ndarray) and a is not target and np.may_share_memory(target, a) for a in others)


def asked_from(record: Op) -> int:
    """Elements from which another kernel than the plain one is asked for: as the op says, or as measured here."""
    large = routes.least(record.name, record.large)
    if generated(record):
        few = fewest(record)
        if record.blocks == "elements" or few == 1:  # of others the arrangement of operands costs more
            large = min(large, few)
    return large


def fewest(record: Op) -> int:
    """Elements from which generated code of an op is asked for."""
    from engine.kernels import processor

    return 1 if processor.always() else ASKED_FROM[record.generated]


def generated(record: Op) -> bool:
    """Return whether the op has kernels that are generated here: the extra `jit` is installed and not disabled."""
    if not record.generated:
        return False
    from engine.kernels import processor

    return processor.available()


@functools.cache
def onednn_kernels() -> bool:
    """Return whether oneDNN is in use; the first call looks for it and loads the kernels that call it."""
    from engine.backends import onednn

    if onednn.is_available():
        providers.onednn()
    return onednn.is_available()
