"""Reading and writing parts of tensors by index, in every form that numpy and torch know."""

import numpy as np
import pytest

import engine

from .autograd._util import quiet

# index of arange(24).view(2, 3, 4) (or of what is named) -> shape, values
# fmt: off
GET = [
    (lambda x: x[0], (3, 4), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    (lambda x: x[-1], (3, 4), [12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]),
    (lambda x: x[1, 2], (4,), [20, 21, 22, 23]),
    (lambda x: x[1, -1, 3], (), [23]),
    (lambda x: x[1, 2, 3], (), [23]),
    (lambda x: x[:],
     (2, 3, 4), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
     21, 22, 23]),
    (lambda x: x[...],
     (2, 3, 4), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
     21, 22, 23]),
    (lambda x: x[()],
     (2, 3, 4), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
     21, 22, 23]),
    (lambda x: x[None],
     (1, 2, 3, 4), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
     20, 21, 22, 23]),
    (lambda x: x[None, 0], (1, 3, 4), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    (lambda x: x[0, None], (1, 3, 4), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    (lambda x: x[..., None],
     (2, 3, 4, 1), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19,
     20, 21, 22, 23]),
    (lambda x: x[:, None, 1], (2, 1, 4), [4, 5, 6, 7, 16, 17, 18, 19]),
    (lambda x: x[..., 0], (2, 3), [0, 4, 8, 12, 16, 20]),
    (lambda x: x[0, ...], (3, 4), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    (lambda x: x[0, ..., 1], (3,), [1, 5, 9]),
    (lambda x: x[..., 1, 2], (2,), [6, 18]),
    (lambda x: x[1:], (1, 3, 4), [12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]),
    (lambda x: x[:1], (1, 3, 4), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    (lambda x: x[0:1, 1:3], (1, 2, 4), [4, 5, 6, 7, 8, 9, 10, 11]),
    (lambda x: x[:, ::2], (2, 2, 4), [0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 20, 21, 22, 23]),
    (lambda x: x[:, 1::2, 1:4:2], (2, 1, 2), [5, 7, 17, 19]),
    (lambda x: x[:, -2:], (2, 2, 4), [4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 23]),
    (lambda x: x[:, :-1, -1], (2, 2), [3, 7, 15, 19]),
    (lambda x: x[:, 5:], (2, 0, 4), []),
    (lambda x: x[:, 2:1], (2, 0, 4), []),
    (lambda x: x[:, -100:100, 0], (2, 3), [0, 4, 8, 12, 16, 20]),
    (lambda x: x[0:2, 0, ::3], (2, 2), [0, 3, 12, 15]),
    (lambda x: x[0][1], (4,), [4, 5, 6, 7]),
    (lambda x: x[:, 1][1], (4,), [16, 17, 18, 19]),
    (lambda x: x[[0]], (1, 3, 4), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    (lambda x: x[[0, 1]],
     (2, 3, 4), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
     21, 22, 23]),
    (lambda x: x[[1, 0, 1]],
     (3, 3, 4), [12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 0, 1, 2, 3, 4, 5, 6, 7, 8,
     9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]),
    (lambda x: x[[-1, 0], :, 0], (2, 3), [12, 16, 20, 0, 4, 8]),
    (lambda x: x[[0, 1], [1, 2]], (2, 4), [4, 5, 6, 7, 20, 21, 22, 23]),
    (lambda x: x[[0, 1], [1, 2], [0, 3]], (2,), [4, 23]),
    (lambda x: x[[0, 1], 1], (2, 4), [4, 5, 6, 7, 16, 17, 18, 19]),
    (lambda x: x[:, [0, 2]],
     (2, 2, 4), [0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 20, 21, 22, 23]),
    (lambda x: x[:, [0, 2], 1], (2, 2), [1, 9, 13, 21]),
    (lambda x: x[:, [0, 2], [1, 3]], (2, 2), [1, 11, 13, 23]),
    (lambda x: x[..., [1, 3]], (2, 3, 2), [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23]),
    (lambda x: x[[0, 1], :, [1, 3]], (2, 3), [1, 5, 9, 15, 19, 23]),
    (lambda x: x[[0, 1], ..., [1, 3]], (2, 3), [1, 5, 9, 15, 19, 23]),
    (lambda x: x[0, :, [1, 3]], (3, 2), [1, 3, 5, 7, 9, 11]),
    (lambda x: x[[1], 1:, [1, 3]], (2, 2), [17, 21, 19, 23]),
    (lambda x: x[:, 1, [0, 0, 1]], (2, 3), [4, 4, 5, 16, 16, 17]),
    (lambda x: x[1, [0, 2]], (2, 4), [12, 13, 14, 15, 20, 21, 22, 23]),
    (lambda x: x[[[0, 1], [1, 0]], 0, 0], (2, 2), [0, 12, 12, 0]),
    (lambda x: x[engine.tensor([[0, 1], [1, 0]]), 0, 0], (2, 2), [0, 12, 12, 0]),
    (lambda x: x[engine.tensor([[0], [1]]), engine.tensor([0, 2]), 1], (2, 2), [1, 9, 13, 21]),
    (lambda x: x[engine.tensor([0, 1]), None, engine.tensor([1, 2])],
     (2, 1, 4), [4, 5, 6, 7, 20, 21, 22, 23]),
    (lambda x: x[None, [0, 1], 1, 1], (1, 2), [5, 17]),
    (lambda x: x[:, None, [0, 1], 0], (2, 1, 2), [0, 4, 12, 16]),
    (lambda x: x[engine.tensor(1)], (3, 4), [12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]),
    (lambda x: x[engine.tensor(1), engine.tensor(2)], (4,), [20, 21, 22, 23]),
    (lambda x: x[engine.tensor(-1), 0], (4,), [12, 13, 14, 15]),
    (lambda x: x[engine.tensor([1])], (1, 3, 4), [12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]),
    (lambda x: x[engine.tensor([0, 1], dtype=engine.int32), 0, 0], (2,), [0, 12]),
    (lambda x: x[engine.tensor([], dtype=engine.int64)], (0, 3, 4), []),
    (lambda x: x[[]], (0, 3, 4), []),
    (lambda x: x[:, []], (2, 0, 4), []),
    (lambda x: x[:, [], 0], (2, 0), []),
    (lambda x: x[np.array([1, 0]), 0, 0], (2,), [12, 0]),
    (lambda x: x[np.int64(1), 0, 0], (), [12]),
    (lambda x: x[np.array(1), 0, 0], (), [12]),
    (lambda x: x[np.array([True, False]), 0], (1, 4), [0, 1, 2, 3]),
    (lambda x: x[x > 20], (3,), [21, 22, 23]),
    (lambda x: x[x < 0], (0,), []),
    (lambda x: x[x % 5 == 0], (5,), [0, 5, 10, 15, 20]),
    (lambda x: x[engine.tensor([True, False])], (1, 3, 4), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    (lambda x: x[engine.tensor([False, False])], (0, 3, 4), []),
    (lambda x: x[engine.tensor([True, False]), 1], (1, 4), [4, 5, 6, 7]),
    (lambda x: x[:, engine.tensor([True, False, True])],
     (2, 2, 4), [0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 20, 21, 22, 23]),
    (lambda x: x[:, engine.tensor([True, False, True]), 0], (2, 2), [0, 8, 12, 20]),
    (lambda x: x[0, engine.tensor([True, False, True])], (2, 4), [0, 1, 2, 3, 8, 9, 10, 11]),
    (lambda x: x[..., engine.tensor([True, False, False, True])],
     (2, 3, 2), [0, 3, 4, 7, 8, 11, 12, 15, 16, 19, 20, 23]),
    (lambda x: x[engine.tensor([True, True]), engine.tensor([0, 2])],
     (2, 4), [0, 1, 2, 3, 20, 21, 22, 23]),
    (lambda x: x[engine.tensor([[True, False, True], [False, True, False]])],
     (3, 4), [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19]),
    (lambda x: x[engine.tensor([[True, False, True], [False, True, False]]), 1], (3,), [1, 9, 17]),
    (lambda x: x[engine.tensor([[True, False, True], [False, True, False]]), :2],
     (3, 2), [0, 1, 8, 9, 16, 17]),
    (lambda x: x[[True, False]], (1, 3, 4), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    (lambda x: x[[True, False], 0], (1, 4), [0, 1, 2, 3]),
    (lambda x: x[:, [True, False, True], 0], (2, 2), [0, 8, 12, 20]),
    (lambda x: x[True], (1, 2, 3, 4), None),
    (lambda x: x[False], (0, 2, 3, 4), None),
    (lambda x: x[True, 0, 0], (1, 4), [0, 1, 2, 3]),
    (lambda x: x[None, True, 0, 0], (1, 1, 4), [0, 1, 2, 3]),
    (lambda x: x[engine.tensor(True)], (1, 2, 3, 4), None),
    (lambda x: x[engine.tensor(False)], (0, 2, 3, 4), None),
    (lambda x: x[engine.tensor([1, 0], dtype=engine.uint8)], (1, 3, 4), None),
    (lambda x: x[engine.tensor([1, 1], dtype=engine.uint8), 0, 0], (2,), [0, 12]),
    (lambda x: x[:, engine.tensor([0, 1, 1], dtype=engine.uint8), 0], (2, 2), [4, 8, 16, 20]),
    (lambda x: x[(x > 20).to(engine.uint8)], (3,), [21, 22, 23]),
    (lambda x: x[0, engine.tensor([1, 0, 1], dtype=engine.uint8)],
     (2, 4), [0, 1, 2, 3, 8, 9, 10, 11]),
    (lambda x: x[slice(0, 1), slice(None), 2], (1, 3), [2, 6, 10]),
    (lambda x: x[(slice(None), 0)], (2, 4), [0, 1, 2, 3, 12, 13, 14, 15]),
    (lambda x: x[(0, 1)], (4,), [4, 5, 6, 7]),
    (lambda x: x[range(0, 2), 0, 0], (2,), [0, 12]),
    (lambda x: x[1].t()[2], (3,), [14, 18, 22]),
    (lambda x: x[0:2:1, 2:0:1], (2, 0, 4), None),
    (lambda x: x[1, 1:2], (1, 4), [16, 17, 18, 19]),
    (lambda x: x[1][[0, 2]][:, 1], (2,), [13, 21]),
    (lambda x: engine.tensor(5)[...], (), [5]),
    (lambda x: engine.tensor(5)[()], (), [5]),
    (lambda x: engine.tensor(5)[None], (1,), [5]),
    (lambda x: engine.tensor(5)[True], (1,), [5]),
    (lambda x: engine.tensor(5)[False], (0,), None),
    (lambda x: engine.tensor(5)[engine.tensor(True)], (1,), [5]),
    (lambda x: engine.tensor(5)[None, None], (1, 1), [5]),
    (lambda x: engine.arange(5)[engine.tensor([[4, 3], [2, 1]])], (2, 2), [4, 3, 2, 1]),
    (lambda x: engine.arange(5)[[4, 3, 3]], (3,), [4, 3, 3]),
    (lambda x: engine.arange(5)[-3:-1], (2,), [2, 3]),
    (lambda x: engine.arange(5)[engine.arange(5) > 1], (3,), [2, 3, 4]),
    (lambda x: engine.arange(6).view(2, 3)[engine.eye(2, 3).bool()], (2,), [0, 4]),
    (lambda x: engine.arange(6).view(2, 3)[[0, 1], [2, 0]], (2,), [2, 3]),
    (lambda x: engine.arange(6).view(2, 3)[engine.tensor([[1], [0]]), engine.tensor([0, 2])],
     (2, 2), [3, 5, 0, 2]),
]

# statement on arange(6).view(2, 3) -> its values after
SET = [
    ("x[0] = 9", [[9, 9, 9], [3, 4, 5]]),
    ("x[1, 2] = 9", [[0, 1, 2], [3, 4, 9]]),
    ("x[1, 2] = engine.tensor(9)", [[0, 1, 2], [3, 4, 9]]),
    ("x[-1, -1] = 9.7", [[0, 1, 2], [3, 4, 9]]),
    ("x[:, 0] = engine.tensor([8, 9])", [[8, 1, 2], [9, 4, 5]]),
    ("x[:] = 1", [[1, 1, 1], [1, 1, 1]]),
    ("x[...] = engine.tensor([1, 2, 3])", [[1, 2, 3], [1, 2, 3]]),
    ("x[0] = engine.tensor([7, 8, 9])", [[7, 8, 9], [3, 4, 5]]),
    ("x[0] = engine.tensor([[7, 8, 9]])", [[7, 8, 9], [3, 4, 5]]),
    ("x[None, 0] = engine.tensor([7, 8, 9])", [[7, 8, 9], [3, 4, 5]]),
    ("x[:, 1:] = engine.tensor([[5], [6]])", [[0, 5, 5], [3, 6, 6]]),
    ("x[:, ::2] = 0", [[0, 1, 0], [0, 4, 0]]),
    ("x[0, 1:] = engine.tensor(4.9)", [[0, 4, 4], [3, 4, 5]]),
    ("x[[0]] = 5", [[5, 5, 5], [3, 4, 5]]),
    ("x[[0, 1]] = engine.tensor([1, 2, 3])", [[1, 2, 3], [1, 2, 3]]),
    ("x[[1, 0]] = engine.tensor([[1, 2, 3], [4, 5, 6]])", [[4, 5, 6], [1, 2, 3]]),
    ("x[[0, 1], [2, 0]] = engine.tensor([50, 60])", [[0, 1, 50], [60, 4, 5]]),
    ("x[[0, 1], [2, 0]] = 70", [[0, 1, 70], [70, 4, 5]]),
    ("x[:, [0, 2]] = engine.tensor([[1, 2], [3, 4]])", [[1, 1, 2], [3, 4, 4]]),
    ("x[:, [0, 2]] = engine.tensor([[1], [3]])", [[1, 1, 1], [3, 4, 3]]),
    ("x[..., [1]] = -1", [[0, -1, 2], [3, -1, 5]]),
    ("x[1, [0, 2]] = engine.tensor([4, 5])", [[0, 1, 2], [4, 4, 5]]),
    ("x[[True, False]] = 3", [[3, 3, 3], [3, 4, 5]]),
    ("x[x > 2] = 0", [[0, 1, 2], [0, 0, 0]]),
    ("x[x > 2] = engine.tensor([7, 8, 9])", [[0, 1, 2], [7, 8, 9]]),
    ("x[x < 0] = 5", [[0, 1, 2], [3, 4, 5]]),
    ("x[engine.tensor([True, False])] = engine.tensor([5, 6, 7])", [[5, 6, 7], [3, 4, 5]]),
    ("x[:, engine.tensor([True, False, True])] = engine.tensor([[1, 2], [3, 4]])",
     [[1, 1, 2], [3, 4, 4]]),
    ("x[engine.tensor([[0, 1], [1, 0]]), 0] = 8", [[8, 1, 2], [8, 4, 5]]),
    ("x[engine.tensor([0, 1]), engine.tensor([0, 0])] = engine.tensor([8, 9])",
     [[8, 1, 2], [9, 4, 5]]),
    ("x[np.array([0]), 1] = 4", [[0, 4, 2], [3, 4, 5]]),
    ("x[engine.tensor(1), 0] = 4", [[0, 1, 2], [4, 4, 5]]),
    ("x[0, 0] = True", [[1, 1, 2], [3, 4, 5]]),
    ("x[0] = np.int64(3)", [[3, 3, 3], [3, 4, 5]]),
    ("x[()] = 2", [[2, 2, 2], [2, 2, 2]]),
    ("x[True] = 6", [[6, 6, 6], [6, 6, 6]]),
    ("x[False] = 6", [[0, 1, 2], [3, 4, 5]]),
    ("x[0] += 1", [[1, 2, 3], [3, 4, 5]]),
    ("x[[0, 0]] += 1", [[1, 2, 3], [3, 4, 5]]),
    ("x[[0, 1, 0], [0, 0, 0]] += 1", [[1, 1, 2], [4, 4, 5]]),
    ("x[x > 2] *= 10", [[0, 1, 2], [30, 40, 50]]),
    ("x[:, 1] -= engine.tensor([1, 2])", [[0, 0, 2], [3, 2, 5]]),
    ("x[0], x[1] = x[1].clone(), x[0].clone()", [[3, 4, 5], [0, 1, 2]]),
    ("x[:, [1, 0]] = x[:, [0, 1]]", [[1, 0, 2], [4, 3, 5]]),
    ("x[1:] = x[:1]", [[0, 1, 2], [0, 1, 2]]),
    ("x[:, :2] = engine.zeros(2, 1, dtype=engine.int64)", [[0, 0, 2], [0, 0, 5]]),
    ("x[[]] = 5", [[0, 1, 2], [3, 4, 5]]),
    ("x[:, 3:] = 5", [[0, 1, 2], [3, 4, 5]]),
    ("x[engine.tensor([], dtype=engine.int64)] = 5", [[0, 1, 2], [3, 4, 5]]),
]

# what raises -> error, start of its text
ERRORS = [
    ("x[5]", IndexError, "index 5 is out of bounds for dimension 0 with size 2"),
    ("x[-4]", IndexError, "index -4 is out of bounds for dimension 0 with size 2"),
    ("x[0, 0, 0, 0]", IndexError, "too many indices for tensor of dimension 3"),
    ("x[0, 7]", IndexError, "index 7 is out of bounds for dimension 1 with size 3"),
    ("x[3, 0]", IndexError, "index 3 is out of bounds for dimension 0 with size 2"),
    ("x[[5]]", IndexError, "index 5 is out of bounds for dimension 0 with size 2"),
    ("x[[0, -4]]", IndexError, "index -4 is out of bounds for dimension 0 with size 2"),
    ("x[:, [4]]", IndexError, "index 4 is out of bounds for dimension 0 with size 3"),
    ("x[engine.tensor([2])]", IndexError, "index 2 is out of bounds for dimension 0 with size 2"),
    ("x[\"a\"]", TypeError, ""),
    ("x[1.0]",
     IndexError, "only integers, slices (`:`), ellipsis (`...`), None and long or byte V"),
    ("x[0, 1.5]",
     IndexError, "only integers, slices (`:`), ellipsis (`...`), None and long or byte V"),
    ("x[::-1]", ValueError, "step must be greater than zero"),
    ("x[engine.tensor([1.0])]",
     IndexError, "tensors used as indices must be long, int, byte or bool tensors"),
    ("x[engine.tensor([True, False, True])]",
     IndexError, "The shape of the mask [3] at index 0 does not match the shape of the i"),
    ("x[:, engine.tensor([True, False])]",
     IndexError, "The shape of the mask [2] at index 0 does not match the shape of the i"),
    ("x[[0, 1], [0, 1, 2]]",
     IndexError, "shape mismatch: indexing tensors could not be broadcast together with "),
    ("engine.tensor(1)[0]",
     IndexError, "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or `ten"),
    ("engine.tensor(1)[:]", IndexError, "slice() cannot be applied to a 0-dim tensor."),
    ("x[engine.zeros(3, 2, dtype=engine.bool)]",
     IndexError, "The shape of the mask [3, 2] at index 0 does not match the shape of th"),
    ("x[object()]",
     IndexError, "only integers, slices (`:`), ellipsis (`...`), None and long or byte V"),
    ("engine.tensor(1)[[0]]", IndexError, "too many indices for tensor of dimension 0"),
    ("x[0, 0, ..., 0, 0]", IndexError, "too many indices for tensor of dimension 2"),
    ("len(engine.tensor(1))", TypeError, "len() of a 0-d tensor"),
    ("list(engine.tensor(1))", TypeError, "iteration over a 0-d tensor"),
]

SET_ERRORS = [
    ("x[0] = engine.ones(2)",
     RuntimeError, "The expanded size of the tensor (3) must match the existing size (2) a"),
    ("x[:, 0] = engine.ones(3)",
     RuntimeError, "The expanded size of the tensor (2) must match the existing size (3) a"),
    ("x[5] = 1", IndexError, "index 5 is out of bounds for dimension 0 with size 2"),
    ("x[[0, 1]] = engine.ones(5, dtype=engine.int64)",
     RuntimeError, "shape mismatch: value tensor of shape [5] cannot be broadcast to index"),
    ("x[x > 2] = engine.tensor([1, 2])",
     RuntimeError, "shape mismatch: value tensor of shape [2] cannot be broadcast to index"),
    ("x[[7]] = 1", IndexError, "index 7 is out of bounds for dimension 0 with size 2"),
    ("x[0] = \"a\"", TypeError, "can't assign a str to a torch.LongTensor"),
    ("x[0, 0] = engine.ones(2)",
     RuntimeError, "expand(torch.FloatTensor{[2]}, size=[]): the number of sizes provided "),
    ("x[::-1] = 1", ValueError, "step must be greater than zero"),
    ("x[engine.tensor([1.0])] = 1",
     IndexError, "tensors used as indices must be long, int, byte or bool tensors"),
    ("x[0, 0] = engine.tensor([1, 2])",
     RuntimeError, "expand(torch.LongTensor{[2]}, size=[]): the number of sizes provided ("),
    ("x[0] = None", TypeError, "can't assign a NoneType to a torch.LongTensor"),
]
# fmt: on


@pytest.mark.parametrize("index", range(len(GET)))
def test_getitem(index):
    """Values and shape of each form of index."""
    get, shape, values = GET[index]
    with quiet():
        result = get(engine.arange(24).view(2, 3, 4))
    assert isinstance(result, engine.Tensor) and result.dtype == engine.int64
    assert tuple(result.shape) == shape
    if values is not None:
        assert result.reshape(-1).tolist() == values


@pytest.mark.parametrize("index", range(len(GET)))
def test_getitem_gradient(index):
    """The gradient of a part counts how often each element was read."""
    get, _, values = GET[index]
    x = engine.arange(24.0, dtype=engine.float64).view(2, 3, 4).requires_grad_()
    with quiet():
        result = get(x)
    if values is None or not result.requires_grad:
        return
    with quiet():
        result.sum().backward()
    counts = np.bincount(np.array(values, dtype=np.int64), minlength=24)
    assert x.grad.view(-1).tolist() == counts.tolist()


@pytest.mark.parametrize("index", range(len(SET)))
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "strided"])
def test_setitem(index, layout):
    """Assignment by each form of index, into any layout of memory."""
    statement, values = SET[index]
    x = engine.arange(6).view(2, 3)
    if layout == "transposed":
        x = x.t().contiguous().t()
    elif layout == "strided":
        x = engine.zeros(4, 9, dtype=engine.int64)[1::2, 2::3].copy_(x)
    names = {"x": x, "engine": engine, "np": np}
    with quiet():
        exec(statement, names)
    assert names["x"] is x
    assert x.tolist() == values


@pytest.mark.parametrize("index", range(len(ERRORS)))
def test_getitem_errors(index):
    """Wrong indices raise torch's errors."""
    source, error, text = ERRORS[index]
    x = engine.arange(24).view(2, 3, 4) if source == "x[0, 0, 0, 0]" else engine.arange(6).view(2, 3)
    with pytest.raises(error) as caught, quiet():
        eval(source, {"x": x, "engine": engine})
    assert text[:20] in str(caught.value)


@pytest.mark.parametrize("index", range(len(SET_ERRORS)))
def test_setitem_errors(index):
    """A refused assignment raises torch's error and changes nothing."""
    statement, error, text = SET_ERRORS[index]
    x = engine.arange(6).view(2, 3)
    with pytest.raises(error) as caught, quiet():
        exec(statement, {"x": x, "engine": engine})
    assert text[:20] in str(caught.value)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    "index",
    [
        0,
        -1,
        (0, 1),
        slice(None),
        slice(1, None),
        (slice(None), slice(None, None, 2)),
        Ellipsis,
        None,
        (None, 0),
        (Ellipsis, 1),
        (0, slice(None), None),
        (),
        (slice(None), 1, 2),
    ],
)
def test_basic_indexing_is_a_view(index):
    """Integers, slices, None and Ellipsis give views."""
    x = engine.arange(24.0).view(2, 3, 4)
    part = x[index]
    assert part._base is x._base is not None
    part.fill_(-1)
    assert (x == -1).sum().item() == part.numel()


@pytest.mark.parametrize("index", [[0], ([0, 1], 0), (slice(None), [1, 2]), engine.tensor([1]), (Ellipsis, [0])])
def test_advanced_indexing_is_a_copy(index):
    """Lists and tensors of integers or bools give copies."""
    x = engine.arange(24.0).view(2, 3, 4)
    x[index].fill_(-1)
    x[x > 5].zero_()
    assert not (x == -1).any()
    assert x.sum().item() == 276


def test_uint8_masks_warn():
    """A uint8 index is a mask, with a warning."""
    x = engine.arange(3)
    with pytest.warns(UserWarning, match="indexing with dtype torch.uint8 is now deprecated"):
        assert x[engine.tensor([1, 0, 1], dtype=engine.uint8)].tolist() == [0, 2]


def test_uint8_masks_with_larger_numbers():
    """Every number but 0 means yes, and a mask is no list of positions."""
    x = engine.arange(4) * 10
    with quiet():
        assert x[engine.tensor([3, 3, 0, 1], dtype=engine.uint8)].tolist() == [0, 10, 30]


def test_uint8_mask_assignment():
    """Assigning through a uint8 mask works as with a bool one."""
    x = engine.arange(4) * 10
    with quiet():
        x[engine.tensor([0, 2, 2, 0], dtype=engine.uint8)] = 7
    assert x.tolist() == [0, 7, 7, 30]


def test_setitem_casts_to_the_target():
    """The target keeps its dtype."""
    x = engine.zeros(3, dtype=engine.int64)
    x[0] = 2.9
    x[1] = engine.tensor(-2.9)
    x[[2]] = True
    assert x.tolist() == [2, -2, 1] and x.dtype == engine.int64
    y = engine.zeros(2)
    y[0] = engine.tensor(1, dtype=engine.int64)
    y[1] = 3
    assert y.tolist() == [1, 3] and y.dtype == engine.float32
    z = engine.zeros(2, dtype=engine.bool)
    z[0] = 5
    assert z.tolist() == [True, False]


def test_index_put_dtypes_must_agree():
    """Writing a tensor of another dtype to a list of positions is refused, as torch does."""
    x = engine.zeros(3)
    with pytest.raises(RuntimeError, match="Index put requires the source and destination dtypes match"):
        x[[0, 1]] = engine.ones(2, dtype=engine.float64)
    x[0:2] = engine.ones(2, dtype=engine.float64)
    assert x.tolist() == [1, 1, 0]


def test_iteration():
    """Iterating gives the views along the first dimension; len is its size."""
    x = engine.arange(6).view(2, 3)
    assert len(x) == 2
    rows = list(x)
    assert [r.tolist() for r in rows] == [[0, 1, 2], [3, 4, 5]]
    rows[0][0] = 9
    assert x[0, 0].item() == 9
    a, b = x
    assert a.tolist() == [9, 1, 2] and b.tolist() == [3, 4, 5]
    assert [int(v) for v in engine.arange(3)] == [0, 1, 2]
    assert list(engine.empty(0, 3)) == []


def test_tensors_as_python_indices():
    """0-dim integer tensors index lists, ranges and shapes."""
    i = engine.tensor(2)
    assert [10, 20, 30][i] == 30
    assert list(range(i)) == [0, 1]
    assert list(range(5))[i:] == [2, 3, 4]
    assert engine.arange(5)[i:].tolist() == [2, 3, 4]
    assert engine.arange(5)[: engine.tensor([3])].tolist() == [0, 1, 2]
    with pytest.raises(TypeError, match="only integer tensors of a single element"):
        [1, 2][engine.tensor(1.0)]


def test_contains():
    """`in` looks for an element."""
    x = engine.arange(6).view(2, 3)
    assert 5 in x and 6 not in x
    assert engine.tensor(3) in x


def test_accumulating_writes():
    """index_put_ with accumulate adds every duplicate, plain assignment and += do not."""
    x = engine.zeros(3)
    index = engine.tensor([0, 0, 2])
    x.index_put_((index,), engine.tensor([1.0, 2.0, 3.0]), accumulate=True)
    assert x.tolist() == [3, 0, 3]
    x.index_put_((index[1:],), engine.tensor(9.0))
    assert x.tolist() == [9, 0, 9]
    x[index] += 1
    assert x.tolist() == [10, 0, 10]
    x.index_add_(0, index, engine.ones(3))
    assert x.tolist() == [12, 0, 11]


@pytest.mark.parametrize("shape", [(1,), (1, 1), (1, 1, 1, 1)], ids=str)
def test_one_element_of_any_number_of_dims_goes_to_one_place(shape):
    """Leading dims of size 1 do not count: numpy refuses them where every dim is given an int."""
    for kind in (engine.float32, engine.int64, engine.bool):
        x, value = engine.zeros(2, 3, dtype=kind), engine.ones(shape, dtype=kind)
        x[1, 2] = value
        x[0, engine.tensor(1)] = value
        assert x.to(engine.int64).tolist() == [[0, 1, 0], [0, 0, 1]]
    x, value = engine.zeros(2, 3), engine.ones(shape, requires_grad=True)
    x[1, 2] = value
    x[1].sum().backward()
    assert engine.equal(value.grad, engine.ones(shape))
    with pytest.raises(RuntimeError, match=r"expand|shape mismatch"):
        x.detach()[1, 2] = engine.ones(1, 2)
