"""Unreadable records of internal topics are valid: errors do not advise to skip them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Serde, Serdes, StreamsBuilder, StreamsConfig
from penstock.errors import ProcessingFailedException, StoreSerdeException, TopicSerdeException
from penstock.processors.foreign_key_wire import CombinedKeyCodec
from penstock.testing import TopologyTestDriver

TEXT = Serdes.string()
CONFIG = StreamsConfig(
    application_id="app", default_key_serde=TEXT, default_value_serde=TEXT,
    statestore_cache_max_bytes=0,
)


class OtherSchema(Serde[str]):
    """Cannot read the bytes of some topics, as if their schema had changed since.

    `readable` is the number of records that it can read before.
    """

    def __init__(self, topics: str, readable: int = 0, topic: str = "") -> None:
        self.topics, self.topic, self.readable = topics, topic, readable

    def for_topic(self, topic: str, is_key: bool) -> OtherSchema:
        return OtherSchema(self.topics, self.readable, topic)

    def serialize(self, value: str) -> bytes:  # type: ignore[override]
        return value.encode()

    def deserialize(self, data: bytes) -> str:  # type: ignore[override]
        if self.topics in self.topic:
            self.readable -= 1
            if self.readable < 0:
                raise ValueError("unknown field")
        return data.decode()


def fail(define: Callable[[StreamsBuilder], object]) -> ProcessingFailedException:
    builder = StreamsBuilder()
    define(builder)
    with pytest.raises(ProcessingFailedException) as caught:
        pipe(builder)
    return caught.value


def pipe(builder: StreamsBuilder) -> None:
    with TopologyTestDriver(builder.build(), CONFIG) as driver:
        right = driver.create_input_topic("right", TEXT, TEXT)
        right.pipe_input("v", "right")
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v")
        right.pipe_input("v", "later")
        right.pipe_input("v", "again")


def read(builder: StreamsBuilder) -> tuple[Any, Any]:
    return builder.stream("in"), builder.table("right")


def check(error: ProcessingFailedException, topic: str, part: str) -> None:
    message = str(error)
    assert f"The {part} of a record of topic app-{topic}" in message
    assert message.endswith(
        f"cannot be deserialized: unknown field. The application has written this topic itself, "
        f"with another {part} serde or an earlier schema, so the record is valid. Give the step "
        "the serde that has written it, let the previous version process the records that are "
        "left, or reset the application with 'penstock reset app'."
    )
    assert isinstance(error.__cause__, TopicSerdeException)
    # The command line prints the cause.
    assert str(error.__cause__) == message
    assert error.handler_setting is None


def test_repartition_topic() -> None:
    error = fail(lambda builder: read(builder)[0].repartition(
        name="moved", value=OtherSchema("-repartition")
    ))
    check(error, "moved-repartition", "value")


def test_repartition_topic_of_a_grouping() -> None:
    error = fail(lambda builder: read(builder)[0].group_by(
        lambda v: v, key=OtherSchema("-repartition"), name="grouped"
    ).count())
    check(error, "grouped-repartition", "key")


def foreign_key_join(builder: StreamsBuilder, left_key: Any, right_value: Any) -> None:
    left = builder.table("in", key=left_key, store="left")
    right = builder.table("right", value=right_value, store="right")
    left.join(right, lambda value: value, lambda a, b: a, name="joined")


def test_registration_topic_of_a_foreign_key_join() -> None:
    error = fail(lambda builder: foreign_key_join(builder, OtherSchema("-pk"), TEXT))
    check(error, "joined-subscription-registration-topic", "value")


def test_response_topic_of_a_foreign_key_join() -> None:
    error = fail(lambda builder: foreign_key_join(builder, TEXT, OtherSchema("-response-")))
    check(error, "joined-subscription-response-topic", "value")


def test_subscription_store_of_a_foreign_key_join() -> None:
    # The registration topic is readable, and the first read of the store.
    error = fail(lambda builder: foreign_key_join(builder, OtherSchema("-pk", 1), TEXT))
    assert isinstance(error.__cause__, StoreSerdeException)
    assert "Store 'joined-subscription-store': a value of 23 bytes" in str(error)
    assert error.handler_setting is None


def test_keys_of_the_subscription_store_name_it() -> None:
    broken = OtherSchema("-pk", topic="joined-pk")
    codec = CombinedKeyCodec(TEXT, broken).for_store("subscriptions")
    with pytest.raises(StoreSerdeException, match="Store 'subscriptions': a key of 1 bytes"):
        codec.from_bytes(codec.to_bytes("f", "p"))


def test_handler_still_decides() -> None:
    builder = StreamsBuilder()
    read(builder)[0].repartition(name="moved", value=OtherSchema("-repartition")).to("out")
    config = CONFIG.with_(deserialization_exception_handler="continue")
    with TopologyTestDriver(builder.build(), config) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "v")
        assert driver.create_output_topic("out", TEXT, TEXT).is_empty


def test_input_topics_have_the_setting() -> None:
    error = fail(lambda builder: (
        builder.stream("in", value=OtherSchema("in")), builder.stream("right")
    ))
    assert str(error).endswith(
        "To skip such records, set deserialization.exception.handler=continue."
    )
    assert error.handler_setting == "deserialization.exception.handler"


def test_wrong_serde_of_a_repartition_topic_is_not_skipped() -> None:
    error = fail(lambda builder: read(builder)[0].map_values(len).repartition(
        name="moved", value=TEXT
    ))
    assert isinstance(error.__cause__, TopicSerdeException)
    assert "does not fit a value of type int. Pass value= to the step that writes" in str(error)
    assert error.handler_setting is None
