"""Every setting of Kafka Streams 4.3.0 has an effect, or a warning says that it has none."""

from __future__ import annotations

import ast
import logging
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    ConfigException,
    Materialized,
    Serdes,
    State,
    Streams,
    StreamsBuilder,
    StreamsConfig,
)
from penstock.clients.admin.client import AdminClient
from penstock.clients.admin.types import NewTopic
from penstock.log import Log, open_log, scheme_of
from penstock.properties import PROPERTY_OF
from penstock.setting_effects import (
    CONNECTION_SETTINGS,
    LIST_SERDE_SETTINGS,
    NO_EFFECT,
    OTHER_SETTINGS,
)

SOURCES = Path(__file__).resolve().parents[3] / "src" / "penstock"
#: `StreamsConfig.configDef().names()`; a test with a broker compares it with the jar.
SETTINGS = Path(__file__).with_name("kafka_streams_settings.txt").read_text().split()
#: Deprecated names of fields.
DEPRECATED = {
    "cache.max.bytes.buffering", "default.deserialization.exception.handler", "default.dsl.store",
    "default.production.exception.handler",
}
FIELDS = {
    PROPERTY_OF.get(field.name, field.name.replace("_", ".")): field.name
    for field in fields(StreamsConfig) if field.name not in {"extra", "log"}
}


def config(**properties: Any) -> StreamsConfig:
    given = {name.replace("__", "."): value for name, value in properties.items()}
    return StreamsConfig.from_properties({"application.id": "app", **given})


@pytest.mark.parametrize("name", SETTINGS)
def test_setting_of_kafka_streams_is_known(name: str) -> None:
    effective = {*FIELDS, *DEPRECATED, *OTHER_SETTINGS, *CONNECTION_SETTINGS, *LIST_SERDE_SETTINGS}
    assert name in effective or name in NO_EFFECT


def test_settings_are_in_one_table_only() -> None:
    tables: list[set[str]] = [
        set(OTHER_SETTINGS), set(CONNECTION_SETTINGS), set(LIST_SERDE_SETTINGS), set(NO_EFFECT),
    ]
    assert sum(map(len, tables)) == len(set().union(*tables))
    assert set(NO_EFFECT) <= set(SETTINGS)


def test_fields_are_read_unless_they_have_no_effect() -> None:
    read = {
        node.attr
        for path in SOURCES.rglob("*.py") if path.name not in {"properties.py"}
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }
    unread = {name for name, field in FIELDS.items() if field not in read}
    assert unread <= set(NO_EFFECT)


def test_settings_without_effect_are_reported_with_the_reason() -> None:
    assert config(group__protocol="streams").warnings() == [
        "The setting group.protocol has no effect: instances compete for a lease, and Spark "
        "assigns the tasks."
    ]
    for name in NO_EFFECT:
        value = {"application.server": "host:9"}.get(name, "9")
        (line,) = config(**{name: value}).warnings()
        assert line.startswith(f"The setting {name} has no effect: ")


def test_settings_without_effect_are_documented() -> None:
    page = (SOURCES.parents[1] / "docs" / "compatibility.md").read_text()
    assert [name for name in NO_EFFECT if f"`{name}`" not in page] == []


def test_defaults_of_kafka_streams_are_not_reported() -> None:
    assert StreamsConfig(application_id="app").warnings() == []
    assert config(
        group__protocol="classic", rack__aware__assignment__strategy="none",
        metrics__recording__level="INFO", poll__ms="100", state__cleanup__delay__ms="600000",
        task__assignor__class="",
    ).warnings() == []


def test_client_settings_are_reported_unless_they_have_an_effect() -> None:
    assert config(
        consumer__session__timeout__ms="9000", main__consumer__auto__offset__reset="latest",
        topic__retention__ms="1", spark__ui__enabled="false", my__own__setting="x",
    ).warnings() == []
    lines = config(producer__linger__ms="5", client__tag__zone="a").warnings()
    assert [line.split(":")[0] for line in lines] == [
        "The setting client.tag.zone has no effect", "The setting producer.linger.ms has no effect",
    ]


def test_warnings_are_logged_at_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    builder = StreamsBuilder()
    text = Serdes.string()
    builder.stream("in", key=text, value=text).to("out", key=text, value=text)
    with open_log(tmp_path / "log.db") as log:
        log.create_topic("in")
        log.create_topic("out")
    settings = config(metric__reporters="com.example.Reporter", log=str(tmp_path / "log.db"),
                      state__dir=str(tmp_path / "state"))
    with (
        caplog.at_level(logging.WARNING, "penstock.app"),
        Streams(builder.build(), settings, master="inline") as streams,
    ):
        streams.run_until_caught_up(60)
        assert streams.state is State.RUNNING
    assert [record.getMessage() for record in caplog.records if record.name == "penstock.app"] == [
        "The setting metric.reporters has no effect: read the metrics with Streams.metrics()."
    ]


def warned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, log_config: dict[str, str] | None = None,
    **properties: Any,
) -> list[str]:
    """The warnings at the start of an application on the embedded log."""
    text = Serdes.string()
    builder = StreamsBuilder()
    builder.stream("in", key=text, value=text).group_by_key().count(
        store=Materialized("n", log_config=log_config or {})
    )
    with open_log(tmp_path / "log.db") as log:
        log.create_topic("in")
    settings = config(
        log=str(tmp_path / "log.db"), state__dir=str(tmp_path / "state"), **properties
    )
    with (
        caplog.at_level(logging.WARNING, "penstock.app"),
        Streams(builder.build(), settings, master="inline") as streams,
    ):
        streams.run_until_caught_up(60)
    return [record.getMessage() for record in caplog.records if record.name == "penstock.app"]


def test_settings_that_the_embedded_log_ignores_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert warned(
        tmp_path, caplog, {"min.insync.replicas": "2", "retention.ms": "5"},
        replication__factor="3", topic__segment__bytes="1000000", topic__retention__ms="-1",
        request__timeout__ms="40000", security__protocol="SSL", bootstrap__servers="host:9092",
    ) == [
        "The setting bootstrap.servers has no effect: the embedded log is a file and has no "
        "connections.",
        "The setting replication.factor has no effect: the embedded log is one file without "
        "replicas.",
        "The setting request.timeout.ms has no effect: the embedded log is a file and has no "
        "connections.",
        "The setting security.protocol has no effect: the embedded log is a file and has no "
        "connections.",
        "The setting topic.segment.bytes has no effect: the embedded log has no segments, "
        "replicas or compression.",
        "The setting min.insync.replicas of the changelog of store 'n' has no effect: the "
        "embedded log has no segments, replicas or compression.",
    ]


def test_one_replica_is_not_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert warned(tmp_path, caplog, replication__factor="1") == []


def test_settings_of_kafka_topics_are_not_reported() -> None:
    given = {"replication.factor": 3, "topic.segment.bytes": "1", "security.protocol": "SSL"}
    assert list(scheme_of("kafka://host:9092").ignored_settings(given)) == []


# ---- settings that have an effect --------------------------------------------------------------


def test_connection_settings_get_the_names_of_librdkafka() -> None:
    assert config(
        request__timeout__ms="40000", receive__buffer__bytes="-1", retry__backoff__ms="100",
        enable__metrics__push="false", security__protocol="SSL",
    ).connection_settings() == {
        "socket.timeout.ms": "40000", "socket.receive.buffer.bytes": 0, "retry.backoff.ms": "100",
        "enable.metrics.push": "false", "security.protocol": "SSL",
    }


def test_default_list_serde_is_made_of_its_inner_serde() -> None:
    java = "org.apache.kafka.common.serialization.Serdes"
    settings = config(
        default__value__serde=f"{java}$ListSerde", default__key__serde=f"{java}$StringSerde",
        default__list__value__serde__inner=f"{java}$IntegerSerde",
        default__list__value__serde__type="java.util.ArrayList",
    )
    serde: Any = settings.default_value_serde
    assert serde.deserialize(serde.serialize([1, None, 3])) == [1, None, 3]
    assert serde.serialize([7]) == Serdes.list(Serdes.integer()).serialize([7])
    with pytest.raises(ConfigException, match=r"default.list.key.serde.inner is not set"):
        config(default__key__serde=f"{java}$ListSerde")


@pytest.fixture
def factors(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Topic -> the replication factor with which the embedded log was asked to create it."""
    from penstock.log.embedded.log import EmbeddedLog

    asked: dict[str, int] = {}
    create = EmbeddedLog.create_topic

    def create_topic(log: Any, name: str, *args: Any, replication_factor: int = -1) -> Any:
        asked[name] = replication_factor
        return create(log, name, *args, replication_factor=replication_factor)

    monkeypatch.setattr(EmbeddedLog, "create_topic", create_topic)
    return asked


def test_internal_topics_get_the_replication_factor(
    tmp_path: Path, factors: dict[str, int]
) -> None:
    text = Serdes.string()
    builder = StreamsBuilder()
    builder.stream("in", key=text, value=text).group_by_key(key=text, value=text).count(store="n")
    log: Log
    with open_log(tmp_path / "log.db") as log:
        log.create_topic("in")
    settings = config(replication__factor="3", log=str(tmp_path / "log.db"),
                      state__dir=str(tmp_path / "state"))
    with Streams(builder.build(), settings, master="inline") as streams:
        streams.run_until_caught_up(60)
    assert factors == {"in": -1, "app-n-changelog": 3, "app-tasks": 3}


def test_admin_client_passes_the_replication_factor(
    tmp_path: Path, factors: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    with open_log(tmp_path / "log.db"):
        pass
    with AdminClient({"log": str(tmp_path / "log.db")}) as admin:
        admin.create_topics([NewTopic("orders", 1, 2)])["orders"].result()
    assert factors == {"orders": 2}
    assert caplog.messages == [
        "Topic 'orders': the setting replication.factor has no effect: the embedded log is one "
        "file without replicas."
    ]
