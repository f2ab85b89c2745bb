"""Tokens one after the other: the most probable ones, and draws."""

from __future__ import annotations

import pytest

import engine
from hubcli.errors import HubError
from hubcli.text import generation
from tests.hubcli.text import models
from tests.hubcli.text.test_network import GREEDY, network


@pytest.mark.parametrize("kind", models.CONFIGS)
def test_greedy_tokens_are_those_of_transformers(kind: str) -> None:
    assert list(generation.generate(network(kind), models.TOKENS, 8)) == GREEDY[kind]


def test_a_token_of_the_end_is_not_yielded() -> None:
    tokens = GREEDY["gpt2"]
    stop = {tokens[3]}
    found = list(generation.generate(network("gpt2"), models.TOKENS, 8, stop=stop))
    assert found == tokens[: tokens.index(tokens[3])]


def test_draws_depend_on_the_seed_alone() -> None:
    made = network("gpt2")
    draw = lambda seed: list(generation.generate(made, models.TOKENS, 8, temperature=2.0, seed=seed))
    assert draw(1) == draw(1) != draw(2)


def test_draws_come_from_the_most_probable_tokens() -> None:
    logits = engine.tensor([1.0, 3.0, 2.0, 0.0])  # shares 0.09, 0.64, 0.24, 0.03
    generator = engine.Generator().manual_seed(1)
    draws = lambda top_k, top_p: {generation._chosen(logits, 1.0, generator, top_k, top_p) for _ in range(200)}
    assert draws(None, None) == draws(9, 1.0) == draws(None, 0.98) == {0, 1, 2, 3}
    assert draws(2, None) == draws(None, 0.65) == {1, 2}
    assert draws(1, 1.0) == draws(None, 0.0) == draws(3, 0.6) == {1}
    # the shares are those among the top_k
    assert draws(2, 0.7) == {1}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_weights_that_give_no_numbers_are_an_error(temperature: float) -> None:
    made = network("gpt2")
    made.norm.weight.fill_(float("nan"))
    with pytest.raises(HubError, match="numbers that are not finite"):
        list(generation.generate(made, models.TOKENS, 2, temperature=temperature))
