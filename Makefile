# Everything runs from a virtual environment that make itself creates and fills.
PYTHON ?= python3
BIN := .venv/bin
# Processes that run the tests: more than cores, since many tests wait for processes and servers.
WORKERS ?= 3
# Tests start hundreds of processes, each of which would compile the package again.
export PYTHONDONTWRITEBYTECODE :=
# Options of `attendo demo`, such as --set training.steps=100
DEMO_OPTIONS ?=

.PHONY: demo test test-fast check docs pictures clean

demo: .venv/ready
	$(BIN)/attendo demo $(DEMO_OPTIONS)

test: .venv/ready
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal

test-fast: .venv/ready
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal -m "not slow"

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/ready  # the generated references
	$(BIN)/python -m attendo.cli.manual docs

pictures: demo  # those of README and docs; needs chromium and chromium-driver
	PYTHONPATH=src $(BIN)/python benchmarks/pictures.py runs/demo --out docs/pictures

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build
