"""Runs a small example: sends its records, processes them on Spark, and prints its output topics.

Every small example has a `demo.py` that describes it as a `Showcase`:

    python examples/words/demo.py [--log PATH|kafka://HOST:PORT] [--master local[2]]
"""

from __future__ import annotations

import argparse
import logging
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from penstock import Serde, Serdes, Streams, StreamsConfig, Topology
from penstock.clients import KafkaError, KafkaException, Message, Producer
from penstock.errors import StreamsException
from penstock.extras import explain_missing_extra
from penstock.log import Log, open_log

#: 2026-01-05T09:00:00Z: when the data of the small examples starts.
START_MS = 1_767_603_600_000


class Input(NamedTuple):
    """A record to send. Key and value are serialized by their types."""

    topic: str
    key: Any
    value: Any
    timestamp: int


class Types(NamedTuple):
    """The types of the keys and values of a topic, or their serdes."""

    key: Any
    value: Any
    #: Show only the latest record of each key. The number of updates of a table depends on when the
    #: application commits.
    latest: bool = False


@dataclass(frozen=True)
class Showcase:
    """An example and its data."""

    application_id: str
    title: str
    build: Callable[[], Topology]
    inputs: Callable[[], Iterable[Input]]
    #: Output topic -> how to read it.
    outputs: Mapping[str, Types] = field(default_factory=dict)
    partitions: int = 2
    #: Topics that the example creates, and that are not printed.
    other_topics: Sequence[str] = ()
    #: Shows more while the application runs. It may write to the folder, which is temporary.
    show: Callable[[Streams, Path], None] | None = None
    #: More settings of the application.
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: Packages of the extra `examples` that it imports.
    packages: Sequence[str] = ()

    def topics(self) -> list[str]:
        """The topics that the example reads and writes."""
        read = dict.fromkeys(record.topic for record in self.inputs())
        return list(dict.fromkeys([*read, *self.outputs, *self.other_topics]))


def main(showcase: Showcase, arguments: Sequence[str] | None = None) -> int:
    """Run an example from the command line."""
    return start(showcase, argument_parser(showcase).parse_args(arguments))


def argument_parser(showcase: Showcase) -> argparse.ArgumentParser:
    """The options that every example has. An example may add its own."""
    parser = argparse.ArgumentParser(description=showcase.title)
    parser.add_argument(
        "--log", metavar="PATH|kafka://HOST:PORT",
        help="the log to use (default: a temporary file)",
    )
    parser.add_argument("--master", default="local[2]", help="the Spark master, or inline")
    return parser


def start(showcase: Showcase, chosen: argparse.Namespace) -> int:
    """Run an example with the chosen options, in a temporary folder. Returns the exit code."""
    logging.getLogger("penstock").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        try:
            require(showcase.packages)
            with open_log(chosen.log or str(Path(folder) / "demo.db")) as log:
                create_topics(log, showcase.application_id, showcase.topics(), showcase.partitions)
                run(showcase, log, chosen.master, Path(folder))
        except StreamsException as error:
            print(error, file=sys.stderr)
            return 1
    return 0


def require(packages: Sequence[str]) -> None:
    """Raise an error before anything is written if one of the packages is not installed."""
    with explain_missing_extra("examples"):
        for package in packages:
            import_module(package)


def create_topics(log: Log, application_id: str, names: Sequence[str], partitions: int) -> None:
    """Create the topics of an example; exit if one of them exists."""
    reject_existing(log, application_id, names)
    for name in names:
        # The records have fixed timestamps of the past and must not expire.
        log.create_topic(name, partitions, {"retention.ms": -1})


def reject_existing(log: Log, application_id: str | None, names: Sequence[str]) -> None:
    """Exit if one of the topics exists, with advice. None: no application reads them.

    They are never deleted: on a shared log, they may be someone else's.
    """
    taken = sorted({topic.name for topic in log.topics()}.intersection(names))
    if not taken:
        return
    commands = [f"topics delete {' '.join(taken)}"]
    if application_id in log.groups():
        # The application has run with this log, and has internal topics.
        commands.insert(0, f"reset {application_id}")
    raise SystemExit("\n".join([
        f"These topics exist in the log: {', '.join(taken)}. The demo creates its own topics.",
        "Use another log. Only if all of them are of an earlier demo, delete them:",
        *(f"  penstock {command} --log {shlex.quote(log.address)}" for command in commands),
    ]))


def run(showcase: Showcase, log: Log, master: str, folder: Path) -> None:
    """Send the records, process them, and print the output topics. State goes to the folder."""
    print(f"== {showcase.title}")
    count = send(log, showcase.inputs())
    print(f"{count:,} records sent. Starting on {master} ...", flush=True)
    config = StreamsConfig(
        application_id=showcase.application_id, log=log.address,
        state_dir=str(folder / "state"), **showcase.settings,
    )
    with Streams(showcase.build(), config, master=master) as streams:
        streams.run_until_caught_up()
        if showcase.show is not None:
            showcase.show(streams, folder)
    for topic, types in showcase.outputs.items():
        print(f"\n== topic {topic}{', the latest of each key' if types.latest else ''}")
        for line in lines(log, topic, types):
            print(f"  {line}")


def send(log: Log, records: Iterable[Input]) -> int:
    """Send records to the log. Returns their number."""
    count = 0
    with Producer({"log": log.address}) as producer:
        for topic, key, value, timestamp in records:
            if timestamp <= 0:
                # A producer replaces 0 by the current time, which moves the stream time to today.
                raise ValueError(
                    f"A record for topic '{topic}' has the timestamp {timestamp}. Use times from "
                    f"{START_MS} on."
                )
            producer.produce(
                topic, serialized(value), key=serialized(key), timestamp=timestamp,
                on_delivery=_raise_if_rejected,
            )
            count += 1
    return count


def _raise_if_rejected(error: KafkaError | None, message: Message) -> None:
    """Without this function, a record that the log rejects is missing without a notice."""
    if error is not None:
        raise KafkaException(error)


def serialized(value: Any) -> bytes | None:
    """Serialize a key or a value by its type."""
    if value is None or isinstance(value, bytes):
        return value
    return Serdes.of(type(value)).serialize(value)


def lines(log: Log, topic: str, types: Types) -> list[str]:
    """The records of a topic as text, by time."""
    found = records(log, topic, types)
    if types.latest:
        found = _by_time({record.key: record for record in found}.values())
    return [f"{record.key}: {record.value}" for record in found]


def records(log: Log, topic: str, types: Types) -> list[Input]:
    """The records of a topic, by time."""
    key_serde, value_serde = (
        each if isinstance(each, Serde) else Serdes.of(each) for each in (types.key, types.value)
    )
    found = []
    for partition in range(log.topic(topic).partitions):
        for batch in log.read(topic, partition, 0):
            rows = batch.columns()
            for key, value, time in zip(rows.keys, rows.values, rows.timestamps, strict=True):
                shown = (
                    None if raw is None else serde.deserialize(raw)
                    for raw, serde in ((key, key_serde), (value, value_serde))
                )
                found.append(Input(topic, *shown, time))
    return _by_time(found)


def _by_time(records: Iterable[Input]) -> list[Input]:
    """Sort records by time. Tasks write in any order, so equal times are sorted by their keys."""
    return sorted(records, key=lambda record: (record.timestamp, str(record.key)))
