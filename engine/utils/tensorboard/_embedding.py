"""The files of tensorboard's projector: vectors, labels, small images and their configuration."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import text_format
from tensorboard.plugins.projector.projector_config_pb2 import EmbeddingInfo

from engine.utils.tensorboard._convert_np import make_np
from engine.utils.tensorboard._utils import make_grid, png

__all__ = ["get_embedding_info", "make_mat", "make_sprite", "make_tsv", "write_pbtxt"]


def make_tsv(metadata: Sequence[Any], save_path: Any, metadata_header: Sequence[str] | None = None) -> None:
    """metadata.tsv: a label a line, or a line of columns under `metadata_header`."""
    if not metadata_header:
        lines = [str(x) for x in metadata]
    else:
        if any(len(row) != len(metadata_header) for row in metadata):
            raise AssertionError("len of header must be equal to the number of columns in metadata")
        lines = ["\t".join(str(x) for x in row) for row in [metadata_header, *metadata]]
    # a line break inside of a label would make two of it
    whole = [line.replace("\r", " ").replace("\n", " ") for line in lines]
    (Path(save_path) / "metadata.tsv").write_text("\n".join(whole) + "\n", encoding="utf-8")


def make_sprite(label_img: Any, save_path: Any) -> None:
    """sprite.png: images (n, C, H, H) in a square of rows and columns.  AssertionError for other images."""
    from PIL import Image

    images = make_np(label_img)
    if images.shape[2] != images.shape[3]:
        raise AssertionError(f"Image should be square, see tensorflow/tensorboard#670: got {images.shape[2:]}")
    side = math.ceil(math.sqrt(images.shape[0]))
    scale = 1 if images.dtype == np.uint8 else 255
    whole = np.zeros((side * side, *images.shape[1:]), np.float32)
    whole[: images.shape[0]] = images.astype(np.float32) * scale
    grid = make_grid(whole, ncols=side).clip(0, 255).astype(np.uint8)
    (Path(save_path) / "sprite.png").write_bytes(png(Image.fromarray(np.moveaxis(grid, 0, 2))))


def make_mat(matlist: Sequence[Sequence[Any]], save_path: Any) -> None:
    """tensors.tsv: a vector per line."""
    lines = ["\t".join(str(x) for x in row) for row in matlist]
    (Path(save_path) / "tensors.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def get_embedding_info(metadata: Any, label_img: Any, subdir: str, global_step: Any, tag: str) -> Any:
    """Build the projector's entry for an embedding: the paths of its files."""
    info = EmbeddingInfo(tensor_name=f"{tag}:{str(global_step).zfill(5)}", tensor_path=f"{subdir}/tensors.tsv")
    if metadata is not None:
        info.metadata_path = f"{subdir}/metadata.tsv"
    if label_img is not None:
        info.sprite.image_path = f"{subdir}/sprite.png"
        info.sprite.single_image_dim.extend([label_img.shape[3], label_img.shape[2]])
    return info


def write_pbtxt(save_path: Any, contents: str) -> None:
    """projector_config.pbtxt of a folder."""
    (Path(save_path) / "projector_config.pbtxt").write_text(contents, encoding="utf-8")


def text_of(config: Any) -> str:
    """A protobuf as text."""
    return text_format.MessageToString(config)
