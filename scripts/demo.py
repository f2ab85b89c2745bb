"""`make demo`: hub's main job from start to end, offline, on real data.

Makes a bare git repository with two tags out of sample_hubconf/, serves it by `git http-backend` and its weights by
HTTP, both on 127.0.0.1, and uses `hub` on it as anyone would.  Everything it writes is in .demo/.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from tests.servers import Repository, file_server, git_server  # noqa: E402

SHADES = " .:-=+*#%@"
SPEC = "hub-models/sample-hubconf"
RELEASE = "https://github.com/hub-models/sample-hubconf/releases/download/"


class Demo:
    """Runs `hub` commands in one environment and shows them as typed."""

    def __init__(self, folder: Path, git_url: str, files_url: str) -> None:
        self.folder = folder
        self.hub_dir = folder / "hub"
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("HUB_", "GIT_"))},
            "TORCH_HUB_DIR": str(self.hub_dir),
            "HUB_GIT_URL": git_url + "/{owner}/{repo}.git",
            "HUB_REWRITE": f"{RELEASE}={files_url}/",
            "HUB_ALLOW_PROTOCOLS": "http",
        }

    def say(self, text: str) -> None:
        """A line between commands."""
        bold = ("\033[1m", "\033[0m") if sys.stdout.isatty() else ("", "")
        print(f"\n{bold[0]}# {text}{bold[1]}", flush=True)

    def hub(self, *words: str, quiet: bool = False) -> str:
        """Run one command; its stdout, shown unless quiet.  Ends the demo if it fails."""
        shown = " ".join(repr(w) if " " in w else w for w in words)
        if not quiet:
            print(f"$ hub {shown}", flush=True)
        done = subprocess.run(
            [sys.executable, "-m", "hubcli", *words],
            env=self.env,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if not quiet:
            print(done.stdout, end="", flush=True)
        if done.returncode:
            raise SystemExit(f"demo: `hub {shown}` ended with status {done.returncode}")
        return done.stdout


def picture(image: np.ndarray) -> str:
    """An (8, 8) image in 0..1 as text, two columns a pixel."""
    levels = np.clip(image * (len(SHADES) - 1), 0, len(SHADES) - 1).round().astype(int)
    return "\n".join("    " + "".join(SHADES[v] * 2 for v in row) for row in levels)


def publish(root: Path) -> Repository:
    """sample_hubconf/ as a repository: v1.0 is what is in the folder, v1.1 differs in its README."""
    repository = Repository.create(root, SPEC)
    for path in sorted((ROOT / "sample_hubconf").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            target = repository.work / path.relative_to(ROOT / "sample_hubconf")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    repository.commit({}, tag="v1.0", message="First release")
    repository.commit({"CHANGES.md": "v1.1: this note.\n"}, tag="v1.1", message="Second release")
    return repository


def held_out(folder: Path) -> np.ndarray:
    """Write the held-out pictures to held_out.npy, (N, 1, 8, 8) float32; their labels."""
    with np.load(ROOT / "sample_hubconf" / "data" / "digits.npz") as file:
        chosen = file["held_out"]
        np.save(folder / "held_out.npy", (file["images"][chosen].astype(np.float32) / 16)[:, None])
        return file["labels"][chosen]


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())


def main() -> None:
    start = time.perf_counter()
    folder = ROOT / ".demo"
    if folder.exists():
        for path in folder.rglob("*"):  # the cache's files are read-only
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        shutil.rmtree(folder)
    (folder / "served").mkdir(parents=True)
    (folder / "release").mkdir()
    publish(folder / "served")
    shutil.copytree(ROOT / "sample_hubconf" / "weights", folder / "release" / "v1.0")
    labels = held_out(folder)
    with git_server(folder / "served") as git, file_server(folder / "release") as files:
        demo = Demo(folder, git.url, files.url)
        demo.say("Fetch a published repository: its code only, and nothing of it is executed")
        demo.hub("pull", f"{SPEC}:v1.0")
        demo.say("What does it offer?  Read from the source, not by running it")
        demo.hub("list", f"{SPEC}:v1.0")
        demo.hub("help", f"{SPEC}:v1.0", "digits_cnn")
        demo.hub("deps", f"{SPEC}:v1.0")
        demo.say("Load it with its trained weights.  This executes its code, so it needs your word: --trust commit")
        demo.hub("load", f"{SPEC}:v1.0", "digits_cnn", "--pretrained", "--trust", "commit")
        downloaded = [r.path for r in files.requests]
        print(f"(the weights came from the release once, their hash was checked: {', '.join(downloaded)})")
        demo.say(f"Run it on {len(labels)} handwritten digits that it has never seen")
        demo.hub(
            "run", f"{SPEC}:v1.0", "digits_cnn", "--pretrained", "--input", "held_out.npy", "--output", "logits.npy"
        )
        logits = np.load(folder / "logits.npy")
        images = np.load(folder / "held_out.npy")
        predicted = logits.argmax(1)
        for index in (0, 123):
            share = np.exp(logits[index] - logits[index].max())
            share /= share.sum()
            print(picture(images[index, 0]))
            print(f"    predicted {predicted[index]} ({share.max():.1%}), labelled {labels[index]}\n")
        right = int((predicted == labels).sum())
        accuracy = right / len(labels)
        print(f"accuracy on the held-out digits: {right} of {len(labels)} = {accuracy:.4f}")
        demo.say("A second tag moves only what differs: both share one object database")
        before = git.sent
        demo.hub("pull", f"{SPEC}:v1.1")
        database = size_of(demo.hub_dir / "db")
        print(f"(the first tag's database and this difference: {database:,} bytes; moved now: {git.sent - before:,})")
        demo.say("Fetch it anew, weights included at the next load; a failure would have left the old one in use")
        demo.hub("load", f"{SPEC}:v1.0", "digits_cnn", "--pretrained", "--force-reload", "--trust", "commit")
        demo.say("From now on no network is needed")
        demo.hub("--offline", "load", f"{SPEC}:v1.0", "digits_cnn", "--pretrained", "--trust", "commit")
        demo.say("What is in the cache?")
        demo.hub("cache", "ls")
        listing = json.loads(demo.hub("--json", "cache", "ls", quiet=True))
        links = sorted(p.name for p in demo.hub_dir.iterdir() if p.is_symlink())
        print(f"\nThe names that torch.hub would use: {', '.join(links)}; {len(listing['weights'])} weight file(s).")
    print(f"\ndemo: done in {time.perf_counter() - start:.0f} s; the cache is {os.path.relpath(demo.hub_dir)}")
    if accuracy < 0.97:
        raise SystemExit("demo: the accuracy is below 0.97")


if __name__ == "__main__":
    main()
