"""What torchaudio's compiled modules, which are linked to torch's libraries, say of themselves: the engine has their work.

Its operators are those of `engine/ops/audio.py` and `alignment.py`; room acoustics, sox and ffmpeg are not among them.
"""

from __future__ import annotations

__all__ = ["cuda_version", "is_align_available", "is_rir_available"]


def cuda_version() -> None:
    """None: nothing was compiled with CUDA."""


def is_align_available() -> bool:
    """True: `forced_align` is there."""
    return True


def is_rir_available() -> bool:
    """False: responses of rooms are not simulated."""
    return False
