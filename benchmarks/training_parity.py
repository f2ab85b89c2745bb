"""The same training script on the engine and on PyTorch: from the same initial weights and batches, the same loss.

    python -m benchmarks.training_parity [--shorter N] [--peer-python PATH] [--out FILE.json]

The parent writes initial weights and every batch to a file, which both sides read: `digits_cnn` of sample_hubconf/ on
its digits, and `char_lm`, a causal transformer over characters, on the text of the language reference that Python
ships (pydoc_data).  Either side trains in a process of its own, one after the other, with two threads.  Reported: the
training loss along the way, the mean of the last tenth of the steps, the loss on held-out data, and how far these are
from PyTorch's.  Status 1 where one of the last two differs by more than 1 %.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
LIMIT = 0.01  # relative difference of the final losses
# one to two minutes, and three to four, on either side of a busy machine with 2 cores
STEPS = {"digits_cnn": 600, "char_lm": 600}
CONTEXT, CHARACTERS = 64, 128


def shapes(task: str) -> dict[str, tuple[int, ...]]:
    """Parameters of the model by name, and their shapes."""
    import engine.torch_alias

    engine.torch_alias.install()
    return {name: tuple(p.shape) for name, p in build(task).named_parameters()}


def build(task: str) -> Any:
    """The model, without dropout: its draws are not the same on both sides."""
    sys.path.insert(0, str(ROOT / "sample_hubconf"))
    if task == "digits_cnn":
        from sample_models.digits import DigitsCNN

        return DigitsCNN(dropout=0.0)
    from sample_models.char_lm import CharLM

    return CharLM(context=CONTEXT, dropout=0.0)


def initial(named: dict[str, tuple[int, ...]], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Weights (fan-in scaled normal), gains 1, biases 0."""
    made = {}
    for name, shape in named.items():
        if len(shape) == 1:
            value = np.ones(shape) if name.endswith("weight") else np.zeros(shape)
        else:
            value = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        made[name] = value.astype(np.float32)
    return made


def batches(task: str, steps: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """x, y: (steps, N, ...) to train on; held_x, held_y: (M, ...) to measure on."""
    if task == "digits_cnn":
        with np.load(ROOT / "sample_hubconf/data/digits.npz") as file:
            images = (file["images"].astype(np.float32) / 16)[:, None]
            labels, held = file["labels"].astype(np.int64), file["held_out"]
        train = np.flatnonzero(~held)
        rows = np.stack([rng.choice(train, 64, replace=False) for _ in range(steps)])
        return {
            "x": images[rows],
            "y": labels[rows],
            "held_x": images[held],
            "held_y": labels[held],
        }
    from pydoc_data import topics

    text = "\n".join(topics.topics[key] for key in sorted(topics.topics))
    codes = np.frombuffer(text.encode("ascii", "replace"), np.uint8).astype(np.int64) % CHARACTERS
    cut = len(codes) * 9 // 10

    def windows(of: np.ndarray, count: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        at = rng.integers(0, len(of) - CONTEXT - 1, count)[..., None] + np.arange(CONTEXT)
        return of[at], of[at + 1]

    x, y = windows(codes[:cut], (steps, 16))
    held_x, held_y = windows(codes[cut:], (64,))
    return {"x": x, "y": y, "held_x": held_x, "held_y": held_y}


def train(task: str, file: str) -> dict[str, Any]:
    """One side: train on what the file holds; the losses."""
    import torch
    from torch.nn import functional as F

    torch.set_num_threads(2)
    with np.load(file) as content:
        data = {name: content[name] for name in content.files}
    model = build(task)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(data[f"weight.{name}"]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3 if task == "digits_cnn" else 2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(data["x"]))
    losses = []
    start = time.perf_counter()
    model.train()
    for x, y in zip(data["x"], data["y"]):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(torch.from_numpy(x)).flatten(0, y.ndim - 1), torch.from_numpy(y).flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    seconds = time.perf_counter() - start
    model.eval()
    with torch.no_grad():
        output = model(torch.from_numpy(data["held_x"])).flatten(0, data["held_y"].ndim - 1)
        held_out = F.cross_entropy(output, torch.from_numpy(data["held_y"]).flatten()).item()
    return {
        "losses": losses,
        "held_out": held_out,
        "seconds": seconds,
        "version": str(torch.__version__),
    }


def side(python: str, task: str, file: Path, alias: bool) -> dict[str, Any]:
    """`train` in a process of its own."""
    code = "import engine.torch_alias as a; a.install(); " if alias else ""
    code += "import json; from benchmarks.training_parity import train; "
    code += f"print(json.dumps(train({task!r}, {str(file)!r})))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise SystemExit(f"{python}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def compare(task: str, steps: int, peer: str, folder: Path) -> dict[str, Any]:
    """Train on both sides; the row of the result."""
    rng = np.random.default_rng(0)
    file = folder / f"{task}.npz"
    weights = {f"weight.{name}": value for name, value in initial(shapes(task), rng).items()}
    np.savez(file, **weights, **batches(task, steps, rng))
    row: dict[str, Any] = {
        "task": task,
        "steps": steps,
        "parameters": sum(w.size for w in weights.values()),
    }
    marks = sorted({0, steps // 100, steps // 10, steps // 4, steps // 2, steps - 1})
    for name, python, alias in (("engine", sys.executable, True), ("torch", peer, False)):
        found = side(python, task, file, alias)
        row[name] = {
            "version": found["version"],
            "seconds": round(found["seconds"], 1),
            "loss_at_step": {str(i): round(found["losses"][i], 6) for i in marks},
            "final_loss": round(float(np.mean(found["losses"][-max(steps // 10, 1) :])), 6),
            "held_out_loss": round(found["held_out"], 6),
        }
    for key in ("final_loss", "held_out_loss"):
        row[f"{key}_difference"] = round(row["engine"][key] / row["torch"][key] - 1, 6)
    return row


def main() -> int:
    """Compare and report; 1 where a final loss differs by more than the limit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--shorter", type=int, default=1, metavar="N", help="an Nth of the steps")
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter with torch")
    parser.add_argument("--out", type=Path, help="write the result as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            compare(task, max(steps // options.shorter, 1), options.peer_python, Path(folder))
            for task, steps in STEPS.items()
        ]
    for row in rows:
        print(f"{row['task']}: {row['parameters']:,} parameters, {row['steps']} steps")
        for name in ("engine", "torch"):
            one = row[name]
            print(
                f"  {name:6} first loss {one['loss_at_step']['0']:.4f}, final {one['final_loss']:.4f}, "
                f"held out {one['held_out_loss']:.4f}, {one['seconds']:.0f} s"
            )
        differences = (row[f"{key}_difference"] for key in ("final_loss", "held_out_loss"))
        print("  engine / torch: final {:+.3%}, held out {:+.3%}".format(*differences))
    if options.out:
        options.out.write_text(json.dumps({"limit": LIMIT, "runs": rows}, indent=2) + "\n")
    worst = max(abs(row[f"{key}_difference"]) for row in rows for key in ("final_loss", "held_out_loss"))
    return 1 if worst > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
