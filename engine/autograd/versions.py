"""Version counters, and values saved for backward.

A version counter is a one-element list, shared by a base, its views and `detach()` results (the same
memory seen again), fresh for `.data`.  Every in-place write adds one.  A node that saves a tensor saves the
number too; reading it back in backward compares.  An *input* is saved as the Tensor.  An *output* is saved as
a `SavedResult` (array, counter, number), never as the Tensor: the Tensor holds the node, so saving it would
tie a cycle that only the garbage collector frees.

Note [Inference tensors]
A tensor made inside `inference_mode` has an `InferenceVersion` for a counter, which its views and `detach()` share,
and MAYBE for `_requires_grad`, so that writes to it are looked at.  The counter counts nothing, refuses to be raised
outside of that mode, and refuses to be read at place -1, which is how a node that saves a tensor reads the number.
https://docs.pytorch.org/docs/2.13/notes/autograd.html#inference-mode
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from engine.backends.references import LOCAL_AND_ONE
from engine.core.grad_mode import mode
from engine.core.slots import Slot, Slots

SECOND_TIME = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
    "been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). "
    "Specify retain_graph=True if you need to backward through the graph a second time or if you need to access "
    "saved tensors after calling backward."
)


class Aliases:
    """The counters of `.data` of a tensor: writes to its memory that its own version does not show.

    A plan that has computed something of the elements asks for their sum.
    """

    __slots__ = ("counters", "made", "past")

    def __init__(self) -> None:
        self.made = [0]  # how many there were: a counter, too
        self.counters: list[list[int]] = []
        self.past = 0  # of those that nobody has any more

    def add(self, counter: list[int]) -> None:
        """One more."""
        if len(self.counters) >= _MANY:
            unused = [c for c in self.counters if sys.getrefcount(c) <= LOCAL_AND_ONE]
            self.counters = [c for c in self.counters if not any(c is u for u in unused)]
            self.past += sum(c[0] for c in unused)
        self.counters.append(counter)
        self.made[0] += 1

    def writes(self) -> int:
        """Return the number of writes."""
        return self.past + sum([c[0] for c in self.counters])


_MANY = 16


def aliased(source: Any, made: Any) -> Any:
    """`made`, which is a `.data` of `source`."""
    if source._aliases is None:
        source._aliases = Aliases()
    made._aliases = source._aliases
    made._aliases.add(made._vc)
    return made


class InferenceVersion(list[int]):
    """The counter of tensors made in inference mode: Note [Inference tensors]."""

    def __getitem__(self, place: Any) -> Any:
        if place == -1:
            raise RuntimeError(
                "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference "
                "mode in computation tracked by autograd. To work around this, you can make a clone to get a normal "
                "tensor and use it in autograd, or use `torch.no_grad()` instead of `torch.inference_mode()`."
            )
        return list.__getitem__(self, place)

    def __setitem__(self, place: Any, value: Any) -> None:
        self.check_writable()

    def untracked(self) -> NoReturn:
        """Raise torch's error for `_version`."""
        raise RuntimeError("Inference tensors do not track version counter.")

    @staticmethod
    def check_writable() -> None:
        """Raise for a write outside of inference mode."""
        if not mode.inference:
            raise RuntimeError(
                "Inplace update to inference tensor outside InferenceMode is not allowed."
                "You can make a clone to get a normal tensor before doing inplace update."
                "See https://github.com/pytorch/rfcs/pull/17 for more details."
            )

    @staticmethod
    def check_requires_grad() -> None:
        """Raise for `requires_grad = True` outside of inference mode."""
        if not mode.inference:
            raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.")


def mark(tensor: Any) -> None:
    """A tensor has been made: an inference tensor, if this thread is in that mode."""
    if mode.inference:
        tensor._vc = InferenceVersion((0,))
        tensor._requires_grad = 2  # MAYBE, of graph.py


def second_time() -> NoReturn:
    """Raise the error of a backward through freed buffers."""
    raise RuntimeError(SECOND_TIME)


class AlsoSaved:
    """The tensors that torch saves for a node whose formula here reads something else.

    It is saved as anything else is: a write to it is refused, `saved_tensors_hooks` pack it, and it is freed by the
    pass that frees the graph, after which another pass is an error.

    again: where torch's gradient is one function that saves its arguments, what the node of the gradient saves in a
    double backward: the last of `entries`; with_grad: what came in, too.
    """

    __slots__ = ("again", "entries", "with_grad")

    def __init__(self) -> None:
        self.entries: list[tuple[Any, ...]] | None = []
        self.again: list[tuple[Any, ...]] | None = None
        self.with_grad = False

    def add(self, node: Any, tensors: Sequence[Any]) -> None:
        """Save `tensors` for `node`."""
        if self.entries is None:
            second_time()
        for t in tensors:
            unpack = registered.pack(t)
            if unpack is not None:
                self.entries.append((unpack,))
                continue
            edge = None
            if not (t.is_sparse or t.is_sparse_csr):  # of such the values are in the graph, not itself
                edge = t._edge if t._view is None else t._view.edge
            mine = edge is not None and edge[0] is node  # the Tensor of an output would tie a cycle
            self.entries.append((t._array if mine else t, t._vc, t._vc[-1]))

    def renewed(self, result: Sequence[Any], grads: Sequence[Any]) -> Sequence[Any]:
        """`result`, the recorded gradients of a node that was given `grads`, whose nodes save `again`."""
        made = [r.view_as(r) if r is not None and any(r is g for g in grads) else r for r in result]  # a node of ours
        for r in made:
            if r is not None and r.grad_fn is not None:
                guard(r, *(grads if self.with_grad else ()))
                r.grad_fn._more().also_saved.entries.extend(self.again)
        return made

    def check(self, wrap: Callable[[Any], Any]) -> None:
        """Raise where the graph was freed, or something in it was written to since.  wrap(array) is a Tensor of it."""
        if self.entries is None:
            second_time()
        for entry in self.entries:
            if len(entry) == 1:
                entry[0]()
            elif entry[1][0] != entry[2]:
                saved = entry[0] if hasattr(entry[0], "_vc") else wrap(entry[0])
                modified(f"{saved.type()} {list(saved.shape)}", "", entry[1][0], entry[2])

    def free(self) -> None:
        """Forget what was saved."""
        self.entries = self.again = None


class Registered(Slots):
    """The functions of `saved_hooks.py` that saved tensors call."""

    # pack(tensor): what unpacks it again, None where no hooks are open in this thread
    pack: Slot[Callable[[Any], Callable[[], Any] | None]] = lambda tensor: None


registered = Registered()


def guard(result: Any, *tensors: Any) -> Any:
    """`result`, whose node saves `tensors` (None is skipped) too: `AlsoSaved`."""
    node = result.grad_fn
    if node is not None:
        more = node._more()
        if more.also_saved is None:
            more.also_saved = AlsoSaved()
        more.also_saved.add(node, [t for t in tensors if t is not None])
    return result


def guard_again(result: Any, *tensors: Any, grad: bool = False) -> Any:
    """`guard`, and in a double backward the node of the gradient saves `tensors`, too (grad: and what comes in)."""
    node = result.grad_fn
    if node is not None:
        guard(result, *tensors)
        saved = node._more().also_saved
        count = sum([t is not None for t in tensors])
        saved.again = (saved.again or []) + saved.entries[len(saved.entries) - count :]
        saved.with_grad = saved.with_grad or grad
    return result


def own(grad: Any) -> Any:
    """`grad`, or while a second derivative is recorded a copy of it: torch's formula saves a product, not `grad`."""
    return grad.clone() if mode.enabled and grad._requires_grad else grad


class SavedResult(NamedTuple):
    """An output saved for backward: its array, version counter and version, and which output it is."""

    array: Any
    counter: list[int]
    version: int
    nr: int


def modified(described: str, origin: str, version: int, expected: int) -> NoReturn:
    """Raise torch's error for a saved tensor that was written to since."""
    raise RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{described}]{origin and f', which is {origin},'} is at version {version}; expected version {expected} "
        "instead. Hint: enable anomaly "
        "detection to find the operation that failed to compute its gradient, with "
        "torch.autograd.set_detect_anomaly(True, check_nan=False)."
    )


def called(node: Any) -> str:
    """`Sigmoid` for a SigmoidBackward0 and `Sum1` for a SumBackward1, as torch's messages name them."""
    whole: str = node.name()
    name, _, number = whole.partition("Backward")
    return f"{name}{number.removeprefix('0')}" if number.isdigit() or not number else whole


def check_input(tensor: Any, expected: int) -> None:
    """Raise unless the saved input `tensor` is still at version `expected`."""
    version = tensor._vc[0]
    if version != expected:
        node = tensor.grad_fn  # of a view the one that it is given anew
        origin = "" if node is None else f"output {tensor.output_nr} of {called(node)}"
        if node is None and tensor._base is not None and tensor._base.requires_grad:
            origin = "output 0 of AsStrided"  # a view taken for this message only
        modified(f"{tensor.type()} {list(tensor._array.shape)}", origin, version, expected)


def unpack_result(saved: SavedResult, node: Any, rebuild: Any) -> Any:
    """The saved output of `node` as a Tensor on `node`; raises when it was written to since."""
    if saved.counter[0] != saved.version:
        tensor = rebuild(saved.array)
        modified(
            f"{tensor.type()} {list(saved.array.shape)}",
            f"output {saved.nr} of {called(node)}",
            saved.counter[0],
            saved.version,
        )
    tensor = rebuild(saved.array)
    tensor._vc = saved.counter
    tensor._requires_grad = True
    tensor._edge = (node, saved.nr)
    return tensor
