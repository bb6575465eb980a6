"""A small application whose files are kept for each release, and the script that writes them.

    python tests/releases/application.py 0.1.0

writes `files/0.1.0.tar.xz`: an embedded log and the local state, after the first input. Run it with
the version that is released, and never again: the file shows what that version wrote. The topology
and the input must not change.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TypeAlias

from penstock import (
    Serdes,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    Suppressed,
    TimeWindows,
    Topology,
)
from penstock.log import Log, RecordColumns, open_log

FILES = Path(__file__).with_name("files")
TEXT, LONG = Serdes.string(), Serdes.long()
PARTITIONS = 2
INPUTS = ("words", "prices")
OUTPUTS = ("counts", "windows", "priced", "by-letter", "latest")
SECOND_MS = 1_000
Results: TypeAlias = "dict[tuple[str, int], list[tuple[bytes | None, bytes | None, int]]]"

#: (key, value, timestamp in seconds) of the topic `words`; a price of None deletes it.
FIRST_WORDS = [
    ("a", "ant", 1), ("b", "bee", 2), ("a", "ape", 3), ("c", "cat", 11), ("a", "asp", 12),
]
FIRST_PRICES = [("a", 5, 0), ("b", 7, 0)]
#: The second input closes windows that the first one has opened, and changes rows of it.
SECOND_WORDS = [("b", "bat", 13), ("a", "auk", 14), ("c", "cow", 40), ("b", "boa", 41)]
SECOND_PRICES = [("a", 6, 5), ("b", None, 5), ("c", 9, 5)]


def topology() -> Topology:
    """Counts, final windows, a join, a re-keyed count and a reduced table: six stores."""
    builder = StreamsBuilder()
    words = builder.stream("words", key=TEXT, value=TEXT)
    prices = builder.table("prices", key=TEXT, value=LONG, store="prices")
    by_key = words.group_by_key()
    by_key.count(store="counts").to_stream().to("counts", key=TEXT, value=LONG)
    (
        by_key.windowed_by(TimeWindows.of(10 * SECOND_MS, grace=SECOND_MS))
        .count(store="by-window")
        .suppress(Suppressed.until_window_closes(name="final"))
        .to_stream(lambda windowed, count: f"{windowed.key}@{windowed.window.start}")
        .to("windows", key=TEXT, value=LONG)
    )
    words.join(prices, lambda word, price: f"{word} {price}").to("priced", key=TEXT, value=TEXT)
    (
        words.group_by(lambda key, word: word[1], key=TEXT, value=TEXT, name="by-letter")
        .count(store="by-letter").to_stream().to("by-letter", key=TEXT, value=LONG)
    )
    by_key.reduce(lambda old, new: f"{old}+{new}", store="latest").to_stream().to(
        "latest", key=TEXT, value=TEXT
    )
    return builder.build()


def create_topics(log: Log) -> None:
    for topic in (*INPUTS, *OUTPUTS):
        # The timestamps of the records are far in the past.
        log.create_topic(topic, PARTITIONS, {"retention.ms": -1})


def send(log: Log, topic: str, records: list[tuple[str, object, int]]) -> None:
    for key, value, seconds in records:
        data = None if value is None else (LONG if topic == "prices" else TEXT).serialize(value)
        log.append(
            topic, ord(key) % PARTITIONS,
            RecordColumns([TEXT.serialize(key)], [data], [seconds * SECOND_MS]),
        )


def run(folder: Path) -> None:
    """Process the records that exist."""
    config = StreamsConfig(
        application_id="kept", log=str(folder / "log.db"), state_dir=str(folder / "state"),
        # A lane may commit at any record, and so write other intermediate results.
        execution="batch",
    )
    with Streams(topology(), config, master="inline") as streams:
        streams.run_until_caught_up()


def process_first(folder: Path) -> None:
    with open_log(folder / "log.db") as log:
        create_topics(log)
        send(log, "prices", FIRST_PRICES)
        send(log, "words", FIRST_WORDS)
    run(folder)


def process_second(folder: Path) -> None:
    with open_log(folder / "log.db") as log:
        send(log, "prices", SECOND_PRICES)
        send(log, "words", SECOND_WORDS)
    run(folder)


def results(folder: Path) -> Results:
    """All records of the output topics, by topic and partition."""
    found = {}
    with open_log(folder / "log.db") as log:
        for topic in OUTPUTS:
            for partition in range(PARTITIONS):
                found[topic, partition] = [
                    row for batch in log.read(topic, partition, 0) for rows in [batch.columns()]
                    for row in zip(rows.keys, rows.values, rows.timestamps, strict=True)
                ]
    return found


def main() -> None:
    target = FILES / f"{sys.argv[1]}.tar.xz"
    if target.exists():
        sys.exit(f"{target} exists. A file of a release never changes.")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        process_first(folder)
        with tarfile.open(target, "x:xz") as archive:
            for each in ("log.db", "state"):
                archive.add(folder / each, each)
    print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
