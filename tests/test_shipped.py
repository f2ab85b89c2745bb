"""What others build on: action.yml, .pre-commit-hooks.yaml and the Dockerfile, read and executed step by step.

No container is built.  The Dockerfile's COPY and RUN steps are carried out in a folder that stands for the root of
each stage; what would need the network or root's rights (pip, apt-get, useradd, chown) is a program that notes its
arguments, and pip's installs what pip would, from the files that were copied.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from hubcli.terminal import cli
from hubcli.workflows import scaffold

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")

# The action


def action() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "action.yml").read_text())


def filled(text: str, inputs: dict[str, str], place: Path) -> str:
    """The text with the expressions that the action uses; any other is an error."""

    def value(match: re.Match[str]) -> str:
        name = match.group(1).strip()
        if name.startswith("inputs."):
            return inputs[name.removeprefix("inputs.")]
        return {"github.action_path": str(place)}[name]

    return re.sub(r"\$\{\{(.*?)\}\}", value, text)


def run_action(folder: Path, tmp: Path, **given: str) -> list[subprocess.CompletedProcess[str]]:
    """Each script of the action in `folder`, as a runner executes it, up to one that fails."""
    inputs = {name: one["default"] for name, one in action()["inputs"].items()} | given
    python = tmp / "bin" / "python"
    python.parent.mkdir(exist_ok=True)
    # pip would need the network: what it is asked for is noted
    note = 'if [ "$2" = pip ]; then printf "%s\\n" "$@" > "$NOTED"; exit; fi\n'
    python.write_text(f'#!/bin/bash\n{note}exec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    noted = {"PYTHONPATH": str(ROOT), "NOTED": str(tmp / "pip")}
    environment = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}", **noted}
    ran = []
    for step in action()["runs"]["steps"]:
        if "run" not in step:
            continue
        assert step["shell"] == "bash" and "${{" not in step["run"]  # what is given never becomes a part of a script
        env = {name: filled(value, inputs, ROOT) for name, value in step["env"].items()}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        ran.append(
            subprocess.run(command, cwd=folder, env={**environment, **env}, capture_output=True, text=True, check=False)
        )
        if ran[-1].returncode:
            break
    return ran


def test_the_action_checks_a_repository(tmp_path):
    created = scaffold.create(tmp_path / "models")
    *_, done = run_action(created.path, tmp_path, arguments="--input-shape 1,3,8,8 --sandbox=best-effort")
    assert done.returncode == 0, done.stderr
    assert "5 passed, 0 failed" in done.stdout and "<testsuite" in (created.path / "hub-check.xml").read_text()
    assert (tmp_path / "pip").read_text().splitlines()[-1] == f"{ROOT}[sandbox]"


def test_the_action_fails_where_the_check_does(tmp_path):
    created = scaffold.create(tmp_path / "models")
    (created.path / "models.py").write_text("raise ImportError('no')\n")
    *_, done = run_action(created.path, tmp_path, report="out.xml", arguments="--sandbox=best-effort")
    assert done.returncode == 1 and (created.path / "out.xml").is_file()


def test_no_input_is_a_script(tmp_path):
    evil = '"; touch pwned; "$(touch pwned)`touch pwned`'
    for name in ("spec", "arguments", "report", "extras"):
        run_action(tmp_path, tmp_path, **{name: evil})
    assert not list(tmp_path.rglob("pwned"))


def test_the_actions_steps():
    made = action()
    assert made["runs"]["using"] == "composite"
    assert all(one["description"] for one in made["inputs"].values())
    uses = [step["uses"] for step in made["runs"]["steps"] if "uses" in step]
    assert [name.partition("@")[0] for name in uses] == ["actions/setup-python", "actions/cache"]


# The hooks of pre-commit


def hooks() -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())}


@pytest.mark.parametrize("name", ["hub-list", "hub-check"])
def test_a_hook(name, tmp_path, monkeypatch):
    hook = hooks()[name]
    assert hook["language"] == "python" and not hook["pass_filenames"] and hook["types"] == ["python"]
    program, *arguments = shlex.split(hook["entry"])
    assert program in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    created = scaffold.create(tmp_path / "models")
    monkeypatch.chdir(created.path)
    more = ["--sandbox=best-effort"] if name == "hub-check" else []
    assert CliRunner().invoke(cli.hub, [*arguments, *more]).exit_code == 0
    (created.path / "hubconf.py").write_text("def net(:\n")
    assert CliRunner().invoke(cli.hub, [*arguments, *more]).exit_code not in (0, 2)


# The Dockerfile


@dataclass
class Stage:
    """One FROM, its instructions, and the folder that stands for its root."""

    name: str
    base: str
    root: Path
    instructions: list[tuple[str, str]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    user: str = "root"


def parse(text: str, tmp: Path) -> list[Stage]:
    """The stages; an instruction that this file does not know is an error."""
    lines = re.sub(r"\\\n", "", "".join(line for line in text.splitlines(True) if not line.startswith("#")))
    stages: list[Stage] = []
    for line in filter(None, map(str.strip, lines.splitlines())):
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stages.append(Stage(name or str(len(stages)), base, tmp / (name or str(len(stages)))))
            stages[-1].root.mkdir()
        else:
            assert word in ("COPY", "RUN", "ENV", "USER", "WORKDIR", "VOLUME", "ENTRYPOINT", "CMD"), line
            stages[-1].instructions.append((word, rest))
    return stages


def ignored(path: str) -> bool:
    """What .dockerignore keeps out of the build."""
    out = False
    for rule in (ROOT / ".dockerignore").read_text().split():
        pattern = rule.removeprefix("!")
        below = any(fnmatch.fnmatch(part, pattern.removeprefix("**/")) for part in path.split("/"))
        if below if pattern.startswith(("**/", "*")) else path == pattern or path.startswith(f"{pattern}/"):
            out = not rule.startswith("!")
    return out


def copy(stage: Stage, stages: list[Stage], rest: str) -> None:
    """COPY: a folder's content goes into the target, as docker has it."""
    words = shlex.split(rest)
    source = ROOT
    if words[0].startswith("--from="):
        source = next(one.root for one in stages if one.name == words.pop(0).removeprefix("--from="))
    *names, target = words
    for name in names:
        path = source / name.lstrip("/")
        assert path.exists() and (source != ROOT or not ignored(name)), name
        into = stage.root / target.lstrip("/")
        if path.is_dir():
            shutil.copytree(path, into, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            into = into / path.name if target.endswith("/") else into
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, into)


NOTES = """#!/bin/bash
printf '%s\\n' "$(basename "$0")" "$@" --- >> "$NOTED"
"""
# what `pip install FOLDER` does to a virtual environment, from the files in that folder alone
PIP = """#!{python}
import json, os, re, shutil, sys, tomllib
from pathlib import Path
with open(os.environ["NOTED"], "a") as noted:
    noted.write("\\n".join(["pip", *sys.argv[1:], "---", ""]))
if sys.argv[1] == "install":
    source = Path(re.sub(r"\\[.*", "", sys.argv[-1]))
    document = tomllib.loads((source / "pyproject.toml").read_text())
    project = document["project"]
    extras = re.findall(r"\\w+", sys.argv[-1].partition("[")[2])
    assert set(extras) <= set(project["optional-dependencies"])
    for needed in (project["readme"], *project["license-files"]):
        assert (source / needed).is_file(), needed  # the build would end here
    place = Path(sys.argv[0]).parents[1]
    (site,) = place.glob("lib/python*/site-packages")
    for name in document["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        shutil.copytree(source / name, site / name)
    for name, target in project["scripts"].items():
        module, _, function = target.partition(":")
        script = place / "bin" / name
        script.write_text(f"#!{{place}}/bin/python\\nfrom {{module}} import {{function}}\\n{{function}}()\\n")
        script.chmod(0o755)
else:
    assert sys.argv[1:] == ["uninstall", "--yes", "pip"]
    Path(sys.argv[0]).unlink()
"""


def run(stage: Stage, tmp: Path, rest: str) -> None:
    """RUN: the shell's own commands for real, below the stage's root."""
    tools = tmp / "tools"
    if not tools.is_dir():
        tools.mkdir()
        for name in ("apt-get", "useradd", "chown"):
            (tools / name).write_text(NOTES)
            (tools / name).chmod(0o755)
        # a virtual environment without pip, whose pip is the one above
        pip = tools / "pip"
        pip.write_text(PIP.format(python=sys.executable))
        (tools / "python").write_text(
            f'#!/bin/bash\n[ "$1 $2" = "-m venv" ] || exit 1\n{shlex.quote(sys.executable)} -m venv --without-pip "$3" '
            f'&& install -m 755 {shlex.quote(str(pip))} "$3/bin/pip"\n'
        )
        (tools / "python").chmod(0o755)
    here = re.sub(r"(?<![\w./])/(?=(?:src|opt|cache|work|var)\b)", f"{stage.root}/", rest)
    done = subprocess.run(
        ["bash", "-ec", here],
        cwd=stage.root,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": f"{tools}:{os.environ['PATH']}", "NOTED": str(tmp / "noted"), "HOME": str(tmp)},
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Stage, list[list[str]]]:
    """The last stage after all its steps, and what the programs noted that do nothing here."""
    tmp = tmp_path_factory.mktemp("docker")
    stages = parse((ROOT / "Dockerfile").read_text(), tmp)
    for stage in stages:
        for word, rest in stage.instructions:
            if word == "COPY":
                copy(stage, stages, rest)
            elif word == "RUN":
                run(stage, tmp, rest)
            elif word == "ENV":
                stage.environment |= dict(part.split("=", 1) for part in shlex.split(rest))
            elif word == "USER":
                stage.user = rest
    noted = [block.strip().split("\n") for block in (tmp / "noted").read_text().split("---\n") if block.strip()]
    return stages[-1], noted


def test_the_image_is_slim_and_nobody_is_root(built):
    stage, noted = built
    assert re.fullmatch(r"python:3\.\d+-slim", stage.base)
    assert stage.user == "hub" and ["useradd", "--create-home", "--uid", "1000", "hub"] in noted
    # what the user writes to is the user's, and nothing runs as root behind USER
    words = [word for word, _ in stage.instructions]
    assert "RUN" not in words[words.index("USER") :]
    (owned,) = [one for one in noted if one[0] == "chown"]
    volumes = [rest for word, rest in stage.instructions if word in ("VOLUME", "WORKDIR")]
    assert owned[1] == "hub:hub" and {Path(one).name for one in owned[2:]} == {Path(one).name for one in volumes}
    assert all((stage.root / one.lstrip("/")).is_dir() for one in volumes)
    assert stage.environment["TORCH_HUB_DIR"] in volumes
    install = next(one for one in noted if one[:2] == ["apt-get", "install"])
    assert "git" in install and "--no-install-recommends" in install


def test_what_was_copied_and_installed_is_hub(built, tmp_path):
    stage, _ = built
    assert not list((stage.root / "opt").rglob("__pycache__/*hubcli*")) and not (stage.root / "src").exists()
    assert not (stage.root / "opt/hub/bin/pip").exists()
    ((entry,),) = [json.loads(rest) for word, rest in stage.instructions if word == "ENTRYPOINT"]
    path = [str(stage.root / one.lstrip("/")) for one in stage.environment["PATH"].split(":") if one.startswith("/")]
    program = shutil.which(entry, path=":".join(path))
    assert program is not None
    # the packages that pip would have fetched are those of the tests' own environment
    site = next(Path(one) for one in sys.path if one.endswith("site-packages"))
    (stage_site,) = (stage.root / "opt/hub/lib").glob("python*/site-packages")
    code = "import sys, hubcli, engine; print(hubcli.__file__, engine.__file__)"
    script = Path(program).read_text().split("\n", 1)[1]
    # at the place where the second stage has it: the first line names the first stage's folder
    interpreter = stage.root / "opt/hub/bin/python"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{stage_site}:{site}", "HOME": str(tmp_path)}
    for given, wanted in (
        (code, f"{stage_site}/hubcli/__init__.py {stage_site}/engine/__init__.py"),
        (script, "Usage: "),
    ):
        done = subprocess.run(
            [interpreter, "-c", given, *(["--help"] if given is script else [])],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0 and done.stdout.startswith(wanted), done.stderr + done.stdout


def test_the_wheel_holds_its_files():
    """Templates and lists that the commands read are files of the packages, which COPY takes whole."""
    for name in ("hubcli", "engine", "pyproject.toml", "README.md", "LICENSE"):
        assert not ignored(name) and (ROOT / name).exists()
    assert (
        ignored("tests")
        and ignored(".git")
        and ignored("hubcli/__pycache__")
        and not ignored("hubcli/data/templates/x")
    )
