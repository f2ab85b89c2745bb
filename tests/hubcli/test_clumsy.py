"""Hub where things around it are missing or odd: no home, no working folder, a full stdout, mistyped words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from hubcli.base import paths, settings
from hubcli.base.spec import RepoSpec
from hubcli.errors import UsageError
from hubcli.terminal import cli, shared_options
from tests.hubcli.models import HUBCONF

ROOT = Path(cli.__file__).parents[2]
NO_HOME = """
import os, pwd, sys
os.environ.pop("HOME", None)
def nobody(*_):
    raise KeyError("there is no such user")
pwd.getpwuid = pwd.getpwnam = nobody
from hubcli.terminal.cli import hub
hub.main(sys.argv[1:])
"""


def hub(*arguments: str):
    return CliRunner().invoke(cli.hub, list(arguments))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "hubconf.py").write_text(HUBCONF)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "repo"


def child(code: str, *arguments: str, cwd: Path | None = None, **more: object) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *(["-c", code] if code else ["-m", "hubcli"]), *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, **more)


# Where nobody lives


@pytest.mark.skipif(os.name != "posix", reason="users are asked for as on Unix")
def test_a_user_without_a_home(folder, tmp_path):
    """As in a container that runs under any number: only what needs a home says so."""
    done = child(NO_HOME, "list", str(folder))
    assert done.returncode == 0, done.stderr
    done = child(NO_HOME, "--hub-dir", str(tmp_path / "c"), "cache", "ls")
    assert done.returncode == 0, done.stderr
    for arguments in (["cache", "dir"], ["trust", "ls"], ["import-torch-hub"], ["--json", "cache", "ls"]):
        done = child(NO_HOME, *arguments)
        assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
        said = json.loads(done.stdout)["error"]["hint"] if "--json" in arguments else done.stderr
        assert "set HOME" in said


@pytest.mark.skipif(sys.platform == "win32", reason="a working folder cannot be removed there")
@pytest.mark.parametrize("code", ["", "from hubcli.terminal.cli import main; main()"])
def test_a_working_folder_that_is_gone(folder, tmp_path, code):
    (tmp_path / "gone").mkdir()

    def go() -> None:
        os.chdir(tmp_path / "gone")
        os.rmdir(tmp_path / "gone")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "gone").mkdir(exist_ok=True)
        return child(code, "--hub-dir", str(tmp_path / "hub"), *arguments, preexec_fn=go)

    assert run("list", str(folder)).returncode == 0
    for arguments in (["list", "./x"], ["new", "x"]):
        done = run(*arguments)
        assert done.returncode == 1 and "Traceback" not in done.stderr
        assert done.stderr.startswith("hub: the working folder is gone"), done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device")
@pytest.mark.parametrize("arguments", [["list", "{}"], ["--json", "list", "{}"], ["--json", "list", "x y"], ["--help"]])
def test_a_full_stdout(folder, arguments):
    command = [sys.executable, "-m", "hubcli", *(one.format(folder) for one in arguments)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr == "hub: No space left on device\nhint: make room, or write to another place\n"


# What is typed


def test_an_empty_cache_folder_is_not_the_working_folder(folder):
    result = hub("--hub-dir", "", "cache", "ls")
    assert result.exit_code == 2 and "has an empty name" in result.stderr
    assert hub("cache", "ls", "--hub-dir=").exit_code == 2
    with pytest.raises(UsageError):
        paths.set_dir("")
    assert settings.current().hub_dir != Path()


@pytest.mark.parametrize(
    ("text", "meant"), [("o/r/", "o/r"), ("github.com/o/r/", "github.com/o/r"), ("o/r.git/", "o/r")]
)
def test_a_last_slash_is_understood(text, meant):
    assert RepoSpec.parse(text) == RepoSpec.parse(meant)


def test_arguments_of_an_entrypoint_that_are_written_like_options(folder):
    for command in (["load"], ["run", "--input", "x.npy"], ["check"]):
        result = hub(*command, "./repo", "net", "--width=5")
        assert result.exit_code == 2
        assert "hint: an argument of the entrypoint is written -k width=5\n" in result.stderr, result.stderr
    assert "written -k num_classes=VALUE" in hub("load", "./repo", "net", "--num-classes", "5").stderr
    assert "did you mean '--json'" in hub("load", "./repo", "net", "--jsn").stderr.lower()
    result = hub("load", "./repo", "net", "5")
    assert (
        result.exit_code == 2
        and "hint: arguments of the entrypoint go by -k KEY=VALUE or --args '[5]'" in result.stderr
    )
    assert "-k" not in hub("list", "./repo", "--width=5").stderr


def test_a_file_in_the_place_of_a_repository(folder):
    result = hub("list", "./repo/hubconf.py")
    assert result.exit_code == 3 and "hint: its folder is written ./repo" in result.stderr
    result = hub("--offline", "list", "repo/hubconf.py")
    assert "the folder here is written ./repo" in result.stderr
    np.save("x.npy", np.ones(2))
    for command in (["show", "net.pt"], ["run", "net.onnx", "--input", "x.npy"], ["show", "sub/net.onnx"]):
        result = hub("--offline", *command)
        assert result.exit_code == 3 and f"there is no file {command[1]}" in result.stderr, result.stderr


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="there are no devices")
def test_an_input_that_is_no_plain_file(folder):
    result = hub("run", "./repo", "net", "--input", "/dev/null")
    assert result.exit_code == 2 and "'/dev/null' is neither a file nor a folder" in result.stderr
    assert "no such file" in hub("run", "./repo", "net", "--input", "missing.npy").stderr


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e400", "0"])
def test_a_time_that_no_clock_counts(folder, value):
    for command in (["check", "./repo"], ["run", "./repo", "net", "--input", "x.npy"]):
        result = hub(*command, "--timeout", value)
        assert result.exit_code == 2 and "--timeout" in result.stderr, result.output


def test_an_empty_input_is_not_the_working_folder(folder):
    np.save("x.npy", np.ones((1, 2)))
    result = hub("run", "./repo", "net", "--input", "")
    assert result.exit_code == 2 and "--input has an empty name" in result.stderr


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="there are no devices")
def test_labels_without_end(folder):
    np.save("x.npy", np.ones((1, 2)))
    result = hub("run", "./repo", "net", "--input", "x.npy", "--labels", "/dev/zero", "--top", "1")
    assert result.exit_code == 2 and "/dev/zero is no plain file" in result.stderr
    with open("labels.txt", "wb") as file:
        file.truncate(1 << 31)
    result = hub("run", "./repo", "net", "--input", "x.npy", "--labels", "labels.txt", "--top", "1")
    assert result.exit_code == 2 and "labels.txt has more than" in result.stderr


def test_too_little_memory_is_no_fault_of_hub(folder, monkeypatch):
    def full(*_: object) -> None:
        raise MemoryError("Unable to allocate 3.73 GiB")

    np.save("x.npy", np.ones((1, 2)))
    monkeypatch.setattr("hubcli.running.inference.read_inputs", full)
    result = hub("run", "./repo", "net", "--input", "x.npy")
    assert result.exit_code == 1
    assert result.stderr == "hub: memory does not suffice: Unable to allocate 3.73 GiB\n"


# What is no plain file: a pipe in its place would be waited for without end


def _folder(path: Path) -> None:
    path.mkdir()


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


@pytest.fixture(
    params=[os.mkfifo if hasattr(os, "mkfifo") else _folder, _folder, _loop], ids=["pipe", "folder", "loop"]
)
def no_file(request):
    return request.param


def test_settings_that_are_no_file(folder, no_file):
    path = paths.config_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    no_file(path)
    for arguments in (["list", "./repo"], ["--json", "cache", "dir"]):
        result = hub(*arguments)
        assert result.exit_code == 2 and str(path) in result.output, result.output
        assert "Traceback" not in result.output


def test_a_record_of_trust_that_is_no_file(folder, no_file):
    paths.trust_file().parent.mkdir(parents=True, exist_ok=True)
    no_file(paths.trust_file())
    result = hub("trust", "ls")
    assert result.exit_code == 1 and str(paths.trust_file()) in result.stderr and "fault of hub" not in result.stderr


def test_a_table_that_is_no_file(folder, no_file, hub_root):
    table = hub_root / "refs" / "github.com" / "o" / "r.json"
    table.parent.mkdir(parents=True)
    no_file(table)
    for arguments, status in ((["list"], 0), (["--offline", "list", "o/r"], 5), (["cache", "prune"], 0)):
        result = hub(*arguments)
        assert result.exit_code == status and f"{table} is damaged" in result.stderr, result.output


def test_a_checkpoint_that_is_no_file(folder, no_file):
    no_file(Path("x.pth"))
    result = hub("convert", "x.pth", "y.safetensors")
    assert result.exit_code == 2 and "x.pth" in result.stderr


def test_an_empty_setting_is_not_the_working_folder(folder, monkeypatch):
    monkeypatch.delenv("TORCH_HUB_DIR")
    paths.config_file().parent.mkdir(parents=True, exist_ok=True)
    paths.config_file().write_text('hub_dir = ""\n')
    result = hub("cache", "dir")
    assert result.exit_code == 2 and "hub_dir is empty" in result.stderr


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("False", False),
        ("false", False),
        ("None", None),
        ("(3, 4)", [3, 4]),
        ("[1, None]", [1, None]),
        ("{'a': True}", {"a": True}),
        ("(small)", "(small)"),
        ("{1, 2}", "{1, 2}"),
        ("Falsehood", "Falsehood"),
        ("1_0", "1_0"),
    ],
)
def test_values_as_python_writes_them(text, meant):
    """`-k pretrained=False` means what it says: as a string it would be true."""
    assert shared_options.arguments((f"size={text}",), None, None).kwargs == {"size": meant}
