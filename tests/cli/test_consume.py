from __future__ import annotations

import json
from uuid import UUID

import pytest

from penstock import Serdes, Window, Windowed, WindowedSerdes
from penstock.cli.codecs import CODECS
from penstock.cli.formatters import TextFormatter
from penstock.cli.record_sources import ReadRecord
from penstock.log import Log, RecordColumns, TopicPartition
from penstock.partitioning import partition_of
from penstock.record import NO_HEADERS


def values(ran) -> list[str]:
    assert ran.code == 0, ran.err
    return ran.out.splitlines()


def test_existing_records_are_merged_by_timestamp(penstock, log: Log) -> None:
    ran = penstock("consume", "words")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "one\ntwo\nnull\nfour\nthree\n\udcff\n"


def test_values_are_written_byte_for_byte(penstock, log: Log) -> None:
    log.create_topic("raw")
    log.append("raw", 0, RecordColumns([None], [bytes(range(256))]))
    assert penstock("consume", "raw").out.encode("utf-8", "surrogateescape") == (
        bytes(range(256)) + b"\n"
    )


@pytest.mark.parametrize(("options", "first"), [
    (("--format", "key-value"), "a\tone"),
    (("--format", "key-value", "--key-separator", ": "), "a: one"),
    (("--format", "key-value", "--key-separator", "{}"), "a{}one"),
    (("--format", "full"), "1970-01-01T00:00:00.010Z\t0\t0\ta\tone"),
    (("--format", "{topic}-{partition}@{offset} {timestamp} {value!r:>6}"), "words-0@0 10  'one'"),
    (("--value-type", "bytes"), "b25l"),
])
def test_formats(penstock, log: Log, options, first: str) -> None:
    assert values(penstock("consume", "words", "--max", 1, *options)) == [first]


def test_text_for_null_can_be_chosen(penstock, log: Log) -> None:
    ran = penstock("consume", "words", "--partition", 0, "--null", "NULL", "--format", "key-value")
    assert values(ran) == ["a\tone", "b\tNULL", "NULL\tthree"]


def test_json_prints_one_object_per_record(penstock, log: Log) -> None:
    log.append("words", 0, RecordColumns([b"h"], [b"x"], [70], [[("t", b"1"), ("u", b"\xff"),
                                                          ("v", None)]]))
    rows = [json.loads(line) for line in values(penstock("consume", "words", "--json"))]
    assert rows[0] == {
        "topic": "words", "partition": 0, "offset": 0, "timestamp": 10, "key": "a", "value": "one",
    }
    assert rows[2]["value"] is None
    assert rows[5] == {
        "topic": "words", "partition": 1, "offset": 2, "timestamp": 60, "key": "e",
        "value_base64": "/w==",
    }
    assert rows[6]["headers"] == [
        {"name": "t", "value": "1"}, {"name": "u", "value_base64": "/w=="},
        {"name": "v", "value": None},
    ]


def test_topic_can_be_copied_as_json(penstock, log: Log) -> None:
    log.append("words", 1, RecordColumns([b"\x00"], [b'{"a":  1}'], [70], [[("u", b"\xff")]]))
    text = penstock("consume", "words", "--json").out
    log.create_topic("copy", 2)
    assert penstock("produce", "copy", "--json", stdin=text).code == 0
    assert penstock("consume", "copy", "--json").out == text.replace('"words"', '"copy"')


def test_json_keys_and_values_are_embedded(penstock, log: Log) -> None:
    log.create_topic("j")
    log.append("j", 0, RecordColumns([b"1"], [b'{ "n":\n 12345678901234567890123 }']))
    ran = penstock("consume", "j", "--json", "--key-type", "json", "--value-type", "json")
    assert ran.out.endswith('"key":1,"value":{"n":12345678901234567890123}}\n')
    assert penstock("consume", "j", "--value-type", "json").out == (
        '{"n":12345678901234567890123}\n'
    )


def test_record_of_another_type_fails_after_the_records_before_it(penstock, log: Log) -> None:
    log.create_topic("n")
    log.append("n", 0, RecordColumns([None] * 2, [b"\0" * 8, b"x"]))
    ran = penstock("consume", "n", "--value-type", "long")
    assert (ran.code, ran.out) == (1, "0\n")
    assert "The value at offset 1 of 'n' [0] is not of type long" in ran.err


@pytest.mark.parametrize(("key_type", "serde", "key", "text", "json_key"), [
    ("time-windowed:60000", WindowedSerdes.time_windowed(Serdes.string(), 60_000), "tea",
     "tea@120000/180000", "tea"),
    ("time-windowed:1m:long", WindowedSerdes.time_windowed(Serdes.long(), 60_000), 7,
     "7@120000/180000", 7),
    ("session-windowed", WindowedSerdes.session_windowed(Serdes.string()), "a@b/c",
     "a@b/c@120000/180000", "a@b/c"),
    ("session-windowed:uuid", WindowedSerdes.session_windowed(Serdes.uuid()), UUID(int=1),
     f"{UUID(int=1)}@120000/180000", str(UUID(int=1))),
])
def test_windowed_keys(penstock, log: Log, key_type, serde, key, text, json_key) -> None:
    log.create_topic("w", 3)
    raw = serde.serialize(Windowed(key, Window(120_000, 180_000)))
    partition = partition_of(serde.inner.serialize(key), 3)
    log.append("w", partition, RecordColumns([raw], [b"1"], [5]))
    options = ("--key-type", key_type)
    assert values(penstock("consume", "w", "--format", "{key}", *options)) == [text]
    written = penstock("consume", "w", "--json", *options).out
    assert json.loads(written)["key"] == {"key": json_key, "start": 120_000, "end": 180_000}
    # `produce` accepts the output and partitions by the key without its window, as Kafka does.
    log.create_topic("copy", 3)
    without_partition = json.dumps({"key": json.loads(written)["key"], "value": "1"})
    assert penstock("produce", "copy", "--json", *options, stdin=without_partition).code == 0
    assert penstock("produce", "copy", "--key-separator", "=", *options,
                    stdin=f"{text}=1").code == 0
    copied = [one for batch in log.read("copy", partition, 0) for one in batch.columns().keys]
    assert copied == [raw, raw]


def test_windowed_key_that_is_not_utf8_is_base64_in_json(penstock, log: Log) -> None:
    log.create_topic("w")
    log.append("w", 0, RecordColumns([b"\xff" + b"\0" * 16], [b"1"]))
    ran = penstock("consume", "w", "--json", "--key-type", "session-windowed")
    assert json.loads(ran.out)["key"] == {"key_base64": "/w==", "start": 0, "end": 0}


def test_invalid_windowed_key_fails(penstock, log: Log) -> None:
    for key_type in ("time-windowed:1", "session-windowed"):
        ran = penstock("consume", "words", "--format", "key-value", "--key-type", key_type)
        assert (ran.code, ran.out) == (1, "")
        assert f"The key at offset 0 of 'words' [0] is not of type {key_type}: " in ran.err


@pytest.mark.parametrize(("line", "message"), [
    ("tea=1", "'tea' does not have the form KEY@START/END."),
    ("tea@0/5=1", "The window that starts at 0 ends at 10, not at 5."),
    (f"tea@{2**63}/1=1", f"{2**63} is not a time in epoch milliseconds."),
])
def test_produce_rejects_invalid_windows(penstock, log: Log, line: str, message: str) -> None:
    ran = penstock("produce", "words", "--key-separator", "=", "--key-type", "time-windowed:10",
                   stdin=line)
    assert (ran.code, ran.err) == (1, f"penstock: error: Line 1: {message}\n")


@pytest.mark.parametrize("wrong", [
    "time-windowed", "time-windowed:", "time-windowed:0", "time-windowed:x", "time-windowed:5:x",
    "time-windowed:5:long:long", "session-windowed:5", "windowed", "",
])
def test_unknown_key_type_is_wrong_usage(penstock, log: Log, wrong: str) -> None:
    ran = penstock("consume", "words", "--key-type", wrong)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("penstock: error: argument --key-type: ")


@pytest.mark.parametrize(("options", "expected"), [
    (("--offset", "beginning", "--max", "2"), ["one", "two"]),
    (("--from-beginning", "--max", "2"), ["one", "two"]),
    (("--offset", "-1", "--format", "{partition}"), ["0", "1"]),
    (("--offset", "-99", "--max", "1"), ["one"]),
    (("--offset", "end"), []),
    (("--partition", "1"), ["two", "four", "\udcff"]),
    (("--partition", "1", "--partition", "0", "--max", "3"), ["one", "two", "null"]),
    (("--partition", "0", "--offset", "2"), ["three"]),
    (("--partition", "0", "--offset", "3"), []),
    (("--from-time", "40", "--max", "2"), ["four", "three"]),
    (("--from-time", "1970-01-01T00:00:00.055Z", "--format", "{timestamp}"), ["60"]),
    (("--from-time", "now"), []),
])
def test_start_position(penstock, log: Log, options, expected: list[str]) -> None:
    assert values(penstock("consume", "words", *options)) == expected


@pytest.mark.parametrize("wrong", [
    ("--offset", "1"), ("--offset", "first"), ("--from-beginning", "--offset", "end"),
    ("--group", "g", "--partition", "0"), ("--group", "g", "--offset", "end"),
    ("--json", "--format", "full"), ("--format", "{nothing}"), ("--format", "plain"),
    ("--format", "{value"), ("--format", "{value.__class__}"), ("--max", "0"),
    ("--from", "1"),
])
def test_invalid_options_are_wrong_usage(penstock, log: Log, wrong) -> None:
    ran = penstock("consume", "words", *wrong)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("penstock: error: ")


def test_unknown_offset_partition_or_topic_fails(penstock, log: Log) -> None:
    ran = penstock("consume", "words", "--partition", 0, "--offset", 4)
    assert (ran.code, "The partition goes from 0 to 3" in ran.err) == (1, True)
    assert penstock("consume", "words", "--partition", 2).code == 1
    assert penstock("consume", "nothing").code == 1


def test_group_resumes_at_its_committed_offsets(penstock, log: Log) -> None:
    assert values(penstock("consume", "words", "--group", "g", "--max", 2)) == ["one", "two"]
    assert values(penstock("consume", "words", "--group", "g", "--max", 3, "--from-beginning")) == [
        "null", "four", "three",
    ]
    committed = {at: offset.offset for at, offset in log.committed("g").items()}
    assert committed == {TopicPartition("words", 0): 3, TopicPartition("words", 1): 2}
    assert values(penstock("consume", "words", "--group", "g")) == ["\udcff"]
    assert values(penstock("consume", "words", "--group", "g")) == []
    assert log.group("g").members == ()


def test_group_commits_records_written_before_an_error(penstock, log: Log) -> None:
    log.create_topic("n")
    log.append("n", 0, RecordColumns([None] * 3, [b"\0" * 8, b"\0" * 8, b"x"]))
    ran = penstock("consume", "n", "--value-type", "long", "--group", "g")
    assert (ran.code, ran.out) == (1, "0\n0\n")
    assert log.committed("g")[TopicPartition("n", 0)].offset == 2
    assert log.group("g").members == ()


def test_group_reports_records_removed_by_retention(penstock, log: Log) -> None:
    penstock("consume", "words", "--group", "g", "--max", 1)
    log.delete_records("words", 0, 2)
    ran = penstock("consume", "words", "--group", "g")
    assert (ran.code, ran.out) == (0, "two\nfour\nthree\n\udcff\n")
    assert "Retention has deleted that offset. Continuing at 2." in ran.err


def test_group_commits_past_compacted_records(penstock, log: Log) -> None:
    log.create_topic("c", config={"cleanup.policy": "compact", "delete.retention.ms": 0})
    log.append("c", 0, RecordColumns([b"a", b"b", b"a"], [b"1", b"2", b"3"]))
    log.append("c", 0, RecordColumns([b"d"], [None]))
    log.clean(["c"], force=True)
    log.clean(["c"], force=True)
    ran = penstock("consume", "c", "--group", "g")
    assert values(ran)[:2] == ["2", "3"]
    assert log.committed("g")[TopicPartition("c", 0)].offset == 4


def test_control_characters_are_escaped_on_a_terminal() -> None:
    text = CODECS["string"]
    record = ReadRecord(
        TopicPartition("t", 0), 0, 0, None, b"\x1b[2Jred\xff\ttab", NO_HEADERS, 1
    )
    format_record = TextFormatter("{value}", text, text, "null", True)
    assert format_record(record) == b"\\x1b[2Jred\\xff\ttab\n"
