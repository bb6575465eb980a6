from __future__ import annotations

from pathlib import Path

import pytest

from penstock.clients import AdminClient, Consumer, Producer
from penstock.clients.settings import Settings, merged
from penstock.errors import ConfigException
from penstock.log import Log, open_log


def read(**config: object) -> Settings:
    return Settings(merged(None, config), "Producer")


def test_the_log_is_named_by_a_path_or_by_the_servers(path: Path) -> None:
    for config in ({"log": path}, {"log": str(path)}, {"bootstrap.servers": f"embedded:{path}"}):
        assert Settings(config, "Producer").address() == str(path)


def test_an_open_log_is_opened_once_more_for_the_client(log: Log) -> None:
    log.create_topic("t")
    with AdminClient({"log": log}) as admin:
        assert list(admin.list_topics().topics) == ["t"]
    assert [topic.name for topic in log.topics()] == ["t"]


def test_no_log_at_all_says_what_to_set() -> None:
    with pytest.raises(ConfigException, match="which log"):
        Producer({})


def test_servers_are_a_kafka_cluster() -> None:
    settings = Settings({"bootstrap.servers": "one:9092,two:9092"}, "Producer")
    assert settings.address() == "kafka://one:9092,two:9092"


def test_options_and_connection_settings_of_the_log_are_separated() -> None:
    config = {
        "bootstrap.servers": "one:9092", "security.protocol": "SASL_SSL", "sasl.password": "hush",
        "compression.type": "lz4", "log.timeout.ms": "500", "linger.ms": 7, "group.id": "g",
    }
    settings = Settings(config, "Producer")
    assert settings.log_options() == {"timeout_ms": 500}
    assert settings.connection_settings() == {
        "security.protocol": "SASL_SSL", "sasl.password": "hush", "compression.type": "lz4",
    }


def test_a_misspelled_setting_is_an_error_with_a_hint(path: Path) -> None:
    with pytest.raises(ConfigException, match=r"'group.idd'. Did you mean 'group.id'"):
        Consumer({"log": path, "group.idd": "g"})


def test_settings_of_other_clients_and_of_connections_are_taken(path: Path) -> None:
    Producer({
        "log": path, "group.id": "g", "security.protocol": "PLAINTEXT", "client.id": "me",
        "compression.type": "lz4", "socket.timeout.ms": 10, "ssl.ca.location": "x",
    }).close()


def test_keyword_arguments_are_settings_too(path: Path) -> None:
    settings = Settings(merged({"linger.ms": 1}, {"linger_ms": 7, "on_commit": print}), "Producer")
    assert settings.number("linger.ms", 0) == 7
    assert settings.callback("on_commit") is print


def test_texts_are_numbers_and_booleans() -> None:
    settings = read(linger_ms=" 12 ", enable_idempotence="True")
    assert settings.number("linger.ms", 0) == 12
    assert settings.flag("enable.idempotence", False) is True


@pytest.mark.parametrize("value", ["ten", -1, None, True, ""])
def test_a_number_that_cannot_be_is_refused_by_its_own_name(value: object) -> None:
    settings = Settings({"queue.buffering.max.ms": value}, "Producer")
    if value is None:
        assert settings.number("linger.ms", 5) == 5
    else:
        with pytest.raises(ConfigException, match=r"queue\.buffering\.max\.ms must be a number"):
            settings.number("linger.ms", 5)


def test_a_name_counts_more_than_its_alias() -> None:
    settings = Settings({"linger.ms": 1, "queue.buffering.max.ms": 2}, "Producer")
    assert settings.number("linger.ms", 0) == 1


def test_options_of_the_embedded_log_have_a_prefix(path: Path) -> None:
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
def test_what_a_producer_cannot_do_is_refused(path: Path, setting: dict[str, object]) -> None:
    with pytest.raises(ConfigException):
        Producer({"log": path, **setting})


@pytest.mark.parametrize("setting", [
    {"auto.offset.reset": "middle"}, {"isolation.level": "dirty"},
    {"partition.assignment.strategy": "best"}, {"enable.auto.commit": "maybe"},
    {"session.timeout.ms": 10, "heartbeat.interval.ms": 10},
])
def test_what_a_consumer_cannot_do_is_refused(path: Path, setting: dict[str, object]) -> None:
    with pytest.raises(ConfigException):
        Consumer({"log": path, "group.id": "g", **setting})


def test_a_configuration_is_a_dict() -> None:
    with pytest.raises(TypeError, match="a dict"):
        Producer("orders.db")  # type: ignore[arg-type]
