"""The JSON Schema of every document that `hub --json` prints.

Exact on purpose: every field is required and no other allowed, so that a field that comes or goes
is noticed here, in docs/reference/json.md and in the command.
"""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator

Schema = dict[str, Any]


def complaints(schema: Schema, document: Any) -> list[str]:
    """What the schema has against the document, a line each."""
    return [f"{one.json_path}: {one.message}" for one in Draft202012Validator(schema).iter_errors(document)]


def record(**fields: Schema) -> Schema:
    """An object with exactly these fields."""
    return {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def document(**fields: Schema) -> Schema:
    """A whole document."""
    made = record(schema_version={"const": 1}, **fields)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def each(item: Schema) -> Schema:
    """A list of such items."""
    return {"type": "array", "items": item}


def mapping(value: Schema) -> Schema:
    """An object whose keys are not fixed."""
    return {"type": "object", "additionalProperties": value, "minProperties": 1}


def maybe(schema: Schema) -> Schema:
    """This or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def text(pattern: str = r"\S") -> Schema:
    """A string in which the pattern is found."""
    return {"type": "string", "pattern": pattern}


TEXT = text()
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
METADATA: Schema = {
    "anyOf": [{"type": ["string", "number", "boolean", "array"]}, record(length={"type": "integer", "minimum": 9})]
}
COMMIT = text("^[0-9a-f]{40}([0-9a-f]{24})?$")
SHA256 = text("^[0-9a-f]{64}$")
DIRHASH = text("^h1:[A-Za-z0-9+/]{43}=$")
URL = text("^[a-z]+://")
WHEN = text(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
KIND: Schema = {"enum": ["branch", "tag", "commit", "local"]}
SHAPE = each(COUNT)

WEIGHT = {"file": TEXT, "sha256": SHA256, "size": COUNT, "url": maybe(URL)}
REPO = record(name=TEXT, spec=TEXT, path=TEXT, commit=COMMIT, size=COUNT, last_used=NUMBER)
PROFILED = record(name=TEXT, calls=COUNT, self_us=NUMBER, total_us=NUMBER, bytes={"type": "integer"})
LOCK = document(
    path=TEXT,
    repos=each(record(spec=TEXT, commit=COMMIT, tree=COMMIT, dirhash=DIRHASH, allow=each(TEXT))),
    weights=each(record(url=URL, sha256=SHA256, size=COUNT)),
)
SCOPE = {"enum": ["commit", "repo"]}
TRUST = document(trusted=each(record(spec=TEXT, url=TEXT, commit=maybe(COMMIT), scope=SCOPE, when=WHEN)))

PORT = record(name=TEXT, dtype=TEXT, shape=maybe(each({"type": ["integer", "string", "null"]})))
CAUSES = each(record(kind={"enum": ["cause", "context", "part", "note"]}, text=TEXT))
SCHEMAS: dict[str, Schema] = {
    "error": document(
        error=record(code=text("^[a-z_]+$"), message=TEXT, hint=maybe(TEXT), spec=maybe(TEXT), causes=CAUSES)
    ),
    "hub pull SPEC": document(
        spec=TEXT,
        url=URL,
        ref=maybe(TEXT),
        kind=KIND,
        commit=maybe(COMMIT),
        path=TEXT,
        cached=FLAG,
        entrypoints=each(TEXT),
    ),
    "hub list SPEC": document(
        spec=TEXT,
        entrypoints=each(
            record(
                name=TEXT,
                summary={"type": "string"},
                source={"enum": ["def", "assign", "import", "star", "exec"]},
                external=FLAG,
            )
        ),
        dependencies=each(TEXT),
        dynamic=FLAG,
    ),
    "hub list": document(repos=each(REPO)),
    "hub help SPEC ENTRYPOINT": document(name=TEXT, signature=maybe(text(r"^\(")), doc=maybe(TEXT)),
    "hub show SPEC": document(
        spec=TEXT,
        url=URL,
        ref=maybe(TEXT),
        kind=KIND,
        commit=maybe(COMMIT),
        tree=maybe(COMMIT),
        size=maybe(COUNT),
        path=TEXT,
        fetched_at=maybe(NUMBER),
        checked_at=maybe(NUMBER),
        entrypoints=each(TEXT),
        dependencies=each(TEXT),
        weights=each(record(**WEIGHT)),
        trust={"enum": ["local", "repo", "commit", "untrusted"]},
    ),
    "hub show ARCHIVE": document(
        **{"class": TEXT},
        file=TEXT,
        format={"enum": ["torchscript"]},
        version=COUNT,
        size=COUNT,
        parameters=COUNT,
        buffers=COUNT,
        bytes=COUNT,
        methods=each(record(name=TEXT, schema=TEXT)),
        modules=each(record(**{"class": TEXT}, name=TEXT, parameters=COUNT)),
    ),
    "hub show PACKAGE": document(
        file=TEXT,
        format={"enum": ["package"]},
        size=COUNT,
        python=maybe(TEXT),
        extern=each(TEXT),
        modules=each(record(name=TEXT, size=COUNT)),
        pickles=each(record(file=TEXT, names=each(TEXT))),
        files=each(record(file=TEXT, size=COUNT)),
        tensors=COUNT,
        bytes=COUNT,
    ),
    "hub deps SPEC": document(
        dependencies=each(
            record(name=TEXT, satisfied=FLAG, provided_by=maybe(TEXT), declared=FLAG, note=maybe(TEXT)),
        ),
        install=maybe(TEXT),
        installed=maybe(each(TEXT)),
    ),
    "hub load SPEC ENTRYPOINT": document(
        **{"class": TEXT},
        entrypoint=TEXT,
        parameters=COUNT,
        buffers=COUNT,
        bytes=COUNT,
        device=maybe(TEXT),
        seconds=NUMBER,
        weights=each(record(**WEIGHT)),
    ),
    "hub show CHECKPOINT": document(
        file=TEXT,
        format={"enum": ["zip", "legacy", "tar", "safetensors", "sharded"]},
        size=COUNT,
        files=each(TEXT),
        tensors=each(record(name=TEXT, shape=SHAPE, dtype=TEXT)),
        bytes=COUNT,
        others=each({"type": "string"}),
        metadata={"type": "object"},
        parameters=COUNT,
        architecture=maybe(TEXT),
        context_length=maybe(COUNT),
    ),
    "hub show GGUF": document(
        file=TEXT,
        format={"const": "gguf"},
        size=COUNT,
        files=each(TEXT),
        tensors=each(record(name=TEXT, shape=SHAPE, dtype=TEXT)),
        bytes=COUNT,
        metadata={"type": "object", "additionalProperties": METADATA},
        architecture=maybe(TEXT),
        parameters=COUNT,
        bits=maybe(NUMBER),
        context_length=maybe(COUNT),
        types=each(record(type=TEXT, tensors=COUNT)),
    ),
    "hub show FILE": document(
        path=TEXT,
        format={"const": "onnx"},
        size=COUNT,
        producer={"type": "string"},
        opset=COUNT,
        ir_version=COUNT,
        inputs=each(PORT),
        outputs=each(PORT),
        parameters=COUNT,
        operators=each(record(name=TEXT, count=COUNT, supported=FLAG)),
        metadata={"type": "object", "additionalProperties": {"type": "string"}},
    ),
    "hub export SPEC ENTRYPOINT": document(
        path=TEXT,
        format={"const": "onnx"},
        bytes=COUNT,
        opset=COUNT,
        inputs=each(PORT),
        outputs=each(PORT),
        runtime=maybe(TEXT),
        difference=maybe({"type": "number", "minimum": 0}),
    ),
    "hub run SPEC ENTRYPOINT": document(
        inputs=each(record(file=maybe(TEXT), name=maybe(TEXT), shape=SHAPE, dtype=TEXT)),
        outputs=each(
            record(
                name=TEXT,
                shape=SHAPE,
                dtype=TEXT,
                file=maybe(TEXT),
                values={"type": ["array", "number", "boolean", "null"]},
            )
        ),
        top=each(record(**{"class": COUNT}, item=COUNT, label=maybe(TEXT), score={"type": "number"})),
        prepared=maybe(TEXT),
        seconds=NUMBER,
    ),
    "hub run MODEL --prompt TEXT": document(
        file=TEXT,
        architecture=TEXT,
        chat=FLAG,
        system=maybe({"type": "string"}),
        prompt={"type": "string"},
        text={"type": "string"},
        tokens=COUNT,
        prompt_tokens=COUNT,
        finish={"enum": ["stop", "length", "interrupted"]},
        seconds=record(load=NUMBER, first=NUMBER, all=NUMBER),
        tokens_per_second=maybe(NUMBER),
    ),
    "hub check SPEC": document(
        results=each(
            record(
                entrypoint={"type": "string"},
                stage=TEXT,
                status={"enum": ["passed", "failed", "skipped", "needs-network"]},
                seconds=NUMBER,
                error=maybe(TEXT),
                causes=CAUSES,
            )
        ),
        passed=COUNT,
        failed=COUNT,
        skipped=COUNT,
        sandbox=TEXT,
    ),
    "hub search WORDS...": document(
        words=each(TEXT),
        repositories=each(record(name=TEXT, description=TEXT, topics=each(TEXT), entrypoints=maybe(COUNT))),
    ),
    "hub pull SPEC --dry-run": document(
        spec=TEXT,
        ref=maybe(TEXT),
        kind=KIND,
        commit=maybe(COMMIT),
        cached=FLAG,
        files=COUNT,
        size=COUNT,
        larger=COUNT,
        weights=each(record(url=URL, size=maybe(COUNT), cached=FLAG)),
    ),
    "hub new DIR": document(path=TEXT, files=each(TEXT), owner=maybe(TEXT), git=FLAG, source=maybe(text("^git[+]"))),
    "hub profile SPEC ENTRYPOINT": document(
        ops=each(PROFILED), modules=each(PROFILED), module_classes=each(PROFILED), wall_us=NUMBER
    ),
    "hub convert IN OUT": document(
        tensors=COUNT, bytes=COUNT, format=TEXT, skipped=each(TEXT), shared=each(each(TEXT))
    ),
    "hub lock SPEC...": LOCK,
    "hub sync": LOCK,
    "hub outdated": document(
        outdated=each(
            record(spec=TEXT, kind={"enum": ["branch", "tag"]}, locked=COMMIT, current=maybe(COMMIT), newer=maybe(TEXT))
        )
    ),
    "hub mirror TARGET": document(
        target=TEXT,
        files=each(
            record(
                file=text("^(git/[0-9a-f]{2}/[0-9a-f]{40}([0-9a-f]{24})?[.]pack|sha256/[0-9a-f]{2}/[0-9a-f]{64})$"),
                name=TEXT,
                url=URL,
                size=COUNT,
                written=FLAG,
            )
        ),
        written=COUNT,
        removed=COUNT,
    ),
    "hub cache dir": document(path=TEXT),
    "hub cache ls": document(
        repos=each(REPO),
        weights=each(record(**WEIGHT, last_used=NUMBER)),
        usage=record(total=COUNT, code=COUNT, weights=COUNT, databases=COUNT, partial=COUNT, other=COUNT),
    ),
    "hub cache rm SPEC_OR_FILE": document(removed=each(TEXT), freed=COUNT),
    "hub cache prune": document(removed=each(TEXT), freed=COUNT),
    "hub cache verify": document(
        checked=record(trees=COUNT, weights=COUNT, bytes=COUNT),
        problems=each(
            record(
                kind={"enum": ["code", "weights", "record"]},
                name=TEXT,
                path=TEXT,
                file=maybe(TEXT),
                what=TEXT,
                expected=maybe(TEXT),
                found=maybe(TEXT),
                problem=TEXT,
                repaired=FLAG,
                superseded=FLAG,
            )
        ),
    ),
    "hub trust ls": TRUST,
    "hub trust add SPEC": TRUST,
    "hub trust import FILE": TRUST,
    "hub trust rm SPEC": TRUST,
    "hub completion SHELL": document(shell={"enum": ["bash", "zsh", "fish"]}, script=TEXT),
    "hub import-torch-hub": document(
        dry_run=FLAG,
        weights=each(
            record(
                path=TEXT,
                size=COUNT,
                sha256=maybe(SHA256),
                status={"enum": ["new", "there", "refused"]},
                reason=maybe(TEXT),
            )
        ),
        checkouts=each(
            record(
                path=TEXT,
                spec=maybe(TEXT),
                status={"enum": ["pulled", "there", "found", "left"]},
                changed=maybe(COUNT),
                reason=maybe(TEXT),
            )
        ),
        trusted_list=maybe(TEXT),
    ),
    "hub env": document(
        hubcli=TEXT,
        python=TEXT,
        platform=TEXT,
        paths=record(hub_dir=TEXT, checkpoints=TEXT, config=TEXT, mirror=maybe(URL)),
        backends=mapping(maybe(TEXT)),
        processor=record(instructions=maybe(TEXT), onednn=maybe(TEXT), left_to_numpy=each(TEXT)),
        gpu=record(
            driver=maybe(TEXT),
            cuda=maybe(TEXT),
            cards=each(TEXT),
            libraries=mapping(maybe(TEXT)),
            routes={"type": "object", "additionalProperties": TEXT},  # empty before anything ran on a card
        ),
        routes=record(mode=TEXT, verdicts=TEXT, routes=each(record(route=TEXT, serves=FLAG, why=TEXT))),
        libraries=mapping(maybe(TEXT)),
    ),
}
# what `hub env --check cuda` adds: only a machine with a GPU, or its stand-in, prints it
CHECKED_GPU = record(
    **{
        "for": record(
            gpu=TEXT, uuid=TEXT, driver=TEXT, cuda=TEXT, cupy=TEXT, cudnn=maybe(TEXT), engine=TEXT, kernels=TEXT
        ),
        "rows": each(
            record(
                name=TEXT,
                verdict={"enum": ["ok", "differs", "failed", "off"]},
                error=maybe(NUMBER),
                milliseconds=NUMBER,
                why={"type": "string"},
            )
        ),
    }
)
# what `hub env --calibrate` adds
CALIBRATION = record(
    **{
        "for": mapping({"type": "string"}),
        "file": TEXT,
        "seconds": NUMBER,
        "routes": COUNT,
        "changed": COUNT,
        "rows": each(
            record(
                name=TEXT,
                elements=COUNT,
                microseconds=mapping(NUMBER),
                static={"enum": ["numpy", "blocks", "onednn"]},
                route={"enum": ["numpy", "blocks", "onednn"]},
                differs=each(TEXT),
            )
        ),
    }
)
