# make run and make test do everything, set-up included; README.md says more.
SHELL := /bin/bash
PYTHON ?=
PORT ?= 8501
ARGS ?=

.PHONY: run test test-archs env env-dev check format clean

run: env            ## serve the app on 127.0.0.1:$(PORT), or the next free port
	@.venv/bin/python scripts/serve.py --port $(PORT)

test: env-dev check ## every test of this machine, browser journeys included
	.venv/bin/python -m pytest -m "not archs" --durations=15 $(ARGS)

test-archs: env-dev ## compile every kernel for every architecture it claims
	.venv/bin/python -m pytest -m archs $(ARGS)

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
