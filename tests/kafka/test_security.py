"""Brokers that let nobody in without a password or a certificate: all get in the same way."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka.guards import PASSWORD, Guard, by_certificate, by_password
from penstock import Serdes, Streams, StreamsBuilder, StreamsConfig
from penstock.broker.cluster import LocalCluster
from penstock.broker.properties import BrokerOptions
from penstock.clients import Consumer, Producer
from penstock.log import open_log
from penstock.log.errors import LogUnavailable

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


@dataclass(frozen=True, slots=True)
class Guarded:
    """A broker that is running, and its guard."""

    address: str
    guard: Guard


@pytest.fixture(scope="module", params=["sasl", "tls"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    keys = tmp_path_factory.mktemp("keys")
    guard = by_password() if request.param == "sasl" else by_certificate(keys)
    cluster = LocalCluster(tmp_path_factory.mktemp("guarded"))
    options = BrokerOptions(port=0, for_tests=True, properties=guard.broker)
    with cluster.for_this_process(options) as status:
        yield Guarded(status.address, guard)


def shouting() -> StreamsBuilder:
    builder = StreamsBuilder()
    words = builder.stream("words", key=Serdes.string(), value=Serdes.string())
    words.group_by_key().reduce(lambda one, other: f"{one} {other}", store="said").to_stream().to(
        "said", key=Serdes.string(), value=Serdes.string()
    )
    return builder


def penstock(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Runs the command as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli", *words], input=stdin, text=True,
        capture_output=True, timeout=120, check=False,
    )


def file_of(settings: dict[str, str], folder: Path) -> str:
    file = folder / "way-in.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(file)


def test_who_is_kept_out_is_told_why_and_what_to_do(
    broker: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = {**broker.guard.way_in, **broker.guard.mistake}
    with pytest.raises(LogUnavailable) as raised:
        open_log(broker.address, **wrong)
    told = str(raised.value)
    assert told.startswith(f"Kafka at {broker.address.removeprefix('kafka://')} rejects")
    for part in broker.guard.told:
        assert part in told
    assert PASSWORD not in told + caplog.text


def test_who_does_not_know_of_the_guard_is_told_that_the_protocol_may_be_wrong(
    broker: Guarded,
) -> None:
    with pytest.raises(LogUnavailable) as raised:
        open_log(broker.address, timeout_ms=2_000)
    assert "security.protocol" in str(raised.value)


def test_an_application_and_its_clients_get_in(broker: Guarded, tmp_path: Path) -> None:
    way_in = broker.guard.way_in
    with open_log(broker.address, **way_in) as log:
        for topic in ("words", "said"):
            log.create_topic(topic, 2)
    settings = {"bootstrap.servers": broker.address, **way_in}
    producer = Producer(settings)
    for word in ("who", "goes", "there"):
        producer.produce("words", word, "k")
    producer.flush()

    config = StreamsConfig(
        application_id="guarded", log=broker.address, state_dir=str(tmp_path),
        statestore_cache_max_bytes=0, extra={"auto.offset.reset": "earliest", **way_in},
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


def test_commands_get_in_with_a_file_of_settings(broker: Guarded, tmp_path: Path) -> None:
    file = file_of(dict(broker.guard.way_in), tmp_path)
    of_log = ("--log", broker.address, "--log-config", file)
    app = tmp_path / "app.py"
    app.write_text(
        "from penstock import Serdes, StreamsBuilder\n\n"
        "builder, raw = StreamsBuilder(), Serdes.bytes()\n"
        'builder.stream("by-command", key=raw, value=raw).to("copied", key=raw, value=raw)\n'
    )
    assert penstock("topics", "create", "by-command", "copied", *of_log).returncode == 0
    assert penstock("produce", "by-command", *of_log, stdin="hello\n").returncode == 0
    ran = penstock(
        "run", str(app), "--application-id", "copies", "--master", "inline", "--once", "--quiet",
        "--state-dir", str(tmp_path / "state"), *of_log,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert penstock("consume", "copied", *of_log).stdout == "hello\n"
    listed = penstock("groups", "list", "--json", *of_log)
    assert "copies" in {json.loads(line)["group"] for line in listed.stdout.splitlines()}


def test_a_command_that_is_kept_out_says_so_in_a_few_lines(
    broker: Guarded, tmp_path: Path
) -> None:
    file = file_of({**broker.guard.way_in, **broker.guard.mistake}, tmp_path)
    ran = penstock("topics", "list", "--log", broker.address, "--log-config", file)
    assert ran.returncode == 1
    # It may have taken so long that this was told before.
    first, *rest = (
        line for line in ran.stderr.splitlines() if not line.startswith("Waiting for Kafka at ")
    )
    assert first.startswith("penstock: error: Kafka at ")
    assert len(rest) == 2
    assert PASSWORD not in ran.stderr
