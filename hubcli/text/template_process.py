"""Render a chat template, in a process of its own with bounds on time, memory and files.

A template is a program from a stranger's file.  Jinja's sandbox keeps it from attributes of Python's objects and from
changing what it is given; nothing in it bounds loops, macros that call themselves and strings of a gigabyte: the
operating system does that, and `chat.Template` ends the process when its time is over.
The functions and filters beside Jinja's own are those of `apply_chat_template` in the transformers library, as its
documentation of chat templates lists them.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from typing import Any, NoReturn

REFUSED = 512  # characters of a template's or of Jinja's words


class _Refusal(Exception):
    """The template does not take the messages: `raise_exception`."""


def answer(question: Mapping[str, Any]) -> dict[str, str]:
    """Return {"text": ...}, {"refused": why the template does not take the messages} or {"error": what fails in it}.

    question: `template`; `values`, what it is rendered with; `longest`, characters of a text that is returned.
    """
    try:
        return {"text": _rendered(question["template"], question["values"], question["longest"])}
    except _Refusal as refusal:
        return {"refused": str(refusal)[:REFUSED]}
    except MemoryError:
        return {"error": "it needs more memory than a text has"}
    except RecursionError:
        return {"error": "it calls itself without end"}
    except Exception as error:  # whatever Jinja and Python's strings raise
        return {"error": f"{type(error).__name__}: {error}"[:REFUSED]}


def _rendered(template: str, values: Mapping[str, Any], longest: int) -> str:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _generation()]
    )
    environment.filters["tojson"] = _as_json
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    pieces, length = [], 0
    for piece in environment.from_string(template).generate(**values):
        pieces.append(piece)
        length += len(piece)
        if length > longest:
            raise ValueError(f"it writes more than {longest} characters")
    return "".join(pieces)


def _generation() -> type:
    """Return the extension for the block `generation`, which marks a model's own words for training: its content."""
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser

    class Generation(Extension):
        tags = {"generation"}

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    return Generation


def _as_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is, where Jinja's own filter writes <, > and & for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: object) -> NoReturn:
    raise _Refusal(message)


def _now(format: str) -> str:
    from datetime import datetime

    return datetime.now().strftime(format)


def bound(seconds: int, memory: int) -> None:
    """Limit this process, where the system can: CPU time, memory of its own in bytes, no file that it could write."""
    try:
        import resource
    except ImportError:  # Windows: the parent's clock alone
        return
    for name, limit in (("CPU", seconds), ("DATA", memory), ("FSIZE", 0), ("CORE", 0)):
        with contextlib.suppress(ValueError, OSError):
            number = getattr(resource, f"RLIMIT_{name}")
            most = resource.getrlimit(number)[1]
            limit = limit if most == resource.RLIM_INFINITY else min(limit, most)
            resource.setrlimit(number, (limit, limit))


def main(seconds: int, memory: int) -> None:
    """Read a question as JSON from stdin and write the answer to stdout."""
    question = json.loads(sys.stdin.buffer.read())
    import jinja2.sandbox  # before there are limits  # noqa: F401

    bound(seconds, memory)
    sys.stdout.write(json.dumps(answer(question)))
