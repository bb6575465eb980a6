"""process_values() cannot change the key of a record."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import pytest

from penstock import (
    FixedKeyProcessor,
    FixedKeyRecord,
    Record,
    Serdes,
    StreamsBuilder,
    StreamsException,
)
from penstock.record import Headers
from penstock.testing import TopologyTestDriver, fixed_key_record

TEXT = Serdes.string()


def outputs(process: Any, *records: tuple[str, str]) -> list[tuple[Any, Any]]:
    class User(FixedKeyProcessor[str, str]):
        def process(self, record: FixedKeyRecord[str, str]) -> None:
            process(self.context, record)

    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).process_values(User, name="user").to(
        "out", key=TEXT, value=TEXT
    )
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        for key, value in records:
            topic.pipe_input(key, value)
        return driver.create_output_topic("out", TEXT, TEXT).read_key_values_to_list()


def test_forwarding_a_record_is_an_error() -> None:
    def process(context: Any, record: Any) -> None:
        context.forward(Record("other", record.value, record.timestamp))

    with pytest.raises(StreamsException) as raised:
        outputs(process, ("k", "v"))
    assert "forwards a FixedKeyRecord, not a Record" in str(raised.value.__cause__ or raised.value)


def test_fixed_key_record_has_no_constructor() -> None:
    create: Any = FixedKeyRecord
    for arguments in (("k", "v", 1), ()):
        with pytest.raises(TypeError, match="cannot be created or get another key"):
            create(*arguments)


def test_key_of_a_fixed_key_record_cannot_be_replaced() -> None:
    record: Any = fixed_key_record("k", "v", 1)
    with pytest.raises(TypeError, match="cannot be created or get another key"):
        replace(record, key="other")
    with pytest.raises(AttributeError):
        record.key = "other"


def test_fixed_key_record_is_copied_with_its_key() -> None:
    record = fixed_key_record("k", "v", 1)
    assert record.with_value("w") == fixed_key_record("k", "w", 1)
    assert record.with_timestamp(2).with_headers([("h", b"1")]) == fixed_key_record(
        "k", "v", 2, Headers([("h", b"1")])
    )
    assert pickle.loads(pickle.dumps(record)) == copy.deepcopy(record) == record
    assert "key='k', value='v', timestamp=1" in repr(record)


def test_processor_forwards_kept_records_later() -> None:
    kept: list[Any] = []

    def process(context: Any, record: Any) -> None:
        kept.append(record)
        if len(kept) == 2:
            for each in kept:
                context.forward(each.with_value(each.value.upper()))

    assert outputs(process, ("a", "x"), ("b", "y")) == [("a", "X"), ("b", "Y")]
