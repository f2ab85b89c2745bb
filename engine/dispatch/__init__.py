"""The op table: `@op @derivative @joint_derivative @samples @kernel @overload @composite`.

An op is one `def NAME(xp, ...)` in `engine/ops/<family>.py`: a kernel over arrays, with one-line gradient formulas
over Tensors.  From that record come the public function, the Tensor method, the in-place twin, `out=`, the node
class, docs, stubs and tests.  `binder.py` writes the Python source of each public function from its record at the
first call, so that importing 400 ops costs little and calling one costs no loop over arguments.

Formula parameters: `grad` (`grad0`, `grad1` ... for several outputs, `grads` for all), any input or argument of the
op by name, `result` (`result0` ...), `kept_result` (the same, or None if it was written to since), `<input>_shape`,
`<input>_dtype` (metadata: pins no array), `needs` (in joint formulas: which of the named inputs need a gradient).
"""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from engine import backends, dtypes
from engine.autograd.graph import Node
from engine.dispatch.arguments import NUMPY_NAMES, Arguments, checked, kind
from engine.tensor import Tensor

__all__ = [
    "OPS", "PUBLIC", "Op", "array_derivative", "composite", "derivative", "joint_derivative", "kernel", "op",
    "overload", "samples",
]  # fmt: skip


# Note [Families imported lazily]
# `import engine` imports the families of engine/ops that tensors cannot do without.  The others (LAPACK, convolution,
# FFT, ...) come all together, at the first look for a name that is not there: in OPS or PUBLIC, in `engine` itself
# (engine/__init__.py), on the Tensor class or on a Tensor (the two hooks below, which then go away).  It takes a
# third off the time of `import engine`; no list of names is needed, so adding an op still touches one file.
_incomplete = [True]

# What `engine/ops/__init__.py` hands in: lazy() imports those families, blocks(record) gives the kernel that cuts large
# arrays into blocks, onednn() imports the kernels that call oneDNN.
providers: dict[str, Callable[..., Any]] = {}


# Ops whose kernels are generated on the CPU where the extra `jit` is there (`engine/ops/generated`), and the elements
# from which that is asked: few where numpy takes many passes, more where it takes some or slow ones, most where one.
_FEW, _SEVERAL, _AMPLE = 512, 1 << 11, 1 << 15
GENERATED: dict[str, int] = dict.fromkeys(
    """
    gelu gelu_backward silu silu_backward sigmoid sigmoid_backward tanh_backward softplus softplus_backward mish
    mish_backward elu elu_backward logsigmoid hardswish hardswish_backward erf
    softmax softmax_backward log_softmax log_softmax_backward native_layer_norm layer_norm_inference
    native_layer_norm_backward normalize_groups native_group_norm_backward batch_norm_train batch_norm_backward
    batch_norm_eval softmax_nll_rows softmax_nll_maps softmax_nll_smoothed softmax_nll_backward glu glu_backward
    batch_norm_eval_backward prelu_kernel prelu_backward cumsum col2im attention attention_backward cat
    blended
""".split(),
    _FEW,
)
GENERATED |= dict.fromkeys(
    """
    exp exp2 expm1 log log2 log10 log1p tanh sign clamp_numbers where_tensors keep_where threshold threshold_backward
    hardshrink softshrink hardsigmoid inside_backward outside_backward
""".split(),
    _SEVERAL,
)
GENERATED |= dict.fromkeys(
    """
    add sub rsub mul true_div neg abs square reciprocal sqrt rsqrt pow addcmul addcdiv lerp_number lerp_tensor
    floor ceil trunc round clamp_tensors clamp_min clamp_max maximum minimum masked_fill_value eq ne lt le gt ge
    relu leaky_relu leaky_relu_backward hardtanh
""".split(),
    _AMPLE,
)


# Ops with kernels of channels-last pictures, generated where there is no oneDNN (`engine/ops/generated/pictures.py`).
PICTURES = frozenset(
    """
    convolution convolution_backward_input convolution_backward_weight max_pool2d_values max_pool_gradient
    batch_norm_train batch_norm_backward batch_norm_eval batch_norm_eval_backward
""".split()
)


class _Table(dict[str, Any]):
    """A dict that imports the lazy families when a key is missing."""

    def __missing__(self, name: str) -> Any:
        if import_lazy():
            return self[name]
        raise KeyError(name)


OPS: dict[str, Op] = _Table()  # every op by name
PUBLIC: dict[str, Any] = _Table()  # what `engine.NAME` serves


def import_lazy() -> bool:
    """Import the lazy families; False if there is nothing (more) to import."""
    if not _incomplete:
        return False
    providers["lazy"]()  # another thread waits here until all of it is there
    return not _incomplete  # else this thread is importing them now


def all_imported() -> None:
    """The last line of the lazy families."""
    _incomplete.clear()
    for owner in (Tensor, type(Tensor)):
        delattr(owner, "__getattr__")


def _lazy_attribute(owner: Any, name: str) -> Any:
    if name[:2] != "__" and import_lazy():
        return getattr(owner, name)
    kind = f"type object '{owner.__name__}'" if isinstance(owner, type) else f"'{type(owner).__name__}' object"
    raise AttributeError(f"{kind} has no attribute '{name}'", name=name, obj=owner)


Tensor.__getattr__ = type(Tensor).__getattr__ = _lazy_attribute  # type: ignore[attr-defined]

# Parameters of these names are tensors in every op; an op adds others by `tensors=`.
TENSOR_NAMES = frozenset(
    [
        "input",
        "other",
        "weight",
        "bias",
        "mat1",
        "mat2",
        "mat",
        "vec",
        "vec1",
        "vec2",
        "batch1",
        "batch2",
        "tensor1",
        "tensor2",
        "index",
        "source",
        "mask",
        "target",
        "grad_output",
        "output",
        "indices",
        "query",
        "key",
        "value",
        "end",
        "running_mean",
        "running_var",
    ]
)
LIST_NAMES = frozenset(["tensors"])


_ABSENT = object()
_OPTIONS = frozenset(  # of `op`, below
    [
        "aliases",
        "blocks",
        "broadcast",
        "check",
        "deterministic",
        "direct",
        "form",
        "gradgrad",
        "half",
        "inplace",
        "integer_result",
        "itself",
        "keeps",
        "label",
        "channels_last",
        "large",
        "large_by",
        "many",
        "method",
        "names",
        "node",
        "nondifferentiable",
        "number_first",
        "numbers",
        "only_numbers",
        "out",
        "not_tensors",
        "promote",
        "public",
        "ref",
        "refuse",
        "returns",
        "several",
        "shares",
        "shows",
        "tensors",
        "varargs",
        "view",
        "why",
    ]
)


class Op:
    """The record of one op.  `params` are its parameters without `xp`; `tensors` those that are tensors.

    What an op does not say has its default on the class: a record is made for each of hundreds of ops at start-up.
    """

    aliases: dict[str, str] = {}
    blocks = ""  # how large arrays may be cut: "elements" (implied by broadcast), "rows" or "copy"
    broadcast = False
    check: Any = None
    deterministic = True
    direct = False  # in place: no operand is read after the step that makes the result
    gradgrad = True
    half = False
    inplace = False
    itself = ""  # the parameter of a size: an input of that size is returned, not a copy
    keeps: tuple[str, ...] = ()  # operands saved though no formula reads them: writing to them is refused
    channels_last = False
    large = 1 << 16  # elements of the first operand from which the kernel for large arrays is called
    large_by: tuple[str, ...] = ()  # of these operands instead, multiplied
    names: tuple[str, ...] = ()  # further public names
    nondifferentiable: frozenset[str] = frozenset()
    number_first = False  # also takes its keyword number before the last tensors, as of 2018: add(input, alpha, other)
    numbers: Any = True
    only_numbers = False  # also takes numbers alone, as add(2., 3.): they are tensors without dims
    out = True
    public = True
    ref: Any = None
    refuse = ""
    shares = False  # results lie in the memory of `input` though they are no views: unsafe_split
    shows: Any = None
    several: tuple[tuple[int, int], ...] = ()
    varargs: str | None = None
    view = False
    why = ""  # the reason of every exemption from a registry test
    node: type[Node] | None = None
    node_names: dict[str, str] = {}  # of the nodes of some calls: condition on the arguments -> name
    function: Any = None
    inplace_function: Any = None
    lists: tuple[str, ...] = ()
    many = False
    outputs: tuple[str, ...] = ()

    def __init__(
        self,
        function: FunctionType,
        *,
        tensors: Sequence[str] = (),
        not_tensors: Sequence[str] = (),
        returns: Any = None,
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
        self.kernel: Any = function
        self.kernels: dict[str, Callable[..., Any]] = {}
        self.chosen: dict[str, Callable[..., Any]] = {}  # what `choose` found, by kind
        self.namespaces: list[dict[str, Any]] = []
        self.quick: Any = ...  # Note [Direct calls]: the function that such calls ask first; None without one
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
        self.defaults: dict[str, Any] = defaults
        attached = function.__dict__
        self.formulas: dict[str, Any] = attached.get("derivative", {})
        self.joint: tuple[tuple[str, ...], Any] | None = attached.get("joint")
        self.array_formulas: dict[str, Any] | None = attached.get("array_derivative")
        self.samples: Any = attached.get("samples")
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
        if self.half:
            self.kernel = in_single(self.kernel)
        if self.refuse:
            self.kernel = refusing(self.kernel, self.refuse, self.label)
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
    def result_type(self) -> Any:
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

    def choose(self, kind: str) -> Callable[..., Any]:
        """The kernel for arrays of a backend kind: the op's own where that kind has none, or for what that leaves."""
        if kind == "cuda" and not providers["cuda"]():  # nothing that compiles
            kind = "cudnn"
        found = self.chosen.get(kind)
        if found is None:
            found = self.chosen[kind] = self._choose(kind)
        return found

    def _choose(self, kind: str) -> Callable[..., Any]:
        own: Callable[..., Any] = self.kernel
        variant = self.kernels.get(kind)
        if kind == "cuda" and "cudnn" in self.kernels:
            return self._choose("cudnn")
        if variant is None and kind == "cuda" and self.blocks == "elements":
            variant = providers["elements"](self)
        if variant is None:
            return own
        if kind == "cuda":
            proved: Callable[..., Any] | None = providers["proved"](variant, own)
            if proved is not None:
                return proved

        @functools.wraps(own)
        def either(xp: Any, *args: Any, **kwargs: Any) -> Any:
            result = variant(xp, *args, **kwargs)
            return own(xp, *args, **kwargs) if result is NotImplemented else result

        return either

    def __repr__(self) -> str:
        return f"<op {self.name}({self.signature()})>"


def _widen(array: Any) -> Any:
    return array.astype("float32")


def _narrow(array: Any, dtype: Any) -> Any:
    return array.astype(dtype)


def in_single(function: Any) -> Any:
    """The kernel with 16-bit floats computed in float32 and rounded once, as torch does."""

    @functools.wraps(function)
    def kernel(xp: Any, first: Any, *args: Any, **kwargs: Any) -> Any:
        dtype = getattr(first, "dtype", None)
        if dtype is None and args:
            dtype = getattr(args[0], "dtype", None)
        if dtype is None or dtype.itemsize != 2 or dtype.kind not in "fV":
            return function(xp, first, *args, **kwargs)
        wide, narrow = _widen, _narrow
        if getattr(first, "size", 0) >= 1 << 13:
            from engine.backends.cpu import halves

            wide, narrow = halves.widen, halves.narrow
        operands = [wide(a) if getattr(a, "dtype", None) == dtype else a for a in (first, *args)]
        found = function(xp, *operands, **kwargs)
        if isinstance(found, tuple):
            return tuple(narrow(f, dtype) if f.dtype == "float32" else f for f in found)
        return narrow(found, dtype) if found.dtype == "float32" else found

    return kernel


def refusing(function: Any, kinds: str, label: str) -> Any:
    """The kernel with torch's error for operands of the numpy kinds it lacks."""

    @functools.wraps(function)
    def kernel(xp: Any, *args: Any, **kwargs: Any) -> Any:
        for a in args:
            if hasattr(a, "ndim") and a.dtype.kind in kinds:
                found = dtypes.scalar_name(dtypes.from_numpy(a.dtype))
                raise NotImplementedError(f"\"{label}\" not implemented for '{found}'")
        return function(xp, *args, **kwargs)

    return kernel


def _result_type(name: str, outputs: Sequence[str]) -> type:
    """A named tuple that prints as torch's: `torch.return_types.max(` and a line a field."""

    def show(self: Any) -> str:
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


def derivative(**formulas: Callable[..., Any]) -> Callable[[Any], Any]:
    """Gradient formulas by input name; an input without one (or with None) is not differentiable."""

    def attach(function: Any) -> Any:
        function.derivative = formulas
        return function

    return attach


def array_derivative(**formulas: Callable[..., Any]) -> Callable[[Any], Any]:
    """The formulas of `derivative` once more, over numpy arrays: Note [Gradients over arrays] in gradient_text.py.

    Those not given are the formulas of `derivative` themselves, where they are written with operators only.  They may
    read what those read.
    """

    def attach(function: Any) -> Any:
        function.array_derivative = formulas
        return function

    return attach


def joint_derivative(*inputs: str, by: Callable[..., Any]) -> Callable[[Any], Any]:
    """One formula that returns the gradients of several inputs as a tuple (entries may be None)."""

    def attach(function: Any) -> Any:
        function.joint = (inputs, by)
        return function

    return attach


def samples(make: Callable[..., Any]) -> Callable[[Any], Any]:
    """Argument tuples for the registry tests: `make(t)` with `t(*shape)` a random tensor (tests/engine/samples.py)."""

    def attach(function: Any) -> Any:
        function.samples = make
        return function

    return attach


def op(**options: Any) -> Callable[[FunctionType], Any]:
    """Register an op; returns its public function.

    broadcast: tensors and numbers broadcast, gradients are summed back.  promote: "default" (torch's result type),
    "float" (also integers to the default float), "compare" (common type, any result type), "result" (as default, but
    the kernel's result type stands in place), None (arrays as they are).  inplace: also NAME_.  view: the result
    shares memory.  returns: names of a named-tuple result, or "many" for a list of outputs.  nondifferentiable: names
    or indices of outputs without gradient.  aliases: {"axis0": "dim0"} (`axis` and `keepdims`
    go without saying).  varargs: the parameter that also takes separate
    ints.  method: False, or True when the first parameter is `input`.  public: False keeps it out of `engine`.
    blocks: how the kernel for large arrays may cut the work, "elements" (each element of the result depends on the same
    element of each operand, and on numbers), "rows" (results for one index of a dim that is not `dim` depend on nothing
    else) or "copy".  direct: in place, no operand is read after the step that makes the result.
    form: the public name this op is one form of (`@overload`), for errors and profiles.  node: the name of the node;
    where torch's depends on the call, names by conditions, Python text over the arguments that is tried in order
    ({"dim is None": "SumBackward0", "": "SumBackward1"}; `_inplace` says which twin; functions of the op's module).
    tensors/not_tensors: parameters that are tensors (or not) against TENSOR_NAMES.  names: further public names.
    number_first: also takes torch's old order, with a warning: add(input, alpha, other).
    keeps: operands (or "result", "result0", ...) that are saved though no formula reads them, because torch saves them:
    a write to one before backward is refused.
    shows: `shows(name, *edges)`, what `next_functions` says of the edges of a node that stands for several of torch's.
    check: `check(arrays)` before operands of mixed types are promoted, to refuse a combination. numbers: the parameters
    that may be Python numbers (True: all); only_numbers: even all of them at once. half: 16-bit floats are computed in
    float32. refuse: numpy kinds of arrays ("c" complex, "b" bool, ...) that torch has no kernel for. label: the name of
    the kernel in torch's message about a dtype it lacks. several: where torch's parser knows several signatures, the
    fewest and the most arguments of each. Annotations of other parameters: `arguments.py`.
    """

    def register(function: FunctionType) -> Any:
        record = Op(function, **options)
        if record.name in OPS:
            raise ValueError(f"op {record.name} is defined twice")
        OPS[record.name] = record
        record.function = _lazy(record, record.called, inplace=False)
        if record.inplace:
            record.inplace_function = _lazy(record, record.called + "_", inplace=True)
        for name in (record.name, *record.names):
            _publish(name, record.function, record.method, record.public)
            if record.inplace:
                _publish(name + "_", record.inplace_function, record.method, record.public)
        return record.function

    return register


def composite(
    method: bool | None = None,
    public: bool = True,
    names: Sequence[str] = (),
    several: tuple[tuple[int, int], ...] = (),
    form: str = "",
    arrays: bool = False,
) -> Callable[[Any], Any]:
    """Register a function that is written with other ops: public name, method, docs, samples; no node of its own.

    Its arguments are checked against its annotations (`arguments.py`).  several, form (in errors): as in `op`.  arrays:
    it computes with arrays, too, so that the GPU of its operands must be the current one.
    """

    def register(function: Any) -> Any:
        first = function.__code__.co_varnames[:1]
        as_method = first == ("input",) if method is None else method
        function = checked(function, several, form)
        if arrays:
            function = backends.follows(function)
        COMPOSITES[function.__name__] = function
        for name in (function.__name__, *names):
            _publish(name, function, as_method, public)
        return function

    return register


def overload(**options: Any) -> Callable[[Any], Any]:
    """A public name with several forms: a function that looks at its arguments and calls the op of that form."""
    return composite(**options)


COMPOSITES: dict[str, Any] = {}


def _publish(name: str, function: Any, method: bool | str, public: bool) -> None:
    if public:
        PUBLIC[name] = function
    if method:
        setattr(Tensor, name, function)


def kernel(function: Any, kind: str) -> Callable[[Any], Any]:
    """A kernel of the op `function` of one kind ("cuda", "cudnn", "onednn", "pictures", "blocks", "direct"); parameters
    as the op's own.

    A "onednn" kernel serves CPU arrays from the op's `large` on while oneDNN is on, a "pictures" kernel where it is
    not; a "blocks" kernel serves those that these leave; a "direct" kernel launches generated code, for few elements;
    a "cuda" kernel arrays on a GPU, where kernels can be compiled, a "cudnn" kernel such arrays everywhere (an op has
    one of them).  Each may return NotImplemented for what comes next, at last the op's own kernel.  One with a
    parameter `into` may write an in-place op's result there and return it.
    """

    def attach(variant: Any) -> Any:
        record = OPS.get(function.__name__)  # one form of several bears the name of all, which is no op's
        if record is None:
            record = next(one for one in OPS.values() if one.function is function)
        record.kernels[kind] = variant
        record.chosen.pop(kind, None)
        record.chosen.pop("cuda", None)
        return variant

    return attach


# Note [Compiled on first use]
# The public function of an op starts as a stub whose globals are a small namespace of its own; the first call writes
# the real source (binder.py), compiles it and swaps the code object in.  References taken before (methods,
# `from engine import mul`) are the same function object and change with it.
_STUB = (lambda *args, **kwargs: _compile_()(*args, **kwargs)).__code__  # type: ignore[name-defined]  # noqa: F821


FUNCTIONS: list[FunctionType] = []  # every public function, in-place twin and operator: what `tracing.py` watches


def _lazy(record: Op, name: str, inplace: bool, unsupported: Any = None) -> FunctionType:
    namespace: dict[str, Any] = {"__name__": "engine", "__builtins__": __builtins__}
    function = FunctionType(_STUB, namespace, name)

    def compile_now() -> FunctionType:
        from engine.dispatch.binder import compile_into

        compile_into(function, record, namespace, inplace, unsupported)
        return function

    namespace["_compile_"] = compile_now
    function.__qualname__ = name
    function.__module__ = "engine"
    function.op = record  # type: ignore[attr-defined]
    FUNCTIONS.append(function)
    doc = record.kernel.__doc__ or ""
    function.__doc__ = f"{name}({record.signature()})\n\n{'In place: ' if inplace else ''}{doc}"
    return function


def operator_form(name: str, inplace: bool = False) -> FunctionType:
    """The op as a Python operator: NotImplemented, not TypeError, for an operand it does not know."""
    record = OPS[name]
    return _lazy(record, record.called + "_" * inplace, inplace, unsupported=NotImplemented)
