"""Damages copies of an embedded log, and reads and writes them: no damage may go unnoticed.

    python tests/faults/log_damage.py [--flips 2000] [--areas 400] [--seed 4]

Each trial damages one place of the file: it flips a bit, zeroes or repeats an area, or truncates
the file. Another process then reads everything, writes, and reads again. It must find either the
original contents, or report an error that says what is wrong. The parent notices if it crashes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from penstock.log import Log, RecordColumns, TopicPartition, open_log
from penstock.log.errors import LogUnavailable, StagedRecordsGone
from penstock.log.types import CommittedOffset, StagedRecords

NOW = 1_700_000_000_000
PAGE_BYTES = 16_384
#: How long a trial may take before its process counts as hanging.
TRIAL_S = 60


class Original(NamedTuple):
    """A log before any damage."""

    data: bytes
    contents: object
    staged: StagedRecords
    #: Without checksums, other contents are allowed; anything but an error of the log is not.
    has_checksums: bool = True


# ---- the log --------------------------------------------------------------------------------


def build(directory: Path) -> Original:
    """Create a log of about 450 kB in which every table has rows."""
    path = directory / "original.db"
    rng = random.Random(7)
    with open_at(path) as log:
        log.create_topic("deleted")
        log.create_topic("orders", 2, {"retention.ms": -1})
        log.create_topic("table", 1, {
            "cleanup.policy": "compact", "delete.retention.ms": 0, "retention.ms": -1,
        })
        log.create_topic("app-tasks", 1, {"cleanup.policy": "compact"})
        for _ in range(4):
            log.append("orders", 0, orders(rng, 250))
        for _ in range(250):
            log.append("orders", 1, orders(rng, 1))
        for number in range(80):
            value = None if number % 5 == 0 else b"%d" % number
            log.append("table", 0, RecordColumns([b"%d" % rng.randrange(9)], [value], [NOW]))
            log.append("app-tasks", 0, RecordColumns([b"0_0"], [b'{"batch":%d}' % number], [NOW]))
        log.clean(["table"], force=True)
        log.clean(["table"], force=True)
        log.append("deleted", 0, orders(rng, 20))
        log.delete_topic("deleted")
        for partition, offset in ((0, 700), (1, 7)):
            log.commit_offsets("app", {TopicPartition("orders", partition): offset})
        log.commit_offsets("web", {TopicPartition("table", 0): CommittedOffset(3, "a note")})
        log.take_lease("app", holder="an instance")
        (staged,) = log.stage_records(orders(rng, 100))
        contents = read_all(log)
    return Original(path.read_bytes(), contents, staged)


def open_at(path: Path) -> Log:
    return open_log(path, clock=lambda: NOW, synchronous="OFF")


def orders(rng: random.Random, count: int) -> RecordColumns:
    return RecordColumns(
        [b"k%d" % rng.randrange(1000) for _ in range(count)],
        [b'{"order":%d,"ref":"%x"}' % (n, rng.getrandbits(200)) for n in range(count)],
        [NOW - rng.randrange(1000) for _ in range(count)],
        [[("h", b"%d" % n)] if n % 7 == 0 else [] for n in range(count)],
    )


def read_all(log: Log) -> object:
    """Return everything that the log returns."""
    topics = log.topics()
    partitions = [TopicPartition(t.name, n) for t in topics for n in range(t.partitions)]
    bounds = log.offsets(partitions)
    return (
        log.id,
        [(log.topic(topic.name), dict(topic.config)) for topic in topics],
        bounds,
        [
            (columns.offsets, columns.timestamps, columns.keys, columns.values, columns.headers)
            for topic, partition in partitions
            for batch in log.read(topic, partition, bounds[topic, partition].start)
            for columns in [batch.columns()]
        ],
        [log.offset_for_time(*where, NOW - 500) for where in partitions],
        {name: log.group(name).offsets for name in log.groups()},
    )


def write_all(log: Log, staged: StagedRecords) -> object:
    """Write to every table and return the results."""
    with log.transaction(log.take_lease("app")) as transaction:
        transaction.append("orders", 0, staged)
        transaction.append("orders", 1, RecordColumns([b"new"], [b"new"], [NOW]))
        transaction.commit_offsets("app", {TopicPartition("orders", 1): 8})
    log.create_topic("created", 2)
    log.append("created", 1, RecordColumns([b"new"] * 2000, [b"%d" % n for n in range(2000)]))
    log.append("app-tasks", 0, RecordColumns([b"0_0"], [b"last"], [NOW]))
    log.clean(force=True)
    return transaction.appended, read_all(log)


# ---- the damage -----------------------------------------------------------------------------


class Trial(NamedTuple):
    """One kind of damage at one place."""

    kind: str
    at: int
    size: int = 0

    def apply(self, data: bytes) -> bytes:
        damaged = bytearray(data)
        if self.kind == "flip":
            damaged[self.at // 8] ^= 1 << self.at % 8
        elif self.kind == "zero":
            damaged[self.at : self.at + self.size] = bytes(self.size)
        elif self.kind == "repeat":
            # The area holds what belongs to the one after it, as after a misdirected write.
            damaged[self.at : self.at + self.size] = (
                data[self.at + self.size : self.at + 2 * self.size]
            )
        else:
            del damaged[self.at :]
        return bytes(damaged)


def metadata_pages(data: bytes, directory: Path) -> list[int]:
    """Return the pages that do not only hold blobs."""
    path = directory / "pages.db"
    path.write_bytes(data)
    db = sqlite3.connect(path)
    try:
        roots = [page for (page,) in db.execute(
            "SELECT rootpage FROM sqlite_master WHERE name != 'blobs' AND rootpage > 0")]
    finally:
        db.close()
    # Pages 1 and 2 hold the schema and the pointers of the automatic vacuum.
    return sorted({1, 2, *roots})


def trials(
    original: Original, directory: Path, flips: int, areas: int, seed: int
) -> Iterator[Trial]:
    """Yield random damage: half of the flips anywhere, half in the pages of the metadata."""
    rng = random.Random(seed)
    size = len(original.data)
    pages = metadata_pages(original.data, directory)
    for _ in range(flips // 2):
        yield Trial("flip", rng.randrange(8 * size))
        # Cells fill a page from its end, and pointers to them from its start.
        start = 8 * PAGE_BYTES * (rng.choice(pages) - 1)
        near = rng.choice((400, 2_000, 8 * PAGE_BYTES))
        at = rng.randrange(near)
        yield Trial("flip", start + (at if rng.random() < 0.4 else 8 * PAGE_BYTES - 1 - at))
    for _ in range(areas // 4):
        yield Trial("truncate", rng.randrange(size))
        page = PAGE_BYTES * rng.randrange(size // PAGE_BYTES)
        yield Trial("zero", page, PAGE_BYTES)
        yield Trial("repeat", page, PAGE_BYTES)
        length = rng.choice((1, 8, 64, 512))
        yield Trial("zero", rng.randrange(size - length), length)


def outcome(directory: Path, original: Original, trial: Trial) -> str:
    """Return "same", the name of the reported error, or what is wrong."""
    path = directory / "damaged.db"
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    path.write_bytes(trial.apply(original.data))
    try:
        with open_at(path) as log:
            same = read_all(log) == original.contents
            if original.has_checksums:
                if not same:
                    return "WRONG: read other contents"
                if write_all(log, original.staged) != original_written(directory, original):
                    return "WRONG: other contents after writes"
    except (LogUnavailable, StagedRecordsGone) as error:
        # Staged records that are not found are staged again: nothing was written.
        return type(error).__name__
    except Exception as error:
        return f"WRONG: {type(error).__name__}: {error}"
    return "same" if same else "other contents"


_WRITTEN: list[object] = []


def original_written(directory: Path, original: Original) -> object:
    """Return the results of the same writes without damage, computed once per process."""
    if not _WRITTEN:
        path = directory / "undamaged.db"
        path.write_bytes(original.data)
        with open_at(path) as log:
            _WRITTEN.append(write_all(log, original.staged))
    return _WRITTEN[0]


# ---- the processes --------------------------------------------------------------------------


def work(pipe: Any, directory: Path, original: Original) -> None:
    while True:
        pipe.send(outcome(directory, original, pipe.recv()))


def run(original: Original, directory: Path, wanted: Iterable[Trial]) -> dict[Trial, str]:
    """Run the trials in another process. A crash ends only that process."""
    context = multiprocessing.get_context("forkserver")
    found: dict[Trial, str] = {}
    process = pipe = None
    for trial in wanted:
        if process is None or not process.is_alive():
            pipe, theirs = context.Pipe()
            process = context.Process(target=work, args=(theirs, directory, original), daemon=True)
            process.start()
            theirs.close()
        assert pipe is not None
        pipe.send(trial)
        try:
            found[trial] = pipe.recv() if pipe.poll(TRIAL_S) else "WRONG: hangs"
        except EOFError:
            process.join()
            found[trial] = f"WRONG: crashed with {process.exitcode}"
        if found[trial] == "WRONG: hangs":
            process.kill()
            process.join()
    if process is not None:
        process.kill()
        process.join()
    return found


def damage_log(directory: Path, flips: int, areas: int, seed: int) -> dict[Trial, str]:
    """Run all trials on a new log. Outcomes that start with WRONG are failures."""
    original = build(directory)
    return run(original, directory, trials(original, directory, flips, areas, seed))


def failures(found: dict[Trial, str]) -> dict[Trial, str]:
    """Return the trials whose damage was not noticed, or ended in another error."""
    return {trial: text for trial, text in found.items() if text.startswith("WRONG")}


def main() -> None:
    parser = argparse.ArgumentParser(description="Damage copies of an embedded log.")
    parser.add_argument("--flips", type=int, default=2000)
    parser.add_argument("--areas", type=int, default=400)
    parser.add_argument("--seed", type=int, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = damage_log(Path(directory), options.flips, options.areas, options.seed)
    counts = Counter(f"{trial.kind:9}{text.split(':')[0]}" for trial, text in found.items())
    for kind, count in sorted(counts.items()):
        print(f"{count:6} {kind}")
    wrong = failures(found)
    for trial, text in wrong.items():
        print(f"{trial}: {text}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
