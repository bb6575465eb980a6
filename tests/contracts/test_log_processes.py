"""The contract of every log: several processes, and the memory of a reader."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from contracts.conftest import LogUnderTest
from contracts.log_records import numbered
from penstock.log import Log

APPENDS = 150
APPEND = """
import sys
from penstock.log import RecordColumns, open_log
address, me, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with open_log(address) as log:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(count):
        value = f"{me}/{number}".encode()
        appended = log.append("orders", 0, RecordColumns([None], [value], [1]))
        print(appended.base_offset, value.decode(), flush=True)
"""
READ = """
import sys
from pathlib import Path
from penstock.log import open_log
with open_log(sys.argv[1]) as log:
    count = sum(len(batch) for batch in log.read(sys.argv[2], 0, 0))
peak = [line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
print(count, peak[0].split()[1])
"""


def start(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )


def test_appends_of_four_processes_are_all_stored_once(log: Log) -> None:
    log.create_topic("orders")
    processes = [start(APPEND, log.address, name, APPENDS) for name in "abcd"]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    reported: dict[int, str] = {}
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        output, _ = process.communicate()
        assert process.returncode == 0
        reported.update((int(line.split()[0]), line.split()[1]) for line in output.splitlines())
    found = {
        offset: value.decode()
        for batch in log.read("orders", 0, 0)
        for offset, value in zip(batch.columns().offsets, batch.columns().values, strict=True)
        if value is not None
    }
    assert found == reported
    assert len(found) == 4 * APPENDS
    assert set(Counter(found.values()).values()) == {1}
    for name in "abcd":
        own = [value for _, value in sorted(found.items()) if value.startswith(name)]
        assert own == [f"{name}/{number}" for number in range(APPENDS)]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_memory_of_a_reader_does_not_grow_with_the_topic(logs: LogUnderTest) -> None:
    log = logs.open()
    batch = numbered(range(10_000), size=120)
    peaks = {}
    for topic, batches in (("small", 20), ("large", 400)):
        log.create_topic(topic)
        for _ in range(batches):
            log.append(topic, 0, batch)
        output, _ = start(READ, log.address, topic).communicate()
        count, peak_kb = map(int, output.split())
        assert count == batches * 10_000
        peaks[topic] = peak_kb
    # The large topic has 500 MB more. A reader may fill its buffers with a tenth of that: how far
    # Kafka's client reads ahead depends on how fast the broker and the reader are.
    assert peaks["large"] - peaks["small"] < 50_000
