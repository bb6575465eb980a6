"""Logs, applications, clients and commands on brokers that require credentials."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from docs.pages import DOCS, blocks
from kafka.security import PASSWORD, Security, sasl, tls
from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig
from penstock.broker.cluster import LocalCluster
from penstock.broker.properties import BrokerOptions
from penstock.clients import Consumer, Producer
from penstock.log import open_log
from penstock.log.errors import LogUnavailable

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@dataclass(frozen=True, slots=True)
class SecuredBroker:
    """A running broker and its security settings."""

    address: str
    security: Security


@pytest.fixture(scope="module", params=["sasl", "tls"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredBroker]:
    keys = tmp_path_factory.mktemp("keys")
    security = sasl() if request.param == "sasl" else tls(keys)
    cluster = LocalCluster(tmp_path_factory.mktemp("secured"))
    options = BrokerOptions(port=0, for_tests=True, properties=security.broker)
    with cluster.for_this_process(options) as status:
        yield SecuredBroker(status.address, security)


def joined_words() -> StreamsBuilder:
    builder = StreamsBuilder()
    words = builder.stream("words", key=Serdes.string(), value=Serdes.string())
    joined = words.group_by_key().reduce(lambda one, other: f"{one} {other}", store="joined")
    joined.to_stream().to("joined", key=Serdes.string(), value=Serdes.string())
    return builder


def penstock(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command in its own process."""
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli", *arguments], input=stdin, text=True,
        capture_output=True, timeout=120, check=False,
    )


def write_properties(settings: dict[str, str], directory: Path) -> str:
    file = directory / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(file)


def test_error_explains_a_rejected_client(
    broker: SecuredBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = {**broker.security.client, **broker.security.wrong}
    with pytest.raises(LogUnavailable) as raised:
        open_log(broker.address, **wrong)
    message = str(raised.value)
    servers = broker.address.removeprefix("kafka://")
    assert message.startswith(f"Kafka at {servers} rejects this client.\n")
    for part in broker.security.error:
        assert part in message
    assert PASSWORD not in message + caplog.text


def test_code_of_the_page_connects(broker: SecuredBroker) -> None:
    # tests/kafka/test_docs.py runs the first block.
    _, block = blocks(DOCS / "kafka.md", "python")
    host = broker.address.removeprefix("kafka://")
    given = 'security = {"security.protocol": "SSL", "ssl.ca.location": "our-ca.pem"}'
    assert block.text.count(given) == 1
    assert block.text.count("host:9093") == 3
    names: dict[str, Any] = {}
    exec(block.text.replace(given, f"security = {broker.security.client!r}")
         .replace("host:9093", host), names)
    with names["log"] as log, names["producer"] as producer:
        log.create_topic("page")
        producer.produce("page", b"seen")
        producer.flush()
        assert [batch.columns().values for batch in log.read("page", 0, 0)] == [[b"seen"]]
    assert names["config"].connection_settings() == broker.security.client


def test_error_without_credentials_names_the_protocol(broker: SecuredBroker) -> None:
    with pytest.raises(LogUnavailable) as raised:
        open_log(broker.address, timeout_ms=2_000)
    assert "security.protocol" in str(raised.value)


def test_application_and_clients_authenticate(broker: SecuredBroker, tmp_path: Path) -> None:
    client = broker.security.client
    with open_log(broker.address, **client) as log:
        for topic in ("words", "joined"):
            log.create_topic(topic, 2)
    settings = {"bootstrap.servers": broker.address, **client}
    producer = Producer(settings)
    for word in ("one", "two", "three"):
        producer.produce("words", word, "k")
    producer.flush()

    config = StreamsConfig(
        application_id="secured", log=broker.address, state_dir=str(tmp_path),
        statestore_cache_max_bytes=0, extra={"auto.offset.reset": "earliest", **client},
    )
    assert PASSWORD not in repr(config)
    with Streams(joined_words().build(), config, master="inline") as streams:
        streams.run_until_caught_up()

    consumer = Consumer({**settings, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.subscribe(["joined"])
    consumed: list[bytes | None] = []
    for _ in range(100):
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            consumed.append(message.value())
        if len(consumed) == 3:
            break
    consumer.close()
    assert consumed == [b"one", b"one two", b"one two three"]


def test_commands_authenticate_with_a_properties_file(
    broker: SecuredBroker, tmp_path: Path
) -> None:
    file = write_properties(dict(broker.security.client), tmp_path)
    log_options = ("--log", broker.address, "--log-config", file)
    app = tmp_path / "app.py"
    app.write_text(
        "from penstock import Serdes, StreamsBuilder\n\n"
        "builder, raw = StreamsBuilder(), Serdes.bytes()\n"
        'builder.stream("by-command", key=raw, value=raw).to("copied", key=raw, value=raw)\n'
    )
    assert penstock("topics", "create", "by-command", "copied", *log_options).returncode == 0
    assert penstock("produce", "by-command", *log_options, stdin="hello\n").returncode == 0
    ran = penstock(
        "run", str(app), "--application-id", "copies", "--master", "inline", "--once", "--quiet",
        "--state-dir", str(tmp_path / "state"), *log_options,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert penstock("consume", "copied", *log_options).stdout == "hello\n"
    listed = penstock("groups", "list", "--json", *log_options)
    assert "copies" in {json.loads(line)["group"] for line in listed.stdout.splitlines()}


def test_command_reports_rejection_in_three_lines(
    broker: SecuredBroker, tmp_path: Path
) -> None:
    file = write_properties({**broker.security.client, **broker.security.wrong}, tmp_path)
    ran = penstock("topics", "list", "--log", broker.address, "--log-config", file)
    assert ran.returncode == 1
    # A slow attempt prints this line first.
    first, *rest = (
        line for line in ran.stderr.splitlines() if not line.startswith("Waiting for Kafka at ")
    )
    assert first.startswith("penstock: error: Kafka at ")
    assert len(rest) == 2
    assert PASSWORD not in ran.stderr
