"""Classes beyond tensors and containers: refused by default, built when the caller lists them."""

from __future__ import annotations

import argparse
import collections
import importlib
import io
import os
import pickle
import sys

import pytest

from engine.serialization import (
    UnpicklingError,
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    get_unsafe_globals_in_checkpoint,
    load,
    safe_globals,
    save,
)

from . import forge
from .forge import zipped


class Config:
    """A plain class."""

    def __init__(self, width=1):
        self.width = width


class Stateful:
    calls: list = []

    def __setstate__(self, state):
        Stateful.calls.append(state)
        self.__dict__.update(state)


class Failing:
    def __setstate__(self, state):
        raise KeyError("broken")


class Dying(Config):
    def __del__(self):
        Stateful.calls.append("deleted")


class Names(dict):
    pass


class Items(list):
    pass


class Slotted:
    __slots__ = ("x",)


Point = collections.namedtuple("Point", "x y")


def make(width):
    return Config(width)


class Made:
    def __reduce__(self):
        return make, (7,)


def saved(obj) -> bytes:
    out = io.BytesIO()
    save(obj, out)
    return out.getvalue()


def read(obj, **options):
    return load(io.BytesIO(saved(obj)), **options)


@pytest.fixture(autouse=True)
def clean():
    clear_safe_globals()
    yield
    clear_safe_globals()


def test_refused_by_default():
    content = saved({"config": Config()})
    with pytest.raises(UnpicklingError, match=rf"Unsupported global: {__name__}.Config was refused"):
        load(io.BytesIO(content))
    assert get_unsafe_globals_in_checkpoint(io.BytesIO(content)) == [f"{__name__}.Config"]


def test_allow_lists_classes_functions_and_paths():
    for allow in ([Config], Config, [f"{__name__}.Config"], [f"{__name__}.*"], [(Config, f"{__name__}.Config")]):
        assert read(Config(5), allow=allow).width == 5
    assert read(Made(), allow=[make]).width == 7
    with pytest.raises(UnpicklingError, match="make was refused"):
        read(Made(), allow=[Config])
    body = b"\x80\x02cold.place\nSettings\n)\x81}X\x05\x00\x00\x00widthK\x09sb."
    assert load(io.BytesIO(zipped(body)), allow=[(Config, "old.place.Settings")]).width == 9


def test_modules_of_the_legacy_format():
    """There a class is an object outside the pickle: ("module", class, source file, source)."""
    from engine.serialization.pickler import Global, Persistent

    def content(cls):
        return forge.legacy([Persistent(("module", cls, "model.py", "class Config: ..."))], [])

    assert load(io.BytesIO(content(Global(__name__, "Config"))), allow=[Config]) == [Config]
    with pytest.raises(UnpicklingError, match="Config was refused"):
        load(io.BytesIO(content(Global(__name__, "Config"))))
    with pytest.raises(UnpicklingError, match="module's source wrongly"):
        load(io.BytesIO(forge.legacy([Persistent(("module", 1))], [])))


def test_other_kinds_of_objects():
    slotted = Slotted()
    slotted.x = 4
    assert read(slotted, allow=[Slotted]).x == 4
    assert read(Point(1, 2), allow=[Point]) == (1, 2)
    assert read(Names(a=1), allow=[Names]) == {"a": 1} and read(Items([1, 2]), allow=[Items]) == [1, 2]
    assert vars(read(argparse.Namespace(a=1), allow=[argparse.Namespace])) == {"a": 1}
    assert read(Stateful(), allow=[Stateful]) is not None
    thing = Stateful()
    thing.a = 1
    assert read(thing, allow=[Stateful]).a == 1 and Stateful.calls[-1] == {"a": 1}
    old = pickle.dumps(Config(3), 0)
    assert load(io.BytesIO(zipped(old)), allow=[Config]).width == 3
    failing = Failing()
    failing.a = 1
    with pytest.raises(UnpicklingError, match="Failing failed with KeyError: broken"):
        read(failing, allow=[Failing])


def test_registered_classes():
    add_safe_globals([Config])
    assert get_safe_globals() == [Config] and read(Config(2)).width == 2
    clear_safe_globals()
    with safe_globals([Config, make]):
        assert read(Config(2)).width == 2
    with pytest.raises(UnpicklingError):
        read(Config(2))
    assert get_safe_globals() == []
    with pytest.raises(ValueError, match="tuple of length 2"):
        add_safe_globals([(Config,)])
    with pytest.raises(TypeError, match="str of callable full path"):
        add_safe_globals([(Config, 3)])
    with pytest.raises(TypeError, match="expected a class"):
        add_safe_globals([3])
    with pytest.raises(ValueError, match=r"nowhere\.Thing cannot be allowed"):
        read(1, allow=["nowhere.Thing"])


def test_blocked_even_when_allowed():
    body = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R."
    for allow in ([os.system], ["os.*"], [(os.system, "os.system")]):
        with pytest.raises(UnpicklingError, match=r"os\.system was refused, its module is blocked"):
            load(io.BytesIO(zipped(body)), allow=allow)
    with pytest.raises(UnpicklingError, match=r"builtins\.eval was refused"):
        load(io.BytesIO(zipped(b"\x80\x02c__builtin__\neval\n.")), allow=[eval])


def test_weights_only_false_takes_imported_classes_without_calling_them():
    assert read(Config(5), weights_only=False).width == 5
    assert read(Names(a=1), weights_only=False) == {"a": 1}
    with pytest.raises(UnpicklingError, match="was refused"):
        read(Made(), weights_only=False)
    for thing in (Dying(), Point(1, 2)):
        with pytest.raises(UnpicklingError, match="refused"):
            read(thing, weights_only=False)
    with pytest.raises(UnpicklingError, match="which is refused"):
        load(io.BytesIO(zipped(f"\x80\x02c{__name__}\nConfig\nK\x01\x85R.".encode("latin1"))), weights_only=False)
    for name in ("os.system", "antigravity.fly", f"{__name__}.os.system", "subprocess.Popen"):
        module, _, last = name.rpartition(".")
        body = f"\x80\x02c{module}\n{last}\n.".encode("latin1")
        with pytest.raises(UnpicklingError, match="was refused"):
            load(io.BytesIO(zipped(body)), weights_only=False)


@pytest.fixture
def nn():
    """engine.nn."""
    return importlib.import_module("engine.nn")


def test_imported_classes_with_code_of_their_own_are_refused(nn):
    failing = Failing()
    failing.a = 1
    with pytest.raises(UnpicklingError, match=r"changes the state of|creates"):
        read(failing, weights_only=False)


def test_whole_modules(nn):
    path = forge.DATA / "module.pth"
    with pytest.raises(UnpicklingError, match=r"torch\.nn\.modules\.container\.Sequential was refused"):
        load(path)
    for options in ({"allow": [nn.Sequential, nn.Linear]}, {"allow": ["torch.nn.*"]}, {"weights_only": False}):
        module = load(path, **options)
        assert type(module) is nn.Sequential and type(module[0]) is nn.Linear
        assert list(module.state_dict()) == ["0.weight", "0.bias"]
    with pytest.raises(UnpicklingError, match=r"Linear was refused"):
        load(path, allow=[nn.Sequential])


def test_submodules_of_an_imported_package_are_found(tmp_path, monkeypatch):
    """With weights_only=False a class is found where it was defined; another package is never imported."""
    for package in ("shown_pkg", "hidden_pkg"):
        folder = tmp_path / package
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        (folder / "inner.py").write_text("class Config:\n    pass\n")
        (folder / "__main__.py").write_text("raise SystemExit('a program ran')\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("shown_pkg")

    def named(path: str) -> io.BytesIO:
        return io.BytesIO(zipped(f"\x80\x02c{path}\n)\x81.".encode("latin1")))

    found = load(named("shown_pkg.inner\nConfig"), weights_only=False)
    assert type(found).__module__ == "shown_pkg.inner"
    for path in ("hidden_pkg.inner\nConfig", "shown_pkg.__main__\nConfig", "shown_pkg.absent\nConfig"):
        with pytest.raises(UnpicklingError, match=r"refused|Unsupported|not"):
            load(named(path), weights_only=False)
    with pytest.raises(UnpicklingError):
        load(named("shown_pkg.inner\nConfig"))
    assert "hidden_pkg" not in sys.modules
    for name in [n for n in sys.modules if n.partition(".")[0] == "shown_pkg"]:
        monkeypatch.delitem(sys.modules, name)
