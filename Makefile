VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTEST := $(BIN)/python -m pytest
CHECKED = $(wildcard contracts pipeline service tests benchmarks)

# A version manager's shim can exist and fail, so a candidate counts only when it runs. Looked up only when .venv is built.
IS_USABLE := -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do $$p $(IS_USABLE) && echo $$p && break; done)

.DEFAULT_GOAL := help
.PHONY: help demo test check bench bench-peers corpus faults nightly clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

demo: $(READY) ## a fleet of simulated agents, two workers, and what pruning saved; about 20 seconds
	@$(BIN)/secateur demo

test: $(READY) ## the test suite
	@$(PYTEST)

check: $(READY) ## ruff, mypy and the import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(CHECKED)
	$(BIN)/lint-imports

bench: $(VENV)/.bench ## the figures in the README
	@$(BIN)/python -m benchmarks.core
	@$(BIN)/python -m benchmarks.worker
	@$(BIN)/python -m benchmarks.replay

bench-peers: $(READY) ## other pruners on the same replay, in .venv-peers
	@$(BIN)/python -m venv .venv-peers
	@.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check -r benchmarks/peers.txt
	@.venv-peers/bin/python -m benchmarks.peers

corpus: $(READY) ## the core over stored real conversations
	@$(BIN)/python -m benchmarks.corpus

faults: $(READY) ## kill workers and servers while snapshots flow
	@$(PYTEST) -m faults tests/faults

nightly: export HYPOTHESIS_PROFILE := nightly
nightly: $(READY) ## every property with many more examples, then the faults
	@$(PYTEST) -m "not faults and not corpus and not browser"
	@$(PYTEST) -m faults tests/faults

clean: ## remove .venv, caches and build products
	rm -rf $(VENV) build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.bench: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,bench]'
	@touch $@

$(READY): pyproject.toml constraints.txt
	@python="$(PYTHON)"; "$$python" $(IS_USABLE) || \
	    { echo "Secateur needs Python 3.11 or newer with venv: install one, or name one with make PYTHON=/path/to/python" >&2; exit 1; }; \
	echo "Setting up $(VENV) with $$("$$python" --version) (first run, or the dependencies changed) ..."; \
	"$$python" -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
