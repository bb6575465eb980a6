"""The installed command as a process: pipes, signals, terminals, concurrency."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.log import Log, RecordColumns, TopicPartition

W0 = TopicPartition("one", 0)
Command = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def one(log: Log) -> Log:
    log.create_topic("one")
    return log


def end_of(log: Log, at: TopicPartition = W0) -> int:
    return log.offsets([at])[at].end


def until(condition: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


def fill(log: Log, count: int) -> None:
    values = [b"%09d" % n for n in range(count)]
    log.append("one", 0, RecordColumns([None] * count, values))


def test_lines_are_appended_as_they_arrive(command: Command, one: Log) -> None:
    process = command("produce", "one")
    for n in range(3):
        process.stdin.write(b"line\n")
        process.stdin.flush()
        until(lambda n=n: end_of(one) == n + 1)
    out, err = process.communicate(timeout=180)
    assert (process.returncode, out, err) == (0, b"", b"Appended 3 records to 'one'.\n")


def test_interrupted_producer_reports_the_appended_records(command: Command, one: Log) -> None:
    process = command("produce", "one")
    process.stdin.write(b"first\nsecond\nhalf of the thi")
    process.stdin.flush()
    until(lambda: end_of(one) == 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=180)
    assert (process.returncode, out, err) == (130, b"", b"Appended 2 records to 'one'.\n")
    assert end_of(one) == 2


def test_interrupted_atomic_producer_appends_nothing(
    command: Command, one: Log
) -> None:
    # Interrupt during the start and while records are read.
    for wait in (0.0, 0.2, 0.6, 1.0):
        process = command("produce", "one", "--atomic", start_new_session=True)
        process.stdin.write(b"line\n" * 10_000)
        process.stdin.flush()
        time.sleep(wait)
        process.send_signal(signal.SIGKILL if wait == 0.6 else signal.SIGTERM)
        process.communicate(timeout=180)
        assert process.returncode in {143, -15, -9}
        assert end_of(one) == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_follow_prints_new_records_until_stopped(
    command: Command, one: Log, number: int, code: int
) -> None:
    fill(one, 1)
    process = command("consume", "one", "--follow", "--from-beginning")
    assert process.stdout.readline() == b"000000000\n"
    one.append("one", 0, RecordColumns([None], [b"new"]))
    assert process.stdout.readline() == b"new\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=180)
    assert (process.returncode, out, err) == (code, b"", b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_member_commits_and_leaves_the_group(
    command: Command, one: Log, number: int
) -> None:
    fill(one, 3)
    process = command("consume", "one", "--group", "g", "--follow", "--from-beginning")
    assert [process.stdout.readline() for _ in range(3)][-1] == b"000000002\n"
    until(lambda: one.group("g").members)
    process.send_signal(number)
    _, err = process.communicate(timeout=180)
    assert (process.returncode, err) == (128 + number, b"")
    assert one.group("g").members == ()
    assert one.committed("g")[W0].offset == 3


def test_closed_pipe_ends_consume_silently(command: Command, one: Log) -> None:
    fill(one, 100_000)
    process = command("consume", "one")
    assert process.stdout.readline() == b"000000000\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=180) == 141


def test_member_does_not_commit_after_a_closed_pipe(command: Command, one: Log) -> None:
    fill(one, 100_000)
    process = command("consume", "one", "--group", "g")
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=180) == 141
    assert one.committed("g") == {}
    assert one.group("g").members == ()


def test_help_into_a_closed_pipe_is_silent(command: Command) -> None:
    read, write = os.pipe()
    os.close(read)
    process = command("consume", "--help", stdout=write)
    os.close(write)
    assert process.stderr.read() == b""
    # argparse ignores the error if PYTHONUNBUFFERED is set.
    assert process.wait(timeout=180) in {0, 141}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_full_device_fails(command: Command, one: Log) -> None:
    fill(one, 10)
    with open("/dev/full", "wb") as full:
        for words in (("consume", "one", "--group", "g"), ("topics", "list")):
            process = command(*words, stdout=full)
            _, err = process.communicate(timeout=180)
            assert (process.returncode, err) == (
                1, b"penstock: error: No space left on device.\n",
            )
    assert one.committed("g") == {}


def test_two_members_share_the_partitions(command: Command, one: Log) -> None:
    one.create_topic("many", 4)
    options = ("consume", "many", "--group", "g", "--follow", "--from-beginning")
    members = [command(*options, "--format", "{partition}:{value}") for _ in range(2)]

    def is_shared() -> bool:
        shares = [len(member.partitions) for member in one.group("g").members]
        return shares == [2, 2]

    until(is_shared)
    for n in range(40):
        one.append("many", n % 4, RecordColumns([None], [b"%d" % n]))
    until(lambda: sum(offset.offset for offset in one.committed("g").values()) == 40)
    written = []
    for member in members:
        member.send_signal(signal.SIGINT)
        out, err = member.communicate(timeout=180)
        assert (member.returncode, err) == (130, b"")
        written.append(out.decode().split())
    every = Counter(line for lines in written for line in lines)
    assert every == Counter(f"{n % 4}:{n}" for n in range(40))
    assert all(len({line[0] for line in lines}) == 2 for lines in written)


@pytest.mark.slow
def test_member_takes_over_from_a_killed_one(command: Command, one: Log) -> None:
    fill(one, 5)
    options = ("consume", "one", "--group", "g", "--follow", "--from-beginning")
    first = command(*options)
    assert [first.stdout.readline() for _ in range(5)][-1] == b"000000004\n"
    until(lambda: W0 in one.committed("g"))
    second = command(*options)
    until(lambda: len(one.group("g").members) == 2)
    first.kill()
    first.communicate(timeout=180)
    one.append("one", 0, RecordColumns([None], [b"later"]))
    assert second.stdout.readline() == b"later\n"
    second.send_signal(signal.SIGINT)
    assert (second.communicate(timeout=180), second.returncode) == ((b"", b""), 130)


def test_consume_ends_if_other_members_own_all_partitions(
    command: Command, one: Log
) -> None:
    fill(one, 1)
    holder = one.join_group("g", ["one"])
    owned = holder.heartbeat([]).partitions
    process = command("consume", "one", "--group", "g")
    while process.poll() is None:
        owned &= holder.heartbeat(owned).partitions
        time.sleep(0.1)
    assert process.stdout.read() == b""
    if owned:
        assert process.stderr.read() == b"Other members of group 'g' own all partitions.\n"
    assert process.wait() == 0


def test_concurrent_producers_lose_no_records(command: Command, one: Log) -> None:
    processes = [command("produce", "one", "--quiet") for _ in range(3)]
    for at, process in enumerate(processes):
        process.stdin.write(b"".join(b"%d-%d\n" % (at, n) for n in range(2000)))
        process.stdin.close()
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0]
    got = [value for batch in one.read("one", 0, 0) for value in batch.columns().values]
    assert sorted(got) == sorted(b"%d-%d" % (at, n) for at in range(3) for n in range(2000))


def screen(command: Command, *words: object, answer: bytes = b"", **options: object) -> bytes:
    """Return what a command writes to a terminal that is its standard error and input."""
    ours, theirs = pty.openpty()
    process = command(*words, stderr=theirs, **{"stdin": theirs, **options})
    os.close(theirs)
    if answer:
        os.write(ours, answer)
    shown = b""
    try:
        while data := os.read(ours, 4096):
            shown += data
    except OSError:  # The other end is closed.
        pass
    os.close(ours)
    process.communicate(timeout=180)
    return shown


def test_progress_bar_is_shown_only_on_a_terminal(
    command: Command, one: Log, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"some line of text\n" * 500_000)
    shown = screen(command, "produce", "one", "--file", file)
    assert re.search(rb"\r\x1b\[2Kproducing .*\d%", shown)
    assert shown.endswith(b"\x1b[2KAppended 500,000 records to 'one'.\r\n")
    shown = screen(command, "consume", "one", stdout=subprocess.DEVNULL)
    assert re.search(rb"\r\x1b\[2Kconsuming .*\d%", shown)
    assert shown.endswith(b"\x1b[2K")
    process = command("consume", "one", stdout=subprocess.DEVNULL)
    assert process.communicate(timeout=60)[1] == b""


@pytest.mark.parametrize(("answer", "exists"), [(b"y\n", False), (b"\n", True), (b"no\n", True)])
def test_delete_asks_for_confirmation_on_a_terminal(
    command: Command, one: Log, answer: bytes, exists: bool
) -> None:
    shown = screen(command, "topics", "delete", "one", answer=answer)
    assert b"Delete 'one' permanently? [y/N] " in shown
    assert ("one" in {topic.name for topic in one.topics()}) == exists
