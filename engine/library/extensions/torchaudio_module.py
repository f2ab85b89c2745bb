"""In place of torchaudio's compiled modules `_torchaudio`, linked to torch's libraries: what they say of themselves.

The operators are in `torchaudio.py` beside this; room acoustics, sox, ffmpeg and the CTC decoders are not among them.
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
