"""The folders that a repository puts on `sys.path`, in all the ways that people write, read and never run."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubcli.reading import dependencies, hubconf, imports

HEAD = "import glob, inspect, os, os.path as osp, pathlib, site, sys\nfrom os.path import abspath, dirname, join\n"
HEAD += "from pathlib import Path\nhere = os.path.dirname(os.path.abspath(__file__))\n"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def folders(root: Path, files: dict[str, str]) -> list[str]:
    return [one.relative_to(root).as_posix() for one in imports.survey(write(root, files)).folders]


@pytest.mark.parametrize(
    "code",
    [
        "sys.path.append('src/code')",
        "sys.path.append(os.path.join(os.path.dirname(__file__), 'src/code'))",
        "sys.path.insert(0, osp.join(osp.dirname(osp.realpath(__file__)), 'src', 'code'))",
        "sys.path.insert(0, join(abspath(dirname(__file__)), 'src', 'code'))",
        "sys.path.extend([here, here + '/src/code/'])",
        "sys.path += [f'{here}/src/code']",
        "sys.path = [os.path.join(here, 'src/code')] + sys.path",
        "sys.path = [os.path.join(here, 'src/code'), *sys.path]",
        "sys.path[0:0] = [here + '/src/code/']",
        "sys.path[:] = sys.path + ['%s/src/code' % here]",
        "sys.path[1:1] = ['{}/src/code'.format(here)]",
        "sys.path.append(os.path.join(os.path.split(__file__)[0], 'src', 'code'))",
        "sys.path.append(__file__.rsplit('/', 1)[0] + '/src/code')",
        "sys.path.append(__file__.replace('hubconf.py', 'src/code'))",
        "sys.path.append(os.path.join(sys.path[0], 'src/code'))",
        "site.addsitedir(os.path.join(here, 'src/code'))",
        "site.addsitedir(here + '/site')",
        "sys.path.append(str(Path(__file__).parent / 'src' / 'code'))",
        "sys.path.append(str(Path(__file__).resolve().parents[0].joinpath('src', 'code')))",
        "sys.path.append((pathlib.Path(__file__).absolute().parent / 'src/code').as_posix())",
        "sys.path.append(str(Path(os.path.dirname(__file__), 'src/code')))",
        "sys.path.append(os.path.normpath(os.path.join(here, 'other', os.pardir, 'src/code')))",
        "sys.path.append(os.path.join(inspect.getfile(inspect.currentframe()), '..', 'src/code'))",
        "sys.path.append(os.environ.get('ROOT', here) + '/src/code')",
        "for name in ('src/code', 'other'):\n    sys.path.append(os.path.join(here, name))",
        "for one in [os.path.join(here, x) for x in ['src/code']]:\n    sys.path.insert(0, one)",
        "for i, one in enumerate(['src/code']):\n    sys.path.insert(i, os.path.join(here, one))",
        "for name in os.listdir(os.path.join(here, 'src')):\n    sys.path.append(os.path.join(here, 'src', name))",
        "for one in glob.glob(os.path.join(here, 'src', '*')):\n    sys.path.append(one)",
        "for one in Path(here).rglob('*'):\n    sys.path.append(str(one))",
        "for at, inner, files in os.walk(here):\n    sys.path.append(at)",
        "[sys.path.append(os.path.join(here, x)) for x in ('other', 'src/code')]",
        "list(map(sys.path.append, [here + '/src/code']))",
        "def add(path):\n    if path not in sys.path:\n        sys.path.insert(0, path)\nadd(join(here, 'src/code'))",
        "def add(*parts):\n    sys.path.insert(0, osp.join(here, *parts))\nadd('src', 'code')",
        "def add(*paths):\n    for one in paths:\n        sys.path.append(one)\nadd(here, here + '/src/code')",
        "def place(name='src'):\n    return os.path.join(here, name, 'code')\nsys.path.append(place())",
        "place = lambda *parts: os.path.join(here, *parts)\nsys.path.append(place('src', 'code'))",
        "def net():\n    root = os.path.dirname(__file__)\n    root = os.path.join(root, 'src')\n"
        "    sys.path.append(os.path.join(root, 'code'))\n    import ownpart",
        "from sys import path\npath.append(here + '/src/code')",
        "import sys as system\nsystem.path.append(here + '/src/code')",
        "paths = sys.path\npaths.append(here + '/src/code')",
        "try:\n    import ownpart\nexcept ImportError:\n    sys.path.append(here + '/src/code')",
        "if os.path.isdir(here + '/src/code'):\n    sys.path.append(here + '/src/code')",
        "import paths",
        "from paths import ROOT\nsys.path.append(os.path.join(ROOT, 'src', 'code'))",
        "import paths\nsys.path.append(os.path.join(paths.ROOT, 'src', 'code'))",
        "import other.where as where\nwhere.add_path('code')",
        "from other import where\nwhere.add_path('code')",
        "import other\nsys.path.append(os.path.join(os.path.dirname(other.__file__), '..', 'src', 'code'))",
        "from other.where import HERE\nsys.path.append(str(HERE.parent / 'src' / 'code'))",
    ],
)
def test_ways_to_put_a_folder_on_the_search_path(tmp_path: Path, code: str) -> None:
    files = {
        "hubconf.py": f"dependencies = ['torch', 'ownpart']\n{HEAD}{code}\nfrom ownpart import net\n",
        "src/code/ownpart/__init__.py": "import beyond\ndef net():\n    '''Inside.'''\n",
        "paths.py": "import os, sys\nROOT = os.path.dirname(__file__)\n"
        "sys.path.append(os.path.join(ROOT, 'src/code'))\n",
        "other/__init__.py": "",
        "other/where.py": "import os, sys\nfrom pathlib import Path\nHERE = Path(__file__).parent\n"
        "def add_path(name):\n    sys.path.append(os.path.join(os.path.dirname(__file__), '..', 'src', name))\n",
        "site/here.pth": "# a comment\nimport os\n../src/code\n",
    }
    assert "src/code" in folders(tmp_path, files)
    conf = hubconf.read(tmp_path)
    report = dependencies.check(conf.dependencies, root=tmp_path, survey=imports.survey(tmp_path))
    assert [(one.name, one.provided_by) for one in report.dependencies] == [
        ("torch", "engine"),
        ("ownpart", "repository"),
        ("beyond", None),
    ]
    assert [one.summary for one in conf.entrypoints if one.name == "net"] == ["Inside."]


@pytest.mark.parametrize(
    "code",
    [
        "sys.path.append(os.path.join(here, '..'))",
        "sys.path.append('/usr')",
        "sys.path.append(os.path.join(here, 'link'))",
        "sys.path.append(os.path.join(here, 'a\\0b'))",
        "sys.path.append(os.path.join(here, 'hubconf.py'))",
        "sys.path.append(os.path.join(here, 'absent'))",
        "sys.path.append(3)",
        "sys.path.append(here[0] * 10 ** 9)",
        "if __name__ == '__main__':\n    sys.path.append(os.path.join(here, 'inner'))",
        "other = []\nother.append(os.path.join(here, 'inner'))",
    ],
)
def test_what_is_no_folder_of_the_repository(tmp_path: Path, code: str) -> None:
    (tmp_path / "beside").mkdir()
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (root / "link").symlink_to(tmp_path / "beside")
    assert folders(root, {"hubconf.py": f"{HEAD}{code}\n"}) == []


@pytest.mark.parametrize(
    "code",
    [
        "sys.path.append(os.environ['WHERE'])",
        "sys.path.append(input())",
        "from elsewhere import folder\nsys.path.append(folder())",
        "sys.path.append(os.path.join(here, 'lib.zip'))",
        "sys.meta_path.insert(0, Finder())",
    ],
)
def test_what_only_running_tells_is_said_to_be_unclear(tmp_path: Path, code: str) -> None:
    write(tmp_path, {"hubconf.py": f"{HEAD}{code}\nimport ownpart\n", "lib.zip": "", "deep/down/ownpart.py": ""})
    assert imports.survey(tmp_path).unclear
    report = dependencies.check([], root=tmp_path, survey=imports.survey(tmp_path))
    assert "ownpart" not in report.missing


def test_a_function_that_nobody_calls_with_a_known_folder(tmp_path: Path) -> None:
    write(tmp_path, {"hubconf.py": f"{HEAD}def net(folder):\n    sys.path.append(folder)\n"})
    assert imports.survey(tmp_path).unclear


def test_a_module_that_the_code_makes_itself(tmp_path: Path) -> None:
    code = "import types, sys\nsys.modules['ownpart'] = types.ModuleType('ownpart')\nimport ownpart\n"
    write(tmp_path, {"hubconf.py": code})
    assert imports.survey(tmp_path).provided == {"ownpart"}
    assert dependencies.check([], root=tmp_path, survey=imports.survey(tmp_path)).missing == ()


def test_endless_code_ends(tmp_path: Path) -> None:
    many = "".join(f"p = os.path.join(p, 'x{i}') if p else p + p\n" for i in range(200))
    loops = "def f(x):\n    return g(x) + g(x)\ndef g(x):\n    return f(x) + f(x)\n"
    write(tmp_path, {"hubconf.py": f"{HEAD}p = here\n{many}{loops}sys.path.append(p)\nsys.path.append(f(here))\n"})
    assert imports.survey(tmp_path).folders == ()
    hubconf.read(tmp_path)
