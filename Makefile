# Two commands for a newcomer: `make demo`, `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-numpy check lint types stubs bench torture gaps packages clean

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[test,image,onednn,sandbox]"
	touch $@

demo: $(STAMP)  ## pull, list, help, load and run a model from a real git server on this machine
	$(BIN)/python scripts/demo.py

test: $(STAMP)  ## the fast tier
	$(BIN)/python -m pytest tests -n auto --dist worksteal -rs

test-numpy: $(STAMP)  ## the engine's tests once more without oneDNN, as on a machine that lacks it
	ENGINE_ONEDNN=0 $(BIN)/python -m pytest tests/engine -n auto --dist worksteal -rs

check: lint types test  ## everything a change must pass

lint: $(STAMP)  ## rules and format; `ruff format .` puts the latter right
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet . || { echo "not formatted: run \`$(BIN)/ruff format .\`" >&2; exit 1; }

types: $(STAMP)
	$(BIN)/mypy

stubs: $(STAMP)  ## write engine/__init__.pyi and engine/tensor.pyi from the op registry
	$(BIN)/python scripts/stubs.py

torture: $(STAMP)  ## ten minutes of kills, server faults and full disks on one cache
	$(BIN)/python -m tests.torture

gaps: $(STAMP)  ## every exemption from a registry test, with its reason
	$(BIN)/python scripts/gaps.py

packages: $(STAMP)  ## the packages of hubcli/packages.toml from PyPI, imported and used; PACKAGES="timm ..." chooses
	$(BIN)/python scripts/packages.py $(PACKAGES)

bench: $(STAMP)  ## ratios against what is installed, measured in one run; BENCH="..." are options of python -m benchmarks
	$(BIN)/python -m benchmarks $(BENCH)

clean:
	rm -rf $(VENV) .demo .packages build dist .pytest_cache .mypy_cache .ruff_cache
