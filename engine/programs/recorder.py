"""`Recorder`: the calls of one run, in order, and which tensor each of their values was.

Plans for inference, training steps, `jit.trace`, `export` and ONNX record with this class; what they want of it are the
arguments of `Recorder`.  What cannot be recorded, such as control flow that read values, raises `Unsupported`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from engine.dispatch import OPS
from engine.programs.values import Call, Ref, Unsupported, mapped, record_of, setitem, tensors_in
from engine.random import default_generator
from engine.tensor import Tensor, raw_array

if TYPE_CHECKING:
    from engine.core.arrays import Array
    from engine.programs.casts import Casts
    from engine.programs.sizes import Sizes
    from engine.programs.training.step import Step

__all__ = ["Recorder"]

T = TypeVar("T")


class Recorder:
    """The calls of one run.

    inputs: the tensors that each replay gets anew.
    hold: values that depend on the inputs live as long as the recorder, so that they can be looked at; else (None in
    `values`) only as long as the run needs them.
    whole: functions that are no ops and are noted as one.  makers: those that make a tensor of given sizes, a constant.
    sizes: what makes sizes a part of the program.  casts: what makes autocast's casts calls; else it is a failure.
    step: what a training step does beside calls; draws and writes to tensors that were there are calls then, and every
    value counts as one that depends on the inputs.
    lenient: random numbers are drawn anew, and what is there is written to, by who replays the calls.
    warn: called with the name of the method where values are read in Python; without it that is a failure.
    """

    def __init__(
        self,
        inputs: Sequence[Tensor],
        *,
        hold: bool = True,
        whole: Mapping[FunctionType, object] | None = None,
        makers: frozenset[FunctionType] = frozenset(),
        sizes: Sizes | None = None,
        casts: Casts | None = None,
        step: Step | None = None,
        lenient: bool = False,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.hold, self.whole, self.makers = hold and step is None, whole or {}, makers
        self.sizes, self.casts, self.step, self.lenient, self.warn = sizes, casts, step, lenient, warn
        self.owner = threading.get_ident()
        self.inside = False  # whether a call that is noted goes on
        self.failure: Unsupported | None = None
        self.calls: list[Call] = []
        self.result: object = None  # what the run returned, with Refs
        # of each value
        self.values: list[Tensor | None] = []
        self.kinds: list[tuple[tuple[int, ...], np.dtype]] = []  # shape and dtype
        self.derived: list[bool] = []  # whether it depends on the inputs
        self.constants: dict[int, Tensor] = {}  # the tensors that no call made, by number
        self.fresh: dict[int, Array] = {}  # of those that came up during the run: their elements when they were met
        # of each tensor, as long as it lives
        self.numbers: dict[int, int] = {}  # id -> its latest number
        self.arrays: dict[int, int] = {}  # id of its array -> the same
        self.exact: dict[int, int] = {}  # id of an input or constant -> its number
        self.created: dict[
            int, weakref.ref[Tensor]
        ] = {}  # ids of tensors that came up during the run, and not out of an op
        self._living: dict[int, Callable[[], Any]] = {}  # id of a tensor -> weak reference
        self._places: dict[int, Callable[[], Any]] = {}  # id of an array -> weak reference
        # writes
        self.expected: dict[int, tuple[list[int], int]] = {}  # id of a version counter -> it, its version at last
        self._states: list[tuple[Tensor, tuple[int, int]]] = []  # of constants, when they were met
        self._reads: list[str] = []  # how the values of derived tensors were read in Python
        self._drawn = drawn()
        self.inputs = [self.add_input(t) for t in inputs]

    # --- which tensor is which

    def add_input(self, tensor: Tensor) -> int:
        """The number of a tensor that each replay gets anew."""
        number = self._add(tensor, True)
        self.exact[id(tensor)] = number
        return number

    def ref(self, tensor: Tensor) -> Ref:
        """The number of a tensor.  An unknown one is an alias (`detach()`) of a known one, or a constant."""
        number = self.numbers.get(id(tensor))
        if number is None:
            number = self._alias(tensor)
        return Ref(self._constant(tensor) if number is None else number)

    def leaf(self, tensor: Tensor) -> Ref:
        """The number of this very tensor, not of another on the same memory."""
        number = self.exact.get(id(tensor))
        return Ref(self._constant(tensor) if number is None else number)

    def made(self, tensor: Tensor) -> None:
        """A tensor came up that no op made."""
        key = id(tensor)
        self.created[key] = weakref.ref(tensor, _forget(key, self.created))

    def _add(self, tensor: Tensor, derived: bool) -> int:
        number, array = len(self.kinds), raw_array(tensor)
        self.kinds.append((array.shape, array.dtype))
        self.values.append(tensor if self.hold or not derived else None)
        self.derived.append(derived or self.step is not None)
        self._know(tensor, number)
        return number

    def _know(self, tensor: Tensor, number: int) -> None:
        """The number of a tensor, and of those on its array, as long as they live."""
        for thing, numbers, living in (
            (tensor, self.numbers, self._living),
            (raw_array(tensor), self.arrays, self._places),
        ):
            key = id(thing)
            numbers[key] = number
            if key not in living:
                try:
                    living[key] = weakref.ref(thing, _forget(key, numbers, living))
                except TypeError:  # an array of a kind that has no weak references: it lives as long as the recorder
                    living[key] = lambda thing=thing: thing  # type: ignore[misc]  # a strong reference in a weak one's place

    def _alias(self, tensor: Tensor) -> int | None:
        """The number of the value whose array a tensor has."""
        array = raw_array(tensor)
        number = self.arrays.get(id(array))
        if number is None:  # its memory may have been laid out anew
            for key, reference in list(self._living.items()):
                other = reference()
                if other is None:
                    continue
                converted = other._channels_last  # `raw_array`, without a call for each of a network's tensors
                if (other._array if converted is None else converted) is array:
                    number = self.numbers[key]
                    break
        if number is not None:
            self._know(tensor, number)
        return number

    def _constant(self, tensor: Tensor) -> int:
        """A new number for a tensor that the run found there, or made without an op."""
        if self.step is not None and type(raw_array(tensor)).__module__.partition(".")[0] not in ("numpy", "engine"):
            raise Unsupported("it computes on another device than the CPU")
        number = self._add(tensor, False)
        self.constants[number] = tensor
        self.exact[id(tensor)] = number
        if id(tensor) in self.created:
            array = tensor._array
            self.fresh[number] = np.array(array) if isinstance(array, np.ndarray) else array.copy()
        else:
            self._states.append((tensor, _state(tensor)))
        return number

    @property
    def found(self) -> list[Tensor]:
        """The constants that were there before the run."""
        return [tensor for tensor, _ in self._states]

    # --- calls

    def active(self) -> bool:
        """Return whether a call now is one to note."""
        return not self.inside and self.failure is None and threading.get_ident() == self.owner

    def see(self, value: object) -> None:
        """Number the tensors of a call before it writes to any.  Unsupported if one has changed behind the recorder."""
        if self.step is not None and drawn() != self._drawn:
            raise Unsupported("random numbers are drawn in a way that no op shows")
        for tensor in tensors_in(value):
            self.ref(tensor)
            counter = tensor._vc
            known = self.expected.get(id(counter))
            if known is None:
                self.expected[id(counter)] = counter, counter[0]
            elif known[1] != counter[0]:
                raise Unsupported("a tensor is written to in a way that no op shows")

    def expect(self, value: object) -> None:
        """The tensors of a call have the versions that they should have from here on."""
        for tensor in tensors_in(value):
            self.expected[id(tensor._vc)] = tensor._vc, tensor._vc[0]

    def note(self, function: FunctionType, args: tuple[object, ...], kwargs: dict[str, object], result: object) -> None:
        """Add one call."""
        self.drew()
        if result is NotImplemented:
            return  # the operator of the other operand follows
        record, name, step, made = record_of(function), function.__name__, self.step, tensors_in(result)
        sized = self.sizes is not None and self.sizes.among((args, kwargs))
        if function in self.makers and not sized and not self._depends((args, kwargs)):
            for tensor in made:
                self.made(tensor)
            return
        if not record.deterministic and step is None and not self.lenient:
            raise Unsupported(f"{name} draws random numbers")
        if kwargs.get("out") is not None:
            raise Unsupported(f"{name} with out=")
        inplace = function is setitem or (name.endswith("_") and bool(args) and result is args[0])
        effect = step is not None and step.effect(function)
        if not made and not (effect and result is None):
            raise Unsupported(f"{name} returned {type(result).__name__}")
        if "out" in kwargs:
            kwargs = {k: v for k, v in kwargs.items() if k != "out"}
        call = Call(function, mapped(args, self.ref, Tensor), mapped(kwargs, self.ref, Tensor), [], inplace)
        if not inplace and made and (known := [id(t) in self.numbers for t in made]) and any(known):
            if not all(known):
                raise Unsupported(f"{name} returned a tensor that it was given")
            return
        if step is not None and inplace and function is not setitem:
            self._note_saved(args[0], call.args[0])  # type: ignore[arg-type]  # tensors of an op in place
        self.add(call, None if function is setitem else result, made, sized, (args, kwargs), effect)

    def add(
        self,
        call: Call,
        result: object,
        made: Sequence[Tensor] = (),
        derived: bool = True,
        given: object = (),
        effect: bool = False,
    ) -> None:
        """Add a call that returned `result`, in which or in place of which it made tensors."""
        call.effect = effect
        derived = derived or self.step is not None or any(self.derived[i] for i in call.refs)
        call.outputs = [self._add(t, derived) for t in made]
        call.result = mapped(result, self.ref, Tensor)
        self.calls.append(call)
        self.expect((made, given))

    def _note_saved(self, written: Tensor, before: Ref) -> None:
        """Record as copies the values that an in-place op saved before it wrote over them."""
        node = None if written._edge is None else written._edge[0]
        for thing in (node.saved or ()) if node is not None else ():
            if isinstance(thing, Tensor) and id(thing) not in self.numbers and id(raw_array(thing)) not in self.arrays:
                self.add(Call(OPS["clone"].function, (before,), {}, [], False), thing, [thing])

    def _depends(self, value: object) -> bool:
        """Return whether an argument depends on an input."""
        numbers = [self.numbers.get(id(t)) for t in tensors_in(value)]
        return any(i is not None and self.derived[i] for i in numbers)

    def drew(self) -> None:
        """The random numbers drawn so far are those of what was noted."""
        if self.step is not None:
            self._drawn = drawn()

    def read(self, name: str) -> None:
        """Values were read in Python by the method `name`."""
        if self.warn is None:
            self._reads.append(name)
        else:
            self.warn(name)

    def given(self, value: T) -> T:
        """The arguments of a call, or its keywords, as the op takes them."""
        return value if self.sizes is None else self.sizes.plain(value)

    def dissolves(self, function: FunctionType) -> bool:
        """Return whether the calls inside of a function are noted this time, instead of its own."""
        return self.casts is not None and self.casts.dissolves(function)

    def cast(
        self, function: FunctionType, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[tuple[object, ...], dict[str, Any]]:
        """The operands of a call under autocast, cast before it."""
        if self.casts is not None:
            return self.casts.cast(self, function, args, kwargs)
        self.failure = self.failure or Unsupported("autocast is on")
        return args, kwargs

    # --- the end

    def finish(self, seed: Tensor) -> None:
        """Record the failures that are known only at the end of the run. seed: the generator's state before."""
        self.attempt(self._end, seed)

    def _end(self, seed: Tensor) -> None:
        if self._reads:
            raise Unsupported(f"the values of a tensor are read in Python (Tensor.{self._reads[0]})")
        if self.step is not None:
            if drawn() != self._drawn:
                raise Unsupported("random numbers are drawn in a way that no op shows")
            self.step.unwritten()
            for counter in (t._vc for t in self.constants.values()):
                if counter[0] != self.expected.get(id(counter), (counter, counter[0]))[1]:
                    raise Unsupported("a tensor is written to in a way that no op shows")
        elif not self.lenient:
            if bytes(seed._array) != drawn():
                raise Unsupported("it draws random numbers")
            if any(_state(t) != state for t, state in self._states):
                raise Unsupported("it writes to parameters, buffers or other tensors it keeps")

    def attempt(self, step: Callable[..., object], *args: object) -> None:
        """One step of the recorder; what it cannot hold is its failure, the run goes on."""
        if self.failure is None:
            try:
                step(*args)
            except Unsupported as error:
                self.failure = error

    def release(self) -> None:
        """Forget the tensors of the run; numbers, calls and constants stay."""
        for table in (self.numbers, self.arrays, self._living, self._places, self.created, self.expected):
            table.clear()
        self.step = None


def drawn() -> bytes:
    """Return the state of the generator, which each draw changes."""
    return bytes(default_generator.get_state()._array)


def _forget(key: int, *tables: dict[int, Any]) -> Callable[[object], None]:
    def forget(_: object) -> None:
        for table in tables:
            table.pop(key, None)

    return forget


def _state(tensor: Tensor) -> tuple[int, int]:
    """Return the counters that change when the tensor is written to."""
    return tensor._vc[0], tensor._replaced
