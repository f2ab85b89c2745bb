"""`hub run`: one forward pass on arrays and pictures."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from hubcli.base import output
from hubcli.errors import UsageError
from hubcli.running import inference
from hubcli.running.images import Preprocessing
from hubcli.running.inference import Output
from hubcli.terminal import cli
from tests.hubcli.models import HUBCONF


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "hubconf.py").write_text(HUBCONF)
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.array([[1.0, 2.0]]))
    return tmp_path


def hub(*arguments: str):
    return CliRunner().invoke(cli.hub, list(arguments))


def test_document_and_output(folder):
    result = hub("--json", "run", "./repo", "net", "--input", "x.npy", "--output", "y.npy")
    assert result.exit_code == 0, result.output
    made = json.loads(result.stdout)
    assert made.pop("seconds") > 0
    assert made == {
        "schema_version": 1,
        "inputs": [{"file": "x.npy", "name": None, "shape": [1, 2], "dtype": "float64"}],
        "outputs": [{"name": "out", "shape": [1, 3], "dtype": "float32", "file": "y.npy", "values": [[0.0, 0.0, 0.0]]}],
        "top": [],
        "prepared": None,
    }
    assert np.load("y.npy").tolist() == [[0, 0, 0]]


def test_several_outputs(folder):
    result = hub("--json", "run", "./repo", "several", "--input", "x.npy", "--output", "y.npy")
    assert result.exit_code == 0, result.output
    files = [one["file"] for one in json.loads(result.stdout)["outputs"]]
    assert files == ["y.out.npy", "y.aux_0.npy", "y.aux_1.npy"]
    assert [np.load(file).tolist() for file in files] == [[[3, 3, 3]], [[4, 4, 4]], 18]
    assert hub("run", "./repo", "several", "--input", "x.npy", "--output", "y.npz").exit_code == 0
    with np.load("y.npz") as archive:
        assert sorted(archive.files) == ["aux_0", "aux_1", "out"]
    result = hub("run", "./repo", "several", "--input", "x.npy", "--output", "-")
    assert result.exit_code == 2
    assert result.stdout == ""


def test_eval_mode_without_gradients(folder):
    assert hub("run", "./repo", "counted", "--input", "x.npy", "--output", "y.npy").exit_code == 0
    assert np.load("y.npy").tolist() == [0, 0]


def test_named_inputs_go_by_keyword(folder):
    np.savez("x.npz", np.ones((1, 2)), scale=np.array(5.0))
    arguments = ("run", "./repo", "several", "--input", "x.npz")
    result = hub(*arguments)
    assert result.exit_code == 2
    message, hint = result.stderr.splitlines()
    assert message == "hub: the inputs do not fit several: got an unexpected keyword argument 'scale'"
    assert hint == "hint: the model takes forward(x); it was given float32 (1, 2), scale=float32 ()"
    result = hub("run", "./repo", "net", "--input", "x.npz", "--output", "y.npy")
    assert result.exit_code == 0, result.output


def test_a_plain_function_runs_too(folder):
    result = hub("run", "./repo", "function", "--input", "x.npy", "--output", "y.npy")
    assert result.exit_code == 0, result.output
    assert np.load("y.npy").tolist() == [[2, 3]]


def test_top(folder):
    Path("labels.txt").write_text("cat\ndog\nowl\n")
    result = hub(
        "--json",
        "run",
        "./repo",
        "several",
        "--input",
        "x.npy",
        "--top",
        "2",
        "--labels",
        "labels.txt",
    )
    top = json.loads(result.stdout)["top"]
    assert [(one["item"], one["class"], one["label"]) for one in top] == [
        (0, 0, "cat"),
        (0, 1, "dog"),
    ]
    assert top[0]["score"] == pytest.approx(1 / 3)
    result = hub("run", "./repo", "several", "--input", "x.npy", "--top", "1")
    assert result.stdout == "0.3333  0\n"


def test_ranking():
    outputs = [Output("out", np.array([[0.0, 3.0, 1.0], [2.0, 2.0, -1.0]]))]
    ranked = inference.top(outputs, 2, ["a", "b", "c"])
    assert [(one.item, one.index, one.label) for one in ranked] == [
        (0, 1, "b"),
        (0, 2, "c"),
        (1, 0, "a"),
        (1, 1, "b"),
    ]
    assert ranked[0].score == pytest.approx(np.exp(3) / (1 + np.exp(3) + np.exp(1)))
    shares = inference.top([Output("out", np.array([0.25, 0.75]))], 1, [])
    assert (shares[0].index, shares[0].score) == (1, 0.75)
    for bad, labels in ((np.zeros((1, 2, 3)), []), (np.zeros(()), []), (np.zeros((1, 3)), ["a"])):
        with pytest.raises(UsageError):
            inference.top([Output("out", bad)], 1, labels)


def test_stdin_and_stdout(folder):
    buffer = io.BytesIO()
    np.save(buffer, np.array([[1.0, 2.0]]))
    done = subprocess.run(
        [sys.executable, "-m", "hubcli", "run", str(folder / "repo"), "net", "--input", "-", "--output", "-"],
        input=buffer.getvalue(),
        capture_output=True,
        cwd=Path(cli.__file__).parents[2],
        check=True,
    )
    assert np.load(io.BytesIO(done.stdout)).tolist() == [[0, 0, 0]]


def test_pictures(folder):
    pixels = np.zeros((40, 20, 3), np.uint8)
    pixels[..., 0] = 255
    Image.fromarray(pixels).save("red.png")
    array = Preprocessing.of(None, None, None, None, None).array("red.png", "red.png")
    assert (array.shape, array.dtype) == ((1, 3, 40, 20), np.float32)
    assert array[0, :, 0, 0].tolist() == [1, 0, 0]
    array = Preprocessing.of(None, 10, 8, "0.5", "0.5,1,2").array("red.png", "red.png")
    assert array.shape == (1, 3, 8, 8)
    assert array[0, :, 3, 3].tolist() == [1, -0.5, -0.25]
    array = Preprocessing.of(None, 10, 8, "0.5", "0.5", True).array("red.png", "red.png")
    assert array.shape == (1, 1, 8, 8)
    assert array[0, 0, 0, 0] == pytest.approx((76 / 255 - 0.5) / 0.5)
    preset = Preprocessing.of("imagenet", None, 64, None, None)
    assert (preset.resize, preset.crop, preset.mean[0], preset.std[2]) == (256, 64, 0.485, 0.225)
    assert preset.array("red.png", "red.png").shape == (1, 3, 64, 64)
    result = hub("--json", "run", "./repo", "function", "--input", "red.png", "--resize", "8")
    assert json.loads(result.stdout)["inputs"] == [
        {"file": "red.png", "name": None, "shape": [1, 3, 16, 8], "dtype": "float32"}
    ]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["net", "--input", "nowhere.npy"], 2, "no such file"),
        (["net", "--input", "bad.npy"], 2, "cannot be read as .npy"),
        (["net", "--input", "bad.npz"], 2, "cannot be read as .npz"),
        (["net", "--input", "bad.png"], 2, "cannot be read as an image"),
        (["net", "--input", "objects.npy"], 2, "cannot be read as .npy"),
        (["net", "--input", "text.npy"], 2, "not numbers"),
        (["net", "--input", "x.npy", "--output", "y.txt"], 2, "neither - nor one of .npy, .npz"),
        (["net", "--input", "x.npy", "--output", "no/y.npy"], 2, "no folder no"),
        (["net", "--input", "x.npy", "--output", "-"], 2, "would share stdout"),
        (["net", "--input", "x.npy", "--labels", "x.npy"], 2, "--top"),
        (["net", "--input", "x.npy", "--mean", "1,2"], 2, "--mean '1,2' is not R,G,B"),
        (["net", "--input", "x.npy", "--std", "0"], 2, "--std"),
        (["nothing", "--input", "x.npy"], 2, "cannot be called"),
        (["fails", "--input", "x.npy"], 70, "hubconf.py:"),
        (["nope", "--input", "x.npy"], 3, "Cannot find callable"),
    ],
)
def test_failures(folder, arguments, status, message):
    for name in ("bad.npy", "bad.npz", "bad.png"):
        Path(name).write_bytes(b"nonsense")
    np.save("objects.npy", np.array([{}], object), allow_pickle=True)
    np.save("text.npy", np.array(["a"]))
    before = set(Path().iterdir())
    result = hub("--json", "run", "./repo", *arguments)
    assert result.exit_code == status, result.output
    assert message in json.loads(result.stdout)["error"]["message"]
    assert set(Path().iterdir()) == before


def test_never_overwrites(folder):
    arguments = ("run", "./repo", "net", "--input", "x.npy", "--output", "y.npy")
    assert hub(*arguments).exit_code == 0
    result = hub(*arguments)
    assert result.exit_code == 2
    assert result.stderr == "hub: --output 'y.npy' exists\nhint: --force replaces it\n"
    assert hub(*arguments, "--force").exit_code == 0
    arguments = ("run", "./repo", "several", "--input", "x.npy", "--output", "z.npy")
    assert hub(*arguments).exit_code == 0
    assert "z.out.npy, which exists" in hub(*arguments).stderr
    assert hub(*arguments, "--force").exit_code == 0


def test_small_outputs_are_printed(folder):
    shown = hub("run", "./repo", "function", "--input", "x.npy").stdout
    assert shown == "out  1 x 2  float64\n  [[2., 3.]]\n"
    np.save("large.npy", np.zeros((50, 30)))
    assert hub("run", "./repo", "function", "--input", "large.npy").stdout == "out  50 x 30  float64\n"
    document = json.loads(hub("--json", "run", "./repo", "function", "--input", "large.npy").stdout)
    assert document["outputs"][0]["values"] is None
    np.save("odd.npy", np.array([np.nan, np.inf, 1]))
    document = json.loads(hub("--json", "run", "./repo", "function", "--input", "odd.npy").stdout)
    assert document["outputs"][0]["values"] == [None, None, 2.0]


@pytest.mark.parametrize("confined", [(), ("--sandbox=best-effort",)])
@pytest.mark.long
def test_several_files(folder, confined):
    (folder / "in").mkdir()
    for index, name in enumerate("cab"):
        np.save(folder / "in" / f"{name}.npy", np.full((1 + index, 2), index, np.float32))
    (folder / "in" / "README.md").write_text("left out")
    for sources in (["in"], ["in/*.npy"], ["in/a.npy", "in/[bc].npy"]):
        inputs = [word for source in sources for word in ("--input", source)]
        result = hub("--json", "run", "./repo", "function", *inputs, *confined)
        assert result.exit_code == 0, result.output
        document = json.loads(result.stdout)
        files = [one["file"] for one in document["inputs"]]
        assert files == [str(Path("in", f"{name}.npy")) for name in "abc"]
        (made,) = document["outputs"]
        assert made["shape"] == [6, 2]
        assert made["values"] == [[2, 2], [2, 2], [3, 3], [3, 3], [3, 3], [1, 1]]
    shown = hub("run", "./repo", "function", "--input", "in", "--top", "1", *confined).stdout.splitlines()
    assert [line.split()[0] for line in shown] == [f"in/{name}.npy" for name in "aabbbc"]


def test_files_whose_results_do_not_fit_together(folder):
    np.save("wide.npy", np.ones((1, 3)))
    result = hub("run", "./repo", "function", "--input", "x.npy", "--input", "wide.npy", "--output", "y.npz")
    assert result.exit_code == 0, result.output
    with np.load("y.npz") as archive:
        assert {name: archive[name].shape for name in archive.files} == {"x.out": (1, 2), "wide.out": (1, 3)}
    result = hub("run", "./repo", "net", "--input", "x.npy", "--input", "wide.npy")
    assert result.exit_code == 2
    assert result.stderr.startswith("hub: wide.npy: net does not take this input")


def test_a_table(folder):
    Path("x.csv").write_text("width;height\n1;2\n3;4.5\n")
    result = hub("run", "./repo", "function", "--input", "x.csv", "--output", "y.csv")
    assert result.exit_code == 0, result.output
    assert Path("y.csv").read_text() == "2.0,3.0\n4.0,5.5\n"


def test_text_goes_to_the_model_as_a_string(folder):
    Path("x.txt").write_text("one two\n")
    for confined in ((), ("--sandbox=best-effort",)):
        result = hub("--json", "run", "./repo", "words", "--input", "x.txt", *confined)
        assert result.exit_code == 0, result.output
        document = json.loads(result.stdout)
        assert document["inputs"] == [{"file": "x.txt", "name": None, "shape": [], "dtype": "text"}]
        assert document["outputs"][0]["values"] == [3.0, 3.0]


def test_what_a_model_says_of_its_pictures(folder):
    Image.new("RGB", (40, 30)).save("red.png")
    result = hub("--json", "run", "./repo", "own_preset", "--input", "red.png")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["inputs"][0]["shape"] == [1, 3, 16, 16]
    assert document["outputs"][0]["values"] == -2.0  # (0 - mean) / std
    assert "images as the model says: --resize 20 --crop 16" in result.stderr
    document = json.loads(hub("--json", "run", "./repo", "own_preset", "--input", "red.png", "--crop", "8").stdout)
    assert document["inputs"][0]["shape"] == [1, 3, 8, 8]


@pytest.mark.parametrize("confined", [(), ("--sandbox=best-effort",)])
@pytest.mark.long
def test_a_model_among_other_things(folder, confined):
    result = hub("run", "./repo", "pair", "--input", "x.npy", *confined)
    assert result.exit_code == 0, result.output
    assert "pair returned a tuple of 0 (Net), 1 (dict of 1); taken: 0" in result.stderr
    result = hub("run", "./repo", "models", "--input", "x.npy", *confined)
    assert result.exit_code == 2
    assert "models returned several models: a dict of a (Net), b (Several)" in result.stderr
    assert "choose one: --select a" in result.stderr
    result = hub("--json", "run", "./repo", "models", "--select", "b", "--input", "x.npy", *confined)
    assert len(json.loads(result.stdout)["outputs"]) == 3
    result = hub("run", "./repo", "pair", "--select", "1.add", "--input", "x.npy", *confined)
    assert result.exit_code == 0 and "[[2., 3.]]" in result.stdout
    result = hub("load", "./repo", "models", "--select", "c", *confined)
    assert result.exit_code == 2
    assert "--select 'c': the result has no 'c'" in result.stderr
    assert "it is a dict of a (Net), b (Several)" in result.stderr
    assert "Several" in hub("load", "./repo", "models", "--select", "b", *confined).stdout


def test_a_batch_has_a_progress_bar(folder, monkeypatch):
    steps = []

    class Bar(output.Progress):
        def __init__(self, *opened: object, **more: object) -> None:
            steps.append((*opened, more))

        def update(self, n: int = 1) -> None:
            steps.append(n)

    monkeypatch.setattr(output, "progress", Bar)
    for name in ("a.npy", "b.npy"):
        np.save(name, np.ones((1, 2)))
    assert hub("run", "./repo", "function", "--input", "a.npy", "--input", "b.npy").exit_code == 0
    assert steps == [("running function", 2, {"unit": "inputs"}), 1, 1]


def test_its_help_says_what_the_keys_of_an_npz_are():
    assert "the keys of an .npz are keyword arguments" in " ".join(hub("run", "--help").stdout.split())


@pytest.mark.cuda
def test_commands_on_a_gpu(folder):
    """run, load and profile with --device cuda, on the stand-in or the card; a device that is not there is named."""
    from tests.engine import standin

    with standin.running():
        made = json.loads(hub("--json", "run", "./repo", "net", "--input", "x.npy", "--device", "cuda").stdout)
        assert made["outputs"][0]["values"] == [[0.0, 0.0, 0.0]]
        assert "device      cuda:0" in hub("load", "./repo", "net", "--device", "cuda:0").stdout
        assert "aten::mm" in hub("profile", "./repo", "net", "--device", "cuda", "--input-shape", "1,2").stdout
        for command in (("load",), ("run", "--input", "x.npy")):
            result = hub(command[0], "./repo", "net", *command[1:], "--device", "cuda:7")
            assert result.exit_code == 2 and "cuda:7 does not exist, " in result.stderr


def test_a_gpu_where_there_is_none(folder):
    import engine

    if engine.cuda.is_available():
        pytest.skip("there is one")
    for command in (("load",), ("run", "--input", "x.npy"), ("profile", "--input-shape", "1,2")):
        result = hub(command[0], "./repo", "net", *command[1:], "--device", "cuda")
        assert result.exit_code == 2 and "--device 'cuda': device 'cuda' " in result.stderr
        assert "Traceback" not in result.stderr and "use device='cpu'" in result.stderr
