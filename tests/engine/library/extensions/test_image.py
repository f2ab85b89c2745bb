"""torch.ops.image: files and images by Pillow."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest

import engine

Image = pytest.importorskip("PIL.Image")
ops = engine.ops.image
PIXELS = np.random.default_rng(0).integers(0, 256, (3, 9, 12), dtype=np.uint8)


def file_of(image, kind: str, **options) -> engine.Tensor:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return engine.tensor(list(out.getvalue()), dtype=engine.uint8)


def picture(mode: str = "RGB"):
    return Image.fromarray(PIXELS.transpose(1, 2, 0)).convert(mode)


def test_a_png_goes_round() -> None:
    x = engine.tensor(PIXELS)
    for level in (0, 9):
        assert engine.equal(ops.decode_png(ops.encode_png(x, level), 0), x)
    assert engine.equal(ops.decode_image(ops.encode_png(x[:1], 6), 0), x[:1])


def test_the_modes_of_a_png() -> None:
    png = file_of(picture(), "PNG")
    shapes = {mode: ops.decode_png(png, mode).shape[0] for mode in range(5)}
    assert shapes == {0: 3, 1: 1, 2: 2, 3: 3, 4: 4}
    red, green, blue = (PIXELS[i].astype(int) for i in range(3))
    grey = (9794 * red + 19235 * green + 3739 * blue + 16384) >> 15
    assert ops.decode_png(png, 1)[0].tolist() == grey.tolist()
    assert bool((ops.decode_png(png, 4)[3] == 255).all())
    assert ops.decode_png(file_of(picture("LA"), "PNG"), 3).shape[0] == 3
    assert ops.decode_png(file_of(picture("P"), "PNG"), 0).shape[0] == 3
    assert ops.decode_png(file_of(picture("1"), "PNG"), 0).shape[0] == 1


def test_sixteen_bits() -> None:
    wide = np.arange(12, dtype=np.uint16).reshape(3, 4) * 5000
    found = ops.decode_png(file_of(Image.fromarray(wide), "PNG"), 0)
    assert found.dtype is engine.uint16 and found[0].tolist() == wide.tolist()


def test_jpeg() -> None:
    flat = engine.tensor(np.full((3, 16, 16), 100, np.uint8))
    jpeg = ops.encode_jpeg(flat, 95)
    for decoded in (ops.decode_jpeg(jpeg, 0), ops.decode_image(jpeg, 3)):
        assert decoded.shape == (3, 16, 16) and int((decoded.int() - 100).abs().max()) <= 2
    assert ops.decode_jpeg(jpeg, 1).shape == (1, 16, 16)
    with pytest.raises(RuntimeError, match="The provided mode is not supported for JPEG files"):
        ops.decode_jpeg(jpeg, 4)


def test_the_orientation_of_a_photograph() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    jpeg = file_of(picture(), "JPEG", exif=exif)
    assert ops.decode_jpeg(jpeg, 0).shape == (3, 9, 12) and ops.decode_jpeg(jpeg, 0, True).shape == (3, 12, 9)


def test_other_formats() -> None:
    gif = file_of(picture("P"), "GIF")
    assert ops.decode_gif(gif).shape == (3, 9, 12) and ops.decode_image(gif, 0).shape == (3, 9, 12)
    two = file_of(picture("P"), "GIF", save_all=True, append_images=[picture("P").rotate(180)])
    assert ops.decode_gif(two).shape == (2, 3, 9, 12)
    webp = file_of(picture(), "WEBP", lossless=True)
    assert engine.equal(ops.decode_webp(webp, 0), engine.tensor(PIXELS)) and ops.decode_image(webp, 4).shape[0] == 4


def test_files(tmp_path) -> None:
    x = engine.tensor([1, 2, 255], dtype=engine.uint8)
    assert ops.write_file(str(tmp_path / "x"), x) is x
    assert engine.equal(ops.read_file(str(tmp_path / "x")), x)
    with pytest.raises(RuntimeError, match=r"\[Errno 2\] No such file or directory: '.*none'"):
        ops.read_file(str(tmp_path / "none"))


def test_what_is_refused() -> None:
    x = engine.tensor(PIXELS)
    for call, text in [
        (lambda: ops.decode_png(file_of(picture(), "JPEG"), 0), "Content is not png"),
        (lambda: ops.decode_png(file_of(picture(), "PNG")[:60], 0), "decode_png: "),
        (lambda: ops.decode_image(x.flatten(), 0), "Unsupported image file"),
        (lambda: ops.decode_image(x, 0), "Expected a non empty 1-dimensional tensor of uint8"),
        (lambda: ops.encode_png(x.float(), 6), "Input tensor dtype should be uint8, got torch.float32"),
        (lambda: ops.encode_png(x, 10), "Compression level should be between 0 and 9"),
        (lambda: ops.encode_jpeg(x[:2], 90), "The number of channels should be 1 or 3, got: 2"),
    ]:
        with pytest.raises(RuntimeError, match=text):
            call()
    with pytest.raises(NotImplementedError, match="decode_jpegs_cuda is not supported"):
        ops.decode_jpegs_cuda([x.flatten()], 0, "cpu")


def test_without_pillow_the_extra_is_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match=r"pip install 'hubcli\[image\]'"):
        ops.encode_png(engine.tensor(PIXELS), 6)
