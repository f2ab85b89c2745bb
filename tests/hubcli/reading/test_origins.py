"""What is never asked of an index: a name that the repository has itself, or that is another project's there."""

from __future__ import annotations

from pathlib import Path

import pytest

from hubcli.reading import dependencies, hubconf, imports
from hubcli.reading.dependencies import Report


def report(root: Path, files: dict[str, str], framework: str = "engine") -> Report:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir()
        else:
            path.write_text(text)
    names = hubconf.read(root).dependencies
    return dependencies.check(names, root=root, framework=framework, survey=imports.survey(root))


def modules(*paths: str) -> str:
    return "".join(f'[submodule "{one}"]\n\tpath = {one}\n\turl = ../x.git\n' for one in paths)


HEAD = "import os, sys\nhere = os.path.dirname(__file__)\n"


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize(
    ("code", "folder", "missing"),
    [
        ("from thirdnet.net import net\n", "thirdnet", "thirdnet"),
        ("import thirdnet\n", "thirdnet", "thirdnet"),
        ("import thirdnet.net as t\n", "thirdnet", "thirdnet"),
        ("from thirdnet import net\n", "thirdnet", "thirdnet"),
        ("dependencies = ['thirdnet']\n", "thirdnet", "thirdnet"),
        ("sys.path.append(here + '/third_party')\nimport thirdnet\n", "third_party/thirdnet", "thirdnet"),
        ("from third_party.thirdnet.net import net\n", "third_party/thirdnet", "third_party.thirdnet"),
        ("from inner.backbone.net import net\n", "inner/backbone", "inner.backbone"),
        ("from inner import part\n", "inner/backbone", "inner.backbone"),
    ],
)
def test_what_is_in_a_submodule(tmp_path: Path, code: str, folder: str, missing: str, noted: bool) -> None:
    files = {"hubconf.py": HEAD + code, f"{folder}/": "", "inner/__init__.py": ""}
    files["inner/part.py"] = "from .backbone.net import x\n"
    if noted:
        files[".gitmodules"] = modules(folder)
    found = report(tmp_path, files)
    assert found.missing == (missing,)
    assert found.install is None
    assert f"{missing} is in {folder}, which is empty" in str(found.hint)
    assert "--recurse-submodules" in str(found.hint)


def test_what_may_be_in_a_submodule(tmp_path: Path) -> None:
    code = HEAD + "sys.path.append(here + '/deps/some-lib/src')\nimport somelib_x\nimport yaml_y, skimage\n"
    found = report(tmp_path, {"hubconf.py": code, ".gitmodules": modules("deps/some-lib"), "deps/some-lib/": ""})
    assert found.missing == ("somelib_x", "yaml_y", "skimage")
    assert found.install == "python -m pip install scikit-image"
    assert (
        "which package has somelib_x (imported by hubconf.py:4) is not known; it may be in what was left out of the "
        "repository: deps/some-lib (submodule)" in str(found.hint)
    )


def test_a_submodule_that_is_there_is_a_folder_like_any(tmp_path: Path) -> None:
    files = {"hubconf.py": "import thirdnet\n", "thirdnet/__init__.py": "", ".gitmodules": modules("thirdnet")}
    assert report(tmp_path, files).missing == ()


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("setup.py", "setup(ext_modules=[CUDAExtension('fast_ops', [])])\n"),
        ("ops/setup.py", "setup(ext_modules=[CUDAExtension('fast_ops', [])])\n"),
        ("ops/setup.py", "setup(ext_modules=[cpp_extension.CppExtension(name='fast_ops', sources=[])])\n"),
        ("a/b/c/setup.py", "NAME = 'fast_ops'\nsetup(ext_modules=[Extension(NAME, sources=[])])\n"),
        ("ops/setup.py", "P = 'fast'\nsetup(ext_modules=[Extension(f'{P}_ops', [])])\n"),
        ("ops/setup.py", "setup(ext_modules=[make_cuda_ext(name='fast_ops', module='x.y')])\n"),
        ("ops/setup.py", "setup(ext_modules=cythonize([Extension('fast_ops.inner', ['x.pyx'])]))\n"),
        ("ops/build.py", "from cffi import FFI\nffi = FFI()\nffi.set_source('fast_ops', '')\n"),
        ("ops/jit.py", "from torch.utils.cpp_extension import load\nm = load(name='fast_ops', sources=['a.cpp'])\n"),
        ("ops/jit.py", "from torch.utils import cpp_extension\nm = cpp_extension.load_inline('fast_ops', '')\n"),
        ("ops/fast_ops.pyx", "def f(): pass\n"),
        ("ops/bind.cpp", "#include <torch/extension.h>\nPYBIND11_MODULE(fast_ops, m) { }\n"),
        ("ops/bind.c", "PyMODINIT_FUNC\nPyInit_fast_ops(void) { }\n"),
        ("ops/CMakeLists.txt", "pybind11_add_module(fast_ops src/a.cpp)\n"),
        ("ops/meson.build", "py.extension_module('fast_ops', 'a.c')\n"),
        ("ops/Cargo.toml", "[lib]\nname = 'fast_ops'\n"),
        ("ops/pyproject.toml", "[tool.setuptools]\next-modules = [{name = 'fast_ops', sources = []}]\n"),
        ("ops/fast.i", "%module fast_ops\n"),
        ("ops/pyproject.toml", "[project]\nname = 'fast-ops'\n"),
        ("ops/setup.py", "setup(name='fast_ops', version='1')\n"),
        ("ops/fast_ops.py", ""),
        ("ops/fast_ops/__init__.py", ""),
        ("ops/fast_ops/part.py", ""),
    ],
)
def test_what_the_repository_has_itself(tmp_path: Path, file: str, text: str) -> None:
    found = report(tmp_path, {"hubconf.py": "import fast_ops\nimport nope_x\n", file: text})
    assert found.missing == ("fast_ops", "nope_x")
    assert found.install == "python -m pip install nope_x"
    assert "fast_ops" in str(found.hint).partition(";")[2]


@pytest.mark.parametrize(
    ("name", "install"),
    [
        ("OpenSSL", "pyOpenSSL"),
        ("Crypto", "pycryptodome"),
        ("ffmpeg", "ffmpeg-python"),
        ("google.protobuf", "protobuf"),
        ("imwatermark", "invisible-watermark"),
        ("magic", "python-magic"),
        ("serial", "pyserial"),
        ("slugify", "python-slugify"),
        ("umap", "umap-learn"),
        ("usb.core", "pyusb"),
        ("websocket", "websocket-client"),
        ("whisper", "openai-whisper"),
        ("fitz", "PyMuPDF"),
        ("docx", "python-docx"),
        ("apex", None),
        ("apex.normalization", None),
        ("detectron2.layers", None),
        ("google.colab", None),
        ("google", None),
        ("caffe", None),
        ("tkinter_", "tkinter_"),
        ("cPickle", None),
        ("utils", None),
        ("models.common", None),
        ("lightconv_cuda", None),
        ("dynamicconv_cuda", None),
    ],
)
@pytest.mark.parametrize("framework", ["engine", "torch"])
@pytest.mark.parametrize("how", ["declared", "imported"])
def test_names_that_are_another_projects_on_an_index(
    tmp_path: Path, monkeypatch, name: str, install: str | None, framework: str, how: str
) -> None:
    monkeypatch.setattr(dependencies, "find", lambda name, root: None)
    monkeypatch.setattr(dependencies, "distribution", lambda name: None)
    code = f"import {name}\n" if how == "imported" else f"dependencies = ['{name}']\nimport {name}\n"
    found = report(tmp_path, {"hubconf.py": code}, framework)
    assert found.install == (None if install is None else f"python -m pip install {install}")
    if install is None:
        place = f"hubconf.py:{1 if how == 'imported' else 2}"
        assert "is not known" in str(found.hint) and f"imported by {place}" in str(found.hint)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("requirements.txt", "# what it takes\nnumpy==1.17\nspecial-name >=1 # here\n"),
        ("docs/requirements/base.txt", "-r other.txt\nspecial-name[more]; python_version > '3'\n"),
        ("setup.py", "deps = ['special-name>=2']\nsetup(name='x', install_requires=deps)\n"),
        ("setup.cfg", "[options]\ninstall_requires =\n    special-name\n"),
        ("pyproject.toml", "[project]\nname = 'x'\ndependencies = ['special-name~=1.0']\n"),
        ("pyproject.toml", "[tool.poetry.dependencies]\nspecial-name = '^1'\n"),
        ("environment.yml", "dependencies:\n  - python=3.8\n  - pip:\n    - special-name==1\n"),
    ],
)
def test_what_the_repositorys_own_requirements_name(tmp_path: Path, file: str, text: str) -> None:
    files = {"hubconf.py": "import special_name\n", file: text, "old/special_name.py": ""}
    assert report(tmp_path, files).install == "python -m pip install special-name"


def test_requirements_with_something_around_the_import_name(tmp_path: Path) -> None:
    files = {"hubconf.py": "import wonder\nimport two\n", "requirements.txt": "python-wonder\npytwo\ntwo-py\n"}
    assert report(tmp_path, files).install == "python -m pip install python-wonder two"


@pytest.mark.parametrize(
    "line",
    [
        "git+https://example.org/o/wonder.git@main#egg=wonder",
        "wonder @ git+https://example.org/o/wonder.git",
        "-e git+https://example.org/o/wonder.git",
        "https://example.org/o/wonder-1.0.tar.gz#egg=wonder",
    ],
)
def test_a_requirement_from_elsewhere_is_named_and_not_asked_of_an_index(tmp_path: Path, line: str) -> None:
    found = report(tmp_path, {"hubconf.py": "import wonder\n", "requirements.txt": line + "\n"})
    assert found.install is None
    assert "requirements.txt takes it from " in str(found.hint) and "example.org" in str(found.hint)
    found = report(tmp_path, {"hubconf.py": "import apex\n", "requirements.txt": line.replace("wonder", "apex") + "\n"})
    assert found.install is None and "requirements.txt takes it from " in str(found.hint)


def test_files_of_any_content_are_read(tmp_path: Path) -> None:
    files = {"hubconf.py": "import nope_x\n", ".gitmodules": "path = ../../x\npath = /etc\n=\n\0", "setup.cfg": "[[[\n"}
    files |= {"requirements.txt": "@ @ @\n://\n-r\n\0\n", "pyproject.toml": "project = [1]\ntool = 3\n"}
    files |= {"a/setup.py": "def (", "a/Cargo.toml": "lib = 3\n", "a/pyproject.toml": "[tool]\nmaturin = 3\n"}
    assert report(tmp_path, files).install == "python -m pip install nope_x"
