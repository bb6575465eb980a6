"""A missing serde is reported before the first batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Processor,
    Serdes,
    Stores,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    Topology,
    TopologyConfig,
)
from penstock.errors import StreamsException
from penstock.testing import TopologyTestDriver

CONFIG = StreamsConfig(application_id="app")
MESSAGE = (
    r"serdes for sink node out: There is no value serde and no default value serde\. "
    r"The type of the result of the mapper of step 'either', the lambda, is unknown.*"
    r"Give a type or a serde, for example str: to\('out', value=str\), or set default_value_serde"
)


def builder(config: StreamsConfig | TopologyConfig | None = None) -> StreamsBuilder:
    builder = StreamsBuilder(config)
    lines = builder.stream("lines", key=str, value=str)
    lines.map_values(lambda line: line or 1, name="either").to("out", name="out")
    return builder


def test_build_with_a_configuration_reports_it() -> None:
    with pytest.raises(StreamsException, match=MESSAGE):
        builder().build(CONFIG)
    with pytest.raises(StreamsException, match=MESSAGE):
        builder(CONFIG).build()


def test_build_with_default_serdes_succeeds() -> None:
    assert builder().build(CONFIG.with_(default_value_serde=Serdes.json()))


def test_a_topology_config_is_not_the_configuration_of_the_application() -> None:
    assert builder(TopologyConfig(CONFIG)).build()


def test_the_test_driver_reports_it() -> None:
    with pytest.raises(StreamsException, match=MESSAGE):
        TopologyTestDriver(builder().build())


def test_streams_reports_it_before_the_start(tmp_path: Path) -> None:
    config = CONFIG.with_(log=str(tmp_path / "log.db"))
    with pytest.raises(StreamsException, match=MESSAGE):
        Streams(builder().build(), config, master="inline")
    assert list(tmp_path.iterdir()) == []


class Ignore(Processor[Any, Any]):
    def process(self, record: Any) -> None:
        pass


@pytest.mark.parametrize(("key", "value", "missing"), [(None, str, "key"), (str, None, "value")])
def test_a_store_of_a_processor_is_checked(key: Any, value: Any, missing: str) -> None:
    topology = Topology()
    topology.add_source("in", "in", key_deserializer=bytes.decode, value_deserializer=bytes.decode)
    topology.add_processor("ignore", Ignore, "in")
    supplier = Stores.in_memory_key_value_store("kept")
    topology.add_state_store(Stores.key_value_store_builder(supplier, key, value), "ignore")
    message = f"serdes for store kept: There is no {missing} serde"
    with pytest.raises(StreamsException, match=message):
        TopologyTestDriver(topology)


def test_a_source_of_a_global_table_is_checked() -> None:
    builder = StreamsBuilder()
    builder.global_table("names", key=str)
    with pytest.raises(StreamsException, match=r"global_table\('names', value=str\)"):
        TopologyTestDriver(builder.build())
