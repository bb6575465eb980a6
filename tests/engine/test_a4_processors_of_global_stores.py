"""Errors of the processors of global stores: their position, and the processing handler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.harness import Application, config_of
from penstock import (
    ConfigException,
    ProcessingFailedException,
    Processor,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Topology,
)
from penstock.testing import TopologyTestDriver

TEXT = Serdes.string()
TOPICS = {"in": 1, "rates": 1, "out": 1, "dead": 1}
ENABLED = {
    "processing_exception_handler": "continue",
    "processing_exception_handler_global_enabled": True,
}


class Inverse(Processor[str, str]):
    """Stores 100 divided by the value."""

    def process(self, record: Record[str, str]) -> None:
        inverse = 100 // int(record.value)
        self.context.get_state_store("inverses").put(record.key, str(inverse))


class LookUp(Processor[str, str]):
    """Forwards the row whose key is the value."""

    def process(self, record: Record[str, str]) -> None:
        row = self.context.get_state_store("inverses").get(record.value)
        self.context.forward(record.with_value(str(row)))


def topology() -> Topology:
    builder = StreamsBuilder()
    store = Stores.key_value_store_builder(
        Stores.persistent_key_value_store("inverses"), TEXT, TEXT
    )
    builder.add_global_store(store, "rates", Inverse, key=TEXT, value=TEXT)
    builder.stream("in").process(LookUp).to("out")
    return builder.build()


def run(app: Application) -> list[str]:
    app.send("rates", ("a", "5", 1), ("b", "0", 2), ("c", "4", 3))
    app.send("in", ("k", "a", 4), ("k", "b", 5), ("k", "c", 6))
    app.run()
    return [value for _, value, _ in app.texts("out")]


@pytest.mark.parametrize("handler", ["fail", "continue"])
def test_error_stops_the_batch_whatever_the_handler_says(tmp_path: Path, handler: str) -> None:
    config = config_of(processing_exception_handler=handler)
    with Application(topology(), tmp_path, TOPICS, config=config) as app:
        with pytest.raises(ProcessingFailedException) as raised:
            run(app)
        error = raised.value
        assert isinstance(error.__cause__, ZeroDivisionError)
        assert (error.topic, error.partition, error.offset) == ("rates", 0, 1)
        assert error.processor is not None
        assert error.store == "inverses"
        for part in (
            "global topic rates, partition 0, offset 1", "ZeroDivisionError", "Store: inverses",
            f"processor: {error.processor}", "processing.exception.handler.global.enabled=true",
        ):
            assert part in str(error)


def test_handler_decides_if_it_is_enabled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of(**ENABLED, errors_dead_letter_queue_topic_name="dead")
    with Application(topology(), tmp_path, TOPICS, config=config) as app:
        assert run(app) == ["20", "None", "25"]
        assert sum(outcome.global_dropped for outcome in app.outcomes) == 1
        assert app.rows("dead") == []
    assert "not written to the dead letter queue 'dead'" in caplog.text


def test_enabled_handler_that_fails_advises_to_continue(tmp_path: Path) -> None:
    config = config_of(processing_exception_handler_global_enabled=True)
    with Application(topology(), tmp_path, TOPICS, config=config) as app:
        with pytest.raises(ProcessingFailedException, match="handler=continue"):
            run(app)
        # The advice helps.
        app.config = app.config.with_(**ENABLED)
        app.crash()
        app.run()
        assert [value for _, value, _ in app.texts("out")] == ["20", "None", "25"]


def pipe(driver: TopologyTestDriver) -> None:
    rates = driver.create_input_topic("rates", TEXT, TEXT)
    for value in ("5", "0"):
        rates.pipe_input("a", value)


def test_test_driver_raises_the_error_itself_with_a_note() -> None:
    with TopologyTestDriver(topology(), config_of()) as driver:
        with pytest.raises(ZeroDivisionError) as raised:
            pipe(driver)
        (note,) = raised.value.__notes__
        assert "global topic rates, partition 0, offset 1" in note


def test_test_driver_asks_the_enabled_handler() -> None:
    with TopologyTestDriver(topology(), config_of(**ENABLED)) as driver:
        pipe(driver)
        assert driver.get_key_value_store("inverses").get("a") == "20"
        assert driver.metrics()["dropped-records-total"] == 1
    config = config_of(processing_exception_handler_global_enabled=True)
    with (
        TopologyTestDriver(topology(), config) as driver,
        pytest.raises(ProcessingFailedException, match="ZeroDivisionError"),
    ):
        pipe(driver)


@pytest.mark.parametrize(("value", "parsed"), [("true", True), ("false", False), (None, False)])
def test_property_has_kafkas_name_and_default(value: str | None, parsed: bool) -> None:
    name = "processing.exception.handler.global.enabled"
    properties: dict[str, Any] = {"application.id": "a"} | ({name: value} if value else {})
    config = StreamsConfig.from_properties(properties)
    assert config.processing_exception_handler_global_enabled is parsed
    assert config.app_configs()[name] is parsed
    with pytest.raises(ConfigException, match="true or false"):
        StreamsConfig.from_properties({"application.id": "a", name: "1"})
    with pytest.raises(ConfigException, match="must be True or False, not 1"):
        config.with_(processing_exception_handler_global_enabled=1)
