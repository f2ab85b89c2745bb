"""Archives that try to reach beyond the list of operators are refused with the reason; none of them runs."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator

import pytest

import engine
from engine import jit
from engine.serialization import UnpicklingError
from tests.engine.jit import forge
from tests.engine.jit.forge import body

CODE = {  # what the code says -> words of the refusal
    "class of a value": (body("return x.__class__.__base__"), None),
    "class of a class": (body("y = x.__class__", "return y"), None),
    "subclasses": (body("return x.__class__.__subclasses__()"), None),
    "globals of a method": (body("return (self).forward.__globals__"), None),
    "builtins by name": (body("return __builtins__"), "is not a variable"),
    "import": (body("import os", "return x"), "Import cannot stand in a function"),
    "import at the top": ("import os\n" + body("return x"), "stands outside functions"),
    "import from": ("from os import system\n" + body("return x"), "an import"),
    "import renamed": ("import __torch__.a as torch\n" + body("return x"), "stands outside functions"),
    "__import__": (body("return __import__('os')"), "not a function that an archive may call"),
    "eval": (body("return eval('1')"), "not a function that an archive may call"),
    "exec": (body("_0 = exec('1')", "return x"), "not a function that an archive may call"),
    "compile": (body("return compile('1', '', 'eval')"), "not a function that an archive may call"),
    "open": (body("return open('/etc/passwd')"), "not a function that an archive may call"),
    "getattr chain": (body('return getattr(getattr(x, "__class__"), "__mro__")'), None),
    "getattr by value": (body('n = "a"', "return getattr(x, n)"), "a name that is not a constant"),
    "setattr": (body('_0 = setattr(x, "a", 1)', "return x"), "not a function that an archive may call"),
    "type": (body("return type(x)"), "not a function that an archive may call"),
    "vars": (body("return vars(self)"), "not a function that an archive may call"),
    "comprehension": (body("return [y for y in [x]]"), "a comprehension"),
    "comprehension with walrus": (body("return [(y := x) for i in [1]]"), "not part of TorchScript"),
    "walrus": (body("return (y := x)"), "an assignment inside an expression"),
    "generator": (body("return torch.cat(x for i in [1])"), "a comprehension"),
    "lambda": (body("return (lambda: x)()"), "a lambda"),
    "f-string": (body('return f"{x.__class__}"'), "an f-string"),
    "format method": (body('return "{0.__class__}".format(x)'), None),
    "decorator": ("@print\n" + body("return x"), "decorators"),
    "metaclass": ("class M(Module, metaclass=M):\n  pass\n", "decorators, keywords"),
    "base class of Python": ("class M(object):\n  pass\n", "is based on object"),
    "starred parameter": (body("return x").replace("x: Tensor", "*x"), "starred parameter"),
    "starred call": (body("return torch.cat(*[x])"), "a starred expression"),
    "unpacked call": (body("return torch.relu(**{})"), "unpacks keyword arguments"),
    "try": (body("try:", "  return x", "except:", "  pass"), "a try statement"),
    "raise": (body("raise x"), "a raise statement"),
    "global": (body("global y", "return x"), "a global statement"),
    "delete": (body("del x", "return x"), "a del statement"),
    "yield": (body("yield x"), "yield"),
    "await": (body("return await x"), "await"),
    "async": ("async def f():\n  pass\n" + body("return x"), "an async function"),
    "match": (body("match x:", "  case _:", "    pass"), "a match statement"),
    "bytes": (body("return b'a'"), "type bytes"),
    "ellipsis": (body("return x[...]"), "type ellipsis"),
    "slice": (body("return x[0:1]"), "a slice"),
    "aten save": (body('_0 = ops.aten.save(x, "/tmp/x")', "return x"), "aten::save is not on the list"),
    "torch save": (body('_0 = torch.save(x, "/tmp/x")', "return x"), "aten::save is not on the list"),
    "from_file": (body('return torch.from_file("/etc/passwd")'), "aten::from_file is not on the list"),
    "unpickling": (body('return torch.load("/tmp/x")'), "aten::load is not on the list"),
    "load_library": (body('_0 = ops.load_library("x.so")', "return x"), "not something that an archive may call"),
    "a module of torch": (body("return torch.os.system(x)"), "is not on the list"),
    "rpc": (body("return ops.prim.rpc_sync(x)"), "prim::rpc_sync is not on the list"),
    "a Python operator": (body("return ops.prim.PythonOp(x)"), "prim::PythonOp is not on the list"),
    "a method of Tensor": (body("return torch.numpy(x)"), "aten::numpy is not on the list"),
    "a hook": (body("return torch.register_hook(x, x)"), "is not on the list"),
    "set_": (body("return torch.set_(x, x)"), "is not on the list"),
    "a namespace": (body("return ops.mine.run(x)"), "mine::run is not on the list"),
    "quantized": (body("return ops.quantized.add(x, x, 1., 0)"), "quantized"),
    "operator as a value": (body("y = torch.relu", "return y(x)"), "not a value that an archive may name"),
    "dunder of an operator": (body("return torch.relu.__globals__"), "not a value that an archive may name"),
    "a variable is called": (body("return x(x)"), "the variable x is called"),
    "a result is called": (body("return torch.relu(x)(x)"), "something other than a name or a method is called"),
    "an unknown function": (body("return __torch__.f(x)"), "has no function __torch__.f"),
    "an unknown variable": (body("return y"), "y is not a variable"),
    "__new__ of a value": (body("return (x).__new__(x)"), "__new__ is called on"),
    "__new__ of another": (body("return __torch__.M.__new__(x)"), "is not a class of the archive"),
    "a constant beyond": (body("return CONSTANTS.c3"), "the archive has 0"),
    "a constant's attribute": (body("return CONSTANTS.__class__"), "not a constant of the archive"),
    "a long number": (body(f"return {1 << 64}"), "does not fit 64 bits"),
    "a name beyond ASCII": (body("\u03bbf0 = x", "return x"), "not plain ASCII"),
    "the prefix": (body("return (self).\u03bbforward(x)"), "not plain ASCII"),
    "a deep expression": (body("return " + "(-" * 300 + "x" + ")" * 300), None),
    "deep parentheses": (body("return " + "(" * 5000 + "x" + ")" * 5000), None),
    "deep statements": (body(*["  " * i + "if True:" for i in range(95)], "  " * 95 + "pass", "return x"), None),
    "many unary signs": (body("return " + "-" * 100_000 + "x"), None),
    "long attribute chain": (body("return x" + ".a" * 50_000), None),
    "deep type": (body("return x").replace("-> Tensor", "-> " + "List[" * 60 + "int" + "]" * 60), None),
    "a type of Python": (body("return x").replace("x: Tensor", "x: os.system"), "not a type"),
    "a type by call": (body("return x").replace("x: Tensor", "x: print(1)"), "a type is written as Call"),
    "a default by call": (body("return x").replace("x: Tensor", "x: Tensor=open('a')"), "not a function"),
    "a method twice": (body("return x") + body("return x").partition("bool\n")[2], "defined twice"),
    "a class twice": (body("return x") + body("return x"), "defined twice"),
    "attribute over a method": (body("return x", members="  forward : int\n"), "both an attribute and a method"),
    "hidden dict": (body("return x", members="  __dict__ : int\n"), "hide one of Python's own"),
    "hidden class": (body("return x", members='  __annotations__["__class__"] = int\n'), "hide one of Python's own"),
    "hidden parameters": (body("return x", members="  _parameters : int\n"), "hide one of nn.Module's"),
    "a constant by call": (body("return x", members="  a : Final[int] = open(1)\n"), "a constant is expected"),
    "a statement in a class": (body("return x", members="  print(1)\n"), "stands in a class"),
    "a statement in a file": (body("return x") + "print(1)\n", "stands outside functions"),
    "null byte": (body("return x") + "\0", None),
    "not UTF-8": (body("return x") + "# \udcff", "not UTF-8"),
    "fork of an operator": (body("return torch.wait(fork(torch.relu, x))"), "other than a function of the archive"),
    "an operator's generator": (body("return torch.dropout(x, 0.5, True, generator=x)"), "random number generator"),
    "print to a file": (body("print(x, file=x)", "return x"), "keyword arguments"),
    "loop over a list": (body("for i in [1]:", "  pass", "return x"), "another form"),
    "with two": (body("with x, x:", "  pass", "return x"), "several parts"),
}


SUB = "class N(Module):\n  training : bool\n  child : Tensor\n" + forge.FORWARD.replace("M", "N")
CALL = "    return ops.python.call0(x)\n"
PYTHON = {  # every way to name the functions that scripted programs call as they are -> words of the refusal
    "by name": (body("return ops.python.call0(x)"), "python::call0 is a call of Python"),
    "its result unused": (body("_0 = ops.python.call0(x)", "return x"), "python::call0 is a call of Python"),
    "the second": (body("return ops.python.call1(x)"), "python::call1 is a call of Python"),
    "with zeros": (body("return ops.python.call000(x)"), "python::call000 is a call of Python"),
    "digits beyond ASCII": (body("return ops.python.call\u0660(x)"), "not plain ASCII"),
    "another name": (body("return ops.python.print(x)"), "python::print is a call of Python"),
    "no number": (body("return ops.python.call(x)"), "python::call is a call of Python"),
    "of torch": (body("return torch.python.call0(x)"), "aten::python.call0 is not on the list"),
    "of torch's ops": (body("return torch.ops.python.call0(x)"), "aten::ops.python.call0 is not on the list"),
    "of the archive": (body("return __torch__.ops.python.call0(x)"), "has no function"),
    "our own name of it": (body("return \u03bbpython_call0(x)"), "not a function that an archive may call"),
    "as a value": (body("y = ops.python.call0", "return y(x)"), "not a value that an archive may name"),
    "its globals": (body("return ops.python.call0.__globals__"), "not a value that an archive may name"),
    "forked": (body("return torch.wait(fork(ops.python.call0, x))"), "other than a function of the archive"),
    "inside an operator": (body("return torch.relu(torch.neg(ops.python.call0(x)))"), "is a call of Python"),
    "inside a list": (body("return torch.cat([x, ops.python.call0(x)])"), "is a call of Python"),
    "inside a branch": (body("if False:", "  x = ops.python.call0(x)", "return x"), "is a call of Python"),
    "inside a closure": (
        body("def f() -> Tensor:", "  return ops.python.call0(x)", "return f()"),
        "is a call of Python",
    ),
    "as a default": (body("return x").replace("x: Tensor", "x: Tensor=ops.python.call0(1)"), "is a call of Python"),
    "in a class that nothing uses": (body("return x") + SUB + CALL, "is a call of Python"),
    "in a function that nothing uses": (
        body("return x") + "def f(x: Tensor) -> Tensor:\n" + CALL[2:],
        "is a call of Python",
    ),
    "in another file": (
        {"code/__torch__.py": body("return x"), "code/__torch__/a.py": "def f(x: Tensor) -> Tensor:\n" + CALL},
        "is a call of Python",
    ),
    "a file of that name": (
        {
            "code/__torch__.py": body("return ops.python.call0(x)"),
            "code/ops/python.py": "def call0(x: Tensor) -> Tensor:\n  return x\n",
        },
        "is a call of Python",
    ),
    "over an alias": (body("f = __torch__.ops.python.call0", "return f(x)"), None),
    "by getattr": (body('return getattr(ops.python, "call0")(x)'), None),
    "an attribute declared so": (
        body("return self.ops.python.call0(x)", members="  ops : Tensor\n"),
        "lacks its attribute",
    ),
    "of an attribute": (body("return self.ops.python.call0(x)"), None),
    "of a nested attribute": (body("return (self.child.ops.python).call0(x)"), None),
    "a variable named ops": (body("ops = x", "return ops.python.call0(x)"), None),
    "a variable named python": (body("python = x", "return python.call0(x)"), None),
    "a method of self": (body("return (self).call0(x)"), None),
}


@pytest.fixture
def python_is_in_use() -> Iterator[list[int]]:
    """A scripted module that calls Python, with the list of its calls: the process has functions one could name."""
    calls: list[int] = []

    class Calls(engine.nn.Module):
        @jit.ignore
        def told(self, x: engine.Tensor) -> engine.Tensor:
            calls.append(1)
            return x

        def forward(self, x: engine.Tensor) -> engine.Tensor:
            return self.told(x)

    jit.script(Calls())(engine.ones(1))
    assert calls == [1]
    yield calls
    assert calls == [1]


@pytest.mark.parametrize("name", PYTHON)
def test_python_functions_are_out_of_reach(name: str, python_is_in_use: list[int]) -> None:
    code, words = PYTHON[name]
    with pytest.raises(UnpicklingError if words is not None else (UnpicklingError, RuntimeError)) as caught:
        jit.load(forge.archive(code))(engine.ones(2))
    assert words is None or words in str(caught.value)


class Asking(engine.nn.Module):
    """Calls a Python function, and a module of an archive beside it."""

    def __init__(self, inner: engine.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    @jit.ignore
    def ask(self, x: engine.Tensor) -> engine.Tensor:
        return x * 3

    def forward(self, x: engine.Tensor) -> engine.Tensor:
        return self.inner(self.ask(x))


def test_an_archive_within_a_program_that_calls_python() -> None:
    """The archive's text joins the program's; words and attributes in it that look like such calls stay its own."""
    text = "ops.python.call0(x) and ops.python.call7"
    lines = (f'_0 = torch.format("{text}", 5)', "y = torch.add(x, torch.len(_0))", "return (self).call0(y)")
    code = body(*lines) + forge.FORWARD.replace("forward", "call0") + "    return torch.neg(x)\n"
    inner = jit.load(forge.archive(code))
    assert type(inner).Λprogram.python is None
    assert inner(engine.ones(1)).tolist() == [-1.0 - len(text)]
    outer = jit.script(Asking(inner))
    assert outer(engine.ones(1)).tolist() == [-3.0 - len(text)]
    for line in ("return self.ops.python.call0(x)", "return (self.ops.python).call0(x)"):
        outer = jit.script(Asking(jit.load(forge.archive(body(line)))))
        with pytest.raises(RuntimeError, match="has no attribute"):
            outer(engine.ones(1))


def test_how_many_archives_are_refused() -> None:
    """The tables alone; the tests below forge some more."""
    assert len(CODE) + len(PYTHON) + len(DATA) == 139
    assert len({str(code) for code, _ in (*CODE.values(), *PYTHON.values())}) == len(CODE) + len(PYTHON)


@pytest.mark.parametrize("name", CODE)
def test_code_is_refused(name: str) -> None:
    code, words = CODE[name]
    file = forge.archive(code)
    if words is not None:
        with pytest.raises(UnpicklingError) as caught:
            jit.load(file)
        assert words in str(caught.value)
        return
    # attributes are read under a prefix of ours, so that such code loads and finds nothing
    with pytest.raises((UnpicklingError, RuntimeError)) as late:
        jit.load(file)(engine.ones(2))
    assert len(str(late.value)) < 2000


def test_the_honest_one_runs() -> None:
    assert jit.load(forge.archive(body("return torch.relu(x)")))(engine.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0]


@pytest.mark.parametrize(
    "text",
    ["{0.__class__}", "{0}", "{!r}", "{:999999999d}", "{a}", "{0.__init__.__globals__}"],
)
def test_format_knows_braces_only(text: str) -> None:
    code = body(f'_0 = torch.format("{text}|{{}}", 5)', "ops.prim.RaiseException(_0)", "return x")
    with pytest.raises(jit.Error) as caught:
        jit.load(forge.archive(code))(engine.ones(1))
    assert f"{text}|5" in str(caught.value)


def test_percent_knows_no_widths() -> None:
    code = body('_0 = torch.percentFormat("%999999999d|%s", 5)', "ops.prim.RaiseException(_0)", "return x")
    with pytest.raises(jit.Error, match=r"%999999999d\|5"):
        jit.load(forge.archive(code))(engine.ones(1))


def test_names_of_ours_and_of_python_are_plain_variables() -> None:
    code = body(
        "print = torch.add(x, 1)",
        "__builtins__ = torch.mul(print, 2)",
        "torch_relu = __builtins__",
        "self_ = torch_relu",
        "return self_",
    )
    assert jit.load(forge.archive(code))(engine.ones(1)).tolist() == [4.0]


def test_undeclared_attributes_are_not_set() -> None:
    for line in ("self.other = x", "self._parameters = x", "self.__class__ = x", "self.forward = x"):
        with pytest.raises(RuntimeError, match="declares no attribute"):
            jit.load(forge.archive(body(line, "return x")))(engine.ones(1))


def test_attributes_of_tensors_are_out_of_reach() -> None:
    for name in ("data", "grad", "_array", "device", "T", "grad_fn", "register_hook", "numpy", "__dict__"):
        with pytest.raises(RuntimeError, match="has no attribute"):
            jit.load(forge.archive(body(f"return x.{name}")))(engine.ones(1))


def test_methods_of_values_are_out_of_reach() -> None:
    for call in (
        "(x).numpy()",
        "(x).backward()",
        '("a").join(x)',
        "([x]).append(x)",
        "(self).parameters()",
        "(self).__reduce__()",
        "(self).state_dict()",
    ):
        with pytest.raises(RuntimeError, match="has no attribute"):
            jit.load(forge.archive(body(f"return {call}")))(engine.ones(1))


DATA = {
    "a global of Python": (b"cos\nsystem\n(X\x02\x00\x00\x00lstR", "os.system was refused"),
    "a global of torch": (b"ctorch\nload\n)R", "torch.load was refused"),
    "a class that is not there": (forge.made("__torch__.N", {}), "does not define __torch__.N"),
    "a C++ class": (forge.made("__torch__.torch.classes.mine.Thing", {}), "the C++ class"),
    "packed parameters": (
        forge.made("__torch__.torch.classes.quantized.Conv2dPackedParamsBase", {}),
        "the archive is quantized",
    ),
    "a quantized tensor": (b"ctorch._utils\n_rebuild_qtensor\n)R", "TorchScript has no quantized tensors here"),
    "no module": (b"K\x01", "something other than a module"),
    "a state that is a list": (b"c__torch__\nM\n)\x81]b", "not a dict of names"),
    "a missing attribute": (forge.made("__torch__.M", {}), "lacks its attribute training"),
    "an undeclared attribute": (forge.made("__torch__.M", {"training": True, "x": 1}), "does not declare x"),
    "a wrong type": (forge.made("__torch__.M", {"training": [1]}), "is declared as bool"),
    "a call of a class": (b"c__torch__\nM\n)R", "wrong number of values"),
    "arguments of a class": (b"c__torch__\nM\n(K\x01t\x81", "with arguments"),
    "an opcode": (b"(K\x01ic__torch__\nM\n", "is refused"),
}


@pytest.mark.parametrize("name", DATA)
def test_data_is_refused(name: str) -> None:
    data, words = DATA[name]
    with pytest.raises(UnpicklingError) as caught:
        jit.load(forge.archive(body("return x"), data))
    assert words in str(caught.value)


def test_modules_that_contain_themselves() -> None:
    code = body("return x", members="  child : __torch__.M\n")
    data = b"c__torch__\nM\n)\x81q\x00}(X\x08\x00\x00\x00training\x88X\x05\x00\x00\x00childh\x00ub"
    with pytest.raises(UnpicklingError, match="contain themselves"):
        jit.load(forge.archive(code, data))


def test_modules_nested_deeply() -> None:
    code = body("return x", members="  child : Optional[__torch__.M]\n")
    data = b"N"
    for _ in range(300):
        data = b"c__torch__\nM\n)\x81}(X\x08\x00\x00\x00training\x88X\x05\x00\x00\x00child" + data + b"ub"
    with pytest.raises(UnpicklingError, match="nested more than 200 deep"):
        jit.load(forge.archive(code, data))


@pytest.mark.parametrize(
    "path", ["../x", "a/../../x", "/etc/x", "a//x", "a/code/./x.py", "a\\..\\x", "b/x", "a/code/../data.pkl"]
)
def test_paths_that_lead_out(path: str) -> None:
    with pytest.raises(UnpicklingError, match=r"leads out of it|outside its folder"):
        jit.load(forge.archive(body("return x"), extra={path: b""}))


def test_two_entries_of_one_name() -> None:
    with pytest.raises(UnpicklingError, match="twice"):
        jit.load(forge.archive(body("return x"), twice="a/data.pkl"))


def test_code_paths_are_names() -> None:
    for path in ("code/__torch__/a-b.py", "code/__torch__/\u03bb.py", "code/__torch__/1.py"):
        with pytest.raises(UnpicklingError, match="not plain ASCII"):
            jit.load(forge.archive({"code/__torch__.py": body("return x"), path: ""}))


def test_a_file_of_code_that_grows() -> None:
    out = forge.archive(body("return x"))
    with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as z:
        z.writestr("a/code/__torch__/big.py", " " * (17 << 20))
    out.seek(0)
    with pytest.raises(UnpicklingError, match="more than 16777216"):
        jit.load(out)


def test_constants_are_a_tuple_of_data() -> None:
    for constants, words in (
        (b"cos\nsystem\n)R", "os.system was refused"),
        (b"K\x01", "not a tuple"),
        (forge.made("__torch__.M", {}), "does not define"),
    ):
        with pytest.raises(UnpicklingError, match=words):
            jit.load(forge.archive(body("return x"), constants=constants))


@pytest.mark.parametrize("version", [b"", b"x", b"-1", b"999", b"3.0"])
def test_versions(version: bytes) -> None:
    with pytest.raises(UnpicklingError, match="has the version"):
        jit.load(forge.archive(body("return x"), version=version))


def test_an_archive_before_1_2() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("a/model.json", "{}")
    out.seek(0)
    with pytest.raises(UnpicklingError, match=r"before 1\.2"):
        jit.load(out)


def test_recursion_ends_in_an_error() -> None:
    with pytest.raises(RecursionError):
        jit.load(forge.archive(body("return (self).forward(x)")))(engine.ones(1))


def test_the_grad_mode_stays_as_it_was() -> None:
    module = jit.load(forge.archive(body("_0 = torch.set_grad_enabled(False)", "return torch.mul(x, 2)")))
    assert not module(engine.ones(1, requires_grad=True)).requires_grad
    assert engine.is_grad_enabled()


def test_weights_that_do_not_fit_read_no_memory() -> None:
    """The kernels of recurrent layers take whatever pointers they get: sizes are checked before."""
    weights = "[torch.zeros([128, 32]), torch.zeros([128, 3]), torch.zeros([128]), torch.zeros([128])]"
    state = "[torch.zeros([1, 4, 32]), torch.zeros([1, 4, 32])]"
    call = f"_0, _1, _2 = torch.lstm(x, {state}, {weights}, True, 1, 0., False, False, False)"
    code = body(call, "return _0")
    with pytest.raises(RuntimeError, match="does not fit 4 gates of 32"):
        jit.load(forge.archive(code))(engine.zeros(5, 4, 32))
