"""`sys.path[0]` is the checkout while its code runs, and nothing is imported through it by accident."""

from __future__ import annotations

import importlib
import pkgutil
import sys
import threading
from pathlib import Path

import pytest

from hubcli.running import isolation, path_entry


@pytest.fixture
def repository(tmp_path: Path):
    def make(name: str, **files: str) -> isolation.Namespace:
        root = tmp_path / name
        root.mkdir()
        for module, text in files.items():
            (root / f"{module}.py").write_text(text)
        return isolation.register(root, None)

    return make


def test_it_is_the_checkout_as_under_torch_hub(repository) -> None:
    before = list(sys.path)
    text = "import os, sys\nFIRST = sys.path[0]\nsys.path.append(os.path.join(FIRST, 'src'))\nimport inner_part\n"
    namespace = repository("one", hubconf=text + "def net():\n    return sys.path[0]\n")
    (namespace.root / "src").mkdir()
    (namespace.root / "src" / "inner_part.py").write_text("VALUE = 3\n")
    with namespace.active():
        module = namespace.load("hubconf")
        assert module.FIRST == module.net() == str(namespace.root)
        assert module.inner_part.VALUE == 3
    assert sys.path == before
    assert str(namespace.root) not in sys.path_importer_cache
    with pytest.raises(KeyError), namespace.active():
        raise KeyError
    assert sys.path == before


def test_nobody_else_finds_a_module_of_the_checkout_through_it(repository, tmp_path, monkeypatch) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "outside_lib.py").write_text("import wave, shared_name\n")
    (tmp_path / "site" / "shared_name.py").write_text("WHOSE = 'site'\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    for name in ("wave", "outside_lib", "shared_name"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    own = "WHOSE = 'checkout'\n"
    namespace = repository("two", hubconf="import outside_lib, shared_name\n", wave=own, shared_name=own)
    with namespace.active():
        importlib.invalidate_caches()
        module = namespace.load("hubconf")
    assert module.shared_name.WHOSE == "checkout"
    assert module.outside_lib.shared_name.WHOSE == "site"
    assert module.outside_lib.wave.open
    for name in ("wave", "outside_lib", "shared_name"):
        sys.modules.pop(name, None)


def test_other_threads_do_not_import_from_it(repository) -> None:
    namespace = repository("three", hubconf="", only_in_three="")
    found: list[object] = []
    with namespace.active():
        thread = threading.Thread(target=lambda: found.append(importlib.util.find_spec("only_in_three")))
        thread.start()
        thread.join()
    assert found == [None]


def test_listing_the_modules_of_the_checkout_works(repository) -> None:
    namespace = repository(
        "four", hubconf="import pkgutil, sys\nNAMES = [m.name for m in pkgutil.iter_modules(sys.path[:1])]\n"
    )
    with namespace.active():
        assert namespace.load("hubconf").NAMES == ["hubconf"]
        assert [one.name for one in pkgutil.iter_modules([str(namespace.root)])] == ["hubconf"]


def test_one_inside_another_and_side_by_side(repository) -> None:
    before = list(sys.path)
    outer, inner = repository("five", hubconf=""), repository("six", hubconf="")
    with outer.active():
        sys.path.append("/added/by/five")
        with inner.active():
            assert sys.path[:2] == [str(inner.root), str(outer.root)]
            sys.path.append("/added/by/six")
        assert sys.path == [str(outer.root), *before, "/added/by/five"]
    assert sys.path == before
    first, second = outer.active(), inner.active()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.path == [str(inner.root), *before]
    second.__exit__(None, None, None)
    assert sys.path == before


def test_a_folder_that_the_user_imports_from_stays_one(repository, monkeypatch) -> None:
    namespace = repository("seven", hubconf="", users_own="VALUE = 7\n")
    monkeypatch.syspath_prepend(str(namespace.root))
    with namespace.active():
        pass
    assert importlib.util.find_spec("users_own") is not None
    assert sys.path[0] == str(namespace.root)


def test_a_child_process_gets_the_path_without_it(repository, monkeypatch) -> None:
    namespace = repository("eight", hubconf="")
    monkeypatch.setattr(sys, "path", [str(namespace.root), *sys.path])
    path_entry.drop((str(namespace.root), "/not/there"))
    assert str(namespace.root) not in sys.path


def test_packages_of_an_environment_inside_the_checkout_are_not_its_own(repository, monkeypatch) -> None:
    namespace = repository("nine", hubconf="import installed_inside\nNAME = installed_inside.__name__\n")
    site = namespace.root / ".venv" / "lib" / "python3" / "site-packages"
    site.mkdir(parents=True)
    (site / "installed_inside.py").write_text("")
    monkeypatch.syspath_prepend(str(site))
    with namespace.active():
        assert namespace.load("hubconf").NAME == "installed_inside"
    assert sys.modules.pop("installed_inside")
