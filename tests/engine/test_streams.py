"""`Streams` without a JVM: from start to end, paused, and failing."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from engine.living import (
    PATIENCE_S,
    TEXT,
    HeldBack,
    Made,
    failing_topology,
    received,
    send,
    until,
    upper,
    watch_of,
    word_count,
)
from penstock import (
    ConfigException,
    ProcessingFailedException,
    StandbyUpdateListener,
    State,
    StateRestoreListener,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    StreamThreadExceptionResponse,
)
from penstock.engine.lease import instance_name
from penstock.engine.lifecycle import IllegalTransition
from penstock.engine.stream_thread import ShutdownRequested
from penstock.log import Log


def test_an_application_runs_from_start_to_end(made: Made, log: Log) -> None:
    streams = made()
    heard = watch_of(streams)
    assert streams.state is State.CREATED
    send(log, "a", "b")
    streams.start()
    until(lambda: received(log) == [b"A", b"B"])
    assert streams.state is State.RUNNING
    send(log, "c")
    until(lambda: len(received(log)) == 3)
    assert streams.close()
    assert streams.state is State.NOT_RUNNING
    assert [new for new, _ in heard] == [
        State.REBALANCING, State.RUNNING, State.PENDING_SHUTDOWN, State.NOT_RUNNING,
    ]
    assert streams.failure is None


def test_a_with_block_starts_and_closes_it(made: Made, log: Log) -> None:
    send(log, "a")
    with made() as streams:
        streams.run_until_caught_up(PATIENCE_S)
        assert received(log) == [b"A"]
    assert streams.state is State.NOT_RUNNING
    assert streams.close()


def test_it_goes_on_where_another_instance_ended(made: Made, log: Log) -> None:
    for line in ("a b", "a", "b a"):
        send(log, line)
        with made(word_count()) as streams:
            streams.run_until_caught_up(PATIENCE_S)
    counts = [int.from_bytes(value) for value in received(log)]
    assert sorted(counts) == [1, 1, 2, 2, 3]


def test_caught_up_means_all_that_was_there(made: Made, log: Log) -> None:
    streams = made()
    for number in range(20):
        send(log, f"v{number}", partition=number % 2)
        streams.run_until_caught_up(PATIENCE_S)
        assert len(received(log)) == number + 1


def test_it_starts_once(made: Made) -> None:
    streams = made()
    streams.start()
    with pytest.raises(IllegalTransition, match="cannot be started: it is R"):
        streams.start()
    streams.close()
    with pytest.raises(IllegalTransition, match=r"it is NOT_RUNNING.*\nThe states so far:"):
        streams.start()


def test_one_that_was_never_started_can_be_closed(made: Made) -> None:
    streams = made()
    assert streams.close()
    assert streams.state is State.NOT_RUNNING
    assert streams.wait(0)


def test_listeners_are_set_before_the_start(made: Made) -> None:
    streams = made()
    streams.start()
    for call in (
        lambda: streams.set_state_listener(None),
        lambda: streams.set_uncaught_exception_handler(lambda error: None),
        lambda: streams.set_global_state_restore_listener(StateRestoreListener()),
        lambda: streams.set_standby_update_listener(StandbyUpdateListener()),
    ):
        with pytest.raises(IllegalTransition, match="must be called before start"):
            call()


def test_what_is_given_is_checked_at_once(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"StreamsBuilder\.build"):
        Streams(StreamsBuilder(), StreamsConfig(application_id="a", log="x"))  # type: ignore[arg-type]
    with pytest.raises(ConfigException, match="has no log"):
        Streams(upper(), StreamsConfig(application_id="a"))
    with pytest.raises(ConfigException, match=r"session\.timeout\.ms must be a number"):
        Streams(upper(), {"application.id": "a", "log": "x", "session.timeout.ms": "soon"})
    with pytest.raises(TypeError, match="function of the exception"):
        Streams(upper(), {"application.id": "a", "log": "x"}).set_uncaught_exception_handler(
            "fail"  # type: ignore[arg-type]
        )


def test_a_close_finishes_the_batch_that_runs(made: Made, log: Log) -> None:
    held = HeldBack()
    send(log, "a")
    streams = made(compute=held.start)
    streams.start()
    assert held.entered.wait(PATIENCE_S)
    assert not streams.close(0)
    assert streams.state is State.PENDING_SHUTDOWN
    held.go_on.set()
    assert streams.close(PATIENCE_S)
    assert received(log) == [b"A"]
    assert streams.state is State.NOT_RUNNING


def test_a_listener_may_close_it(made: Made) -> None:
    streams = made()
    streams.set_state_listener(lambda new, old: new is State.RUNNING and streams.close())
    streams.start()
    assert streams.wait(PATIENCE_S)
    assert streams.state is State.NOT_RUNNING


def test_paused_it_runs_no_batches(made: Made, log: Log) -> None:
    streams = made()
    streams.run_until_caught_up(PATIENCE_S)
    streams.pause()
    assert streams.is_paused
    # A batch that may have been under way is over then.
    streams.is_caught_up(0.2)
    send(log, "a")
    assert not streams.is_caught_up(0.2)
    assert received(log) == []
    assert streams.state is State.RUNNING
    streams.resume()
    streams.run_until_caught_up(PATIENCE_S)
    assert received(log) == [b"A"]
    assert not streams.is_paused


def test_one_that_is_paused_before_the_start_begins_when_it_is_resumed(
    made: Made, log: Log
) -> None:
    streams = made()
    send(log, "a")
    streams.pause()
    streams.start()
    assert not streams.is_caught_up(0.2)
    assert received(log) == []
    streams.resume()
    streams.run_until_caught_up(PATIENCE_S)
    assert received(log) == [b"A"]


def test_a_commit_interval_lets_batches_grow(made: Made, log: Log) -> None:
    reports: list[Any] = []
    streams = made(on_batch=reports.append, commit_interval_ms=60_000)
    streams.start()
    until(lambda: reports)
    for value in "abc":
        send(log, value)
    assert not streams.wait(0.2)
    assert len(reports) == 1
    # Who wants to have it all now does not wait for the interval.
    streams.run_until_caught_up(PATIENCE_S)
    assert [report.records for report in reports] == [0, 3]
    # Nobody who closes it waits for the interval, either.
    assert streams.close(PATIENCE_S / 2)


def test_threads_can_be_added_and_removed_while_it_runs(made: Made, log: Log) -> None:
    streams = made(word_count())
    assert streams.add_stream_thread() is None
    for number, change in enumerate((
        streams.add_stream_thread, streams.remove_stream_thread, streams.remove_stream_thread,
    )):
        streams.run_until_caught_up(PATIENCE_S)
        assert change() == ("app-StreamThread-2" if number < 2 else None)
        assert streams.stream_threads == (2, 1, 1)[number]
        send(log, "a")
    streams.run_until_caught_up(PATIENCE_S)
    assert int.from_bytes(received(log)[-1]) == 3
    assert streams.state is State.RUNNING


# ---- failures -------------------------------------------------------------------------------


def test_a_failure_ends_the_instance_and_is_raised_to_who_waits(made: Made, log: Log) -> None:
    streams = made(failing_topology())
    heard = watch_of(streams)
    send(log, "good", "bad")
    streams.start()
    with pytest.raises(ProcessingFailedException, match="this one is bad") as raised:
        streams.wait(PATIENCE_S)
    assert (raised.value.processor, raised.value.topic, raised.value.offset) == ("work", "in", 1)
    assert "in failing" in raised.value.user_traceback  # type: ignore[attr-defined]
    assert streams.state is State.ERROR
    assert [new for new, _ in heard][-2:] == [State.PENDING_ERROR, State.ERROR]
    assert streams.failure is raised.value
    assert received(log) == []
    assert streams.close()
    assert streams.state is State.ERROR


def test_a_with_block_raises_the_failure(made: Made, log: Log) -> None:
    send(log, "bad")

    def run() -> None:
        with made(failing_topology()) as streams:
            streams._life.wait_until(lambda state: state.has_ended, PATIENCE_S)

    with pytest.raises(ProcessingFailedException):
        run()


def test_waiting_to_catch_up_raises_the_failure(made: Made, log: Log) -> None:
    send(log, "bad")
    with pytest.raises(ProcessingFailedException):
        made(failing_topology()).run_until_caught_up(PATIENCE_S)


def test_a_missing_source_topic_ends_it(made: Made, log: Log) -> None:
    log.delete_topic("in")
    streams = made()
    streams.start()
    with pytest.raises(Exception, match=r"Missing source topics \[in\]"):
        streams.wait(PATIENCE_S)
    assert streams.state is State.ERROR


def test_the_handler_may_want_to_begin_anew(made: Made, log: Log, tmp_path: Path) -> None:
    healed = tmp_path / "healed"

    def sometimes(value: str) -> str:
        if value == "bad" and not healed.exists():
            raise ValueError("not yet")
        return value.upper()

    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).map_values(sometimes).to("out")
    streams = made(builder.build())
    failures: list[BaseException] = []

    def replace(error: BaseException) -> StreamThreadExceptionResponse:
        failures.append(error)
        if len(failures) == 3:
            healed.touch()
        return StreamThreadExceptionResponse.REPLACE_THREAD

    streams.set_uncaught_exception_handler(replace)
    send(log, "good", "bad")
    streams.run_until_caught_up(PATIENCE_S)
    assert received(log) == [b"GOOD", b"BAD"]
    assert len(failures) == 3
    assert streams.state is State.RUNNING
    (failed,) = (
        value for name, value in streams.metrics().items() if name.name == "failed-stream-threads"
    )
    assert failed == 3


@pytest.mark.parametrize("answer", [None, "nonsense", ValueError("broken handler")])
def test_a_handler_that_is_broken_ends_the_instance(
    made: Made, log: Log, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(error: BaseException) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    streams = made(failing_topology())
    streams.set_uncaught_exception_handler(broken)
    send(log, "bad")
    streams.start()
    with pytest.raises(ProcessingFailedException):
        streams.wait(PATIENCE_S)
    assert streams.state is State.ERROR
    assert "The uncaught exception handler failed" in caplog.text


def test_all_instances_end_if_the_handler_says_so(made: Made, log: Log) -> None:
    standing_by = threading.Event()
    first = made(failing_topology())
    first.set_uncaught_exception_handler(
        lambda error: StreamThreadExceptionResponse.SHUTDOWN_APPLICATION
    )
    first.run_until_caught_up(PATIENCE_S)
    second = made(failing_topology(), on_standby=lambda holder: standing_by.set())
    second.start()
    assert standing_by.wait(PATIENCE_S)
    send(log, "bad")
    with pytest.raises(ProcessingFailedException):
        first.wait(PATIENCE_S)
    with pytest.raises(ShutdownRequested, match=r"to end: ProcessingFailedException: .*bad"):
        second.wait(PATIENCE_S)
    assert (first.state, second.state) == (State.ERROR, State.ERROR)
    # One that is started later was not asked.
    log.commit_offsets("app", {("in", 0): 1})  # type: ignore[dict-item]
    with made(failing_topology()) as third:
        third.run_until_caught_up(PATIENCE_S)
        assert third.state is State.RUNNING


def test_the_client_alone_ends_and_the_next_takes_over(made: Made, log: Log) -> None:
    standing_by = threading.Event()
    first = made(failing_topology())
    first.run_until_caught_up(PATIENCE_S)
    second = made(upper(), on_standby=lambda holder: standing_by.set())
    second.start()
    assert standing_by.wait(PATIENCE_S)
    assert second.waits_for == instance_name(first.config)
    send(log, "bad")
    with pytest.raises(ProcessingFailedException):
        first.wait(PATIENCE_S)
    second.run_until_caught_up(PATIENCE_S)
    assert received(log) == [b"BAD"]
    assert second.waits_for is None


def test_a_close_that_does_not_wait_for_the_batch_gives_it_up(made: Made, log: Log) -> None:
    held = HeldBack()
    send(log, "a")
    streams = made(compute=held.start)
    streams.start()
    assert held.entered.wait(PATIENCE_S)
    assert not streams.close(0.01)
    held.go_on.set()
    assert streams.close()
    assert (streams.state, streams.failure) == (State.NOT_RUNNING, None)
    assert received(log) == []
    assert log.committed("app") == {}
    with made() as another:
        another.run_until_caught_up(PATIENCE_S)
    assert received(log) == [b"A"]
