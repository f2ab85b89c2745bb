"""Train the digit classifiers and write their weights and a table of test accuracy.

    python -m engine.torch_alias train.py        on hub's engine
    python train.py                              on PyTorch

Writes weights/<name>-<first 8 digits of its sha256>.pth and weights/training_log.json; prints the table.
"""

import argparse
import hashlib
import json
import os
import time

import numpy as np
import torch
from sample_models.digits import DigitsCNN, DigitsMLP
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
RECIPES = {
    "digits_mlp": (DigitsMLP, {"epochs": 60, "lr": 3e-3, "shift": 0}),
    "digits_cnn": (DigitsCNN, {"epochs": 30, "lr": 4e-3, "shift": 1}),
}


def load_digits():
    """((images, labels) to train on, (images, labels) held out): (N, 1, 8, 8) float32 in 0..1, (N,) int64."""
    with np.load(os.path.join(HERE, "data", "digits.npz")) as file:
        images = (file["images"].astype(np.float32) / 16)[:, None]
        labels = file["labels"].astype(np.int64)
        held_out = file["held_out"]
    return (images[~held_out], labels[~held_out]), (images[held_out], labels[held_out])


def shifted(images, rng, most):
    """Each picture moved by up to `most` pixels, blank at the border."""
    if not most:
        return images
    padded = np.pad(images, ((0, 0), (0, 0), (most, most), (most, most)))
    out = np.empty_like(images)
    for i, (dy, dx) in enumerate(rng.integers(0, 2 * most + 1, (len(images), 2))):
        out[i] = padded[i, :, dy : dy + 8, dx : dx + 8]
    return out


def accuracy(model, images, labels):
    """The share of pictures whose largest logit is their label."""
    model.eval()
    with torch.no_grad():
        predicted = model(torch.from_numpy(images)).argmax(1)
    return float((predicted == torch.from_numpy(labels)).float().mean())


def train(name, seed=0):
    """A trained model and its log: one row an epoch."""
    build, recipe = RECIPES[name]
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    (images, labels), held_out = load_digits()
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe["lr"], weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, recipe["epochs"])
    criterion = nn.CrossEntropyLoss()
    rows = []
    start = time.time()
    for epoch in range(recipe["epochs"]):
        model.train()
        order = rng.permutation(len(images))
        total = 0.0
        for at in range(0, len(order), 64):
            batch = order[at : at + 64]
            x = torch.from_numpy(shifted(images[batch], rng, recipe["shift"]))
            y = torch.from_numpy(labels[batch])
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            total += float(loss) * len(batch)
        schedule.step()
        rows.append(
            {
                "epoch": epoch + 1,
                "loss": round(total / len(order), 5),
                "accuracy": round(accuracy(model, *held_out), 5),
            }
        )
        print(
            f"{name}  epoch {epoch + 1:2d}  loss {rows[-1]['loss']:.4f}  held-out accuracy {rows[-1]['accuracy']:.4f}",
            flush=True,
        )
    return model, {"seconds": round(time.time() - start, 1), "epochs": rows}


def save(model, name, folder):
    """Write the state dict as <name>-<hash>.pth: the form that torch.hub checks.  Returns (file name, sha256)."""
    os.makedirs(folder, exist_ok=True)
    temporary = os.path.join(folder, name + ".tmp")
    torch.save(model.state_dict(), temporary)
    with open(temporary, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    final = f"{name}-{digest[:8]}.pth"
    os.replace(temporary, os.path.join(folder, final))
    return final, digest


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="MODEL", help="digits_mlp, digits_cnn (default: both)")
    parser.add_argument("--out", default=os.path.join(HERE, "weights"), help="folder for the weights and the log")
    options = parser.parse_args()
    log = {"framework": str(torch.__version__), "models": {}}
    for name in options.names or sorted(RECIPES):
        model, history = train(name)
        file, digest = save(model, name, options.out)
        log["models"][name] = {"file": file, "sha256": digest, **history}
    with open(os.path.join(options.out, "training_log.json"), "w") as file:
        json.dump(log, file, indent=1)
    print(f"\n{'model':12} {'parameters':>10} {'held-out accuracy':>18}  weights")
    for name, entry in log["models"].items():
        count = sum(p.numel() for p in RECIPES[name][0]().parameters())
        print(f"{name:12} {count:10,} {entry['epochs'][-1]['accuracy']:18.4f}  {entry['file']}")


if __name__ == "__main__":
    main()
