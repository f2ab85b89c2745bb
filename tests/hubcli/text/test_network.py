"""The network of each architecture against the transformers library's, with and without cached keys and values.

The numbers are those of transformers on torch for the same weights; `python -m tests.hubcli.text.test_network` where
both are installed prints them anew.
"""

from __future__ import annotations

import pytest

import engine
from hubcli.text import config, weights
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
