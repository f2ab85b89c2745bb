"""The op table: `@op @derivative @joint_derivative @samples @kernel @overload @composite`.

An op is one `def NAME(xp, ...)` in `engine/ops/<family>.py`: a kernel over arrays, with one-line gradient formulas
over Tensors.  From that record come the public function, the Tensor method, the in-place twin, `out=`, the node
class, docs, stubs and tests.  `function_source.py` writes the Python source of each public function from its record at
the first call, so that importing 400 ops costs little and calling one costs no loop over arguments.  README.md has the
way of a call and the invariants.

Formula parameters: `grad` (`grad0`, `grad1` ... for several outputs, `grads` for all), any input or argument of the
op by name, `result` (`result0` ...), `kept_result` (the same, or None if it was written to since), `<input>_shape`,
`<input>_dtype` (metadata: pins no array), `needs` (in joint formulas: which of the named inputs need a gradient).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from engine import backends
from engine.dispatch.arguments import checked
from engine.dispatch.gate import STUB
from engine.dispatch.record import Op, camel
from engine.dispatch.table import (
    COMPOSITES,
    FUNCTIONS,
    OPS,
    PUBLIC,
    all_imported,
    import_lazy,
    providers,
    register_lazy_members,
    with_fact,
)
from engine.tensor import Tensor

if TYPE_CHECKING:
    from engine.dispatch.record import Formula, JointFormula, Public

__all__ = [
    "COMPOSITES",
    "FUNCTIONS",
    "OPS",
    "PUBLIC",
    "Op",
    "all_imported",
    "array_derivative",
    "camel",
    "composite",
    "derivative",
    "has",
    "import_lazy",
    "joint_derivative",
    "kernel",
    "moving",
    "op",
    "operator_form",
    "overload",
    "providers",
    "register_lazy_members",
    "samples",
    "with_fact",
]

F = TypeVar("F", bound=Callable[..., Any])


def derivative(**formulas: Formula | None) -> Callable[[F], F]:
    """Gradient formulas by input name; an input without one (or with None) is not differentiable."""

    def attach(function: F) -> F:
        function.__dict__["derivative"] = formulas
        return function

    return attach


def moving(formula: F) -> F:
    """Mark a formula of `array_derivative` that serves any size, as one that shows its gradient in another shape."""
    formula.__dict__["moves"] = True
    return formula


def array_derivative(**formulas: Formula | None) -> Callable[[F], F]:
    """The formulas of `derivative` once more, over numpy arrays: Note [Gradients over arrays] in gradients.py.

    Those not given are the formulas of `derivative` themselves, where they are written with operators only.  They may
    read what those read.  `by`: of all inputs of a `joint_derivative`.
    """

    def attach(function: F) -> F:
        function.__dict__["array_derivative"] = formulas
        return function

    return attach


def joint_derivative(*inputs: str, by: JointFormula) -> Callable[[F], F]:
    """One formula that returns the gradients of several inputs as a tuple (entries may be None)."""

    def attach(function: F) -> F:
        function.__dict__["joint"] = (inputs, by)
        return function

    return attach


def samples(make: Callable[..., Sequence[object]]) -> Callable[[F], F]:
    """Argument tuples for the registry tests: `make(t)` with `t(*shape)` a random tensor (tests/engine/samples.py)."""

    def attach(function: F) -> F:
        function.__dict__["samples"] = make
        return function

    return attach


def op(**options: Any) -> Callable[[Callable[..., object]], Any]:
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
    expanded: what the in-place twin does with an expanded tensor, whose cells are written several times: refuse it
    (""), write it ("allowed"), or warn with this name of the call and write it; of ops that write equal values there.
    form: the public name this op is one form of (`@overload`), for errors and profiles.  node: the name of the node;
    where torch's depends on the call, names by conditions, Python text over the arguments that is tried in order
    ({"dim is None": "SumBackward0", "": "SumBackward1"}; `_inplace` says which twin; functions of the op's module).
    tensors/not_tensors: parameters that are tensors (or not) against TENSOR_NAMES.  names: further public names.
    number_first: also takes torch's old order, with a warning: add(input, alpha, other).
    keeps: operands (or "result", "result0", ...) that are saved though no formula reads them, because torch saves them:
    a write to one before backward is refused.  Where only one of the op's nodes saves a result: {"result0": its name}.
    shows: `shows(name, *edges)`, what `next_functions` says of the edges of a node that stands for several of torch's.
    check: `check(arrays)` before operands of mixed types are promoted, to refuse a combination. numbers: the parameters
    that may be Python numbers (True: all); only_numbers: even all of them at once. half: 16-bit floats are computed in
    float32. refuse: numpy kinds of arrays ("c" complex, "b" bool, ...) that torch has no kernel for. label: the name of
    the kernel in torch's message about a dtype it lacks. several: where torch's parser knows several signatures, the
    fewest and the most arguments of each. Annotations of other parameters: `arguments.py`.

    adds: `adds(args, grad, array)`, of a view: add the gradient, at its place, to an array that nothing else holds,
    where the pass records nothing; return whether that was done.  args: as the node's formula reads them.

    Facts that others ask of the record or, of composites too, by `with_fact(option)`; who has none says nothing:
    autocast: under autocast its operands are cast to the context's 16-bit type ("lower"), to float32 ("float32") or to
    the widest type among them ("widest"); a dict says so by kind of device ({"cuda": "lower"}).
    commutative: a number may be the first operand of its operator.
    draws: random numbers, so that fx keeps a step that does nothing else.
    elementwise: each element of the result depends on the same elements of operands (of composites; ops say it by
    `broadcast` or `blocks`).
    float16_in_numpy: of float16 numpy computes it in float32 itself.
    flops: the operator of aten that a call counts as, or a function of the arguments that returns it, and
    `count(result, *args)` (`engine/autograd/flops.py`).
    generated: there is a kernel generated on the CPU (extra `jit`), asked for by how many passes over the elements
    numpy takes: "one", "some" or "many".
    image_kernel: there is one for channels-last images where there is no oneDNN (`engine/ops/generated/images.py`).
    keeps_zero: element by element it gives zero for zero, so that of a sparse tensor only stored values are computed;
    linear: even before repeated coordinates are summed.
    out_as: words that say how torch treats `out=`: "graph" (the result is copied into it, so that it may require grad),
    "detached" (the history of operands is not looked at), "dtype" (the op computes in its dtype), "disjoint" (it may
    share no memory with operands), "unexpanded" (an expanded one is refused even where it would be resized);
    out_label: the kernel that torch looks up by the dtype of `out=`, and that integers lack.
    recorded: recorders of programs note its call rather than the ops in it: "creation" (of a tensor of given sizes),
    "constant" (the same; a training step notes the ops in it), "draw", "fill", "size" (it works with sizes), "arrays"
    (it computes with arrays, so that nothing else would be noted), "inference" (for `export`: it has a form without
    gradients, to which a program must not be fixed).
    size_by_values: the result has as many elements as values say, so that the meta device refuses it.
    """

    def register(function: Callable[..., object]) -> Public:
        record = Op(function, **options)  # type: ignore[arg-type]  # a `def`
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
    **facts: object,
) -> Callable[[F], F]:
    """Register a function that is written with other ops: public name, method, docs, samples; no node of its own.

    Its arguments are checked against its annotations (`arguments.py`).  several, form (in errors): as in `op`.  arrays:
    it computes with arrays, too, so that the GPU of its operands must be the current one.  facts: options of `op` that
    say what it does (`FACTS`), for `with_fact`.
    """

    def register(function: Any) -> Any:
        first = function.__code__.co_varnames[:1]
        as_method = first == ("input",) if method is None else method
        function = checked(function, several, form)
        if arrays:
            function = backends.follows(function)
        if facts:
            has(**facts)(function)
        COMPOSITES[function.__name__] = function
        for name in (function.__name__, *names):
            _publish(name, function, as_method, public)
        return function

    return register


def overload(**options: Any) -> Callable[[F], F]:
    """A public name with several forms: a function that looks at its arguments and calls the op of that form."""
    return composite(**options)


# The options that composites take as well as ops.
FACTS = frozenset("autocast draws elementwise keeps_zero linear out_as out_label recorded".split())


def has(**facts: object) -> Callable[[F], F]:
    """Attach options of `op` (`FACTS`) to a function that is no op."""
    unknown = facts.keys() - FACTS
    if unknown:
        raise TypeError(f"unknown options {sorted(unknown)}")

    def attach(function: F) -> F:
        function.__dict__["facts"] = facts
        return function

    return attach


def _publish(name: str, function: Public, method: bool | str, public: bool) -> None:
    if public:
        PUBLIC[name] = function
    if method:
        setattr(Tensor, name, function)


def kernel(
    function: Callable[..., object],
    kind: str,
    only_launches: bool = False,
    serves: Callable[..., bool] | None = None,
    images: Callable[..., Any] | None = None,
) -> Callable[[F], F]:
    """A kernel of the op `function` of one kind ("cuda", "cudnn", "onednn", "images", "pass", "blocks", "direct",
    "cpu"); parameters as the op's own.

    A "onednn" kernel serves CPU arrays from the op's `large` on while oneDNN is on, a "images" kernel where it is
    not; a "pass" kernel, whose first parameter is the route there is without it, converted images in generated code;
    a "blocks" kernel serves those that these leave; a "direct" kernel launches generated code, for few elements, a
    "cpu" kernel for any number; a "cuda" kernel serves arrays on a GPU, where kernels can be compiled, a "cudnn"
    kernel such arrays everywhere (an op has one of them).  Each may return NotImplemented for what comes next, at last
    the op's own kernel.  One with a parameter `into` may write an in-place op's result there and return it.
    only_launches: it does nothing but launch kernels on new arrays, so that those launches can be repeated without it.
    serves: of a "cpu" kernel, which of the op's arguments it is asked for at all, where most are not for it.
    images: of a "cpu" kernel, the positional arguments for images of the engine's own layout, with their dims in the
    order of memory, and the shape of the result; None for what it leaves.
    """

    def attach(variant: F) -> F:
        record = OPS.get(function.__name__)  # one form of several bears the name of all, which is no op's
        if record is None:
            record = next(one for one in OPS.values() if one.function is function)
        record.kernels[kind] = variant
        record.only_launches |= only_launches
        record.serves = serves or record.serves
        record.images = images or record.images
        record.chosen.pop(kind, None)
        record.chosen.pop("cuda", None)
        return variant

    return attach


def _lazy(record: Op, name: str, inplace: bool, unsupported: object = None) -> FunctionType:
    namespace: dict[str, object] = {"__name__": "engine", "__builtins__": __builtins__}
    function = FunctionType(STUB, namespace, name)

    def compile_now() -> FunctionType:
        from engine.dispatch.binder import compile_into

        compile_into(function, record, namespace, inplace, unsupported)
        return function

    namespace["_compile_"] = compile_now
    function.__qualname__ = name
    function.__module__ = "engine"
    function.op = record  # type: ignore[attr-defined]
    FUNCTIONS[function] = None
    doc = record.kernel.__doc__ or ""
    function.__doc__ = f"{name}({record.signature()})\n\n{'In place: ' if inplace else ''}{doc}"
    return function


def operator_form(name: str, inplace: bool = False) -> FunctionType:
    """The op as a Python operator: NotImplemented, not TypeError, for an operand it does not know."""
    record = OPS[name]
    return _lazy(record, record.called + "_" * inplace, inplace, unsupported=NotImplemented)
