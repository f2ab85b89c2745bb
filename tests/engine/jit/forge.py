"""Small archives made by hand, honest and hostile ones."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Mapping
from typing import Any

M = "class M(Module):\n  __parameters__ = []\n  __buffers__ = []\n  training : bool\n{members}"
FORWARD = "  def forward(self: __torch__.M,\n    x: Tensor) -> Tensor:\n"


def body(*lines: str, members: str = "") -> str:
    """A class M whose forward has these lines."""
    return M.format(members=members) + FORWARD + "".join(f"    {line}\n" for line in lines)


def made(cls: str, state: Any) -> bytes:
    """The opcodes of an object of `cls` (`__torch__.M`) with a plain state, without the ends of a pickle."""
    module, _, name = cls.rpartition(".")
    return f"c{module}\n{name}\n".encode() + b")\x81" + plain(state) + b"b"


def plain(value: Any) -> bytes:
    """The opcodes of plain data."""
    return pickle.dumps(value, 2)[2:-1] if not isinstance(value, bytes) else value


def nested(state: Mapping[str, Any]) -> bytes:
    """The opcodes of a dict of names whose values are data, or opcodes as bytes."""
    return b"}(" + b"".join(plain(k) + plain(v) for k, v in state.items()) + b"u"


def archive(
    code: str | Mapping[str, str | bytes] = "",
    data: bytes | None = None,
    constants: bytes | None = None,
    extra: Mapping[str, bytes] | None = None,
    version: bytes = b"3\n",
    twice: str | None = None,
) -> io.BytesIO:
    """The file of an archive: its code by path (or that of `code/__torch__.py`), its pickles without their ends."""
    files = {"code/__torch__.py": code} if isinstance(code, str) else dict(code)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for path, text in files.items():
            z.writestr(f"a/{path}", text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape"))
        main = made("__torch__.M", {"training": True}) if data is None else data
        z.writestr("a/data.pkl", b"\x80\x02" + main + b".")
        z.writestr("a/constants.pkl", b"\x80\x02" + (b")" if constants is None else constants) + b".")
        z.writestr("a/version", version)
        for path, content in (extra or {}).items():
            z.writestr(path, content)
        if twice is not None:
            import warnings

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                z.writestr(twice, b"")
    out.seek(0)
    return out
