"""`hub run MODEL --prompt`: text from a GGUF file, and from safetensors with its configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hubcli.terminal import cli
from tests.hubcli.text import models
from tests.hubcli.text.models import LETTERS, write_gpt2, write_llama
from tests.hubcli.text.test_network import GREEDY

PROMPT = "".join(LETTERS[token] for token in models.TOKENS)


def hub(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli.hub, list(arguments), input=stdin)


def said(kind: str, count: int = 8) -> str:
    return "".join(LETTERS[token] for token in GREEDY[kind][:count])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a GPT-2 in safetensors, and one with a Llama as GGUF, the working folder above them."""
    monkeypatch.chdir(tmp_path)
    write_gpt2(tmp_path / "gpt2")
    write_llama(tmp_path / "llama.gguf")
    return tmp_path


@pytest.mark.parametrize("spec", ["gpt2", "gpt2/model.safetensors", "llama.gguf"])
def test_what_follows_the_prompt_is_printed(folder: Path, spec: str) -> None:
    kind = "llama" if spec == "llama.gguf" else "gpt2"
    result = hub("run", spec, "--prompt", PROMPT, "--tokens", "8")
    assert (result.exit_code, result.stdout) == (0, said(kind) + "\n")
    assert "prompt: 5 tokens" in result.stderr and "text: 8 tokens" in result.stderr


def test_global_options_behind_the_prompt(folder: Path) -> None:
    words = ("run", "gpt2", "--prompt", PROMPT, "--tokens", "3")
    assert json.loads(hub(*words, "--json", "--offline").stdout)["text"] == said("gpt2", 3)
    result = hub(*words, "-q")
    assert (result.stdout, result.stderr) == (said("gpt2", 3) + "\n", "")


def test_the_document(folder: Path) -> None:
    document = json.loads(hub("--json", "run", "llama.gguf", "--prompt", PROMPT, "--tokens", "3").stdout)
    assert document["text"] == said("llama", 3) and document["prompt"] == PROMPT
    assert (document["architecture"], document["prompt_tokens"], document["tokens"]) == ("llama", 5, 3)
    assert document["finish"] == "length" and document["seconds"].keys() == {"load", "first", "all"}


def test_the_end_of_a_text_and_of_the_context(folder: Path) -> None:
    write_llama(folder / "ends.gguf", **{"tokenizer.ggml.eos_token_id": GREEDY["llama"][2]})
    document = json.loads(hub("--json", "run", "ends.gguf", "--prompt", PROMPT).stdout)
    assert (document["text"], document["finish"]) == (said("llama", 2), "stop")
    document = json.loads(hub("--json", "run", "llama.gguf", "--prompt", PROMPT).stdout)
    assert document["tokens"] <= models.CONTEXT - 5
    result = hub("run", "llama.gguf", "--prompt", PROMPT * 7)
    assert result.exit_code == 2 and "35 tokens, and the context of llama.gguf 32" in result.stderr


def test_draws_depend_on_the_seed(folder: Path) -> None:
    draw = lambda seed: hub("run", "gpt2", "--prompt", PROMPT, "--temperature", "3", "--seed", seed).stdout
    assert draw("1") == draw("1") != draw("2")


def test_draws_from_the_most_probable_tokens(folder: Path) -> None:
    draw = lambda *words: hub("run", "gpt2", "--prompt", PROMPT, "--tokens", "8", "--temperature", "5", *words).stdout
    assert draw("--top-k", "1") == draw("--top-p", "0") == said("gpt2") + "\n"
    assert draw("--top-k", "99") == draw("--top-p", "1", "--top-k", "64") != draw("--top-k", "3")


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_prompt_from_stdin(folder: Path, end: str) -> None:
    assert hub("run", "gpt2", "--prompt", "-", "--tokens", "2", stdin=PROMPT + end).stdout == said("gpt2", 2) + "\n"


def test_a_prompt_on_stdin_that_is_no_text(folder: Path) -> None:
    result = CliRunner().invoke(cli.hub, ["run", "gpt2", "--prompt", "-"], input=b"a\xff")
    assert result.exit_code == 2 and "the prompt on stdin is not text in utf-8" in result.stderr
    result = hub("run", "gpt2", "--prompt", "a\udcff")
    assert result.exit_code == 2 and "the prompt is not text in UTF-8" in result.stderr


# the system's words and the prompt's, between letters that stand for special tokens
TEMPLATE = (
    "{% for m in messages %}{{ 'S' if m.role == 'system' else 'U' }}{{ m.content | trim }}A{% endfor %}"
    "{% if v is defined %}{{ v }}{% endif %}"
)


@pytest.fixture
def chatting(folder: Path) -> Path:
    """The folder of `folder`, with chat.gguf and a gpt2 that have chat templates."""
    write_llama(folder / "chat.gguf", **{"tokenizer.chat_template": TEMPLATE})
    described = {"chat_template": TEMPLATE, "eos_token": LETTERS[GREEDY["gpt2"][0]]}
    (folder / "gpt2" / "tokenizer_config.json").write_text(json.dumps(described))
    return folder


def test_a_prompt_goes_into_the_chat_template(chatting: Path) -> None:
    plain = lambda text: hub("run", "chat.gguf", "--prompt", text, "--tokens", "4", "--no-chat").stdout
    result = hub("run", "chat.gguf", "--prompt", f" {PROMPT} ", "--tokens", "4")
    assert result.exit_code == 0 and result.stdout == plain(f"U{PROMPT}A") != plain(PROMPT)
    assert "prompt: 7 tokens in the model's chat template (--no-chat: as it is)" in result.stderr
    words = ("run", "chat.gguf", "--prompt", PROMPT, "--tokens", "4", "--chat", "--system", "59", "-k", "v=77")
    result = hub(*words)
    assert result.stdout == plain(f"S59AU{PROMPT}A77") and "--no-chat" not in result.stderr
    document = json.loads(hub("--json", *words).stdout)
    assert (document["chat"], document["system"], document["prompt"]) == (True, "59", PROMPT)
    # eos_token ends the answer
    assert json.loads(hub("--json", "run", "gpt2", "--prompt", PROMPT, "--no-chat").stdout)["finish"] == "stop"


def test_special_tokens_in_a_prompt_are_letters(folder: Path) -> None:
    letters = ["<0>" if letter == "o" else letter for letter in LETTERS]
    types = [3 if letter == "<0>" else 1 for letter in letters]
    described = {"tokenizer.ggml.tokens": letters, "tokenizer.ggml.token_type": types}
    write_llama(folder / "special.gguf", **described, **{"tokenizer.chat_template": "<0>{{ messages[0].content }}"})
    count = lambda *words: json.loads(hub("--json", "run", "special.gguf", "--tokens", "1", *words).stdout)
    assert count("--prompt", "<0>12")["prompt_tokens"] == 1 + 3 + 2
    assert count("--prompt", "<0>12", "--no-chat")["prompt_tokens"] == 1 + 2


@pytest.mark.parametrize(
    ("template", "words", "status", "said_"),
    [
        ("{{ '", (), 6, "cannot be rendered: TemplateSyntaxError"),
        ("{{ raise_exception('not this') }}", (), 2, "does not take this: not this"),
        (TEMPLATE, ("-k", "messages=1"), 2, "-k messages: hub gives that to the chat template itself"),
        (TEMPLATE, ("-k", "v"), 2, "is not KEY=VALUE"),
        (TEMPLATE, ("--no-chat", "--system", "a"), 2, "--system is for the chat template of a model, and --no-chat"),
    ],
)
def test_what_a_template_does_not_take_is_said(
    folder: Path, template: str, words: tuple[str, ...], status: int, said_: str
) -> None:
    write_llama(folder / "chat.gguf", **{"tokenizer.chat_template": template})
    result = hub("run", "chat.gguf", "--prompt", "a", *words)
    assert (result.exit_code, said_ in result.stderr) == (status, True), result.stderr


def test_a_conversation(chatting: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hubcli.terminal.conversation._on_terminal", lambda: True)
    result = hub("run", "chat.gguf", "--chat", "--system", "5", "--tokens", "2", stdin="12\n\n34\n")
    assert result.exit_code == 0 and "Ctrl-D" in result.stderr
    plain = lambda text: hub("run", "chat.gguf", "--prompt", text, "--tokens", "2", "--no-chat").stdout
    first = plain("S5AU12A")
    second = plain(f"S5AU12AU{first.strip()}AU34A")  # in this template whoever is not the system is U
    assert result.stdout.replace(">>> ", "").split() == [first.strip(), second.strip()]
    assert "a conversation has no document" in hub("run", "chat.gguf", "--chat", "--json").stdout
    result = hub("run", "chat.gguf", "--chat", "--tokens", "20", stdin="12\n34\n56\n")
    assert result.exit_code == 2 and "the context of chat.gguf 32" in result.stderr


@pytest.mark.parametrize("as_json", [False, True])
def test_an_interruption_keeps_what_was_said(folder: Path, as_json: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **options: object) -> Iterator[int]:
        yield from GREEDY["gpt2"][:2]
        raise KeyboardInterrupt

    monkeypatch.setattr("hubcli.text.generation.generate", interrupted)
    result = hub(*["--json"] * as_json, "run", "gpt2", "--prompt", PROMPT)
    assert result.exit_code == 130 and "interrupted" in result.stderr
    if as_json:
        document = json.loads(result.stdout)
        assert (document["text"], document["finish"]) == (said("gpt2", 2), "interrupted")
    else:
        assert result.stdout == said("gpt2", 2) + "\n"


def test_control_characters_do_not_reach_the_terminal(folder: Path) -> None:
    escape = chr(256 + 27)  # which stands for that byte in such a vocabulary
    letters = [escape if number == GREEDY["llama"][1] else letter for number, letter in enumerate(LETTERS)]
    write_llama(folder / "loud.gguf", **{"tokenizer.ggml.tokens": letters})
    result = hub("run", "loud.gguf", "--prompt", PROMPT, "--tokens", "3")
    assert result.stdout == said("llama", 3).replace(LETTERS[GREEDY["llama"][1]], "") + "\n"
    assert "\x1b" not in hub("--json", "run", "loud.gguf", "--prompt", PROMPT, "--tokens", "3").stdout


@pytest.mark.parametrize(
    ("words", "status", "said_"),
    [
        (("gpt2", "net", "--prompt", "a"), 2, "net does not go with --prompt"),
        (("gpt2", "--prompt", "a", "--top", "3"), 2, "--top does not go with --prompt"),
        (("gpt2", "--prompt", "a", "--sandbox"), 2, "--sandbox does not go with --prompt"),
        (("gpt2", "--tokens", "3"), 2, "--tokens is for --prompt"),
        (("gpt2",), 2, "gpt2 is a model for text: give --prompt TEXT"),
        ((".",), 2, "Missing option '--input'"),
        (("llama.gguf", "--input", "x.npy"), 2, "llama.gguf is a model for text: give --prompt TEXT"),
        (("absent.gguf", "--prompt", "a"), 3, "there is no file absent.gguf"),
        ((".", "--prompt", "a"), 3, "has no model.safetensors"),
        (("gpt2/config.json", "--prompt", "a"), 2, "takes a GGUF or safetensors file, not config.json"),
        (("llama.gguf", "--prompt", ""), 2, "the prompt is empty"),
        (("llama.gguf", "--prompt", "a", "--tokenizer", "gpt2/config.json"), 6, "is not a tokenizer.json"),
        (("gpt2", "--prompt", "a", "--temperature", "nan"), 2, "--temperature"),
        (("gpt2", "--chat"), 2, "a conversation on a terminal, and stdin is none"),
        (("gpt2", "--prompt", "a", "--top-k", "5"), 2, "--top-k chooses what is drawn from, and nothing is drawn"),
        (("gpt2", "--prompt", "a", "--top-p", "1.5", "--temperature", "1"), 2, "--top-p"),
        (("gpt2", "--prompt", "a", "--chat"), 2, "--chat is for the chat template of a model, and model.safetensors"),
        (("gpt2", "--prompt", "a", "--system", "b"), 2, "--system is for the chat template of a model"),
        (("llama.gguf", "--prompt", "a", "-k", "b=1"), 2, "-k is for the chat template"),
    ],
)
def test_what_does_not_go_is_said(folder: Path, words: tuple[str, ...], status: int, said_: str) -> None:
    result = hub("run", *words)
    assert (result.exit_code, said_ in result.stderr) == (status, True), result.stderr
    assert "Traceback" not in result.stderr


def test_files_that_are_damaged_or_missing_are_named(folder: Path) -> None:
    whole = (folder / "llama.gguf").read_bytes()
    (folder / "cut.gguf").write_bytes(whole[:-100])
    result = hub("run", "cut.gguf", "--prompt", "a")
    assert result.exit_code == 6 and "cut.gguf was refused" in result.stderr
    (folder / "gpt2" / "tokenizer.json").rename(folder / "elsewhere.json")
    result = hub("run", "gpt2", "--prompt", PROMPT)
    assert result.exit_code == 3 and "--tokenizer tokenizer.json" in result.stderr
    result = hub("run", "gpt2", "--prompt", PROMPT, "--tokens", "1", "--tokenizer", "elsewhere.json")
    assert result.stdout == said("gpt2", 1) + "\n"
    (folder / "gpt2" / "config.json").write_text("[1]")
    assert "config.json is not an object" in hub("run", "gpt2", "--prompt", "a").stderr
    (folder / "gpt2" / "config.json").unlink()
    assert "says what network" in hub("run", "gpt2", "--prompt", "a").stderr


def test_a_tokenizer_with_more_tokens_than_the_network_is_refused(folder: Path) -> None:
    letters = [*LETTERS, "~"]
    write_llama(folder / "more.gguf", **{"tokenizer.ggml.tokens": letters})
    result = hub("run", "more.gguf", "--prompt", "~")
    assert result.exit_code == 6 and "the tokenizer has token 64, and more.gguf 64 tokens" in result.stderr


def test_a_folder_with_a_model_is_shown(folder: Path) -> None:
    result = hub("show", "gpt2")
    rows = dict(line.split(None, 1) for line in result.stdout.splitlines()[:8])
    assert (result.exit_code, rows["architecture"], rows["parameters"]) == (0, "gpt2", "16,800")
    assert hub("--json", "show", "gpt2").stdout == hub("--json", "show", "gpt2/model.safetensors").stdout
    assert "`hub run` with --prompt TEXT" in hub("load", "gpt2").stderr
