# Two commands for people: `make run` and `make test`. `make check` before each commit.

PYTHON ?= python3
BIN := .venv/bin
HARNESS_HOME ?= ./.harness
SOURCES := workspaces harness tests benchmarks

.PHONY: run test check format format-check lint types imports http-table bench soak constraints clean

run: .venv/.installed
	@echo 'To chat, in another terminal:  HARNESS_HOME="$(HARNESS_HOME)" $(BIN)/harness chat'
	@HARNESS_HOME="$(HARNESS_HOME)" $(BIN)/harness up

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

http-table: .venv/.installed
	$(BIN)/python -c 'from harness.web import app, openapi; print(openapi.table(app.routes()), end="")' > docs/http.md

bench: .venv/.installed-dev
	$(BIN)/python -m benchmarks

soak: .venv/.installed-dev
	SOAK=1 $(BIN)/pytest -n auto

# The newest versions of everything, written down: run it, then the checks, then commit the file.
constraints:
	rm -rf build/constraints && $(PYTHON) -m venv build/constraints
	build/constraints/bin/python -m pip install --quiet --upgrade '.[dev]'
	build/constraints/bin/python -m pip freeze --exclude workspace-harness \
		| grep -E '^[A-Za-z0-9._-]+==[^ ]+$$' > constraints.txt
	rm -rf build/constraints

clean:
	rm -rf .venv build dist .ruff_cache .hypothesis

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@command -v git >/dev/null || { echo "git is needed: install it and run this again"; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.installed: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

.venv/.installed-dev: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@ .venv/.installed
