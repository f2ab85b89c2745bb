"""The facts for a report of a fault: torch.utils.collect_env's names over what the engine knows of this machine."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib import metadata
from typing import Any

__all__ = ["get_pretty_env_info", "main", "run"]


def run(command: str | list[str]) -> tuple[int, str, str]:
    """(status, stdout, stderr) of a command, each without the space around; a string goes through the shell."""
    done = subprocess.run(command, shell=isinstance(command, str), capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def get_pretty_env_info() -> str:
    """Lines of versions: the engine, Python, the system, the processor, CUDA, and the libraries that compute."""
    import numpy as np

    from engine import cuda
    from engine.core import version
    from engine.utils import config as __config__

    rows: list[tuple[str, Any]] = [
        ("PyTorch version", version.__version__),
        ("Engine version", version.engine_version),
        ("OS", platform.platform()),
        ("Libc version", "-".join(platform.libc_ver()).strip("-") or "N/A"),
        ("Python version", sys.version.replace("\n", " ")),
        ("Is CUDA available", cuda.is_available()),
    ]
    rows += [(f"GPU {at}", cuda.get_device_name(at)) for at in range(cuda.device_count())]
    lines = [f"{name}: {value}" for name, value in rows]
    lines += ["", "CPU:", platform.processor() or platform.machine(), "", "Versions of relevant libraries:"]
    names = ("cupy-cuda12x", "cupy-cuda13x", "llvmlite", "ml_dtypes", "onednn-cpu-gomp", "torchaudio", "torchvision")
    lines.append(f"[pip3] numpy=={np.__version__}")
    for name in names:
        try:
            lines.append(f"[pip3] {name}=={metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return "\n".join([*lines, "", __config__.show()])


def get_nvidia_driver_version(run_lambda: Any = run) -> str | None:
    """The driver's version, None where there is none."""
    status, out, _ = run_lambda(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    return str(out).partition("\n")[0] if status == 0 else None


def main() -> None:
    """Print `get_pretty_env_info()`."""
    print("Collecting environment information...")
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
