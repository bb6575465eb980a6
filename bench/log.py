"""The cost of the embedded log, as a ratio to the same batches in a plain Arrow file.

    append   batches of 10,000 records of 130 bytes, one commit each
    read     the whole range, into Arrow record batches with offsets
    single   commits of one record, and reading them before and after they are merged

The plain file is written and read with the same compression, in the same process, before each
round; the best of the rounds counts for both.

    python bench/log.py [--batches 100] [--rounds 3] [--directory DIR] [--synchronous NORMAL]
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from penstock.log import Log, RecordColumns, open_log

BATCH = 10_000
TARGETS = {
    "append_per_s": 1_000_000, "append_ratio": 0.3, "read_per_s": 3_000_000, "read_ratio": 0.3,
}


def order(rng: random.Random) -> bytes:
    """112 bytes of JSON; with 10 bytes of key and 8 of timestamp a record has 130 bytes."""
    text = b'{"orderId":%07d,"locationId":"store_%04d","finalAmount":%05.2f,' % (
        rng.randrange(10**7), rng.randrange(10**4), rng.random() * 99,
    )
    text += b'"orderType":"%s","ref":"%x"' % (
        rng.choice((b"GENERAL", b"RESTAURANT")), rng.getrandbits(40),
    )
    return text.ljust(111)[:111] + b"}"


def batches(count: int) -> list[pa.RecordBatch]:
    """Return `count` batches, of which ten differ."""
    rng = random.Random(4)
    made = []
    for number in range(min(count, 10)):
        keys = [b"store_%04d" % rng.randrange(10_000) for _ in range(BATCH)]
        times = range(number * BATCH, (number + 1) * BATCH)
        made.append(pa.record_batch({
            "key": pa.array(keys, pa.binary()),
            "value": pa.array([order(rng) for _ in keys], pa.binary()),
            "timestamp": pa.array(times, pa.int64()),
        }))
    return [made[number % len(made)] for number in range(count)]


def timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def write_plain(path: Path, data: Sequence[pa.RecordBatch]) -> None:
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.OSFile(str(path), "wb") as file, \
            pa.ipc.new_file(file, data[0].schema, options=options) as writer:
        for batch in data:
            writer.write_batch(batch)


def read_plain(path: Path) -> None:
    with pa.OSFile(str(path), "rb") as file:
        reader = pa.ipc.open_file(file)
        for number in range(reader.num_record_batches):
            reader.get_batch(number)


def append_all(log: Log, data: Sequence[pa.RecordBatch]) -> None:
    for batch in data:
        log.append("orders", 0, batch)


def read_all(log: Log, topic: str) -> int:
    return sum(len(batch) for batch in log.read(topic, 0, 0))


def large(directory: Path, data: Sequence[pa.RecordBatch], options: argparse.Namespace
          ) -> dict[str, float]:
    best: dict[str, float] = {}

    def note(name: str, seconds: float) -> None:
        best[name] = min(seconds, best.get(name, seconds))

    for number in range(options.rounds):
        plain = directory / f"plain-{number}.arrow"
        note("plain_write", timed(lambda path=plain: write_plain(path, data)))
        with open_log(directory / f"log-{number}.db", synchronous=options.synchronous) as log:
            log.create_topic("orders", 1, {"retention.ms": -1})
            note("append", timed(lambda log=log: append_all(log, data)))
            note("plain_read", timed(lambda path=plain: read_plain(path)))
            note("read", timed(lambda log=log: read_all(log, "orders")))
            assert read_all(log, "orders") == len(data) * BATCH
        for path in directory.iterdir():
            path.unlink()
    return best


def single(directory: Path, count: int, synchronous: str) -> dict[str, float]:
    """Records per second in commits of one record."""
    with open_log(directory / "single.db", synchronous=synchronous) as log:
        log.create_topic("orders", 1, {"retention.ms": -1})
        record = RecordColumns([b"store_1234"], [order(random.Random(1))], [1])
        appending = timed(lambda: [log.append("orders", 0, record) for _ in range(count)])
        small = timed(lambda: read_all(log, "orders"))
        log.clean()
        merged = timed(lambda: read_all(log, "orders"))
    return {
        "single_append_per_s": round(count / appending),
        "single_read_per_s": round(count / small),
        "single_merged_read_per_s": round(count / merged),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="The embedded log against a plain Arrow file.")
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--singles", type=int, default=5_000)
    parser.add_argument("--directory", help="where the files are written; default: temporary")
    parser.add_argument("--synchronous", default="NORMAL", help="OFF, NORMAL or FULL")
    options = parser.parse_args()
    data = batches(options.batches)
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        best = large(Path(directory), data, options)
        answer: dict[str, object] = {
            "bench": "log", "records": len(data) * BATCH, "synchronous": options.synchronous,
            "append_per_s": round(len(data) * BATCH / best["append"]),
            "append_ratio": round(best["plain_write"] / best["append"], 2),
            "read_per_s": round(len(data) * BATCH / best["read"]),
            "read_ratio": round(best["plain_read"] / best["read"], 2),
            **single(Path(directory), options.singles, options.synchronous),
        }
    for name, target in TARGETS.items():
        value = answer[name]
        assert isinstance(value, int | float)
        print(f"{name:15} {value:>12,} (target {target:,}) {'ok' if value >= target else 'below'}")
    answer["python"] = platform.python_version()
    answer["pyarrow"] = pa.__version__
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
