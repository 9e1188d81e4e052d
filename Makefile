# Each target sets up .venv if it is missing or older than pyproject.toml and constraints.txt.
#   make demo        train the preset `quickstart`: a small model learns Twenty Questions
#   make test        the tests; `make test ARGS="tests/cli -k help"` runs some of them
#   make test-slow   the tests that take minutes or need a package that carries a model
#   make lint        ruff and mypy

PYTHON ?= python3
BIN := .venv/bin
ARGS ?=

# Torch's own choice of threads collapses where other processes share the cores.
export OMP_NUM_THREADS ?= 2
export TOKENIZERS_PARALLELISM ?= false

.PHONY: demo test test-slow lint
.DEFAULT_GOAL := test

demo: .venv/.installed-train
	$(BIN)/agentsgym train quickstart $(ARGS)

test: .venv/.installed-test
	$(BIN)/python -m pytest $(ARGS)

test-slow: .venv/.installed-test-slow
	$(BIN)/python -m pytest -m slow $(ARGS)

lint: .venv/.installed-dev
	$(BIN)/ruff check src tests
	$(BIN)/mypy

.venv/bin/python:
	$(PYTHON) -m venv .venv

# torch goes first and alone: as a dependency it would bring gigabytes that a CPU has no use for.
.venv/.installed-torch: constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	@touch $@

.venv/.installed-test-slow: EXTRAS = test,slow
.venv/.installed-%: EXTRAS = $*
.venv/.installed-%: pyproject.toml .venv/.installed-torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	@touch $@
