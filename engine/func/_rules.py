"""The batching rules, which compute an op for all slices at once: `call`, and the rules (by op: `_table.py`).

A rule gets a `Call`: the arguments by name, of which those in `mapped` hold all slices, the mapped dim first, while
the others are the same for all.  It returns the results of all slices, the mapped dim first.  Ops that broadcast, and
those whose elements depend on one element each, need no rule.  They are here and not beside each op, so that `import
engine` reads none of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import FunctionType
from typing import Any

from engine import nn
from engine.dispatch import OPS, Op
from engine.func._lanes import Lane, Refused, Unmapped, lane
from engine.ops import functions as torch
from engine.tensor import Tensor

Rule = Callable[["Call"], Any]


class Call:
    """One call of an op.  `args` by the names of its parameters; `size` the number of slices."""

    def __init__(self, function: FunctionType, level: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        record = self.record = function.op  # type: ignore[attr-defined]
        self.function, self.level = function, level
        self.inplace = record.inplace and function.__name__.endswith("_") and not record.called.endswith("_")
        given = dict(record.defaults)
        names = record.positional
        if record.varargs in names and len(args) >= len(names):
            at = names.index(record.varargs)
            rest = args[at:]
            one = len(rest) == 1 and not isinstance(rest[0], int)
            args = (*args[:at], rest[0] if one else rest)
        given.update(zip(names, args))
        for key, value in kwargs.items():
            if key == "out" and value is None:
                continue
            if key == "out":
                raise Unmapped("vmap: out= is given")
            given[record.aliases.get(key, key)] = value
        self.mapped: set[str] = set()
        self.args: dict[str, Any] = {}
        self.size = -1
        for name, value in given.items():
            if value.__class__ is Lane and value._level == level:
                self.mapped.add(name)
                value = value._value
                self.size = value.shape[0]
            elif name in record.lists:
                value = self._list(name, value)
            self.args[name] = value

    def _list(self, name: str, values: Any) -> list[Any]:
        if not any(v.__class__ is Lane and v._level == self.level for v in values):
            return list(values)
        self.mapped.add(name)
        self.size = next(v._value.shape[0] for v in values if v.__class__ is Lane and v._level == self.level)
        return [
            v._value if v.__class__ is Lane and v._level == self.level else v.expand(self.size, *v.shape)
            for v in values
        ]

    def __getitem__(self, name: str) -> Any:
        return self.args[name]

    def rank(self, name: str) -> int:
        """The dims of one slice of an operand."""
        return int(self.args[name].dim()) - (name in self.mapped)

    def tensors(self) -> list[str]:
        """The names of the operands that are tensors."""
        return [p for p in self.record.tensors if isinstance(self.args.get(p), Tensor)]

    def everywhere(self, *names: str) -> None:
        """Expand operands that are the same for all slices."""
        for name in names or self.tensors():
            value = self.args[name]
            if name not in self.mapped and isinstance(value, Tensor):
                self.args[name] = value.expand(self.size, *value.shape)
                self.mapped.add(name)

    def align(self, rank: int, *names: str) -> None:
        """Give the slices of operands that many dims, new ones in front."""
        for name in names or self.tensors():
            missing = rank - self.rank(name)
            if missing > 0 and name in self.mapped:
                value = self.args[name]
                self.args[name] = value.reshape(self.size, *(1,) * missing, *value.shape[1:])

    def run(self, **changed: Any) -> Any:
        """The op itself."""
        args = self.args | changed if changed else self.args
        record = self.record
        return self.function(*[args[p] for p in record.positional], **{p: args[p] for p in record.keyword})


def call(function: FunctionType, level: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call that holds Lanes of that level."""
    made = Call(function, level, args, kwargs)
    record = made.record
    rule = RULES.get(record)
    if rule is None and (record.broadcast or record.blocks == "elements"):
        rule = _pointwise
    target = made.args.get("input") if made.inplace else None
    if made.inplace and (rule is not _pointwise or "input" not in made.mapped):
        if rule is _pointwise:
            raise Refused(
                f"vmap: {function.__name__}(self, *extra_args) is not possible because there exists a Tensor `other` "
                "in extra_args that has more elements than `self`. This happened due to `other` being vmapped over but "
                "`self` not being vmapped over in a vmap. Please try to use out-of-place operators instead."
            )
        raise Unmapped(f"vmap: {function.__name__} writes in place")
    try:
        result = _slices(made) if rule is None else rule(made)
    except _NoRule:
        result = _slices(made)
    if made.inplace:
        where = args[0] if args else kwargs["input"]
        where.__dict__["_value"] = result if result is not None else target
        return where
    if isinstance(result, Tensor):
        return lane(result, level)
    outputs = [lane(r, level) for r in result]
    return made.record.result_type(*outputs) if made.record.outputs else tuple(outputs)


class _NoRule(Exception):
    """The rule has no answer for this call: it is done once per slice."""


def _slices(c: Call) -> Any:
    """The op once per slice."""
    if not c.record.deterministic:
        raise Unmapped(f"vmap: {c.function.__name__} draws")
    warnings.warn(
        f"There is a performance drop because we have not yet implemented the batching rule for {c.function.__name__}. "
        "Please file us an issue on GitHub so that we can prioritize its implementation.",
        stacklevel=4,
    )
    found = []
    for i in range(c.size):
        changed = {p: [x[i] for x in c.args[p]] if p in c.record.lists else c.args[p][i] for p in c.mapped}
        found.append(c.run(**changed))
    if isinstance(found[0], Tensor):
        return torch.stack(found)
    return [torch.stack(list(column)) for column in zip(*found)]


# --- the rules


def _pointwise(c: Call) -> Any:
    rank = max(c.rank(p) for p in c.tensors())
    c.align(rank)
    return c.run()


def _lead(c: Call) -> Any:
    """The op takes any dims in front."""
    c.align(max(c.rank(p) for p in c.tensors()))
    return c.run()


def _all_lead(c: Call) -> Any:
    c.everywhere("input")
    return c.run()


def _shifted(dim: Any) -> Any:
    if dim.__class__ is int:
        return dim + 1 if dim >= 0 else dim
    return tuple(_shifted(d) for d in dim)


def _dims(*names: str, whole: str = "", together: bool = True) -> Rule:
    """The op takes dims by number: those are of a slice.  whole: its parameter of which None means all dims."""

    def rule(c: Call) -> Any:
        operands = c.tensors() if not c.record.lists else []
        if whole and operands == ["input"] and not c.rank("input"):  # of one number: those of a vector of one
            return c.run(input=c["input"].unsqueeze(1), dim=(1,), keepdim=False)
        scalars = any(not c.rank(p) for p in operands) or any(x.dim() < 2 for p in c.record.lists for x in c[p])
        if scalars and c.record.name != "stack_tensors":
            raise _NoRule
        if together:
            c.everywhere()
        changed = {}
        for name in names:
            dim = c.args[name]
            if dim is None or (name == whole and not isinstance(dim, int) and not len(dim)):
                if name != whole or (dim is not None and c.record.name in ("any", "all")):
                    raise _NoRule
                changed[name] = tuple(range(1, c[operands[0]].dim()))
            else:
                changed[name] = _shifted(dim)
        return c.run(**changed)

    return rule


def _whole(name: str, dims: bool) -> Rule:
    """A reduction over all elements by one over dims (or over the one dim of flat slices)."""

    def rule(c: Call) -> Any:
        x = c["input"]
        if dims:
            return OPS[name].function(x, tuple(range(1, x.dim()))) if x.dim() > 1 else x.clone()
        more = {"dtype": c["dtype"]} if "dtype" in c.args else {}
        found = OPS[name].function(x.reshape(c.size, -1), 1, **more)
        return found if isinstance(found, Tensor) else found[0]

    return rule


def _position(c: Call) -> Any:
    """argmax and argmin: over the flat slice where no dim is given."""
    if c["dim"] is not None:
        return _dims("dim")(c)
    found = c.run(input=c["input"].reshape(c.size, -1), dim=1, keepdim=False)
    return found.reshape(c.size, *(1,) * c.rank("input")) if c["keepdim"] else found


def _reshaped(name: str) -> Rule:
    return lambda c: c["input"].reshape(c.size, *c[name])


def _sizes(value: Any) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


def _expand(c: Call) -> Any:
    size = _sizes(c["size"])
    c.align(len(size), "input")
    return c["input"].expand(c.size, *size)


def _sum_to(c: Call) -> Any:
    return (
        c["input"]
        .sum_to_size(c.size, *(1,) * (c.rank("input") - len(_sizes(c["size"]))), *_sizes(c["size"]))
        .reshape(c.size, *_sizes(c["size"]))
    )


def _repeat(c: Call) -> Any:
    times = _sizes(c["repeats"])
    c.align(len(times), "input")
    return c["input"].repeat(1, *times)


def _permute(c: Call) -> Any:
    n = c.rank("input")
    return c["input"].permute(0, *(d % n + 1 for d in _sizes(c["dims"])))


def _transposed(c: Call) -> Any:
    return c["input"].transpose(-2, -1) if c.rank("input") == 2 else c["input"]


def _squeeze(c: Call) -> Any:
    x, dim = c["input"], c.args.get("dim")
    n = c.rank("input")
    dims = range(n) if dim is None else [d % max(n, 1) for d in _sizes(dim)]
    for d in sorted(dims, reverse=True):
        if n and x.shape[d + 1] == 1:
            x = x.squeeze(d + 1)
    return x


def _indexed(c: Call) -> Any:
    index = c["index"]
    if not c.rank("input"):
        raise _NoRule
    index = index if isinstance(index, tuple) else (index,)
    return c["input"][(slice(None), *index)]


def _matmul(a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a, b)


def _mm(first: str, second: str) -> Rule:
    def rule(c: Call) -> Any:
        return _matmul(c[first], c[second])

    return rule


def _batched(c: Call) -> Any:
    rank = max(c.rank("input"), c.rank("other"))
    c.align(rank)
    return _matmul(c["input"], c["other"])


def _mv(c: Call) -> Any:
    matrix, vector = c["input"], c["vec"]
    if "vec" not in c.mapped:
        return _matmul(matrix, vector)
    return _matmul(matrix, vector.unsqueeze(-1)).squeeze(-1)


def _linear_each(c: Call) -> Any:
    return _matmul(c["input"], c["weight"].transpose(-2, -1))


def _dot(c: Call) -> Any:
    return (c["input"] * c["tensor"]).sum(-1)


def _scaled_sum(c: Call, product: Tensor, rank: int) -> Any:
    c.align(rank, "input")
    beta, alpha = c["beta"], c["alpha"]
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else (c["input"] if beta == 1 else c["input"] * beta) + product


def _addmv(c: Call) -> Any:
    vector = c["vec"].unsqueeze(-1)
    return _scaled_sum(c, _matmul(c["mat"], vector).squeeze(-1), 1)


def _linear(c: Call) -> Any:
    x, weight, bias = c["input"], c["weight"], c.args.get("bias")
    if c.rank("weight") != 2 or not x.numel():
        raise _NoRule
    if "weight" not in c.mapped:
        if bias is None or "bias" not in c.mapped:
            return c.run()
        found = nn.functional.linear(x, weight)
    else:
        flat = c.rank("input") == 1
        if flat:
            x = x.unsqueeze(-2)
        rows = x.reshape(c.size, -1, x.shape[-1]) if "input" in c.mapped else x.reshape(-1, x.shape[-1])
        if "input" not in c.mapped:
            rows = rows.expand(c.size, *rows.shape)
        found = OPS["linear_each"].function(rows, weight)
        shape = x.shape[1:-1] if "input" in c.mapped else x.shape[:-1]
        found = found.reshape(c.size, *shape, weight.shape[-2])
        if flat:
            found = found.squeeze(-2)
    if bias is None:
        return found
    if "bias" in c.mapped:
        slices = found.dim() - bool(c.mapped & {"input", "weight"})
        bias = bias.reshape(c.size, *(1,) * (slices - 1), bias.shape[-1])
    return found + bias


def _fold(*others: str, first: str = "input") -> Rule:
    """The slices become further entries of the batch dim in front; `others` must be the same for all."""

    def rule(c: Call) -> Any:
        if any(p in c.mapped for p in others):
            raise _NoRule
        c.everywhere(*(p for p in c.tensors() if p not in others))
        changed = {p: c[p].flatten(0, 1) for p in c.tensors() if p not in others}
        found = c.run(**changed)
        shape = (c.size, c[first].shape[1])
        if isinstance(found, Tensor):
            return found.reshape(*shape, *found.shape[1:])
        return [f.reshape(*shape, *f.shape[1:]) for f in found]

    return rule


def _convolution(c: Call) -> Any:
    if c.rank("input") < c.rank("weight"):  # no batch
        c.args["input"] = c["input"].unsqueeze(int("input" in c.mapped))
        return _convolution(c).squeeze(1)
    if c.mapped == {"bias"}:
        found = c.run(bias=None)
        return found + c["bias"].reshape(c.size, 1, -1, *(1,) * (found.dim() - 2))
    if "weight" not in c.mapped:
        bias = c["bias"] if "bias" in c.mapped else None
        n = c["input"].shape[1]
        found = c.run(input=c["input"].flatten(0, 1), bias=None if bias is not None else c["bias"])
        found = found.reshape(c.size, n, *found.shape[1:])
        return found if bias is None else found + bias.reshape(c.size, 1, -1, *(1,) * (found.dim() - 3))
    # each slice's channels are a group of their own
    c.everywhere("input", *(["bias"] if c["bias"] is not None else []))
    x, weight, bias = c["input"], c["weight"], c["bias"]
    x = x.transpose(0, 1).reshape(x.shape[1], -1, *x.shape[3:])
    found = c.run(
        input=x,
        weight=weight.flatten(0, 1),
        bias=None if bias is None else bias.reshape(-1),
        groups=c["groups"] * c.size,
    )
    return found.reshape(found.shape[0], c.size, -1, *found.shape[2:]).transpose(0, 1)


def _rows(c: Call) -> Any:
    """Of independent rows (N, *): those of all slices are one batch."""
    c.everywhere()
    found = c.run(**{p: c[p].flatten(0, 1) for p in c.tensors()})
    return [r.reshape(c.size, r.shape[0] // c.size, *r.shape[1:]) for r in found]


def _layer_norm(c: Call) -> Any:
    scale = [p for p in ("weight", "bias") if p in c.mapped]
    if not scale:
        return c.run()
    c.everywhere("input")
    found = c.run(weight=None, bias=None)
    y, more = (found, ()) if isinstance(found, Tensor) else (found[0], found[1:])
    for p in ("weight", "bias"):
        value = c[p]
        if value is not None:
            if p in c.mapped:
                value = value.reshape(c.size, *(1,) * (y.dim() - value.dim()), *value.shape[1:])
            y = y * value if p == "weight" else y + value
    return (y, *more) if more else y


def _rms_norm(c: Call) -> Any:
    if "weight" not in c.mapped:
        return c.run()
    c.everywhere("input")
    found, weight = c.run(weight=None), c["weight"]
    y, more = (found, ()) if isinstance(found, Tensor) else (found[0], found[1:])
    y = y * weight.reshape(c.size, *(1,) * (y.dim() - weight.dim()), *weight.shape[1:])
    return (y, *more) if more else y


def _rms_norm_backward(c: Call) -> Any:
    c.everywhere("grad_output", "input", "rstd")
    grad, input, rstd, weight, last = (c[p] for p in ("grad_output", "input", "rstd", "weight", "normalized_shape"))
    if weight is None:
        return c.run()[0], input.new_empty((c.size, 0))
    if "weight" in c.mapped:
        weight = weight.reshape(c.size, *(1,) * (input.dim() - weight.dim()), *weight.shape[1:])
    of_input = c.run(grad_output=grad * weight, weight=None)[0]
    lead = tuple(range(1, input.dim() - len(last)))
    product = grad * (input * rstd)
    return of_input, product.sum(lead) if lead else product


def _batch_norm(c: Call) -> Any:
    """The channels of all slices, each of its own statistics."""
    c.everywhere()
    x = c["input"]
    flat = x.transpose(0, 1).flatten(1, 2)  # (N, slices * C, *)
    changed = {p: None if c[p] is None else c[p].reshape(-1) for p in ("weight", "bias")}
    y, *more = c.run(input=flat, **changed)
    y = y.reshape(y.shape[0], c.size, -1, *y.shape[2:]).transpose(0, 1)
    return (y, *(m.reshape(c.size, -1) for m in more))


def _embedding(c: Call) -> Any:
    if "weight" not in c.mapped:
        return c.run()
    if (c["padding_idx"] is not None and c["padding_idx"] >= 0) or c["scale_grad_by_freq"] or c["sparse"]:
        raise _NoRule
    c.everywhere("indices")
    at, (_, rows, width) = c["indices"], c["weight"].shape
    start = torch.arange(c.size).reshape(-1, *(1,) * (at.dim() - 1)) * rows
    return c.run(weight=c["weight"].reshape(-1, width), indices=at + start)


def _pooled_rows(c: Call) -> Any:
    if c["padding_idx"] >= 0 or c["offsets"] is not None:
        raise _NoRule
    tables = "weight" in c.mapped
    c.everywhere(*[p for p in c.tensors() if p != "weight"])
    at = c["indices"]
    changed = {} if c["per_sample_weights"] is None else {"per_sample_weights": c["per_sample_weights"].flatten(0, 1)}
    if tables:
        _, rows, width = c["weight"].shape
        at = at + torch.arange(c.size).reshape(-1, 1, 1) * rows
        changed["weight"] = c["weight"].reshape(-1, width)
    found = c.run(indices=at.flatten(0, 1), **changed)
    return found.reshape(c.size, -1, found.shape[-1])


def _index_select(c: Call) -> Any:
    if "index" in c.mapped or not c.rank("input"):
        raise _NoRule
    return c.run(dim=_shifted(c["dim"]))


def _loss(c: Call) -> Any:
    c.align(max(c.rank(p) for p in c.tensors()))
    c.everywhere()
    how = c["reduction"]
    found = c.run(reduction="none")
    if how == "none" or found.dim() == 1:
        return found
    dims = tuple(range(1, found.dim()))
    return found.mean(dims) if how == "mean" else found.sum(dims)


def _nll(c: Call) -> Any:
    """Of rows (C) or (N, C), without weights."""
    n = c.rank("input")
    if c.args.get("weight") is not None or c.args.get("smoothing") or n > 2:
        raise _NoRule
    c.everywhere("input", "target")
    x, target, how = c["input"], c["target"], c["reduction"]
    flat = x.reshape(-1, x.shape[-1])
    function = OPS["softmax_nll_rows" if "softmax" in c.record.outputs else "nll_loss_rows"].function
    found = function(flat, target.reshape(-1), None, c["ignore_index"], "none")
    more = [f.reshape(x.shape) for f in found[2:]]
    losses = found[0].reshape(target.shape)
    counted = (target != c["ignore_index"]).to(losses.dtype)
    total = counted if n == 1 else counted.sum(1)
    if n == 2 and how != "none":
        losses = losses.sum(1) / total if how == "mean" else losses.sum(1)
    elif n == 1 and how == "mean":
        losses = losses / total
    return (losses, total, *more)


def _attention(c: Call) -> Any:
    if c.args.get("noise") is not None:
        raise _NoRule
    c.everywhere("query", "key", "value")
    if "mask" in c.mapped:
        c.align(c.rank("query"), "mask")
    return c.run()


RULES: dict[Op, Rule] = {}


def rule(found: Rule, *functions: Any) -> None:
    """Register the rule of these ops (engine/func/_table.py)."""
    RULES.update({function.op: found for function in functions})
