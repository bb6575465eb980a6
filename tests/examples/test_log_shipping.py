"""Log shipping: who processes the messages of a consumer that is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
from log_shipping.processing import GROUP, commit, open_consumer, process_some
from log_shipping.shipper import LogLine

from engine.instances import until
from examples.conftest import EXAMPLES
from penstock.clients import Consumer, Producer
from penstock.log import open_log

APP = ("testdata", "1.0")


#: Commits five records of partition 0, processes five more, and waits for its end.
FAILING = """
import sys
sys.path.insert(0, sys.argv[1])
from log_shipping.processing import commit, open_consumer, process_some

consumer = open_consumer(sys.argv[2], "1", "logs", session_ms=1500)
done = 0
while True:
    messages = process_some(consumer, "1", print)
    done += len(messages)
    if done <= 5:
        commit(consumer, messages)
    print(f"assigned {len(consumer.assignment())}", flush=True)
"""


def test_idle_consumer_takes_over_from_a_killed_one(tmp_path: Path) -> None:
    log = str(tmp_path / "logs.db")
    with open_log(log) as opened:
        opened.create_topic("logs", 2)
    process = subprocess.Popen(
        [sys.executable, "-c", FAILING, str(EXAMPLES), log], stdout=subprocess.PIPE, text=True
    )
    consumers: list[Consumer] = []
    try:
        assert process.stdout is not None
        until(lambda: "assigned 2" in process.stdout.readline())
        consumers += [open_consumer(log, name, "logs", session_ms=60_000) for name in "23"]

        def owned() -> list[int]:
            for consumer in consumers:
                consumer.consume(timeout=0.05)
            with open_log(log) as opened:
                members = opened.group(GROUP).members
            return sorted(len(member.partitions) for member in members)

        until(lambda: owned() == [0, 1, 1])
        (idle,) = [consumer for consumer in consumers if not consumer.assignment()]
        (taken,) = [
            number for number in (0, 1)
            if not any(each.partition == number for consumer in consumers
                       for each in consumer.assignment())
        ]
        with Producer({"log": log}) as producer:
            for number in range(10):
                line = LogLine(*APP, "INFO", "shop", "main", f"message {number}")
                producer.produce("logs", msgspec.json.encode(line), partition=taken)
        until(lambda: "Offset=9" in process.stdout.readline())
        process.kill()
        lines: list[str] = []
        until(lambda: [
            commit(consumer, process_some(consumer, "3", lines.append)) for consumer in consumers
        ] and len(lines) == 5)
        assert [each.partition for each in idle.assignment()] == [taken]
        assert [line.partition("Val=")[2] for line in lines] == [
            f"message {number}" for number in range(5, 10)
        ]
    finally:
        process.kill()
        process.communicate()
        for consumer in consumers:
            consumer.close()
