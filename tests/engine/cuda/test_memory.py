"""Memory of the GPU: counts, limits, torch's sentence when there is none left, pinned memory."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import engine
from engine import backends, cuda
from engine.core import layouts
from tests.engine import standin

pytestmark = pytest.mark.cuda


@pytest.mark.long
def test_counts(gpu: Any) -> None:
    gc.collect()
    before = cuda.memory_allocated()
    x = engine.zeros(1000, device="cuda")
    assert cuda.memory_allocated() - before == 4096  # rounded up to 512 bytes
    assert cuda.max_memory_allocated() >= before + 4096
    del x
    gc.collect()
    assert cuda.memory_allocated() == before
    assert cuda.memory_reserved() >= 4096
    cuda.reset_peak_memory_stats()
    assert cuda.max_memory_allocated() == before
    reserved = cuda.memory_reserved()
    cuda.empty_cache()  # of a block that is in use in part nothing goes back
    assert before <= cuda.memory_reserved() <= reserved
    assert standin.REAL or cuda.memory_reserved() == before
    stats = cuda.memory_stats()
    assert stats["allocation.all.allocated"] >= 1 and stats["num_ooms"] == 0
    assert "allocated_bytes.all.peak" in cuda.memory_summary()
    free, total = cuda.mem_get_info()
    assert 0 < free <= total


@pytest.mark.long
def test_out_of_memory(gpu: Any) -> None:
    cuda.set_per_process_memory_fraction(0.01)
    try:
        limit = int(cuda.mem_get_info()[1] * 0.01)
        with pytest.raises(
            engine.OutOfMemoryError,
            match=r"^CUDA out of memory. Tried to allocate [\d.]+ [KMG]iB. GPU 0 has a total capacity of "
            r"[\d.]+ [KMG]iB of which [\d.]+ [KMG]iB is free. [\d.]+ [KMG]iB allowed; Of the allocated memory .* is "
            "allocated by tensors",
        ):
            engine.zeros(limit, device="cuda")
        assert issubclass(cuda.OutOfMemoryError, RuntimeError)
        assert cuda.memory_stats()["num_ooms"] == 1
        x = engine.zeros(limit // 16, device="cuda")
        with pytest.raises(cuda.OutOfMemoryError):  # inside an op as well
            _ = [x + i for i in range(32)]
        assert float((x + 1).mean()) == 1  # and work goes on
    finally:
        cuda.set_per_process_memory_fraction(1.0)
    with pytest.raises(ValueError, match=r"Invalid fraction value: 1.5. Allowed range: 0~1"):
        cuda.set_per_process_memory_fraction(1.5)


def test_pinned_memory_and_copies_that_do_not_wait(gpu: Any) -> None:
    x = engine.arange(12.0).reshape(3, 4)
    pinned = x.pin_memory()
    assert pinned.is_pinned() and not x.is_pinned() and pinned.pin_memory() is pinned
    assert engine.equal(pinned, x)
    there = pinned.to("cuda", non_blocking=True)
    back = (there * 2).to("cpu", non_blocking=True)
    assert back.is_pinned()
    if not standin.REAL:
        assert back.isnan().all()  # still under way
    cuda.synchronize()
    assert engine.equal(back, x * 2)
    assert engine.equal(there.to("cpu"), x)
    target = engine.empty(3, 4, device="cuda")
    target.copy_(pinned, non_blocking=True)
    assert engine.equal(target.cpu(), x)
    with pytest.raises(RuntimeError, match=r"only dense CPU tensors can be pinned"):
        there.pin_memory()


def test_layouts_survive_the_way_there_and_back(gpu: Any) -> None:
    x = engine.tensor(np.random.default_rng(0).standard_normal((2, 3, 4, 5)))
    for laid in (x, x.permute(0, 2, 3, 1), x.contiguous(memory_format=engine.channels_last), x.transpose(1, 3)):
        there = laid.to("cuda")
        assert there.stride() == laid.stride() and engine.equal(there.cpu(), laid)
        assert there.cpu().stride() == laid.stride()
    for odd in (x[:, :, ::2], x.expand(2, 2, 3, 4, 5), x[0, 0, 0, 0], x[:0]):
        assert engine.equal(odd.to("cuda").cpu(), odd)


@pytest.mark.skipif(standin.REAL, reason="a card does not tell")
@pytest.mark.long
def test_freed_memory_is_not_what_it_was(gpu: Any) -> None:
    x = engine.ones(4, device="cuda")
    held = x._array._held
    del x
    gc.collect()
    assert np.isnan(held).all()


def test_a_view_by_strides_knows_its_storage(gpu: Any) -> None:
    x = engine.arange(12.0, device="cuda")
    view = x.as_strided((2, 3), (1, 2), 3)
    assert view.tolist() == [[3, 5, 7], [4, 6, 8]]
    assert (view.storage_offset(), view.stride(), view[1].storage_offset()) == (3, (1, 2), 4)
    assert x.as_strided((1, 7), (9, 1)).stride() == (9, 1)
    for one in (view, view[1], view.as_strided((2,), (1,))):
        assert one.untyped_storage().data_ptr() == x.data_ptr() and one.untyped_storage().nbytes() == 48
        assert not backends.owns(one._array)
    number = id(view._array)
    assert number in layouts.adopted
    del view, one
    gc.collect()
    assert number not in layouts.adopted


@pytest.mark.parametrize("pinned", [False, True])
@pytest.mark.parametrize("non_blocking", [False, True])
def test_copies_go_straight_into_memory_of_the_host(pinned: bool, non_blocking: bool, gpu: Any) -> None:
    there = engine.arange(12.0, device="cuda").view(3, 4)
    here = engine.zeros(3, 4).pin_memory() if pinned else engine.zeros(3, 4)
    address = here.data_ptr()
    for source in (there, there.t().contiguous().t(), there.double(), there[:1]):
        here.zero_()
        here.copy_(source, non_blocking=non_blocking)
        cuda.synchronize()
        assert here.tolist() == source.cpu().expand(3, 4).tolist() and here.data_ptr() == address
    turned = engine.zeros(4, 3).t()
    turned.copy_(there)
    assert turned.tolist() == there.tolist()
