"""engine.utils._pytree."""

from collections import OrderedDict, deque, namedtuple

import pytest

from engine.tensor import Size
from engine.utils import _pytree as pytree

Point = namedtuple("Point", ["x", "y"])
TREE = {"a": [1, (2, 3)], "b": Point(4, OrderedDict(c=5)), "d": deque([6], 3), "e": None}


def test_round_trip():
    leaves, spec = pytree.tree_flatten(TREE)
    assert leaves == [1, 2, 3, 4, 5, 6, None]
    again = pytree.tree_unflatten(leaves, spec)
    assert again == TREE and type(again["b"]) is Point and again["d"].maxlen == 3
    assert spec.num_leaves == 7 and pytree.tree_structure(again) == spec
    assert pytree.tree_leaves(5) == [5] and pytree.tree_flatten(5)[1].is_leaf()


def test_map():
    assert pytree.tree_map(lambda a, b: a + b, [1, {"x": 2}], [10, {"x": 20}]) == [11, {"x": 22}]
    assert pytree.tree_map_only(int, lambda x: -x, [1, "a", (2.0, 3)]) == [-1, "a", (2.0, -3)]
    assert pytree.tree_map(len, [[1, 2], [3]], is_leaf=lambda x: x in ([1, 2], [3])) == [2, 1]
    assert pytree.tree_all(bool, [1, (2, 3)]) and pytree.tree_any(lambda x: x == 3, [1, (2, 3)])


def test_errors():
    _, spec = pytree.tree_flatten([1, 2])
    with pytest.raises(ValueError, match="`leaves` has length 1"):
        pytree.tree_unflatten([1], spec)
    with pytest.raises(TypeError, match="to be instance of TreeSpec"):
        pytree.tree_unflatten([1], None)
    with pytest.raises(ValueError, match="mismatch"):
        pytree.tree_map(max, [1, 2], [1])
    with pytest.raises(ValueError, match="already registered"):
        pytree.register_pytree_node(list, None, None)


def test_paths():
    Pair = namedtuple("Pair", "left right")
    tree = {"a": [1, (2,)], "b": Pair(3, OrderedDict(x=4))}
    found = {pytree.keystr(path): leaf for path, leaf in pytree.tree_leaves_with_path(tree)}
    assert found == {"['a'][0]": 1, "['a'][1][0]": 2, "['b'].left": 3, "['b'].right['x']": 4}
    (path, _), *_ = pytree.tree_flatten_with_path(tree)[0]
    value = tree
    for key in path:
        value = key.get(value)
    assert value == 1
    assert pytree.tree_map_with_path(lambda path, a, b: (len(path), a + b), [1, [2]], [10, [20]]) == [
        (1, 11),
        [(2, 22)],
    ]
    assert pytree.tree_is_leaf(3) and not pytree.tree_is_leaf([3])


def test_sizes_are_taken_apart():
    """As torch's: what maps a function over a tree would meet a Size as its own leaf again and again."""
    leaves, spec = pytree.tree_flatten({"shape": Size([2, 3])})
    assert leaves == [2, 3]
    assert type(pytree.tree_unflatten(leaves, spec)["shape"]) is Size
