"""Packages carry source and objects; what they load is theirs alone."""

from __future__ import annotations

import gc
import io
import sys
import warnings

import pytest

import engine
from engine.package import (
    EmptyMatchError,
    GlobGroup,
    PackageExporter,
    PackageImporter,
    PackagingError,
    contents,
    is_from_package,
)
from engine.serialization import UnpicklingError, sniff

SOURCE = """
from engine import nn
from . import helper

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 3)

    def forward(self, x):
        return helper.twice(self.linear(x))
"""


@pytest.fixture
def net(tmp_path, monkeypatch):
    folder = tmp_path / "carried"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "net.py").write_text(SOURCE)
    (folder / "helper.py").write_text("import math\n\ndef twice(x):\n    return x * 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    from carried.net import Net  # type: ignore[import-not-found]

    yield Net()
    for name in [n for n in sys.modules if n.split(".")[0] == "carried"]:
        del sys.modules[name]


def written(net, **actions) -> io.BytesIO:
    file = io.BytesIO()
    with PackageExporter(file) as exporter:
        for action, pattern in actions.items():
            getattr(exporter, action)(pattern)
        exporter.save_pickle("model", "model.pkl", net)
        exporter.save_text("notes", "a.txt", "hello")
        exporter.save_pickle("model", "table.pkl", {"a": net.linear.weight.detach()})
    file.seek(0)
    return file


def test_there_and_back(net) -> None:
    importer = PackageImporter(written(net, intern="carried.**"))
    loaded = importer.load_pickle("model", "model.pkl")
    x = engine.ones(1, 2)
    assert engine.equal(loaded(x), net(x))
    assert type(loaded) is not type(net)
    assert is_from_package(loaded)
    assert not is_from_package(net)
    assert importer.load_text("notes", "a.txt") == "hello"
    assert engine.equal(importer.load_pickle("model", "table.pkl")["a"], net.linear.weight)
    assert importer.file_structure().has_file("carried/net.py")
    assert importer.import_module("carried.helper") is not sys.modules["carried.helper"]
    with pytest.raises(ModuleNotFoundError, match="not in the list of allowed external modules"):
        importer.import_module("json")


def test_modules_need_an_action(net) -> None:
    with pytest.raises(PackagingError, match="did not match against any action pattern"):
        written(net)
    with pytest.raises(PackagingError, match="denied by a pattern"):
        written(net, deny="carried.**")
    with pytest.raises(EmptyMatchError, match="nothing"), PackageExporter(io.BytesIO()) as exporter:
        exporter.extern("nothing.**", allow_empty=False)


def test_mocked_modules_raise_when_they_are_used(net) -> None:
    file = io.BytesIO()
    with PackageExporter(file) as exporter:
        exporter.mock("carried.helper")
        exporter.intern("carried.**")
        exporter.save_pickle("model", "model.pkl", net)
    assert exporter.mocked_modules() == ["carried.helper"]
    file.seek(0)
    loaded = PackageImporter(file).load_pickle("model", "model.pkl")
    with pytest.raises(NotImplementedError, match="mocked out"):
        loaded(engine.ones(1, 2))


def test_extern_modules_are_those_of_the_process(net) -> None:
    file = written(net, extern="carried.**")
    assert type(PackageImporter(file).load_pickle("model", "model.pkl")) is type(net)
    file.seek(0)
    with pytest.raises(ImportError, match="has been disallowed"):
        PackageImporter(file, module_allowed=lambda name: not name.startswith("carried"))


@pytest.mark.parametrize(
    ("pattern", "names", "others"),
    [
        ("a.*", ["a.b"], ["a", "a.b.c", "ab"]),
        ("a.**", ["a", "a.b", "a.b.c"], ["b"]),
        ("**.c", ["c", "a.b.c"], ["c.d"]),
        ("a_*.b", ["a_x.b"], ["a.b"]),
    ],
)
def test_patterns(pattern, names, others) -> None:
    group = GlobGroup(pattern)
    assert all(map(group.matches, names))
    assert not any(map(group.matches, others))


LOUD = "import sys\nsys.package_ran = True\n\n\nclass A:\n    pass\n"


def loud() -> io.BytesIO:
    """A package whose module says that it ran, with a pickle of its class."""
    file = io.BytesIO()
    with PackageExporter(file) as exporter:
        exporter.save_source_string("loud", LOUD)
        exporter.save_binary("model", "model.pkl", b"\x80\x02cloud\nA\n)\x81.")
        exporter.save_text("notes", "a.txt", "hello")
    file.seek(0)
    return file


def test_contents_are_told_without_running_anything(net, monkeypatch) -> None:
    monkeypatch.setattr(sys, "package_ran", False, raising=False)
    told = contents(loud())
    assert (told.modules, told.pickles) == ({"loud": len(LOUD)}, {"model/model.pkl": ("loud.A",)})
    assert (told.files, told.extern, told.storages) == ({"notes/a.txt": 5}, ("sys",), (0, 0))
    assert told.python == ".".join(map(str, sys.version_info[:3]))
    importer = PackageImporter(loud())
    assert importer.load_text("notes", "a.txt") == "hello"
    assert not sys.package_ran  # type: ignore[attr-defined]
    importer.load_pickle("model", "model.pkl")  # the user's own call
    assert sys.package_ran  # type: ignore[attr-defined]
    told = contents(written(net, intern="carried.**"))
    assert told.storages == (2, 2 * 3 * 4 + 3 * 4)
    assert "carried.net" in told.modules
    assert told.pickles["model/model.pkl"][0] == "carried.net.Net"


def test_no_file_stays_open(net, tmp_path) -> None:
    """The content is mapped: the file itself is closed at once, also where it is refused."""
    path = tmp_path / "package.pt"
    path.write_bytes(written(net, intern="carried.**").getvalue())
    importer = PackageImporter(str(path))
    assert importer._source._own.closed
    path.unlink()
    assert engine.equal(importer.load_pickle("model", "table.pkl")["a"], net.linear.weight)
    path.write_bytes(b"no package")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UnpicklingError):
            PackageImporter(str(path))
        gc.collect()


def test_checkpoint_readers_refuse_packages() -> None:
    assert sniff(loud()) == "package"
    with pytest.raises(UnpicklingError, match=r"torch\.package archive, whose Python source would be executed"):
        engine.load(loud())
    with pytest.raises(UnpicklingError, match="not a package"):
        contents(io.BytesIO(b"PK\x05\x06" + bytes(18)))


@pytest.mark.parametrize(
    ("pickle", "words"),
    [
        (b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.", "not in the list of allowed external modules"),
        (b"\x80\x02cloud\nA.__init__.__globals__\n.", "is not there"),
        (b"\x80\x02(K\x01icloud\nA\n.", "is refused"),
    ],
)
def test_pickles_name_the_package_and_its_extern_modules_only(pickle, words) -> None:
    file = io.BytesIO()
    with PackageExporter(file) as exporter:
        exporter.save_source_string("loud", "class A:\n    pass\n")
        exporter.save_binary("model", "model.pkl", pickle)
    file.seek(0)
    with pytest.raises((UnpicklingError, ModuleNotFoundError), match=words):
        PackageImporter(file).load_pickle("model", "model.pkl")
