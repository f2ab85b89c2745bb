"""Inputs that are no arrays, and the formats of results."""

from __future__ import annotations

import json
import wave

import numpy as np
import pytest
from PIL import Image

from engine import serialization
from hubcli.errors import UsageError
from hubcli.running import files


def test_folders_and_patterns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for name in ("b.npy", "a.png", ".hidden", "notes.md"):
        (tmp_path / "in" / name).write_bytes(b"")
    assert files.expanded(["in"]) == ["in/a.png", "in/b.npy"]
    assert files.expanded(["in/*.npy", "in/a.png", "-"][:2]) == ["in/b.npy", "in/a.png"]
    for sources, message in (
        (["nowhere"], "no such file"),
        (["in/*.csv"], "no file matches"),
        (["-", "in"], "stdin"),
    ):
        with pytest.raises(UsageError, match=message):
            files.expanded(sources)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no input file in this folder"):
        files.expanded(["empty"])


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,2\n3,4\n", [[1, 2], [3, 4]]),
        ("a,b\r\n1,2.5\r\n", [[1, 2.5]]),
        ("\ufeff1;2\n", [[1, 2]]),
        ("1\t-2e3\n", [[1, -2000]]),
    ],
)
def test_tables(tmp_path, text, values):
    (tmp_path / "x.csv").write_text(text, newline="")
    made = files.table(tmp_path / "x.csv", "x.csv")
    assert made.dtype == np.float32 and made.tolist() == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no row of numbers"),
        ("a,b\n", "no row of numbers"),
        ("1,2\n3\n", "row 2 of numbers has 1 columns, the first 2"),
        ("a,b\n1,x\n", "row 1 of numbers, column 2: 'x' is no number"),
    ],
)
def test_no_tables(tmp_path, text, message):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(UsageError, match=message):
        files.table(tmp_path / "x.csv", "x.csv")


@pytest.mark.parametrize(("width", "kind", "full"), [(1, "u1", 128), (2, "<i2", 1 << 15), (4, "<i4", 1 << 31)])
def test_sound_of_whole_numbers_needs_nothing_else(tmp_path, capsys, width, kind, full):
    samples = np.array([[0.5, -0.5], [0.25, 0.0], [-1.0, 0.75]])
    raw = samples * full + (128 if width == 1 else 0)
    with wave.open(str(tmp_path / "x.wav"), "wb") as file:
        file.setparams((2, width, 8000, 3, "NONE", ""))
        file.writeframes(raw.astype(kind).tobytes())
    made = files.sound(tmp_path / "x.wav", "x.wav")
    assert made.shape == (2, 3) and made.dtype == np.float32
    assert made.T.tolist() == samples.tolist()
    assert capsys.readouterr().err == "x.wav: 8000 Hz, channels: 2\n"


@pytest.mark.parametrize(("suffix", "subtype"), [(".flac", "PCM_16"), (".wav", "FLOAT"), (".wav", "PCM_24")])
def test_other_sound(tmp_path, suffix, subtype):
    soundfile = pytest.importorskip("soundfile")
    samples = np.array([0.5, -0.25, 0.0], np.float32)
    soundfile.write(tmp_path / f"x{suffix}", samples, 16000, subtype=subtype)
    assert files.sound(tmp_path / f"x{suffix}", "x").tolist() == [samples.tolist()]
    (tmp_path / "bad.flac").write_bytes(b"nonsense")
    with pytest.raises(UsageError, match="cannot be read as sound"):
        files.sound(tmp_path / "bad.flac", "bad.flac")


def test_values_are_json():
    assert json.loads(json.dumps(files.values(np.array([1, np.nan, -np.inf])))) == [1, None, None]
    assert files.values(np.array([1 + 2j])) == [[1.0, 2.0]]
    assert files.values(np.array(True)) is True


def test_formats(tmp_path):
    array = np.array([[0.0, 1.0], [0.5, 2.0]], np.float32)
    for suffix in files.TARGETS:
        files.write(tmp_path / f"y{suffix}", [("out", array)])
    assert np.load(tmp_path / "y.npy").tolist() == array.tolist()
    assert np.load(tmp_path / "y.npz")["out"].tolist() == array.tolist()
    assert json.loads((tmp_path / "y.json").read_text()) == {"out": array.tolist()}
    assert (tmp_path / "y.csv").read_text() == "0.0,1.0\n0.5,2.0\n"
    assert serialization.load_safetensors(tmp_path / "y.safetensors")["out"].tolist() == array.tolist()
    with Image.open(tmp_path / "y.png") as picture:
        assert np.asarray(picture).tolist() == [[0, 255], [128, 255]]


def test_pictures():
    colour = np.zeros((1, 3, 2, 2), np.float32)
    colour[0, 0] = 1
    import io

    with Image.open(io.BytesIO(files.encoded(".png", [("out", colour)]))) as picture:
        assert (picture.mode, np.asarray(picture)[0, 0].tolist()) == ("RGB", [255, 0, 0])
    for suffix in (".png", ".csv"):
        with pytest.raises(UsageError, match=r"out .*\(1, 7, 2, 2\)"):
            files.encoded(suffix, [("out", np.zeros((1, 7, 2, 2)))])
