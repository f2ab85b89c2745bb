"""`hub check`: every entrypoint of a repository in a process of its own, stage by stage.

Read and dependencies are static and cost no process.  The others, build, state-dict, forward and
backward, run in one child an entrypoint (`jobs`), in the sandbox that the command chose.  A child
that is killed, hangs or ends by itself is one failed row, in the stage that it was in.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree

from hubcli.base import output
from hubcli.base.request import Request
from hubcli.cache.checkouts import Checkout
from hubcli.confined import sandbox
from hubcli.confined.sandbox import Mechanism
from hubcli.errors import Cause, HubError, RepositoryCodeError, UsageError
from hubcli.reading import binding, dependencies, hubconf, imports
from hubcli.reading.hubconf import EntryPoint, HubConf

if TYPE_CHECKING:
    from hubcli.confined.supervisor import Outcome

Status = Literal["passed", "failed", "skipped", "needs-network"]
READ, DEPENDENCIES, CHECK = "read", "dependencies", "check"
TIMEOUT = 300.0
_DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool")
_SHAPE = re.compile(r"(\d{1,9}(?:,\d{1,9})*)(?::(\w+))?\Z")
_MAX_ELEMENTS = 1 << 28


@dataclass(frozen=True)
class Row:
    """One stage of one entrypoint; `seconds` it took, `error` why it is not passed."""

    entrypoint: str
    stage: str
    status: Status
    seconds: float = 0.0
    error: str | None = None
    printed: str = ""
    causes: tuple[Cause, ...] = ()

    def described(self) -> str:
        """Return why it is not passed, and a line for each cause."""
        return "\n".join([self.error or "", *output.causes(self.causes)])


@dataclass(frozen=True)
class Checked:
    """The rows of all entrypoints, in the order of the hubconf and the stages."""

    spec: str
    local: bool
    sandbox: str
    rows: tuple[Row, ...]
    seconds: float

    def count(self, *statuses: Status) -> int:
        """Return how many rows have one of these."""
        return sum(row.status in statuses for row in self.rows)


@dataclass(frozen=True)
class CheckPlan:
    """The options of a check: the arguments of the call, inputs, limits."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    framework: str = "engine"
    device: str | None = None
    shapes: tuple[Mapping[str, Any], ...] = ()
    backward: bool = False
    timeout: float = TIMEOUT
    jobs: int | None = None
    fresh: bool = False
    select: str | None = None
    allow_skipped: bool = False

    def stages(self) -> tuple[str, ...]:
        """Return the stages that run code."""
        backward = ("backward",) if self.backward else ()
        return ("build", "state-dict", *(("forward", *backward) if self.shapes else ()))


def refused(checkout: Checkout, conf: HubConf, names: Sequence[str], plan: CheckPlan) -> dict[str, str]:
    """Return the entrypoints of `names`, or of all, whose signature does not take the plan's arguments, and why."""
    found = {}
    for name in names or [entry.name for entry in conf.entrypoints]:
        refusal = binding.refusal(checkout.path, conf, name, plan.args, plan.kwargs)
        if refusal is not None:
            found[name] = f"{name}: {refusal.reason} (hint: {refusal.hint})"
    return found


def will_run(checkout: Checkout, names: Sequence[str], plan: CheckPlan) -> bool:
    """Return whether code of the repository runs in this check, so that somebody has to allow it.

    UsageError where the arguments that the user gave are refused by a signature: of a named entrypoint, or of all.
    """
    try:
        conf = hubconf.read(checkout.path)
    except HubError:
        return True
    if conf.dynamic:
        return True
    for name in names:
        conf.entrypoint(name, spec=str(checkout.spec), renewal=checkout.renewal())
    own = [entry.name for entry in conf.entrypoints if names or not entry.external]
    wanted = list(names) or own
    no = refused(checkout, conf, wanted, plan)
    if (plan.args or plan.kwargs) and no and (names or len(no) == len(wanted)):
        name, text = next(iter(no.items()))
        reason, _, hint = text.partition(" (hint: ")
        raise UsageError(reason, hint=hint.removesuffix(")"), spec=str(checkout.spec))
    return len(no) < len(wanted)


def shape(text: str) -> dict[str, Any]:
    """Return an input from `N,C,H,W`, or `N,T:int64` for another type than float32; UsageError."""
    match = _SHAPE.match(text)
    dtype = (match.group(2) if match else None) or "float32"
    sizes = [int(size) for size in match.group(1).split(",")] if match else []
    elements = 1
    for size in sizes:
        elements *= size
    if match is None or dtype not in _DTYPES or elements > _MAX_ELEMENTS:
        raise UsageError(
            f"--input-shape {text!r} is not sizes of at most {_MAX_ELEMENTS} elements",
            hint=f"e.g. 1,3,224,224, or 1,16:int64 (types: {', '.join(_DTYPES)})",
        )
    return {"shape": sizes, "dtype": dtype}


def check(
    checkout: Checkout,
    names: Sequence[str],
    plan: CheckPlan,
    chosen: Mechanism,
    done: Callable[[Row], None] | None = None,
) -> Checked:
    """Check the entrypoints `names`, or all that the repository itself defines.

    `done` is called with each row as it is known.  NotFoundError for a name that is not there.
    """
    started = time.monotonic()
    done = done or (lambda row: None)
    rows: dict[str, list[Row]] = {}

    def add(row: Row) -> None:
        rows.setdefault(row.entrypoint, []).append(row)
        done(row)

    def made() -> Checked:
        flat = tuple(row for entry in rows.values() for row in entry)
        local, seconds = checkout.kind == "local", time.monotonic() - started
        return Checked(str(checkout.spec), local, chosen.name, flat, seconds)

    conf, error, seconds = _read(checkout, plan, chosen)
    if conf is None:
        text, causes = (error.message, error.causes) if error is not None else ("", ())
        add(Row("hubconf.py", READ, "failed", seconds, text, causes=causes))
        return made()
    entries = {entry.name: entry for entry in conf.entrypoints}
    if names:
        wanted = [
            conf.entrypoint(name, spec=str(checkout.spec), renewal=checkout.renewal()) for name in dict.fromkeys(names)
        ]
    else:
        wanted = list(entries.values())
        if not wanted:
            add(Row("hubconf.py", READ, "failed", seconds, "it defines no entrypoint"))
    missing, spent = _dependencies(checkout, conf, plan)
    waived = missing is not None and Request.current().allow_missing
    no = refused(checkout, conf, [entry.name for entry in wanted], plan)
    pending: list[EntryPoint] = []
    for entry in wanted:
        rows[entry.name] = []
        if entry.external and not names:
            text = "defined in another package; name it to check it"
            add(Row(entry.name, READ, "skipped", 0.0, text))
            continue
        add(Row(entry.name, READ, "passed", seconds / len(wanted)))
        status: Status = "skipped" if waived else "failed" if missing else "passed"
        add(Row(entry.name, DEPENDENCIES, status, spent / len(wanted), missing))
        if missing and not waived:
            for stage in plan.stages():
                add(Row(entry.name, stage, "skipped", 0.0, "dependencies are missing"))
        elif entry.name in no:
            _refuse(entry.name, no[entry.name], plan, bool(names), add)
        else:
            pending.append(entry)
    if pending:
        _run_all(checkout, pending, plan, chosen, bool(names), add)
    for row in _unchecked(rows, plan, bool(names)):
        add(row)
    return made()


def _refuse(name: str, text: str, plan: CheckPlan, named: bool, add: Callable[[Row], None]) -> None:
    """The rows of an entrypoint that is not called, because its signature does not take the arguments."""
    first, *rest = plan.stages()
    status: Status = "failed" if named else "skipped"
    add(Row(name, first, status, 0.0, text if named else f"it needs arguments: {text}"))
    for stage in rest:
        add(Row(name, stage, "skipped", 0.0, "not reached" if named else "not built"))


def _unchecked(rows: Mapping[str, Sequence[Row]], plan: CheckPlan, named: bool) -> list[Row]:
    """Return a failed row where nothing was checked: for each named entrypoint, else where that is so for all together.

    Checked is what has passed the state-dict stage, or forward where there are inputs.
    """
    last = "forward" if plan.shapes else "state-dict"
    passed = {name: any(row.stage == last and row.status == "passed" for row in many) for name, many in rows.items()}
    failed = {name: any(row.status == "failed" for row in many) for name, many in rows.items()}
    if plan.allow_skipped or (not named and (any(passed.values()) or any(failed.values()))):
        return []
    waiting = any(row.status == "needs-network" for many in rows.values() for row in many)
    network = "--no-sandbox gives it a network, " if waiting else ""
    advice = f"(hint: {network}--allow-skipped is content with that)"
    found = []
    for name in [one for one in rows if not (passed[one] or failed[one])]:
        reasons = [row.error.partition(" (hint: ")[0] for row in rows[name] if row.status != "passed" and row.error]
        why = f"nothing of it was checked: {reasons[0] if reasons else 'it was skipped'}"
        found.append(Row(name, CHECK, "failed", 0.0, f"{why} {advice}"))
    if named or len(found) < 2:
        return found
    return [Row("hubconf.py", CHECK, "failed", 0.0, f"none of {len(found)} entrypoints was checked {advice}")]


def _read(checkout: Checkout, plan: CheckPlan, chosen: Mechanism) -> tuple[HubConf | None, HubError | None, float]:
    started = time.monotonic()
    try:
        conf = hubconf.read(checkout.path)
        if conf.dynamic:  # only running it tells its names
            from hubcli.confined import jobs
            from hubcli.confined.broker import Broker

            job = jobs.Job("list", checkout, framework=plan.framework)
            conf = jobs.listing(job, chosen, Broker(checkout, "", framework=plan.framework), seconds=plan.timeout)
    except RepositoryCodeError as error:
        return None, error, time.monotonic() - started
    return conf, None, time.monotonic() - started


def _dependencies(checkout: Checkout, conf: HubConf, plan: CheckPlan) -> tuple[str | None, float]:
    started = time.monotonic()
    report = dependencies.check(conf.dependencies, root=checkout.path, framework=plan.framework)
    text = f"missing: {', '.join(report.missing)}" if report.missing else None
    if text:
        found = imports.survey(checkout.path)
        whole = dependencies.check(conf.dependencies, root=checkout.path, framework=plan.framework, survey=found)
        text += f" ({whole.hint})"
    return text, time.monotonic() - started


def _run_all(
    checkout: Checkout,
    entries: Sequence[EntryPoint],
    plan: CheckPlan,
    chosen: Mechanism,
    explicit: bool,
    add: Callable[[Row], None],
) -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    count = max(1, min(plan.jobs or cores or 1, len(entries)))
    cancelled = threading.Event()
    lock = threading.Lock()

    def one(entry: EntryPoint) -> None:
        if not cancelled.is_set():
            try:
                made = _run(checkout, entry, plan, chosen, explicit, count, cancelled)
            except Exception as error:  # whatever one of them has brought about: the others count
                if isinstance(error, HubError) and "could not be started" in error.message:
                    raise
                text = error.message if isinstance(error, HubError) else f"{type(error).__name__}: {error}"
                made = [Row(entry.name, plan.stages()[0], "failed", 0.0, output.printable(text)[:2000])]
            with lock:
                for row in made:
                    add(row)

    with ThreadPoolExecutor(count) as pool:
        waiting = [pool.submit(copy_context().run, one, entry) for entry in entries]
        try:
            for future in waiting:
                future.result()
        except BaseException:
            cancelled.set()
            pool.shutdown(cancel_futures=True)
            raise


def _run(
    checkout: Checkout,
    entry: EntryPoint,
    plan: CheckPlan,
    chosen: Mechanism,
    explicit: bool,
    count: int,
    cancelled: threading.Event,
) -> list[Row]:
    """Return the rows of one entrypoint's child."""
    from hubcli.confined import jobs
    from hubcli.confined.broker import Broker

    job = jobs.Job(
        "check",
        checkout,
        entry.name,
        plan.args,
        plan.kwargs,
        plan.framework,
        plan.fresh,
        {
            "shapes": list(plan.shapes),
            "backward": plan.backward,
            "device": plan.device,
            "select": plan.select,
            "named": explicit,
        },
    )
    events: list[Mapping[str, Any]] = []
    with sandbox.session() as here:
        broker = Broker(checkout, entry.name, framework=plan.framework, fresh=plan.fresh, inbox=here.inbox)
        outcome = sandbox.perform(
            job,
            chosen,
            here,
            limits=sandbox.default_limits(plan.timeout, share=count),
            broker=broker,
            report=events.append,
            cancelled=cancelled,
            threads=max(1, (os.cpu_count() or 1) // count),
        )
    return _rows(entry.name, plan.stages(), events, outcome, explicit)


def _rows(
    name: str,
    stages: Sequence[str],
    events: Sequence[Mapping[str, Any]],
    outcome: Outcome,
    explicit: bool,
) -> list[Row]:
    """Return a row a stage, from what the child reported, which is believed in nothing else."""
    ended = {str(event.get("stage")): event for event in events if event.get("status") != "begun"}
    rows: list[Row] = []
    open_at = outcome.seconds
    for stage in stages:
        event = ended.get(stage)
        if event is not None and event.get("status") in ("passed", "skipped"):
            seconds = event.get("seconds")
            seconds = min(max(float(seconds), 0.0), outcome.seconds) if isinstance(seconds, int | float) else 0.0
            open_at = max(open_at - seconds, 0.0)
            text = event.get("error")
            error = output.printable(text)[:2000] if isinstance(text, str) else None
            status: Status = "passed" if event["status"] == "passed" else "skipped"
            rows.append(Row(name, stage, status, seconds, error))
            continue
        status, error = _failure(outcome, stage, explicit)
        causes = outcome.error.causes if outcome.error is not None and status != "skipped" else ()
        rows.append(Row(name, stage, status, open_at, error, outcome.printed[-4000:], causes))
        break
    reason = "not reached" if rows[-1].status != "skipped" else "not built"
    rows += [Row(name, stage, "skipped", 0.0, reason) for stage in stages[len(rows) :]]
    return rows


def _failure(outcome: Outcome, stage: str, explicit: bool) -> tuple[Status, str]:
    if outcome.ended is not None:
        return "failed", outcome.ended.text
    error = outcome.error
    if error is None:
        return "failed", "the process said nothing of this stage"
    text = output.printable(error.message)
    if error.code == "needs_network":
        return "needs-network", text
    of_options = text.startswith(("--device ", "--select "))
    if error.code == UsageError.code and stage == "build" and not explicit and not of_options:
        return "skipped", f"it needs arguments: {text}"
    generic = error.code == RepositoryCodeError.code and "HUB_DEBUG" in (error.hint or "")
    if isinstance(error, HubError) and error.hint and not generic:
        text += f" (hint: {output.printable(error.hint)})"
    return "failed", text


# Reports


def document(checked: Checked) -> dict[str, Any]:
    """As the JSON document of `hub check`; skipped counts what needs the network too."""
    return {
        "results": [
            {
                "entrypoint": row.entrypoint,
                "stage": row.stage,
                "status": row.status,
                "seconds": round(row.seconds, 6),
                "error": row.error,
                "causes": [{"kind": one.kind, "text": one.text} for one in row.causes],
            }
            for row in checked.rows
        ],
        "passed": checked.count("passed"),
        "failed": checked.count("failed"),
        "skipped": checked.count("skipped", "needs-network"),
        "sandbox": checked.sandbox,
    }


def junit(checked: Checked) -> bytes:
    """As JUnit XML: one test case a row, its class the spec and the entrypoint."""
    counts = {
        "tests": str(len(checked.rows)),
        "failures": str(checked.count("failed")),
        "errors": "0",
        "skipped": str(checked.count("skipped", "needs-network")),
        "time": f"{checked.seconds:.3f}",
    }
    root = ElementTree.Element("testsuites", {"name": "hub check", **counts})
    title = _xml(checked.spec.rstrip("/").rpartition("/")[2] if checked.local else checked.spec)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    suite = ElementTree.SubElement(root, "testsuite", {"name": title, **counts, "timestamp": stamp})
    for row in checked.rows:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            {
                "classname": f"{title}.{_xml(row.entrypoint)}",
                "name": _xml(f"{row.entrypoint}: {row.stage}"),
                "file": "hubconf.py",
                "time": f"{row.seconds:.3f}",
            },
        )
        text = _xml(row.described())
        if row.status == "failed":
            failure = {"message": text.partition("\n")[0][:500], "type": row.stage}
            ElementTree.SubElement(case, "failure", failure).text = text
        elif row.status != "passed":
            prefix = "needs-network: " if row.status == "needs-network" else ""
            ElementTree.SubElement(case, "skipped", {"message": prefix + text.partition("\n")[0][:500]})
        if row.printed and row.status != "passed":
            ElementTree.SubElement(case, "system-out").text = _xml(row.printed)
    ElementTree.indent(root)
    made: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return made + b"\n"


def _xml(text: str) -> str:
    """Without the characters that XML 1.0 cannot hold."""
    return "".join(
        c
        for c in output.printable(text)
        if c in "\t\n\r" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c >= "\U00010000"
    )
