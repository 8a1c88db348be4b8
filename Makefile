# make run and make test do everything, set-up included; README.md says more.
SHELL := /bin/bash
PYTHON ?=
PORT ?= 8501
# Further options of the server: make run HOSTS=gpu.example.org PREFIX=fusescope NO_TOKEN=1
SERVE = $(addprefix --host ,$(HOSTS)) $(if $(PREFIX),--prefix $(PREFIX)) $(if $(NO_TOKEN),--no-token)
ARGS ?=
# Test processes. OMP_WAIT_POLICY: a waiting OpenMP thread leaves its core to the other process. OPENBLAS: as many
# threads as cores for the small matrices of NumPy cost seven times the CPU time and gain none.
# PYTHONDONTWRITEBYTECODE, where the environment sets it, has each of some 200 processes compile the package again.
WORKERS ?= 2
PYTEST = OMP_WAIT_POLICY=passive OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= .venv/bin/python -m pytest
PARALLEL = -n $(WORKERS) --dist worksteal
# Nothing selected (5) is no failure of a command that calls pytest twice.
NONE = || [ $$? -eq 5 ]
CPP = git ls-files '*.cu' '*.cuh' '*.cpp' '*.h'

.PHONY: run quick test test-rest test-journeys test-archs test-faults env env-dev check format clean

run: env            ## serve the app on 127.0.0.1:$(PORT), or the next free port
	@.venv/bin/python scripts/serve.py --port $(PORT) $(SERVE)

quick: env-dev check ## what to run before each commit: everything but slow tests, in two minutes
	$(PYTEST) -m "not (archs or browser or slow or long)" $(PARALLEL) $(ARGS)

# Which tests: make test, and make test-archs with the rest of them.
TESTS = not (archs or long)
test: env-dev check ## all but long tests and further cases, browser journeys included: some eight minutes
	@$(MAKE) --no-print-directory -j2 test-rest test-journeys

test-archs: env-dev ## all the rest: long tests, every GPU architecture, every class of transformers: half an hour
	@$(MAKE) --no-print-directory -j2 test-rest test-journeys TESTS="archs or long"

test-rest: env-dev  ## everything but the journeys
	$(PYTEST) -m "not browser and ($(TESTS))" $(PARALLEL) --durations=15 $(ARGS) $(NONE)

# One after the other and next to the rest: much of a journey is waiting for a page. Printed when all is known.
test-journeys: env-dev ## users' ways through the app in a real browser
	@log=$$(mktemp); $(PYTEST) tests/browser -m "browser and ($(TESTS))" $(ARGS) >$$log 2>&1 $(NONE); status=$$?; \
	cat $$log; rm -f $$log; exit $$status

# ARGS="--only kills:71" tries one case again; ARGS="--document FILE" puts a printed output into the document.
test-faults: env-dev ## faults on purpose: kills, full disks, damaged and hostile files, strangers: 15 minutes
	@.venv/bin/python -m tests.faults $(ARGS)

check: env-dev      ## lint, format of Python, C++ and CUDA; recorded runs and the tables made from them
	@.venv/bin/ruff check . && .venv/bin/ruff format --check .
	@$(CPP) | xargs .venv/bin/clang-format --dry-run -Werror
	@.venv/bin/python scripts/ladder_table.py --check && .venv/bin/python scripts/check_recorded.py

format: env-dev
	@.venv/bin/ruff check --fix . && .venv/bin/ruff format .
	@$(CPP) | xargs .venv/bin/clang-format -i

env:
	@PYTHON="$(PYTHON)" TORCH="$(TORCH)" scripts/setup.sh run

env-dev:
	@PYTHON="$(PYTHON)" TORCH="$(TORCH)" scripts/setup.sh test

clean:              ## remove the environment and the build cache, never a run
	rm -rf .venv .build
