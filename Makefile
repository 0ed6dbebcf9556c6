# make demo: set up .venv, then compare head schedules on real text (about ten minutes on two cores)
# make test: set up .venv, then run the tests
# make test-oldest: the tests of the network on the oldest transformers that pyproject.toml allows, in its own environment
# make check: style, types and the import contract
# make test-wheel: build the wheel, install it alone into a clean environment, and use it from elsewhere
# make docs: the documentation as pages, in site/
# make same-loss: show that a change moves no number, against HEAD or BASE=COMMIT

PYTHON ?= python3
BIN := .venv/bin
QUIETLY := --quiet --disable-pip-version-check
OLDEST := $(shell sed -n 's/.*"transformers>=\(.*\)",.*/\1/p' pyproject.toml)
BASE := HEAD

.PHONY: demo test test-oldest test-wheel docs check same-loss clean

demo: .venv/installed
	$(BIN)/prism compare --recipe demo

test: .venv/installed-dev
	$(BIN)/python -m pytest -q --numprocesses logical --dist worksteal

test-oldest: .venv-oldest/installed-$(OLDEST)
	PYTHONPATH=src .venv-oldest/bin/python -m pytest -q -p no:cacheprovider tests/model

test-wheel:
	PYTHON=$(PYTHON) bash scripts/test_wheel.sh

docs: .venv/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

same-loss: .venv/installed-dev
	$(BIN)/python scripts/same_loss.py $(BASE)

# torch first and by exact version: a plain torch would bring gigabytes of CUDA libraries on Linux.
.venv/installed: pyproject.toml constraints.txt
	@echo "installing torch and this package into .venv: two to four minutes, once"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install $(QUIETLY) --constraint constraints.txt torch
	$(BIN)/python -m pip install $(QUIETLY) --constraint constraints.txt --editable .
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/python -m pip install $(QUIETLY) --constraint constraints.txt --editable '.[dev,docs]'
	touch $@

.venv-oldest/installed-$(OLDEST): constraints.txt
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install $(QUIETLY) --constraint constraints.txt torch
	.venv-oldest/bin/python -m pip install $(QUIETLY) --constraint constraints.txt \
		transformers==$(OLDEST) accelerate hypothesis peft pytest
	touch $@

clean:
	rm -rf .venv .venv-oldest build dist site
