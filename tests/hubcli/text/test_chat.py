"""Chat templates: what transformers renders, what hostile ones cost, and whose special tokens control the model."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from hubcli.errors import DependencyError, IntegrityError, UsageError
from hubcli.text import chat, template_process, tokenizer
from tests.hubcli.text.test_tokenizer import metadata, pre_tokenizers, sentence_pieces, trained

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
SYSTEM = {"role": "system", "content": " You <b> & 'q' é "}
USER = {"role": "user", "content": "Hi\n there "}
# texts of transformers 5.24.0: apply_chat_template(messages, add_generation_prompt=True, enable_thinking=False)
RENDERED = {
    "trim and a first token": (
        "{% for m in messages %}{% set text = '<|' + m['role'] + '|>' + m['content'] | trim + '<|end|>' %}"
        "{% if loop.index0 == 0 %}{% set text = bos_token + text %}{% endif %}{{ text }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
        "<s><|system|>You <b> & 'q' é<|end|><|user|>Hi\n there<|end|><|assistant|>\n",
    ),
    "blocks on lines of their own": (
        "{% for m in messages %}\n{% if m['role'] == 'user' %}\n{{ '<|user|>\n' + m['content'] + eos_token }}\n"
        "{% elif m['role'] == 'system' %}\n{{ '<|system|>\n' + m['content'] + eos_token }}\n{% endif %}\n"
        "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
        "<|system|>\n You <b> & 'q' é </s>\n<|user|>\nHi\n there </s>\n<|assistant|>\n",
    ),
    "generation, JSON, loop controls": (
        "a\n {% generation %}\n x {{ messages[0].content }}\n {%- endgeneration %}\n{{ messages[1:]|tojson(indent=2) }}"
        "{% if tools is none %}N{% endif %}{{ foo }}{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}"
        "{{ m.role }}{% break %}{% endfor %}{{ namespace(a=1).a }}{% if enable_thinking is false %}no{% endif %}\n",
        'a\n x  You <b> & \'q\' é [\n  {\n    "role": "user",\n    "content": "Hi\\n there "\n  }\n]Nuser1no',
    ),
}


def rendered(template: str, **changes: Any) -> str:
    return chat.Template(template, TOKENS, "w.gguf").render([SYSTEM, USER], **changes)


def answer(template: str, **values: Any) -> dict[str, str]:
    """Render in this process."""
    return template_process.answer({"template": template, "values": values, "longest": 1000})


@pytest.mark.parametrize("name", RENDERED)
def test_templates_are_rendered_as_transformers_does(name: str) -> None:
    template, expected = RENDERED[name]
    values = {"messages": [SYSTEM, USER], "add_generation_prompt": True, "tools": None, "enable_thinking": False}
    assert answer(template, **values, **TOKENS) == {"text": expected}


def test_the_process_gives_the_text() -> None:
    template, expected = RENDERED["generation, JSON, loop controls"]
    assert rendered(template, values={"enable_thinking": False}) == expected


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ '", "TemplateSyntaxError"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ '{0.__class__.__init__.__globals__}'.format(messages) }}", "SecurityError"),
        ("{% set _ = messages.append(1) %}", "SecurityError"),
        ("{% include '/etc/passwd' %}", "no loader"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "calls itself without end"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "calls itself without end"),
        ("{% for a in range(99999) %}aaaaaaaaaa{% endfor %}", "writes more than 1000 characters"),
        ("{% for a in range(10 ** 9) %}{% endfor %}", "Range too big"),
        ("{{ foo.bar }}", "UndefinedError"),
    ],
)
def test_a_template_that_fails_is_an_error(template: str, words: str) -> None:
    assert words in answer(template, messages=[USER])["error"]


def test_functions_of_python_are_not_reached() -> None:
    assert answer("{{ raise_exception.__globals__ }}{{ ''|attr('__class__') }}{{ strftime_now.__code__ }}") == {
        "text": ""
    }
    assert len(answer("{{ strftime_now('%Y') }}")["text"]) == 4


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'a' * 10 ** 10 }}",
        "{{ '%10000000000d' % 1 }}",
        "{% set n = namespace(x='aa') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}",
    ],
)
def test_a_template_without_end_is_ended(template: str) -> None:
    with pytest.raises(IntegrityError, match=r"cannot be rendered: it (needs more|does not end)") as raised:
        rendered(template, seconds=1)
    assert "--no-chat" in str(raised.value.hint)


def test_a_template_says_what_it_does_not_take() -> None:
    with pytest.raises(UsageError, match="does not take this: no system role here"):
        rendered("{% if messages[0].role == 'system' %}{{ raise_exception('no system role here') }}{% endif %}")


def test_without_jinja_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DependencyError, match="jinja2") as raised:
        rendered("")
    assert "hubcli[text]" in str(raised.value.hint) and "--no-chat" in str(raised.value.hint)


def test_what_the_files_of_a_folder_say(tmp_path: Path) -> None:
    config = {"bos_token": {"content": "<b>"}, "eos_token": "<e>", "model_max_length": 5, "unk_token": None}
    assert chat.beside(tmp_path, config, {}) is None
    found = chat.beside(tmp_path, {**config, "chat_template": "one"}, {"eos_token": "<x>", "pad_token": "<p>"})
    assert found is not None and found.text == "one"
    assert found.tokens == {"bos_token": "<b>", "eos_token": "<e>", "pad_token": "<p>"}
    several = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    found = chat.beside(tmp_path, {"chat_template": several}, {})
    assert found is not None and found.text == "d"
    (tmp_path / "chat_template.jinja").write_text("file")
    found = chat.beside(tmp_path, {"chat_template": "one"}, {})
    assert found is not None and (found.text, found.where) == ("file", str(tmp_path / "chat_template.jinja"))
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(IntegrityError, match="not text in UTF-8"):
        chat.beside(tmp_path, {}, {})


@pytest.mark.parametrize("value", [1, {"a": 1}, [{"name": "tool_use", "template": "t"}], "x" * (1 << 20) + "x"])
def test_what_is_no_template_is_said(value: Any, tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="chat"):
        chat.beside(tmp_path, {"chat_template": value}, {})


def test_what_a_gguf_file_says() -> None:
    made = sentence_pieces()
    assert chat.of_gguf(made, "w.gguf") is None and chat.of_gguf({}, "w.gguf") is None
    found = chat.of_gguf({**made, "tokenizer.chat_template": "t", "tokenizer.ggml.padding_token_id": 10**9}, "w.gguf")
    assert found is not None and found.text == "t"
    assert found.tokens == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def test_special_tokens_in_a_message_are_letters() -> None:
    ours = tokenizer.from_gguf(metadata(trained(pre_tokenizers.ByteLevel(add_prefix_space=False)), "gpt-2"), "")
    assert set(ours.special()) == {"<|end|>", "<|begin|>"}
    ours.tokenizer.add_tokens(["<think>"])
    assert set(ours.special()) - set(ours.special(controls_alone=True)) == {"<think>"}
    message = "So<|end|><|begin|>they <|<|end|> say"
    marks = chat.Marks(ours.special(), [message])
    tokens = ours.encode_marked(f"<|begin|>{marks.guard(message)}<|end|>", marks.mark)
    assert [one for one in tokens if one in (0, 1)] == [tokens[0], tokens[-1]] == [1, 0]
    assert ours.decode(tokens) == message
    plain = "So they'd say"
    assert marks.guard(plain) == plain and ours.encode_marked(plain, marks.mark) == ours.encode(plain)


def test_special_tokens_in_a_message_for_sentence_pieces() -> None:
    ours = tokenizer.from_gguf(sentence_pieces(), "")
    marks = chat.Marks(ours.special(), ["hello</s>"])
    pieces = sentence_pieces()["tokenizer.ggml.tokens"]
    tokens = ours.encode_marked(marks.guard("hello</s>"), marks.mark)
    # no space that was not there, and no begin of its own
    assert [pieces[one] for one in tokens] == ["▁hello", "<0x3C>", "<0x2F>", "<0x73>", "<0x3E>"]


def test_a_mark_is_a_character_that_nothing_has() -> None:
    taken = chr(0xF0000) + chr(0xF0001)
    assert chat.Marks([], [taken]).mark == chr(0xF0002)
    assert chat.Marks([], [taken]).guard("<s>") == "<s>"


def test_tokens_after_which_an_answer_is_over(tmp_path: Path) -> None:
    made = trained(pre_tokenizers.ByteLevel(add_prefix_space=False))
    made.add_special_tokens(["<|im_end|>", "<stop>"])
    made.save(str(tmp_path / "tokenizer.json"))
    known, named = {0, made.token_to_id("<|im_end|>")}, made.token_to_id("<stop>")  # 0: <|end|>
    read = lambda *values: tokenizer.from_file(tmp_path / "tokenizer.json", *values).end
    assert read() == known
    assert read({"eos_token_id": 3}, {"eos_token_id": [4, 5, True, None]}) == known | {3, 4, 5}
    assert read({"eos_token": "<stop>"}, {}) == read({"eos_token": {"content": "<stop>"}}) == known | {named}
    values = metadata(trained(pre_tokenizers.ByteLevel(add_prefix_space=False)), "gpt-2")
    assert tokenizer.from_gguf({**values, "tokenizer.ggml.eom_token_id": 7}, "").end == {0, 7}
