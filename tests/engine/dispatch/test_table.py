"""Members of Tensor from families that are imported at their first use, each in a process where none is."""

from __future__ import annotations

import subprocess
import sys

HEAD = "import sys, engine\nfrom engine import Tensor\nimported = lambda: 'engine.ops.lazy' in sys.modules\n"


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", HEAD + code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_attribute_goes_through_python() -> None:
    """With `__getattr__` on a class the interpreter caches no attribute of its objects."""
    run(
        "for owner in (Tensor, type(Tensor)):\n"
        "    assert not any('__getattr__' in vars(kind) for kind in owner.__mro__)\n"
        "x = engine.ones(2) + engine.zeros(2)\n"
        "assert not imported()\n"
    )


def test_methods_are_imported_at_first_use() -> None:
    run(
        "assert not imported() and engine.ones(2).relu_().tolist() == [1, 1] and imported()\n"
        "from engine.dispatch import table\n"
        "assert not [name for name, member in vars(Tensor).items() if isinstance(member, table._LazyMethod)]\n"
        "assert Tensor.relu is engine.relu and Tensor.svd.__name__ == 'svd'\n"
    )


def test_the_class_has_them_too() -> None:
    run("assert Tensor.tanh is engine.tanh and isinstance(Tensor.real, property)\n")


def test_a_subclass_calls_what_it_replaces() -> None:
    run(
        "class Sub(Tensor):\n"
        "    def relu(self):\n"
        "        return super().relu() + 1\n"
        "    @classmethod\n"
        "    def of_class(cls):\n"
        "        return super().tanh\n"
        "assert not imported() and engine.tensor([-2.0, 3.0]).as_subclass(Sub).relu().tolist() == [1, 4]\n"
        "assert Sub.of_class() is engine.tanh\n"
    )


def test_a_property_is_written_at_first_use() -> None:
    run(
        "x = engine.tensor([1 + 2j, 3 + 4j])\n"
        "x.real = engine.zeros(2)\n"
        "x.imag[0] = 5\n"
        "assert x.tolist() == [5j, 4j] and 'real' not in vars(x)\n"
    )


def test_a_property_cannot_be_deleted() -> None:
    run(
        "try:\n    del engine.ones(2).real\n"
        "except (AttributeError, RuntimeError) as error:\n    first = str(error)\n"
        "assert imported()\n"
        "try:\n    del engine.ones(2).real\n"
        "except (AttributeError, RuntimeError) as error:\n    assert str(error) == first\n"
    )


def test_unknown_names() -> None:
    run(
        "x = engine.ones(2)\n"
        "assert not hasattr(x, 'nonsense') and not hasattr(Tensor, 'nonsense') and not imported()\n"
        "assert hasattr(x, 'softmax') and imported()\n"
        "assert not hasattr(x, 'nonsense') and getattr(Tensor, 'nonsense', 1) == 1\n"
        "for owner, message in (\n"
        "    (x, \"'Tensor' object has no attribute 'nonsense'\"),\n"
        "    (engine.nn.Parameter(x), \"'Parameter' object has no attribute 'nonsense'\"),\n"
        "    (Tensor, \"type object 'Tensor' has no attribute 'nonsense'\"),\n"
        "):\n"
        "    try:\n        owner.nonsense\n        raise SystemExit('found')\n"
        "    except AttributeError as error:\n"
        "        assert (str(error), error.name, error.obj) == (message, 'nonsense', owner), error\n"
    )


def test_a_name_that_no_family_defines() -> None:
    """A list that is not current gives torch's message, not an endless search."""
    run(
        "from engine.dispatch import register_lazy_members\n"
        "register_lazy_members(['gone'], [])\n"
        "x = engine.ones(2)\n"
        "assert not hasattr(x, 'gone') and not hasattr(Tensor, 'gone')\n"
        "try:\n    x.gone\n"
        "except AttributeError as error:\n    assert str(error) == \"'Tensor' object has no attribute 'gone'\"\n"
    )
