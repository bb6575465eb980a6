"""A broker that lets nobody in without a password: clients and commands get in the same way."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig
from penstock.broker.cluster import Cluster, Status
from penstock.broker.properties import BrokerOptions
from penstock.clients import Consumer, Producer
from penstock.log import open_log
from penstock.log.errors import LogUnavailable

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PASSWORD = "not-to-be-shown"
WAY_IN = {
    "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "penstock",
    "sasl.password": PASSWORD,
}
_LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    f'username="penstock" password="{PASSWORD}" user_penstock="{PASSWORD}";'
)
GUARDED = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": _LOGIN,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Status]:
    cluster = Cluster(tmp_path_factory.mktemp("guarded"))
    options = BrokerOptions(port=0, for_tests=True, properties=GUARDED)
    with cluster.for_this_process(options) as status:
        yield status


def shouting() -> StreamsBuilder:
    builder = StreamsBuilder()
    words = builder.stream("words", key=Serdes.string(), value=Serdes.string())
    words.group_by_key().reduce(lambda one, other: f"{one} {other}", store="said").to_stream().to(
        "said", key=Serdes.string(), value=Serdes.string()
    )
    return builder


def test_without_the_password_nobody_gets_in(broker: Status) -> None:
    wrong = {**WAY_IN, "sasl.password": "guessed"}
    with pytest.raises(LogUnavailable) as raised:
        open_log(broker.address, timeout_ms=3_000, **wrong)
    assert "guessed" not in str(raised.value)


def test_an_application_and_its_clients_get_in_with_it(broker: Status, tmp_path: Path) -> None:
    with open_log(broker.address, **WAY_IN) as log:
        for topic in ("words", "said"):
            log.create_topic(topic, 2)
    settings = {"bootstrap.servers": broker.address, **WAY_IN}
    producer = Producer(settings)
    for word in ("who", "goes", "there"):
        producer.produce("words", word, "k")
    producer.flush()

    config = StreamsConfig(
        application_id="guarded", log=broker.address, state_dir=str(tmp_path),
        statestore_cache_max_bytes=0, extra={"auto.offset.reset": "earliest", **WAY_IN},
    )
    assert PASSWORD not in repr(config)
    with Streams(shouting().build(), config, master="inline") as streams:
        streams.run_until_caught_up()

    consumer = Consumer({**settings, "group.id": "hearing", "auto.offset.reset": "earliest"})
    consumer.subscribe(["said"])
    heard: list[bytes | None] = []
    for _ in range(100):
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            heard.append(message.value())
        if len(heard) == 3:
            break
    consumer.close()
    assert heard == [b"who", b"who goes", b"who goes there"]


def test_commands_get_in_with_a_file_of_settings(broker: Status, tmp_path: Path) -> None:
    file = tmp_path / "way-in.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in WAY_IN.items()))
    command = [sys.executable, "-m", "penstock.cli", "topics"]
    of_log = ["--log", broker.address, "--log-config", str(file)]
    subprocess.run([*command, "create", "by-command", *of_log], check=True, timeout=120)
    listed = subprocess.run(
        [*command, "list", "--json", *of_log], check=True, timeout=120, capture_output=True,
        text=True,
    )
    assert "by-command" in {json.loads(line)["name"] for line in listed.stdout.splitlines()}
