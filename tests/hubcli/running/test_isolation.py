"""Two repositories with the same module names in one process, and nothing that leaks."""

from __future__ import annotations

import gc
import importlib
import importlib.metadata
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hubcli.running import isolation
from hubcli.running.isolation import Namespace, register

HUBCONF = """
import os
import utils
from models.net import Net
from models import *
import models.net as direct

def who():
    return utils.NAME

def lazily():
    import late
    from utils import NAME
    import models.other
    return late.NAME, NAME, models.other.NAME

def data():
    with open(os.path.join(os.path.dirname(__file__), "data.txt")) as file:
        return file.read()
"""


def make_repo(root: Path, name: str) -> Path:
    files = {
        "hubconf.py": HUBCONF,
        "utils.py": f"NAME = {name!r}\n",
        "late.py": "import utils\nNAME = utils.NAME + ' late'\n",
        "data.txt": f"data of {name}",
        "models/__init__.py": "from .net import Net\nfrom . import other\n__all__ = ['Net']\n",
        "models/net.py": (
            "import utils\nfrom dataclasses import dataclass\n"
            "@dataclass\nclass Net:\n    width: int = 3\n"
            "    def where(self):\n        import late\n        return late.NAME\n"
            "def square(x):\n    import utils\n    return utils.NAME, x * x\n"
        ),
        "models/other.py": "from utils import NAME\n",
    }
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        (root / f"{name}.py").write_text(text)
    return root


@pytest.fixture
def two(tmp_path: Path) -> tuple[Namespace, Namespace]:
    return (
        register(make_repo(tmp_path / "a", "a"), os.urandom(20).hex()),
        register(make_repo(tmp_path / "b", "b"), os.urandom(20).hex()),
    )


def hubconf(namespace: Namespace):
    with namespace.active():
        return namespace.load("hubconf")


def test_two_repositories_with_the_same_module_names(two):
    first, second = hubconf(two[0]), hubconf(two[1])
    assert (first.who(), second.who()) == ("a", "b")
    assert first.lazily() == ("a late", "a", "a")
    assert second.lazily() == ("b late", "b", "b")
    assert first.Net is not second.Net
    assert first.direct.Net is first.Net
    assert first.data() == "data of a"


def test_modules_live_under_the_commit(two):
    module = hubconf(two[0])
    assert module.__name__ == f"_hub_{two[0].commit[:12]}.hubconf"
    assert module.Net.__module__ == f"{two[0].prefix}.models.net"
    assert sys.modules[module.Net.__module__].Net is module.Net


def test_a_second_look_is_the_same_module(two):
    assert hubconf(two[0]) is hubconf(two[0])


def test_nothing_leaks(two, tmp_path):
    before = (list(sys.path), dict(sys.modules), os.getcwd())
    hubconf(two[0])
    hubconf(two[1]).lazily()
    plain = {name for name in sys.modules if not name.startswith("_hub_")}
    assert sys.path == before[0]
    assert plain == {name for name in before[1] if not name.startswith("_hub_")}
    assert os.getcwd() == before[2]
    assert not list(tmp_path.rglob("__pycache__"))


def test_nothing_leaks_on_error(tmp_path):
    root = make_repo(tmp_path / "bad", "bad")
    write(
        root,
        hubconf="import os, sys, utils\nsys.path.insert(0, os.path.dirname(__file__))\n"
        "sys.modules['utils'] = utils\nos.chdir(os.path.dirname(__file__))\nraise ValueError('no')\n",
    )
    namespace = register(root, os.urandom(20).hex())
    before = (list(sys.path), dict(sys.modules), os.getcwd())
    with pytest.raises(ValueError, match="no"), namespace.active():
        namespace.load("hubconf")
    assert (list(sys.path), dict(sys.modules), os.getcwd()) == before


def test_a_failed_import_can_be_tried_again(tmp_path):
    root = write(make_repo(tmp_path / "r", "r"), hubconf="raise ValueError('first')\n")
    namespace = register(root, os.urandom(20).hex())
    with pytest.raises(ValueError, match="first"):
        hubconf(namespace)
    write(root, hubconf=HUBCONF + "# mended\n")
    importlib.invalidate_caches()
    assert hubconf(namespace).who() == "r"


def test_the_users_own_module_of_that_name_is_untouched(two, monkeypatch):
    mine = type(sys)("utils")
    mine.NAME = "mine"
    monkeypatch.setitem(sys.modules, "utils", mine)
    assert hubconf(two[0]).who() == "a"
    import utils

    assert utils is mine


def test_threads(two):
    first, second = hubconf(two[0]), hubconf(two[1])
    barrier = threading.Barrier(8)

    def call(module):
        barrier.wait()
        return [module.lazily()[0] for _ in range(20)]

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(call, [first, second] * 4))
    assert results == [["a late"] * 20, ["b late"] * 20] * 4


def test_two_threads_import_at_once(two):
    barrier = threading.Barrier(4)

    def load(namespace):
        barrier.wait()
        return hubconf(namespace)

    with ThreadPoolExecutor(4) as pool:
        modules = list(pool.map(load, [two[0], two[1], two[0], two[1]]))
    assert modules[0] is modules[2]
    assert [module.who() for module in modules] == ["a", "b", "a", "b"]


def test_modules_that_come_while_it_ends(two):
    """As from another thread; here from a garbage collection, which the pairs of `list(sys.modules.items())` begin."""
    came = []

    def come(phase, info):
        if phase == "start" and len(came) < 10_000:
            came.append(f"_came_{len(came)}")
            sys.modules[came[-1]] = types.ModuleType(came[-1])

    threshold = gc.get_threshold()
    try:
        with two[0].active():
            gc.callbacks.append(come)
            gc.set_threshold(1)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(come)
        for name in came:
            del sys.modules[name]
    assert came


def test_importlib_follows_the_importing_module(tmp_path):
    root = write(
        make_repo(tmp_path / "r", "r"),
        hubconf="import importlib, importlib.util\n"
        "from importlib import import_module\n"
        "def by_module(): return importlib.import_module('utils').NAME\n"
        "def by_name(): return import_module('models.net').__name__\n"
        "def relative(): return import_module('.net', 'models').__name__\n"
        "def builtin(): return __import__('utils').NAME, __import__('models.net').__name__\n"
        "def spec(): return importlib.util.find_spec('utils').name\n"
        "def by_file(path):\n"
        "    spec = importlib.util.spec_from_file_location('other_name', path)\n"
        "    module = importlib.util.module_from_spec(spec)\n"
        "    spec.loader.exec_module(module)\n"
        "    return module.NAME\n"
        "def foreign(): return import_module('json').__name__\n"
        "def same(): return importlib.machinery.SOURCE_SUFFIXES\n",
    )
    namespace = register(root, os.urandom(20).hex())
    module = hubconf(namespace)
    assert module.by_module() == "r"
    assert module.by_name() == module.relative() == f"{namespace.prefix}.models.net"
    assert module.builtin() == ("r", f"{namespace.prefix}.models")
    assert module.spec() == f"{namespace.prefix}.utils"
    assert module.by_file(root / "late.py") == "r late"
    assert module.foreign() == "json"
    assert module.same() == [".py"]
    assert importlib.import_module is not module.importlib.import_module
    assert not list(root.rglob("__pycache__"))


def test_folders_put_on_sys_path(tmp_path):
    root = make_repo(tmp_path / "r", "r")
    (root / "src").mkdir()
    (root / "front").mkdir()
    (root / "src" / "inner.py").write_text("import utils\nNAME = utils.NAME + ' inner'\n")
    (root / "front" / "late.py").write_text("NAME = 'front'\n")
    write(
        root,
        hubconf="import os, sys\n"
        "here = os.path.dirname(os.path.realpath(__file__))\n"
        "sys.path.append(os.path.join(here, 'src'))\n"
        "sys.path.insert(0, here + '/front')\n"
        "import inner\n"
        "def late():\n    import late\n    return inner.NAME, late.NAME\n",
    )
    before = list(sys.path)
    namespace = register(root, os.urandom(20).hex())
    assert hubconf(namespace).late() == ("r inner", "front")
    assert sys.path == before
    assert "inner" not in sys.modules


def test_the_working_directory_comes_back(tmp_path):
    namespace = register(
        write(make_repo(tmp_path / "r", "r"), hubconf="import os\nos.chdir('/')\n"),
        os.urandom(20).hex(),
    )
    before = os.getcwd()
    hubconf(namespace)
    assert os.getcwd() == before


def test_missing_modules_are_named_as_the_code_names_them(tmp_path):
    root = make_repo(tmp_path / "r", "r")
    namespace = register(write(root, hubconf="import models.missing\n"), os.urandom(20).hex())
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'models.missing'$") as caught:
        hubconf(namespace)
    assert caught.value.name == "models.missing"
    namespace = register(write(root, hubconf="import nowhere_at_all\n"), os.urandom(20).hex())
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'nowhere_at_all'$"):
        hubconf(namespace)


def test_the_standard_library_wins_where_it_is_loaded(tmp_path):
    root = write(
        make_repo(tmp_path / "r", "r"),
        hubconf="import logging, types\nimport this_test\nlevel = logging.INFO\n",
        logging="raise AssertionError('shadowed')\n",
        this_test="import types\nkind = types.ModuleType\n",
    )
    assert hubconf(register(root, os.urandom(20).hex())).level == 20


def test_a_module_called_engine_is_the_repositorys_own(tmp_path):
    root = write(
        make_repo(tmp_path / "r", "r"),
        hubconf="import engine, torch\nfrom engine import train\nnumber = torch.tensor(3).item()\n",
        engine="def train(): return 'mine'\n",
    )
    module = hubconf(register(root, os.urandom(20).hex()))
    assert module.train() == "mine"
    assert module.number == 3
    import engine

    assert module.torch is engine


def test_a_bare_folder_does_not_hide_an_installed_package(tmp_path):
    root = make_repo(tmp_path / "r", "r")
    for folder in ("click", "assets"):
        (root / folder).mkdir()
        (root / folder / "part.py").write_text("X = 1\n")
    write(root, hubconf="import click\nfrom assets.part import X\ncommand = click.command\n")
    assert hubconf(register(root, os.urandom(20).hex())).X == 1


def test_third_party_code_gets_the_same_module_by_its_plain_name(tmp_path):
    root = write(
        make_repo(tmp_path / "r", "r"),
        hubconf="import pickle\nfrom models.net import Net\n"
        "def by_pickle():\n    return pickle.loads(b'cmodels.net\\nNet\\n.') is Net\n",
    )
    namespace = register(root, os.urandom(20).hex())
    with namespace.active():
        assert namespace.load("hubconf").by_pickle()
        assert importlib.import_module("models.net").Net is namespace.load("hubconf").Net
    assert "models" not in sys.modules
    assert "models.net" not in sys.modules


def test_pickle_round_trip(two):
    module = hubconf(two[0])
    copy = pickle.loads(pickle.dumps(module.Net(5)))
    assert copy == module.Net(5)
    assert type(copy) is module.Net
    assert pickle.loads(pickle.dumps(module.direct.square)) is module.direct.square


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_spawned_workers_import_classes_and_functions(two, method):
    module = hubconf(two[0])
    context = multiprocessing.get_context(method)
    with context.Pool(1) as pool:
        assert pool.map(module.direct.square, [3]) == [("a", 9)]
        assert pool.apply(module.Net.where, (module.Net(),)) == "a late"
        assert pool.apply(module.Net, (7,)) == module.Net(7)


def test_a_process_of_its_own_registers_first(two):
    data = pickle.dumps(hubconf(two[1]).Net(4))
    code = (
        "import pickle, sys; from pathlib import Path; from hubcli.running import isolation\n"
        f"isolation.register(Path({str(two[1].root)!r}), {two[1].commit!r})\n"
        f"print(pickle.loads({data!r}).where())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=Path(isolation.__file__).parents[2],
        check=True,
    )
    assert done.stdout == "b late\n"


def test_another_generation_of_the_commit_takes_over(two, tmp_path):
    module = hubconf(two[0])
    other = make_repo(tmp_path / "a2", "a")
    assert register(other, two[0].commit) is two[0]
    for path in sorted((tmp_path / "a").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    assert module.lazily() == ("a late", "a", "a")
    assert module.data() == "data of a"
    assert Path(module.__file__).is_relative_to(other)


def test_a_changed_folder_is_read_again(tmp_path):
    root = make_repo(tmp_path / "mine", "old")
    first = hubconf(register(root, None))
    assert hubconf(register(root, None)) is first
    write(root, utils="NAME = 'newer'\n")
    assert hubconf(register(root, None)).who() == "newer"
    assert first.who() == "old"


def test_commits_that_share_twelve_digits_stay_apart(tmp_path):
    stem = os.urandom(6).hex()
    one = register(make_repo(tmp_path / "x", "x"), stem + "0" * 28)
    two = register(make_repo(tmp_path / "y", "y"), stem + "1" * 28)
    assert (hubconf(one).who(), hubconf(two).who()) == ("x", "y")


def test_no_bytecode_of_the_repository_is_run(tmp_path):
    root = make_repo(tmp_path / "r", "r")
    import py_compile

    evil = tmp_path / "evil.py"
    evil.write_text("NAME = 'evil'\n")
    status = (root / "utils.py").stat()
    os.utime(evil, ns=(status.st_mtime_ns, status.st_mtime_ns))
    cache = root / "__pycache__" / f"utils.{sys.implementation.cache_tag}.pyc"
    py_compile.compile(str(evil), str(cache), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    assert hubconf(register(root, os.urandom(20).hex())).who() == "r"


ENGINE_ONCE = """
import sys
sys.path.insert(0, sys.argv[1])
import hubcli
model = hubcli.load(sys.argv[2], "net", framework="engine", trust_repo=True)
import engine
import torch
import torch.nn.functional
assert torch is engine and sys.modules["torch"] is engine, torch
assert type(model) is engine.nn.Linear, type(model)
assert torch.nn.functional is engine.nn.functional
hubcli.load(sys.argv[2], "net")
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "first",
    [
        "import torch",
        "import torch.nn as nn",
        "from torch.nn import functional",
        "from importlib.util import find_spec; assert find_spec('torch') and find_spec('torch.nn')",
        "from importlib.metadata import version; assert '+engine' in version('torch')",
        "import engine.torch_alias; engine.torch_alias.install()",
    ],
)
def test_a_library_that_imports_torch_first_gets_the_one_engine(tmp_path, first):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "firstlib.py").write_text(first + "\n")
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "hubconf.py").write_text(
        "import firstlib\nimport torch\n\ndef net():\n    return torch.nn.Linear(2, 2)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", ENGINE_ONCE, str(tmp_path / "site"), str(tmp_path / "repo")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(isolation.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr


RESOURCES = """
import importlib.resources
import pkgutil
from importlib import resources
from importlib.resources import files

def data():
    return {
        importlib.resources.files("models").joinpath("weights.txt").read_text(),
        files(__name__.rpartition(".")[0] + ".models").joinpath("weights.txt").read_text(),
        (resources.files("models.tables") / "a.txt").read_text(),
        pkgutil.get_data("models", "weights.txt").decode(),
    }

def foreign():
    return files("json").joinpath("decoder.py").is_file(), pkgutil.get_data("json", "decoder.py") is not None
"""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_data_of_packages_is_found_by_their_names(two):
    """Also after the load, when code runs that somebody calls next week."""
    made = []
    for namespace, text in zip(two, ("one", "other")):
        write(namespace.root, hubconf=RESOURCES)
        (namespace.root / "models" / "weights.txt").write_text(text)
        (namespace.root / "models" / "tables").mkdir()
        (namespace.root / "models" / "tables" / "a.txt").write_text(text)
        made.append(hubconf(namespace))
    assert [one.data() for one in made] == [{"one"}, {"other"}]
    assert made[0].foreign() == (True, True)


def test_a_repository_asks_for_the_version_that_it_would_have_if_it_were_installed(tmp_path):
    root = make_repo(tmp_path / "r", "r")
    write(
        root,
        setup="from setuptools import setup\nsetup(name='Some_Package', version='1.2.3', package_dir={'': 'src'})\n",
        hubconf="from importlib.metadata import PackageNotFoundError, version\nimport below.part\n"
        "VERSION = version('some-package')\nNUMPY = version('numpy')\n"
        "try:\n    version('absent-package')\nexcept PackageNotFoundError:\n    ABSENT = True\n",
    )
    (root / "src" / "below").mkdir(parents=True)
    (root / "src" / "below" / "__init__.py").write_text("")
    (root / "src" / "below" / "part.py").write_text("import utils\nNAME = utils.NAME\n")
    namespace = register(root, os.urandom(20).hex())
    module = hubconf(namespace)
    assert module.VERSION == "1.2.3" and module.ABSENT and module.NUMPY[0].isdigit()
    assert module.below.part.__name__ == f"{namespace.prefix}.below.part" and module.below.part.NAME == "r"
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("some-package")


def test_what_is_installed_comes_before_a_folder_of_packages(tmp_path, monkeypatch):
    root = write(make_repo(tmp_path / "r", "r"), setup="", hubconf="import below\nNAME = below.NAME\n")
    (root / "setup.py").write_text("from setuptools import setup\nsetup(name='x')\n")
    (root / "src").mkdir()
    (root / "src" / "below.py").write_text("NAME = 'the repository'\n")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "below.py").write_text("NAME = 'installed'\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert hubconf(register(root, os.urandom(20).hex())).NAME == "installed"
    del sys.modules["below"]


FINDER = """
import sys
from importlib import abc, util
from pathlib import Path

class Recipes(abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.startswith("kitchen.recipes."):
            file = Path(__file__).parents[2] / "books" / (name.split(".")[-1] + ".py")
            return util.spec_from_file_location(name, file) if file.is_file() else None

sys.meta_path.append(Recipes())
"""


def test_a_finder_of_the_code_itself_is_asked_by_plain_names(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    for path, text in {
        "hubconf.py": "import importlib\nimport kitchen.recipes\ndef cook(name):\n"
        "    return importlib.import_module('kitchen.recipes.' + name)\n",
        "kitchen/__init__.py": "OVEN = 'hot'\n",
        "kitchen/recipes/__init__.py": FINDER,
        "books/soup.py": "from kitchen import OVEN\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    space = register(tmp_path, os.urandom(20).hex())
    with space.active():
        hubconf = space.load("hubconf")
        soup = hubconf.cook("soup")
    assert soup.OVEN == "hot"
    assert soup.__name__ == space.qualified("kitchen.recipes.soup")
    assert hubconf.cook("soup") is soup
    assert "kitchen" not in sys.modules
    with pytest.raises(ModuleNotFoundError):
        hubconf.cook("cake")
