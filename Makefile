# Two commands for people: `make run` (`make run PORT=9000`) and `make test`. `make check` before each commit.

PYTHON ?= python3
BIN := .venv/bin
HARNESS_HOME ?= ./.harness
PORT ?= 8642
# a browser is opened on a terminal: `make run OPEN=no` opens none
OPEN ?= yes
SOURCES := workspaces harness tests benchmarks
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
UV_VERSION := 0.13.8

.PHONY: run test check format format-check lint types imports http-table screenshots configuration bench soak lock clean

run: .venv/.installed
	@echo 'To chat, in another terminal:  HARNESS_HOME="$(HARNESS_HOME)" $(BIN)/harness chat'
	@HARNESS_HOME="$(HARNESS_HOME)" $(BIN)/harness up --port "$(PORT)" $(if $(OPEN:no=),--open)

test: .venv/.installed-dev
	$(BIN)/pytest -n auto

check: format-check lint types imports test

format: .venv/.installed-dev
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix-only --quiet $(SOURCES)

format-check: .venv/.installed-dev
	$(BIN)/ruff format --check $(SOURCES)

lint: .venv/.installed-dev
	$(BIN)/ruff check $(SOURCES)

types: .venv/.installed-dev
	$(BIN)/pyright

imports: .venv/.installed-dev
	$(BIN)/lint-imports --no-cache --no-logo

screenshots: .venv/.installed-dev
	$(BIN)/python -m tests.harness.web.pages.screenshots

http-table: .venv/.installed
	$(BIN)/python -c 'from harness.web.app import routes; from tests.harness.web.route_table import table; print(table(routes()), end="")' > docs/http.md

configuration: .venv/.installed
	$(BIN)/python -c 'from pathlib import Path; from tests.harness.presentation.configuration_tables import write; write(Path("docs/configuration.md"))'

bench: .venv/.installed-dev
	$(BIN)/python -m benchmarks

soak: .venv/.installed-dev
	$(BIN)/python -m tests.soak

# Write down what is installed, every file by its hash, for each system and Python. The versions that are
# written down already stay: `make lock NEWER=--upgrade` takes the newest of everything, and
# `make lock NEWER='--upgrade-package rich'` of one. Run the checks, then commit both files.
lock:
	rm -rf build/lock && $(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	$(RESOLVE) --output-file requirements.lock
	$(RESOLVE) --extra dev --constraints requirements.lock --output-file requirements-dev.lock
	rm -rf build/lock

# uv reads no configuration of pip: it is told pip's index, where there is one
RESOLVE = UV_DEFAULT_INDEX="$$(printenv PIP_INDEX_URL \
		|| build/lock/bin/python -m pip config get global.index-url 2>/dev/null)" \
	build/lock/bin/uv pip compile pyproject.toml --group build --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-annotate --no-header --quiet $(NEWER)

clean:
	rm -rf .venv build dist .ruff_cache .hypothesis

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@command -v git >/dev/null || { echo "git is needed: install it and run this again"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.installed: pyproject.toml requirements.lock | .venv/bin/python
	$(INSTALL) --no-deps --require-hashes -r requirements.lock
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

.venv/.installed-dev: pyproject.toml requirements-dev.lock | .venv/bin/python
	$(INSTALL) --no-deps --require-hashes -r requirements-dev.lock
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@ .venv/.installed
