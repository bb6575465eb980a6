# One door for every habit. `make install` needs the network once; after that it is skipped, or
# works offline, until pyproject.toml asks for something new.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: install demo test check bench faults clean conformance-spark

install: .venv/installed

# Needs the network only for packages that are missing: pip builds those in isolation, and penstock
# itself with the setuptools of the .venv.
.venv/installed: pyproject.toml setup.py $(wildcard src/penstock/native/*.[ch])
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet 'setuptools>=77'
	$(BIN)/pip install --quiet --no-build-isolation --no-deps --editable .
	$(BIN)/pip install --quiet 'penstock[dev]'
	@$(BIN)/python -c "from penstock import native; print('penstock runs', native.in_use())"
	touch $@

demo: install
	$(BIN)/python examples/orders/demo.py

# The jars of Kafka and of Kafka Streams for Java, for the tests with a real broker.
.venv/kafka: .venv/installed src/penstock/broker/jars.py
	$(BIN)/penstock broker fetch --streams
	touch $@

test: install .venv/kafka
	$(BIN)/python -m pytest -n 2 --dist loadscope

check: install
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: install
	$(BIN)/python bench/run.py

# Many more processes killed than in the tests: the log's in a minute, the engine's in an hour, on
# Kafka in half an hour.
faults: install .venv/kafka
	$(BIN)/python tests/faults/log_kills.py --kills 200
	PYTHONPATH=tests $(BIN)/python -m faults.engine_kills --kills 210 --report docs/faults.md
	PYTHONPATH=tests $(BIN)/python -m faults.kafka_kills --kills 105 --report docs/faults-kafka.md
	$(BIN)/python -m pytest -m soak

# Every conformance case on the engine, one batch an event, with its tasks on Spark; takes an hour.
conformance-spark: install
	$(BIN)/python tests/conformance/run.py --on spark --verbose

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis dist
