# Two commands need nothing but Python 3.11+ and make:  `make demo`  and  `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FOR_TESTS := $(VENV)/.installed-dev
FOR_DEMO := $(VENV)/.installed-demo
FOR_SERVER := $(VENV)/.installed-serve
FOR_DOCS := $(VENV)/.installed-docs
# Tests run in two processes; each gets one thread, so that they do not fight over two cores. Neighbours stay together, so that
# what a file sets up is set up once. Bytecode is kept, or every command that a test starts would compile the package again.
TEST_ENV := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false PYTHONDONTWRITEBYTECODE=
TWO := -n 2 --dist worksteal
# A training asks the disk fifty times whether it has everything, and waits. What tests write goes into memory where there are
# four gigabytes for it; `make soak` writes to the disk.
IN_MEMORY := $(shell test -w /dev/shm && df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 4194304 {print "TMPDIR=/dev/shm"}')

.PHONY: setup server browser check types fast-tests test soak soak-laws demo docs clean

setup: $(FOR_TESTS)

server: $(FOR_SERVER)  ## install what `glassformer serve` needs; the Dockerfile does

INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

$(FOR_TESTS): lab/pyproject.toml

# Each installs what it needs: the demo far less than the tests, which take the laboratory as well.
$(FOR_TESTS) $(FOR_DEMO) $(FOR_SERVER) $(FOR_DOCS): $(VENV)/.installed-%: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "glassformer needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the pinned packages into $(VENV) (a few minutes the first time) ..."
	@$(INSTALL) torch
	@$(INSTALL) --editable '.[$*]' $(if $(filter dev,$*),--editable ./lab)
	@touch $@

# Pages are tested in a real browser: Debian's Chromium, and a font that has Chinese.
BROWSERS := chromium chromium-browser google-chrome google-chrome-stable

browser:  ## install Chromium where it is missing and can be installed
	@found=""; for name in $(BROWSERS); do \
	  if command -v $$name >/dev/null 2>&1; then found=$$name; fi; \
	done; \
	if [ -n "$$found" ] && { ! command -v fc-list >/dev/null 2>&1 || [ -n "$$(fc-list :lang=zh family 2>/dev/null | head -n 1)" ]; }; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then as=""; else as="sudo -n"; fi; \
	if command -v apt-get >/dev/null 2>&1 && $$as true 2>/dev/null; then \
	  echo "installing chromium and fonts-noto-cjk for the tests of pages ..."; \
	  { $$as apt-get update -qq && $$as env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-noto-cjk; } >/dev/null 2>&1 && exit 0; \
	fi; \
	echo "Chromium or a Chinese font is missing and could not be installed here; the tests in tests/browser need them: sudo apt-get install chromium fonts-noto-cjk"

check: setup  ## format, lint, types, fast tests: under a minute
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target types fast-tests

types: setup
	$(BIN)/mypy

fast-tests: setup
	GLASSFORMER_QUICK=1 $(TEST_ENV) $(IN_MEMORY) $(BIN)/pytest $(TWO) -m "not slow"

test: setup browser  ## every test
	$(TEST_ENV) $(IN_MEMORY) $(BIN)/pytest $(TWO)

soak: setup  ## 5,000 cases of the fuzzer, 200 kills, 100 of one rank of two, the screen taken away: each test says when it is through
	GLASSFORMER_SOAK=1 $(TEST_ENV) $(BIN)/pytest $(TWO) -v tests/fuzz tests/faults tests/laws/test_processes.py

soak-laws: setup  ## the laws and searches that draw at random, at their full counts, and on every variant of every family
	GLASSFORMER_SOAK=1 $(TEST_ENV) $(BIN)/pytest $(TWO) -v $$(grep -rlE "count\(fast|cases\(\*" tests lab/tests --include='test_*.py' | grep -v -e tests/fuzz -e tests/faults)

demo: $(FOR_DEMO)  ## train `dates` (two to three minutes), show what it learned
	$(BIN)/glassformer demo

docs: $(FOR_DOCS)  ## the documents as a site, in English and Chinese: open site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean --quiet
	@echo "open site/index.html"

clean:
	rm -rf $(VENV) runs build dist site *.egg-info lab/*.egg-info lab/build
