# make run and make test do everything, set-up included; README.md says more.
SHELL := /bin/bash
PYTHON ?=
PORT ?= 8501
ARGS ?=
# Processes of tests; OMP_WAIT_POLICY leaves a waiting thread's core to the other one.
WORKERS ?= 2
PYTEST = .venv/bin/python -m pytest
# Nothing selected (5) is no failure of a command that calls pytest twice.
NONE = || [ $$? -eq 5 ]

.PHONY: run test test-archs env env-dev check format clean

run: env            ## serve the app on 127.0.0.1:$(PORT), or the next free port
	@.venv/bin/python scripts/serve.py --port $(PORT)

test: env-dev check ## every test of this machine, browser journeys included
	OMP_WAIT_POLICY=passive $(PYTEST) -m "not archs and not browser" -n $(WORKERS) --dist loadfile --durations=15 $(ARGS) $(NONE)
	$(PYTEST) -m browser $(ARGS) $(NONE)  # alone: a journey waits for pages as long as a user would

test-archs: env-dev ## compile every kernel for every architecture it claims
	$(PYTEST) -m archs $(ARGS)

check: env-dev
	@.venv/bin/ruff check . && .venv/bin/ruff format --check .

format: env-dev
	@.venv/bin/ruff check --fix . && .venv/bin/ruff format .

env:
	@PYTHON="$(PYTHON)" TORCH="$(TORCH)" scripts/setup.sh run

env-dev:
	@PYTHON="$(PYTHON)" TORCH="$(TORCH)" scripts/setup.sh test

clean:              ## remove the environment and the build cache, never a run
	rm -rf .venv .build
