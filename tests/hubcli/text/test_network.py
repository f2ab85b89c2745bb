"""The network of each architecture against the transformers library's, with and without cached keys and values.

The numbers are those of transformers on torch for the same weights; `python -m tests.hubcli.text.test_network` where
both are installed prints them anew.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

import engine
from engine.serialization.gguf import open_gguf, write_gguf
from hubcli.text import config, generation, weights
from hubcli.text.network import Cache, Decoder
from tests.hubcli.text import models

# the last five logits behind `models.TOKENS`, and the eight tokens that are most probable one after the other
LOGITS = {
    "llama": [0.056968, -0.841908, 0.245642, -0.931642, -0.066843],
    "llama3": [0.413026, -1.259068, 0.506533, -0.756628, 0.019875],
    "linear": [0.693322, -1.330104, 0.738262, -0.820495, -0.483634],
    "mistral": [0.056968, -0.841908, 0.245642, -0.931642, -0.066843],
    "qwen2": [1.452395, -1.087179, -0.583038, -1.270394, 0.91146],
    "qwen3": [2.182349, -0.008697, 0.577618, 0.168499, 1.299685],
    "gpt2": [0.88931, 0.271349, 0.811061, -0.407511, -0.045211],
}
GREEDY = {
    "llama": [26, 19, 43, 29, 46, 43, 29, 46],
    "llama3": [55, 24, 50, 29, 46, 55, 2, 32],
    "linear": [55, 34, 13, 42, 32, 43, 24, 55],
    "mistral": [26, 19, 43, 29, 46, 43, 29, 46],
    "qwen2": [29, 41, 41, 41, 41, 41, 41, 41],
    "qwen3": [22, 59, 47, 13, 13, 13, 13, 13],
    "gpt2": [27, 27, 52, 57, 57, 57, 57, 62],
}


def network(kind: str) -> Decoder:
    sizes = config.of_json(models.CONFIGS[kind], "config.json")
    return weights.network(sizes, models.state(kind, engine), kind)


@pytest.mark.parametrize("kind", models.CONFIGS)
def test_logits_are_those_of_transformers(kind: str) -> None:
    made = network(kind)
    found = made(engine.tensor(models.TOKENS), Cache(made.config, 8))
    assert found.shape == (models.VOCABULARY,)
    assert models.close(found[-5:].tolist(), LOGITS[kind])


@pytest.mark.parametrize("kind", models.CONFIGS)
def test_the_cache_gives_what_the_whole_text_gives(kind: str) -> None:
    made = network(kind)
    cache = Cache(made.config, 8)
    for token in models.TOKENS:
        found = made(engine.tensor([token]), cache)
    assert models.close(found[-5:].tolist(), LOGITS[kind])
    with pytest.raises(ValueError, match="into an empty cache, not one of 5"):
        made(engine.tensor([1, 2]), cache)


SIZES = {"hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 64}  # whole blocks of 32


def _packed(kind: str, tmp_path: Path) -> tuple[Decoder, Decoder]:
    """A small Llama with weights of a type of GGUF, and the same with those weights widened to float32."""
    sizes = config.of_json({**models.CONFIGS["llama"], **SIZES}, "config.json")
    with engine.device("meta"):
        shapes = {name: one.shape for name, one in Decoder(sizes).state_dict().items()}
    names = {ours: theirs for theirs, ours in weights._NAMES.items() if theirs[:3] not in ("mod", "lm_")}
    arrays = {}
    for number, (name, shape) in enumerate(shapes.items()):
        module, _, suffix = name.rpartition(".")
        layer = re.search(r"(?<=layers\.)\d+", module)
        theirs = names[module if layer is None else module.replace(layer.group(), "N", 1)]
        theirs = theirs if layer is None else theirs.replace("N", layer.group(), 1)
        values = np.array(models.values(number, math.prod(shape)), np.float32).reshape(shape)
        arrays[f"{theirs}.{suffix}"] = values + 1 if len(shape) == 1 else (values, kind)
    write_gguf(tmp_path / "a.gguf", {}, arrays)
    tensors = open_gguf(tmp_path / "a.gguf").tensors
    packed = weights.network(sizes, {name: weights.of_gguf(one) for name, one in tensors.items()}, kind)
    wide = weights.network(sizes, {name: engine.tensor(one.array()) for name, one in tensors.items()}, kind)
    assert packed.layers[0].feed.up.matrix.form in (kind.lower(), {"BF16": "bfloat16", "F16": "float16"}.get(kind))
    assert packed.head.matrix.nbytes < wide.head.matrix.nbytes
    return packed, wide


@pytest.mark.parametrize("kind", ["BF16", "F16", "Q8_0", "Q4_0"])
def test_packed_weights_give_what_widened_ones_give(kind: str, tmp_path: Path) -> None:
    packed, wide = _packed(kind, tmp_path)
    text = [number * 13 % models.VOCABULARY for number in range(40)]
    for rows in (1, 2, 5, 8, 9, 40):
        tokens = engine.tensor(text[:rows])
        found, expected = (made(tokens, Cache(made.config, rows)) for made in (packed, wide))
        assert float((found - expected).abs().max()) <= 2e-5 * float(expected.abs().max())
    found, expected = (list(generation.generate(made, text[:5], 24)) for made in (packed, wide))
    assert found == expected


@pytest.mark.parametrize("dtype", [engine.bfloat16, engine.float16])
@pytest.mark.parametrize("kind", ["gpt2", "qwen3"])
def test_safetensors_of_16_bits_stay_so(kind: str, dtype: engine.dtype) -> None:
    sizes = config.of_json(models.CONFIGS[kind], "config.json")
    state = {name: one.to(dtype) for name, one in models.state(kind, engine).items()}
    packed = weights.network(sizes, dict(state), kind)
    wide = weights.network(sizes, {name: one.float() for name, one in state.items()}, kind)
    assert 2 * packed.layers[0].feed.up.matrix.nbytes == wide.layers[0].feed.up.matrix.nbytes
    tokens = engine.tensor(models.TOKENS)
    found, expected = (made(tokens, Cache(made.config, 8)) for made in (packed, wide))
    assert float((found - expected).abs().max()) <= 2e-5 * float(expected.abs().max())


def _record() -> None:  # pragma: no cover
    import torch
    import transformers

    for kind, values in models.CONFIGS.items():
        settings = transformers.AutoConfig.for_model(**values)
        model = transformers.AutoModelForCausalLM.from_config(settings).eval().float()
        prefix = "transformer." if kind == "gpt2" else ""
        state = {f"{prefix}{name}": one for name, one in models.state(kind, torch).items()}
        missing, unexpected = model.load_state_dict(state, strict=False)
        assert not unexpected and all("lm_head" in one for one in missing), (missing, unexpected)
        model.tie_weights()
        with torch.no_grad():
            tokens = list(models.TOKENS)
            for step in range(9):
                logits = model(torch.tensor([tokens])).logits[0, -1]
                if not step:
                    print(f'LOGITS: "{kind}": {[round(one, 6) for one in logits[-5:].tolist()]},')
                tokens.append(int(logits.argmax()))
        print(f'GREEDY: "{kind}": {tokens[5:13]},')


if __name__ == "__main__":
    _record()
