# Every target sets up what it needs, in .venv, .venv-bench or .venv-otel, and nothing the second time. `make` alone lists the targets.

# The host's Python settings must not reach the project's own environment.
unexport $(filter PYTHON% PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT PIP_REQUIRE_VIRTUALENV PIP_NO_BINARY,$(.VARIABLES))
export PIP_USER := 0

PYTHON ?=
DIR ?= hive
ARGS ?=
JOBS ?= 2
BIN := $(CURDIR)/.venv/bin
SETUP_INPUTS := pyproject.toml scripts/setup.py scripts/setup.sh
SOURCES := src tests scripts $(wildcard benchmarks)

.DEFAULT_GOAL := help
.PHONY: help demo up test test-model test-acceptance test-chaos test-otel test-all check bench bench-kernel bench-delivery lock clean FORCE

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

demo: .venv/.run ## watch a message travel through a throw-away instance (downloads the model once, about 1.1 GB)
	@"$(BIN)/rucher" demo $(ARGS)

up: .venv/.run ## start an instance in DIR (default ./hive), made when missing
	@test -e "$(DIR)/rucher.toml" || "$(BIN)/rucher" new "$(DIR)"
	@cd "$(DIR)" && exec "$(BIN)/rucher" up $(ARGS)

test: .venv/.dev ## run the tests that need no model weights (ARGS="-k word" narrows)
	@"$(BIN)/python" -m pytest -n $(JOBS) --dist loadgroup $(ARGS)

test-acceptance: .venv/.dev ## run the tests that start whole instances and kill them
	@"$(BIN)/python" -m pytest -n $(JOBS) --dist loadgroup -m "acceptance and not otel" $(ARGS)

test-model: .venv/.dev ## run the tests that use the real weights
	@"$(BIN)/python" -m pytest -m model $(ARGS)

test-chaos: .venv/.dev ## run the long tests that kill real processes
	@"$(BIN)/python" -m pytest -m chaos_long $(ARGS)

test-otel: .venv/.dev .venv-otel/.otel ## let a real OpenTelemetry receiver take an instance's spans (its own environment, 850 MB the first time)
	@"$(BIN)/python" -m pytest -m otel $(ARGS)

test-all: test test-acceptance test-chaos test-model ## run every test but the browser's and the real receiver's

check: .venv/.dev ## format, lint, types, architecture, dependencies, dead and doubled code
	@"$(BIN)/ruff" format --check $(SOURCES)
	@"$(BIN)/ruff" check $(SOURCES)
	@"$(BIN)/python" -m mypy $(SOURCES)
	@"$(BIN)/lint-imports" --no-logo
	@"$(BIN)/deptry" src
	@"$(BIN)/vulture"
	@"$(BIN)/pylint" --score=n src/rucher

bench: .venv/.dev ## measure what the README claims
	@"$(BIN)/python" -m benchmarks $(ARGS)

bench-kernel: .venv/.dev .venv-bench/.bench ## compare the kernel with other libraries, and measure how it bears size (20 minutes, alone on the machine)
	@"$(BIN)/python" -m benchmarks.kernel $(ARGS)

bench-delivery: .venv/.dev ## measure how much a surface that hangs and one that errs slow the others (3 minutes, alone on the machine)
	@"$(BIN)/python" -m benchmarks.delivery $(ARGS)

lock: .venv/.dev ## write requirements/*.txt anew from pyproject.toml (ARGS=--upgrade takes newer versions)
	@scripts/lock.sh $(ARGS)

clean: ## remove the environments and all caches; instances stay
	rm -rf .venv .venv-bench .venv-otel dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests scripts benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# A checkout that was moved, a Python that was removed and a set-up that was interrupted all need set-up again.
ifneq ($(shell cat .venv/.place 2>/dev/null)$(wildcard .venv/.unfinished),$(CURDIR))
.venv/.run .venv/.dev: FORCE
else ifeq ($(wildcard .venv/bin/python),)
.venv/.run .venv/.dev: FORCE
endif

.venv/.run: requirements/run.txt $(SETUP_INPUTS)
	@PYTHON="$(PYTHON)" scripts/setup.sh run

.venv/.dev: requirements/dev.txt requirements/run.txt $(SETUP_INPUTS)
	@PYTHON="$(PYTHON)" scripts/setup.sh dev

ifneq ($(shell cat .venv-bench/.place 2>/dev/null)$(wildcard .venv-bench/.unfinished),$(CURDIR))
.venv-bench/.bench: FORCE
else ifeq ($(wildcard .venv-bench/bin/python),)
.venv-bench/.bench: FORCE
endif

.venv-bench/.bench: requirements/bench.txt scripts/setup.py scripts/setup.sh
	@PYTHON="$(PYTHON)" scripts/setup.sh bench

ifneq ($(shell cat .venv-otel/.place 2>/dev/null)$(wildcard .venv-otel/.unfinished),$(CURDIR))
.venv-otel/.otel: FORCE
endif

.venv-otel/.otel: requirements/otel.txt scripts/setup.py scripts/setup.sh
	@PYTHON="$(PYTHON)" scripts/setup.sh otel
