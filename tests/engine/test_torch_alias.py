"""`import torch` answered by the engine.  Each test runs a process of its own: the alias stays for the process."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSTALL = "import engine.torch_alias\nengine.torch_alias.install()\n"


def run(
    code: str, *arguments: str, ok: bool = True, script: bool = False, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    command = [*arguments] if script else ["-c", textwrap.dedent(code), *arguments]
    done = subprocess.run(
        [sys.executable, "-W", "error", *command],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1", "HOME": "/tmp"},
    )
    assert not ok or done.returncode == 0, done.stderr
    return done


def test_the_same_objects_under_both_names() -> None:
    run(
        INSTALL
        + """
import engine, torch, torch.nn as nn, torch.nn.functional as F, torch.backends.cudnn as cudnn
from torch.optim.lr_scheduler import StepLR
from torch.nn.modules.conv import Conv2d
import engine.nn.functional, engine.optim.lr_scheduler
assert torch is engine and nn is engine.nn and F is engine.nn.functional and torch.Tensor is engine.Tensor
assert StepLR is engine.optim.lr_scheduler.StepLR and Conv2d is nn.Conv2d and cudnn is torch.backends.cudnn
assert engine.nn.__spec__.name == "engine.nn" and engine.__name__ == "torch"  # as libraries ask for it
assert engine.__spec__.name == engine.__package__ == "engine"
engine.torch_alias.install()  # again: nothing
import sys
assert sum(type(f).__name__ == "_Finder" for f in sys.meta_path) == 1 and engine.torch_alias.installed()
"""
    )


def test_nothing_happens_before_install() -> None:
    run(
        """
        import sys, engine.torch_alias
        assert "torch" not in sys.modules and not engine.torch_alias.installed()
        """
    )


def test_refuses_beside_a_loaded_torch() -> None:
    done = run(
        """
        import sys, types
        fake = types.ModuleType("torch"); fake.__version__ = "2.9.9"; sys.modules["torch"] = fake
        import engine.torch_alias
        engine.torch_alias.install()
        """,
        ok=False,
    )
    said = "RuntimeError: cannot serve `torch` from the engine: PyTorch 2.9.9 is loaded in this process already"
    assert said in done.stderr


@pytest.mark.parametrize("name", ["torch.nowhere", "torch.nn.nowhere", "torch.utils.nowhere"])
def test_an_unknown_submodule_is_named(name: str) -> None:
    done = run(INSTALL + f"import {name}", ok=False)
    assert done.stderr.splitlines()[-1] == (
        f"ModuleNotFoundError: No module named '{name}': the engine, which stands in for torch here, does not have it"
    )


def test_a_missing_requirement_of_a_module_keeps_its_name(tmp_path: Path) -> None:
    done = run(
        INSTALL
        + f"""
import engine, sys
from pathlib import Path
Path({str(tmp_path)!r}, "broken.py").write_text("import not_installed_anywhere")
engine.__path__.append({str(tmp_path)!r})
import torch.broken
""",
        ok=False,
    )
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'not_installed_anywhere'"


def test_a_script(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("value = 3")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, torch, beside\n"
        "if __name__ == '__main__': print(sys.argv[1:], torch.ones(beside.value).sum().item(), torch.__version__)\n"
    )
    done = run("", "-m", "engine.torch_alias", str(script), "a", "-b", script=True)
    assert done.stdout.startswith("['a', '-b'] 3.0 2.") and "+engine." in done.stdout


def test_without_a_script_says_how() -> None:
    done = run("", "-m", "engine.torch_alias", ok=False, script=True)
    assert done.returncode == 2 and done.stderr.startswith("usage: python -m engine.torch_alias (SCRIPT | -m MODULE")


def test_a_module_and_code(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text(
        "import sys, torch\nif __name__ == '__main__': print(sys.argv[1:], torch.ones(2))"
    )
    done = run("", "-m", "engine.torch_alias", "-m", "beside", "a", "-m", script=True, cwd=tmp_path)
    assert done.stdout == "['a', '-m'] tensor([1., 1.])\n"
    code = "import sys, torch, __main__; x = torch.ones(3); print(sys.argv, __main__.x.sum())"
    done = run("", "-m", "engine.torch_alias", "-c", code, "b", script=True)
    assert done.stdout == "['-c', 'b'] tensor(3.)\n"


@pytest.mark.parametrize("name", ["torch.utils.bottleneck", "torch.distributed.run"])
def test_modules_of_torch_run_by_their_name(name: str) -> None:
    """`python -m torch.X` in a process where a sitecustomize has installed the alias, and `runpy`."""
    code = (
        f"import runpy, sys; sys.argv[1:] = ['--help']; runpy.run_module('{name}', run_name='__main__', alter_sys=True)"
    )
    done = run(INSTALL + code, ok=False)
    assert "usage: " in done.stdout and done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"), [(["-m"], "-m needs what to run"), (["none.py"], "there is no file none.py")]
)
def test_nothing_to_run(arguments: list[str], said: str) -> None:
    done = run("", "-m", "engine.torch_alias", *arguments, ok=False, script=True)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_children_see_torch(tmp_path: Path, method: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import torch
            import torch.multiprocessing as mp

            def work(queue, t):
                import torch
                queue.put((torch.__version__, (t + torch.ones(2)).tolist()))

            if __name__ == "__main__":
                context = mp.get_context({method!r})
                queue = context.SimpleQueue()
                child = context.Process(target=work, args=(queue, torch.ones(2)))
                child.start()
                print(queue.get())
                child.join()
                assert child.exitcode == 0
            """
        )
    )
    done = run("", "-m", "engine.torch_alias", str(script), script=True)
    assert "[2.0, 2.0]" in done.stdout


def test_version_comparisons() -> None:
    from engine.core.version import TorchVersion, __version__

    assert __version__ >= "1.13" and __version__ > "2.0.0" and not __version__ < "2.9" and __version__ >= (2, 1)
    assert __version__ < "3" and __version__ <= "9.9" and isinstance(__version__, str) and "+engine." in __version__
    assert tuple(int(p) for p in __version__.split(".")[:2]) >= (2, 0)
    assert TorchVersion("1.10.0") > "1.9.1" and TorchVersion("1.10.0") == "1.10.0"


def test_metadata_says_that_torch_is_installed() -> None:
    run(
        """
        import importlib.metadata, importlib.util
        try:
            importlib.metadata.version("torch")
        except importlib.metadata.PackageNotFoundError:
            pass
        else:
            raise SystemExit("torch itself is installed")
        import engine.torch_alias
        engine.torch_alias.install()
        import torch
        assert importlib.metadata.version("torch") == torch.__version__
        assert "torch" in importlib.metadata.packages_distributions()
        assert importlib.util.find_spec("torch") is not None
        assert [d.metadata["Name"] for d in importlib.metadata.distributions() if d.name == "torch"] == ["torch"]
        """
    )


@pytest.mark.skipif(importlib.util.find_spec("pkg_resources") is None, reason="setuptools 82 has no pkg_resources")
def test_pkg_resources_lists_torch() -> None:
    run(
        """
        import warnings
        warnings.simplefilter("ignore")
        import engine.torch_alias
        engine.torch_alias.install()
        import pkg_resources, torch
        assert pkg_resources.get_distribution("torch").version == torch.__version__
        pkg_resources.require("torch>=1.7.0,!=1.12.0")
        """
    )
