from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.clients.setting_names import ALIASES, EFFECTIVE, WITHOUT_EFFECT
from penstock.config import ALL_OPTIMIZATIONS, StreamsConfig
from penstock.errors import ConfigException
from penstock.handlers import (
    LogAndContinueExceptionHandler,
    LogAndFailExceptionHandler,
    LogAndFailProcessingExceptionHandler,
)
from penstock.properties import parse_properties
from penstock.serdes.builtin import Serdes
from penstock.timestamps import LogAndSkipOnInvalidTimestamp


def config(**settings: Any) -> StreamsConfig:
    return StreamsConfig(application_id="app", **settings)


def test_defaults() -> None:
    made = config()
    assert made.processing_guarantee == "exactly_once"
    assert made.commit_interval == 100
    assert made.statestore_cache_max_bytes == 10485760
    assert made.topology_optimization == frozenset()
    assert isinstance(made.deserialization_handler(), LogAndFailExceptionHandler)
    assert isinstance(made.processing_handler(), LogAndFailProcessingExceptionHandler)


def test_durations_may_be_timedeltas() -> None:
    assert config(commit_interval_ms=timedelta(seconds=2)).commit_interval == 2000
    assert config(max_task_idle_ms=-1).max_task_idle_ms == -1


@pytest.mark.parametrize(("settings", "says"), [
    ({"application_id": ""}, "application_id"),
    ({"application_id": "a b"}, "topic names"),
    ({"application_id": ".."}, "topic names"),
    ({"processing_guarantee": "twice"}, "exactly_once, at_least_once"),
    ({"commit_interval_ms": -1}, "at least 0"),
    ({"commit_interval_ms": 1.5}, "timedelta"),
    ({"max_task_idle_ms": None}, "max_task_idle_ms"),
    ({"num_stream_threads": 0}, "at least 1"),
    ({"num_stream_threads": True}, "integer"),
    ({"statestore_cache_max_bytes": "10"}, "integer"),
    ({"topology_optimization": "some"}, "'all', 'none'"),
    ({"topology_optimization": "all,merge.repartition.topics"}, "'all', 'none'"),
    ({"dsl_store_format": "odd"}, "DEFAULT, HEADERS"),
    ({"dsl_store_suppliers": "odd"}, "in_memory"),
    ({"default_key_serde": str}, "must be a serde"),
    ({"default_timestamp_extractor": "odd"}, "There are: "),
    ({"deserialization_exception_handler": "odd"}, "'odd'.*There are: fail, continue"),
    ({"production_exception_handler": 5}, "not int"),
    ({"errors_dead_letter_queue_topic_name": "a/b"}, "topic names"),
    ({"application_server": "here"}, "host:port"),
])
def test_settings_are_checked_when_made(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigException, match=says):
        StreamsConfig(**({"application_id": "app"} | settings))


def test_optimizations_are_a_set() -> None:
    assert config(topology_optimization="all").topology_optimization == ALL_OPTIMIZATIONS
    assert config(topology_optimization="none").topology_optimization == frozenset()
    listed = config(topology_optimization="merge.repartition.topics , single.store.self.join")
    assert listed.topology_optimization == {"merge.repartition.topics", "single.store.self.join"}


def test_other_settings_make_another_configuration() -> None:
    made = config(topology_optimization="all", extra={"mine": 1})
    other = made.with_(processing_guarantee="at_least_once")
    assert (made.commit_interval, other.commit_interval) == (100, 30_000)
    assert replace(other, processing_guarantee="exactly_once") == made
    assert other.topology_optimization == ALL_OPTIMIZATIONS
    assert pickle.loads(pickle.dumps(made)) == made


def test_kafkas_properties() -> None:
    made = StreamsConfig.from_properties({
        "application.id": "orders",
        "bootstrap.servers": "a:9092,b:9092",
        "processing.guarantee": "exactly_once_v2",
        "statestore.cache.max.bytes": "0",
        "cache.max.bytes.buffering": "77",
        "commit.interval.ms": "250",
        "topology.optimization": "all",
        "ensure.explicit.internal.resource.naming": "true",
        "default.key.serde": "org.apache.kafka.common.serialization.Serdes$StringSerde",
        "default.value.serde": Serdes.long(),
        "default.timestamp.extractor":
            "org.apache.kafka.streams.processor.LogAndSkipOnInvalidTimestamp",
        "deserialization.exception.handler":
            "org.apache.kafka.streams.errors.LogAndContinueExceptionHandler",
        "dsl.store.suppliers.class":
            "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$InMemoryDslStoreSuppliers",
        "dsl.store.format": "headers",
        "errors.dead.letter.queue.topic.name": "dead",
        "consumer.max.poll.records": "5",
        "my.own": "setting",
    }, num_stream_threads=3)
    assert made.log == "kafka://a:9092,b:9092"
    assert made.processing_guarantee == "exactly_once"
    assert made.statestore_cache_max_bytes == 0
    assert made.commit_interval_ms == 250
    assert made.topology_optimization == ALL_OPTIMIZATIONS
    assert made.ensure_explicit_internal_resource_naming is True
    assert made.default_key_serde is Serdes.string()
    assert made.default_value_serde is Serdes.long()
    assert isinstance(made.timestamp_extractor(), LogAndSkipOnInvalidTimestamp)
    assert made.deserialization_handler() == LogAndContinueExceptionHandler("dead")
    assert made.dsl_store_suppliers == "in_memory"
    assert made.dsl_store_format == "HEADERS"
    assert made.num_stream_threads == 3
    assert made.app_configs()["my.own"] == "setting"
    assert made.app_configs()["application.id"] == "orders"
    assert made.app_configs()["dsl.store.suppliers.class"] == "in_memory"
    assert made.app_configs_with_prefix("consumer.") == {"max.poll.records": "5"}


@pytest.mark.parametrize(("properties", "says"), [
    ({}, "no application.id"),
    ({"application.id": "a", "num.stream.threads": "x"}, "num.stream.threads must be an integer"),
    ({"application.id": "a", "ensure.explicit.internal.resource.naming": "x"}, "true or false"),
    ({"application.id": "a", "default.key.serde": "com.acme.Mine"}, "names no serde"),
])
def test_properties_that_cannot_be_read(properties: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigException, match=says):
        StreamsConfig.from_properties(properties)


@pytest.mark.parametrize(("written", "meant"), [
    ("comit.interval.ms", "commit.interval.ms"),
    ("comit_interval_ms", "commit.interval.ms"),
    ("commit.interval", "commit.interval.ms"),
    ("Commit.Interval.Ms", "commit.interval.ms"),
    ("processing.exeption.handler", "processing.exception.handler"),
    ("processor.wraper.class", "processor.wrapper.class"),
    ("sesion.timeout.ms", "session.timeout.ms"),
    ("penstock.batch.max.record", "penstock.batch.max.records"),
])
def test_a_slip_in_a_name_is_refused_with_the_right_one(written: str, meant: str) -> None:
    with pytest.raises(ConfigException, match=f"no setting '{written}'. Did you mean '{meant}'"):
        StreamsConfig.from_properties({"application.id": "a", written: "1"})


def test_what_clients_and_user_code_are_told_is_no_slip() -> None:
    names = {
        *EFFECTIVE, *WITHOUT_EFFECT, *ALIASES, "consumer.sesion.timeout.ms", "topic.retention.ms",
        "my.client.id", "client.id.of.mine", "processing.exception.handler.global.enabled",
        "max.warmup.replicas", "probing.rebalance.interval.ms", "state.cleanup.dir.max.age.ms",
        "window.size", "spark.executor.memory", "log.create",
    }
    given = dict.fromkeys(names - {"bootstrap.servers", "client.id", "log"}, "1")
    assert StreamsConfig.from_properties({"application.id": "a", **given}).extra == given


def test_a_properties_file(tmp_path: Path) -> None:
    path = tmp_path / "streams.properties"
    path.write_text("# mine\napplication.id = orders\nmax.task.idle.ms:-1\n")
    made = StreamsConfig.from_properties(path)
    assert (made.application_id, made.max_task_idle_ms) == ("orders", -1)
    with pytest.raises(ConfigException, match="cannot be read"):
        StreamsConfig.from_properties(tmp_path / "none")


def test_the_properties_format_is_javas() -> None:
    text = (
        "! comment\n  a = 1\nb:2\nc 3\nd\\ e\\=f = g\\tx\\u00e9\n"
        "list = one,\\\n    two\\\\\nempty\nlast = # no comment \r\n"
    )
    assert parse_properties(text) == {
        "a": "1", "b": "2", "c": "3", "d e=f": "g\txé", "list": "one,two\\", "empty": "",
        "last": "# no comment ",
    }


def test_connection_settings_are_those_that_every_client_needs() -> None:
    extra = {"security.protocol": "SASL_SSL", "sasl.username": "me", "batch.size": "1"}
    on_kafka = StreamsConfig(application_id="app", log="kafka://host:9092", extra=extra)
    assert on_kafka.connection_settings() == {
        "security.protocol": "SASL_SSL", "sasl.username": "me",
    }
