"""How much of the kernels' LLVM is written by hand: kernels are written in the form (engine/kernels/form.py).

A file counts with all its lines if it has instructions of LLVM's language and is no printer.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
INSTRUCTION = re.compile(r"\b(getelementptr|icmp|fcmp|fadd|define void|insertelement)\b")
# What makes text of a kernel that is written in the form, and knows no kernel.
PRINTERS = {"llvm_ir", "llvm_jobs", "llvm_columns", "llvm_math"}
# What is no kernel and has no other form: it launches kernels without Python (direct, program), hands
# them to threads (team) or is such a thread (workers), or compares words that a guard reads.
LAUNCHERS = {"direct", "program", "team", "workers", "generated_guards"}
BY_HAND = {"llvm_winograd", "llvm_text"}  # the second is what the first is put together of
MOST = 633


def written() -> dict[str, int]:
    """The lines of each file of `engine` with instructions of LLVM's language."""
    found = {}
    for path in sorted((ROOT / "engine").rglob("*.py")):
        text = path.read_text()
        if len(INSTRUCTION.findall(text)) > 2:  # more than a mention
            found[path.stem] = text.count("\n")
    return found


def test_kernels_are_written_in_the_form() -> None:
    by_hand = {name: lines for name, lines in written().items() if name not in PRINTERS | LAUNCHERS}
    assert set(by_hand) == BY_HAND, by_hand
    assert sum(by_hand.values()) <= MOST, by_hand


def test_each_exception_is_one() -> None:
    assert set(written()) >= PRINTERS | LAUNCHERS


def test_printers_know_no_kernel() -> None:
    """None of them names a module of kernels."""
    kernels = {"windows", "tiles", "products", "decoding", "pooling", "image_layers", "llvm_winograd", "rows", "layers"}
    for name in PRINTERS:
        text = (ROOT / "engine" / "kernels" / f"{name}.py").read_text()
        imported = re.findall(r"from engine\.kernels(?:\.(\w+))? import (.*)", text)
        assert not {word for pair in imported for word in re.findall(r"\w+", " ".join(pair))} & kernels, name
