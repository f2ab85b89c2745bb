"""What the operating system refused: the place that was meant, and what to do."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest
from click.testing import CliRunner

from hubcli.base import os_errors, paths
from hubcli.terminal import cli
from tests.hubcli.models import HUBCONF


def test_places_without_temporary_names(hub_root):
    target = hub_root.parent / "out" / "y.npy"
    names = [str(paths.temporary_for(target)), str(target.with_name(".y.npy.ab3d_fgh.part")), str(target)]
    for name in names:
        message, hint = os_errors.described(OSError(errno.EACCES, "Permission denied", name))
        assert message == f"Permission denied: {target}"
        assert hint == f"see who may read and write {target.parent}, or choose another place"
    for name in (str(hub_root / "partial" / "x.tmp"), str(hub_root)):
        message, hint = os_errors.described(OSError(errno.ENOSPC, "No space left on device", name))
        assert message == f"No space left on device: {hub_root}"
        assert hint is not None and "hub cache ls" in hint
    assert os_errors.described(OSError(errno.EROFS, "Read-only file system", str(hub_root / "refs")))[1] == (
        "choose a cache that you may write to: --hub-dir DIR or TORCH_HUB_DIR"
    )
    assert os_errors.described(OSError(errno.ENOENT, "No such file", "x")) == ("No such file: x", None)
    assert os_errors.described(OSError("no number")) == ("no number", None)


@pytest.mark.parametrize(
    "arguments", [("run", "--input", "x.npy", "--output", "out.npz"), ("load", "--save", "out.pth")]
)
def test_a_full_disk(tmp_path, monkeypatch, arguments):
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "hubconf.py").write_text(HUBCONF)
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.ones((1, 2)))

    def full(*anything: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("hubcli.base.paths.os.fsync", full)
    monkeypatch.setattr("engine.serialization.writers.os.replace", full)
    before = set(tmp_path.iterdir())
    command, *options = arguments
    result = CliRunner().invoke(cli.hub, [command, "./repo", "net", *options])
    assert result.exit_code == 1
    message, hint = result.stderr.splitlines()[-2:]
    assert message.startswith("hub: No space left on device: ")
    assert message.endswith(options[-1]) and "tmp" not in os.path.basename(message)
    assert hint == "hint: make room there, or write to another place"
    assert set(tmp_path.iterdir()) == before
