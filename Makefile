# Two commands set everything up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint pytest gpu clean

demo: $(VENV)/ready
	$(BIN)/online-softmax demo

test: $(VENV)/ready lint pytest

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

pytest: $(VENV)/ready
	$(BIN)/python -m pytest -q

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --group test --group lint --editable ".[cli,workshop]"
	touch $@

clean:
	rm -rf $(VENV) build dist
