"""`hub profile`: the table, the trace, the page."""

from __future__ import annotations

import json
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from hubcli.confined import sandbox
from hubcli.errors import RepositoryCodeError
from hubcli.running import profile_page, profiling
from hubcli.terminal import cli

HUBCONF = '''
import torch
from torch import nn

dependencies = ["torch"]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.linear(x)) + x


def net():
    """Two blocks."""
    return nn.Sequential(Block(), Block())


def fixed():
    model = net()
    model.forward = lambda x: x.detach() * 2
    return model


def nothing():
    return 3
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "mine"
    made.mkdir()
    (made / "hubconf.py").write_text(HUBCONF)
    return made


def hub(*arguments: str):
    return CliRunner().invoke(cli.hub, list(arguments))


@pytest.mark.parametrize("option", ["--no-sandbox", "--sandbox"])
def test_document_trace_and_page(folder, tmp_path, option):
    if option == "--sandbox" and all(sandbox.reasons().values()):
        pytest.skip(f"no sandbox here: {sandbox.reasons()}")
    trace, page = tmp_path / "trace.json", tmp_path / "page.html"
    result = hub(
        "--json",
        "profile",
        str(folder),
        "net",
        "--input-shape",
        "2,4",
        "--backward",
        option,
        "--trace",
        str(trace),
        "--html",
        str(page),
    )
    assert result.exit_code == 0, result.output
    made = json.loads(result.stdout)
    ops = {one["name"]: one for one in made["ops"]}
    assert ops["aten::relu"]["calls"] == 2 and ops["ReluBackward0"]["calls"] == 2
    assert ops["aten::relu"]["bytes"] == 2 * 2 * 4 * 4
    modules = {one["name"]: one for one in made["modules"]}
    assert set(modules) == {
        "model (Sequential)",
        "0 (Block)",
        "0.linear (Linear)",
        "1 (Block)",
        "1.linear (Linear)",
    }
    assert modules["model (Sequential)"]["total_us"] >= modules["0 (Block)"]["total_us"]
    assert sum(one["self_us"] for one in made["ops"]) <= made["wall_us"] * 1.01
    selfs = [one["self_us"] for one in made["ops"]]
    assert selfs == sorted(selfs, reverse=True)
    events = json.loads(trace.read_text())["traceEvents"]
    assert sum(one["cat"] == "op" for one in events) == sum(one["calls"] for one in made["ops"])
    assert all(one["ph"] == "X" and one["dur"] >= 0 for one in events)
    text = page.read_text()
    assert "0.linear (Linear)" in text and "aten::relu" in text and text.count("<svg") == 3


def test_the_model_in_a_tuple(folder):
    with (folder / "hubconf.py").open("a") as file:
        file.write("\n\ndef pair_of_it():\n    return nn.Linear(2, 1), {'help': print}\n")
    shape = ("--input-shape", "1,2")
    for more in ((), ("--select", "0"), ("--sandbox=best-effort",)):
        result = CliRunner().invoke(cli.hub, ["--json", "profile", str(folder), "pair_of_it", *shape, *more])
        assert result.exit_code == 0, result.output
        assert any("Linear" in one["name"] for one in json.loads(result.stdout)["modules"])
    result = CliRunner().invoke(cli.hub, ["profile", str(folder), "pair_of_it", *shape, "--select", "2"])
    assert result.exit_code == 2 and "--select '2'" in result.stderr


def test_for_people(folder):
    result = hub("profile", str(folder), "net", "--input-shape", "2,4")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0].split() == ["op", "calls", "self", "total", "results"]
    assert "1.linear (Linear)" in result.stdout and "one pass: " in result.stdout
    assert "Backward" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["net"], 2, "--input-shape"),
        (["net", "--input-shape", "2,x"], 2, "--input-shape '2,x'"),
        (["net", "--input-shape", "2,4", "--trace", "nowhere/t.json"], 2, "no folder nowhere"),
        (["net", "--input-shape", "2,5"], 2, "hubconf.py"),
        (["nothing", "--input-shape", "2,4"], 70, "returned an int"),
        (["fixed", "--input-shape", "2,4", "--backward"], 70, "no output depends on a parameter"),
    ],
)
def test_failures(folder, arguments, status, message):
    result = hub("--json", "profile", str(folder), *arguments)
    assert result.exit_code == status, result.output
    assert message in json.loads(result.stdout)["error"]["message"]


class _Page(HTMLParser):
    """What the page consists of: its tags, and every place that could load or run something."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loads += [
            f"{tag} {name}"
            for name, value in attrs
            if name in ("src", "href", "xlink:href", "data", "action") or name.startswith("on")
        ]

    def handle_data(self, data):
        self.texts.append(data)


def test_the_page_escapes_every_name_and_loads_nothing():
    evil = "</title><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"
    profile = profiling.Profile.of(
        {
            "events": [
                [profiling.MODULE + evil, 0, 900, 0, 0, 100, 0],
                [evil, 100, 900, 1, 0, 800, 4096],
                ["\x1b]0;title\x07aten::add", 10, 20, 1, 1, 10, 0],
            ],
            "wall_us": 1000,
        }
    )
    text = profile_page.page(profile, evil, evil)
    page = _Page()
    page.feed(text)
    assert not {"script", "img", "link", "iframe", "object", "image", "use"} & set(page.tags)
    assert page.loads == []
    assert "url(" not in text and "@import" not in text and "http" not in text.split("</head>")[1]
    assert "default-src 'none'" in text
    assert any(evil in one for one in page.texts)
    assert "\x1b" not in text and "\x07" not in text


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"events": None, "wall_us": 1},
        {"events": [["a", 0, 1]], "wall_us": 1},
        {"events": [["a", 5, 1, 0, 0, 1, 0]], "wall_us": 1},
        {"events": [["a", 0, float("nan"), 0, 0, 1, 0]], "wall_us": 1},
        {"events": [["a", 0, 1, 0, 0, 1, 0]], "wall_us": "x"},
    ],
)
def test_a_profile_that_makes_no_sense(document):
    with pytest.raises(RepositoryCodeError, match="makes no sense"):
        profiling.Profile.of(document)


def test_an_empty_profile_is_drawn_all_the_same():
    profile = profiling.Profile.of({"events": [], "wall_us": 0})
    assert "one pass" in profiling.table(profile)
    assert "<svg" in profile_page.page(profile, "x", "y")


def events_of(*rows):
    return profiling.Profile.of({"events": [list(row) for row in rows], "wall_us": 1000})


def test_colours_are_those_of_kinds():
    kinds = {
        "aten::convolution": "convolutions",
        "ConvolutionBackward0": "convolutions",
        "aten::addmm": "products",
        "AddmmBackward0": "products",
        "aten::linear": "products",
        "aten::native_batch_norm": "norms",
        "aten::max_pool2d": "pooling and sampling",
        "aten::relu": "activations",
        "aten::threshold_backward": "activations",
        "aten::_softmax": "activations",
        "aten::sum": "reductions",
        "aten::t": "copies and views",
        "torch::autograd::AccumulateGrad": "copies and views",
        "aten::add": "element by element and others",
        "aten::sqrt": "element by element and others",
        "module: a.b (Linear)": "modules",
        "aten::lstm": "recurrent layers",
    }
    assert {name: profile_page._kind(name) for name in kinds} == kinds
    text = profile_page.page(
        events_of(*[(n, 0, 9, 0, 0, 9, 1) for n in ("aten::mm", "aten::bmm", "aten::add")]), "t", "w"
    )
    assert text.count(f'fill="{profile_page._colour("products")}"') == 6  # two ops: in both charts and the timeline
    assert '<p class="legend">' in text and "element by element" in text and "convolutions" not in text


def test_long_names_keep_both_ends():
    name = "begin_" + "x" * 150 + "_end"
    text = profile_page.page(events_of((name, 0, 9, 0, 0, 9, 1)), "t", "w")
    shown = profile_page._fitted(name, 80)
    assert len(shown) == 80 and shown.startswith("begin_") and shown.endswith("_end") and f">{shown}<title>" in text
    assert profile_page._fitted("short", 80) == "short"


def test_modules_are_summed_by_class():
    profile = events_of(
        ("module: model (Net)", 0, 100, 0, 0, 10, 0),
        ("module: a (Block)", 0, 60, 1, 0, 20, 0),
        ("module: a.inner (Block)", 10, 50, 2, 0, 40, 8),
        ("module: b (Block)", 60, 90, 1, 0, 30, 0),
        ("aten::add", 92, 95, 1, 0, 3, 0),
    )
    assert [(one.name, one.calls, one.self_us, one.total_us) for one in profile.module_classes()] == [
        ("Net", 1, 10, 100),
        ("Block", 3, 90, 90),
    ]
    assert "class of module" in profiling.table(profile) and "Modules by class" in profile_page.page(profile, "t", "w")
    assert profiling.class_of("module: odd (name) (A)") == "A" and profiling.class_of("plain") == "plain"


BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt-get install chromium")
def test_a_browser_draws_the_page(tmp_path):
    """The page as a headless browser has it: nothing is refused by its own policy, bars have their width and colour."""
    image = pytest.importorskip("PIL.Image", reason="the extra image is not installed")
    name = "aten::" + "very_long_name_" * 8
    profile = events_of(("aten::mm", 0, 900, 0, 0, 900, 4096), (name, 900, 1000, 0, 0, 100, 0))
    (tmp_path / "page.html").write_text(profile_page.page(profile, "a title", "what"), encoding="utf-8")
    picture = tmp_path / "shot.png"
    done = subprocess.run(
        [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--force-color-profile=srgb",
            "--window-size=1200,1000",
            "--enable-logging=stderr",
            f"--screenshot={picture}",
            (tmp_path / "page.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert picture.exists(), done.stderr[-2000:]
    assert "Content Security Policy" not in done.stderr
    shot = image.open(picture).convert("RGB")
    assert shot.size == (1200, 1000)
    colours = {colour: count for count, colour in shot.getcolors(1 << 20)}
    assert len(colours) > 20 and max(colours.values()) > 500_000  # text and boxes on one ground
    blue = [count for (r, g, b), count in colours.items() if b > r + 30 and b > g + 30]
    assert sum(blue) > 5_000  # the bars of products
