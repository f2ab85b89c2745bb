"""Storage, strides, views: what shares memory and how it is laid out."""

import pytest

import engine

from .autograd._util import quiet


def base():
    return engine.arange(24).view(2, 3, 4)


@pytest.mark.parametrize(
    "f, shape, stride, offset",
    [
        (lambda x: x, (2, 3, 4), (12, 4, 1), 0),
        (lambda x: x[1], (3, 4), (4, 1), 12),
        (lambda x: x[:, 1], (2, 4), (12, 1), 4),
        (lambda x: x[1, 2, 3], (), (), 23),
        (lambda x: x[:, 1:, ::2], (2, 2, 2), (12, 4, 2), 4),
        (lambda x: x[None], (1, 2, 3, 4), (24, 12, 4, 1), 0),
        (lambda x: x[:, None], (2, 1, 3, 4), (12, 12, 4, 1), 0),
        (lambda x: x.unsqueeze(-1), (2, 3, 4, 1), (12, 4, 1, 1), 0),
        (lambda x: x.unsqueeze(1), (2, 1, 3, 4), (12, 12, 4, 1), 0),
        (lambda x: x.transpose(0, 2), (4, 3, 2), (1, 4, 12), 0),
        (lambda x: x.permute(1, 2, 0), (3, 4, 2), (4, 1, 12), 0),
        (lambda x: x[0].t(), (4, 3), (1, 4), 0),
        (lambda x: x.view(6, 4), (6, 4), (4, 1), 0),
        (lambda x: x.view(-1), (24,), (1,), 0),
        (lambda x: x.view(2, -1), (2, 12), (12, 1), 0),
        (lambda x: x[1].view(2, 6), (2, 6), (6, 1), 12),
        (lambda x: x.expand(5, 2, 3, 4), (5, 2, 3, 4), (0, 12, 4, 1), 0),
        (lambda x: x[:, :1].expand(2, 3, 4), (2, 3, 4), (12, 0, 1), 0),
        (lambda x: x[:, :1].expand(-1, 3, -1), (2, 3, 4), (12, 0, 1), 0),
        (lambda x: x.narrow(2, 1, 2), (2, 3, 2), (12, 4, 1), 1),
        (lambda x: x.select(1, 2), (2, 4), (12, 1), 8),
        (lambda x: x.diagonal(), (4, 2), (1, 16), 0),
        (lambda x: x.diagonal(1, 1, 2), (2, 3), (12, 5), 1),
        (lambda x: x.diagonal(-1, 1, 2), (2, 2), (12, 5), 4),
        (lambda x: x.unfold(2, 2, 1), (2, 3, 3, 2), (12, 4, 1, 1), 0),
        (lambda x: x.unfold(1, 2, 1), (2, 2, 4, 2), (12, 4, 1, 4), 0),
        (lambda x: x.unbind(1)[1], (2, 4), (12, 1), 4),
        (lambda x: x.split(2, 2)[1], (2, 3, 2), (12, 4, 1), 2),
        (lambda x: x.chunk(2, 2)[1], (2, 3, 2), (12, 4, 1), 2),
        (lambda x: x[:1].squeeze(), (3, 4), (4, 1), 0),
        (lambda x: x[:1].squeeze(0), (3, 4), (4, 1), 0),
        (lambda x: x.squeeze(0), (2, 3, 4), (12, 4, 1), 0),
        (lambda x: x.flatten(), (24,), (1,), 0),
        (lambda x: x.flatten(1), (2, 12), (12, 1), 0),
        (lambda x: x.reshape(4, 6), (4, 6), (6, 1), 0),
        (lambda x: x.movedim(0, -1), (3, 4, 2), (4, 1, 12), 0),
        (lambda x: x.as_strided((2, 2), (3, 5), 4), (2, 2), (3, 5), 4),
        (lambda x: x.view(2, 3, 2, 2), (2, 3, 2, 2), (12, 4, 2, 1), 0),
        (lambda x: x[:, :, :1], (2, 3, 1), (12, 4, 1), 0),
        (lambda x: x.detach(), (2, 3, 4), (12, 4, 1), 0),
        (lambda x: x.transpose(1, 2).view(2, 2, 2, 3), (2, 2, 2, 3), (12, 2, 1, 4), 0),
        (lambda x: x[0].T, (4, 3), (1, 4), 0),
    ],
)
def test_views(f, shape, stride, offset):
    """Shape, stride and offset of each view, and that it shares memory."""
    x = base()
    view = f(x)
    assert (tuple(view.shape), view.stride(), view.storage_offset()) == (shape, stride, offset)
    assert view.data_ptr() == x.data_ptr() + 8 * offset
    if 0 in stride:
        return
    view[...] = -5
    assert (x == -5).sum().item() == len({*view_cells(shape, stride, offset)})


def view_cells(shape, stride, offset):
    """Positions in memory that such a view reaches."""
    cells = [offset]
    for size, step in zip(shape, stride):
        cells = [c + i * step for c in cells for i in range(size)]
    return cells


def test_write_to_expanded():
    """x[...] = value on an expanded view is refused."""
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        engine.ones(1).expand(3)[...] = 2


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.clone(),
        lambda x: x.transpose(0, 1).contiguous(),
        lambda x: x.transpose(0, 1).reshape(-1),
        lambda x: x.transpose(0, 2).flatten(),
        lambda x: x[[0, 1]],
        lambda x: x[x >= 0],
        lambda x: x.repeat(1, 1, 1),
        lambda x: x.to(engine.int32),
        lambda x: x + 0,
        lambda x: engine.cat([x]),
        lambda x: engine.stack([x]),
        lambda x: x.index_select(0, engine.tensor([0, 1])),
        lambda x: x.gather(0, engine.zeros(1, 1, 1, dtype=engine.int64)),
        lambda x: x.flip(0),
        lambda x: x.roll(1),
        lambda x: x.tril(),
        lambda x: x.take(engine.tensor([0])),
        lambda x: x.masked_select(x >= 0),
    ],
)
def test_copies(f):
    """These give memory of their own."""
    x = base()
    copy = f(x)
    copy.fill_(-1)
    assert x.sum().item() == 276


def test_same_object():
    """contiguous, to and expand of what needs no change."""
    x = base()
    assert x.contiguous() is x
    assert x.to(engine.int64) is x and x.long() is x and x.cpu() is x
    assert x.reshape(2, 3, 4) is not None and x.reshape(2, 3, 4).data_ptr() == x.data_ptr()
    assert x.view(2, 3, 4) is not x and x.detach() is not x and x[:] is not x
    assert x.type(engine.int64) is x
    y = x[0].t()
    assert y.contiguous() is not y and y.contiguous().stride() == (3, 1)


@pytest.mark.parametrize(
    "f, expected",
    [
        (lambda: engine.zeros(2, 3), True),
        (lambda: engine.zeros(2, 3).t(), False),
        (lambda: engine.zeros(1, 3).t(), True),
        (lambda: engine.zeros(3, 1).t(), True),
        (lambda: engine.zeros(2, 3)[:, :2], False),
        (lambda: engine.zeros(2, 3)[:1, :2], True),
        (lambda: engine.zeros(2, 3)[1:], True),
        (lambda: engine.zeros(2, 3)[:, 0], False),
        (lambda: engine.zeros(6)[::2], False),
        (lambda: engine.zeros(6)[::6], True),
        (lambda: engine.zeros(1).expand(3), False),
        (lambda: engine.zeros(1).expand(1), True),
        (lambda: engine.zeros(()), True),
        (lambda: engine.zeros(0, 3).t(), True),
        (lambda: engine.zeros(2, 3, 4).transpose(0, 1), False),
        (lambda: engine.zeros(2, 1, 4).transpose(0, 1), True),
        (lambda: engine.zeros(2, 3)[None], True),
        (lambda: engine.zeros(4, 4).diagonal(), False),
    ],
)
def test_is_contiguous(f, expected):
    """Sizes of 1 and empty tensors do not matter."""
    t = f()
    assert t.is_contiguous() is expected
    assert t.contiguous().is_contiguous()
    assert t.clone().is_contiguous() or not expected
    assert t.contiguous().tolist() == t.tolist()


def test_clone_keeps_dense_layouts():
    """clone keeps a permuted layout, contiguous() does not; gaps are closed."""
    x = engine.zeros(2, 3, 4)
    assert x.transpose(0, 2).clone().stride() == (1, 4, 12)
    assert x.transpose(0, 2).contiguous().stride() == (6, 2, 1)
    assert x[:, ::2].clone().stride() == (8, 4, 1)
    assert x.expand(5, 2, 3, 4).clone().stride() == (24, 12, 4, 1)
    assert (x.transpose(0, 2) + 1).stride() == (1, 4, 12)
    assert (x.transpose(0, 2) * engine.ones(4, 3, 2)).stride() == (1, 4, 12)
    assert x.transpose(0, 1).clone(memory_format=engine.contiguous_format).is_contiguous()


@pytest.mark.parametrize(
    "shape, target",
    [
        ((2, 3), (3, 3)),
        ((2, 3), (-1, 4)),
        ((2, 3), (-1, -1)),
        ((0, 3), (-1, 0)),
        ((4,), (3,)),
        ((2, 3), (6, -2)),
    ],
)
def test_view_errors(shape, target):
    """Sizes that do not fit are refused."""
    x = engine.zeros(shape)
    for f in (x.view, x.reshape):
        with pytest.raises(RuntimeError, match=r"invalid|only one dimension|ambiguous|cannot reshape"):
            f(target)


def test_view_needs_compatible_strides():
    """view never copies, reshape does when it must."""
    x = engine.arange(6).view(2, 3)
    with pytest.raises(RuntimeError, match="view size is not compatible with input tensor's size and stride"):
        x.t().view(6)
    assert x.t().reshape(6).tolist() == [0, 3, 1, 4, 2, 5]
    y = engine.arange(24).view(2, 3, 4)
    assert y.transpose(0, 1).reshape(3, 8).tolist()[0] == [0, 1, 2, 3, 12, 13, 14, 15]
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        y[:, :, :2].view(12)
    assert y[:, :2].view(2, 8).tolist()[1] == [12, 13, 14, 15, 16, 17, 18, 19]
    assert engine.zeros(0, 3).view(3, 0).shape == (3, 0)
    assert engine.zeros(1).expand(4).view(2, 2).stride() == (0, 0)
    assert engine.zeros(()).view(1, 1).shape == (1, 1) and engine.zeros(1).view(()).shape == ()


def test_view_as_another_dtype():
    """view(dtype) reads the same bytes."""
    x = engine.tensor([1.0, -2.0])
    bits = x.view(engine.int32)
    assert bits.tolist() == [1065353216, -1073741824]
    bits[0] = 0
    assert x.tolist() == [0, -2]
    assert engine.zeros(2, 4, dtype=engine.uint8).view(engine.int32).shape == (2, 1)
    assert engine.zeros(2, 1, dtype=engine.int64).view(engine.int16).shape == (2, 4)
    assert engine.ones(2).view(engine.float32).tolist() == [1, 1]


def test_squeeze_forms():
    """squeeze and unsqueeze with and without dimensions."""
    x = engine.zeros(1, 2, 1, 3)
    assert x.squeeze().shape == (2, 3) and x.squeeze(0).shape == (2, 1, 3)
    assert x.squeeze(1).shape == (1, 2, 1, 3) and x.squeeze(-2).shape == (1, 2, 3)
    assert x.squeeze((0, 2)).shape == (2, 3)
    assert x.unsqueeze(0).shape == (1, 1, 2, 1, 3) and x.unsqueeze(-1).shape == (1, 2, 1, 3, 1)
    assert engine.zeros(1, 1).squeeze().shape == () and engine.tensor(1).unsqueeze(0).shape == (1,)
    with pytest.raises(IndexError, match="Dimension out of range"):
        x.unsqueeze(6)
    y = engine.zeros(1, 2)
    assert y.squeeze_() is y and y.shape == (2,) and y.unsqueeze_(0).shape == (1, 2)
    assert y.t_() is y and y.shape == (2, 1) and y.transpose_(0, 1).shape == (1, 2)


def test_expand_errors():
    """expand refuses sizes that do not fit."""
    x = engine.zeros(2, 3)
    for shape in ((2, 4), (3,), (3, 3), (-1, 2, 3)):
        with pytest.raises(RuntimeError, match=r"expand"):
            x.expand(*shape)
    assert x.expand(4, -1, 3).shape == (4, 2, 3)
    assert x.expand_as(engine.zeros(5, 2, 3)).shape == (5, 2, 3)
    assert engine.zeros(1, 3).expand(0, 3).shape == (0, 3)


def test_as_strided():
    """as_strided counts from the start of the memory."""
    x = engine.arange(10)
    assert x.as_strided((3, 2), (2, 1)).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert x.as_strided((2, 3), (1, 1)).tolist() == [[0, 1, 2], [1, 2, 3]]
    assert x[4:].as_strided((2,), (1,)).tolist() == [4, 5]
    assert x[4:].as_strided((2,), (1,), 1).tolist() == [1, 2]
    assert x.as_strided((), (), 7).item() == 7
    assert x.as_strided((3,), (0,), 2).tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="out of bounds for storage"):
        x.as_strided((11,), (1,))
    with pytest.raises(RuntimeError, match="out of bounds for storage"):
        x.as_strided((2, 2), (9, 1), 1)
    with pytest.raises(RuntimeError, match=r"negative|Negative"):
        x.as_strided((2,), (-1,), 5)


def test_resize():
    """resize_ keeps the first elements and grows the memory when it must."""
    x = engine.arange(6)
    alias = x
    assert x.resize_(2, 2) is alias and x.tolist() == [[0, 1], [2, 3]]
    x.resize_(6)
    assert x.tolist() == [0, 1, 2, 3, 4, 5]
    x.resize_((2, 5))
    assert x.shape == (2, 5) and x.view(-1)[:6].tolist() == [0, 1, 2, 3, 4, 5]
    assert x.stride() == (5, 1)
    y = engine.zeros(2, 3)
    assert y.resize_as_(engine.zeros(3, 1)).shape == (3, 1)
    z = engine.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
        z.resize_(3)


def test_set():
    """set_ makes a tensor share another's memory."""
    x, y = engine.zeros(3), engine.arange(4.0)
    assert x.set_(y) is x
    assert x.tolist() == [0, 1, 2, 3] and x.data_ptr() == y.data_ptr()
    assert x.is_set_to(y) and not x.is_set_to(y[1:])
    y[0] = 9
    assert x[0].item() == 9
    x.set_(y.untyped_storage(), 1, (2,), (2,))
    assert x.tolist() == [1, 3]
    x.set_()
    assert x.shape == (0,)


def test_storage():
    """Storages: size, sharing, identity of memory."""
    x = engine.arange(6.0)
    s = x.untyped_storage()
    assert s.nbytes() == 24 and len(s) == 24
    assert s.data_ptr() == x.data_ptr() == x[2:].untyped_storage().data_ptr()
    with quiet():
        typed = x.storage()
        assert len(typed) == 6 and typed.size() == 6 and typed[2] == 2.0
        assert typed.tolist() == [0, 1, 2, 3, 4, 5]
        assert list(typed) == [0, 1, 2, 3, 4, 5]
        typed[0] = 7
        assert x[0].item() == 7
        assert x[3:].storage().data_ptr() == typed.data_ptr()
        assert type(typed.tolist()[0]) is float
        typed.fill_(1)
    assert x.tolist() == [1] * 6
    assert x.clone().untyped_storage().data_ptr() != s.data_ptr()
    assert engine.is_storage(s)


def test_attributes_of_layout():
    """dim, numel, stride(dim), element_size, storage_offset, nbytes."""
    x = engine.zeros(2, 3, dtype=engine.float64)
    assert x.dim() == x.ndimension() == x.ndim == 2
    assert x.numel() == x.nelement() == 6 and x.element_size() == x.itemsize == 8
    assert x.stride(0) == 3 and x.stride(-1) == 1 and x.nbytes == 48
    assert x.layout == engine.strided
    assert engine.numel(x) == 6
    with pytest.raises(IndexError, match="Dimension out of range"):
        x.stride(2)


def test_transposes():
    """T, mT, t, transpose, permute, movedim, swapaxes."""
    x = engine.arange(6).view(2, 3)
    assert x.T.tolist() == x.t().tolist() == x.mT.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert engine.ones(3).t().shape == (3,)
    y = engine.zeros(2, 3, 4)
    assert y.permute(2, 0, 1).shape == y.permute((2, 0, 1)).shape == (4, 2, 3)
    assert y.permute(-1, 0, 1).shape == (4, 2, 3)
    assert y.transpose(-1, 0).shape == (4, 3, 2) and y.swapaxes(0, 1).shape == (3, 2, 4)
    assert y.mT.shape == (2, 4, 3)
    with pytest.raises(RuntimeError, match=r"t\(\) expects a tensor with <= 2 dimensions"):
        y.t()
    with pytest.raises(RuntimeError, match=r"repeated dim|duplicate"):
        y.permute(0, 0, 1)
    with pytest.raises(RuntimeError, match="number of dim"):
        y.permute(0, 1)


def test_splitting():
    """split, chunk, unbind, tensor_split."""
    x = engine.arange(7)
    assert [t.tolist() for t in x.split(3)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [t.tolist() for t in x.split([2, 5])] == [[0, 1], [2, 3, 4, 5, 6]]
    assert [len(t) for t in x.chunk(3)] == [3, 3, 1]
    assert [len(t) for t in x.chunk(4)] == [2, 2, 2, 1]
    assert [len(t) for t in engine.arange(6).chunk(4)] == [2, 2, 2]
    assert [len(t) for t in x.tensor_split(3)] == [3, 2, 2]
    assert isinstance(x.split(3), tuple) and isinstance(x.unbind(), tuple)
    assert len(engine.zeros(2, 0).split(1, 1)) == 1
    with pytest.raises(RuntimeError, match="split_with_sizes expects split_sizes to sum exactly"):
        x.split([2, 2])


def test_broadcasting():
    """Shapes broadcast from the right; others are refused."""
    for a, b, c in [
        ((3, 1), (4,), (3, 4)),
        ((), (2,), (2,)),
        ((2, 1, 3), (5, 1), (2, 5, 3)),
        ((0,), (1,), (0,)),
        ((1,), (3, 1), (3, 1)),
        ((2, 0), (1,), (2, 0)),
    ]:
        assert (engine.zeros(a) + engine.zeros(b)).shape == c
        assert engine.broadcast_tensors(engine.zeros(a), engine.zeros(b))[0].shape == c
    with pytest.raises(
        RuntimeError,
        match=r"The size of tensor a \(2\) must match the size of tensor b \(3\) at non-singleton dimension 1",
    ):
        engine.zeros(4, 2) + engine.zeros(3)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        engine.zeros(3).add_(engine.zeros(2, 3))
    with pytest.raises(RuntimeError, match="must match the size of tensor"):
        engine.zeros(2).copy_(engine.zeros(3))


def test_memory_format():
    """channels_last is a layout of strides."""
    x = engine.zeros(2, 3, 4, 5)
    y = x.contiguous(memory_format=engine.channels_last)
    assert y.stride() == (60, 1, 15, 3) and y.shape == x.shape
    assert y.is_contiguous(memory_format=engine.channels_last) and not y.is_contiguous()
    assert y.contiguous().stride() == x.stride()
    assert (y + 1).stride() == y.stride()
    assert x.to(memory_format=engine.channels_last).stride() == y.stride()


def test_overlap_in_copies():
    """Writing from a view onto itself."""
    x = engine.arange(5)
    x[1:] = x[:-1].clone()
    assert x.tolist() == [0, 0, 1, 2, 3]
    y = engine.arange(4).view(2, 2)
    y.copy_(y.t().clone())
    assert y.tolist() == [[0, 2], [1, 3]]
    z = engine.arange(3)
    z.copy_(z)
    assert z.tolist() == [0, 1, 2]
    with pytest.raises(RuntimeError, match="unsupported operation: some elements of the input tensor"):
        x[1:].add_(x[:-1])


def test_cdata_tells_tensors_apart():
    """Pyro keeps what it has seen by it."""
    x = engine.ones(2)
    assert x._cdata == x._cdata != engine.ones(2)._cdata and isinstance(x._cdata, int)
