from __future__ import annotations

import json
import time
from io import BytesIO
from pathlib import Path

import pytest

from penstock.cli.line_reader import read_chunks
from penstock.log import Log
from penstock.partitioning import partition_of
from penstock.serdes.builtin import Serdes


def rows(log: Log, topic: str) -> list[tuple]:
    """Return (partition, key, value, timestamp, headers) of all records."""
    found = []
    for partition in range(log.topic(topic).partitions):
        for batch in log.read(topic, partition, 0):
            got = batch.columns()
            for n in range(len(batch)):
                headers = () if got.headers is None else tuple(got.headers[n])
                found.append((partition, got.keys[n], got.values[n], got.timestamps[n], headers))
    return found


@pytest.fixture
def topics(log: Log) -> Log:
    log.create_topic("out", 3)
    log.create_topic("one")
    return log


def test_line_is_a_value(penstock, topics: Log) -> None:
    ran = penstock("produce", "one", stdin=b"first\r\n\nlast \xff without an end")
    assert (ran.code, ran.out, ran.err) == (0, "", "Appended 3 records to 'one'.\n")
    got = rows(topics, "one")
    assert [row[1:3] for row in got] == [
        (None, b"first"), (None, b""), (None, b"last \xff without an end"),
    ]
    assert abs(got[0][3] - time.time() * 1000) < 60_000


def test_empty_input_appends_nothing(penstock, topics: Log) -> None:
    assert penstock("produce", "one") == (0, "", "")


def test_keys_use_kafkas_partitioner_and_keep_their_order(penstock, topics: Log) -> None:
    lines = "".join(f"k{n % 7}::{n}\n" for n in range(50))
    assert penstock("produce", "out", "--key-separator", "::", stdin=lines).code == 0
    got = rows(topics, "out")
    assert len(got) == 50
    assert all(partition == partition_of(key, 3) for partition, key, *_ in got)
    for n in range(7):
        mine = [int(value) for _, key, value, *_ in got if key == b"k%d" % n]
        assert mine == sorted(mine)


def test_records_without_a_key_use_partitions_in_turn_across_calls(penstock, topics: Log) -> None:
    for n in range(3):
        penstock("produce", "out", stdin=f"{n}\n")
    penstock("produce", "out", stdin="3\n4\n5\n6\n")
    assert sorted(row[0] for row in rows(topics, "out")) == [0, 0, 0, 1, 1, 2, 2]


def test_timestamp_headers_and_partition_options(penstock, topics: Log) -> None:
    ran = penstock(
        "produce", "out", "--timestamp", "1970-01-01T00:00:01Z", "--header", "a=1",
        "--header", "b=x=y", "--partition", 2, "--quiet", stdin="v\n",
    )
    assert ran == (0, "", "")
    assert rows(topics, "out") == [(2, None, b"v", 1000, (("a", b"1"), ("b", b"x=y")))]


def test_null_option(penstock, topics: Log) -> None:
    penstock("produce", "one", "--key-separator", ":", "--null", "-", stdin="a:-\n-:b\n:\n")
    assert [row[1:3] for row in rows(topics, "one")] == [(b"a", None), (None, b"b"), (b"", b"")]


def test_line_without_a_separator_fails_with_its_number(penstock, topics: Log) -> None:
    ran = penstock("produce", "one", "--key-separator", ":", stdin="a:1\nb\n")
    assert (ran.code, ran.err) == (
        1, "penstock: error: Line 2: The line has no separator ':'.\n"
    )


def test_json_lines(penstock, topics: Log) -> None:
    lines = [
        {"key": "k", "value": "text", "timestamp": 5, "partition": 1},
        {"value": {"n": 1, "list": [1.50, None]}, "partition": 0, "timestamp": 0},
        {"key": 7, "value": None, "partition": 0, "timestamp": 0, "headers": {"h": "1", "n": None}},
        {"key_base64": "/w==", "partition": 0, "timestamp": 0,
         "headers": [{"name": "h", "value": "1"}, {"name": "h", "value_base64": "AA=="}]},
    ]
    text = "\n".join(map(json.dumps, lines))
    assert penstock("produce", "out", "--json", "--header", "all=1", stdin=text).code == 0
    every = ("all", b"1")
    assert rows(topics, "out") == [
        (0, None, b'{"n":1,"list":[1.5,null]}', 0, (every,)),
        (0, b"7", None, 0, (("h", b"1"), ("n", None), every)),
        (0, b"\xff", None, 0, (("h", b"1"), ("h", b"\x00"), every)),
        (1, b"k", b"text", 5, (every,)),
    ]


@pytest.mark.parametrize(("line", "message"), [
    ("{", "Line 2: The line is not a JSON record"),
    ('{"vlaue": 1}', "unknown field `vlaue`"),
    ('{"timestamp": "noon"}', "Expected `int | null`, got `str` - at `$.timestamp`"),
    ('{"value": 1, "value_base64": ""}', "value and value_base64 cannot be combined"),
    ('{"value_base64": "?"}', "is not base64"),
    ('{"partition": 9}', "Topic 'out' has no partition 9. It has 3, numbered from 0."),
    ('{"timestamp": -1}', "-1"),
])
def test_invalid_json_line_fails(penstock, topics: Log, line: str, message: str) -> None:
    ran = penstock("produce", "out", "--json", stdin=f'{{"value": "x"}}\n{line}\n')
    assert (ran.code, ran.out) == (1, "")
    assert message in ran.err


@pytest.mark.parametrize(("value_type", "text", "serde"), [
    ("long", "-42", Serdes.long()), ("integer", "7", Serdes.integer()),
    ("short", "7", Serdes.short()), ("double", "1.5", Serdes.double()),
    ("float", "1.5", Serdes.float()), ("boolean", "true", Serdes.boolean()),
    ("uuid", "12345678-1234-5678-1234-567812345678", Serdes.uuid()),
])
def test_value_types(penstock, topics: Log, value_type: str, text: str, serde) -> None:
    assert penstock("produce", "one", "--value-type", value_type, stdin=text + "\n").code == 0
    quoted = text if value_type != "uuid" else f'"{text}"'
    line = f'{{"value": {quoted}}}\n'
    assert penstock("produce", "one", "--value-type", value_type, "--json", stdin=line).code == 0
    first, second = (row[2] for row in rows(topics, "one"))
    assert first == second
    assert str(serde.deserialize(first)).lower() == text
    shown = penstock("consume", "one", "--value-type", value_type)
    assert shown.out == f"{text}\n{text}\n"
    (again, _) = penstock("consume", "one", "--value-type", value_type, "--json").out.splitlines()
    assert json.loads(again)["value"] == json.loads(quoted)


def test_value_of_another_type_fails(penstock, topics: Log) -> None:
    ran = penstock("produce", "one", "--value-type", "long", stdin="1\ntwo\n")
    assert (ran.code, ran.err) == (1, "penstock: error: Line 2: 'two' is not of type long.\n")
    ran = penstock("produce", "one", "--value-type", "long", stdin=f"{2**63}\n")
    assert ran.code == 1
    ran = penstock("produce", "one", "--value-type", "json", stdin="{nope\n")
    assert (ran.code, "Line 1: The bytes are not JSON" in ran.err) == (1, True)


def test_atomic_appends_all_records_or_none(penstock, topics: Log, monkeypatch) -> None:
    monkeypatch.setattr("penstock.cli.line_reader.CHUNK_BYTES", 8)
    lines = "a:1\nb:2\nc:3\nd:4\nwrong\n"
    options = ("produce", "one", "--key-separator", ":")
    assert penstock(*options, "--atomic", stdin=lines).code == 1
    assert rows(topics, "one") == []
    ran = penstock(*options, stdin=lines)
    assert (ran.code, ran.err.splitlines()[0]) == (1, "Appended 4 records to 'one'.")
    assert "Line 5:" in ran.err
    ran = penstock(*options, "--atomic", stdin="x:1\ny:2\n")
    assert (ran.code, ran.err) == (0, "Appended 2 records to 'one'.\n")
    assert len(rows(topics, "one")) == 6


def test_file_is_read_like_standard_input(penstock, topics: Log, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_bytes(b"".join(b"%d\n" % n for n in range(300_000)))
    assert penstock("produce", "one", "--file", file).code == 0
    assert [int(row[2]) for row in rows(topics, "one")] == list(range(300_000))
    ran = penstock("produce", "one", "--file", tmp_path / "nothing")
    assert (ran.code, ran.err) == (
        1, f"penstock: error: {tmp_path / 'nothing'}: No such file or directory.\n",
    )


def test_topic_is_created_only_with_create(penstock, path: Path) -> None:
    assert penstock("produce", "new", stdin="x\n").code == 1
    assert not path.exists()
    assert penstock("produce", "new", "--create", stdin="x\n").code == 0
    assert penstock("produce", "new", "--create", stdin="y\n").code == 0
    assert penstock("consume", "new").out == "x\ny\n"


def test_record_rejected_by_the_topic_fails(penstock, topics: Log) -> None:
    topics.alter_topic("one", {"max.message.bytes": 10})
    ran = penstock("produce", "one", stdin="x" * 11 + "\n")
    assert (ran.code, "max.message.bytes is 10" in ran.err) == (1, True)
    topics.alter_topic("one", {"cleanup.policy": "compact"})
    assert penstock("produce", "one", stdin="no key\n").code == 1


@pytest.mark.parametrize("wrong", [
    ("--json", "--key-separator", ":"), ("--json", "--null", "x"), ("--key-type", "long"),
    ("--timestamp", "yesterday"), ("--header", "x"), ("--key-separator", ""),
    ("--value-type", "int"), ("--partition", "-1"),
])
def test_invalid_options_are_wrong_usage(penstock, topics: Log, wrong) -> None:
    ran = penstock("produce", "one", *wrong, stdin="x\n")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("penstock: error: ")
    assert rows(topics, "one") == []


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_chunks_end_at_line_ends(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.line_reader.CHUNK_BYTES", size)
    text = b"".join(b"x" * (n % 50) + b"\n" for n in range(2000)) + b"end"
    lines = [line for chunk in read_chunks(BytesIO(text)) for line in chunk]
    assert lines == text.split(b"\n")
