"""Programs of views, writes and detaching, drawn at random, and what torch 2.13 makes of them: `view_programs.json`.

A program is a list of steps over numbered tensors.  Its outcome is what each step raised, then for each tensor
`requires_grad`, `is_leaf`, the node's name and number, its base, its version, its elements and its gradient after a
backward pass of the sum of all.  Kept are programs that add something to what the others show.

Written by `PYTHONPATH=. PYTHON-WITH-TORCH-2.13 -m tests.engine.autograd.view_programs`.
"""

from __future__ import annotations

import json
import random
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("view_programs.json")
DRAWN, KEPT = 12000, 140

VIEWS: dict[str, Callable[[Any], Any]] = {
    "view": lambda t: t.view(-1),
    "reshape": lambda t: t.reshape(-1),
    "view_as": lambda t: t.view_as(t),
    "flatten": lambda t: t.flatten(),
    "unflatten": lambda t: t.unflatten(0, (1, -1)),
    "t": lambda t: t.t(),
    "T": lambda t: t.T,
    "mT": lambda t: t.mT,
    "transpose": lambda t: t.transpose(0, -1),
    "permute": lambda t: t.permute(tuple(reversed(range(t.dim())))),
    "movedim": lambda t: t.movedim(0, -1),
    "unsqueeze": lambda t: t.unsqueeze(0),
    "squeeze": lambda t: t.squeeze(),
    "squeeze 0": lambda t: t.squeeze(0),
    "select": lambda t: t.select(0, 0),
    "narrow": lambda t: t.narrow(0, 1, 1),
    "diagonal": lambda t: t.diagonal(),
    "expand": lambda t: t.expand(2, *t.shape),
    "expand_as": lambda t: t.expand_as(t),
    "unfold": lambda t: t.unfold(0, 1, 1),
    "as_strided": lambda t: t.as_strided((2,), (1,), 1),
    "[1:]": lambda t: t[1:],
    "[0]": lambda t: t[0],
    "[None]": lambda t: t[None],
    "[..., 0]": lambda t: t[..., 0],
    "[:]": lambda t: t[:],
    "detach": lambda t: t.detach(),
}
SEVERAL: dict[str, Callable[[Any], Any]] = {
    "chunk": lambda t: t.chunk(2),
    "chunk -1": lambda t: t.chunk(2, -1),
    "split": lambda t: t.split(1),
    "split_with_sizes": lambda t: t.split_with_sizes([1, t.shape[0] - 1]),
    "unbind": lambda t: t.unbind(),
    "unbind -1": lambda t: t.unbind(-1),
}
WRITES: dict[str, Callable[[Any], Any]] = {
    "mul_": lambda t: t.mul_(2),
    "add_": lambda t: t.add_(1),
    "zero_": lambda t: t.zero_(),
    "fill_": lambda t: t.fill_(3),
    "sigmoid_": lambda t: t.sigmoid_(),
    "masked_fill_": lambda t: t.masked_fill_(t > 1, 0.5),
    "data": lambda t: t.data.mul_(2),
    "[0] =": lambda t: t.__setitem__(0, 1.5),
    "[1:] =": lambda t: t.__setitem__(slice(1, None), 0.5),
    "[...] =": lambda t: t.__setitem__(..., 0.25),
}
WRITES_OF: dict[str, Callable[[Any, Any], Any]] = {
    "mul_": lambda t, o: t.mul_(o),
    "add_": lambda t, o: t.add_(o),
    "addcmul_": lambda t, o: t.addcmul_(o, o),
    "copy_": lambda t, o: t.copy_(o),
    "[0] =": lambda t, o: t.__setitem__(0, o),
    "[1:] =": lambda t, o: t.__setitem__(slice(1, None), o),
}
RESULTS: dict[str, Callable[[Any], Any]] = {
    "mul": lambda t: t * 3,
    "clone": lambda t: t.clone(),
    "sum": lambda t: t.sum(),
}
FLAGS: dict[str, Callable[[Any], Any]] = {
    "detach_": lambda t: t.detach_(),
    "requires_grad_": lambda t: t.requires_grad_(),
    "requires_grad_(False)": lambda t: t.requires_grad_(False),
    "retain_grad": lambda t: t.retain_grad(),
    "grad_fn": lambda t: t.grad_fn,
}
SHAPES = ([4], [2, 3], [3, 2], [2, 2], [2, 1], [2, 2, 2], [1, 3])


def draw(rng: random.Random) -> list[list[Any]]:
    """A program: ["leaf" or "plain", shape], then [kind, name, tensor, (operand,) without gradients]."""
    steps: list[list[Any]] = [[rng.choice(["leaf", "plain"]), rng.choice(SHAPES)]]
    count = 1
    if rng.random() < 0.45:
        steps.append(["result", "mul", 0, 0])
        count += 1
    if rng.random() < 0.5:
        steps.append([rng.choice(["leaf", "plain"]), steps[0][1] if rng.random() < 0.5 else rng.choice(SHAPES)])
        count += 1
    for _ in range(rng.randint(2, 7)):
        recent = count - 1 - min(count - 1, int(rng.expovariate(0.7)))
        at, other = rng.choice([recent, recent, rng.randrange(count)]), rng.randrange(count)
        kind = rng.choices(["view", "several", "write", "write of", "flag", "result"], [36, 10, 18, 16, 14, 6])[0]
        names = dict(zip(TABLES, (VIEWS, SEVERAL, WRITES, WRITES_OF, FLAGS, RESULTS)))[kind]
        quiet = int(rng.random() < 0.15)
        steps.append([kind, rng.choice(sorted(names)), at, *([other] if kind == "write of" else []), quiet])
        count += MADE.get(kind, 0)
    return steps


TABLES = ("view", "several", "write", "write of", "flag", "result")
MADE = {"leaf": 1, "plain": 1, "view": 1, "result": 1, "several": 2}


class LeftOut(Exception):
    """A program whose outcome is chance or the order of checks."""


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0]}"


def _ask(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:
        return _said(error)


def _step(lib: Any, step: list[Any], tensors: list[Any]) -> list[Any]:
    """The tensors that a step makes."""
    kind, name = step[:2]
    if kind in ("leaf", "plain"):
        count = 1
        for n in name:
            count *= n
        made = (lib.arange(count, dtype=lib.float32).reshape(name) + 1).clone() / 4
        return [made.requires_grad_() if kind == "leaf" else made]
    operands = [tensors[i] for i in step[2:-1]]
    if any(t is None for t in operands):
        return []
    with lib.set_grad_enabled(not step[-1]):
        if kind == "view":
            return [VIEWS[name](*operands)]
        if kind == "several":
            return list(SEVERAL[name](*operands))[:2]
        if kind == "result":
            return [RESULTS[name](*operands)]
        {"write": WRITES, "write of": WRITES_OF, "flag": FLAGS}[kind][name](*operands)
    return []


def _numbers(tensor: Any) -> list[float]:
    return [round(float(x), 3) + 0.0 for x in tensor.detach().reshape(-1).tolist()]


def _node(tensor: Any) -> list[Any] | None:
    node = tensor.grad_fn
    return None if node is None else [node.name(), tensor.output_nr]


def run(lib: Any, steps: list[list[Any]], check: Callable[[list[Any], list[Any]], None] | None = None) -> list[Any]:
    """The outcome of a program.  check(step, operands) sees each step that has operands before it is done."""
    tensors: list[Any] = []
    found: list[Any] = []
    for number, step in enumerate(steps):
        made: list[Any] = []
        try:
            if check is not None and step[0] not in ("leaf", "plain"):
                check(step, [tensors[i] for i in step[2:-1]])
            made = _step(lib, step, tensors)
        except LeftOut:
            raise
        except Exception as error:
            found.append([number, _said(error)])
        tensors += [*made, None, None][: MADE.get(step[0], 0)]
    there = [t for t in tensors if t is not None]
    for t in there:
        base = next((i for i, x in enumerate(there) if x is t._base), None)
        flags = [int(t.requires_grad), _ask(lambda: int(t.is_leaf))]  # noqa: B023
        found.append([*flags, _ask(lambda: _node(t)), base, t._version])  # noqa: B023
    total = None
    for number, t in enumerate(there):
        if t.requires_grad:
            part = _ask(lambda: (t * (number + 1)).sum())  # noqa: B023
            if isinstance(part, str):
                found.append(part)
            else:
                total = part if total is None else total + part
    if total is not None and (said := _ask(total.backward)) is not None:
        found.append(said)
    for t in there:
        leaf = _ask(lambda: t.is_leaf or t.retains_grad)  # noqa: B023
        found.append([_numbers(t), _numbers(t.grad) if leaf is True and t.grad is not None else None])
    return found


def load() -> list[tuple[list[list[Any]], list[Any]]]:
    """The programs and torch's outcomes."""
    stored = json.loads(FILE.read_text())

    def whole(value: Any) -> Any:
        if isinstance(value, list):
            return [whole(x) for x in value]
        return stored["messages"][int(value[1:])] if isinstance(value, str) and value.startswith("#") else value

    return [(steps, whole(outcome)) for steps, outcome in stored["programs"]]


def _check(step: list[Any], operands: list[Any]) -> None:
    """Leave out a program that reads what it writes where torch does not look for it, or has two faults in one step."""
    if any(t is None for t in operands):
        return
    reads = step[0] == "write of" and step[1] != "copy_" and (operands[0] is not operands[1] or "=" in step[1])
    if reads and operands[0].untyped_storage().data_ptr() == operands[1].untyped_storage().data_ptr():
        raise LeftOut
    if step[0] in ("view", "several") and not operands[0].dim() and isinstance(_ask(lambda: operands[0].grad_fn), str):
        raise LeftOut


def _shows(steps: list[list[Any]], outcome: list[Any]) -> set[Any]:
    """What a program shows: each error by step, each state of a tensor by how it was made and by the last write."""
    shown: set[Any] = set()
    refused = {part[0] for part in outcome if isinstance(part, list) and isinstance(part[-1], str)}
    done = [s for i, s in enumerate(steps) if i not in refused]
    last = [(s[0], s[1], s[-1]) for s in done if s[0] in ("write", "write of", "flag")][-1:]
    made = iter([(s[0], s[-1]) for s in done for _ in range(MADE.get(s[0], 0)) if s[0] not in ("leaf", "plain")])
    for part in outcome:
        if isinstance(part, str):
            shown.add(re.sub(r"\d+", "#", part))
        elif isinstance(part[-1], str):
            shown.add((*map(str, steps[part[0]][:2]), re.sub(r"\d+", "#", part[-1])))
        elif len(part) == 5:
            by = next(made, None) if part[3] is not None else None
            shown.add((by, str(last), re.sub(r"\d+ of \w+", "", str(part[:2])), part[2] is None))
            shown.add(str(part[2]))
        else:
            shown.add((str(last), part[1] is None))
    return shown


def write() -> None:
    """Draw, run under torch, and store the programs that show most."""
    import torch

    warnings.simplefilter("ignore")
    rng = random.Random(0)
    drawn = []
    for _ in range(DRAWN):
        steps = draw(rng)
        try:
            outcome = run(torch, steps, _check)
        except LeftOut:
            continue
        drawn.append((steps, outcome, _shows(steps, outcome), len(json.dumps([steps, outcome]))))
    kept: list[tuple[Any, Any]] = []
    seen: set[Any] = set()
    drawn.sort(key=lambda d: d[3])
    while len(kept) < KEPT:
        best = max(drawn, key=lambda d: len(d[2] - seen) / d[3] ** 0.8)
        seen |= best[2]
        kept.append(best[:2])
        drawn.remove(best)
    messages: list[str] = []

    def short(value: Any) -> Any:
        if isinstance(value, list):
            return [short(x) for x in value]
        if not isinstance(value, str) or len(value) < 30:
            return value
        if value not in messages:
            messages.append(value)
        return f"#{messages.index(value)}"

    programs = [[steps, short(outcome)] for steps, outcome in kept]
    lines = ",\n".join(json.dumps(p, separators=(",", ":")) for p in programs)
    FILE.write_text(f'{{"messages": {json.dumps(messages, indent=0)},\n"programs": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    write()
