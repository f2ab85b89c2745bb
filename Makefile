# Two commands for a newcomer: `make demo`, `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# dozens of tests start processes that import the engine, and pytest rewrites 480 files: both are compiled once
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-long test-newest conformance test-scaling test-numpy test-onnx test-processors test-cuda check lint types docs docs-commands stubs bench torture gaps packages clean

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[test,image,onednn,sandbox]"
	touch $@

demo: $(STAMP)  ## pull, list, help, load and run a model from a real git server on this machine
	$(BIN)/python scripts/demo.py

test: $(STAMP)  ## the fast tier
	$(BIN)/python -m pytest tests -n auto --dist worksteal -rs -m "not long"

test-long: $(STAMP)  ## what takes seconds a test: several processes, servers, sandboxes, faults; those of CUDA are in test-cuda
	$(BIN)/python -m pytest tests -n auto --dist worksteal -rs -m long --ignore=tests/engine/cuda --ignore=tests/engine/programs/test_capture.py --ignore=tests/engine/backends/cuda --ignore=tests/engine/ops/test_cudnn.py

test-newest: $(STAMP)  ## the fast tier on the newest Python of this machine beside the one of .venv, where there is one
	@newest=$$($(BIN)/python scripts/newest_python.py); \
	if [ -n "$$newest" ]; then $(MAKE) --no-print-directory test PYTHON=$$newest VENV=.venv-newest; \
	else echo "no newer Python is installed: nothing to test"; fi

test-numpy: $(STAMP)  ## what computes on the CPU once more without oneDNN, as on a machine that lacks it
	ENGINE_ONEDNN=0 $(BIN)/python -m pytest tests/engine -n auto --dist worksteal -rs -m "not long" $(addprefix --ignore=tests/engine/,cuda backends/cuda multiprocessing distributed package serialization)

test-onnx: $(VENV)/.onnx  ## what is exported, in ONNX's checker and in onnxruntime
	$(BIN)/python -m pytest tests/engine/onnx/in_onnxruntime.py -n auto --dist worksteal -rs -q

test-scaling: $(VENV)/.scaling  ## the recipes of docs/how-to/scaling.md: mpirun, Ray, and Slurm where Debian's slurmctld, slurmd and munge are
	REQUIRE_RAY=1 $(BIN)/python -m pytest tests/engine/distributed/test_recipes.py -n 2 -rs -q

test-processors: $(VENV)/.jit  ## the engine's tests as on processors without AVX-512 and without AVX, and with generated code, VARIANTS="sse41 jit ..."
	$(BIN)/python scripts/processors.py $(VARIANTS)

test-cuda: $(VENV)/.cudatest  ## CUDA without a GPU: a stand-in machine, CuPy's real names, every kernel compiled
	$(BIN)/python -m tests.engine.standin.prepare
	REQUIRE_CUPY=1 STANDIN_KERNELS=1 $(BIN)/python -m pytest tests/engine/cuda tests/engine/programs/test_capture.py tests/engine/backends/cuda tests/engine/amp tests/engine/ops/test_cudnn.py -n auto --dist worksteal -rs -m "not slow"
	$(BIN)/python -m pytest tests/engine/backends/cuda/test_everything.py tests/engine/ops/test_cudnn.py -n0 -s -k "every or count"
	$(BIN)/python -m benchmarks.cuda_host
	$(BIN)/python -m benchmarks.gpu --stale

check: lint types test  ## everything a change must pass

conformance: $(STAMP)  ## PyTorch's own old tests on torch and here: TESTS="v1.1.0/test ..." TORCH=python [FILES="test_nn ..."] [TAGS=...] [OUT=...]
	$(BIN)/python -m pip install --quiet --disable-pip-version-check scipy
	$(BIN)/python scripts/conformance.py --torch "$(TORCH)" $(if $(TAGS),--tags "$(TAGS)") $(if $(FILES),--files "$(FILES)") $(if $(OUT),--out "$(OUT)") $(TESTS)

lint: $(STAMP)  ## rules and format; `ruff format .` puts the latter right
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet . || { echo "not formatted: run \`$(BIN)/ruff format .\`" >&2; exit 1; }

$(VENV)/.cudatest: $(STAMP)  # and cuDNN's headers and names; what it depends on is for a GPU and 400 MB
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[cudatest]"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps "nvidia-cudnn-jit-cu13>=9.10,<10"
	touch $@

$(VENV)/.%: $(STAMP)  # an extra of pyproject.toml, which only its target needs
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$*]"
	touch $@

types: $(VENV)/.types  ## mypy: strict where pyproject.toml says so; pyright: what a user's editor sees (tests/typed)
	$(BIN)/mypy
	$(BIN)/mypy engine/tensor.py
	$(BIN)/pyright --pythonpath $(BIN)/python

docs: $(VENV)/.docs  ## the reference and the guides as a static site in site/; a warning is an error
	$(BIN)/python scripts/docs.py
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -j auto -c docs -d build/doctrees build/docs site

docs-commands: $(STAMP)  ## write the options of every command into docs/reference/commands.md
	$(BIN)/python scripts/docs.py --commands

stubs: $(STAMP)  ## write the .pyi files of engine/ from the op registry
	$(BIN)/python scripts/stubs.py

torture: $(STAMP)  ## ten minutes of kills, server faults and full disks on one cache
	$(BIN)/python -m tests.torture

gaps: $(STAMP)  ## every exemption from a registry test, with its reason
	$(BIN)/python scripts/gaps.py

packages: $(STAMP)  ## the packages of hubcli/data/packages.toml from PyPI, imported and used; PACKAGES="timm ..." chooses
	$(BIN)/python scripts/packages.py $(PACKAGES)

bench: $(STAMP)  ## ratios against what is installed, measured in one run; BENCH="..." are options of python -m benchmarks
	$(BIN)/python -m benchmarks $(BENCH)

clean:
	rm -rf $(VENV) .venv-newest .demo .packages build dist site .pytest_cache .mypy_cache .ruff_cache
