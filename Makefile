# make run and make test do everything, set-up included; README.md says more.
SHELL := /bin/bash
PYTHON ?=
PORT ?= 8501
ARGS ?=
# Test processes. OMP_WAIT_POLICY: a waiting OpenMP thread leaves its core to the other process.
WORKERS ?= 2
PYTEST = OMP_WAIT_POLICY=passive .venv/bin/python -m pytest
PARALLEL = -n $(WORKERS) --dist worksteal
# Nothing selected (5) is no failure of a command that calls pytest twice.
NONE = || [ $$? -eq 5 ]
CPP = git ls-files '*.cu' '*.cuh' '*.cpp' '*.h'

.PHONY: run quick test test-archs env env-dev check format clean

run: env            ## serve the app on 127.0.0.1:$(PORT), or the next free port
	@.venv/bin/python scripts/serve.py --port $(PORT)

quick: env-dev check ## what to run before each commit: everything but slow tests, in two minutes
	$(PYTEST) -m "not archs and not browser and not slow" $(PARALLEL) $(ARGS)

test: env-dev check ## every test of this machine, browser journeys included
	$(PYTEST) -m "not archs and not browser" $(PARALLEL) --durations=15 $(ARGS) $(NONE)
	$(PYTEST) -m browser $(ARGS) $(NONE)  # alone: a journey waits for pages as long as a user would

test-archs: env-dev ## compile every kernel for every architecture it claims
	$(PYTEST) -m archs $(ARGS)

check: env-dev      ## lint, format of Python, C++ and CUDA, tables generated from recorded runs
	@.venv/bin/ruff check . && .venv/bin/ruff format --check .
	@$(CPP) | xargs .venv/bin/clang-format --dry-run -Werror
	@.venv/bin/python scripts/ladder_table.py --check

format: env-dev
	@.venv/bin/ruff check --fix . && .venv/bin/ruff format .
	@$(CPP) | xargs .venv/bin/clang-format -i

env:
	@PYTHON="$(PYTHON)" TORCH="$(TORCH)" scripts/setup.sh run

env-dev:
	@PYTHON="$(PYTHON)" TORCH="$(TORCH)" scripts/setup.sh test

clean:              ## remove the environment and the build cache, never a run
	rm -rf .venv .build
