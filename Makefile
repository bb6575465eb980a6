# One door for every habit. `make install` needs the network once; after that it is skipped, or
# works offline, until pyproject.toml asks for something new.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: install demo test check bench faults clean

install: .venv/installed

.venv/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet 'hatchling>=1.26' 'editables>=0.5'
	$(BIN)/pip install --quiet --no-build-isolation --editable '.[dev]'
	touch $@

demo: install
	$(BIN)/python examples/orders/demo.py

test: install
	$(BIN)/python -m pytest

check: install
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: install
	$(BIN)/python bench/run.py

# Many more processes killed than in the tests; takes some minutes.
faults: install
	$(BIN)/python tests/faults/log_kills.py --kills 200

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
