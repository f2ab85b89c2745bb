"""torch.ops.torchaudio and torch.ops._torchaudio: what torchaudio's compiled extension defines, from 0.10 to 2.11."""

from __future__ import annotations

import sys
from typing import Any

from engine.library.extensions import torchaudio_module
from engine.library.operators import define_built_in as define
from engine.ops import alignment, audio

__all__: list[str] = []

_TRANSDUCER = "Tensor logits, Tensor targets, Tensor logit_lengths, Tensor target_lengths, int blank, float clamp"


def _no() -> bool:
    """False: kaldi and sox are not built in."""
    return False


def _forced_align(log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int) -> Any:
    """The labels, and their scores as torchaudio's Python expects them: up to 2.8 it returns them as they are."""
    path, scores = alignment.forced_align(log_probs, targets, input_lengths, target_lengths, blank)
    version = getattr(sys.modules.get("torchaudio"), "__version__", "9")
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < (2, 9):
        scores = scores.gather(-1, path.long().unsqueeze(-1)).squeeze(-1)
    return path, scores


for _schema, _function in {
    "_lfilter(Tensor waveform, Tensor a_coeffs, Tensor b_coeffs) -> Tensor": audio._lfilter,
    "_lfilter_core_loop(Tensor input_signal_windows, Tensor a_coeff_flipped, Tensor(a!) padded_output_waveform) "
    "-> Tensor(a!)": audio._lfilter_core_loop,
    "_overdrive_core_loop(Tensor waveform, Tensor temp, Tensor(a!) last_in, Tensor(b!) last_out, "
    "Tensor(c!) output_waveform) -> (Tensor(a!), Tensor(b!), Tensor(c!))": audio._overdrive_core_loop,
    f"rnnt_loss({_TRANSDUCER}, bool fused_log_softmax=True) -> (Tensor, Tensor?)": alignment.rnnt_loss_forward,
    f"rnnt_loss_forward({_TRANSDUCER}, bool fused_log_softmax=True) -> (Tensor, Tensor)": alignment.rnnt_loss_forward,
    "forced_align(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank) "
    "-> (Tensor, Tensor)": _forced_align,
    "is_sox_available() -> bool": _no,
    "is_kaldi_available() -> bool": _no,
}.items():
    define("torchaudio", _schema, _function)


def _version() -> Any:
    return torchaudio_module.cuda_version()


define("_torchaudio", "is_align_available() -> bool", torchaudio_module.is_align_available)
define("_torchaudio", "cuda_version() -> int?", _version)
