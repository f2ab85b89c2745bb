"""autograd.profiler (rules PF01-PF10)."""

import json

import pytest

import engine
from engine.autograd import profiler

from ._util import check, leaf, quiet


def named(events, name):
    """The events of the op `name`, whatever prefix ("aten::") names carry."""
    return [e for e in events if e.name.split("::")[-1] == name]


def record(f, **options):
    with quiet(), profiler.profile(**options) as prof:
        f()
    return prof


def test_pf01_events():
    """PF01: profile records the ops run inside, in order of time, with names and cpu times."""
    x, y = engine.ones(3, 3), engine.ones(3, 3)

    def f():
        x.mm(y)
        x.exp()
        engine.sin(x)

    prof = record(f)
    events = prof.function_events
    ours = [named(events, name) for name in ("mm", "exp", "sin")]
    assert [len(found) for found in ours] == [1, 1, 1]
    starts = [found[0].time_range.start for found in ours]
    assert starts == sorted(starts)
    for (event,) in ours:
        assert event.cpu_time_total >= 0 and event.self_cpu_time_total >= 0
        assert event.cpu_time >= 0 and event.count == 1
        assert event.time_range.end >= event.time_range.start
    all_starts = [e.time_range.start for e in events]
    assert all_starts == sorted(all_starts)
    assert prof.self_cpu_time_total >= 0


def test_pf02_averages():
    """PF02: key_averages groups by name with counts; total_average, table and str work."""
    x = engine.ones(3)

    def f():
        for _ in range(5):
            x.exp()
        x.sin()
        x.sin()

    prof = record(f)
    averages = prof.key_averages()
    counts = {e.key.split("::")[-1]: e.count for e in averages}
    assert counts["exp"] == 5 and counts["sin"] == 2
    total = prof.total_average()
    assert total.count == len(prof.function_events)
    assert total.self_cpu_time_total >= 0
    for text in (prof.table(), str(prof), averages.table(), str(averages)):
        assert "exp" in text and "sin" in text
    rows = averages.table(sort_by="count", row_limit=1)
    assert "exp" in rows and "sin" not in rows
    for key in ("cpu_time", "cpu_time_total", "self_cpu_time_total", "count"):
        assert "exp" in averages.table(sort_by=key)
    assert "exp" in prof.table(sort_by="cpu_time_total", row_limit=10)


def test_pf03_disabled():
    """PF03: enabled=False records nothing and raises nothing."""
    with profiler.profile(enabled=False) as prof:
        y = engine.ones(2).exp()
    check(y, [2.718281828, 2.718281828])
    assert prof is None or not prof.function_events


def test_pf04_chrome_trace(tmp_path):
    """PF04: export_chrome_trace writes JSON with one complete event per op."""
    x = engine.ones(3)
    prof = record(lambda: (x.exp(), x.sin(), x.sin()))
    path = tmp_path / "trace.json"
    prof.export_chrome_trace(str(path))
    trace = json.loads(path.read_text())
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    complete = [e for e in events if e["ph"] == "X"]
    names = [e["name"].split("::")[-1] for e in complete]
    assert names.count("exp") == 1 and names.count("sin") == 2
    for event in complete:
        assert event["dur"] >= 0 and event["ts"] >= 0 and "tid" in event and "pid" in event


def test_pf05_backward():
    """PF05: backward ops are recorded too."""
    x = leaf(3)

    def f():
        (x.exp() * x).sum().backward()

    prof = record(f)
    names = [e.name for e in prof.function_events]
    assert any("ExpBackward" in name for name in names)
    assert any("MulBackward" in name for name in names)
    check(x.grad, (x.exp() * (1 + x)).tolist())


def test_pf05_python_functions():
    """PF05: backward ops are recorded too."""

    class Own(engine.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            return t * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    x = leaf(3)
    prof = record(lambda: Own.apply(x).sum().backward())
    assert any("OwnBackward" in e.name for e in prof.function_events)


def test_pf06_record_shapes():
    """PF06: record_shapes and use_cuda are accepted; group_by_input_shape works."""
    a, b = engine.ones(2, 3), engine.ones(3, 4)

    def f():
        a.mm(b)
        a.mm(b)
        b.t().mm(a.t())

    prof = record(f, record_shapes=True, use_cuda=False)
    (first, *_) = named(prof.function_events, "mm")
    assert [list(s) for s in first.input_shapes[:2]] == [[2, 3], [3, 4]]
    groups = prof.key_averages(group_by_input_shape=True)
    counts = sorted(e.count for e in groups if e.key.split("::")[-1] == "mm")
    assert counts == [1, 2]
    assert [e.count for e in prof.key_averages() if e.key.split("::")[-1] == "mm"] == [3]


def test_pf07_record_function():
    """PF07: record_function labels a block, nested ops are its children."""
    x = engine.ones(3)

    def f():
        with profiler.record_function("my block"):
            x.exp()
        x.sin()

    prof = record(f)
    (block,) = [e for e in prof.function_events if e.name == "my block"]
    children = [e.name.split("::")[-1] for e in block.cpu_children]
    assert "exp" in children and "sin" not in children
    with profiler.record_function("outside"):
        x.exp()


def test_pf08_nvtx_and_nvprof():
    """PF08: emit_nvtx(enabled=False) is a no-op; load_nvprof exists."""
    with profiler.emit_nvtx(enabled=False):
        check(engine.zeros(2).exp(), [1, 1])
    assert callable(profiler.load_nvprof)
    assert engine.autograd.profiler is profiler


def test_pf09_one_after_another():
    """PF09: a second profile inside or after a first works on its own; nothing is recorded
    outside.
    """
    x = engine.ones(3)
    first = record(lambda: x.exp())
    x.cos()
    second = record(lambda: x.sin())
    assert named(first.function_events, "exp") and not named(first.function_events, "sin")
    assert named(second.function_events, "sin") and not named(second.function_events, "exp")
    assert not named(first.function_events + second.function_events, "cos")


def test_pf09_one_inside_another():
    """PF09: a second profile inside or after a first works on its own; nothing is recorded
    outside.
    """
    x = engine.ones(3)
    with quiet(), profiler.profile() as outer:
        x.exp()
        with profiler.profile() as inner:
            x.sin()
        x.cos()
    assert len(named(inner.function_events, "sin")) == 1
    assert not named(inner.function_events, "exp") and not named(inner.function_events, "cos")
    assert len(named(outer.function_events, "exp")) == 1
    assert len(named(outer.function_events, "cos")) == 1


def test_pf09_an_exception_in_the_block():
    """PF09: a second profile inside or after a first works on its own; nothing is recorded
    outside.
    """
    with quiet(), pytest.raises(KeyError), profiler.profile():
        raise KeyError
    assert len(named(record(lambda: engine.ones(2).exp()).function_events, "exp")) == 1


def test_pf10_read_after_the_block():
    """PF10: the profiler's results are read only after the block."""
    prof = record(lambda: engine.ones(2).exp())
    assert named(prof.function_events, "exp")
    assert list(prof.function_events) == list(prof.function_events)
    assert len(prof.key_averages()) > 0


def test_pf10_inside_the_block():
    """PF10: the profiler's results are read only after the block."""
    with quiet(), profiler.profile() as prof:
        engine.ones(2).exp()
        try:
            early = prof.key_averages()
        except (RuntimeError, AssertionError):
            early = []
        assert list(early) == []
        engine.ones(2).sin()
    assert named(prof.function_events, "exp")


def test_nothing_is_left_when_the_profile_ends():
    """The wrappers round the kernels are there during a profile only."""
    from engine.autograd import engine as backward_engine
    from engine.dispatch import binder

    x = engine.ones(2)
    x.exp()
    (namespace, *_) = engine.dispatch.OPS["exp"].namespaces
    plain = namespace["kernel"]
    with profiler.profile():
        assert namespace["kernel"] is not plain
    assert namespace["kernel"] is plain
    assert not binder.wrappers and not backward_engine.observers


def test_record_function_decorates():
    """record_function as a decorator labels each call."""

    @profiler.record_function("doubled")
    def f(t):
        return t * 2

    prof = record(lambda: (f(engine.ones(2)), f(engine.ones(2))))
    averages = {e.key: e for e in prof.key_averages()}
    assert averages["doubled"].count == 2
    assert averages["doubled"].self_cpu_time_total <= averages["doubled"].cpu_time_total


def test_memory_and_stack():
    """profile_memory counts the bytes of results, with_stack keeps the callers outside the engine."""
    x = engine.ones(100)
    prof = record(lambda: x.exp(), profile_memory=True, with_stack=True)
    (event,) = named(prof.function_events, "exp")
    assert event.cpu_memory_usage == 400
    assert "test_profiler.py" in event.stack[0]
    assert "Source Location" in prof.table() and "CPU Mem" in prof.table()


def test_memory_of_results_that_are_views():
    """A result that is a view of a buffer made for it counts; a view of the input does not."""
    x = engine.ones(2, 3, 8, 8)
    weight = engine.ones(4, 3, 3, 3)
    prof = record(lambda: engine.conv2d(x, weight), profile_memory=True)
    (event,) = named(prof.function_events, "convolution")
    assert event.cpu_memory_usage == 2 * 4 * 6 * 6 * 4
    prof = record(lambda: x.view(6, 64), profile_memory=True)
    assert sum(one.self_cpu_memory_usage for one in prof.function_events) == 0


def test_table_refuses_unknown_keys():
    """table: ValueError names the keys it can sort by."""
    prof = record(lambda: engine.ones(2))
    with pytest.raises(ValueError, match="sort_by must be one of"):
        prof.table(sort_by="speed")


def test_no_cuda():
    """Where there is no CUDA, use_cuda warns and emit_nvtx refuses with a sentence."""
    if any(backend.kind == "cuda" for backend in engine.backends.registered()):
        pytest.skip("CUDA is in use")
    with pytest.warns(UserWarning, match="CUDA is not available"):
        profiler.profile(use_device="cuda")
    with (
        pytest.warns(FutureWarning, match="use_cuda` will be deprecated soon, please use ``use_device = 'cuda'``"),
        pytest.warns(UserWarning, match="CUDA is not available"),
    ):
        profiler.profile(use_cuda=True)
    with pytest.raises(RuntimeError, match="emit_nvtx needs CUDA"), profiler.emit_nvtx():
        pass


def test_load_nvprof(tmp_path):
    """load_nvprof reads ranges and the kernels started inside them; ns become us."""
    import sqlite3

    path = tmp_path / "trace.sqlite"
    db = sqlite3.connect(path)
    db.executescript("""
        CREATE TABLE StringTable (_id_ INTEGER PRIMARY KEY, value TEXT);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MARKER (_id_ INTEGER, id INTEGER, name INTEGER, timestamp INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME
            (_id_ INTEGER, cbid INTEGER, start INTEGER, end INTEGER, correlationId INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
            (_id_ INTEGER, start INTEGER, end INTEGER, name INTEGER, correlationId INTEGER);
        INSERT INTO StringTable VALUES (1, 'aten::mm'), (2, 'aten::add'), (3, 'sgemm');
        INSERT INTO CUPTI_ACTIVITY_KIND_MARKER VALUES
            (1, 8, 2, 9000), (2, 8, 0, 9500), (3, 7, 1, 1000), (4, 7, 0, 5000);
        INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1, 211, 2000, 3000, 40);
        INSERT INTO CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL VALUES (1, 3500, 6000, 3, 40);
    """)
    db.commit()
    db.close()
    events = profiler.load_nvprof(path)
    assert [e.name for e in events] == ["aten::mm", "aten::add"]
    assert events[0].cpu_time_total == 4 and events[0].cuda_time_total == 2.5
    assert events[0].kernels[0].name == "sgemm"
    assert events.key_averages()[0].count == 1
    assert "aten::mm" in events.table()
    (tmp_path / "text").write_text("no database")
    with pytest.raises(ValueError, match="not an SQLite file of nvprof"):
        profiler.load_nvprof(tmp_path / "text")
    with pytest.raises(FileNotFoundError):
        profiler.load_nvprof(tmp_path / "missing")


def test_a_profile_keeps_what_trials_decided():
    """A kernel made anew would compare and time its routes again: the first call of each kind in a profile took 100
    times as long."""
    from engine.dispatch import OPS

    engine.exp(engine.ones(3))
    spaces = OPS["exp"].namespaces
    before = [space["large"] for space in spaces]
    with quiet(), profiler.profile():
        engine.exp(engine.ones(3))
        assert all(space["large"] is not kernel for space, kernel in zip(spaces, before, strict=True))
    assert all(space["large"] is kernel for space, kernel in zip(spaces, before, strict=True))
