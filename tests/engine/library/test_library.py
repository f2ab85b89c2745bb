"""torch.library: operators defined from Python; the sentences are those of torch 2.13."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Sequence

import pytest

import engine
from engine import Tensor, library
from engine.autograd import gradcheck
from engine.library.schema import parse_schema

SCHEMAS = """
a::f(Tensor x, int n, int[2] k=1, *, float a=0.5, str s="hi", Tensor? y=None, ScalarType d=6, Scalar z=2) -> Tensor
a::g.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)
a::h(Tensor(a!) x, Tensor[] ys, bool? b=None, float[] c=[1., 2.]) -> (Tensor, Tensor[] rest)
a::none() -> ()
a::split(Tensor(a -> *) self, int[] sizes, int dim=0) -> Tensor(a)[]
a::conv(Tensor input, SymInt[2] stride=1, Tensor?[] more, Device? device=None) -> (Tensor, int)
a::either(Tensor(a|b) x, Dict(str, Tensor) table) -> Tensor
"""


@pytest.mark.parametrize("text", SCHEMAS.strip().splitlines())
def test_a_schema_prints_as_it_was_written(text: str) -> None:
    assert str(parse_schema(text)) == text


@pytest.mark.parametrize(
    "text", ["f(Tensor x", "f(Tensor x)", "f Tensor x -> Tensor", "f(Tensor x, Tensor x) -> Tensor", "f(1) -> Tensor"]
)
def test_what_is_no_schema(text: str) -> None:
    with pytest.raises(RuntimeError):
        parse_schema(text)


def test_the_parts_of_a_schema() -> None:
    found = parse_schema("a::h.b(Tensor(a!) x, int[2] k=3, *, Scalar? z=None) -> (Tensor, Tensor)")
    x, k, z = found.arguments
    assert (found.name, found.overload_name, len(found.returns)) == ("a::h", "b", 2)
    assert x.alias_info is not None and x.alias_info.is_write and found.is_mutable
    assert k.default_value == [3, 3] and k.N == 2 and str(k.type) == "List[int]"
    assert z.kwarg_only and z.has_default_value() and z.default_value is None and not x.has_default_value()


@pytest.fixture
def lib(request: pytest.FixtureRequest):
    made = library.Library(f"t_{request.node.name.partition('[')[0]}"[:60], "FRAGMENT")
    yield made
    made._destroy()


def ops(lib: library.Library):
    return getattr(engine.ops, lib.ns)


def test_define_and_impl(lib) -> None:
    assert lib.define("scaled(Tensor x, *, float by=2.0) -> Tensor") == f"{lib.ns}::scaled"
    lib.impl("scaled", lambda x, *, by=2.0: x * by, "CPU")
    x = engine.ones(3)
    assert ops(lib).scaled(x).tolist() == [2, 2, 2]
    assert ops(lib).scaled.default(x=x, by=5).tolist() == [5, 5, 5]
    assert ops(lib).scaled.overloads() == ["default"]
    assert repr(ops(lib).scaled) == f"<OpOverloadPacket(op='{lib.ns}.scaled')>"
    assert str(ops(lib).scaled.default._schema) == f"{lib.ns}::scaled(Tensor x, *, float by=2.) -> Tensor"
    assert dir(ops(lib)) == ["scaled"]


def test_overloads_are_chosen_by_their_arguments(lib) -> None:
    for overload, kind in (("Tensor", "Tensor"), ("Scalar", "float")):
        lib.define(f"f.{overload}(Tensor x, {kind} y) -> Tensor")
        lib.impl(f"f.{overload}", lambda x, y, overload=overload: x + len(overload), "CompositeExplicitAutograd")
    x = engine.zeros(())
    assert ops(lib).f(x, x) == 6 and ops(lib).f(x, 1.5) == 6
    assert ops(lib).f.overloads() == ["Tensor", "Scalar"] and ops(lib).f.Scalar._name == f"{lib.ns}::f.Scalar"


def test_what_is_missing_is_said_in_torchs_words(lib) -> None:
    lib.define("f(Tensor x, int n) -> Tensor")
    f, x = ops(lib).f, engine.ones(1)
    with pytest.raises(AttributeError, match=rf"'_OpNamespace' '{lib.ns}' object has no attribute 'g'"):
        ops(lib).g  # noqa: B018
    with pytest.raises(AttributeError, match=rf"The underlying op of '{lib.ns}.f' has no overload name 'out'"):
        f.out  # noqa: B018
    for args, kwargs, text in [
        ((x,), {}, "is missing value for argument 'n'"),
        ((1, 2), {}, "Expected a value of type 'Tensor' for argument 'x' but instead found type 'int'"),
        ((x, "s"), {}, "Expected a value of type 'int' for argument 'n' but instead found type 'str'"),
        ((x, 1, 2), {}, "takes 2 positional argument"),
        ((x, 1), {"b": 2}, "Unknown keyword argument 'b'"),
    ]:
        with pytest.raises(RuntimeError, match=text):
            f(*args, **kwargs)
    with pytest.raises(NotImplementedError, match=f"Could not run '{lib.ns}::f' with arguments from the 'CPU' backend"):
        f(x, 1)


def test_what_a_library_refuses(lib) -> None:
    lib.define("f(Tensor x) -> Tensor")
    with pytest.raises(RuntimeError, match="same name and overload name multiple times"):
        lib.define("f(Tensor x) -> Tensor")
    with pytest.raises(ValueError, match="Unsupported kind: FOO"):
        library.Library("x", "FOO")
    with pytest.raises(RuntimeError, match="could not parse dispatch key: Nope"):
        lib.impl("f", lambda x: x, "Nope")
    with pytest.raises(RuntimeError, match="Cannot define an operator inside of a TORCH_LIBRARY_IMPL block"):
        library.Library(lib.ns, "IMPL").define("g(Tensor x) -> Tensor")
    with pytest.raises(NotImplementedError, match="the engine's own operators are not dispatched by key"):
        library.Library("aten", "IMPL").impl("add", lambda x: x, "CPU")
    first = library.Library("t_only_one", "DEF")
    with pytest.raises(RuntimeError, match="Only a single TORCH_LIBRARY can be used"):
        library.Library("t_only_one", "DEF")
    first._destroy()
    library.Library("t_only_one", "DEF")._destroy()


def test_what_a_library_defined_goes_with_it() -> None:
    made = library.Library("t_gone", "DEF")
    made.define("f(Tensor x) -> Tensor")
    assert hasattr(engine.ops.t_gone, "f")
    del made
    gc.collect()
    assert not hasattr(engine.ops.t_gone, "f")


def test_a_kernel_may_come_before_its_definition(lib) -> None:
    library.impl(f"{lib.ns}::late", "cpu", lambda x: x + 1, lib=lib)
    library.define(f"{lib.ns}::late", "(Tensor x) -> Tensor", lib=lib)
    assert ops(lib).late(engine.zeros(())) == 1


def test_composite_kernels_have_the_gradients_of_their_parts(lib) -> None:
    lib.define("f(Tensor x) -> Tensor")
    lib.impl("f", lambda x: x.sin(), "CompositeImplicitAutograd")
    assert gradcheck(ops(lib).f, engine.randn(3, dtype=engine.float64, requires_grad=True))


def test_without_a_formula_going_back_warns(lib) -> None:
    lib.define("f(Tensor x) -> Tensor")
    lib.impl("f", lambda x: x * 3, "CPU")
    x = engine.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="an autograd kernel was not registered"):
        ops(lib).f(x).sum().backward()


def test_an_autograd_kernel_calls_what_is_below_it(lib) -> None:
    lib.define("f(Tensor x) -> Tensor")
    lib.impl("f", lambda x: x.sin(), "CPU")

    class F(engine.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            with engine._C._AutoDispatchBelowAutograd():
                return ops(lib).f(x)

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0].cos()

    lib.impl("f", F.apply, "Autograd")
    assert gradcheck(ops(lib).f, engine.randn(3, dtype=engine.float64, requires_grad=True))


@library.custom_op("t_custom::cube", mutates_args=())
def cube(x: Tensor, scale: float = 1.0) -> Tensor:
    return x * x * x * scale


def _setup(ctx, inputs, output) -> None:
    x, ctx.scale = inputs
    ctx.save_for_backward(x)


cube.register_autograd(lambda ctx, grad: (3 * ctx.saved_tensors[0] ** 2 * ctx.scale * grad, None), setup_context=_setup)


def test_a_custom_operator_with_a_formula() -> None:
    assert str(cube._opoverload._schema) == "t_custom::cube(Tensor x, float scale=1.) -> Tensor"
    x = engine.randn(4, dtype=engine.float64, requires_grad=True)
    assert gradcheck(cube, (x,)) and gradcheck(lambda x: engine.ops.t_custom.cube(x, 2.5), (x,))
    assert type(cube(x).grad_fn).__name__ == "GeneratedBackwardFor_t_custom_cube_defaultBackward"
    (first,) = engine.autograd.grad(cube(x).sum(), x, create_graph=True)
    (second,) = engine.autograd.grad(first.sum(), x)
    assert engine.allclose(second, 6 * x.detach())


def test_lists_of_tensors_in_a_custom_operator() -> None:
    @library.custom_op("t_custom::both", mutates_args=())
    def both(xs: Sequence[Tensor], by: float) -> tuple[Tensor, Tensor]:
        return xs[0] * by, xs[1] * by

    seen = []

    def setup(ctx, inputs, output) -> None:
        seen.append(ctx.needs_input_grad)
        ctx.by = inputs[1]

    both.register_autograd(lambda ctx, a, b: ([a * ctx.by, b * ctx.by], None), setup_context=setup)
    x, y = engine.ones(2, requires_grad=True), engine.ones(2)
    first, second = both([x, y], 3.0)
    first.sum().backward()
    assert x.grad.tolist() == [3, 3] and y.grad is None and seen == [([True, False], False)]
    assert second.requires_grad

    @library.custom_op("t_custom::many", mutates_args=())
    def many(x: Tensor, n: int) -> list[Tensor]:
        return [x * i for i in range(n)]

    many.register_autograd(lambda ctx, grads: (sum(i * g for i, g in enumerate(grads)), None))
    x = engine.ones(2, requires_grad=True)
    found = many(x, 3)
    assert isinstance(found, list) and len(found) == 3
    (found[1] + found[2]).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_a_custom_operator_without_formula_refuses_to_go_back() -> None:
    @library.custom_op("t_custom::plain", mutates_args=())
    def plain(x: Tensor) -> Tensor:
        return x * 2

    out = plain(engine.ones(1, requires_grad=True))
    with pytest.raises(RuntimeError, match=r"Trying to backward through t_custom.plain.default but no"):
        out.sum().backward()


def test_a_custom_operator_may_write_what_it_says() -> None:
    @library.custom_op("t_custom::fill", mutates_args=("y",))
    def fill(x: Tensor, y: Tensor) -> None:
        y.numpy()[...] = x.numpy()

    y = engine.zeros(2)
    before = y._version
    assert fill(engine.ones(2), y) is None
    assert y.tolist() == [1, 1] and y._version > before
    with pytest.raises(RuntimeError, match="Cannot register autograd formula for non-functional operator"):
        fill.register_autograd(lambda ctx: None)


def test_results_that_share_memory_are_refused() -> None:
    @library.custom_op("t_custom::same", mutates_args=())
    def same(x: Tensor) -> Tensor:
        return x.view(-1)

    with pytest.raises(RuntimeError, match="may not alias any inputs"):
        same(engine.ones(2, 2))


def test_kernels_can_be_switched_off() -> None:
    @library.custom_op("t_custom::switched", mutates_args=())
    def switched(x: Tensor) -> Tensor:
        return x + 1

    @switched.register_kernel("cpu")
    def _(x):
        return x + 10

    x = engine.zeros(())
    assert switched(x) == 10
    with switched.set_kernel_enabled("cpu", False):
        assert switched(x) == 1
    assert switched(x) == 10


def test_infer_schema() -> None:
    def f(
        x: Tensor,
        y: list[int] | None = None,
        *,
        w: float = 1.5,
        s: str = "a",
        b: bool = True,
        d: engine.dtype | None = None,
        z: Sequence[float] | None = None,
    ) -> tuple[Tensor, int]: ...

    assert library.infer_schema(f, mutates_args=()) == (
        '(Tensor x, SymInt[]? y=None, *, float w=1.5, str s="a", bool b=True, ScalarType? d=None, float[]? z=None) -> '
        "(Tensor, SymInt)"
    )
    assert library.infer_schema(cube._init_fn, mutates_args={"x"}, op_name="a::b").startswith("a::b(Tensor(a0!) x, ")

    def untyped(x): ...

    def a_dict(x: Tensor, y: dict) -> Tensor: ...

    with pytest.raises(ValueError, match="Parameter x must have a type annotation"):
        library.infer_schema(untyped, mutates_args=())
    with pytest.raises(ValueError, match="Parameter y has unsupported type"):
        library.infer_schema(a_dict, mutates_args=())
    with pytest.raises(ValueError, match="were not found in the custom op's signature"):
        library.infer_schema(cube._init_fn, mutates_args={"q"})


def test_opcheck() -> None:
    @cube.register_fake
    def _(x, scale=1.0):
        return engine.empty_like(x)

    x = engine.randn(3, requires_grad=True)
    assert set(library.opcheck(cube, (x,)).values()) == {"SUCCESS"}

    @library.custom_op("t_custom::liar", mutates_args=())
    def liar(x: Tensor) -> Tensor:
        x.add_(1)
        return x * 2

    liar.register_fake(lambda x: x.new_empty(7))
    found = library.opcheck(liar, (engine.ones(2),), raise_exception=False)
    assert "was written" in str(found["test_schema"]) and "[7]" in str(found["test_faketensor"])
    with pytest.raises(library.opcheck.__globals__["OpCheckError"]):
        library.opcheck(liar, (engine.ones(2),))
    with pytest.raises(NotImplementedError, match="there is no compiler to compare with"):
        library.opcheck(cube, (x,), test_utils="test_aot_dispatch_dynamic")


def test_loading_a_library(tmp_path) -> None:
    with pytest.raises(OSError, match=r"Could not load this library: .*no such file"):
        engine.ops.load_library(tmp_path / "none.so")
    foreign = tmp_path / "ours" / "_C.so"
    foreign.parent.mkdir()
    foreign.touch()
    with pytest.raises(OSError, match="loads no compiled extensions"):
        engine.ops.load_library(foreign)
    known = tmp_path / "torchvision" / "_C.cpython-311-x86_64-linux-gnu.so"
    known.parent.mkdir()
    known.touch()
    engine.ops.load_library(known)
    assert str(known) in engine.ops.loaded_libraries
    assert engine.ops.torchvision._cuda_version() == -1
    with pytest.raises(RuntimeError, match=r"Tried to instantiate class 'a.B', but it does not exist"):
        engine.classes.a.B()


def test_a_namespace_may_bear_the_name_of_a_family_of_ops() -> None:
    made = library.Library("vision", "DEF")
    made.define("f(Tensor x) -> Tensor")
    made.impl("f", lambda x: x + 1, "CPU")
    assert engine.ops.vision.f(engine.zeros(())) == 1
    made._destroy()


def test_what_is_written_for_triton_refuses() -> None:
    @library.triton_op("t_custom::triton", mutates_args=())
    def triton(x: Tensor) -> Tensor: ...

    with pytest.raises(NotImplementedError, match="triton_op is not supported"):
        triton(engine.ones(1))
    with pytest.raises(NotImplementedError, match="wrap_triton is not supported"):
        library.wrap_triton(None)


def test_the_form_of_2023() -> None:
    from engine.library import _custom_ops

    @_custom_ops.custom_op("t_old::f")
    def f(x: Tensor) -> Tensor: ...

    _custom_ops.impl("t_old::f", func=lambda x: x.sin(), device_types="cpu")
    _custom_ops.impl_save_for_backward("t_old::f", func=lambda inputs, output: inputs.x)
    _custom_ops.impl_backward("t_old::f", func=lambda ctx, saved, grad: {"x": grad * saved.cos()})
    x = engine.ones(2, requires_grad=True)
    engine.ops.t_old.f(x).sum().backward()
    assert engine.allclose(x.grad, x.detach().cos())


def test_dispatch_keys() -> None:
    from engine.torch_names._C import DispatchKey, DispatchKeySet

    both = DispatchKeySet(DispatchKey.CPU) | DispatchKeySet(DispatchKey.CUDA)
    assert repr(both) == "DispatchKeySet(CPU, CUDA)" and both.has(DispatchKey.CPU) and str(DispatchKey.CPU)
    assert not DispatchKeySet(DispatchKey.CPU).has(DispatchKey.AutocastCPU)
    assert isinstance(parse_schema("f(Tensor x) -> Tensor").arguments[0].type, engine.TensorType)


def test_a_namespace_may_have_the_name_of_a_family_of_the_engines_own() -> None:
    """Kernels that are imported later still find their family by its name."""
    done = subprocess.run([sys.executable, "-c", FAMILIES], capture_output=True, text=True)
    assert not done.returncode, done.stderr


FAMILIES = """
import engine
F = engine.nn.functional
for name in ("convolution", "norm", "reduction"):
    engine.library.custom_op(f"{name}::plus", lambda x: x + 1, mutates_args=(), schema="(Tensor x) -> Tensor")
x = engine.rand(4, 16, 32, 32)
y = F.batch_norm(F.conv2d(x, engine.rand(16, 16, 3, 3)), None, None, training=True)
assert y.sum(0).shape == (16, 30, 30)
assert engine.ops.convolution.plus(engine.zeros(1)).item() == 1
"""
