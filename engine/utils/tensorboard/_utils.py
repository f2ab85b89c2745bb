"""Figures, batches of images and of videos as single images with channels last."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

__all__ = ["convert_to_HWC", "figure_to_image", "make_grid"]


def figure_to_image(figures: Any, close: bool = True) -> np.ndarray:
    """Figures of matplotlib as arrays of bytes: one (3, H, W), a list (n, 3, H, W)."""
    if isinstance(figures, list):
        return np.stack([figure_to_image(figure, close) for figure in figures])
    from matplotlib import pyplot
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figures)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[:, :, :3]
    if close:
        pyplot.close(figures)
    return np.ascontiguousarray(np.moveaxis(pixels, 2, 0))


def _with_three_channels(images: np.ndarray) -> np.ndarray:
    """images (n, 1, H, W) with their channel thrice; others as they are."""
    return np.repeat(images, 3, axis=1) if images.shape[1] == 1 else images


def make_grid(images: np.ndarray, ncols: int = 8) -> np.ndarray:
    """A batch as one image of `ncols` columns.  images (n, C, H, W) -> (C, rows * H, columns * W)."""
    if images.ndim != 4 or images.shape[1] not in (1, 3, 4):
        raise AssertionError(f"a batch of images is (n, 1, H, W) or (n, 3, H, W), got {images.shape}")
    images = _with_three_channels(images)
    n, channels, height, width = images.shape
    columns = min(ncols, n)
    rows = -(-n // columns)
    canvas = np.zeros((rows * columns, channels, height, width), images.dtype)
    canvas[:n] = images
    grid = canvas.reshape(rows, columns, channels, height, width).transpose(2, 0, 3, 1, 4)
    return grid.reshape(channels, rows * height, columns * width)


def convert_to_HWC(tensor: np.ndarray, input_format: str) -> np.ndarray:
    """An image, or a batch laid out as a grid, in any order of dims.  tensor (*) -> (H, W, C).

    input_format: the letters of the dims, of NCHW, CHW and HW.  AssertionError where it does not fit.
    """
    letters = input_format.upper()
    if len(set(letters)) != len(letters):
        raise AssertionError(f"You can not use the same dimension shordhand twice. input_format: {input_format}")
    if tensor.ndim != len(letters) or set(letters) not in ({*"NCHW"}, {*"CHW"}, {*"HW"}):
        raise AssertionError(f"size of input tensor and input format are different: {tensor.shape}, {input_format}")
    wanted = "NCHW" if "N" in letters else "CHW"
    ordered = tensor.transpose([letters.index(c) for c in wanted if c in letters])
    if len(letters) == 2:
        return np.repeat(ordered[:, :, None], 3, axis=2)
    image = make_grid(ordered) if wanted == "NCHW" else _with_three_channels(ordered[None])[0]
    return image.transpose(1, 2, 0)


def _prepare_video(videos: np.ndarray) -> np.ndarray:
    """A batch of videos side by side, filled up to a power of two; bytes become floats of 0 to 1.

    videos (n, t, C, H, W) -> (t, rows * H, columns * W, C).
    """
    if videos.dtype == np.uint8:
        videos = videos.astype(np.float32) / 255.0
    n, frames, channels, height, width = videos.shape
    power = max(n - 1, 0).bit_length()
    rows, columns = 1 << power // 2, 1 << power - power // 2
    whole = np.zeros((rows * columns, *videos.shape[1:]), videos.dtype)
    whole[:n] = videos
    grid = whole.reshape(rows, columns, frames, channels, height, width).transpose(2, 0, 4, 1, 5, 3)
    return grid.reshape(frames, rows * height, columns * width, channels)


def png(image: Any) -> bytes:
    """An image of Pillow as a PNG file."""
    file = io.BytesIO()
    image.save(file, format="PNG")
    return file.getvalue()
