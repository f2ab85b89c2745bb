"""`replace_pattern`: every place in a graph that looks like one pattern becomes another."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from engine.fx._symbolic_trace import symbolic_trace
from engine.fx.graph import Graph
from engine.fx.graph_module import GraphModule, _assign_attr
from engine.fx.node import Node, nodes_in
from engine.nn.modules.module import Module

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]


class Match(NamedTuple):
    """A place that was replaced: the pattern's last step, and which of its steps stands for which of the pattern."""

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """A Match and the steps that came instead."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


class _Matcher:
    """Looks for a pattern's graph in another."""

    def __init__(self, pattern: Graph, ignore_literals: bool = False) -> None:
        self.pattern, self.ignore_literals = pattern, ignore_literals
        self.output = pattern.output_node()
        self.anchors = list(dict.fromkeys(nodes_in(self.output.args)))
        self.inner = [n for n in pattern.nodes if n.op not in ("placeholder", "output")]

    def same_step(self, p: Node, n: Node) -> bool:
        if p.op == "placeholder":
            return True
        if p.op != n.op:
            return False
        if p.op in ("get_attr", "call_module"):
            first, second = self.attribute(p), self.attribute(n)
            return type(first) is type(second)
        return p.target == n.target

    @staticmethod
    def attribute(node: Node) -> Any:
        value = node.graph.owning_module
        for part in str(node.target).split("."):
            value = getattr(value, part, None)
        return value

    def same_value(self, p: Any, v: Any, found: dict[Node, Node], literals: list[Any]) -> bool:
        if isinstance(p, Node):
            if isinstance(v, Node):
                return self.match(p, v, found, literals)
            if p.op == "placeholder" and self.ignore_literals and not isinstance(v, tuple | list | dict):
                literals.append((p, v))
                return True
            return False
        if isinstance(v, Node):
            return False
        if isinstance(p, tuple | list) and isinstance(v, tuple | list):
            return len(p) == len(v) and all(self.same_value(a, b, found, literals) for a, b in zip(p, v))
        if isinstance(p, dict) and isinstance(v, dict):
            return p.keys() == v.keys() and all(self.same_value(p[k], v[k], found, literals) for k in p)
        if isinstance(p, slice) and isinstance(v, slice):
            parts = ((p.start, v.start), (p.stop, v.stop), (p.step, v.step))
            return all(self.same_value(a, b, found, literals) for a, b in parts)
        return bool(type(p) is type(v) and p == v)

    def match(self, p: Node, n: Node, found: dict[Node, Node], literals: list[Any]) -> bool:
        """Return whether the step `n` and what it reads look like `p` and what that reads; `found` grows."""
        if p in found:
            return found[p] is n
        if p.op != "placeholder" and n in found.values():
            return False
        if not self.same_step(p, n):
            return False
        before = dict(found)
        found[p] = n
        if p.op == "placeholder":
            return True
        if self.same_value(p.args, n.args, found, literals) and self.same_value(p.kwargs, n.kwargs, found, literals):
            return True
        found.clear()
        found.update(before)
        return False

    def all_matches(self, graph: Graph) -> list[tuple[dict[Node, Node], list[Any]]]:
        """Return all matches, none of which overlaps another."""
        if not self.anchors:
            return []
        results: list[tuple[dict[Node, Node], list[Any]]] = []
        taken: set[Node] = set()
        for node in graph.nodes:
            for found, literals in self.at(node, graph):
                inside = [found[p] for p in self.inner]
                if taken.isdisjoint(inside) and self.closed(found):
                    taken.update(inside)
                    results.append((found, literals))
                    break
        return results

    def at(self, node: Node, graph: Graph) -> list[tuple[dict[Node, Node], list[Any]]]:
        """The matches whose first anchor is `node`."""
        states: list[tuple[dict[Node, Node], list[Any]]] = [({}, [])]
        for i, anchor in enumerate(self.anchors):
            following = []
            for found, literals in states:
                for candidate in [node] if i == 0 else list(graph.nodes):
                    new, more = dict(found), list(literals)
                    if self.match(anchor, candidate, new, more):
                        following.append((new, more))
            states = following
        return states

    def closed(self, found: dict[Node, Node]) -> bool:
        """Return whether nothing outside reads what is inside, but for the results."""
        inside = {found[p] for p in self.inner if p in found}
        if len(inside) != len(self.inner):
            return False
        results = {found[a] for a in self.anchors}
        return all(user in inside for node in inside - results for user in node.users)


def _graph_of(pattern: Any) -> Graph:
    if isinstance(pattern, GraphModule):
        return pattern.graph
    if isinstance(pattern, Graph):
        return pattern
    traced = symbolic_trace(pattern)
    traced.graph._kept = traced  # type: ignore[attr-defined]  # its owner
    return traced.graph


def _replace_attributes(gm: GraphModule, replacement: Any) -> None:
    """Give the module the submodules and attributes that the replacement uses."""
    gm.delete_all_unused_submodules()
    if isinstance(replacement, GraphModule):
        replacement.graph.lint()
    for node in gm.graph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        target = str(node.target)
        if _found(gm, target) is None:
            value = _found(replacement, target)
            if value is None:
                raise RuntimeError(
                    f'Attempted to create a "{node.op}" node during subgraph rewriting with target {target}, but the '
                    "referenced attribute does not exist in the replacement GraphModule"
                )
            _assign_attr(copy.deepcopy(value) if isinstance(value, Module) else value, gm, target)
    gm.graph.lint()


def _found(module: Any, target: str) -> Any:
    for part in target.split("."):
        module = getattr(module, part, None)
    return module


def replace_pattern(gm: GraphModule, pattern: Any, replacement: Any) -> list[Match]:
    """Replace what looks like the traced `pattern` by the traced `replacement`, with the same inputs in their order.

    Matches do not overlap; what was found.  The code is compiled anew.
    """
    return [Match(m.anchor, m.nodes_map) for m in _replace(gm, pattern, replacement)]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Any,
    replacement: Any = None,
    match_filters: list[Callable[..., bool]] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[..., Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    """As `replace_pattern`, only where every filter (match, graph, pattern's graph) is true.

    ignore_literals: an input of the pattern may stand for a number.  replacement_callback gives the graph for a match.
    """
    return _replace(gm, pattern, replacement, match_filters, ignore_literals, replacement_callback)


def _replace(
    gm: GraphModule,
    pattern: Any,
    replacement: Any,
    match_filters: list[Callable[..., bool]] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[..., Graph] | None = None,
) -> list[ReplacedPatterns]:
    matcher = _Matcher(_graph_of(pattern), ignore_literals)
    fixed = None if replacement_callback is not None else _graph_of(replacement)
    inputs = [n for n in matcher.pattern.nodes if n.op == "placeholder"]
    done: list[ReplacedPatterns] = []
    instead: dict[Node, Node] = {}  # results of earlier matches
    for found, literals in matcher.all_matches(gm.graph):
        if not all(keep(found, gm.graph, matcher.pattern) for keep in match_filters or ()):
            continue
        if replacement_callback is not None:
            new_graph = replacement_callback(found, gm.graph, matcher.pattern)
        else:
            assert fixed is not None
            new_graph = fixed
        placeholders = [n for n in new_graph.nodes if n.op == "placeholder"]
        if len(placeholders) != len(inputs):
            raise AssertionError(
                f"The replacement graph has {len(placeholders)} inputs, the pattern {len(inputs)}: they must be as many"
            )
        values: dict[Node, Any] = {}
        known = dict(literals)
        for p, new in zip(inputs, placeholders):
            if p in found:
                values[new] = instead.get(found[p], found[p])
                found[p] = values[new]
            elif p in known:
                values[new] = known[p]
        inside = {found[p] for p in matcher.inner}
        first = next(n for n in gm.graph.nodes if any(a is n for a in (found[a] for a in matcher.anchors)))
        before = set(gm.graph.nodes)
        with gm.graph.inserting_before(first):
            output = gm.graph.graph_copy(new_graph, values)
        results = list(output) if isinstance(output, tuple | list) else [output]
        if len(results) != len(matcher.anchors):
            raise AssertionError(
                f"The replacement graph has {len(results)} outputs, the pattern {len(matcher.anchors)}: they must be "
                "as many"
            )
        for a, new in zip(matcher.anchors, results):
            found[a].replace_all_uses_with(new)
            instead[found[a]] = new
        added = [n for n in gm.graph.nodes if n not in before]
        for node in [n for n in reversed(gm.graph.nodes) if n in inside]:
            gm.graph.erase_node(node)
        done.append(ReplacedPatterns(matcher.anchors[0], dict(found), added))
    gm.recompile()
    owner = replacement if isinstance(replacement, Module) else getattr(fixed, "owning_module", None)
    if isinstance(owner, Module):
        _replace_attributes(gm, owner)
    return done
