# Everything runs from a virtual environment that make itself creates and fills.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-fast check pictures clean

demo: .venv/ready
	$(BIN)/attendo demo

test: .venv/ready
	$(BIN)/pytest -q

test-fast: .venv/ready
	$(BIN)/pytest -q -m "not slow"

check: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

pictures: demo  # those of README and docs; needs chromium and chromium-driver
	PYTHONPATH=src $(BIN)/python bench/pictures.py runs/demo --out docs/pictures

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build
