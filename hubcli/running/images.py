"""Images as inputs of a model: read with Pillow, and prepared as the options or the model say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hubcli.errors import DependencyError, UsageError
from hubcli.running import files

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

MAX_PIXELS = 200_000_000


@dataclass(frozen=True)
class Preprocessing:
    """The preprocessing of an image to (1, 3, H, W), or (1, 1, H, W) if `gray`: shorter side, central square, (x -
    mean) / std."""

    resize: int | None
    crop: int | None
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    gray: bool = False

    @classmethod
    def of(
        cls,
        preset: str | None,
        resize: int | None,
        crop: int | None,
        mean: str | None,
        std: str | None,
        gray: bool = False,
    ) -> Preprocessing:
        """From the options; single options change the preset."""
        base = _PRESETS[preset or ""]
        return cls(
            base.resize if resize is None else resize,
            base.crop if crop is None else crop,
            base.mean if mean is None else _triple(mean, "--mean"),
            base.std if std is None else _triple(std, "--std"),
            gray,
        )

    @classmethod
    def of_model(cls, model: Any) -> Preprocessing | None:
        """Return what the model itself says of the images it was trained on (timm's `pretrained_cfg`), or None."""
        for name in ("pretrained_cfg", "default_cfg"):
            told: Any = getattr(model, name, None)
            try:
                side = int(told["input_size"][-1])
                mean, std = (tuple(float(one) for one in told[key]) for key in ("mean", "std"))
                resize = int(side / float(told.get("crop_pct") or 0.875))
            except (TypeError, KeyError, ValueError, AttributeError, ZeroDivisionError):
                continue
            if len(mean) == len(std) == 3 and 0 not in std and 0 < side <= resize <= 16384:
                return cls(resize, side, (mean[0], mean[1], mean[2]), (std[0], std[1], std[2]))
        return None

    def array(self, file: Any, name: str) -> Array:
        """Read and prepare an image, as float32 in (1, channels, H, W)."""
        return self.prepared(read_image(file, name))

    def prepared(self, image: Any) -> Array:
        """Return an image of Pillow's as float32 in (1, channels, H, W)."""
        import numpy as np
        from PIL import Image

        image = image.convert("L" if self.gray else "RGB")
        if self.resize is not None:
            scale = self.resize / min(image.size)
            width, height = (max(1, round(side * scale)) for side in image.size)
            image = image.resize((width, height), Image.Resampling.BILINEAR)
        if self.crop is not None:
            left, top = ((side - self.crop) // 2 for side in image.size)
            image = image.crop((left, top, left + self.crop, top + self.crop))
        pixels = np.asarray(image, dtype=np.float64) / 255
        channels = 1 if self.gray else 3
        pixels = pixels.reshape(*pixels.shape[:2], channels)
        pixels = (pixels - np.array(self.mean[:channels])) / np.array(self.std[:channels])
        return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None], dtype=np.float32)


def read_image(file: Any, name: str) -> Any:
    """Return an image file as an image of Pillow's in RGB (or gray, where it is gray)."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise DependencyError(
            f"{name} is an image, and Pillow is not installed",
            hint="run: python -m pip install Pillow",
        ) from None
    try:
        with Image.open(file) as opened:
            if opened.width * opened.height > MAX_PIXELS:
                raise UsageError(f"{name} has {opened.width} x {opened.height} pixels")
            return opened.copy() if opened.mode == "L" else opened.convert("RGB")
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(
            f"{name} cannot be read as an image: {error}",
            hint=f"inputs are .npy, .npz, .csv, .txt, {', '.join(files.SOUNDS)}, or an image that Pillow reads",
        ) from None


def image(pixels: Array) -> Any:
    """Bytes of (H, W, 3) as an image of Pillow's."""
    from PIL import Image

    return Image.fromarray(pixels, "RGB")


AS_IT_IS = Preprocessing(None, None, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
_PRESETS = {
    "": AS_IT_IS,
    "imagenet": Preprocessing(256, 224, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


def _triple(text: str, option: str) -> tuple[float, float, float]:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) == 1:
        values *= 3
    if len(values) != 3 or (option == "--std" and 0.0 in values):
        raise UsageError(f"{option} {text!r} is not R,G,B", hint=f"e.g. {option} 0.5,0.5,0.5")
    return (values[0], values[1], values[2])
