"""Entry points of the sample repository: two digit classifiers with trained weights, ResNet-18, a character model."""

dependencies = ["torch", "numpy"]

import os as _os

import torch as _torch
from sample_models.char_lm import CharLM as _CharLM
from sample_models.digits import DigitsCNN as _DigitsCNN
from sample_models.digits import DigitsMLP as _DigitsMLP
from sample_models.resnet import ResNet as _ResNet

_RELEASE = "https://github.com/hub-models/sample-hubconf/releases/download/v1.0/"
_WEIGHTS = {"digits_mlp": "digits_mlp-a4cee3ae.pth", "digits_cnn": "digits_cnn-33173ef8.pth"}


def _load(model, name, pretrained):
    """Fill `model` with the weights of `name`: from the release, or from the copy in this repository."""
    if pretrained == "repository":
        path = _os.path.join(_os.path.dirname(__file__), "weights", _WEIGHTS[name])
        state = _torch.load(path, map_location="cpu", weights_only=True)
    else:
        state = _torch.hub.load_state_dict_from_url(_RELEASE + _WEIGHTS[name], map_location="cpu", check_hash=True)
    model.load_state_dict(state)
    return model.eval()


def digits_mlp(pretrained=False, *args, **kwargs):
    """Handwritten digits, 8 x 8: a multi-layer perceptron with 11,386 parameters.

    Input (N, 1, 8, 8) float32 in 0..1 (ink is 1); output (N, 10) logits, one a digit.
    pretrained: True downloads weights trained on the UCI digits (held-out accuracy: see README.md) and checks
    their hash; "repository" reads the copy in this repository.
    hidden, dropout: passed on to the model.
    """
    model = _DigitsMLP(*args, **kwargs)
    return _load(model, "digits_mlp", pretrained) if pretrained else model


def digits_cnn(pretrained=False, *args, **kwargs):
    """Handwritten digits, 8 x 8: a convolutional network with 18,418 parameters.

    Input (N, 1, 8, 8) float32 in 0..1 (ink is 1); output (N, 10) logits, one a digit.
    pretrained: True downloads weights trained on the UCI digits (held-out accuracy: see README.md) and checks
    their hash; "repository" reads the copy in this repository.
    width, dropout: passed on to the model.
    """
    model = _DigitsCNN(*args, **kwargs)
    return _load(model, "digits_cnn", pretrained) if pretrained else model


def resnet18(pretrained=False, *args, **kwargs):
    """ResNet-18 for pictures of 224 x 224, randomly initialised; keys of the state dict as torchvision's.

    Input (N, 3, H, W) float32; output (N, num_classes) logits.
    num_classes: 1000 unless given.  pretrained: this repository has no weights for it; True raises ValueError.
    Source: He et al., https://arxiv.org/abs/1512.03385.
    """
    if pretrained:
        raise ValueError("resnet18 has no published weights here; call it with pretrained=False")
    return _ResNet([2, 2, 2, 2], *args, **kwargs)


def char_lm(pretrained=False, *args, **kwargs):
    """A causal transformer over characters: 2 layers, width 64, context 128, untrained.

    Input (N, T) int64 codes below 128 (ASCII); output (N, T, 128) logits of the next character.
    vocab, width, heads, layers, context, dropout: passed on to the model.  pretrained: no weights; True raises
    ValueError.
    """
    if pretrained:
        raise ValueError("char_lm has no published weights here; call it with pretrained=False")
    return _CharLM(*args, **kwargs)
