# make demo: set up .venv, then compare head schedules on real text (about ten minutes on two cores)
# make test: set up .venv, then run the tests
# make check: style, types and the import contract

PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check clean

demo: .venv/installed
	$(BIN)/prism compare --recipe demo

test: .venv/installed-dev
	$(BIN)/python -m pytest -q

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# torch first and by exact version: a plain torch would bring gigabytes of CUDA libraries on Linux.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf .venv build dist site
