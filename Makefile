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
	$(BIN)/python -m pytest -q -n auto --dist loadgroup --durations=15

# The compiled kernels are part of the installation: it is renewed when one of their sources changes.
SOURCES := pyproject.toml CMakeLists.txt $(shell find src -name '*.cpp' -o -name '*.h' -o -name CMakeLists.txt)

$(VENV)/ready: $(SOURCES)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --group test --group lint --editable ".[cli,workshop]"
	touch $@

clean:
	rm -rf $(VENV) build dist
