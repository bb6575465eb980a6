from __future__ import annotations

import inspect
import pickle
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, get_type_hints

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
    streams_config = config()
    assert streams_config.processing_guarantee == "exactly_once"
    assert streams_config.commit_interval_ms is None
    assert streams_config.statestore_cache_max_bytes == 10485760
    assert streams_config.topology_optimization == frozenset()
    assert isinstance(streams_config.deserialization_handler(), LogAndFailExceptionHandler)
    assert isinstance(streams_config.processing_handler(), LogAndFailProcessingExceptionHandler)


@pytest.mark.parametrize(("given", "settings", "message"), [
    (("app",), {}, r"by name, not 'app'\. Use StreamsConfig\(application_id='app'\)"),
    (({"application.id": "app"},), {}, r"StreamsConfig\.from_properties\("),
    ((), {"aplication_id": "app"}, "no setting 'aplication_id'. Did you mean 'application_id'"),
    ((), {"application.id": "app"}, "In Python, use application_id"),
])
def test_wrong_argument_of_the_configuration_is_explained(
    given: tuple[Any, ...], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        StreamsConfig(*given, **settings)


def test_signature_lists_the_settings() -> None:
    settings = inspect.signature(StreamsConfig).parameters
    assert list(settings) == [each.name for each in fields(StreamsConfig)]
    assert get_type_hints(StreamsConfig)["commit_interval_ms"] == int | timedelta | None


def test_durations_accept_timedeltas() -> None:
    assert config(commit_interval_ms=timedelta(seconds=2)).commit_interval_ms == 2000
    assert config(max_task_idle_ms=-1).max_task_idle_ms == -1


@pytest.mark.parametrize(("settings", "message"), [
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
    ({"default_timestamp_extractor": "odd"}, "Extractors: "),
    ({"deserialization_exception_handler": "odd"}, "'odd'.*Handlers: fail, continue"),
    ({"production_exception_handler": 5}, "not int"),
    ({"errors_dead_letter_queue_topic_name": "a/b"}, "topic names"),
    ({"application_server": "here"}, "host:port"),
])
def test_invalid_setting_raises(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigException, match=message):
        StreamsConfig(**({"application_id": "app"} | settings))


def test_optimizations_are_stored_as_a_set() -> None:
    assert config(topology_optimization="all").topology_optimization == ALL_OPTIMIZATIONS
    assert config(topology_optimization="none").topology_optimization == frozenset()
    listed = config(topology_optimization="merge.repartition.topics , single.store.self.join")
    assert listed.topology_optimization == {"merge.repartition.topics", "single.store.self.join"}


def test_with_returns_a_changed_copy() -> None:
    streams_config = config(topology_optimization="all", extra={"mine": 1})
    other = streams_config.with_(processing_guarantee="at_least_once")
    assert other.processing_guarantee == "at_least_once"
    assert replace(other, processing_guarantee="exactly_once") == streams_config
    assert other.topology_optimization == ALL_OPTIMIZATIONS
    assert pickle.loads(pickle.dumps(streams_config)) == streams_config


def test_kafka_properties_are_converted() -> None:
    streams_config = StreamsConfig.from_properties({
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
    assert streams_config.log == "kafka://a:9092,b:9092"
    assert streams_config.processing_guarantee == "exactly_once"
    assert streams_config.statestore_cache_max_bytes == 0
    assert streams_config.commit_interval_ms == 250
    assert streams_config.topology_optimization == ALL_OPTIMIZATIONS
    assert streams_config.ensure_explicit_internal_resource_naming is True
    assert streams_config.default_key_serde is Serdes.string()
    assert streams_config.default_value_serde is Serdes.long()
    assert isinstance(streams_config.timestamp_extractor(), LogAndSkipOnInvalidTimestamp)
    assert streams_config.deserialization_handler() == LogAndContinueExceptionHandler("dead")
    assert streams_config.dsl_store_suppliers == "in_memory"
    assert streams_config.dsl_store_format == "HEADERS"
    assert streams_config.num_stream_threads == 3
    assert streams_config.app_configs()["my.own"] == "setting"
    assert streams_config.app_configs()["application.id"] == "orders"
    assert streams_config.app_configs()["dsl.store.suppliers.class"] == "in_memory"
    assert streams_config.app_configs_with_prefix("consumer.") == {"max.poll.records": "5"}


@pytest.mark.parametrize(("properties", "message"), [
    ({}, "no application.id"),
    ({"application.id": "a", "num.stream.threads": "x"}, "num.stream.threads must be an integer"),
    ({"application.id": "a", "ensure.explicit.internal.resource.naming": "x"}, "true or false"),
    ({"application.id": "a", "default.key.serde": "com.acme.Mine"}, "Mine' does not exist"),
])
def test_invalid_property_raises(properties: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigException, match=message):
        StreamsConfig.from_properties(properties)


@pytest.mark.parametrize(("name", "suggestion"), [
    ("comit.interval.ms", "commit.interval.ms"),
    ("comit_interval_ms", "commit.interval.ms"),
    ("commit.interval", "commit.interval.ms"),
    ("Commit.Interval.Ms", "commit.interval.ms"),
    ("processing.exeption.handler", "processing.exception.handler"),
    ("processor.wraper.class", "processor.wrapper.class"),
    ("sesion.timeout.ms", "session.timeout.ms"),
    ("penstock.batch.max.record", "penstock.batch.max.records"),
    ("penstock.otlp.endpiont", "penstock.otlp.endpoint"),
])
def test_misspelled_name_raises_with_a_suggestion(name: str, suggestion: str) -> None:
    with pytest.raises(ConfigException, match=f"'{name}' does not exist. .* '{suggestion}'"):
        StreamsConfig.from_properties({"application.id": "a", name: "1"})


def test_settings_of_clients_and_user_code_are_accepted() -> None:
    names = {
        *EFFECTIVE, *WITHOUT_EFFECT, *ALIASES, "consumer.sesion.timeout.ms", "topic.retention.ms",
        "my.client.id", "client.id.of.mine",
        "max.warmup.replicas", "probing.rebalance.interval.ms", "state.cleanup.dir.max.age.ms",
        "window.size", "spark.executor.memory", "log.create",
    }
    given = dict.fromkeys(names - {"bootstrap.servers", "client.id", "log"}, "1")
    assert StreamsConfig.from_properties({"application.id": "a", **given}).extra == given


def test_properties_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "streams.properties"
    path.write_text("# mine\napplication.id = orders\nmax.task.idle.ms:-1\n")
    streams_config = StreamsConfig.from_properties(path)
    assert (streams_config.application_id, streams_config.max_task_idle_ms) == ("orders", -1)
    with pytest.raises(ConfigException, match="cannot be read"):
        StreamsConfig.from_properties(tmp_path / "none")


def test_properties_format_is_javas() -> None:
    text = (
        "! comment\n  a = 1\nb:2\nc 3\nd\\ e\\=f = g\\tx\\u00e9\n"
        "list = one,\\\n    two\\\\\nempty\nlast = # no comment \r\n"
    )
    assert parse_properties(text) == {
        "a": "1", "b": "2", "c": "3", "d e=f": "g\txé", "list": "one,two\\", "empty": "",
        "last": "# no comment ",
    }


def test_connection_settings_are_selected_by_prefix() -> None:
    extra = {"security.protocol": "SASL_SSL", "sasl.username": "me", "batch.size": "1"}
    on_kafka = StreamsConfig(application_id="app", log="kafka://host:9092", extra=extra)
    assert on_kafka.connection_settings() == {
        "security.protocol": "SASL_SSL", "sasl.username": "me",
    }


def test_execution_is_continuous_by_default() -> None:
    config = StreamsConfig(application_id="app")
    assert config.is_continuous
    assert not config.with_(execution="batch").is_continuous
    with pytest.raises(ConfigException, match="execution cannot be 'micro'"):
        config.with_(execution="micro")
