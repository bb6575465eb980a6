# `make install` needs the network once. Later runs are skipped, or work offline, until pyproject.toml
# requires something new.
PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: install demo docs test test-rest test-pure test-exhaustive test-all ci wheels check lint-deploy bench faults asan \
	clean conformance conformance-spark

install: .venv/installed

# Needs the network only for packages that are missing: pip builds those in isolation, and penstock
# itself with the setuptools of the .venv.
.venv/installed: pyproject.toml setup.py $(wildcard src/penstock/native/*.[ch] src/penstock/native/*/*.[ch])
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

# A schema registry, for tests/kafka/test_schema_registry.py.
.venv/registry: .venv/installed tests/kafka/apicurio.py
	$(BIN)/python tests/kafka/apicurio.py
	touch $@

# The class archive of Spark's JVM: the tests start it about a hundred times.
.venv/prepared: .venv/installed
	$(BIN)/penstock prepare
	touch $@

# Debian's Chromium, for tests/web.
.venv/browser: .venv/installed tests/web/chromium.py
	$(BIN)/python tests/web/chromium.py
	touch $@

# Debian's PostgreSQL, for tests/examples/test_table_replication.py.
.venv/postgresql: .venv/installed tests/examples/postgresql.py
	$(BIN)/python tests/examples/postgresql.py
	touch $@

# Test tiers: every test is in `test`, `test-rest` or `test-exhaustive`, or a soak test of
# `make faults`, see tests/conftest.py.
PROCESSES = 2
PYTEST = $(BIN)/python -m pytest -n $(PROCESSES) --dist loadscope --durations 25 --timeout $(TIMEOUT)
# Seconds after which a test has failed: it hangs, the others end far sooner.
TIMEOUT := 600

# The tests that have failed, once more and alone: some of them measure timeouts of real processes. The
# first failures stay in the output.
AGAIN = $(BIN)/python -m pytest --last-failed --last-failed-no-failures none --timeout $(TIMEOUT)

# Minutes: unit, property and house tests, a sample of the conformance cases, a smoke set on Spark
# and on a Kafka broker.
test: install .venv/kafka
	$(PYTEST) -m "not full and not exhaustive and not soak"

# Everything else on Spark and Kafka, all conformance cases on the test driver, all crash tests.
# Three processes on two cores: many of these tests wait for timeouts.
test-rest: PROCESSES = 3
test-rest: install .venv/kafka .venv/registry .venv/browser .venv/postgresql .venv/prepared test-pure
	$(PYTEST) -m "full and not exhaustive and not soak" || $(AGAIN)

# All other conformance cases on the engine, in both execution modes, and slow tests of batch mode: the
# comparison with Kafka Streams for Java, and kills of workers and executors.
test-exhaustive: install .venv/kafka .venv/prepared
	$(PYTEST) -m "exhaustive and not soak"

# Without the native core.
test-pure: install
	PENSTOCK_PURE_PYTHON=1 $(PYTEST) -m "not exhaustive and not soak" tests/unit \
		tests/conformance/test_conformance.py

# What continuous integration runs.
ci: check test test-rest wheels

test-all: ci test-exhaustive

# A wheel for every supported Python, and the quick tests with each of them; a few minutes.
wheels: install
	$(BIN)/python tests/packaging/wheels.py

check: install
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Dockerfiles, manifests and workflows with linters and schemas, which are downloaded (170 MB).
lint-deploy: install
	$(BIN)/python tests/deploy/lint.py

# The documentation with the API reference as a site, in build/site. Works offline. The variable
# suppresses Material's notice about its end of life, see docs/decisions/2026-11-17-reference.md.
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Open build/site/index.html"

bench: install
	$(BIN)/python bench/run.py

# Many more processes killed and files damaged than in the tests: the log's in minutes, the engine's
# in about an hour for each execution mode and log. tests/faults/campaign.py says how to resume them.
faults: install .venv/kafka asan
	$(BIN)/python tests/faults/log_kills.py --kills 200
	$(BIN)/python tests/faults/query_failover.py --kills 20 --report docs/faults-queries.md
	$(BIN)/python tests/faults/log_damage.py --flips 2000 --areas 400
	PYTHONPATH=tests $(BIN)/python -m faults.engine_kills --kills 210 --report docs/faults.md
	PYTHONPATH=tests $(BIN)/python -m faults.engine_kills --kills 210 --execution continuous \
		--report docs/faults-continuous.md
	PYTHONPATH=tests $(BIN)/python -m faults.kafka_kills --kills 105 --report docs/faults-kafka.md
	PYTHONPATH=tests $(BIN)/python -m faults.kafka_kills --kills 204 --execution continuous \
		--report docs/faults-kafka-continuous.md
	$(BIN)/python -m pytest -m soak

# The tests of the native core with AddressSanitizer and UndefinedBehaviorSanitizer; about 2 minutes.
ASAN := build/asan
asan: install
	rm -rf $(ASAN)
	PENSTOCK_STRICT_BUILD=1 PENSTOCK_SANITIZE=address,undefined \
		$(BIN)/python setup.py --quiet build --build-base $(ASAN) --build-lib $(ASAN)/lib
	LD_PRELOAD=$$($(CC) -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 \
		PYTHONMALLOC=malloc PYTHONPATH=$(ASAN)/lib \
		$(PYTEST) -m "not soak" tests/unit/native tests/unit/stores tests/unit/task \
		tests/unit/processors tests/unit/joins tests/conformance/test_conformance.py

# Every conformance case on the test driver.
conformance: install
	$(BIN)/python tests/conformance/run.py --verbose

# Every conformance case on the engine with its tasks on Spark, one batch for each event; an hour.
conformance-spark: install
	$(BIN)/python tests/conformance/run.py --on spark --verbose

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
