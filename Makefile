# Every target sets up what it needs; running one again costs nothing. A fresh machine needs
# Python 3.11 or newer and Java 17 or newer, and no other tool: no Maven, Go, Rust or Docker.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Two worker processes: the tests are bound by the processor.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Certificates of the system, so that a proxy whose authority is installed there is trusted. pip
# takes a file of them, the one that Python itself would use (SSL_CERT_FILE moves it).
CA_FILE = $(shell $(PYTHON) -c 'import ssl; print(ssl.get_default_verify_paths().cafile or "")')
WITH_SYSTEM_CERTS = UV_SYSTEM_CERTS=true $(if $(PIP_CERT),,$(if $(CA_FILE),PIP_CERT=$(CA_FILE)))

# Where make up and make demo keep their zones, and where the objects of the demonstration go.
DIR ?= var
STORE ?= files

# What make coverage runs: tests that need no service, hub process, Spark or Airflow.
COVERED_BY ?= tests/unit/veen --ignore tests/unit/veen/wire/test_wire.py
COVERAGE_OF ?= veen/*.py,veen/wire/*.py

# What make mutants runs: targets of bench/mutants.toml, all without any.
MUTANTS ?=

# What make wheelhouse gathers: extras of pyproject.toml, separated by commas.
EXTRAS ?= all

.PHONY: help setup java lock commands format check dist wheelhouse test test-e2e test-unit test-long soak bench demo up down docs docs-serve coverage mutants stats clean

help:  ## Show what each target does
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1\t/' | expand -t 14

setup: java $(STAMP)  ## Make .venv and install everything from requirements.lock

java:
	@found=$$( (java -version 2>&1 || true) | sed -nE '1s/.*version "(1\.)?([0-9]+).*/\2/p'); \
	if [ "$${found:-0}" -lt 17 ]; then \
	  echo "Spark needs Java 17 or newer on the PATH; found: $${found:-none}."; \
	  echo "  Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless"; \
	  echo "  Fedora, RHEL:    sudo dnf install java-17-openjdk-headless"; \
	  echo "  macOS:           brew install openjdk@17, then put it on the PATH as brew says"; \
	  exit 1; \
	fi

$(STAMP): requirements.lock pyproject.toml veen/version.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 setup")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	sed -n '/^uv==/,/[^\\]$$/p' requirements.lock >$(VENV)/uv.lock
	$(WITH_SYSTEM_CERTS) $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --no-deps --require-hashes --requirement $(VENV)/uv.lock
	$(WITH_SYSTEM_CERTS) $(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --offline --editable .
	touch $@

lock: $(STAMP)  ## Compile requirements.lock again from pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate \
	  --python-version 3.11 --extra dev pyproject.toml --output-file requirements.lock

commands: setup  ## Write cli/commands.json again, after a change of a command or option
	$(BIN)/python -m cli.declared

format: setup  ## Format the code, and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

dist: setup  ## Build a wheel and a source distribution in dist/
	rm -rf dist
	$(BIN)/python -m hatchling build --target sdist --target wheel --directory dist

wheelhouse: setup  ## Gather wheelhouse/ for an installation without a network; EXTRAS=all
	$(WITH_SYSTEM_CERTS) $(BIN)/python release/wheelhouse.py wheelhouse $(EXTRAS)

check: setup  ## Format, lint, types, layers, and the table of commands
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	MYPYPATH=dags:plugins:tests:tests/vectors $(BIN)/mypy --explicit-package-bases dags plugins tests
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m cli.declared --check

test: check  ## Check, then the first tier of the tests
	$(PYTEST) -m "not long and not e2e"

test-e2e: setup  ## The second tier: whole zones, Airflow, browser, cluster, failing disks
	$(PYTEST) -m "e2e and not long"

test-unit: setup  ## The unit tests alone
	$(PYTEST) -m "not long and not e2e" tests/unit

test-long: check  ## The same tests with larger counts, and the soak
	VEEN_TEST_LONG=1 $(PYTEST) --timeout 7200

coverage: setup  ## Branch coverage of the protocol by its unit tests, with a floor
	rm -rf .coverage && mkdir .coverage
	$(BIN)/coverage run -m pytest -q -p no:xdist -m "not long" $(COVERED_BY)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --include '$(COVERAGE_OF)'

mutants: setup  ## Mutation tests of the verifiers; MUTANTS='bundle package' for some of them
	$(BIN)/python bench/mutants.py $(MUTANTS)

soak: setup  ## Ten minutes of steady load on a hub; fails when its memory grows
	$(BIN)/python tests/support/hub/soak.py --minutes 10

bench: setup  ## Print benchmarks as JSON lines
	$(BIN)/python bench/run.py

stats: setup  ## Measure the tree beside other projects; ARGS=--path traces a warm event, --json
	@$(BIN)/python bench/stats.py $(ARGS)

demo: setup  ## Two zones, the whole story, every claim judged; STORE=s3 over an S3 server
	$(BIN)/veen demo --directory $(DIR)/demo --store $(STORE) --again

up: setup  ## Start two zones and leave them running; URLs and passwords are printed
	@test -e $(DIR)/z1/veen.toml || $(BIN)/veen zone init --directory $(DIR)/z1 --name z1 \
	  --role online --medium $(DIR)/medium
	@test -e $(DIR)/z2/veen.toml || $(BIN)/veen zone init --directory $(DIR)/z2 --name z2 \
	  --role offline --trust $(DIR)/z1/handover --medium $(DIR)/medium
	$(BIN)/veen zone up --directory $(DIR)

down:  ## Stop them; all state stays
	$(BIN)/veen zone down --directory $(DIR)

docs: setup  ## Build the documentation into site/; a broken link or anchor fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: setup  ## Serve the documentation on 127.0.0.1:8000 and rebuild it on each change
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --strict --dev-addr 127.0.0.1:8000

clean:  ## Remove everything that make setup and the tests made
	rm -rf $(VENV) site mutants .coverage .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist wheelhouse
