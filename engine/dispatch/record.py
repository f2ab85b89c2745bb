"""`Op`: the record of one operation, made from its kernel, its formulas and its options."""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from engine.autograd.graph import Node
from engine.core import dtypes
from engine.dispatch.arguments import NUMPY_NAMES, Arguments, kind
from engine.dispatch.table import COMPOSITES, providers

if TYPE_CHECKING:
    from types import EllipsisType

    import numpy as np

    from engine.core.arrays import Array, ArrayModule
    from engine.tensor import Tensor

    Arrays = Array | tuple[Array, ...] | list[Array]  # what a kernel gives; NotImplemented counts as an array
    Kernel = Callable[..., Arrays]  # of `xp`, then the op's parameters, arrays in the place of tensors
    Launch = Callable[..., Arrays]  # of the op's parameters: of few elements by generated code, or NotImplemented
    Formula = Callable[..., Tensor | None]  # the gradient of one input
    JointFormula = Callable[..., Sequence[Tensor | None]]  # those of several
    Public = Callable[..., Any]  # the function that users call: a Tensor, or as many as the op has outputs
    Shows = Callable[..., Iterable[tuple[Node, int] | None]]

    class Generated(Protocol):
        """The generated kernel of an op, with what it says of a call that it left."""

        def __call__(self, xp: ArrayModule, *args: Any, **kwargs: Any) -> Arrays: ...
        def why_not(self, args: Sequence[object], kwargs: dict[str, object]) -> str: ...

    Namespace = dict[str, Any]  # the globals of a generated function

__all__ = ["LIST_NAMES", "TENSOR_NAMES", "Op", "camel"]

# Parameters of these names are tensors in every op; an op adds others by `tensors=`.
TENSOR_NAMES = frozenset(
    """
    input other weight bias mat1 mat2 mat vec vec1 vec2 batch1 batch2 tensor1 tensor2 index source mask target
    grad_output output indices query key value end running_mean running_var
    """.split()
)
LIST_NAMES = frozenset(["tensors"])


_ABSENT = object()
_OPTIONS = frozenset(  # of `op`, below
    """
    adds aliases autocast blocks broadcast channels_last check commutative deterministic direct draws elementwise
    expanded float16_in_numpy flops form generated gradgrad half image_kernel inplace integer_result itself keeps
    keeps_zero label large large_by linear many method names node nondifferentiable not_tensors number_first numbers
    only_numbers out out_as out_label promote public recorded ref refuse returns several shares shows size_by_values
    tensors varargs view why
    """.split()
)


class Op:
    """The record of one op.  `params` are its parameters without `xp`; `tensors` those that are tensors.

    What an op does not say has its default on the class: a record is made for each of hundreds of ops at start-up.
    """

    adds: Callable[..., bool] | None = None  # its gradient to an array that nothing else holds
    aliases: dict[str, str] = {}
    autocast: str | dict[str, str] = ""  # the type of its operands under autocast: "lower", "float32", "widest"
    blocks = ""  # how large arrays may be cut: "elements" (implied by broadcast), "rows" or "copy"
    broadcast = False
    check: Callable[[list[Any]], None] | None = None
    commutative = False
    deterministic = True
    draws = False  # random numbers; fx keeps a step that does
    elementwise = False  # of a composite, or where `blocks` does not say so: shapes of operands and result are alike
    expanded = ""  # in place, of an expanded tensor: refused, "allowed", or the name of the call in torch's warning
    direct = False  # in place: no operand is read after the step that makes the result
    flops: tuple[str | Callable[..., str], Callable[..., int]] | None = None
    float16_in_numpy = False  # numpy computes it of float16 in float32 itself, and vectorized where it can
    generated = ""  # passes that numpy takes over the elements: "one", "some", "many"; "" has no generated kernel
    gradgrad = True
    half = False
    image_kernel = False  # has a kernel of kind "images"
    inplace = False
    itself = ""  # the parameter of a size: an input of that size is returned, not a copy
    keeps: tuple[str, ...] | dict[str, str] = ()  # saved though no formula reads them: writing to them is refused
    keeps_zero = False  # of zero it gives zero, of one number
    linear = False  # of single numbers: repeated coordinates of a sparse tensor need not be summed first
    channels_last = False
    large = 1 << 16  # elements of the first operand from which the kernel for large arrays is called
    large_by: tuple[str, ...] = ()  # of these operands instead, multiplied
    names: tuple[str, ...] = ()  # further public names
    nondifferentiable: frozenset[str] = frozenset()
    number_first = False  # also takes its keyword number before the last tensors, as of 2018: add(input, alpha, other)
    numbers: Literal[True] | tuple[str, ...] = True
    only_launches = False  # of its kernels: `kernel`
    images: Any = None  # of its kernel "cpu": `kernel`
    serves: Callable[..., bool] | None = None  # likewise
    only_numbers = False  # also takes numbers alone, as add(2., 3.): they are tensors without dims
    out = True
    out_label = ""  # of the kernel that torch looks up by the dtype of `out=`, which lacks integers
    out_as = ""  # how `out=` is treated, in words of `out.py`
    public = True
    recorded = ""  # of what is no op: why recorders note the call itself
    ref: Callable[..., object] | None = None
    refuse = ""
    shares = False  # results lie in the memory of `input` though they are no views: unsafe_split
    shows: Shows | None = None
    size_by_values = False  # how many elements its result has depends on values
    several: tuple[tuple[int, int], ...] = ()
    varargs: str | None = None
    view = False
    why = ""  # the reason of every exemption from a registry test
    node: type[Node] | None = None
    node_names: dict[str, str] = {}  # of the nodes of some calls: condition on the arguments -> name
    function: Public = None  # type: ignore[assignment]  # given by `op`
    inplace_function: Public = None  # type: ignore[assignment]  # the same, of ops with a twin
    lists: tuple[str, ...] = ()
    many = False
    outputs: tuple[str, ...] = ()

    def __init__(
        self,
        function: FunctionType,
        *,
        tensors: Sequence[str] = (),
        not_tensors: Sequence[str] = (),
        returns: str | Sequence[str] | None = None,
        node: str | dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        unknown = options.keys() - _OPTIONS
        if unknown:
            raise TypeError(f"op {function.__name__}: unknown options {sorted(unknown)}")
        self.__dict__.update(options)
        code = function.__code__
        count = code.co_argcount
        self.name: str = function.__name__
        self.called: str = options.get("form") or self.name  # in errors and profiles
        self.kernel: Kernel = function
        self.kernels: dict[str, Kernel] = {}
        self.chosen: dict[str, Kernel] = {}  # what `choose` found, by kind
        self.namespaces: list[Namespace] = []
        # Note [Direct calls]: the function that such calls ask first; None without one
        self.quick: Launch | EllipsisType | None = ...
        positional = code.co_varnames[1:count]
        keyword = code.co_varnames[count : count + code.co_kwonlyargcount]
        self.kernel_out = "out" in keyword  # the kernel can write into `out` itself
        if self.kernel_out:
            keyword = tuple([k for k in keyword if k != "out"])
        self.positional: tuple[str, ...] = positional
        self.keyword: tuple[str, ...] = keyword
        self.params = params = positional + keyword
        if self.public:
            self.aliases = {**{a: p for a, p in NUMPY_NAMES.items() if p in params}, **self.aliases}
        values = function.__defaults__ or ()
        defaults = dict(zip(positional[len(positional) - len(values) :], values))
        if function.__kwdefaults__:
            defaults.update(function.__kwdefaults__)
            defaults.pop("out", None)
        self.defaults: dict[str, object] = defaults
        attached = function.__dict__
        self.formulas: dict[str, FunctionType] = attached.get("derivative", {})
        self.joint: tuple[tuple[str, ...], FunctionType] | None = attached.get("joint")
        self.array_formulas: dict[str, FunctionType] | None = attached.get("array_derivative")
        self.samples: Callable[..., Sequence[object]] | None = attached.get("samples")
        named = self.joint[0] if self.joint else self.formulas
        found, lists = [], []
        for p in params:
            if p in LIST_NAMES:
                lists.append(p)
            elif (p in TENSOR_NAMES or p in named or p in tensors) and p not in not_tensors:
                found.append(p)
        if lists:
            self.lists = tuple(lists)
        self.tensors: tuple[str, ...] = tuple(found)
        self.optional = frozenset([p for p in found if defaults.get(p, _ABSENT) is None])
        if self.joint or lists:
            named = [p for p in lists + found if p in named]
        self.differentiable: tuple[str, ...] = tuple(named)  # the order of a node's edges
        if self.broadcast:
            self.blocks = "elements"
        if "promote" not in options:
            self.promote: str | None = "default" if self.broadcast else None
        if "label" not in options:
            self.label: str = self.called + "_cpu"
        if self.size_by_values:
            function.__dict__["size_by_values"] = True  # a device sees the kernel only
        if self.half:
            self.kernel = in_single(self.kernel)
        if self.refuse:
            kinds = self.refuse.replace("c", "cW")  # W: complex32, which nothing but copies and sums takes
            self.kernel = refusing(self.kernel, kinds, self.label)
        if self.view:
            self.out = False
        if "form" in options:
            self.public = False
        if "method" not in options:
            self.method: bool | str = self.called is self.name and params[:1] == ("input",)
        if returns == "many":
            self.many = True
        elif returns:
            self.outputs = tuple(returns)
        self.saves_integer: bool = options.get("integer_result", "dtype" in params)
        if isinstance(node, dict):
            self.node_names = node
            node = node.pop("", None)
        self.node_name: str = node or camel(self.called) + "Backward0"

    @functools.cached_property
    def result_type(self) -> type[tuple[Tensor, ...]] | None:
        """The named tuple of several outputs; made at first use, since making one costs 100 us."""
        return _result_type(self.called, self.outputs) if self.outputs else None

    @functools.cached_property
    def arguments(self) -> Arguments:
        """What the parameters take; operands that may be numbers too are left to `prepare`."""
        annotations = self.kernel.__annotations__
        tensors = self.tensors if self.promote is None or len(self.tensors) == 1 else ()
        kinds = [
            kind(
                p,
                "Tensor" if p in tensors else None if p in self.tensors else annotations.get(p),
                self.defaults.get(p, ...),
                p in self.keyword,
            )
            for p in self.params
        ]
        return Arguments(tuple(kinds), self.several or getattr(COMPOSITES.get(self.called), "several", ()))

    def signature(self) -> str:
        """The public parameters as Python text, without `out`."""
        parts = []
        for p in self.positional:
            if p == self.varargs:
                parts.append("*" + p)
            else:
                parts.append(f"{p}={self.defaults[p]!r}" if p in self.defaults else p)
        if self.keyword:
            if not self.varargs:
                parts.append("*")
            parts += [f"{p}={self.defaults[p]!r}" if p in self.defaults else p for p in self.keyword]
        return ", ".join(parts)

    def choose(self, kind: str) -> Kernel:
        """The kernel for arrays of a backend kind: the op's own where that kind has none, or for what that leaves."""
        if kind == "cuda" and not providers.cuda():  # nothing that compiles
            kind = "cudnn"
        found = self.chosen.get(kind)
        if found is None:
            found = self.chosen[kind] = self._choose(kind)
        return found

    def _choose(self, kind: str) -> Kernel:
        own = self.kernel
        variant = self.kernels.get(kind)
        if kind == "cuda" and "cudnn" in self.kernels:
            return self._choose("cudnn")
        if variant is None and kind == "cuda" and self.blocks == "elements":
            variant = providers.elements(self)
        if variant is None:
            return own
        if kind == "cuda":
            proved = providers.proved(variant, own)
            if proved is not None:
                return proved

        @functools.wraps(own)
        def either(xp: ArrayModule, *args: Any, **kwargs: object) -> Arrays:
            result = variant(xp, *args, **kwargs)
            return own(xp, *args, **kwargs) if result is NotImplemented else result

        return either

    def __repr__(self) -> str:
        return f"<op {self.name}({self.signature()})>"


def _widen(array: Array) -> Array:
    return array.astype("float32")


def _narrow(array: Array, dtype: np.dtype) -> Array:
    return array.astype(dtype)


def in_single(function: Kernel) -> Kernel:
    """The kernel with 16-bit floats computed in float32 and rounded once, as torch does."""

    @functools.wraps(function)
    def kernel(xp: ArrayModule, first: Any, *args: Any, **kwargs: object) -> Arrays:
        dtype = getattr(first, "dtype", None)
        if dtype is None and args:
            dtype = getattr(args[0], "dtype", None)
        if dtype is None or dtype.itemsize != 2 or dtype.kind not in "fV":
            return function(xp, first, *args, **kwargs)
        wide, narrow = _widen, _narrow
        if getattr(first, "size", 0) >= 1 << 13:
            from engine.backends.cpu import half_floats

            wide, narrow = half_floats.widen, half_floats.narrow
        operands = [wide(a) if getattr(a, "dtype", None) == dtype else a for a in (first, *args)]
        found: Array | tuple[Array, ...]
        found = function(xp, *operands, **kwargs)  # type: ignore[assignment]  # no op with `half` gives a list
        if isinstance(found, tuple):
            return tuple(narrow(f, dtype) if f.dtype == "float32" else f for f in found)
        return narrow(found, dtype) if found.dtype == "float32" else found

    return kernel


def refusing(function: Kernel, kinds: str, label: str) -> Kernel:
    """The kernel with torch's error for operands of the numpy kinds it lacks."""

    @functools.wraps(function)
    def kernel(xp: ArrayModule, *args: Any, **kwargs: object) -> Arrays:
        for a in args:
            if hasattr(a, "ndim") and a.dtype.kind in kinds:
                found = dtypes.scalar_name(dtypes.from_numpy(a.dtype))
                raise NotImplementedError(f"\"{label}\" not implemented for '{found}'")
        return function(xp, *args, **kwargs)

    return kernel


def _result_type(name: str, outputs: Sequence[str]) -> type:
    """A named tuple that prints as torch's: `torch.return_types.max(` and a line a field."""

    def show(self: Iterable[object]) -> str:
        lines = ",\n".join(f"{field}={value!r}" for field, value in zip(outputs, self))
        return f"torch.return_types.{name}(\n{lines})"

    return type(
        name,
        (namedtuple(name, outputs),),
        {"__slots__": (), "__repr__": show, "__module__": "torch.return_types"},
    )


def camel(name: str) -> str:
    """`add_mm` -> `AddMm`: node classes are named so."""
    return "".join(part[:1].upper() + part[1:] for part in name.strip("_").split("_"))
