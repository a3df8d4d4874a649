# Two commands for everybody: `make demo` and `make test`. Each makes its own virtual environment first.
# PYTHON may name any Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Test files run side by side in so many processes.
TEST_WORKERS ?= 2
PROPHET_VERSION := 1.5.0
PROPHET_DIR := .cache/prophet-$(PROPHET_VERSION)
ARVIZ1_DIR := .cache/arviz-1

.PHONY: demo test test-arviz1 test-oldest test-newest lint types docs wheel smoke bench clean

demo: $(VENV)/.installed
	$(BIN)/nadpvi demo --output nadpvi-demo --force

test: $(VENV)/.installed-test $(PROPHET_DIR)/.done
	NADPVI_PROPHET_DIR=$(CURDIR)/$(PROPHET_DIR) $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile

# The other major version of ArviZ, in front of the one that pip chose, for the tests that touch ArviZ.
test-arviz1: $(VENV)/.installed-test $(ARVIZ1_DIR)/.done
	PYTHONPATH=$(CURDIR)/$(ARVIZ1_DIR) NADPVI_TEST_ARVIZ_MAJOR=1 $(BIN)/python -m pytest \
		-m "arviz or smoke" $$(grep -lE 'mark\.(arviz|smoke)' tests/test_*.py)

# The smoke part with the oldest versions that pyproject.toml allows; needs Python 3.11, which they all know.
test-oldest:
	rm -rf .venv-oldest
	$(PYTHON) -m venv .venv-oldest
	$(PYTHON) .ci/oldest.py > .venv-oldest/constraints.txt
	.venv-oldest/bin/pip install --quiet --editable . --constraint .venv-oldest/constraints.txt pytest hypothesis
	cd tests && ../.venv-oldest/bin/python -m pytest -c smoke.ini --rootdir . -W default \
		-m "arviz or smoke" test_cli.py test_arviz.py test_posterior.py test_cases_saved.py

# All tests with the newest versions that pyproject.toml allows, in an environment made for that: `make test`
# keeps what .venv has.
test-newest:
	rm -rf .venv-newest
	$(PYTHON) -m venv .venv-newest
	.venv-newest/bin/pip install --quiet --upgrade --upgrade-strategy eager --editable '.[test]'
	.venv-newest/bin/python -m pytest -n $(TEST_WORKERS) --dist loadfile

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

# Into build/docs; a warning is an error. Nothing is downloaded.
docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx -W --keep-going -n -q -c docs -d build/doctrees . build/docs

wheel: $(VENV)/.installed-dev
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python .ci/contents.py dist

# The tests' smoke part against the built wheel in an environment that has never seen the checkout.
smoke: wheel
	rm -rf .venv-smoke
	$(PYTHON) -m venv .venv-smoke
	.venv-smoke/bin/pip install --quiet dist/*.whl pytest hypothesis
	cd tests && ../.venv-smoke/bin/python -m pytest -c smoke.ini --rootdir . -m smoke

bench: $(VENV)/.installed-test
	$(BIN)/python benchmarks/speed.py

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("nadpvi needs Python 3.11 or newer; set PYTHON=...") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

# Editable, so that the installed package is this checkout.
$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/.installed-test: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable '.[test]'
	touch $@ $(VENV)/.installed

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable '.[test,dev]'
	touch $@ $(VENV)/.installed $(VENV)/.installed-test

$(VENV)/.installed-docs: pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip install --quiet --editable '.[docs]'
	touch $@ $(VENV)/.installed

# Prophet's wheel carries a genuine CmdStan executable and stanc; nothing of prophet itself is imported. A
# platform without that wheel goes on without: the tests that need it then say so and are skipped.
$(PROPHET_DIR)/.done: | $(VENV)/bin/python
	mkdir -p $(PROPHET_DIR)
	$(BIN)/pip install --quiet --no-deps --only-binary :all: --target $(PROPHET_DIR) prophet==$(PROPHET_VERSION) \
		|| echo "prophet $(PROPHET_VERSION) is not available here; its tests will be skipped"
	touch $@

# Its packages declare Python 3.12 and run on 3.11. All else that they need, nadpvi needs too.
$(ARVIZ1_DIR)/.done: | $(VENV)/bin/python
	rm -rf $(ARVIZ1_DIR)
	$(BIN)/pip install --quiet --ignore-requires-python --no-deps --target $(ARVIZ1_DIR) \
		'arviz==1.*' arviz-base arviz-stats arviz-plots xarray-einstats lazy_loader
	touch $@

clean:
	rm -rf $(VENV) .venv-smoke .venv-oldest .venv-newest .cache build dist docs/generated nadpvi-demo
