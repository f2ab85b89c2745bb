"""A profile as one page of HTML: bars, tables and a timeline, drawn as SVG; it loads nothing.

Names come from the repository's code: every one is escaped, and the page's own policy forbids
scripts and other sources.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from hubcli.base import output
from hubcli.running.profiling import MODULE, Event, Profile, Total, duration

_WIDTH, _ROW, _MAX_BOXES = 1100, 18, 6000
_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 1140px; padding: 0 1rem;
  color: #1c2330; background: #fff }
h1 { font-size: 1.35rem; margin: 0 } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem }
p.what { color: #5a6475; margin: .2rem 0 1rem }
.figures { display: flex; flex-wrap: wrap; gap: 2.5rem } .figures b { display: block; font-size: 1.5rem }
.figures span { color: #5a6475 }
svg { width: 100%; height: auto; display: block } svg text { font: 12px system-ui, sans-serif; fill: #1c2330 }
.legend span { margin-right: 1.2rem; white-space: nowrap } .legend i { display: inline-block; width: .8rem;
  height: .8rem; margin-right: .35rem; border-radius: 2px; vertical-align: -1px }
td:first-child { overflow-wrap: anywhere }
.scroll { overflow-x: auto; border: 1px solid #dde2ea; border-radius: 4px }
table { border-collapse: collapse; width: 100% } th { text-align: left; border-bottom: 2px solid #dde2ea }
td, th { padding: .2rem .6rem; font-variant-numeric: tabular-nums } tr:nth-child(even) td { background: #f6f8fa }
td.n, th.n { text-align: right }
@media (prefers-color-scheme: dark) { body { color: #dfe5ee; background: #14181f } svg text { fill: #dfe5ee }
  tr:nth-child(even) td { background: #1b212b } th, .scroll { border-color: #343c49 }
  p.what, .figures span { color: #9aa5b5 } }
"""


def page(profile: Profile, title: str, what: str) -> str:
    """Return the whole page; `title` and `what` (inputs, device, versions) stand at its head."""
    ops, modules = profile.ops(), profile.modules()
    inside = sum(one.self_us for one in ops)
    figures = [
        (duration(profile.wall_us), "one pass"),
        (duration(inside), "inside ops"),
        (str(sum(one.calls for one in ops)), "op calls"),
        (output.size(sum(one.bytes for one in ops)), "results made"),
    ]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{_text(title)}</title><style>{_STYLE}</style></head><body>",
        f'<h1>{_text(title)}</h1><p class="what">{_text(what)}</p><div class="figures">',
        *(f"<div><b>{_text(value)}</b><span>{_text(label)}</span></div>" for value, label in figures),
        "</div>",
        "<h2>Time in ops, without what runs inside them</h2>",
        _legend([one.name for one in profile.events]),
        _bars([(one.name, one.self_us, duration(one.self_us)) for one in ops[:15]]),
        "<h2>Memory of the results</h2>",
        _bars(_by_memory(ops)),
        "<h2>Timeline</h2>",
        f'<div class="scroll">{_timeline(profile)}</div>',
    ]
    if modules:
        parts += ["<h2>Modules</h2>", _table(modules, profile.wall_us, "total", MODULE)]
        classes = profile.module_classes()
        if len(classes) < len(modules):
            parts += ["<h2>Modules by class</h2>", _table(classes, profile.wall_us, "total")]
    parts += ["<h2>Ops</h2>", _table(ops, profile.wall_us, "self"), "</body></html>"]
    return "\n".join(parts) + "\n"


def _text(text: str) -> str:
    return escape(output.printable(text), quote=True)


def _by_memory(ops: Sequence[Total]) -> list[tuple[str, float, str]]:
    ranked = sorted((one for one in ops if one.bytes), key=lambda one: -one.bytes)[:15]
    return [(one.name, float(one.bytes), output.size(one.bytes)) for one in ranked]


# Kinds of ops by words in their names, the first that fits, and the hue of their boxes
_KINDS: tuple[tuple[str, int, tuple[str, ...]], ...] = tuple(
    (kind, hue, tuple(words.split()))
    for kind, hue, words in (
        ("convolutions", 212, "conv"),
        ("products", 262, "addmm baddbmm bmm mm mv matmul linear attention einsum bilinear dot"),
        ("recurrent layers", 290, "lstm gru rnn"),
        ("norms", 172, "norm"),
        ("pooling and sampling", 140, "pool interpolate upsample grid_sampl"),
        ("losses", 350, "loss cross_entropy"),
        ("activations", 32, "softmax relu elu silu gelu sigmoid tanh threshold hard swish mish softplus dropout"),
        ("reductions", 60, "sum mean max min var std prod all any topk sort cumsum"),
        (
            "copies and views",
            0,
            "view reshape transpose permute expand cat stack copy clone slice select index gather scatter pad squeeze "
            "flatten split chunk roll embedding to t empty zeros ones fill accumulategrad",
        ),
    )
)
_OTHERS, _MODULES = "element by element and others", "modules"


def _kind(name: str) -> str:
    """Return the kind of an op or backward node, `aten::convolution` or `ConvolutionBackward0`; of a module's label."""
    if name.startswith(MODULE):
        return _MODULES
    plain = name.rpartition("::")[2].lower()
    plain = plain.partition("backward")[0].strip("_") or plain
    for kind, _, words in _KINDS:
        if any(word in plain if len(word) > 3 else word == plain or word in plain.split("_") for word in words):
            return kind
    return _OTHERS


def _colour(kind: str) -> str:
    """Return the colour of a kind, the same in every page and chart."""
    hue = next((hue for name, hue, _ in _KINDS if name == kind), None)
    if hue is None:
        return "hsl(215 12% 72%)" if kind == _MODULES else "hsl(90 35% 62%)"
    return f"hsl({hue} {8 if kind == 'copies and views' else 55}% 64%)"


def _legend(names: Sequence[str]) -> str:
    """Return what the colours of the kinds among these names mean."""
    there = {_kind(name) for name in names}
    order = [*(name for name, _, _ in _KINDS), _OTHERS, _MODULES]
    shown = [kind for kind in order if kind in there]
    boxes = (f'<span><i style="background:{_colour(kind)}"></i>{_text(kind)}</span>' for kind in shown)
    return f'<p class="legend">{"".join(boxes)}</p>'


def _fitted(name: str, most: int) -> str:
    """Return a name of at most `most` characters: of a longer one the middle goes, since its ends tell it from
    others."""
    if len(name) <= most:
        return name
    head = (most - 1) // 2
    return f"{name[:head]}\u2026{name[len(name) - (most - 1 - head) :]}"


def _bars(rows: Sequence[tuple[str, float, str]]) -> str:
    if not rows:
        return '<p class="what">none</p>'
    most = max(value for _, value, _ in rows) or 1.0
    height = len(rows) * (_ROW + 4) + 4
    names = [_fitted(name, 80) for name, _, _ in rows]
    left = max(160, min(max(len(name) for name in names) * 7 + 14, 580))  # where the bars begin
    out = [f'<svg viewBox="0 0 {_WIDTH} {height}" role="img">']
    for index, (name, value, label) in enumerate(rows):
        y, width = index * (_ROW + 4) + 2, max(value / most * (_WIDTH - left - 110), 1.0)
        out.append(
            f'<text x="{left - 10}" y="{y + 13}" text-anchor="end">{_text(names[index])}'
            f"<title>{_text(name)}</title></text>"
            f'<rect x="{left}" y="{y}" width="{width:.1f}" height="{_ROW}" rx="2" fill="{_colour(_kind(name))}">'
            f"<title>{_text(name)}: {_text(label)}</title></rect>"
            f'<text x="{left + 8 + width:.1f}" y="{y + 13}">{_text(label)}</text>'
        )
    return "".join([*out, "</svg>"])


def _timeline(profile: Profile) -> str:
    """Every event as a box: time runs to the right, what runs inside is below."""
    last = max((one.end for one in profile.events), default=1.0) or 1.0
    width = 1600
    scale = width / last
    tops: dict[int, int] = {}
    height = 24
    for thread in sorted({one.thread for one in profile.events}):
        tops[thread] = height
        deepest = max(one.depth for one in profile.events if one.thread == thread)
        height += (deepest + 1) * _ROW + 10
    out = [f'<svg viewBox="0 0 {width} {height}" style="min-width:{width}px" role="img">']
    for tick in range(11):
        x = tick * width / 10
        out.append(
            f'<line x1="{x}" x2="{x}" y1="16" y2="{height}" stroke="#8886"/>'
            f'<text x="{min(x + 3, width - 60)}" y="12">{_text(duration(last * tick / 10))}</text>'
        )
    for one in _drawn(profile.events, 0.4 / scale):
        x, wide = one.start * scale, max((one.end - one.start) * scale, 0.4)
        y = tops[one.thread] + one.depth * _ROW
        name, colour = one.name.removeprefix(MODULE), _colour(_kind(one.name))
        out.append(
            f'<rect x="{x:.2f}" y="{y}" width="{wide:.2f}" height="{_ROW - 1}" fill="{colour}">'
            f"<title>{_text(name)}\n{_text(duration(one.end - one.start))} from "
            f"{_text(duration(one.start))}, {_text(output.size(one.bytes))}</title></rect>"
        )
        fits = int(wide / 7)
        if fits >= 4:
            out.append(
                f'<text x="{x + 3:.2f}" y="{y + 13}" style="fill:#14181f" '
                f'pointer-events="none">{_text(name[:fits])}</text>'
            )
    return "".join([*out, "</svg>"])


def _drawn(events: Sequence[Event], least: float) -> Iterator[Event]:
    """Yield the events that are wide enough to be seen, the longest where they are too many."""
    wide = [one for one in events if one.end - one.start >= least]
    yield from sorted(wide, key=lambda one: one.start - one.end)[:_MAX_BOXES]


def _table(totals: Sequence[Total], wall: float, by: str, prefix: str = "") -> str:
    head = "".join(
        f"<th{' class=n' if index else ''}>{title}</th>"
        for index, title in enumerate(("name", "calls", "self", "total", f"share ({by})", "results"))
    )
    rows = []
    for one in totals[:300]:
        share = 100 * (one.self_us if by == "self" else one.total_us) / wall
        cells = (
            str(one.calls),
            duration(one.self_us),
            duration(one.total_us),
            f"{share:.1f}%",
            output.size(one.bytes),
        )
        numbers = "".join(f"<td class=n>{_text(cell)}</td>" for cell in cells)
        rows.append(f"<tr><td>{_text(one.name.removeprefix(prefix))}</td>{numbers}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
