"""A wildcard of the allow-list permits classes that are defined below it, and nothing that these import."""

from __future__ import annotations

import importlib
import io
import sys
import types

import pytest

from engine.serialization import UnpicklingError, load, safe_globals

from .forge import zipped

CALLS: list[str] = []


def harmful(text):
    CALLS.append(text)


@pytest.fixture(autouse=True)
def package(monkeypatch):
    """A package that has imported others: functions, classes and modules that it does not define."""
    CALLS.clear()
    importlib.import_module("engine.nn")
    front, inner = types.ModuleType("pkg"), types.ModuleType("pkg.inner")
    for made in (front, inner):
        made.__dict__.update(sys=sys, here=sys.modules[__name__], harmful=harmful, io=io, BytesIO=io.BytesIO)
        monkeypatch.setitem(sys.modules, made.__name__, made)
    own = type("Own", (), {"__module__": "pkg.inner", "helper": sys})
    own.Nested = type("Nested", (), {"__module__": "pkg.inner", "__qualname__": "Own.Nested"})
    inner.Own = front.Renamed = own


def called(module: str, name: str, argument: str = "x") -> io.BytesIO:
    text = argument.encode()
    body = f"\x80\x02c{module}\n{name}\n".encode("latin1") + b"X" + len(text).to_bytes(4, "little") + text + b"\x85R."
    return io.BytesIO(zipped(body))


ESCAPES = [
    ("pkg.inner", "here.harmful"),
    ("pkg", "here.harmful"),
    ("pkg.inner", "harmful"),
    ("pkg", "io.BytesIO"),
    ("pkg", "BytesIO"),
    ("pkg", "Own.helper.exit"),
    ("pkg.inner", "Own.helper.modules.clear"),
]


@pytest.mark.parametrize(("module", "name"), ESCAPES)
def test_a_wildcard_does_not_reach_what_the_package_imports(module, name):
    for permit in (lambda f: load(f, allow=["pkg.*"]), lambda f: load(f, allow=["pkg.*"], weights_only=False)):
        with pytest.raises(UnpicklingError, match="refused"):
            permit(called(module, name))
    with safe_globals(["pkg.*"]), pytest.raises(UnpicklingError, match="refused"):
        load(called(module, name))
    assert CALLS == []


@pytest.mark.parametrize(
    ("allow", "module", "name"),
    [
        ("engine.nn.*", "engine.nn.modules.module", "inspect.os.system"),
        ("torch.nn.*", "torch.nn", "utils.rnn.builtins.eval"),
        ("engine.*", "engine.serialization.allow", "sys.modules.clear"),
        ("engine.*", "engine.serialization.allow", "importlib.import_module"),
        ("torch.nn.*", "torch.nn.functional", "partial"),
    ],
)
def test_the_engine_is_no_way_out(allow, module, name):
    with pytest.raises(UnpicklingError, match="refused"):
        load(called(module, name, "0"), allow=[allow])


def test_classes_of_the_package_are_built():
    for module, name in (("pkg.inner", "Own"), ("pkg", "Renamed"), ("pkg.inner", "Own.Nested")):
        body = f"\x80\x02c{module}\n{name}\n)\x81.".encode("latin1")
        assert type(load(io.BytesIO(zipped(body)), allow=["pkg.*"])).__module__ == "pkg.inner"


def test_functions_that_torch_writes_as_attributes_of_a_class():
    owner = b"ctorch._C\n_VariableFunctionsClass\n"
    body = b"\x80\x02cbuiltins\ngetattr\n%sX\x04\x00\x00\x00relu\x86R."
    assert load(io.BytesIO(zipped(body % owner)), allow=["torch.relu"]) is importlib.import_module("engine").relu
    with pytest.raises(UnpicklingError, match=r"Unsupported global: torch\.relu"):
        load(io.BytesIO(zipped(body % owner)))
    for other in (b"cbuiltins\nobject\n", b"ctorch\nSize\n", b"N", b"X\x01\x00\x00\x00x"):
        with pytest.raises(UnpicklingError, match=r"Unsupported global: builtins\.getattr was refused"):
            load(io.BytesIO(zipped(body % other)), allow=["torch.*"])


def test_functions_of_the_engine_are_values_under_a_wildcard():
    functional = importlib.import_module("engine.nn.functional")
    body = b"\x80\x02ctorch.nn.functional\nrelu\n."
    assert load(io.BytesIO(zipped(body)), allow=["torch.nn.*"]) is functional.relu
    with pytest.raises(UnpicklingError, match="calls"):
        load(called("torch.nn.functional", "relu"), allow=["torch.nn.*"])
