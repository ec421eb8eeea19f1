# make demo   the simulator's flagship comparison        make test   lint and every test
# make bench  speed, as ratios to a baseline in one run   make lint   ruff, mypy --strict, import-linter

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test lint bench oracle clean

demo: $(READY)
	$(BIN)/outrider sim demo

test: $(READY) oracle lint
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python bench/run.py

$(READY): setup.cfg pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Outrider needs Python 3.11 or later: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[sim,test]'
	touch $@

# An independent network simulator that one test compares with. Only root can
# install it; without it that test is skipped, except in CI, where it fails.
oracle:
	@/usr/bin/python3 -c 'import simgrid' 2>/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	       && apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3-simgrid >/dev/null; } \
	  || echo "python3-simgrid is not installed: the comparison with SimGrid will be skipped"

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
