"""Training in several processes gives what one process gives with the whole batch."""

from __future__ import annotations

from pathlib import Path

import pytest

import engine.distributed as dist
from engine import nn

from .jobs import TRANSPORTS, WITH_MPI, job, well

NETS = """
    from engine.nn.parallel import DistributedDataParallel as DDP
    engine.manual_seed(0)
    x, y = engine.randn(8 * size, 6), engine.randn(8 * size, 3)
    own = slice(8 * rank, 8 * rank + 8)
    def net(norm=True):
        engine.manual_seed(1)
        layers = [nn.Linear(6, 32), nn.BatchNorm1d(32) if norm else nn.Identity(), nn.ReLU(), nn.Linear(32, 32),
                  nn.Tanh(), nn.Linear(32, 3)]
        return nn.Sequential(*layers)
    def step(model, optimizer, x, y):
        optimizer.zero_grad(); nn.functional.mse_loss(model(x), y).backward(); optimizer.step()
    def apart(a, b):
        return max(float((p - q).abs().max()) for p, q in zip(a.state_dict().values(), b.state_dict().values()))
"""


@pytest.mark.long
@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_ddp_and_sync_batch_norm_equal_one_process(transport: str, size: int, tmp_path: Path) -> None:
    body = (
        NETS
        + """
    one = net()
    if rank: engine.manual_seed(7)
    many = nn.SyncBatchNorm.convert_sync_batchnorm(net())
    if rank: many[0].weight.data.add_(3)  # becomes the first process's
    for megabytes in (25, 0.001):
        model = DDP(many, bucket_cap_mb=megabytes)
        a, b = (engine.optim.SGD(m.parameters(), 0.1, momentum=0.9) for m in (model, one))
        for _ in range(3):
            step(model, a, x[own], y[own]); step(one, b, x, y)
        assert apart(many, one) < 1e-6, apart(many, one)
    many.eval(), one.eval()
    assert float((model(x) - one(x)).abs().max()) < 1e-6
    assert list(model.state_dict())[0] == "module.0.weight"
    print("equal")
    """
    )
    assert "".join(well(job(body, size, tmp_path, transport=transport))).count("equal") == size


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_no_sync_unused_parameters_and_ignored_ones(transport: str, tmp_path: Path) -> None:
    body = (
        NETS
        + """
    one = net(norm=False); model = DDP(net(norm=False), bucket_cap_mb=0.001)
    with model.no_sync():
        nn.functional.mse_loss(model(x[own][:4]), y[own][:4]).backward()
    alone = model.module[0].weight.grad.clone()
    other = [engine.zeros_like(alone) for _ in range(size)]; dist.all_gather(other, alone)
    assert not bool((other[0] == other[1]).all())
    nn.functional.mse_loss(model(x[own][4:]), y[own][4:]).backward()
    (2 * nn.functional.mse_loss(one(x), y)).backward()
    assert float((model.module[0].weight.grad - one[0].weight.grad).abs().max()) < 1e-6

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.never = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
        def forward(self, x, which):
            return {"out": [self.a(x) if which else self.b(x)]}
    model = DDP(Two(), find_unused_parameters=True)
    for _ in range(2):
        model(engine.ones(1, 2), rank == 0)["out"][0].sum().backward()
    assert model.module.a.bias.grad.tolist() == [1, 1], model.module.a.bias.grad  # half of 1, twice
    assert model.module.b.bias.grad.tolist() == [1, 1] and model.module.never.bias.grad is None
    model = DDP(Two())
    model(engine.ones(1, 2), True)["out"][0].sum().backward()
    try:
        model(engine.ones(1, 2), True)
    except RuntimeError as error:
        assert "Expected to have finished reduction in the prior iteration" in str(error) and "b.weight" in str(error)
        print("told")
    """
    )
    assert "".join(well(job(body, 2, tmp_path, transport=transport))).count("told") == 2


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_modules_that_differ_are_refused(transport: str, tmp_path: Path) -> None:
    body = (
        NETS
        + """
    try:
        DDP(nn.Linear(2, 2 + rank))
    except RuntimeError as error:
        print("differ" in str(error))
    """
    )
    assert "".join(well(job(body, 2, tmp_path, transport=transport))).count("True") == 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("transport", "size"),
    [("shared memory", 2), pytest.param("mpi", 2, marks=WITH_MPI), pytest.param("mpi", 4, marks=WITH_MPI)],
)
def test_zero_redundancy_optimizer_equals_its_optimizer(transport: str, size: int, tmp_path: Path) -> None:
    body = (
        NETS
        + """
    from engine.distributed.optim import ZeroRedundancyOptimizer
    a, b = net(), net()
    def groups(m):
        return [{"params": m[0].parameters(), "lr": 0.05}, {"params": [p for l in m[1:] for p in l.parameters()]}]
    zero, whole = ZeroRedundancyOptimizer(groups(a), engine.optim.Adam, lr=0.01), engine.optim.Adam(groups(b), lr=0.01)
    for model, optimizer in ((a, zero), (b, whole)):
        schedule = engine.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        for _ in range(3):
            step(model, optimizer, x, y); schedule.step()
    assert apart(a, b) == 0
    held = sum(len(s) for s in zero.optim.state.values())
    assert 0 < held < sum(len(s) for s in whole.state.values())
    try:
        zero.state_dict()
    except RuntimeError as error:
        assert "has not been consolidated" in str(error)
    zero.consolidate_state_dict(to=1)
    saved = [zero.state_dict() if rank == 1 else None]
    dist.broadcast_object_list(saved, src=1)
    assert saved[0]["state"].keys() == whole.state_dict()["state"].keys()
    again = ZeroRedundancyOptimizer(groups(a), engine.optim.Adam, lr=0.01); again.load_state_dict(saved[0])
    step(a, again, x, y); step(b, whole, x, y)
    assert apart(a, b) == 0, apart(a, b)
    print("equal")
    """
    )
    assert "".join(well(job(body, size, tmp_path, transport=transport))).count("equal") == size


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_gradients_go_through_collective_calls(transport: str, tmp_path: Path) -> None:
    body = """
        from engine.distributed.nn import functional as C
        x = engine.full((2,), rank + 1.0, requires_grad=True)
        (C.all_reduce(x) ** 2).sum().backward()
        assert x.grad.tolist() == [12.0, 12.0]  # 2 * 3 from each of the two
        x.grad = None
        (engine.stack(C.all_gather(x)) * engine.tensor([[1.0], [10.0]])).sum().backward()
        assert x.grad.tolist() == [2.0 * 10**rank] * 2
        print("right")
    """
    assert "".join(well(job(body, 2, tmp_path, transport=transport))).count("right") == 2


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_samplers_share_the_data(transport: str, tmp_path: Path) -> None:
    body = """
        from engine.utils.data.distributed import DistributedSampler
        found = [None] * size
        dist.all_gather_object(found, list(DistributedSampler(range(10), shuffle=True, seed=3)))
        assert sorted(i for part in found for i in part) == list(range(10))
        print("shared")
    """
    assert "".join(well(job(body, 2, tmp_path, transport=transport))).count("shared") == 2


def test_before_init() -> None:
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
    norm = nn.SyncBatchNorm(3)
    from engine import randn

    norm(randn(4, 3)).sum().backward()  # alone it is a BatchNorm
    assert norm.weight.grad is not None
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(RuntimeError, match="doesn't have any parameter that requires a gradient"):
            nn.parallel.DistributedDataParallel(nn.ReLU())
    finally:
        dist.destroy_process_group()
