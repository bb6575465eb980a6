"""The task in batches: order, boundaries, offsets, failures, and resuming in the next batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from penstock import (
    Processor,
    PunctuationType,
    Record,
    Serde,
    Serdes,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    Topology,
)
from penstock.errors import NotSentException, ProcessingFailedException, StreamsException
from penstock.record import PartitionColumns, TaskId
from penstock.stores.bytes.store import BytesStore, open_in_memory
from penstock.task.blueprint import Blueprint
from penstock.task.queue import RecordRange
from penstock.task.record_limits import RecordLimits
from penstock.task.result import FORMAT_VERSION, Output, TaskResult, TaskState
from penstock.task.runtime import Environment
from penstock.task.task import Task

STRING = Serdes.string()


def topology_of(say: Callable[[StreamsBuilder], object]) -> Topology:
    builder = StreamsBuilder()
    say(builder)
    return builder.build()


def task_of(
    topology: Topology, state: TaskState | None = None, *, cache_bytes: int = 0, **environment: Any
) -> Task:
    config = StreamsConfig(
        application_id="app", default_key_serde=STRING, default_value_serde=STRING,
        statestore_cache_max_bytes=cache_bytes,
    )
    blueprint = Blueprint.of(topology, config)
    task = Task(blueprint, TaskId(0, 0), Environment(**environment), state)
    task.start()
    for source in blueprint.sources:
        for topic in source.topics:
            task.subscribe(source.name, blueprint.topic(topic), 0)
    return task


def records(*rows: tuple[str, int], first: int = 0, cut: bool = False) -> RecordRange:
    """(value, timestamp) rows with key k and offsets from `first`."""
    return record_range(
        range(first, first + len(rows)), [time for _, time in rows], [b"k"] * len(rows),
        [value.encode() for value, _ in rows], cut=cut,
    )


def record_range(
    offsets: Sequence[int], timestamps: Sequence[int], keys: Sequence[bytes],
    values: Sequence[bytes], *, topic: str = "a", cut: bool = False,
) -> RecordRange:
    columns = PartitionColumns(
        topic=topic, partition=0, offsets=offsets, timestamps=timestamps, keys=keys,
        values=values,
    )
    return RecordRange(columns, cut)


def values(result: TaskResult) -> list[str]:
    return [(Output._make(row).value or b"").decode() for row in result.outputs]


def two_topics(builder: StreamsBuilder) -> None:
    builder.stream("a").merge(builder.stream("b")).to("out")


def test_records_of_several_partitions_are_processed_by_time() -> None:
    task = task_of(topology_of(two_topics))
    result = task.run({
        ("a", 0): records(("a1", 1), ("a5", 5), ("a6", 6)), ("b", 0): records(("b2", 2), ("b9", 9)),
    })
    assert values(result) == ["a1", "b2", "a5", "a6", "b9"]
    assert result.offsets == {("a", 0): 3, ("b", 0): 2}
    assert result.state.stream_time == 9
    assert result.format_version == FORMAT_VERSION


def test_cut_range_ends_the_batch_when_it_runs_empty() -> None:
    task = task_of(topology_of(two_topics))
    result = task.run({
        ("a", 0): records(("a1", 1), ("a2", 2), cut=True),
        ("b", 0): records(("b0", 0), ("b5", 5), ("b6", 6)),
    })
    assert values(result) == ["b0", "a1", "a2"]
    assert result.offsets == {("a", 0): 2, ("b", 0): 1}


def test_no_record_is_processed_while_a_cut_range_is_empty() -> None:
    task = task_of(topology_of(two_topics))
    result = task.run({("a", 0): records(cut=True), ("b", 0): records(("b0", 0))})
    assert values(result) == []
    assert result.offsets == {}


def test_batch_ends_when_its_result_reaches_the_limit() -> None:
    task = task_of(topology_of(two_topics), max_result_bytes=1000)
    many = records(*[("x" * 100, time) for time in range(5000)])
    result = task.run({("a", 0): many})
    assert 0 < len(result.outputs) < 5000
    assert result.offsets == {("a", 0): len(result.outputs)}


def test_batch_boundaries_do_not_change_results() -> None:
    def say(builder: StreamsBuilder) -> None:
        builder.stream("a").group_by_key().reduce(lambda old, new: old + new).to_stream().to("out")

    whole = task_of(topology_of(say)).run({("a", 0): records(("x", 1), ("y", 2), ("z", 3))})
    topology = topology_of(say)
    kept: dict[str, BytesStore] = {}

    def reopen(name: str) -> BytesStore:
        return kept.setdefault(name, open_in_memory(name))

    state, seen = None, []
    for number, row in enumerate([("x", 1), ("y", 2), ("z", 3)]):
        task = task_of(topology, state, open_bytes=reopen)
        result = task.run({("a", 0): records(row, first=number)})
        task.advance()
        state = result.state
        seen += result.outputs
    assert seen == whole.outputs
    assert state == whole.state


class Ticker(Processor[str, str]):
    """Forwards the times of its punctuations."""

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(10, PunctuationType.STREAM_TIME, self.tick)
        context.schedule(100, PunctuationType.WALL_CLOCK_TIME, self.tock)

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)

    def tick(self, now: int) -> None:
        self.context.forward(Record("tick", f"tick {now}", now))

    def tock(self, now: int) -> None:
        self.context.forward(Record("tock", f"tock {now}", now))


def test_schedules_continue_in_the_next_batch() -> None:
    topology = topology_of(lambda builder: builder.stream("a").process(Ticker).to("out"))
    first = task_of(topology, now=0).run({("a", 0): records(("x", 5))})
    assert values(first) == ["x", "tick 5"]
    assert first.next_wall_punctuation == 100
    second = task_of(topology, first.state, now=250).run({("a", 0): records(("y", 9), first=1)})
    assert values(second) == ["tock 250", "y"]
    assert second.next_wall_punctuation == 300
    third = task_of(topology, second.state, now=260).run({("a", 0): records(("z", 31), first=2)})
    assert values(third) == ["z", "tick 31"]


def test_failed_batch_returns_a_result_with_the_location() -> None:
    def fail(value: str) -> str:
        raise RuntimeError("boom")

    topology = topology_of(
        lambda builder: builder.stream("a").map_values(fail, name="explode").to("out")
    )
    result = task_of(topology).run({("a", 0): records(("x", 1), first=41)})
    failure = result.failure
    assert isinstance(failure, ProcessingFailedException)
    assert (failure.processor, failure.topic, failure.offset) == ("explode", "a", 41)
    assert failure.key == "k"
    assert "boom" in str(failure)
    assert isinstance(failure.__cause__, RuntimeError)
    assert result.outputs == []


@pytest.mark.parametrize("cache_bytes", [0, 300, 100_000])
def test_rows_do_not_depend_on_the_cache_size(cache_bytes: int) -> None:
    topology = topology_of(
        lambda builder: builder.stream("a").group_by_key().count(store="counts").to_stream().to(
            "out", key=STRING, value=Serdes.long()
        )
    )
    task = task_of(topology, cache_bytes=cache_bytes)
    keys = [b"k%d" % (number * 7 % 13) for number in range(2000)]
    task.run({("a", 0): record_range(range(2000), range(2000), keys, [b"v"] * 2000)})
    task.advance()
    rows = dict(task.runtime.stores["counts"].all())
    assert sum(row.value for row in rows.values()) == 2000
    assert rows["k0"].timestamp == max(n for n in range(2000) if keys[n] == b"k0")


def test_cached_outputs_are_the_latest_values_in_write_order() -> None:
    topology = topology_of(
        lambda builder: builder.stream("a").group_by_key().count().to_stream().to(
            "out", key=STRING, value=Serdes.long()
        )
    )
    task = task_of(topology, cache_bytes=100_000)
    result = task.run({
        ("a", 0): record_range(
            range(4), range(4), [b"x", b"y", b"x", b"z"], [b"v"] * 4
        )
    })
    assert [(row[2], row[3][-1]) for row in result.outputs] == [(b"y", 1), (b"x", 2), (b"z", 1)]
    assert len(result.changelog) == 3


def test_resources_exist_as_long_as_the_environment() -> None:
    made: list[str] = []

    class Asks(Processor[str, str]):
        def process(self, record: Record[str, str]) -> None:
            self.context.resource("connection", lambda: made.append("made") or object())

    topology = topology_of(lambda builder: builder.stream("a").process(Asks))
    resources: dict[str, Any] = {}
    for _ in range(2):
        task_of(topology, resources=resources).run({("a", 0): records(("x", 1), ("y", 2))})
    assert made == ["made"]


def test_custom_store_is_used_and_restored() -> None:
    from penstock import StoreBuilder

    class Register:
        """Stores one string per key and logs it."""

        persistent = False

        def __init__(self) -> None:
            self.name = "register"
            self.rows: dict[bytes, bytes | None] = {}
            self.is_open = False

        def init(self, context: Any) -> None:
            self.context = context
            self.is_open = True

        def put(self, key: str, value: str) -> None:
            self.rows[key.encode()] = value.encode()
            current = self.context.current
            self.context.log_change(
                self.name, key.encode(), value.encode(), current.timestamp, current.headers
            )

        def commit(self) -> None: ...

        def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Any) -> None:
            self.rows[key] = value

        def close(self) -> None:
            self.is_open = False

    class Keeper(Processor[str, str]):
        def process(self, record: Record[str, str]) -> None:
            self.context.get_state_store("register").put(record.key, record.value)

    def say(builder: StreamsBuilder) -> None:
        builder.add_state_store(StoreBuilder.custom("register", Register))
        builder.stream("a").process(Keeper, "register")

    topology = topology_of(say)
    task = task_of(topology)
    result = task.run({("a", 0): records(("x", 1), ("y", 2))})
    assert [row[1:4] for row in result.changelog] == [(b"k", b"x", 1), (b"k", b"y", 2)]
    again = task_of(topology)
    for _, key, value, timestamp, headers in result.changelog:
        again.runtime.stores["register"].restore(key, value, timestamp, headers)
    assert again.runtime.stores["register"].rows == {b"k": b"y"}


def test_lru_stores_keep_the_newest_keys() -> None:
    class Remember(Processor[str, str]):
        def process(self, record: Record[str, str]) -> None:
            self.context.get_state_store("lru").put(record.value, record.value)

    def say(builder: StreamsBuilder) -> None:
        builder.add_state_store(
            Stores.key_value_store_builder(Stores.lru_map("lru", 2), STRING, STRING)
        )
        builder.stream("a").process(Remember, "lru")

    task = task_of(topology_of(say))
    task.run({("a", 0): records(("x", 1), ("y", 2), ("z", 3))})
    assert [key for key, _ in task.runtime.stores["lru"].all()] == ["y", "z"]


def large_and_small(builder: StreamsBuilder) -> None:
    builder.stream("a").to("out")


def test_record_that_the_log_would_reject_fails_the_batch() -> None:
    task = task_of(topology_of(large_and_small), limits_of=lambda topic: RecordLimits(10))
    result = task.run({("a", 0): records(("small", 1), ("x" * 100, 2))})
    assert result.failure is not None
    assert "max.message.bytes" in str(result.failure)


@pytest.mark.parametrize("refusing", [
    {"limits_of": lambda topic: RecordLimits(10)}, {"partitions_of": lambda topic: None},
], ids=["too large", "no such topic"])
def test_rejected_record_is_reported_with_its_source_record(refusing: Any) -> None:
    topology = topology_of(lambda builder: builder.stream("a").to("out", name="sink"))
    failure = task_of(topology, **refusing).run(
        {("a", 0): records(("x" * 100, 1), first=41)}
    ).failure
    assert isinstance(failure, ProcessingFailedException)
    assert (failure.task_id, failure.processor, failure.topic) == ("0_0", "sink", "a")
    assert (failure.partition, failure.offset, failure.key) == (0, 41, b"k")
    assert "Source record: topic a, partition 0, offset 41, key b'k'." in str(failure)
    assert str(failure).endswith("set production.exception.handler=continue.")
    assert isinstance(failure.__cause__, NotSentException)


def test_serialization_error_reports_the_source_record() -> None:
    def refuse(value: str) -> bytes:
        raise ValueError("no bytes")

    topology = topology_of(lambda builder: builder.stream("a").to(
        "out", value=Serde(refuse, bytes.decode), name="sink"
    ))
    failure = task_of(topology).run({("a", 0): records(("x", 1), first=41)}).failure
    assert isinstance(failure, ProcessingFailedException)
    assert (failure.processor, failure.topic, failure.offset) == ("sink", "a", 41)
    assert "cannot be serialized: no bytes. Source record: topic a" in str(failure)
    assert "production.exception.handler" in str(failure)


def test_rejected_record_of_a_punctuation_has_no_source_record() -> None:
    topology = topology_of(lambda builder: builder.stream("a").process(Ticker).to("out"))
    failure = task_of(topology, limits_of=lambda topic: RecordLimits(4), now=0).run(
        {("a", 0): records(("x", 5))}
    ).failure
    assert isinstance(failure, ProcessingFailedException)
    assert (failure.topic, failure.offset) == (None, -1)
    assert "Source record" not in str(failure)
    assert "production.exception.handler" in str(failure)


class Counted:
    """Like numpy's integers: not an int, but convertible by `__index__`."""

    def __index__(self) -> int:
        return 12


def test_extractor_may_return_another_integer_type() -> None:
    topology = topology_of(
        lambda builder: builder.stream("a", timestamp=lambda record, time: Counted()).to("out")
    )
    result = task_of(topology).run({("a", 0): records(("x", 1), ("y", 2))})
    assert [Output._make(row).timestamp for row in result.outputs] == [12, 12]
    assert result.state.stream_time == 12


@pytest.mark.parametrize("answer", [12.5, 12.0, None, "12", True])
def test_extractor_that_returns_no_integer_is_reported_with_its_record(answer: Any) -> None:
    # The second record is read on the hot path.
    topology = topology_of(lambda builder: builder.stream(
        "a", timestamp=lambda record, time: 1 if record.offset == 40 else answer
    ).to("out"))
    failure = task_of(topology).run({("a", 0): records(("x", 1), ("y", 2), first=40)}).failure
    assert type(failure) is StreamsException
    assert "topic a, partition 0, offset 41: It returned" in str(failure)
    assert f"{answer!r}, of type {type(answer).__name__}." in str(failure)
    assert "milliseconds as an int" in str(failure)


def test_production_handler_may_skip_records_that_the_log_would_reject() -> None:
    config = StreamsConfig(
        application_id="app", default_key_serde=STRING, default_value_serde=STRING,
        production_exception_handler="continue",
    )
    blueprint = Blueprint.of(topology_of(large_and_small), config)
    for refusing in (
        Environment(limits_of=lambda topic: RecordLimits(10)),
        Environment(partitions_of=lambda topic: None),
    ):
        task = Task(blueprint, TaskId(0, 0), refusing)
        task.start()
        task.subscribe("KSTREAM-SOURCE-0000000000", "a", 0)
        result = task.run({("a", 0): records(("small", 1), ("x" * 100, 2))})
        sent = [] if refusing.partitions_of("out") is None else ["small"]
        assert (result.failure, values(result)) == (None, sent)
        assert result.counters["dropped-records-total"] == 2 - len(sent)


def test_error_outside_of_a_step_names_its_own_record() -> None:
    """It is not the first record of its chunk."""
    task = task_of(topology_of(lambda builder: builder.stream("in").to(
        lambda key, value, context: "out" if value != "c" else 1 // 0
    )))
    given = record_range(
        range(4), [0] * 4, [b"k1", b"k2", b"k3", b"k4"], [b"a", b"b", b"c", b"d"], topic="in"
    )
    failure = task.run({("in", 0): given}).failure
    assert isinstance(failure, ProcessingFailedException)
    assert (failure.offset, failure.key) == (2, b"k3")


@pytest.mark.parametrize(
    ("key", "value", "part"), [(b"ab", bytes(8), "key"), (bytes(8), b"ab", "value")]
)
def test_deserialization_error_reports_key_or_value(
    key: bytes, value: bytes, part: str
) -> None:
    task = task_of(topology_of(
        lambda builder: builder.stream("in", key=Serdes.long(), value=Serdes.long()).to("out")
    ))
    failure = task.run({("in", 0): record_range((5,), (0,), (key,), (value,), topic="in")}).failure
    assert f"The {part} of a record of topic in, partition 0, offset 5 cannot be" in str(failure)
