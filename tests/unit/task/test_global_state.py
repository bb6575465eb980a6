"""Global stores: their updates and their errors."""

from __future__ import annotations

import pytest

from penstock import Processor, Record, Serdes, Stores, StreamsBuilder, StreamsConfig
from penstock.errors import ProcessingFailedException
from penstock.record import NO_HEADERS
from penstock.task.global_state import GlobalState
from penstock.task.queue import RawRecord

STRING = Serdes.string()
CONFIG = StreamsConfig(application_id="app")


class Refuses(Processor[str, str]):
    """Writes only some records to a store."""

    def process(self, record: Record[str, str]) -> None:
        if record.value == "bad":
            raise RuntimeError("boom")
        self.context.get_state_store("names")


def with_store(config: StreamsConfig) -> GlobalState:
    builder = StreamsBuilder()
    store = Stores.key_value_store_builder(
        Stores.in_memory_key_value_store("names"), STRING, STRING
    )
    builder.add_global_store(store, "names", Refuses, key=STRING, value=STRING)
    return GlobalState(builder.build(), config)


def with_table(config: StreamsConfig) -> GlobalState:
    builder = StreamsBuilder()
    builder.global_table("counts", key=STRING, value=Serdes.long(), store="counts")
    return GlobalState(builder.build(), config)


BAD = RawRecord("names", 0, 0, 1, b"k", b"bad", NO_HEADERS)
SHORT = RawRecord("counts", 0, 0, 1, b"k", b"short", NO_HEADERS)


def test_errors_in_global_stores_call_no_handler_by_default() -> None:
    state = with_store(CONFIG.with_(processing_exception_handler="continue"))
    assert state.topics == {"names"}
    with pytest.raises(ProcessingFailedException, match="RuntimeError: boom") as raised:
        state.update(BAD)
    assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("names", 0, 0)
    state.close()


def test_errors_in_global_stores_call_the_handler_if_that_is_enabled() -> None:
    state = with_store(
        CONFIG.with_(
            processing_exception_handler="continue",
            processing_exception_handler_global_enabled=True,
        )
    )
    state.update(BAD)
    state.update(BAD._replace(offset=1, value=b"good"))
    state.close()


def test_unreadable_records_of_global_topics_fail_by_default() -> None:
    state = with_table(CONFIG)
    with pytest.raises(ProcessingFailedException, match="topic counts, partition 0, offset 0"):
        state.update(SHORT)
    state.close()


def test_unreadable_records_are_skipped_and_counted_if_the_handler_continues() -> None:
    state = with_table(CONFIG.with_(deserialization_exception_handler="continue"))
    state.update(SHORT)
    state.update(SHORT._replace(offset=1, value=(7).to_bytes(8, "big")))
    assert state.runtime.dropped == 1
    assert state.stores["counts"]["k"] == (7, 1)
    state.close()
