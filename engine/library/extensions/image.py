"""torch.ops.image: files, and images read and written by Pillow, as torchvision's compiled extension does itself.

Images are uint8 (C, H, W); a PNG of 16 bits is uint16.  What cannot be decoded raises RuntimeError.
"""

from __future__ import annotations

import importlib
import io
from pathlib import Path
from typing import Any

import numpy as np

from engine.library.operators import define_built_in as define
from engine.tensor import Tensor, wrap

__all__: list[str] = []

UNCHANGED, GRAY, GRAY_ALPHA, RGB, RGBA = range(5)
_MODES = {GRAY: "L", GRAY_ALPHA: "LA", RGB: "RGB", RGBA: "RGBA"}
# the weights of red and green in a grey PNG, as libpng has them, in units of 1/32768
_RED, _GREEN = 9794, 19235


def _pillow() -> Any:
    try:
        return importlib.import_module("PIL.Image")
    except ModuleNotFoundError:
        raise ImportError(
            "torch.ops.image: images are read and written by Pillow: pip install 'hubcli[image]'"
        ) from None


def _bytes(data: Tensor) -> bytes:
    if data.dim() != 1 or data.numel() == 0 or str(data.dtype) != "torch.uint8":
        raise RuntimeError(
            f"Expected a non empty 1-dimensional tensor of uint8, got {data.dtype} of shape {list(data.shape)}"
        )
    return data.detach().cpu().contiguous().numpy().tobytes()


def _tensor(content: bytes) -> Tensor:
    return wrap(np.frombuffer(content, np.uint8).copy())


def read_file(filename: str) -> Tensor:
    """The bytes of a file, uint8 (n); RuntimeError where there is none."""
    try:
        return _tensor(Path(filename).read_bytes())
    except OSError as error:
        raise RuntimeError(f"[Errno {error.errno}] {error.strerror}: '{filename}'") from None


def write_file(filename: str, data: Tensor) -> Tensor:
    """Write the bytes of a tensor, uint8 (n), to a file; the tensor."""
    try:
        Path(filename).write_bytes(_bytes(data))
    except OSError as error:
        raise RuntimeError(f"[Errno {error.errno}] {error.strerror}: '{filename}'") from None
    return data


def _opened(content: bytes, kind: str, orient: bool = False) -> Any:
    image = _pillow()
    try:
        found = image.open(io.BytesIO(content), formats=[kind])
    except Exception as error:
        raise RuntimeError(f"decode_{kind.lower()}: Content is not {kind.lower()}: {error}") from None
    if orient:
        found = importlib.import_module("PIL.ImageOps").exif_transpose(found)
    return found


def _pixels(image: Any, kind: str) -> np.ndarray:
    """(H, W, C)"""
    try:
        found = np.array(image)
    except Exception as error:
        raise RuntimeError(f"decode_{kind.lower()}: the image is broken: {error}") from None
    return found[:, :, None] if found.ndim == 2 else found


def _planes(pixels: np.ndarray) -> Tensor:
    return wrap(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def _grey(pixels: np.ndarray) -> np.ndarray:
    """libpng's grey of RGB.  (H, W, 3) -> (H, W, 1)."""
    wide = pixels.astype(np.int64)
    mixed = _RED * wide[..., 0] + _GREEN * wide[..., 1] + (32768 - _RED - _GREEN) * wide[..., 2]
    return ((mixed + 16384) >> 15).astype(pixels.dtype)[..., None]


def _as_mode(pixels: np.ndarray, mode: int) -> np.ndarray:
    """Pixels of 1 to 4 channels with those of a mode."""
    if mode == UNCHANGED:
        return pixels
    channels = pixels.shape[2]
    opaque = np.full((*pixels.shape[:2], 1), np.iinfo(pixels.dtype).max, pixels.dtype)
    colour, alpha = (pixels[..., :-1], pixels[..., -1:]) if channels in (2, 4) else (pixels, opaque)
    if mode in (GRAY, GRAY_ALPHA) and colour.shape[2] == 3:
        colour = _grey(colour)
    elif mode in (RGB, RGBA) and colour.shape[2] == 1:
        colour = np.repeat(colour, 3, 2)
    return np.concatenate([colour, alpha], 2) if mode in (GRAY_ALPHA, RGBA) else colour


def decode_png(data: Tensor, mode: int, apply_exif_orientation: bool = False) -> Tensor:
    """A PNG.  data uint8 (n) -> (C, H, W), uint8 or uint16."""
    image = _opened(_bytes(data), "PNG", apply_exif_orientation)
    if image.mode == "P":
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    elif image.mode == "1":
        image = image.convert("L")
    elif "transparency" in image.info and image.mode in ("L", "RGB"):
        image = image.convert(image.mode + "A")
    pixels = _pixels(image, "PNG")
    if pixels.dtype == np.int32:  # 16 bits of grey
        pixels = pixels.astype(np.uint16)
    return _planes(_as_mode(pixels, mode))


def decode_jpeg(data: Tensor, mode: int, apply_exif_orientation: bool = False) -> Tensor:
    """A JPEG.  data uint8 (n) -> uint8 (C, H, W)."""
    if mode not in (UNCHANGED, GRAY, RGB):
        raise RuntimeError("decode_jpeg: The provided mode is not supported for JPEG files")
    image = _opened(_bytes(data), "JPEG")
    if mode == GRAY:
        image.draft("L", image.size)  # the luminance, as it is in the file
    if mode != UNCHANGED and image.mode != _MODES[mode]:
        image = image.convert(_MODES[mode])
    if apply_exif_orientation:
        image = importlib.import_module("PIL.ImageOps").exif_transpose(image)
    return _planes(_pixels(image, "JPEG"))


def decode_gif(data: Tensor) -> Tensor:
    """A GIF.  data uint8 (n) -> uint8 (3, H, W), with several frames (N, 3, H, W)."""
    image = _opened(_bytes(data), "GIF")
    frames = []
    for number in range(getattr(image, "n_frames", 1)):
        image.seek(number)
        frames.append(np.asarray(image.convert("RGB")).transpose(2, 0, 1))
    found = np.stack(frames)
    return wrap(np.ascontiguousarray(found if len(frames) > 1 else found[0]))


def _decode_alpha(kind: str) -> Any:
    """The decoder of a format whose images are RGB, with or without alpha."""

    def decode(data: Tensor, mode: int) -> Tensor:
        if mode not in (UNCHANGED, RGB, RGBA):
            raise RuntimeError(f"decode_{kind.lower()}: The provided mode is not supported for {kind} files")
        image = _opened(_bytes(data), kind)
        wanted = image.mode if mode == UNCHANGED and image.mode in ("RGB", "RGBA") else _MODES.get(mode, "RGB")
        return _planes(_pixels(image.convert(wanted), kind))

    return decode


decode_webp, decode_avif = _decode_alpha("WEBP"), _decode_alpha("AVIF")


def decode_image(data: Tensor, mode: int, apply_exif_orientation: bool = False) -> Tensor:
    """An image of any of these formats, told by its first bytes."""
    content = _bytes(data)[:16]
    if content[:3] == b"\xff\xd8\xff":
        return decode_jpeg(data, mode, apply_exif_orientation)
    if content[:4] == b"\x89PNG":
        return decode_png(data, mode, apply_exif_orientation)
    if content[:6] in (b"GIF87a", b"GIF89a"):
        return decode_gif(data)
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return decode_webp(data, mode)
    if content[4:8] == b"ftyp" and content[8:12] in (b"avif", b"avis"):
        return decode_avif(data, mode)
    raise RuntimeError(
        "Unsupported image file. Only jpeg, png, gif and webp are currently supported. For avif and heic, please "
        "rely on `decode_avif` and `decode_heic` directly."
    )


def _image(data: Tensor, name: str) -> Any:
    """A Pillow image of a tensor (1 or 3, H, W)."""
    if str(data.dtype) != "torch.uint8":
        raise RuntimeError(f"{name}: Input tensor dtype should be uint8, got {data.dtype}")
    if data.dim() != 3:
        raise RuntimeError(f"{name}: Input data should be a 3-dimensional tensor, got {data.dim()}")
    if data.shape[0] not in (1, 3):
        raise RuntimeError(f"{name}: The number of channels should be 1 or 3, got: {data.shape[0]}")
    pixels = data.detach().cpu().numpy().transpose(1, 2, 0)
    return _pillow().fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels))


def encode_png(data: Tensor, compression_level: int) -> Tensor:
    """An image as a PNG.  data uint8 (1 or 3, H, W) -> uint8 (n)."""
    if not 0 <= compression_level <= 9:
        raise RuntimeError("encode_png: Compression level should be between 0 and 9")
    out = io.BytesIO()
    _image(data, "encode_png").save(out, "PNG", compress_level=compression_level)
    return _tensor(out.getvalue())


def encode_jpeg(data: Tensor, quality: int) -> Tensor:
    """An image as a JPEG.  data uint8 (1 or 3, H, W) -> uint8 (n)."""
    out = io.BytesIO()
    _image(data, "encode_jpeg").save(out, "JPEG", quality=quality)
    return _tensor(out.getvalue())


def _jpeg_version() -> int:
    """The version of libjpeg's interface that is spoken: 62, 70 or 80."""
    return 62


def _is_compiled_against_turbo() -> bool:
    """Return whether Pillow reads JPEG by libjpeg-turbo."""
    _pillow()
    return bool(importlib.import_module("PIL.features").check_feature("libjpeg_turbo"))


def _refused(name: str, why: str) -> Any:
    def refuse(*args: Any) -> Any:
        raise NotImplementedError(f"torch.ops.image.{name} is not supported: {why}")

    return refuse


for _schema, _function in {
    "read_file(str filename) -> Tensor": read_file,
    "write_file(str filename, Tensor data) -> Tensor": write_file,
    "decode_png(Tensor data, int mode, bool apply_exif_orientation=False) -> Tensor": decode_png,
    "decode_jpeg(Tensor data, int mode, bool apply_exif_orientation=False) -> Tensor": decode_jpeg,
    "decode_gif(Tensor data) -> Tensor": decode_gif,
    "decode_webp(Tensor encoded_data, int mode) -> Tensor": decode_webp,
    "decode_avif(Tensor encoded_data, int mode) -> Tensor": decode_avif,
    "decode_heic(Tensor encoded_data, int mode) -> Tensor": _refused("decode_heic", "Pillow does not read HEIC"),
    "decode_image(Tensor data, int mode, bool apply_exif_orientation=False) -> Tensor": decode_image,
    "encode_png(Tensor data, int compression_level) -> Tensor": encode_png,
    "encode_jpeg(Tensor data, int quality) -> Tensor": encode_jpeg,
    "decode_jpegs_cuda(Tensor[] encoded_images, int mode, Device device) -> Tensor[]": _refused(
        "decode_jpegs_cuda", "images are decoded on the CPU"
    ),
    "encode_jpegs_cuda(Tensor[] decoded_images, int quality) -> Tensor[]": _refused(
        "encode_jpegs_cuda", "images are encoded on the CPU"
    ),
    "_jpeg_version() -> int": _jpeg_version,
    "_is_compiled_against_turbo() -> bool": _is_compiled_against_turbo,
}.items():
    define("image", _schema, _function)
