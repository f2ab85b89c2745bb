"""Transforms, filters, kaldi features, models, losses and alignment of torchaudio, and a file read by soundfile."""

import tempfile
from pathlib import Path

import torch
import torchaudio
import torchaudio.functional as F
import torchaudio.transforms as T
from recorded import check, draw, fill
from torchaudio.compliance import kaldi

wave = draw("wave", 2, 8000) - 0.5
check("mel", T.MelSpectrogram(16000, n_fft=400, n_mels=40)(wave))
check("mfcc", T.MFCC(16000, n_mfcc=20, melkwargs={"n_fft": 400, "n_mels": 40})(wave))
check("fbank", kaldi.fbank(wave[:1] * 4096, num_mel_bins=40, dither=0.0))
check("resampled", F.resample(wave, 16000, 22050))
spectrum = T.Spectrogram(400, power=None)(wave)
assert torch.allclose(T.InverseSpectrogram(400)(spectrum, 8000), wave, atol=1e-5)

check("low pass", F.lowpass_biquad(wave, 16000, 800.0))
check("overdrive", F.overdrive(wave[:, :2000]))
a = torch.tensor([[1.0, -1.7, 0.8], [1.0, -0.5, 0.1]], requires_grad=True)
filtered = F.lfilter(wave[:, :500], a, torch.tensor([[0.2, 0.1, 0.05], [0.3, 0.1, 0.2]]), clamp=False)
filtered.square().mean().backward()
check("filter", [filtered, a.grad], 1e-3)

with torch.no_grad():
    check(
        "conformer",
        fill(torchaudio.models.Conformer(40, 4, 64, 2, 31))(draw("c", 2, 30, 40), torch.tensor([30, 20]))[0],
    )
    layers = [(16, 10, 5), (16, 3, 2), (16, 3, 2)]
    model = torchaudio.models.wav2vec2_model(
        "group_norm", layers, False, 48, 0.0, 16, 4, 2, 4, 0.0, 96, 0.0, 0.0, False, 0.0, 12
    )
    check("wav2vec2", fill(model)(wave)[0])
    check("tasnet", fill(torchaudio.models.ConvTasNet(2, enc_num_feats=32, msk_num_layers=3))(wave[:1, None, :2000]))
assert len(torchaudio.pipelines.WAV2VEC2_ASR_BASE_960H.get_labels()) == 29

logits = draw("logits", 2, 6, 4, 8).requires_grad_()
int32 = {"dtype": torch.int32}
loss = F.rnnt_loss(
    logits,
    torch.tensor([[1, 2, 3], [4, 5, 0]], **int32),
    torch.tensor([6, 5], **int32),
    torch.tensor([3, 2], **int32),
    0,
)
loss.backward()
check("transducer", [loss, logits.grad])
if hasattr(F, "forced_align"):
    scores = draw("scores", 1, 20, 8).log_softmax(-1)
    path, of_path = F.forced_align(scores, torch.tensor([[1, 2, 2, 3]], **int32), blank=0)
    assert torch.unique_consecutive(path[path != 0]).tolist() in ([1, 2, 3], [1, 2, 2, 3])
    check("alignment", of_path)

try:
    import soundfile
except ModuleNotFoundError:
    soundfile = None
if soundfile is not None and hasattr(torchaudio, "list_audio_backends"):  # until 2.8; later versions want torchcodec
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "x.wav")
        torchaudio.save(path, wave[:, :800], 16000, backend="soundfile")
        read, rate = torchaudio.load(path, backend="soundfile")
        assert rate == 16000 and torch.allclose(read, wave[:, :800], atol=1e-4)
