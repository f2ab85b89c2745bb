"""Note [Families imported lazily]: they come at the first look for one of their names, whole, for every thread."""

import subprocess
import sys

import pytest

BEFORE = """
import sys, engine
late = lambda: "engine.ops.linalg.systems" in sys.modules
assert not late()
assert engine.ones(2, 2).matmul(engine.ones(2)).sum().item() == 4 and not late()
assert not hasattr(engine.ones(1), "__array_struct__") and not late()
"""


def run(text):
    done = subprocess.run([sys.executable, "-c", BEFORE + text], capture_output=True, text=True)
    assert not done.returncode, done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "assert engine.cholesky(engine.eye(2)).shape == (2, 2)",
        "assert engine.eye(2).cholesky().shape == (2, 2)",
        "assert engine.Tensor.cholesky(engine.eye(2)).shape == (2, 2)",
        "assert hasattr(engine.Tensor, 'imag')",
        "assert engine.dispatch.OPS['convolution']",
        "assert engine.dispatch.PUBLIC['cholesky']",
        "assert 'cholesky' in dir(engine)",
        "from engine import cholesky",
        "from engine import *\nassert cholesky(eye(2)).shape == (2, 2)",
        "class P(engine.Tensor): pass\nassert P.cholesky",
    ],
)
def test_a_name_brings_them(text):
    run(text + "\nassert late()")


def test_a_name_that_is_nowhere():
    run("""
for owner, message in ((engine.ones(1), "'Tensor' object has no attribute 'nothing'"),
                       (engine.Tensor, "type object 'Tensor' has no attribute 'nothing'")):
    for _ in range(2):
        try: owner.nothing
        except AttributeError as error: assert str(error) == message, error
        else: raise SystemExit("found")
try: engine.dispatch.OPS["nothing"]
except KeyError: pass
assert not hasattr(engine, "nothing") and not hasattr(engine.Tensor, "__getattr__")
""")


def test_threads_wait_until_all_are_there():
    run("""
import threading
names, failed = ["cholesky", "stft", "conv2d", "svd"] * 4, []
start = threading.Barrier(len(names))
def look(name):
    start.wait()
    try: getattr(engine, name), getattr(engine.Tensor, "svd")
    except Exception as error: failed.append((name, error))
threads = [threading.Thread(target=look, args=(n,)) for n in names]
for t in threads: t.start()
for t in threads: t.join()
assert not failed, failed
""")
