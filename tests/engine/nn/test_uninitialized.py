"""Parameters of lazy modules before the first forward: what torch 2.13 lets them do, and its error for the rest."""

from __future__ import annotations

import copy

import pytest

import engine as torch
from engine import nn
from engine.core import storage

TEXT = (
    "Attempted to use an uninitialized parameter in <function {}>. This error happens when you are using a "
    "`LazyModule` or explicitly manipulating `torch.nn.parameter.UninitializedParameter` objects. When using "
    "LazyModules Call `forward` with a dummy batch to initialize the parameters before calling torch functions"
)


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("add", lambda w: w + 1),
        ("mul", lambda w: 2 * w),
        ("sum", lambda w: w.sum()),
        ("view", lambda w: w.view(1)),
        ("linear", lambda w: nn.functional.linear(torch.ones(2, 3), w)),
        ("cat", lambda w: torch.cat([w])),
        ("numel", lambda w: w.numel()),
        ("detach", lambda w: w.detach()),
        ("zero_", lambda w: w.zero_()),
        ("dim", lambda w: w.dim()),
        ("tolist", lambda w: w.tolist()),
        ("__len__", lambda w: len(w)),
        ("clone", lambda w: w.clone()),
        ("item", lambda w: w.item()),
        ("eq", lambda w: w == w),
        ("data_ptr", lambda w: w.data_ptr()),
        ("stride", lambda w: w.stride()),
        ("__bool__", lambda w: bool(w)),
    ],
)
def test_a_function_of_an_uninitialized_parameter_is_an_error_that_names_it(name, use):
    for lazy in (nn.LazyLinear(3).weight, nn.parameter.UninitializedBuffer()):
        with pytest.raises(ValueError) as found:
            use(lazy)
        assert str(found.value) == TEXT.format(name)


def test_what_they_tell_and_where_they_go():
    module = nn.LazyLinear(3)
    w = module.weight
    assert (w.dtype, w.device, w.requires_grad, w.size(), w.ndim, w.nbytes) == (
        torch.float32,
        torch.device("cpu"),
        True,
        torch.Size([0]),
        1,
        0,
    )
    assert (
        w.is_leaf and w.grad is None and w.grad_fn is None and not w.is_cuda and repr(w) == "<UninitializedParameter>"
    )
    assert w.float() is w and w.to("cpu") is w and w.half().dtype is torch.float16
    assert w.data.numel() == 0
    with pytest.raises(RuntimeError, match=r"^Can't access the shape of an uninitialized parameter or buffer"):
        _ = w.shape
    assert type(copy.deepcopy(w)) is nn.UninitializedParameter
    assert nn.parameter.is_lazy(module.state_dict()["weight"])
    torch.optim.SGD(module.parameters(), 0.1).zero_grad()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_first_forward_makes_them_ordinary(dtype):
    module = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d()).to(dtype)
    assert module[0].weight.dtype is dtype
    module(torch.ones(2, 5, dtype=dtype)).sum().backward()
    w = module[0].weight
    assert type(w) is nn.Parameter and w.shape == (3, 5) and w.dtype is dtype and w.grad.shape == (3, 5)
    assert (w + 1).shape == (3, 5) and module[1].running_mean.shape == (3,)
    other = nn.LazyLinear(3)
    other.load_state_dict(nn.Linear(4, 3).state_dict())
    assert other.weight.shape == (3, 4)


def test_in_a_process_that_has_shared_memory() -> None:
    """From the first share on, a storage is told of its tensors as they are made, and reads nothing of this one."""
    storage.begin_following(torch.Tensor)
    assert nn.parameter.is_lazy(nn.LazyLinear(3).weight)
