from __future__ import annotations

from pathlib import Path

import pytest

from penstock.clients import AdminClient, Consumer, Producer
from penstock.clients.settings import ConfigReader, merge_config
from penstock.errors import ConfigException
from penstock.log import Log, open_log


def reader_of(**config: object) -> ConfigReader:
    return ConfigReader(merge_config(None, config), "Producer")


def test_log_and_bootstrap_servers_select_the_embedded_log(path: Path) -> None:
    for config in ({"log": path}, {"log": str(path)}, {"bootstrap.servers": f"embedded:{path}"}):
        assert ConfigReader(config, "Producer").address() == str(path)


def test_client_opens_its_own_log_for_a_log_object(log: Log) -> None:
    log.create_topic("t")
    with AdminClient({"log": log}) as admin:
        assert list(admin.list_topics().topics) == ["t"]
    assert [topic.name for topic in log.topics()] == ["t"]


def test_missing_log_raises_an_error_with_advice() -> None:
    with pytest.raises(ConfigException, match=r"has no log\. Set 'log'"):
        Producer({})


def test_bootstrap_servers_select_a_kafka_cluster() -> None:
    reader = ConfigReader({"bootstrap.servers": "one:9092,two:9092"}, "Producer")
    assert reader.address() == "kafka://one:9092,two:9092"


def test_log_options_and_connection_settings_are_separated() -> None:
    config = {
        "bootstrap.servers": "one:9092", "security.protocol": "SASL_SSL", "sasl.password": "hush",
        "compression.type": "lz4", "log.timeout.ms": "500", "linger.ms": 7, "group.id": "g",
    }
    reader = ConfigReader(config, "Producer")
    assert reader.log_options() == {"timeout_ms": 500}
    assert reader.connection_settings() == {
        "security.protocol": "SASL_SSL", "sasl.password": "hush", "compression.type": "lz4",
    }


def test_misspelled_setting_raises_an_error_with_a_hint(path: Path) -> None:
    with pytest.raises(ConfigException, match=r"'group.idd'. Did you mean 'group.id'"):
        Consumer({"log": path, "group.idd": "g"})


def test_settings_of_other_clients_and_connections_are_accepted(path: Path) -> None:
    Producer({
        "log": path, "group.id": "g", "security.protocol": "PLAINTEXT", "client.id": "me",
        "compression.type": "lz4", "socket.timeout.ms": 10, "ssl.ca.location": "x",
    }).close()


def test_keyword_arguments_are_settings(path: Path) -> None:
    config = merge_config({"linger.ms": 1}, {"linger_ms": 7, "on_commit": print})
    reader = ConfigReader(config, "Producer")
    assert reader.integer("linger.ms", 0) == 7
    assert reader.callback("on_commit") is print


def test_strings_are_converted_to_numbers_and_booleans() -> None:
    reader = reader_of(linger_ms=" 12 ", enable_idempotence="True")
    assert reader.integer("linger.ms", 0) == 12
    assert reader.boolean("enable.idempotence", False) is True


@pytest.mark.parametrize("value", ["ten", -1, None, True, ""])
def test_invalid_number_raises_an_error_with_the_alias_that_was_used(value: object) -> None:
    reader = ConfigReader({"queue.buffering.max.ms": value}, "Producer")
    if value is None:
        assert reader.integer("linger.ms", 5) == 5
    else:
        with pytest.raises(ConfigException, match=r"queue\.buffering\.max\.ms must be a number"):
            reader.integer("linger.ms", 5)


def test_setting_takes_precedence_over_its_alias() -> None:
    reader = ConfigReader({"linger.ms": 1, "queue.buffering.max.ms": 2}, "Producer")
    assert reader.integer("linger.ms", 0) == 1


def test_options_of_the_embedded_log_have_the_prefix_log(path: Path) -> None:
    with pytest.raises(ConfigException, match="synchronous must be one of"):
        Producer({"log": path, "log.synchronous": "sometimes"})
    with pytest.raises(ConfigException, match=r"log\.colour"):
        Producer({"log": path, "log.colour": "red"})
    Producer({"log": path, "log.synchronous": "full", "log.busy.timeout.ms": "10"}).close()
    open_log(path).close()


@pytest.mark.parametrize("setting", [
    {"acks": "2"}, {"acks": "1", "enable.idempotence": True}, {"partitioner": "best"},
    {"acks": "0", "transactional.id": "t"}, {"value.serializer": "jason"},
    {"on_delivery": "print"}, {"key.serializer": 5},
])
def test_invalid_producer_setting_raises(path: Path, setting: dict[str, object]) -> None:
    with pytest.raises(ConfigException):
        Producer({"log": path, **setting})


@pytest.mark.parametrize("setting", [
    {"auto.offset.reset": "middle"}, {"isolation.level": "dirty"},
    {"partition.assignment.strategy": "best"}, {"enable.auto.commit": "maybe"},
    {"session.timeout.ms": 10, "heartbeat.interval.ms": 10},
])
def test_invalid_consumer_setting_raises(path: Path, setting: dict[str, object]) -> None:
    with pytest.raises(ConfigException):
        Consumer({"log": path, "group.id": "g", **setting})


def test_configuration_must_be_a_dict() -> None:
    with pytest.raises(TypeError, match="must be a dict"):
        Producer("orders.db")  # type: ignore[arg-type]
