"""`Streams` without a JVM: start, close, pause, and failures."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.instances import (
    PATIENCE_S,
    TEXT,
    BlockedCompute,
    CreateStreams,
    failing_topology,
    received,
    record_states,
    send,
    until,
    upper,
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


def test_application_runs_from_start_to_close(create_streams: CreateStreams, log: Log) -> None:
    streams = create_streams()
    states = record_states(streams)
    assert streams.state is State.CREATED
    send(log, "a", "b")
    streams.start()
    until(lambda: received(log) == [b"A", b"B"])
    assert streams.state is State.RUNNING
    send(log, "c")
    until(lambda: len(received(log)) == 3)
    assert streams.close()
    assert streams.state is State.NOT_RUNNING
    assert [new for new, _ in states] == [
        State.REBALANCING, State.RUNNING, State.PENDING_SHUTDOWN, State.NOT_RUNNING,
    ]
    assert streams.failure is None


def test_with_block_starts_and_closes_the_application(
    create_streams: CreateStreams, log: Log
) -> None:
    send(log, "a")
    with create_streams() as streams:
        streams.run_until_caught_up(PATIENCE_S)
        assert received(log) == [b"A"]
    assert streams.state is State.NOT_RUNNING
    assert streams.close()


def test_next_instance_resumes_from_the_last_commit(
    create_streams: CreateStreams, log: Log
) -> None:
    for line in ("a b", "a", "b a"):
        send(log, line)
        with create_streams(word_count()) as streams:
            streams.run_until_caught_up(PATIENCE_S)
    counts = [int.from_bytes(value) for value in received(log)]
    assert sorted(counts) == [1, 1, 2, 2, 3]


def test_catching_up_processes_everything_that_exists(
    create_streams: CreateStreams, log: Log
) -> None:
    streams = create_streams()
    for number in range(20):
        send(log, f"v{number}", partition=number % 2)
        streams.run_until_caught_up(PATIENCE_S)
        assert len(received(log)) == number + 1


def test_instance_can_be_started_only_once(create_streams: CreateStreams) -> None:
    streams = create_streams()
    streams.start()
    with pytest.raises(IllegalTransition, match="cannot be started: it is R"):
        streams.start()
    streams.close()
    with pytest.raises(IllegalTransition, match=r"it is NOT_RUNNING.*\nState history:"):
        streams.start()


def test_instance_that_was_never_started_can_be_closed(create_streams: CreateStreams) -> None:
    streams = create_streams()
    assert streams.close()
    assert streams.state is State.NOT_RUNNING
    assert streams.wait(0)


def test_listeners_must_be_set_before_the_start(create_streams: CreateStreams) -> None:
    streams = create_streams()
    streams.start()
    for call in (
        lambda: streams.set_state_listener(None),
        lambda: streams.set_uncaught_exception_handler(lambda error: None),
        lambda: streams.set_global_state_restore_listener(StateRestoreListener()),
        lambda: streams.set_standby_update_listener(StandbyUpdateListener()),
    ):
        with pytest.raises(IllegalTransition, match="must be called before start"):
            call()


def test_constructor_checks_its_arguments(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"StreamsBuilder\.build"):
        Streams(StreamsBuilder(), StreamsConfig(application_id="a", log="x"))  # type: ignore[arg-type]
    with pytest.raises(ConfigException, match="has no log"):
        Streams(upper(), StreamsConfig(application_id="a"))
    with pytest.raises(ConfigException, match=r"session\.timeout\.ms must be a number"):
        Streams(upper(), {"application.id": "a", "log": "x", "session.timeout.ms": "soon"})
    with pytest.raises(ConfigException, match="compute= runs batches"):
        Streams(
            upper(), {"application.id": "a", "log": "x", "execution": "continuous"},
            compute=BlockedCompute().start,
        )
    with pytest.raises(TypeError, match="function of the exception"):
        Streams(upper(), {"application.id": "a", "log": "x"}).set_uncaught_exception_handler(
            "fail"  # type: ignore[arg-type]
        )


def test_compute_runs_batches(log: Log) -> None:
    config = StreamsConfig(application_id="a", log=log.address)
    streams = Streams(upper(), config, compute=BlockedCompute().start)
    assert streams.config.execution == "batch"


def test_close_finishes_the_running_batch(create_streams: CreateStreams, log: Log) -> None:
    held = BlockedCompute()
    send(log, "a")
    streams = create_streams(compute=held.start)
    streams.start()
    assert held.entered.wait(PATIENCE_S)
    assert not streams.close(0)
    assert streams.state is State.PENDING_SHUTDOWN
    held.proceed.set()
    assert streams.close(PATIENCE_S)
    assert received(log) == [b"A"]
    assert streams.state is State.NOT_RUNNING


def test_state_listener_can_close_the_application(create_streams: CreateStreams) -> None:
    streams = create_streams()
    streams.set_state_listener(lambda new, old: new is State.RUNNING and streams.close())
    streams.start()
    assert streams.wait(PATIENCE_S)
    assert streams.state is State.NOT_RUNNING


def test_paused_application_runs_no_batches(create_streams: CreateStreams, log: Log) -> None:
    streams = create_streams()
    streams.run_until_caught_up(PATIENCE_S)
    streams.pause()
    assert streams.is_paused
    sent = itertools.count(1)

    def waits() -> bool:
        # The first records may arrive before the lanes have noticed the pause.
        send(log, str(next(sent)))
        return not streams.is_caught_up(0.2)

    until(waits)
    assert streams.state is State.RUNNING
    streams.resume()
    streams.run_until_caught_up(PATIENCE_S)
    assert received(log) == [b"%d" % number for number in range(1, next(sent))]
    assert not streams.is_paused


def test_application_paused_before_the_start_runs_after_resume(
    create_streams: CreateStreams, log: Log
) -> None:
    streams = create_streams()
    send(log, "a")
    streams.pause()
    streams.start()
    assert not streams.is_caught_up(0.2)
    assert received(log) == []
    streams.resume()
    streams.run_until_caught_up(PATIENCE_S)
    assert received(log) == [b"A"]


def test_commit_interval_makes_batches_larger(create_streams: CreateStreams, log: Log) -> None:
    reports: list[Any] = []
    streams = create_streams(
        on_batch=reports.append, commit_interval_ms=60_000, execution="batch"
    )
    streams.start()
    until(lambda: reports)
    for value in "abc":
        send(log, value)
    assert not streams.wait(0.2)
    assert len(reports) == 1
    # Waiting to catch up interrupts the interval.
    streams.run_until_caught_up(PATIENCE_S)
    assert [report.records for report in reports] == [0, 3]
    # Closing interrupts it, too.
    assert streams.close(PATIENCE_S / 2)


def test_threads_can_be_added_and_removed_while_running(
    create_streams: CreateStreams, log: Log
) -> None:
    streams = create_streams(word_count())
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


def test_failure_ends_the_instance_and_is_raised_by_wait(
    create_streams: CreateStreams, log: Log
) -> None:
    streams = create_streams(failing_topology())
    states = record_states(streams)
    send(log, "good", "bad")
    streams.start()
    with pytest.raises(ProcessingFailedException, match="bad value") as raised:
        streams.wait(PATIENCE_S)
    assert (raised.value.processor, raised.value.topic, raised.value.offset) == ("work", "in", 1)
    assert "in failing" in raised.value.user_traceback  # type: ignore[attr-defined]
    assert streams.state is State.ERROR
    assert [new for new, _ in states][-2:] == [State.PENDING_ERROR, State.ERROR]
    assert streams.failure is raised.value
    assert received(log) == []
    assert streams.close()
    assert streams.state is State.ERROR


def test_with_block_raises_the_failure(create_streams: CreateStreams, log: Log) -> None:
    send(log, "bad")

    def run() -> None:
        with create_streams(failing_topology()) as streams:
            streams._lifecycle.wait_until(lambda state: state.has_ended, PATIENCE_S)

    with pytest.raises(ProcessingFailedException):
        run()


def test_run_until_caught_up_raises_the_failure(create_streams: CreateStreams, log: Log) -> None:
    send(log, "bad")
    with pytest.raises(ProcessingFailedException):
        create_streams(failing_topology()).run_until_caught_up(PATIENCE_S)


def test_missing_source_topic_ends_the_application(create_streams: CreateStreams, log: Log) -> None:
    log.delete_topic("in")
    streams = create_streams()
    streams.start()
    with pytest.raises(Exception, match=r"Missing source topics \[in\]"):
        streams.wait(PATIENCE_S)
    assert streams.state is State.ERROR


def test_handler_can_replace_the_thread(
    create_streams: CreateStreams, log: Log, tmp_path: Path
) -> None:
    repaired = tmp_path / "repaired"

    def sometimes(value: str) -> str:
        if value == "bad" and not repaired.exists():
            raise ValueError("not yet")
        return value.upper()

    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).map_values(sometimes).to("out")
    streams = create_streams(builder.build())
    failures: list[BaseException] = []

    def replace(error: BaseException) -> StreamThreadExceptionResponse:
        failures.append(error)
        if len(failures) == 3:
            repaired.touch()
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


@pytest.mark.parametrize("response", [None, "nonsense", ValueError("broken handler")])
def test_broken_handler_ends_the_instance(
    create_streams: CreateStreams, log: Log, response: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(error: BaseException) -> Any:
        if isinstance(response, Exception):
            raise response
        return response

    streams = create_streams(failing_topology())
    streams.set_uncaught_exception_handler(broken)
    send(log, "bad")
    streams.start()
    with pytest.raises(ProcessingFailedException):
        streams.wait(PATIENCE_S)
    assert streams.state is State.ERROR
    assert "The uncaught exception handler failed" in caplog.text


def test_shutdown_application_ends_all_instances(create_streams: CreateStreams, log: Log) -> None:
    is_standby = threading.Event()
    first = create_streams(failing_topology())
    first.set_uncaught_exception_handler(
        lambda error: StreamThreadExceptionResponse.SHUTDOWN_APPLICATION
    )
    first.run_until_caught_up(PATIENCE_S)
    second = create_streams(failing_topology(), on_standby=lambda holder: is_standby.set())
    second.start()
    assert is_standby.wait(PATIENCE_S)
    send(log, "bad")
    with pytest.raises(ProcessingFailedException):
        first.wait(PATIENCE_S)
    with pytest.raises(ShutdownRequested, match=r"stop: ProcessingFailedException: .*bad"):
        second.wait(PATIENCE_S)
    assert (first.state, second.state) == (State.ERROR, State.ERROR)
    # The request does not apply to instances that start later.
    log.commit_offsets("app", {("in", 0): 1})  # type: ignore[dict-item]
    with create_streams(failing_topology()) as third:
        third.run_until_caught_up(PATIENCE_S)
        assert third.state is State.RUNNING


def test_shutdown_client_lets_a_standby_take_over(create_streams: CreateStreams, log: Log) -> None:
    is_standby = threading.Event()
    first = create_streams(failing_topology())
    first.run_until_caught_up(PATIENCE_S)
    second = create_streams(upper(), on_standby=lambda holder: is_standby.set())
    second.start()
    assert is_standby.wait(PATIENCE_S)
    assert second.waits_for == instance_name(first.config)
    send(log, "bad")
    with pytest.raises(ProcessingFailedException):
        first.wait(PATIENCE_S)
    second.run_until_caught_up(PATIENCE_S)
    assert received(log) == [b"BAD"]
    assert second.waits_for is None


def test_close_timeout_cancels_the_running_batch(create_streams: CreateStreams, log: Log) -> None:
    held = BlockedCompute()
    send(log, "a")
    streams = create_streams(compute=held.start)
    streams.start()
    assert held.entered.wait(PATIENCE_S)
    assert not streams.close(0.01)
    held.proceed.set()
    assert streams.close()
    assert (streams.state, streams.failure) == (State.NOT_RUNNING, None)
    assert received(log) == []
    assert log.committed("app") == {}
    with create_streams() as another:
        another.run_until_caught_up(PATIENCE_S)
    assert received(log) == [b"A"]
