# The two commands that matter: `make demo` and `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Where PyTorch's CPU build comes from when pip's configured sources do not have it.
ROOST_TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
export ROOST_TORCH_INDEX

.DEFAULT_GOAL := help
.PHONY: help demo prepare engine engine-vllm test test-all check format lock snapshots screenshots clean

help: ## List the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: prepare ## From a fresh machine to the running console on the embedded host
	$(BIN)/roost --host embedded

prepare: $(VENV)/.console ## Install the console and the embedded host (engine, sample model), without opening it
	$(BIN)/roost embedded prepare

test: $(VENV)/.dev engine ## The test suite, with real SSH and the real engine
	$(BIN)/pytest -m "not slow"

test-all: $(VENV)/.dev prepare $(if $(ROOST_VLLM_PYTHON),,engine-vllm) ## The test suite and what takes minutes: the whole run, and vLLM
	$(BIN)/pytest

check: $(VENV)/.dev ## Style, types and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(VENV)/.dev ## Rewrite the code in the house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

engine: $(VENV)/.console ## The engine's environment alone
	$(BIN)/python -m console.embedded.engine

engine-vllm: $(VENV)/.console ## vLLM's environment beside it, for runs that serve and evaluate with vLLM
	$(BIN)/python -m console.embedded.engine --vllm

lock: $(VENV)/.dev ## Write the versions that are installed now into constraints.txt
	$(BIN)/pip freeze --exclude-editable --exclude torch | grep -v '^-e' > constraints.txt

snapshots: $(VENV)/.dev ## Write tests/snapshots anew where the screen looks different; look at the difference before you commit it
	$(BIN)/python -m tests.ui.snapshots

screenshots: $(VENV)/.dev ## Render docs/screenshots from the recordings
	$(BIN)/python docs/screenshots.py

clean: ## Remove the environment and the caches of this checkout
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Roost needs Python 3.11 or newer; this is %s. Set PYTHON=/path/to/python3.11" % sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.console: $(VENV)/.python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.console
	$(BIN)/pip install --quiet torch==2.13.0+cpu || $(BIN)/pip install --quiet torch==2.13.0+cpu --index-url $(ROOST_TORCH_INDEX)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@
