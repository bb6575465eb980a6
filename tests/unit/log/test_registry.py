"""The registry of log schemes. A third log needs one entry and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from contracts.log_records import pairs, records
from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig
from penstock.cli.main import main
from penstock.clients import Producer
from penstock.errors import ConfigException
from penstock.log import Log, open_log, scheme_of
from penstock.log.embedded.log import EmbeddedLog
from penstock.log.embedded.scheme import EMBEDDED
from penstock.log.kafka.scheme import KAFKA
from penstock.log.registry import bootstrap_address, registered, schemes
from penstock.log.scheme import LogScheme

#: The path of the file behind each name of a `test://` address.
FILES: dict[str, Path] = {}
#: The options of each open log, in order.
OPENED: list[dict[str, Any]] = []


def open_third(address: str, options: Mapping[str, Any]) -> Log:
    OPENED.append(dict(options))
    log = EmbeddedLog(str(FILES[address.removeprefix("test://")]))
    log.address = address
    return log


@pytest.fixture
def third(tmp_path: Path) -> Iterator[LogScheme]:
    FILES["orders"] = tmp_path / "third.db"
    OPENED.clear()
    scheme = LogScheme(
        name="test", title="the test log", address_form="test://NAME",
        opener=f"{__name__}:open_third",
        capabilities=replace(EMBEDDED.capabilities, takes_connection_settings=True),
    )
    with registered(scheme):
        yield scheme


def test_addresses_have_schemes() -> None:
    assert scheme_of("kafka://one:9092,two:9092") is KAFKA
    assert scheme_of("some/log.db") is scheme_of(Path("log.db")) is EMBEDDED
    assert [scheme.name for scheme in schemes()] == ["", "kafka"]


@pytest.mark.parametrize(("address", "advice"), [
    ("kakfa://host:1", "An address is a path or kafka://HOST:PORT,HOST:PORT."),
    ("kafka:host", "Did you mean kafka://host:9092?"),
    ("host:9092", "Did you mean kafka://host:9092? For a file of this name, write './host:9092'."),
])
def test_invalid_address_is_reported_with_advice(address: str, advice: str) -> None:
    with pytest.raises(ConfigException) as caught:
        scheme_of(address)
    assert str(caught.value) == f"Invalid log address '{address}'. {advice}"


def test_bootstrap_servers_are_a_kafka_address_or_an_address(third: LogScheme) -> None:
    assert bootstrap_address("one:9092") == "kafka://one:9092"
    assert bootstrap_address("kafka://one:9092") == "kafka://one:9092"
    assert bootstrap_address("SSL://one:9092") == "kafka://SSL://one:9092"
    assert bootstrap_address("test://orders") == "test://orders"


def test_embedded_log_ignores_connection_settings(path: Path) -> None:
    with open_log(path, connection={"security.protocol": "SSL"}) as log:
        assert log.capabilities is EMBEDDED.capabilities


def test_scheme_is_registered_once(third: LogScheme) -> None:
    with pytest.raises(ValueError, match="registered already"), registered(third):
        pass


def test_application_runs_on_a_third_log(third: LogScheme, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in").map_values(str.upper).to("out")
    config = StreamsConfig(
        application_id="app", log="test://orders", state_dir=str(tmp_path / "state"),
        default_key_serde=Serdes.string(), default_value_serde=Serdes.string(),
        extra={"sasl.username": "me"},
    )
    with open_log("test://orders") as log:
        log.create_topic("in")
        log.create_topic("out")
        log.append("in", 0, records((b"a", b"one"), (b"b", b"two")))
        with Streams(builder.build(), config, master="inline") as streams:
            streams.run_until_caught_up()
        assert pairs(log, "out") == [(b"a", b"ONE"), (b"b", b"TWO")]
    assert {"sasl.username": "me"} in OPENED


def test_commands_and_clients_use_a_third_log(
    third: LogScheme, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topics", "create", "orders", "--log", "test://orders"]) == 0
    with Producer({"log": "test://orders"}) as producer:
        producer.produce("orders", key=b"k", value=b"v")
        producer.flush()
    assert main(["topics", "list", "--json", "--log", "test://orders"]) == 0
    assert '"name":"orders"' in capsys.readouterr().out
    with open_log("test://orders") as log:
        assert pairs(log, "orders") == [(b"k", b"v")]
