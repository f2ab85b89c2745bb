"""Classes that are not here: members of enumerations by their value, objects as placeholders where it is permitted."""

from __future__ import annotations

import collections
import copy
import io
import sys
import types

import numpy as np
import pytest

import engine
from engine.serialization import (
    UnpicklingError,
    allow,
    convert,
    get_unsafe_globals_in_checkpoint,
    load,
    read_arrays,
    safe_names,
)
from engine.serialization.pickler import Global, Instance, Reduce

from .forge import pickled, tensor, zipped


def content(*entries: tuple[str, object]) -> bytes:
    return zipped(pickled(dict(entries)))


MODE = Reduce(Global("__main__", "Mode"), "train")
CONFIG = Instance(Global("__main__", "Config"), {"width": 8, "mode": MODE, "w": tensor()})
MIXED = content(("config", CONFIG), ("w", tensor()))


def test_members_of_an_enumeration_of_the_training_script():
    for read in (load, read_arrays):
        found = read(io.BytesIO(content(("mode", MODE), ("w", tensor()))))["mode"]
        assert repr(found) == "<__main__.Mode: train>" and found.value == "train"
        again = read(io.BytesIO(content(("mode", MODE), ("w", tensor()))))["mode"]
        assert again == found and {found: 1}[again] == 1 and found != "train"
    assert get_unsafe_globals_in_checkpoint(io.BytesIO(content(("mode", MODE)))) == []
    member = Reduce(Global("absent_package.config", "Stage"), (1, "x"))
    assert load(io.BytesIO(content(("s", member))))["s"].value == (1, "x")
    out = io.BytesIO()
    convert(io.BytesIO(content(("mode", MODE), ("w", tensor()))), out, format="zip")
    out.seek(0)
    assert load(out)["mode"] == found


@pytest.mark.parametrize(
    "body",
    [
        pickled(Reduce(Global("__main__", "run"), "a", "b")),
        pickled(Reduce(Global("__main__", "run"), ["rm"])),
        pickled(Reduce(Global("__main__", "run"))),
        pickled(Instance(Global("__main__", "Config"), {"a": 1})),
        pickled(Reduce(Global("absent_package", "run"), {"a": 1})),
    ],
)
def test_whatever_else_a_script_defines_must_be_permitted(body):
    with pytest.raises(UnpicklingError, match="Unsupported global: ") as caught:
        load(io.BytesIO(zipped(body)))
    (name,) = caught.value.globals
    assert name in str(caught.value) and get_unsafe_globals_in_checkpoint(io.BytesIO(zipped(body))) == [name]
    with safe_names([name]):
        assert "placeholder" in repr(load(io.BytesIO(zipped(body))))


@pytest.mark.parametrize("path", ["os.system", "subprocess.Popen", "posix.system", "shutil.rmtree", "builtins.eval"])
def test_what_runs_code_looks_like_no_enumeration(path):
    module, _, name = path.rpartition(".")
    with pytest.raises(UnpicklingError, match="was refused"):
        load(io.BytesIO(zipped(pickled(Reduce(Global(module, name), "true")))))


def test_a_file_that_names_very_many_packages_is_not_believed(monkeypatch):
    """Each look for a package takes time: their number is bounded, in every file anew."""
    looked = []
    allow._is_findable.cache_clear()
    monkeypatch.setattr(allow.importlib.util, "find_spec", looked.append)
    many = [Reduce(Global(f"absent_{i}", "Mode"), i) for i in range(100)]
    with pytest.raises(UnpicklingError, match=r"absent_64\.Mode was refused"):
        load(io.BytesIO(zipped(pickled(many))))
    assert len(looked) <= 64 + 64  # those of the file, and of the list of names
    assert len(load(io.BytesIO(zipped(pickled(many[90:]))))) == 10
    allow._is_findable.cache_clear()


def test_all_names_are_told_at_once():
    other = Instance(Global("__main__", "Other"), {"a": 1})
    body = pickled({"a": CONFIG, "b": other, "c": MODE, "d": Reduce(Global("os", "system"), "x")})
    with pytest.raises(UnpicklingError) as caught:
        load(io.BytesIO(zipped(body)))
    assert caught.value.globals == ("__main__.Config", "__main__.Other")
    assert "__main__.Config was refused" in str(caught.value) and "it names __main__.Other" in str(caught.value)


def test_placeholders_have_what_the_file_says():
    with safe_names(["__main__.Config"]):
        found = load(io.BytesIO(MIXED))["config"]
    assert found.width == 8 and found.mode.value == "train" and found.w.tolist() == [1, 2, 3, 4]
    assert repr(found) == "<placeholder of an object of __main__.Config>" and copy.deepcopy(found).width == 8
    with pytest.raises(AttributeError, match=r"placeholder of __main__\.Config has no attribute 'height'"):
        _ = found.height
    with pytest.raises(UnpicklingError, match="Config was refused"):
        load(io.BytesIO(MIXED))
    assert read_arrays(io.BytesIO(MIXED), names=["__main__.Config"])["config"].w.shape == (4,)


def test_placeholders_define_no_protocols():
    hostile = {"__array_interface__": {"data": (1, False), "shape": (9,), "typestr": "|u1", "version": 3}, "__len__": 5}
    body = zipped(pickled(Instance(Global("__main__", "X"), hostile)))
    with safe_names(["__main__.X"]):
        found = load(io.BytesIO(body))
    assert np.asarray(found, dtype=object).dtype == object
    assert not hasattr(found, "__array_interface__") and len(found) == 0


def test_dicts_and_lists_of_a_class():
    """NEWOBJ of a subclass, then SETITEMS or APPENDS, as AttributeDict of Lightning is written."""
    body = b"\x80\x02cabsent.parsing\nAttributeDict\n)\x81(X\x01\x00\x00\x00aK\x05X\x01\x00\x00\x00bK\x06u."
    with safe_names(["absent.parsing.AttributeDict"]):
        found = load(io.BytesIO(zipped(body)))
    assert found["a"] == 5 and list(found) == ["a", "b"] and len(found) == 2
    body = b"\x80\x02cabsent.parsing\nItems\n)\x81(K\x05K\x06e."
    with safe_names(["absent.parsing.Items"]):
        assert list(load(io.BytesIO(zipped(body)))) == [5, 6]


def test_named_tuples():
    body = pickled(Reduce(Global("copyreg", "__newobj__"), Global("__main__", "Point"), 1, 2))
    assert body
    body = b"\x80\x02c__main__\nPoint\nK\x01K\x02\x86\x81."
    with safe_names(["__main__.Point"]):
        found = load(io.BytesIO(zipped(body)))
    assert tuple(found) == (1, 2) and found[1] == 2


def test_tensors_inside_are_converted_and_named():
    out = io.BytesIO()
    made = convert(io.BytesIO(MIXED), out, format="safetensors", names=["__main__.Config"])
    assert made.tensors == 2 and set(made.skipped) == {"config.width", "config.mode"}
    out.seek(0)
    assert set(load(out)) == {"config.w", "w"}


def test_written_again_they_name_their_class_as_before():
    out = io.BytesIO()
    convert(io.BytesIO(MIXED), out, format="zip", names=["__main__.Config"])
    with pytest.raises(UnpicklingError, match=r"__main__\.Config was refused"):
        load(io.BytesIO(out.getvalue()))
    with safe_names(["__main__.Config"]):
        found = load(io.BytesIO(out.getvalue()))["config"]
    assert found.width == 8 and found.mode.value == "train" and found.w.tolist() == [1, 2, 3, 4]


@pytest.fixture
def package(monkeypatch):
    """A package that is imported already: a class, a function and what it has imported itself."""
    made = types.ModuleType("here")
    made.Config = type("Config", (), {"__module__": "here", "double": lambda self: 2 * self.width})
    made.run = lambda text: pytest.fail("a function of the file was called")
    made.Counter = collections.Counter
    monkeypatch.setitem(sys.modules, "here", made)
    return made


def test_classes_that_are_imported_are_built(package):
    body = zipped(pickled(Instance(Global("here", "Config"), {"width": 4})))
    with pytest.raises(UnpicklingError, match=r"here\.Config was refused"):
        load(io.BytesIO(body))
    with safe_names(["here.Config"]):
        assert load(io.BytesIO(body)).double() == 8


def test_functions_and_what_comes_from_elsewhere_are_never_called(package):
    for name in ("here.run", "here.Counter", "functools.partial", "numpy.lib.npyio.DataSource"):
        module, _, last = name.rpartition(".")
        with safe_names([name]):
            found = load(io.BytesIO(zipped(pickled(Reduce(Global(module, last), "x", "y")))))
        assert repr(found) == f"<placeholder of an object of {name}>" and tuple(found) == ("x", "y")


def test_modules_under_another_name(package, monkeypatch):
    """A higher layer knows modules that `sys.modules` has under names of its own."""
    monkeypatch.setattr(allow, "homes", [lambda module: package if module == "models.config" else None])
    body = zipped(pickled(Instance(Global("models.config", "Config"), {"width": 4})))
    with safe_names(["models.config.Config"]):
        assert type(load(io.BytesIO(body))) is package.Config


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("os.system", "runs code"),
        ("builtins.eval", "runs code"),
        ("subprocess.Popen", "runs code"),
        ("ctypes.CDLL", "runs code"),
        ("Config", "is not the name of a class"),
        ("a..b", "is not the name of a class"),
        ("a.*", "is not the name of a class"),
        ("a.b\n", "is not the name of a class"),
        ("", "is not the name of a class"),
        (7, "is not the name of a class"),
    ],
)
def test_names_that_cannot_be_permitted(name, reason):
    with pytest.raises(ValueError, match=reason), safe_names([name]):
        pass
    with pytest.raises(ValueError, match=reason):
        read_arrays(io.BytesIO(MIXED), names=[name])
    assert allow.get_safe_names() == []


def test_names_are_withdrawn_at_the_end_of_the_block():
    with safe_names(["a.B"]):
        with safe_names(["a.B", "a.C"]):
            assert allow.get_safe_names() == ["a.B", "a.C"]
        assert allow.get_safe_names() == ["a.B"]
    assert allow.get_safe_names() == []


def test_modules_of_torch_by_name():
    import engine.nn as nn

    from . import forge

    with safe_names(["torch.nn.modules.container.Sequential", "torch.nn.modules.linear.Linear"]):
        assert type(load(forge.DATA / "module.pth")[0]) is nn.Linear
    assert engine.nn is nn


def test_files_are_named(tmp_path):
    (tmp_path / "net.pth").write_bytes(MIXED)
    with pytest.raises(UnpicklingError, match=rf"^{tmp_path}/net\.pth: Unsupported global") as caught:
        load(tmp_path / "net.pth")
    assert caught.value.file == str(tmp_path / "net.pth") and caught.value.reason.startswith("Unsupported global")
    with open(tmp_path / "net.pth", "rb") as file, pytest.raises(UnpicklingError, match=r"net\.pth: Unsupported"):
        load(file)
