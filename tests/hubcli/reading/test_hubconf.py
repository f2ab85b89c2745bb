"""Every style of hubconf.py that is found in the wild, and the hostile ones, read without running."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hubcli.errors import HubconfNotFoundError, NotFoundError, RepositoryCodeError
from hubcli.reading import hubconf
from hubcli.reading.hubconf import EntryPoint, HubConf


def conf(root: Path, text: str | bytes, **files: str) -> HubConf:
    """The HubConf of `text`, with `name.py` beside it for each of `files`."""
    (root / "hubconf.py").write_bytes(text if isinstance(text, bytes) else text.encode())
    for name, content in files.items():
        path = root / (name + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return hubconf.read(root)


def names(read: HubConf) -> list[str]:
    return [entry.name for entry in read.entrypoints]


def test_plain_functions_and_classes(tmp_path):
    read = conf(
        tmp_path,
        '"""Models."""\n'
        "dependencies = ['torch', 'numpy>=1.2']\n"
        "def net(pretrained: bool = False, *args, x=3, **kwargs) -> int:\n"
        '    """A net.\n\n    More of it.\n    """\n'
        "@torch.no_grad()\ndef decorated(a, /, b=2, *, c): pass\nclass Model:\n    'A model.'\n    def __init__(self, "
        "n=3): pass\nasync def later(): pass\ndef _private(): pass\n",
    )
    assert read.docstring == "Models."
    assert read.dependencies == ("torch", "numpy>=1.2")
    assert not read.dynamic
    assert names(read) == ["Model", "decorated", "later", "net"]
    assert read.entrypoint("net") == EntryPoint(
        "net",
        "A net.",
        "A net.\n\nMore of it.",
        "(pretrained: bool = False, *args, x=3, **kwargs) -> int",
        "def",
        False,
    )
    assert read.entrypoint("decorated").signature == "(a, /, b=2, *, c)"
    assert read.entrypoint("Model").signature == "(n=3)"
    assert read.entrypoint("Model").doc == "A model."


def test_all_of_a_hubconf_is_ignored(tmp_path):
    read = conf(tmp_path, "__all__ = ['nowhere']\ndef net(): pass\n")
    assert names(read) == ["net"]
    assert not read.dynamic


@pytest.mark.parametrize(
    ("value", "signature"),
    [
        ("lambda x, y=1: x", "(x, y=1)"),
        ("base", "(a, b=1, *args, c=2, **kwargs)"),
        ("partial(base, 7)", "(b=1, *args, c=2, **kwargs)"),
        ("functools.partial(base, b=5)", "(a, *, b=5, c=2, **kwargs)"),
        ("partial(partial(base, 1), 2)", "(*args, c=2, **kwargs)"),
        ("partial(plain, y=0)", "(x, *, y=0, z=2)"),
        ("partial(Model, 3)", "(depth=1)"),
        ("Model", "(width, depth=1)"),
        ("Model.build", "(depth)"),
        ("factory(3)", "(inner=1)"),
        ("wrap(base)", "(inner=1)"),
        ("functools.lru_cache(None)(base) if x else base", "(a, b=1, *args, c=2, **kwargs)"),
        ("torch.jit.ignore(base)", "(a, b=1, *args, c=2, **kwargs)"),
        ("instance", "(x)"),
    ],
)
def test_assignments_to_callables(tmp_path, value, signature):
    read = conf(
        tmp_path,
        "import functools, torch\nfrom functools import partial\n"
        "def base(a, b=1, *args, c=2, **kwargs):\n    'The base.'\n"
        "def plain(x, y=1, z=2): pass\n"
        "class Model:\n"
        "    def __init__(self, width, depth=1): pass\n"
        "    @classmethod\n    def build(cls, depth): pass\n"
        "    def forward(self, x): pass\n"
        "def factory(n):\n    def made(inner=1): pass\n    return made\n"
        "wrap = factory\n"
        f"instance = Model(3)\nentry = {value}\n",
    )
    assert read.entrypoint("entry").signature == signature
    assert read.entrypoint("entry").source == "assign"


@pytest.mark.parametrize(
    "value", ["3", "'text'", "[base]", "logging.getLogger(__name__)", "Path('x')", "os", "base + 1"]
)
def test_assignments_to_data(tmp_path, value):
    read = conf(tmp_path, f"import os, logging\ndef base(): pass\nentry = {value}\n")
    assert names(read) == ["base"]


def test_tuples_annotations_docs_and_del(tmp_path):
    read = conf(
        tmp_path,
        "def a(): pass\ndef b(): pass\nc, d = a, 3\ne: object = b\ne.__doc__ = 'Assigned.'\ndel b\n",
    )
    assert names(read) == ["a", "c", "e"]
    assert read.entrypoint("e").doc == "Assigned."


def test_imports_from_outside_are_external(tmp_path):
    read = conf(
        tmp_path,
        "from __future__ import annotations\nimport os, torch.nn as nn\nfrom collections import OrderedDict, "
        "abc\nfrom pathlib import Path as P\nfrom torch import nn as n2\nfrom torch.nn import functional as F, "
        "Linear\nfrom typing import TYPE_CHECKING\nfrom nowhere.to.be.found import net\n",
    )
    assert names(read) == ["Linear", "OrderedDict", "P", "net"]
    assert {entry.external for entry in read.entrypoints} == {True}
    assert read.entrypoint("net") == EntryPoint("net", "", None, None, "import", True)


def test_imports_inside_the_repository_are_followed(tmp_path):
    read = conf(
        tmp_path,
        "from models import resnet18, build as _build, res as module, CONSTANT\nfrom models.res import resnet18 as "
        "aliased\nfrom lib.deep.net import deep\nimport models.res\nattribute = models.res.resnet18\n",
        **{"models/__init__": "from .res import *\nfrom . import res\nbuild = 1\nCONSTANT = 3\n"},
        **{"models/res": "from lib.deep import net\ndef resnet18(depth=18):\n    '''Eighteen.'''\n"},
        **{"lib/deep/net": "def deep():\n    'Deep.'\n"},
    )
    assert names(read) == ["aliased", "attribute", "deep", "resnet18"]
    for name in ("aliased", "attribute", "resnet18"):
        entry = read.entrypoint(name)
        assert (entry.doc, entry.signature, entry.external) == ("Eighteen.", "(depth=18)", False)
    assert read.entrypoint("deep").doc == "Deep."


def test_star_imports_respect_all_and_underscores(tmp_path):
    read = conf(
        tmp_path,
        "from listed import *\nfrom unlisted import *\nfrom pack import *\n",
        listed="__all__ = ['shown', 'sub'] + ['_odd']\ndef shown(): 's'\ndef hidden(): 'h'\n"
        "def _odd(): 'o'\ndef sub(): 'x'\n",
        unlisted="import os\nfrom pathlib import Path\ndef free(): 'f'\ndef _secret(): 'x'\nN = 3\n",
        **{"pack/__init__": "from .inner import *\nfrom .inner import __all__\n__all__ += ['more']\ndef more(): 'm'\n"},
        **{"pack/inner": "__all__ = ('one',)\n__all__ += ('two',)\ndef one(): '1'\ndef two(): '2'\ndef three(): '3'\n"},
    )
    assert names(read) == ["Path", "free", "more", "one", "shown", "sub", "two"]
    assert read.entrypoint("shown").source == "star"


def test_cycles_end(tmp_path):
    read = conf(
        tmp_path,
        "from a import *\nfrom a import x, y\n",
        a="from b import *\nfrom b import y\ndef x(): 'X'\n",
        b="from a import *\nfrom a import y\n",
    )
    assert "x" in names(read)
    assert read.entrypoint("x").doc == "X"


def test_conditional_statements(tmp_path):
    read = conf(
        tmp_path,
        "try:\n    from nowhere import fast\nexcept ImportError:\n    fast = None\nif 1 > 0:\n    def yes(): "
        "pass\nelif x:\n    def other(): pass\nelse:\n    def no(): pass\nwith open('x') as f:\n    def inside(): "
        "pass\nfor i in range(3):\n    def looped(): pass\nif __name__ == '__main__':\n    def main(): pass\nif "
        "TYPE_CHECKING:\n    from nowhere import Type\nmatch x:\n    case 1:\n        def matched(): pass\n",
    )
    assert names(read) == ["fast", "inside", "looped", "matched", "no", "other", "yes"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import x\ndependencies = ['a']\n", ("a",)),
        ("if x:\n    dependencies = ['a']\nelse:\n    dependencies = ['b', 'a']\n", ("a", "b")),
        ("dependencies = ('a',) + ('b',)\n", ("a", "b")),
        (
            "dependencies = ['a']\ndependencies += ['b']\ndependencies.append('c')\n",
            ("a", "b", "c"),
        ),
        ("dependencies: list = ['a']\ndependencies.extend(['b'])\n", ("a", "b")),
        ("base = ['a']\ndependencies = [*base, 'b']\n", ("a", "b")),
        ("dependencies = 'a'\n", ("a",)),
        ("def f(): pass\n", ()),
        ("from settings import dependencies\n", ("from_module",)),
    ],
)
def test_dependencies(tmp_path, text, found):
    read = conf(tmp_path, text, settings="dependencies = ['from_module']\n")
    assert read.dependencies == found
    assert not read.dynamic


@pytest.mark.parametrize(
    "text",
    [
        "import os\nglobals().update(os.environ)",
        "import os\nglobals()[os.environ['x']] = 1",
        "for n in open('names'):\n    locals()[n] = n",
        "g = globals()\ndef f(n):\n    g[n] = 1\nf('a')",
        "g = globals()\nprint.__call__(g)",
        "exec('def a(): pass')",
        "def f():\n    globals()['a'] = 1\nf()",
        "import sys\ndef f(n):\n    setattr(sys.modules[__name__], n, 1)\nf('a')",
        "import sys\nme = sys.modules[__name__]\ndef f(n):\n    setattr(me, n, 1)\nf('a')",
        "for n in ['a', 'b']:\n    if open(n):\n        globals()[n] = 1",
        "NAMES = []\ndef f(): NAMES.append('a')\nfor n in NAMES:\n    globals()[n] = 1",
        "from torchvision.models import *",
        "from dynamic import *",
        "dependencies = open('requirements.txt').read().split()",
        "import thirdparty\nnet = thirdparty.build('a')",
        "from dynamic import THINGS\nnet = THINGS['a']",
    ],
)
def test_dynamic(tmp_path, text):
    assert conf(tmp_path, text + "\n", dynamic="import os\nglobals()[os.sep] = print\nTHINGS = {}\n").dynamic


@pytest.mark.parametrize("text", ["def f():\n    exec('x = 1')\n", "class A:\n    x = vars\n", "y = globals\n"])
def test_not_dynamic(tmp_path, text):
    assert not conf(tmp_path, text).dynamic


def test_folders_put_on_sys_path_are_searched(tmp_path):
    read = conf(
        tmp_path,
        "import os, sys\nfrom pathlib import Path\nSRC = os.path.join(os.path.dirname(__file__), "
        "'src')\nsys.path.append(SRC)\nsys.path.insert(0, str(Path(__file__).parent / 'lib' / 'py'))\nfrom inner "
        "import net\nfrom other import net2\n",
        **{"src/inner": "def net():\n    'Inner.'\n"},
        **{"lib/py/other": "def net2():\n    'Other.'\n"},
    )
    assert read.entrypoint("net").doc == "Inner."
    assert read.entrypoint("net2").doc == "Other."


def test_nothing_is_executed(tmp_path):
    conf(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit\n")
    assert not (tmp_path / "ran").exists()


def test_a_missing_entrypoint_names_its_neighbours(tmp_path):
    read = conf(tmp_path, "def resnet18(): pass\ndef resnet34(): pass\ndef vgg(): pass\n")
    with pytest.raises(NotFoundError, match="Cannot find callable resnet81 in hubconf") as caught:
        read.entrypoint("resnet81")
    assert caught.value.hint == "did you mean resnet18, resnet34"
    with pytest.raises(NotFoundError) as caught:
        conf(tmp_path, "def net(): pass\nexec('x = net')\n").entrypoint("zzz")
    assert "--exec" in str(caught.value.hint)


def test_no_hubconf(tmp_path):
    with pytest.raises(HubconfNotFoundError, match=r"no hubconf\.py") as caught:
        hubconf.read(tmp_path)
    assert isinstance(caught.value, FileNotFoundError)
    assert caught.value.status == 3


@pytest.mark.parametrize(
    ("body", "line", "what"),
    [
        (b"x = 1\ndef f(:\n", 2, "SyntaxError"),
        (b"x = 1\n  y = 2\n", 2, "IndentationError"),
        (b"a\nb\n\0\n", 3, "null byte"),
        (b"x = '\xff\xfe'\n", 1, "SyntaxError"),
        (b"# -*- coding: nonsense -*-\n", 1, "unknown encoding"),
        (b"print 'python 2'\n", 1, "SyntaxError"),
        (b"x = 1\ny = " + b"(" * 5000 + b"\n", 2, "nested"),
        (b"x = 1\ny = " + b"-" * 200_000 + b"1\n", 2, "nested too deeply"),
        (b"x = 1\ny = a" + b".b" * 100_000 + b"\n", 2, "nested too deeply"),
        (b"if a:\n  pass\n" + b"elif b:\n  pass\n" * 20_000, None, "nested too deeply"),
        (b"x = " + b"lambda: " * 4000 + b"1\n", 1, "nested"),
        (b"#" * (3 << 20), 1, "bytes"),
    ],
)
def test_hostile_files(tmp_path, body, line, what):
    started = time.monotonic()
    with pytest.raises(RepositoryCodeError, match=what) as caught:
        conf(tmp_path, body)
    assert caught.value.status == 70
    assert str(caught.value).startswith(f"hubconf.py:{line if line is not None else ''}")
    assert time.monotonic() - started < 60


@pytest.mark.parametrize(
    "body",
    [
        "def f(" + ", ".join(f"a{i}=1" for i in range(9000)) + "): 0\n" + "".join(f"p{i} = f\n" for i in range(9000)),
        "def f(x=" + "[" + "1," * 100_000 + "]): 0\n" + "".join(f"p{i}=f\n" for i in range(9000)),
        "class A:\n"
        + "".join(f" def m{i}(self): 0\n" for i in range(9000))
        + "".join(f"p{i} = A.m{i}\n" for i in range(9000)),
        "def g():\n" + " 0\n" * 40_000 + " def h(): 0\n return h\n" + "x = g()\n" * 30_000,
        "x0 = ['a', 'a']\n" + "".join(f"x{i + 1} = [*x{i}, *x{i}]\n" for i in range(60)) + "dependencies = [*x60]\n",
        "from star import *\n" * 20_000,
        "".join(f"dependencies = ['d{i}']\n" if i % 2 else "if x:\n  dependencies = ['a']\n" for i in range(9000)),
        "x = partial(partial, a=1)\n" + "x = partial(x, a=1)\n" * 20_000,
    ],
)
def test_much_work_for_few_bytes(tmp_path, body):
    started = time.monotonic()
    try:
        conf(tmp_path, body, star="".join(f"def f{i}(): 0\n" for i in range(9000)))
    except RepositoryCodeError as error:
        assert "too much code" in str(error)
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("default", ["-" * 500 + "1", "[" + "1, " * 500 + "]"])
def test_long_defaults_are_not_shown(tmp_path, default):
    assert conf(tmp_path, f"def f(x={default}): 0\n").entrypoint("f").signature == "(x=...)"


def test_pipes_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "hubconf.py")
    with pytest.raises(RepositoryCodeError, match="not a regular file"):
        hubconf.read(tmp_path)


def test_endless_star_imports_end(tmp_path):
    files = {f"m{i}": f"from m{i + 1} import *\n" for i in range(450)}
    with pytest.raises(RepositoryCodeError, match=r"too much code|nested too deeply"):
        conf(tmp_path, "from m0 import *\n", **files)


def test_a_broken_module_spoils_its_own_names_only(tmp_path):
    read = conf(tmp_path, "from broken import net\ndef mine(): 'M'\n", broken="def f(:\n")
    assert names(read) == ["mine", "net"]
    with pytest.raises(RepositoryCodeError, match=r"^broken.py:1: SyntaxError"):
        conf(tmp_path, "from broken import *\n")


def test_byte_order_mark_and_encodings(tmp_path):
    assert names(conf(tmp_path, b"\xef\xbb\xbfdef net(): pass\n")) == ["net"]
    latin = "# -*- coding: latin-1 -*-\ndef net():\n    'caf\xe9'\n".encode("latin-1")
    assert conf(tmp_path, latin).entrypoint("net").doc == "caf\xe9"
