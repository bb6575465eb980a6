"""A global lock of the application's file is refused, also if a test imports the file."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import cloudpickle  # type: ignore[import-untyped]
import pytest

from penstock import Serdes, TopologyException
from penstock.testing import TopologyTestDriver

TEXT = Serdes.string()
APPLICATION = '''
import threading
from penstock import Processor, Serdes, StreamsBuilder, Topology
import helpers_of_the_application as helpers

serdes = {"key": Serdes.string(), "value": Serdes.string()}
lock = threading.Lock()

def shout(value):
    with lock:
        return value.upper()

class Locking(Processor):
    def process(self, record):
        with lock:
            self.context.forward(record)

def stream(function):
    builder = StreamsBuilder()
    builder.stream("words", **serdes).map_values(function, name="shout").to("shouts", **serdes)
    return builder.build()

def locked():
    return stream(shout)

def locked_processor():
    topology = Topology()
    topology.add_source("words", "words", key_deserializer=serdes["key"],
                        value_deserializer=serdes["value"])
    topology.add_processor("shout", Locking, "words")
    return topology

def helped():
    return stream(helpers.shout)
'''
HELPERS = '''
import threading

lock = threading.Lock()

def shout(value):
    with lock:
        return value.upper()
'''
MODULES = ("application_of_a_test", "helpers_of_the_application")


@pytest.fixture
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    for name, text in zip(MODULES, (APPLICATION, HELPERS), strict=True):
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module(MODULES[0])
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["locked", "locked_processor"])
def test_lock_of_the_file_is_refused_as_by_run(application: ModuleType, name: str) -> None:
    with pytest.raises(TopologyException) as caught:
        TopologyTestDriver(getattr(application, name)())
    message = str(caught.value)
    assert message.startswith("The step 'shout' cannot be sent to Spark's workers.")
    assert "'lock', a _thread.lock" in message
    assert "check_pickling='module'" in message
    # Later pickles are not affected.
    assert MODULES[0] not in cloudpickle.list_registry_pickle_by_value()


def test_lock_of_a_module_that_workers_import_is_accepted(application: ModuleType) -> None:
    with TopologyTestDriver(application.locked(), check_pickling="module") as driver:
        driver.create_input_topic("words", TEXT, TEXT).pipe_input("k", "tea")
        assert driver.create_output_topic("shouts", TEXT, TEXT).read_value() == "TEA"


def test_lock_of_another_module_is_accepted_because_workers_import_it(
    application: ModuleType,
) -> None:
    with TopologyTestDriver(application.helped()) as driver:
        driver.create_input_topic("words", TEXT, TEXT).pipe_input("k", "tea")
        assert driver.create_output_topic("shouts", TEXT, TEXT).read_value() == "TEA"
