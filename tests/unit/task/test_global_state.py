"""Global stores: their updates and their errors."""

from __future__ import annotations

import pytest

from penstock import Processor, Record, Serdes, Stores, StreamsBuilder, StreamsConfig
from penstock.record import NO_HEADERS
from penstock.task.global_state import GlobalState
from penstock.task.queue import RawRecord

STRING = Serdes.string()


class Refuses(Processor[str, str]):
    """Writes only some records to a store."""

    def process(self, record: Record[str, str]) -> None:
        if record.value == "bad":
            raise RuntimeError("boom")
        self.context.get_state_store("names")


def test_errors_in_global_stores_call_no_handler() -> None:
    builder = StreamsBuilder()
    store = Stores.key_value_store_builder(
        Stores.in_memory_key_value_store("names"), STRING, STRING
    )
    builder.add_global_store(store, "names", Refuses, key=STRING, value=STRING)
    config = StreamsConfig(application_id="app", processing_exception_handler="continue")
    state = GlobalState(builder.build(), config)
    assert state.topics == {"names"}
    with pytest.raises(RuntimeError, match="boom"):
        state.update(RawRecord("names", 0, 0, 1, b"k", b"bad", NO_HEADERS))
    state.close()


def test_unreadable_records_are_skipped_and_counted() -> None:
    builder = StreamsBuilder()
    builder.global_table("counts", key=STRING, value=Serdes.long(), store="counts")
    state = GlobalState(builder.build(), StreamsConfig(application_id="app"))
    state.update(RawRecord("counts", 0, 0, 1, b"k", b"short", NO_HEADERS))
    state.update(RawRecord("counts", 0, 1, 2, b"k", (7).to_bytes(8, "big"), NO_HEADERS))
    assert state.runtime.dropped == 1
    assert state.stores["counts"]["k"] == (7, 2)
    state.close()
