# Two commands do everything on a machine with Python 3.11+, pip and make:
#   make run    set up, play the demo, and keep serving what it made
#   make test   set up, and run the tests
# The others: make test-full, check, bench, evals, validate, conformance, adapters, clients, typescript, screenshots, docs,
#   house, package, pgvector, cluster, chaos.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP     = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock

# Tests and benchmarks start many Python processes: each would compile Weftline again without cached bytecode.
export PYTHONDONTWRITEBYTECODE :=

# What a target needs is made at the same time.
MAKEFLAGS += --jobs=2

.DEFAULT_GOAL := help
.PHONY: adapters canary chaos cluster help run test test-full browser screenshots check format bench evals validate conformance clients typescript docs house package pgvector lock clean

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | head -n 5

# What Weftline needs to run, and what working on it needs besides.
$(VENV)/.runtime: pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[all]'
	@touch $@

# Both at once, because resolving twice takes as long as the packages do. pip compiles them on one core; of some, tests
# import little.
$(VENV)/.development: pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(PIP) --no-compile --editable '.[dev]'
	-@$(BIN)/python -m compileall -qq -j 0 -x '/(moto|mypyc?|pip|setuptools)/' $(VENV)/lib src
	@$(BIN)/python scripts/build_pgvector.py --if-needed
	@touch $(VENV)/.runtime $@

run: $(VENV)/.runtime
	$(BIN)/weftline demo --stay --data-dir $${WEFTLINE_DATA_DIR:-weftline-data}

# A file runs on one worker, so that its fixtures are created once; tests/conftest.py chooses the number of workers.
# Tests need no network but loopback.
# Most run on one of the two databases, with few examples.
WORKERS := -n auto --dist loadfile --no-loadscope-reorder
test: $(VENV)/.development browser
	$(BIN)/python -m pytest $(WORKERS) $(ARGS)

# Every test on both databases, with many examples.
test-full: $(VENV)/.development browser
	WEFTLINE_TESTS=full $(BIN)/python -m pytest $(WORKERS) $(ARGS)

# A browser for the tests of the console, where it can be installed; they are skipped where it cannot.
# It needs nothing of the environment, which is set up meanwhile.
browser:
	@$(PYTHON) scripts/browser.py

# Every page of the console as pictures for a person to look at, in two widths and two themes: .results/console/.
screenshots: $(VENV)/.development browser
	$(BIN)/python -m pytest tests/browser/console_screenshots.py $(ARGS)

# Every principal against every operation and resource on both databases, with secrets planted everywhere.
canary: $(VENV)/.development
	WEFTLINE_TESTS=full $(BIN)/python -m pytest tests/hostile/test_canaries.py $(ARGS)

# pgvector for the PostgreSQL of the tests, built from source: needed where the included one does not run on the CPU.
# ARGS="--pg-config FILE" builds it for another server, --source FILE names the source.
pgvector: $(VENV)/.development
	$(BIN)/python scripts/build_pgvector.py $(ARGS)

# A cluster on this machine: three servers, HAProxy, PostgreSQL under Patroni, PgBouncer, Valkey, a bucket. Needs root.
# ARGS=status tells what runs, ARGS=down stops it.
cluster: $(VENV)/.development
	$(BIN)/python scripts/cluster.py $(or $(ARGS),up)

# Faults at random in such a cluster under load, for ten minutes: ARGS="--minutes 60 --random-state 7" for others.
chaos: $(VENV)/.development
	$(BIN)/python -m benchmarks.chaos $(ARGS)

check: $(VENV)/.development
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/generate.py --check

format: $(VENV)/.development
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.development
	$(BIN)/python -m benchmarks $(ARGS)

evals: $(VENV)/.development
	$(BIN)/python -m evals $(ARGS)

# The eight validations of the context engine: ARGS=immutability runs one.
validate: $(VENV)/.runtime
	$(BIN)/weftline validate $(or $(ARGS),all)

conformance: $(VENV)/.development
	$(BIN)/python scripts/conformance.py $(ARGS)

# The TypeScript client: build it, and test it against a real server; also part of make conformance.
typescript: $(VENV)/.development
	$(BIN)/python scripts/typescript.py

# SDKs and coding agents through the model proxy, every byte compared; ARGS="codex gemini" runs some. Part of conformance.
clients: $(VENV)/.development
	$(BIN)/python scripts/model_clients.py $(ARGS)

# Every adapter with its framework: conformance suites, tests, guides; a table. ARGS="google_adk" tests one. Part of
# conformance; a framework that cannot be installed is skipped.
adapters: $(VENV)/.development
	$(BIN)/python scripts/framework_adapters.py $(ARGS)

docs: $(VENV)/.development
	$(BIN)/python scripts/generate.py

# The size of the code, the arrows between its parts, and how much of it five calls cross.
house: $(VENV)/.development
	$(BIN)/python scripts/house.py $(ARGS)

# Build the wheel, and install it from the registry as users do, also beside agent frameworks; for a release.
# ARGS=--install-all installs the large frameworks too.
package: $(VENV)/.development
	$(BIN)/python scripts/package.py $(ARGS)

# Resolve anew and pin every version; names no host.
lock:
	rm -rf .lock-venv && $(PYTHON) -m venv .lock-venv
	.lock-venv/bin/python -m pip install --quiet --editable '.[dev]'
	.lock-venv/bin/python -m pip freeze --exclude-editable --exclude weftline > requirements.lock
	rm -rf .lock-venv

clean:
	rm -rf $(VENV) .frameworks .node clients/typescript/node_modules clients/typescript/dist .bench-* .results .mypy_cache .ruff_cache .pytest_cache .hypothesis
