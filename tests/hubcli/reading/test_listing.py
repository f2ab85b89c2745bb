"""The static list against torch.hub's rule, which is what the module has when it has run: public and callable."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubcli.base.spec import RepoSpec
from hubcli.cache.cache import Cache
from hubcli.reading import hubconf
from hubcli.running import invoke

NETS = """
from functools import partial
class Net:
    def __init__(self, depth=1): self.depth = depth
class Called(Net):
    def __call__(self, x): return x
class Child(Called): pass
def resnet(depth=18, pretrained=False): 'A residual net.'; return Net(depth)
def decorator(function): return function
def options(n=1):
    def decorate(function):
        return function
    return decorate
def entry(name):
    def made(**kwargs):
        'An entry.'
    made.__name__ = name
    return made
class Point:
    @staticmethod
    def create(name):
        ep = Point(name)
        ep.__doc__ = name
        return ep
    def __init__(self, name): self.name = name
    def __call__(self, pretrained=False): return Net()
make = lambda n: partial(resnet, depth=n)
def number(n): return n * 2
NAMES = ["a18", "b34"]
TABLE = {"a18": 18, "b34": 34}
MODELS = {"small": resnet, "large": Called()}
"""

# Each is found exactly without running anything.
EXACT = {
    "lambda": "from nets import make as _make\nnet = _make(18)",
    "imported results": "import nets as _n\nnet = _n.make(1)\nother = _n.entry('x')\nvalue = _n.number(3)",
    "static method that makes objects": "from nets import Point as _P\nnet = _P.create('net')",
    "objects": "from nets import Net as _N, Called as _C, Child as _D\na = _N()\nb = _C()\nc = _D()",
    "decorators": "from nets import decorator as _d, options as _o\n@_d\ndef a(): pass\n@_o(2)\ndef b(): pass\n"
    "c = _o(3)(a)\nd = _d(b)",
    "partial": "from functools import partial as _p\nfrom nets import resnet as _r\na = _p(_r, 5)\n"
    "b = _p(a, pretrained=True)",
    "loop over literals": "from nets import make as _m\nfor _name in ['a', 'b']:\n"
    "    globals()['net_' + _name] = _m(1)",
    "loop over pairs": "from nets import make as _m\nfor _n, _d in [('a', 1), ('b', 2)]:\n"
    "    globals()[f'net{_d}_{_n}'] = _m(_d)",
    "loop variables stay": "from nets import resnet, Net\nfor f in (resnet, Net):\n    f.tag = 1\n"
    "for i in range(3):\n    pass",
    "nested loops, zip": "import sys as _s\nfrom nets import make as _m\n_me = _s.modules[__name__]\n"
    "for d in ['c10', 'c100']:\n    for n, k in zip(['r20', 'r32'], [3, 5]):\n"
    "        name = '%s_%s' % (d, n)\n        classes = 10 if d == 'c10' else 100\n        setattr(_me, name, _m(k))",
    "conditions in loops": "from nets import make as _m\nfor n in ('a', 'b', 'c'):\n    if n == 'b':\n"
    "        continue\n"
    "    globals()[n.upper()] = _m(1)",
    "names of another module": "from nets import NAMES as _N, make as _m\nfor n in _N:\n"
    "    globals()['net_' + n] = _m(1)",
    "items of a table": "from nets import TABLE as _T, make as _m\nfor n, d in _T.items():\n    globals()[n] = _m(d)",
    "update": "from nets import resnet as _r, make as _m\nglobals().update(a=_r, b=3)\n"
    "globals().update({n: _m(1) for n in ('c', 'd')})",
    "names of a module": "import loops as _l\nnames = filter(lambda n: n.startswith('net'), dir(_l))\n"
    "globals().update({n: getattr(_l, n) for n in names})",
    "public names of a module": "import loops as _l\nfor _n, _v in vars(_l).items():\n"
    "    if not _n.startswith('_'):\n"
    "        globals()[_n] = _v",
    "star through packages": "from pack import *",
    "star with computed all": "from computed import *",
    "alias of globals": "from nets import resnet as _r\n_g = globals()\n_g['a'] = _r\n_g['b'] = 1",
    "functions in loops": "for n in ['a', 'b']:\n    def made(x, n=n):\n        return n\n"
    "    globals()['net_' + n] = made",
    "classes": "import abc as _abc, enum as _enum\nclass A(_abc.ABC): pass\nclass B(_enum.Enum):\n    X = 1\nx = B.X",
    "conditional": "try:\n    from math import sqrt as root\nexcept ImportError:\n    root = None\nif True:\n"
    "    def net(): pass",
    "modules": "import os.path as p, xml.dom as d\nimport logging\nlogger = logging.getLogger('x')",
    "iterators": "a = filter(None, [1])\nb = map(str, [1])\nc = (x for x in [1])\nd = zip([1], [2])\n"
    "e = open(__file__)\ne.close()",
    "constants": "from math import pi, sqrt\nfrom os import sep, environ\nfrom sys import path\n"
    "from string import digits",
    "typing": "from typing import Optional, List, Any, TYPE_CHECKING, Callable\nShape = List[int]\n"
    "Make = Callable[[], int]",
    "types": "from collections import namedtuple, OrderedDict\nPoint = namedtuple('Point', 'x y')\np = Point(1, 2)\n"
    "Made = type('Made', (), {})",
    "element of a dict": "from nets import MODELS as _M\nsmall = _M['small']\nlarge = _M['large']",
    "getattr": "import nets as _n\na = getattr(_n, 'resnet')\nb = getattr(_n, 'NAMES')",
    "import_module": "from importlib import import_module as _i\nm = _i('nets')\nnet = m.resnet",
    "cast and copy": "from copy import copy as _c\nfrom nets import resnet as _r\nnet = _c(_r)",
    "wraps": "import functools as _f\nfrom nets import resnet as _r\n@_f.wraps(_r)\ndef net(*a): pass\n"
    "cached = _f.lru_cache(_r)",
    "engine": "import torch\nfrom torch import nn, Tensor, float32\nimport torch.nn.functional as F\n"
    "act = nn.ReLU()\nt = torch.ones(2)\nd = torch.device('cpu')\nclass M(nn.Module): pass\nm = M()\n"
    "seq = nn.Sequential(m)",
    "unpacking": "a, b = (lambda x: x), 3\nfor c, (d, e) in [(print, (1, len))]:\n    pass",
    "with": "with open(__file__) as f:\n    text = f.read()",
    "deleted": "from nets import make as _m\nfor n in ['a']:\n    globals()[n] = _m(1)\ndel n",
    "setattr": "import sys\nsetattr(sys.modules[__name__], 'net', lambda: 1)\n"
    "sys.modules[__name__].__dict__.update(other=len)",
}

# Only running it tells; the static list is a part of the whole, and says so.
OPEN = {
    "a dict that is filled elsewhere": "R = {}\ndef reg(f):\n    R[f.__name__] = f\n    return f\n@reg\n"
    "def a(): pass\n"
    "for n, f in R.items():\n    globals()['x_' + n] = f",
    "unknown results": "import json as _j\nfrom nets import number as _n\nnet = max([len, print], key=id)",
    "a function that fills": "def _f(n):\n    globals()[n] = lambda: 1\n_f('net')",
    "exec": "exec('def net(): pass')",
}


def write(root: Path, text: str) -> None:
    files = {
        "hubconf.py": text + "\n",
        "nets.py": NETS,
        "loops.py": "import os\nfrom nets import make\nfor name in ['net_a', 'net_b']:\n"
        "    globals()[name] = make(1)\nX = 3\n",
        "pack/__init__.py": "from .inner import *\nfrom . import inner\nfrom .deep.more import more\n",
        "pack/inner.py": "from nets import make as _m\nnet = _m(3)\ndef inner_net(): pass\nN = 3\n",
        "pack/deep/__init__.py": "",
        "pack/deep/more.py": "def more(): pass\n",
        "computed.py": "def net_a(): pass\ndef net_b(): pass\ndef other(): pass\n"
        "__all__ = [n for n in dir() if n.startswith('net_')]\n",
    }
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


def both(root: Path, text: str) -> tuple[hubconf.HubConf, set[str]]:
    write(root, text)
    checkout = Cache.current().checkout(RepoSpec.parse(str(root)))
    ran = invoke.listing(checkout, framework="engine")
    return hubconf.read(root), {entry.name for entry in ran.entrypoints}


@pytest.mark.parametrize("text", EXACT.values(), ids=EXACT.keys())
def test_exactly_what_torch_hub_lists(tmp_path: Path, text: str) -> None:
    read, truth = both(tmp_path, text)
    assert {entry.name for entry in read.entrypoints} == truth
    assert not read.dynamic


@pytest.mark.parametrize("text", OPEN.values(), ids=OPEN.keys())
def test_what_only_running_tells_is_called_dynamic(tmp_path: Path, text: str) -> None:
    read, truth = both(tmp_path, text)
    assert {entry.name for entry in read.entrypoints} <= truth
    assert read.dynamic


def test_what_is_shown_of_a_made_entry(tmp_path: Path) -> None:
    write(tmp_path, EXACT["static method that makes objects"] + "\nfrom nets import make as _m\nsmall = _m(18)")
    read = hubconf.read(tmp_path)
    assert read.entrypoint("net").signature == "(pretrained=False)"
    small = read.entrypoint("small")
    assert (small.signature, small.doc) == ("(*, depth=n, pretrained=False)", "A residual net.")


@pytest.mark.parametrize(
    "text",
    [
        "for a in range(10 ** 9):\n    globals()[str(a)] = len",
        "for a in 'x' * 10 ** 9:\n    globals()[a] = len",
        "X = 'a' * 4000 * 4000\nfor a in [X, X]:\n    globals()[a] = len",
        "for a in [1, 'a', None]:\n    globals()[a] = len",
        "globals().update([1, 2])",
        "globals().update(3)",
        "globals()[[]] = 1",
        "setattr(3)",
        "for a, b in [1]:\n    globals()[a] = b",
        "f = lambda n: f(n)\nnet = f(1)",
        "def f(): return g()\ndef g(): return f()\nnet = f()",
        "X = Y\nY = X\nnet = X['a']",
        "net = {}['a']",
        "net = 'abc'.join(3)",
        "A = [A for A in A]\nnet = A[0]",
        "import a\nnet = a.b.c.d()",
    ],
)
def test_hostile_code_ends(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)
    hubconf.read(tmp_path)
