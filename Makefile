# Two commands set everything up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint pytest gpu gpu-test gpu-bench gpu-sanitize clean

demo: $(VENV)/ready
	$(BIN)/online-softmax demo

test: $(VENV)/ready lint pytest

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Several test processes share the cores: threads of torch that wait should leave them to the others.
pytest: $(VENV)/ready
	OMP_WAIT_POLICY=passive $(BIN)/python -m pytest -q -n auto --dist loadfile --no-loadscope-reorder --durations=15

# On a machine with a GPU.  Nothing is installed: $(PYTHON) has a torch for the GPU, and what the build and tests import.
MINUTES ?= 15
HERE := PYTHONPATH=src:.:$(PYTHONPATH) $(PYTHON)

gpu: gpu-test gpu-bench

build/gpu/done: $(shell find src -name '*.cpp' -o -name '*.h' -o -name CMakeLists.txt) CMakeLists.txt
	cmake -S . -B build/gpu -G Ninja -DPython_EXECUTABLE="$$(command -v $(PYTHON))"
	cmake --build build/gpu
	touch $@

gpu-test: build/gpu/done
	$(HERE) tests/gpu/prebuild.py
	$(HERE) -m pytest -q tests/gpu

# Fails if compute-sanitizer finds an error in any kernel.
gpu-sanitize: build/gpu/done
	$(HERE) tests/gpu/sanitize.py

gpu-bench: build/gpu/done
	$(HERE) -m online_softmax bench --device cuda --minutes $(MINUTES) --json benchmarks/results

# The compiled kernels are part of the installation: it is renewed when one of their sources changes.
SOURCES := pyproject.toml CMakeLists.txt $(shell find src -name '*.cpp' -o -name '*.h' -o -name CMakeLists.txt)

# pip compiles what it installs on one core, compileall on all; a few files are for other versions of Python.
$(VENV)/ready: $(SOURCES)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile --group test --group lint --editable ".[cli,workshop]"
	$(BIN)/python -m compileall -q -j 0 $(VENV)/lib > /dev/null || true
	touch $@

clean:
	rm -rf $(VENV) build dist
