# Two commands need nothing but Python 3.11+ and make:  `make demo`  and  `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Tests run in two processes; each gets one thread, so that they do not fight over two cores.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false

.PHONY: setup check test soak demo clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "glassformer needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the pinned packages into $(VENV) (a few minutes the first time) ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

check: setup  ## format, lint, types, fast tests: under a minute
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(TEST_ENV) $(BIN)/pytest -n 2 -m "not slow" tests

test: setup  ## every test
	$(TEST_ENV) $(BIN)/pytest -n 2 tests

soak: setup  ## the same tests at full counts
	GLASSFORMER_SOAK=1 $(TEST_ENV) $(BIN)/pytest -n 2 tests

demo: setup  ## train `dates` (about three minutes), show what it learned
	$(BIN)/glassformer demo

clean:
	rm -rf $(VENV) runs build dist *.egg-info
