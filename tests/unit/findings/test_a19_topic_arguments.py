"""The test driver refuses invalid arguments of test topics."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock import Serdes, StreamsBuilder
from penstock.testing import TopologyTestDriver

TEXT = Serdes.string()


@pytest.fixture
def driver() -> Any:
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).to("out", key=TEXT, value=TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        yield driver


@pytest.mark.parametrize("advance", [-1, timedelta(milliseconds=-1), timedelta(days=-1)])
def test_negative_auto_advance_is_refused(driver: Any, advance: Any) -> None:
    with pytest.raises(ValueError, match="auto_advance must not be negative"):
        driver.create_input_topic("in", TEXT, TEXT, auto_advance=advance)


@pytest.mark.parametrize("name", [None, "", 1])
def test_invalid_topic_names_are_refused(driver: Any, name: Any) -> None:
    for create in (driver.create_input_topic, driver.create_output_topic):
        with pytest.raises(TypeError, match="name of a topic must be a non-empty str"):
            create(name, TEXT, TEXT)
