"""The installed command as processes: pipes, signals, terminals, and several at once."""

from __future__ import annotations

import os
import pty
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
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def fill(log: Log, count: int) -> None:
    values = [b"%09d" % n for n in range(count)]
    log.append("one", 0, RecordColumns([None] * count, values))


def test_lines_are_appended_as_they_come(command: Command, one: Log) -> None:
    process = command("produce", "one")
    for n in range(3):
        process.stdin.write(b"line\n")
        process.stdin.flush()
        until(lambda n=n: end_of(one) == n + 1)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (0, b"", b"Appended 3 records to 'one'.\n")


def test_a_producer_that_is_interrupted_says_what_it_did(command: Command, one: Log) -> None:
    process = command("produce", "one")
    process.stdin.write(b"first\nsecond\nhalf of the thi")
    process.stdin.flush()
    until(lambda: end_of(one) == 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, b"", b"Appended 2 records to 'one'.\n")
    assert end_of(one) == 2


def test_an_atomic_producer_that_is_interrupted_has_done_nothing(
    command: Command, one: Log
) -> None:
    # In the middle, and from the beginning to the end, of its life.
    for wait in (0.0, 0.2, 0.6, 1.0):
        process = command("produce", "one", "--atomic", start_new_session=True)
        process.stdin.write(b"line\n" * 10_000)
        process.stdin.flush()
        time.sleep(wait)
        process.send_signal(signal.SIGKILL if wait == 0.6 else signal.SIGTERM)
        process.communicate(timeout=30)
        assert process.returncode in {143, -15, -9}
        assert end_of(one) == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_follower_prints_what_comes_until_it_is_stopped(
    command: Command, one: Log, number: int, code: int
) -> None:
    fill(one, 1)
    process = command("consume", "one", "--follow", "--from-beginning")
    assert process.stdout.readline() == b"000000000\n"
    one.append("one", 0, RecordColumns([None], [b"new"]))
    assert process.stdout.readline() == b"new\n"
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (code, b"", b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_member_that_is_stopped_has_committed_and_left(
    command: Command, one: Log, number: int
) -> None:
    fill(one, 3)
    process = command("consume", "one", "--group", "g", "--follow", "--from-beginning")
    assert [process.stdout.readline() for _ in range(3)][-1] == b"000000002\n"
    until(lambda: one.group("g").members)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (128 + number, b"")
    assert one.group("g").members == ()
    assert one.committed("g")[W0].offset == 3


def test_a_receiver_that_goes_away_is_no_error_to_speak_of(command: Command, one: Log) -> None:
    fill(one, 100_000)
    process = command("consume", "one")
    assert process.stdout.readline() == b"000000000\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=30) == 141


def test_a_member_does_not_commit_what_was_not_received(command: Command, one: Log) -> None:
    fill(one, 100_000)
    process = command("consume", "one", "--group", "g")
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=30) == 141
    assert one.committed("g") == {}
    assert one.group("g").members == ()


def test_help_may_be_cut_off(command: Command) -> None:
    read, write = os.pipe()
    os.close(read)
    process = command("consume", "--help", stdout=write)
    os.close(write)
    assert process.stderr.read() == b""
    # argparse passes over an error if Python was told not to buffer.
    assert process.wait(timeout=30) in {0, 141}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no full device")
def test_output_that_does_not_fit_is_a_failure(command: Command, one: Log) -> None:
    fill(one, 10)
    with open("/dev/full", "wb") as full:
        for words in (("consume", "one", "--group", "g"), ("topics", "list")):
            process = command(*words, stdout=full)
            _, err = process.communicate(timeout=30)
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
    until(lambda: sum(place.offset for place in one.committed("g").values()) == 40)
    written = []
    for member in members:
        member.send_signal(signal.SIGINT)
        out, err = member.communicate(timeout=30)
        assert (member.returncode, err) == (130, b"")
        written.append(out.decode().split())
    every = Counter(line for lines in written for line in lines)
    assert every == Counter(f"{n % 4}:{n}" for n in range(40))
    assert all(len({line[0] for line in lines}) == 2 for lines in written)


@pytest.mark.slow
def test_a_member_takes_over_from_one_that_was_killed(command: Command, one: Log) -> None:
    fill(one, 5)
    options = ("consume", "one", "--group", "g", "--follow", "--from-beginning")
    first = command(*options)
    assert [first.stdout.readline() for _ in range(5)][-1] == b"000000004\n"
    until(lambda: W0 in one.committed("g"))
    second = command(*options)
    until(lambda: len(one.group("g").members) == 2)
    first.kill()
    first.communicate(timeout=30)
    one.append("one", 0, RecordColumns([None], [b"later"]))
    assert second.stdout.readline() == b"later\n"
    second.send_signal(signal.SIGINT)
    assert (second.communicate(timeout=30), second.returncode) == ((b"", b""), 130)


def test_one_that_does_not_follow_ends_if_others_have_all_partitions(
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
        assert process.stderr.read() == b"Other members of group 'g' have all partitions.\n"
    assert process.wait() == 0


def test_many_producers_lose_nothing(command: Command, one: Log) -> None:
    processes = [command("produce", "one", "--quiet") for _ in range(3)]
    for at, process in enumerate(processes):
        process.stdin.write(b"".join(b"%d-%d\n" % (at, n) for n in range(2000)))
        process.stdin.close()
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0]
    got = [value for batch in one.read("one", 0, 0) for value in batch.columns().values]
    assert sorted(got) == sorted(b"%d-%d" % (at, n) for at in range(3) for n in range(2000))


def screen(command: Command, *words: object, answer: bytes = b"", **options: object) -> bytes:
    """What a command shows on a terminal that is its standard error (and input, if asked)."""
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
    process.communicate(timeout=30)
    return shown


def test_long_work_shows_a_bar_on_a_terminal_only(
    command: Command, one: Log, tmp_path: Path
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"some line of text\n" * 500_000)
    shown = screen(command, "produce", "one", "--file", file)
    assert b"\rproducing [" in shown
    assert shown.endswith(b"\x1b[KAppended 500,000 records to 'one'.\r\n")
    shown = screen(command, "consume", "one", stdout=subprocess.DEVNULL)
    assert b"\rconsuming [#" in shown
    assert shown.endswith(b"\x1b[K")
    process = command("consume", "one", stdout=subprocess.DEVNULL)
    assert process.communicate(timeout=60)[1] == b""


@pytest.mark.parametrize(("answer", "is_left"), [(b"y\n", False), (b"\n", True), (b"no\n", True)])
def test_delete_asks_whoever_sits_there(
    command: Command, one: Log, answer: bytes, is_left: bool
) -> None:
    shown = screen(command, "topics", "delete", "one", answer=answer)
    assert b"Delete 'one' for good? [y/N] " in shown
    assert ("one" in {topic.name for topic in one.topics()}) == is_left
