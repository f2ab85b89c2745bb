"""The graph: `Node`, `AccumulateGrad`, edges.

An edge is `(node, output_nr)` or None for an input that needs no gradient.  A tensor that has history holds the
edge to the node that made it; a leaf reaches its one AccumulateGrad through a weak reference.

Nothing here knows an operation; what is needed of them (`add`, `clone`, ...) is registered by `ops` (see `Registered`).
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref as weak

from numpy import ndarray

from engine import backends
from engine.autograd.views import INDIRECT, View, replay
from engine.backends.references import LOCAL, LOCAL_AND_ONE
from engine.core.grad_mode import mode
from engine.core.hooks import HookDict, RemovableHandle
from engine.core.slots import Slot, Slots

Edge = tuple["Node", int]

next_seq = itertools.count().__next__
new = object.__new__


class Registered(Slots):
    """Operations the graph needs, set once by the op modules: an upper layer hands them down."""

    add: Slot[Callable[..., Any]]  # add(a, b) -> a + b
    add_: Slot[Callable[..., Any]]  # add_(a, b): in place, no history
    clone: Slot[Callable[..., Any]]  # clone(t)
    clone_strided: Slot[Callable[..., Any]]  # clone_strided(t, shape, strides): clone laid out in those byte strides
    zero_: Slot[Callable[..., Any]]  # zero_(t)
    contiguous_copy: Slot[Callable[..., Any]]  # contiguous_copy(t, like) -> own memory, in the layout of `like`
    copy_: Slot[Callable[..., Any]]  # copy_(dst, src)
    cast: Slot[Callable[..., Any]]  # cast(t, dtype)
    zeros: Slot[Callable[..., Any]]  # zeros(shape, dtype, like=array)
    sum_to_size: Slot[Callable[..., Any]]  # sum_to_size(t, shape)
    resize_out: Slot[Callable[..., Any]]  # resize_out(t, shape): make room for an out= result
    isnan_any: Slot[Callable[..., bool]]
    stack: Slot[Callable[..., Any]]  # stack(tensors)
    at_end: Slot[Callable[[Callable[[bool], None]], None]]  # to be called when the pass that runs ends, or fails
    saved_hooks: Slot[Callable[[str], Any]]  # what saved_hooks.py has under a name
    begin_conversion: Slot[Callable[[], None]]  # before the first tensor in a layout of the engine's choice
    wrap: Slot[Callable[..., Any]]  # wrap(array) -> Tensor on that memory
    Tensor: Slot[Any]  # the class itself
    subclass_made: Slot[Callable[[type], None]]  # an instance of a subclass of Tensor has been made


registered = Registered()


_BY_HAND = ("CopyBackwards", "CopySlices")


class Extra:
    """The rare attributes of a node: hooks, the user's metadata, tensors that retain their gradient, a forward
    traceback."""

    __slots__ = (
        "__weakref__",
        "also_saved",
        "metadata",
        "post_hooks",
        "pre_hooks",
        "prehooks",
        "retains",
        "shown",
        "traceback",
    )

    def __init__(self) -> None:
        self.metadata: dict[Any, Any] | None = None
        self.pre_hooks: dict[int, HookDict] | None = None  # tensor hooks by output_nr
        self.prehooks: HookDict | None = None  # Node.register_prehook
        self.post_hooks: HookDict | None = None  # Node.register_hook
        self.retains: dict[int, Any] | None = None  # output_nr -> weakref to a tensor with retain_grad()
        self.traceback: list[str] | None = None
        self.also_saved: Any = None  # what torch saves and no formula here reads: `versions.AlsoSaved`
        self.shown: Any = None  # what `next_functions` says, of a node that stands for several of torch's


class Node:
    """One recorded operation.  Subclasses (one per op) implement `apply(grads, needs)`.

    `next_edges`: an edge or None for each tensor input.  `saved`: what backward needs of tensors; None once freed,
    () if nothing was saved.  `args`: numbers, shapes and other arguments.  `sequence_nr`: order of creation.
    """

    __slots__ = ("__weakref__", "_extra", "args", "next_edges", "saved", "sequence_nr")
    n_outputs = 1
    adds: Any = None  # adds its gradient to one that is there already, in place: `op` says how
    arrays: Any = None  # `apply` over arrays, where an op has it: Note [Gradients over arrays] in gradients.py
    guarded = False  # its outputs may not be written to: a Module's full backward hooks would be passed by
    kept_results: frozenset[int] = frozenset()  # the outputs in `saved` that torch does not save
    last: Any = None  # called before the only pass through a node that can free what it saved while it runs
    always_runs = False  # a user's Function runs on undefined gradients too, with zeros

    next_edges: Sequence[Edge | None]
    saved: tuple[Any, ...] | None
    args: Any
    sequence_nr: int
    _extra: Extra | None

    def __init__(self, edges: Sequence[Edge | None] = (), n_outputs: int = 1) -> None:
        self.next_edges = edges
        self.saved = ()
        self.args = None
        self.sequence_nr = next_seq()
        self._extra = None

    def apply(self, grads: list[Any], needs: Sequence[bool]) -> Sequence[Any]:
        """Gradients for the inputs.  grads: one a output, None = undefined.  needs: one an edge."""
        raise NotImplementedError(f"{self.name()} has no backward")

    def release(self) -> None:
        """Free what was saved; a later apply raises."""
        if self.saved:
            self.saved = None
        if self._extra is not None and self._extra.also_saved is not None:
            self._extra.also_saved.free()

    @property
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """(node, output_nr) for each tensor input; (None, 0) where no gradient is needed."""
        return tuple((None, 0) if e is None else e for e in self.next_edges)

    def name(self) -> str:
        """The class name, such as `MulBackward0`, behind the namespace of what torch has written by hand."""
        name = type(self).__name__
        return f"torch::autograd::{name}" if name in _BY_HAND else name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {id(self):#x}>"

    def _more(self) -> Extra:
        if self._extra is None:
            self._extra = Extra()
        return self._extra

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dict of the user's."""
        more = self._more()
        if more.metadata is None:
            more.metadata = {}
        return more.metadata

    def register_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(grad_inputs, grad_outputs)` after this node ran; a returned tuple replaces grad_inputs."""
        more = self._more()
        if more.post_hooks is None:
            more.post_hooks = HookDict()
        handle = RemovableHandle(more.post_hooks)
        more.post_hooks[handle.id] = hook
        return handle

    def register_prehook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(grad_outputs)` before this node runs; a returned tuple replaces them."""
        more = self._more()
        if more.prehooks is None:
            more.prehooks = HookDict()
        handle = RemovableHandle(more.prehooks)
        more.prehooks[handle.id] = hook
        return handle

    def __call__(self, *grads: Any) -> Any:
        """The node as a function of the gradients of its outputs."""
        if len(grads) != self.n_outputs:
            raise TypeError(f"{self.name()} expected {self.n_outputs} arguments, got {len(grads)} instead")
        result = self.apply(list(grads), [e is not None for e in self.next_edges])
        return result[0] if len(result) == 1 else tuple(result)


_named: dict[tuple[type[Node], str], type[Node]] = {}


def named(kind: type[Node], name: str) -> type[Node]:
    """The node class `kind` under another name: torch numbers the forms of an operation, and what is one node there
    may be several here, of which the last bears the name."""
    found = _named.get((kind, name))
    if found is None:
        found = type(name, (kind,), {"__slots__": (), "__module__": "engine"})
        _named[kind, name] = found
    return found


def name_node(result: Any, name: str) -> Any:
    """`result` of an operation just done, with that name for the node that it made, if it made one."""
    view = result._view
    if view is None:
        edge = result._edge
    else:
        edge = view.edge if view.version == result._vc[0] else None  # else written to: CopySlices
    if edge is not None and mode.enabled:
        edge[0].__class__ = named(edge[0].__class__, name)
    return result


class Passing(Node):
    """A node that torch has where here an output of another is: it passes the gradient on."""

    __slots__ = ()

    def apply(self, grads: list[Any], needs: Sequence[bool]) -> Sequence[Any]:
        return tuple(grads)


def name_output(result: Any, name: str) -> Any:
    """`result`, one of the outputs of an operation just done, of a node of its own with that name."""
    if result._edge is not None and result._view is None and mode.enabled:
        result._edge = named(Passing, name)((result._edge,)), 0
    return result


class Shown(Node):
    """A node that torch has and that is part of another here: for those who walk the graph by `next_functions`."""

    __slots__ = ()

    def apply(self, grads: list[Any], needs: Sequence[bool]) -> Sequence[Any]:
        raise self._refusal()

    def register_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        raise self._refusal()

    def register_prehook(self, hook: Callable[..., Any]) -> RemovableHandle:
        raise self._refusal()

    def _refusal(self) -> RuntimeError:
        return RuntimeError(
            f"{self.name()} is computed by the node whose next_functions named it: neither calls nor hooks are possible"
        )


def shown(name: str, *edges: Edge | None) -> Edge:
    """An edge to a `Shown` node of that name."""
    return named(Shown, name)(edges), 0


class AccumulateGrad(Node):
    """Adds what arrives to `variable.grad`.  One a leaf: held weakly by the leaf, shared by all its uses."""

    __slots__ = ("variable",)
    variable: Any

    def name(self) -> str:
        return "torch::autograd::AccumulateGrad"

    next_edges = saved = ()
    args = None

    def apply(self, grads: list[Any], needs: Sequence[bool]) -> Sequence[Any]:
        gradient = grads[0]
        if self._extra is None:  # nobody looks at `grads` afterwards: give the only reference up
            grads[0] = None
        if gradient is not None:
            variable = self.variable
            if variable._hooks:
                gradient = run_hooks(variable._hooks, gradient)
            if self._extra is not None and not still_leaf(variable):
                return ()
            with _accumulating:
                stealable = not mode.enabled and sys.getrefcount(gradient) == LOCAL  # nobody else holds it
                accumulate(variable, gradient, stealable)
            hooks = variable._post_accumulate_hooks
            if hooks:
                for hook in list(hooks.values()):
                    hook(variable)
        return ()


def accumulate_arrays(leaf: AccumulateGrad, grads: list[Any]) -> bool:
    """`leaf.apply` for an array that nothing but `grads` holds; False if it is none, or hooks want to see a Tensor."""
    variable, array = leaf.variable, grads[0]
    if (
        array.__class__ is not ndarray
        or leaf._extra is not None
        or variable._hooks
        or variable._post_accumulate_hooks
        or (dtype := array.dtype) is not variable._array.dtype
    ):
        return False
    with _accumulating:
        had = variable._grad
        if had is not None:
            if had.__class__ is registered.Tensor and (total := had._array).dtype is dtype:
                total += array
                had._vc[0] += 1
            else:
                registered.add_(had, registered.wrap(array))
            return True
        grads.clear()
        private = sys.getrefcount(array) == LOCAL and (backends.owns(array) or _shows_all(array))
        if private and _same_layout(array, variable._array):
            variable._grad = registered.wrap(array)
        else:
            variable._grad = registered.contiguous_copy(registered.wrap(array), variable)
    return True


_LAST = 2**62  # later than any operation: runs as soon as it is ready
_accumulating = threading.RLock()


def plus(a: Any, b: Any) -> Any:
    """The sum of two gradients, of which either may be sparse."""
    if a.is_sparse:
        return a + b if b.is_sparse else registered.add(b, a.to_dense())
    return registered.add(a, b.to_dense() if b.is_sparse else b)


def accumulate(variable: Any, gradient: Any, stealable: bool) -> None:
    """Add a gradient to `.grad` of a leaf.

    The first gradient becomes `.grad` itself only if nobody else can see its memory and it is laid out as the
    leaf is; otherwise a copy does.  Later ones are added in place, so that whoever holds `.grad` sees the sum;
    with grad mode on (create_graph) out of place, since the old gradient may be part of a graph.
    """
    had = variable._grad
    if gradient.is_sparse or (had is not None and had.is_sparse):  # the rows of a table (Embedding)
        if had is None or mode.enabled or (had.is_sparse and not gradient.is_sparse):
            total = gradient if had is None else plus(had, gradient)
            variable._grad = total if mode.enabled else total.detach()
        elif had.is_sparse:
            had += gradient
        else:
            registered.add_(had, gradient.to_dense())
        return
    if gradient._array.dtype is not variable._array.dtype and gradient._array.dtype != variable._array.dtype:
        wanted = variable.grad_dtype
        if wanted is not None and gradient.dtype is not wanted:
            gradient = registered.cast(gradient, wanted)
            stealable = not mode.enabled
    if had is None:
        array = gradient._array
        # a private array: the tensor's attribute and the name `array` hold it
        if (
            stealable
            and sys.getrefcount(array) == LOCAL_AND_ONE
            and (backends.owns(array) or (gradient._view is None and _shows_all(array)))
            and _same_layout(array, variable._array)
        ):
            gradient._requires_grad, gradient._edge = False, None
            variable._grad = gradient
        elif mode.enabled and gradient._requires_grad:
            variable._grad = registered.clone(gradient)
        else:
            variable._grad = registered.contiguous_copy(gradient, variable)
    elif mode.enabled:
        variable._grad = registered.add(had, gradient)
    else:
        registered.add_(had, gradient)


def _shows_all(array: Any) -> bool:
    """Return whether an array is the only view of memory that is no tensor's, and all of it: another shape's."""
    base = array.base
    return (
        base.__class__ is ndarray
        and sys.getrefcount(base) == LOCAL_AND_ONE
        and base.nbytes == array.nbytes
        and bool(array.flags.forc)
        and backends.owns(base)
    )


def _same_layout(array: Any, like: Any) -> bool:
    if like.flags.c_contiguous:
        return bool(array.flags.c_contiguous)
    return bool(array.strides == like.strides)


def run_hooks(hooks: HookDict, gradient: Any) -> Any:
    """`gradient` after every hook; a hook's result other than None replaces it and must keep its shape."""
    for hook in list(hooks.values()):
        result = hook(gradient)
        if result is not None:
            if not hasattr(result, "_array"):
                raise TypeError(f"expected Variable, but hook returned '{type(result).__name__}'")
            if gradient is None:
                raise RuntimeError("can't replace a None gradient with a non-None value")
            if result.shape != gradient.shape:
                raise RuntimeError(f"hook '{getattr(hook, '__name__', hook)}' has changed the size of value")
            gradient = result
    return gradient


def accumulate_edge(leaf: Any) -> Edge:
    """The edge to the AccumulateGrad of `leaf`, made at first need."""
    ref = leaf._accumulator
    if ref is not None:
        node = ref()
        if node is not None:
            return node, 0
    node = new(AccumulateGrad)
    node.variable = leaf
    node._extra = None
    node.sequence_nr = _LAST + next_seq()
    leaf._accumulator = weak(node)
    return node, 0


def still_leaf(leaf: Any) -> bool:
    """Return whether a leaf that was used still requires grad.  RuntimeError where a write has given it history.

    Looked at where the node has an `Extra`: of a view, or after `no_longer_requires_grad`.
    """
    if (leaf._edge if leaf._view is None else view_edge(leaf)) is not None:
        raise RuntimeError("leaf variable has been moved into the graph interior")
    return requires_grad_of(leaf)


def no_longer_requires_grad(leaf: Any) -> None:
    """Let the graphs that lead to `leaf` look again before they accumulate."""
    if leaf._accumulator is not None and (node := leaf._accumulator()) is not None:
        node._more()


def edge_of(tensor: Any) -> Edge:
    """The edge of a tensor that requires grad: history, regenerated for a stale view, else accumulation.

    A view without history requires grad as its base does; what is computed with it reaches neither of them, unless
    `requires_grad_()` was called on the view.
    """
    if tensor._view is not None:
        edge: Edge | None = view_edge(tensor)
        if edge is not None:
            return edge
        edge = accumulate_edge(tensor if tensor._requires_grad is True else registered.wrap(tensor._array))
        edge[0]._more()  # a write to the base may give it history: `still_leaf`
        return edge
    elif tensor._edge is not None:
        edge = tensor._edge
        return edge
    return accumulate_edge(tensor)


class GradientEdge(NamedTuple):
    """An edge as `autograd.grad` and `backward` take it in place of a tensor, which may then be freed."""

    node: Node
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(tensor: Any) -> GradientEdge:
    """The edge of a tensor that requires grad, a leaf's AccumulateGrad included.  RuntimeError for others."""
    if not requires_grad_of(tensor):
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(*edge_of(tensor))


def view_edge(tensor: Any) -> Edge | None:
    """Note [Views and in-place]

    A view shares memory and version counter with its root base.  An in-place write to the base, or to another
    view, changes what this view holds without passing through it: its own edge is stale as soon as the counter has
    moved on.  Then the view's ops are replayed on the base as it is now and the edge of the result is taken; the
    base's history holds the write (as an ordinary node, or as CopySlices when the write went through a view).
    A view that may not be written to, since it is one of several outputs or was made without gradients, has no such
    edge: to ask for it raises.
    """
    view: View = tensor._view
    version = tensor._vc[0]
    if view.version != version and (view.edge is not None or requires_grad_of(tensor._base)):
        view.check_write(INDIRECT)
        base, before = tensor._base, view.edge
        if view.version == -1 - version and base._edge is not view.edge:  # the base was detached after the write
            base = registered.wrap(base._array)
            base._edge, base._requires_grad = view.edge, True
        if requires_grad_of(base):
            enabled = mode.enabled
            mode.enabled = True
            try:
                fresh = replay(view.steps(), base)
                name_node(fresh, "AsStridedBackward0")  # what torch replays
            finally:
                mode.enabled = enabled
            view.edge = fresh._view.edge if fresh._view is not None else fresh._edge
        else:  # detached: history that ends here
            view.edge = named(Ended, "AsStridedBackward0")((None,)), 0
        view.version = version
        tensor._requires_grad = True
        if before is not None and before[0]._extra is not None:
            move_retained(tensor, before, view.edge)
    return view.edge


def edge_beside(tensor: Any, target: Any) -> Edge:
    """`edge_of` an operand of a write to `target` that has just raised the version: as it was before the write."""
    if tensor._vc is not target._vc:
        return edge_of(tensor)
    tensor._vc[0] -= 1
    try:
        return edge_of(tensor)
    finally:
        tensor._vc[0] += 1


def retain(tensor: Any) -> None:
    """Let the node that made `tensor` keep the gradient of that output in `tensor.grad`."""
    edge = tensor._edge if tensor._view is None or tensor._view.edge is None else view_edge(tensor)
    if edge is not None:
        more = edge[0]._more()
        if more.retains is None:
            more.retains = {}
        more.retains[edge[1]] = weak(tensor)


def retained(tensor: Any) -> bool:
    """Return whether the node that made `tensor` keeps its gradient."""
    edge = tensor._edge if tensor._view is None else view_edge(tensor)
    if edge is None or edge[0]._extra is None or not edge[0]._extra.retains:
        return False
    ref = edge[0]._extra.retains.get(edge[1])
    return ref is not None and ref() is tensor


def move_retained(tensor: Any, before: Edge, now: Edge | None) -> None:
    """Let the node of edge `now` keep the gradient of `tensor` that the node before the write was to keep."""
    extra = before[0]._extra
    if extra is not None and extra.retains and now is not None:
        ref = extra.retains.get(before[1])
        if ref is not None and ref() is tensor:
            del extra.retains[before[1]]
            more = now[0]._more()
            more.retains = {**(more.retains or {}), now[1]: ref}


class Ended(Node):
    """The node of a view whose base was detached: no gradient goes on from it."""

    __slots__ = ()

    def apply(self, grads: list[Any], needs: Sequence[bool]) -> Sequence[None]:
        return (None,)


MAYBE = 2  # `_requires_grad` of a view without history, which requires grad as its base does, and of inference tensors


def requires_grad_of(tensor: Any) -> bool:
    """Return whether a tensor requires grad; decides the MAYBE of a view."""
    flag = tensor._requires_grad
    if flag == MAYBE:
        base = tensor._base  # None: an inference tensor
        return base is not None and requires_grad_of(base)
    return bool(flag)


def register_multi_grad_hook(tensors: Sequence[Any], fn: Callable[..., Any], *, mode: str = "all") -> RemovableHandle:
    """Call `fn` in backward: mode "all" with the list of gradients (None where there is none) at the end of the pass,
    where torch calls it with the last of them; "any" with the first one.

    ValueError for another mode.  https://docs.pytorch.org/docs/2.13/autograd.html
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    state: list[Any] = [None]  # the gradients of the pass that runs, from its first one on

    def finish(finished: bool) -> None:
        found, state[0] = state[0], None
        if finished and mode == "all":
            fn(found)

    def hook(index: int) -> Callable[[Any], None]:
        def arrived(gradient: Any) -> None:
            if state[0] is None:
                state[0] = [None] * len(tensors)
                registered.at_end(finish)
                if mode == "any":
                    fn(gradient)
            state[0][index] = gradient

        return arrived

    handles = [t.register_hook(hook(i)) for i, t in enumerate(tensors)]

    class Handles(RemovableHandle):
        def __init__(self) -> None:
            pass

        def remove(self) -> None:
            for handle in handles:
                handle.remove()

    return Handles()


_ABOVE = frozenset(
    ["allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks", "save_on_cpu", "saved_tensors_hooks"]
)


if TYPE_CHECKING:
    from engine.autograd.saved_hooks import allow_mutation_on_saved_tensors as allow_mutation_on_saved_tensors
    from engine.autograd.saved_hooks import disable_saved_tensors_hooks as disable_saved_tensors_hooks
    from engine.autograd.saved_hooks import save_on_cpu as save_on_cpu
    from engine.autograd.saved_hooks import saved_tensors_hooks as saved_tensors_hooks
else:

    def __getattr__(name: str) -> Any:
        if name in _ABOVE:  # made with operations: of a higher layer, which registers it
            return registered.saved_hooks(name)
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def increment_version(tensor: Any) -> None:
    """Count one more write to each tensor: backward then refuses what it had saved of it."""
    for one in (tensor,) if hasattr(tensor, "_vc") else tensor:
        one._vc[0] += 1
