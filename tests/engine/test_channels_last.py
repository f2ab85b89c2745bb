"""ChannelsLast tensors: channels-last memory that the engine chose itself and that nobody can tell.

Every check compares a converted tensor with the same numbers in an ordinary one.
"""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest

import engine
from engine.backends.cpu.relayout import to_channels_last
from engine.core.layouts import ChannelsLast
from engine.dispatch import OPS
from engine.nn import functional as F
from engine.tensor import Tensor, raw_array, rewrap, wrap
from tests.engine.samples import Case, cases, mapped, tensors_of

pytestmark = pytest.mark.onednn
SHAPE = (2, 3, 4, 5)


def values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.5, 1.5, shape or SHAPE).astype("float32")


def converted(array: np.ndarray | None = None) -> Tensor:
    tensor = rewrap(to_channels_last(values() if array is None else array))
    assert tensor._channels_last is not None
    return tensor


def is_converted(tensor: Tensor) -> bool:
    return tensor._channels_last is not None


def same(found: Tensor, wanted: Tensor) -> None:
    assert found.shape == wanted.shape and found.dtype is wanted.dtype
    assert found.stride() == wanted.stride()
    assert found.is_contiguous() == wanted.is_contiguous()
    np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), 1e-4, 1e-5)
    assert type(found.detach().numpy()) is np.ndarray
    assert found.detach().numpy().strides == wanted.detach().numpy().strides


# --- nobody can tell


def test_sizes_and_types_are_read_without_conversion() -> None:
    x = converted()
    assert x.shape == x.size() == SHAPE and x.dim() == x.ndim == 4 and x.numel() == 120
    assert x.dtype is engine.float32 and x.device.type == "cpu" and len(x) == 2
    assert x.stride() == (60, 20, 5, 1) and x.stride(1) == 20 and x.size(-1) == 5
    assert x.is_contiguous() and x.contiguous() is x and x.nbytes == 480
    assert is_converted(x)
    assert not x.is_contiguous(memory_format=engine.channels_last)


@pytest.mark.parametrize(
    "look",
    [
        lambda x: x.numpy(),
        lambda x: x.view(2, -1),
        lambda x: x.flatten(1),
        lambda x: x.as_strided((4,), (2,)),
        lambda x: x.storage(),
        lambda x: x.data_ptr(),
        lambda x: x.permute(0, 2, 3, 1),
        lambda x: x[:, 1],
        lambda x: x.detach(),
        lambda x: x.data,
        lambda x: x.tolist(),
        lambda x: repr(x),
        lambda x: x.double(),
        lambda x: pickle.dumps(x),
        lambda x: copy.deepcopy(x),
        lambda x: x.unbind(),
        lambda x: x.storage_offset(),
        lambda x: x.matmul(engine.ones(5, 2)),
        lambda x: x.reshape(-1),
        lambda x: x.argmax(),
        lambda x: np.asarray(x),
    ],
)
def test_looking_lays_it_contiguously_for_good(look: Any) -> None:
    x = converted()
    look(x)
    assert not is_converted(x)
    same(x, wrap(values()))


def test_views_aliases_and_writes_share_memory() -> None:
    x = converted()
    flat, alias = x.view(-1), x.detach()
    flat[0] = 7
    assert x[0, 0, 0, 0] == 7 == alias[0, 0, 0, 0] and x._version == alias._version == 1
    x.mul_(2)
    assert flat[0] == 14 and alias.numpy()[0, 0, 0, 0] == 14
    assert x.storage().data_ptr() == alias.data_ptr() == flat.data_ptr()
    x = converted()
    x.add_(1)  # in place without an alias: it stays as it lies
    assert is_converted(x) and x._version == 1
    x += x
    assert is_converted(x)
    same(x, wrap((values() + 1) * 2))


def test_copies_and_pickles() -> None:
    for twin in (
        copy.deepcopy(converted()),
        pickle.loads(pickle.dumps(converted())),
        converted().clone(),
        copy.copy(converted()),
    ):
        same(twin, wrap(values()))
    x = converted()
    y = x.clone()
    y.zero_()
    same(x, wrap(values()))


def test_set_data_and_out() -> None:
    x = converted()
    x.data = wrap(np.ones((2, 2), "float32"))
    assert x.shape == (2, 2) and x.sum() == 4
    x = converted()
    engine.add(wrap(values()), 1, out=x)
    same(x, wrap(values() + 1))
    out = wrap(np.empty(SHAPE, "float32"))
    engine.add(converted(), 1, out=out)
    same(out, wrap(values() + 1))


def test_numpy_on_the_left_and_as_a_parameter() -> None:
    same(wrap(values() + np.asarray(converted())), wrap(values() * 2))
    p = engine.nn.Parameter(converted())
    same(p, wrap(values()))
    module = engine.nn.Module()
    module.register_buffer("kept", converted())
    same(module.state_dict()["kept"], wrap(values()))


def test_threads_that_look_at_once() -> None:
    for _ in range(20):
        x, seen = converted(), []

        def look(x: Tensor = x, seen: list = seen) -> None:
            seen.append(x.numpy().sum())
            seen.append((x + 1).numpy().sum() - 120)

        threads = [threading.Thread(target=look) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        np.testing.assert_allclose(seen, values().sum(), 1e-4)


# --- together with other layouts


@pytest.mark.parametrize("op", [engine.add, engine.mul, engine.sub, engine.div], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    "other",
    [
        lambda: wrap(values(seed=1)),
        lambda: wrap(values(1, 3, 1, 1)),
        lambda: wrap(values(3, 1, 1)),
        lambda: wrap(values(5)),
        lambda: wrap(values(2, 3, 1, 1)),
        lambda: wrap(values(7, 2, 3, 4, 5)),
        lambda: wrap(values(5, 4, 3, 2).transpose(3, 2, 1, 0)),
        lambda: wrap(np.array(2.0)),
        lambda: 2,
        lambda: 2.5,
        lambda: wrap(values().astype("float64")),
        lambda: wrap(np.arange(5)),
        lambda: wrap(values().transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)),
        lambda: wrap(np.broadcast_to(values(1, 3, 1, 1), SHAPE)),
    ],
)
def test_operands_that_lie_otherwise(op: Any, other: Any) -> None:
    plain = wrap(values())
    same(op(converted(), other()), op(plain, other()))
    same(op(other(), converted()), op(other(), plain))


def test_what_the_user_converted_stays_visible() -> None:
    x = wrap(values()).contiguous(memory_format=engine.channels_last)
    w = wrap(values(6, 3, 3, 3))
    assert x.stride() == (60, 1, 15, 3)
    y = F.conv2d(x, w, padding=1)
    assert not is_converted(y) and y.is_contiguous(memory_format=engine.channels_last)
    y = F.max_pool2d(F.relu(F.batch_norm(y, None, None, training=True)), 2)
    assert y.is_contiguous(memory_format=engine.channels_last) and not y.is_contiguous()
    z = converted().to(memory_format=engine.channels_last)
    assert z.stride() == (60, 1, 15, 3)
    np.testing.assert_array_equal(z.numpy(), values())


# --- gradients


def network(x: Tensor, w: Tensor, look: bool) -> Tensor:
    """Convolution, norm, relu, pooling, sum, cat; with `look` each step is looked at, so that nothing stays so."""

    def seen(t: Tensor) -> Tensor:
        if look:
            t.data_ptr()
        return t

    y = seen(F.conv2d(x, w, padding=1))
    z = seen(F.relu(seen(F.batch_norm(y, None, None, training=True))))
    z = seen(F.max_pool2d(seen(z + y), 2))
    z = seen(engine.cat([z, seen(F.avg_pool2d(y, 2))], 1))
    z = seen(F.silu(z) * z.mean((2, 3), keepdim=True))
    return z.view(2, -1)


def test_a_network_gives_the_same_numbers_and_gradients() -> None:
    found = []
    for look in (False, True):
        x = wrap(values(2, 3, 8, 8)).requires_grad_()
        w = wrap(values(8, 3, 3, 3)).requires_grad_()
        y = network(x, w, look)
        (y * y).sum().backward()
        found.append((y, x.grad, w.grad))
    for a, b in zip(*found):
        assert a.stride() == b.stride()
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), 1e-3, 1e-3)


def test_the_engine_lays_what_stands_between_convolutions() -> None:
    from engine.backends import onednn
    from engine.kernels import processor

    x, w = wrap(values(2, 8, 8, 8)), wrap(values(8, 8, 3, 3))
    y = F.conv2d(x, w, padding=1)
    y = F.relu(F.batch_norm(y, None, None, training=True)) + y
    y = engine.cat([F.max_pool2d(y, 2), F.avg_pool2d(y, 2)], 1)
    generated = processor.available() and processor.always()  # else they are proved in the third call
    assert is_converted(y) == (onednn.is_available() or generated)


def test_saved_results_and_versions() -> None:
    x = wrap(values(2, 3, 8, 8)).requires_grad_()
    w = wrap(values(4, 3, 3, 3)).requires_grad_()
    y = F.conv2d(x, w)
    z = y.sigmoid()  # saves its result
    z.view(-1)[0] = 0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()
    y = F.conv2d(x, w)
    z = y.sigmoid()
    z.data_ptr()  # back in torch order after it was saved
    z.sum().backward()
    expected = x.grad.clone()
    x.grad = None
    F.conv2d(x, w).sigmoid().sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), expected.numpy(), 1e-5, 1e-5)
    y = F.conv2d(x, w)
    out = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_in_place_on_a_view_of_a_convolution() -> None:
    w = wrap(values(4, 3, 3, 3)).requires_grad_()
    x = wrap(values(2, 3, 8, 8))
    y = F.conv2d(x, w)
    y.view(2, -1).mul_(3)
    assert type(y.grad_fn).__name__ == "CopySlices"
    (found,) = engine.autograd.grad(y.sum(), w)
    (wanted,) = engine.autograd.grad((F.conv2d(x, w) * 3).sum(), w)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), 1e-5)


# --- weights


def test_weights_are_converted_without_gradients_and_alone() -> None:
    x, layer = wrap(values(1, 32, 9, 9)), engine.nn.Conv2d(32, 64, 3)
    before = layer.weight.detach().clone()
    wanted = layer(x)
    assert not is_converted(layer.weight)  # gradients are recorded
    with engine.no_grad():
        for _ in range(2):
            np.testing.assert_allclose(layer(x).numpy(), wanted.detach().numpy(), 1e-4, 1e-4)
            assert is_converted(layer.weight)
        same(layer.weight.clone(), before)
        layer.weight.mul_(2)
        layer.bias.mul_(2)
        np.testing.assert_allclose(layer(x).numpy(), 2 * wanted.detach().numpy(), 1e-4, 1e-4)
        alias, view = layer.weight.data, layer.weight[0]
        layer(x)
        assert not is_converted(layer.weight)  # others hold its memory
        alias.mul_(0.5)
        layer.bias.mul_(0.5)
        assert view[0, 0, 0] == before[0, 0, 0, 0]
        np.testing.assert_allclose(layer(x).numpy(), wanted.detach().numpy(), 1e-4, 1e-4)
        numbers = layer.weight.detach().numpy()
        del alias, view
        layer(x)
        assert not is_converted(layer.weight)
        numbers *= 0
        np.testing.assert_allclose(layer(x).numpy()[0, 0], layer.bias[0].item(), 1e-6)


def test_packed_weights_go_when_the_weight_is_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.backends import onednn

    if not onednn.is_available():
        pytest.skip(onednn.describe())
    from engine.backends.cpu import packing

    layer = engine.nn.Conv2d(64, 64, 3, bias=False)
    images = [wrap(values(1, 64, n, n)) for n in (9, 12)]
    with engine.no_grad():
        wanted = [layer(x).numpy() for x in images]
        for x, y in zip(images * 2, wanted * 2):  # two sizes in turn
            np.testing.assert_allclose(layer(x).numpy(), y, 1e-5)
        assert layer.weight._channels_last.packed is not None and packing.PackedWeight.nbytes > 0
        for change in (lambda w: w.mul_(-1), lambda w: w.sub_(w + w), lambda w: w.neg_()):
            change(layer.weight)
            assert layer.weight._channels_last.packed is None
            wanted = [-y for y in wanted]
            np.testing.assert_allclose(layer(images[0]).numpy(), wanted[0], 1e-5)
        address = layer.weight.data_ptr()
        layer(images[0])
        assert layer.weight.data_ptr() == address  # the memory is the same
        monkeypatch.setattr(packing, "_MOST", 0)
        np.testing.assert_allclose(layer(images[0]).numpy(), wanted[0], 1e-5)
        assert layer.weight._channels_last.packed is None


def test_converted_weights_train_and_are_saved() -> None:
    engine.manual_seed(0)
    x, layer = wrap(values(2, 32, 9, 9)), engine.nn.Conv2d(32, 64, 3)
    twin = copy.deepcopy(layer)
    for module, look in ((layer, False), (twin, True)):
        step = engine.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        for _ in range(3):
            with engine.no_grad():
                module(x)
            if look:
                module.weight.data_ptr()
            step.zero_grad()
            (module(x) ** 2).mean().backward()
            step.step()
    same(layer.weight.detach(), twin.weight.detach())
    assert layer.weight.grad.is_contiguous()
    with engine.no_grad():
        layer(x)
    same(pickle.loads(pickle.dumps(layer)).weight.detach(), twin.weight.detach())
    same(layer.state_dict()["weight"], twin.weight.detach())


# --- every op that takes converted tensors


def _four_d(case: Case) -> bool:
    """Element-wise ops: every tensor of the sample has one shape."""
    if case.op is None or not case.op.channels_last or case.op.lists:
        return False
    args, kwargs = case.arguments()
    tensors = tensors_of([args, kwargs])
    return (
        case.deterministic
        and len({t.shape for t in tensors}) == 1
        and all(t.dtype is engine.float64 and t.dim() in (0, 2) for t in tensors)
        and all(not isinstance(a, tuple) for a in args)
    )


@pytest.mark.parametrize("case", [c for c in cases() if _four_d(c)], ids=str)
def test_elementwise_ops_on_converted_tensors(case: Case) -> None:
    for shape in (SHAPE, (2, 3, 4), (1, 2, 2, 3, 2), (40, 8, 16, 16)):

        def run(make: Any, shape: Any = shape) -> list[Tensor]:
            seeds = iter(range(9))
            args, kwargs = case.arguments()

            def fresh(t: Tensor) -> Tensor:
                return make(values(*shape, seed=next(seeds)) * 2 - 1.5)

            return tensors_of(case.function(*mapped(args, fresh), **mapped(kwargs, fresh)))

        for a, b in zip(run(converted), run(wrap)):
            same(a, b)


@pytest.mark.parametrize("dim", [None, 0, 1, -1, (2, 3), (0, 2, 3), (1, 2), ()], ids=str)
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("name", ["sum", "mean"])
def test_reductions(name: str, dim: Any, keepdim: bool) -> None:
    function = OPS[name].function
    for shape in (SHAPE, (40, 8, 16, 16)):
        array = values(*shape)
        same(function(converted(array), dim, keepdim), function(wrap(array), dim, keepdim))


@pytest.mark.parametrize("dim", [0, 1, 2, 3])
def test_cat(dim: int) -> None:
    a, b = values(), values(seed=1)
    for other in (
        lambda: converted(b),
        lambda: wrap(b),
        lambda: wrap(b.swapaxes(2, 3).copy().swapaxes(2, 3)),
    ):
        same(engine.cat([converted(a), other()], dim), engine.cat([wrap(a), wrap(b)], dim))
        same(engine.cat([other(), converted(a)], dim), engine.cat([wrap(b), wrap(a)], dim))


def test_the_array_class_stays_inside() -> None:
    x = converted()
    assert type(raw_array(x)) is ChannelsLast
    for t in (x + 1, x.relu(), x.sum((2, 3)), x.mean(1), x[0], x.clone(), x.view(-1)):
        assert type(t.numpy()) is np.ndarray
