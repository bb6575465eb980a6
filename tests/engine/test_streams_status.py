"""The reports of `Streams`: printed lines, metrics, tasks and their positions, restores."""

from __future__ import annotations

import sys
import threading
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from engine.instances import (
    PATIENCE_S,
    TEXT,
    CreateStreams,
    received,
    send,
    until,
    word_count,
)
from penstock import Printed, StateRestoreListener, StreamsBuilder, Topology, TopologyException
from penstock.engine.lifecycle import IllegalTransition
from penstock.engine.observe.printer import Printer, write_to_stdout
from penstock.log import Log


def test_printed_lines_are_written_once_after_the_commit(
    create_streams: CreateStreams, log: Log, tmp_path: Path
) -> None:
    lines: list[str] = []
    file = tmp_path / "printed.txt"
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT)
    stream.print(Printed.to_sys_out("seen"))
    stream.print(Printed.to_file(str(file), "kept"))
    send(log, "a", "b")
    with create_streams(builder.build(), out=lines.extend) as streams:
        streams.run_until_caught_up(PATIENCE_S)
        send(log, "c")
        streams.run_until_caught_up(PATIENCE_S)
    assert lines == ["[seen]: null, a", "[seen]: null, b", "[seen]: null, c"]
    assert file.read_text("utf-8").splitlines() == [
        "[kept]: null, a", "[kept]: null, b", "[kept]: null, c",
    ]


def printing(*files: Path) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT)
    stream.print(Printed.to_sys_out("shown"))
    for number, file in enumerate(files):
        stream.print(Printed(label=f"to {number}", file=str(file), name=f"printer-{number}"))
    return builder.build()


def test_file_that_cannot_be_opened_is_reported_before_the_first_batch(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.txt", tmp_path / "nowhere" / "bad.txt"
    printer = Printer()
    with pytest.raises(TopologyException, match="Processor 'printer-1' cannot print") as caught:
        printer.open_files(printing(good, bad))
    assert f"'{bad}'" in str(caught.value)
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    printer.close()


def test_open_files_are_reused_and_truncated_once(tmp_path: Path) -> None:
    # The name is not UTF-8, so workers return it in another form.
    file = tmp_path / b"caf\xe9".decode("utf-8", "surrogateescape")
    file.write_text("of an earlier run", "utf-8")
    printer = Printer()
    for _ in range(2):
        printer.open_files(printing(file))
        assert file.read_text("utf-8") == ""
    printer.write([(f"{tmp_path}/caf\\udce9", "line")])
    printer.open_files(printing(file))
    printer.close()
    assert file.read_text("utf-8") == "line\n"
    assert list(tmp_path.iterdir()) == [file]


def test_lone_surrogates_in_printed_lines_are_escaped(
    create_streams: CreateStreams, log: Log, tmp_path: Path
) -> None:
    lines: list[str] = []
    file = tmp_path / "printed.txt"
    builder = StreamsBuilder()
    names = builder.stream("in", key=TEXT, value=TEXT).map_values(
        lambda value: b"caf\xe9".decode("utf-8", "surrogateescape")
    )
    names.print(Printed.to_sys_out("seen"))
    names.print(Printed.to_file(str(file), "kept"))
    send(log, "a")
    with create_streams(builder.build(), out=lines.extend) as streams:
        streams.run_until_caught_up(PATIENCE_S)
    assert lines == ["[seen]: null, caf\\udce9"]
    assert file.read_text("utf-8") == "[kept]: null, caf\\udce9\n"


def test_characters_that_stdout_cannot_encode_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(written, encoding="ascii"))
    write_to_stdout(["plain", "caf\u00e9"])
    assert written.getvalue() == b"plain\ncaf\\xe9\n"


def test_function_that_cannot_be_pickled_is_reported_without_spark(
    create_streams: CreateStreams, log: Log
) -> None:
    lock = threading.Lock()

    def guarded(value: str) -> str:
        with lock:
            return value

    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).map_values(guarded, name="locked").to("out")
    streams = create_streams(builder.build())
    with pytest.raises(TopologyException) as caught:
        streams.run_until_caught_up(PATIENCE_S)
    assert str(caught.value).startswith("The step 'locked' cannot be sent to Spark's workers.")
    assert "guarded (test_streams_status.py:" in str(caught.value)
    assert received(log) == []


def test_lanes_report_how_they_spend_their_time(create_streams: CreateStreams, log: Log) -> None:
    send(log, "a b", "c")
    with create_streams(word_count(), execution="continuous") as streams:
        streams.run_until_caught_up(PATIENCE_S)

        def of_thread() -> dict[str, Any]:
            return {
                name.name: value for name, value in streams.metrics().items()
                if name.group == "stream-thread-metrics"
            }

        until(lambda: of_thread()["poll-total"] > 0)
        found = of_thread()
    shares = [found[f"{step}-ratio"] for step in ("poll", "process", "commit")]
    assert all(share >= 0 for share in shares)
    assert sum(shares) <= 1
    assert found["poll-latency-max"] >= found["poll-latency-avg"] > 0


def test_metrics_have_the_names_of_kafka(create_streams: CreateStreams, log: Log) -> None:
    send(log, "a b", "c")
    with create_streams(word_count()) as streams:
        streams.run_until_caught_up(PATIENCE_S)
        found = streams.metrics()
    by_name = {(name.group, name.name): value for name, value in found.items()}
    assert by_name["stream-metrics", "state"] == "RUNNING"
    assert by_name["stream-thread-metrics", "state"] == "RUNNING"
    assert by_name["stream-thread-metrics", "thread-state"] == 4
    assert by_name["stream-metrics", "alive-stream-threads"] == 1
    assert by_name["stream-metrics", "topology-description"] == str(word_count().describe())
    assert by_name["stream-thread-metrics", "process-total"] == 5
    assert by_name["stream-thread-metrics", "commit-total"] >= 1
    tasks = {
        name.tag("task-id"): value for name, value in found.items()
        if (name.group, name.name) == ("stream-task-metrics", "process-total")
    }
    assert tasks["0_0"] == 2
    assert tasks["1_0"] + tasks["1_1"] == 3  # type: ignore[operator]
    thread = {name.tag("thread-id") for name in found if name.group == "stream-task-metrics"}
    assert thread == {"app-StreamThread-1"}


def test_description_contains_tasks_stores_and_positions(
    create_streams: CreateStreams, log: Log
) -> None:
    send(log, "a b")
    with create_streams(word_count(), execution="batch") as streams:
        streams.run_until_caught_up(PATIENCE_S)
        text = str(streams)
    assert text.startswith(f"Application 'app' on {streams.config.log}: RUNNING\nTopologies:\n")
    for line in (
        "  Task 0_0 (stage 0)", "    reads in [0] at 1, lag 0",
        "  Task 1_1 (stage 1)", "    reads app-counts-repartition [1], from other tasks",
    ):
        assert line in text.splitlines()
    ends = log.offsets([("app-counts-changelog", n) for n in (0, 1)])  # type: ignore[list-item]
    for (topic, partition), bounds in ends.items():
        assert f"    store counts, {topic} [{partition}] at {bounds.end}" in text.splitlines()


def test_thread_metadata_contains_the_tasks(create_streams: CreateStreams, log: Log) -> None:
    send(log, "a b")
    streams = create_streams(word_count())
    assert streams.metadata_for_local_threads() == frozenset()
    assert streams.lag() is None
    streams.run_until_caught_up(PATIENCE_S)
    (thread,) = streams.metadata_for_local_threads()
    tasks = {str(task.task_id): task for task in thread.active_tasks}
    assert sorted(tasks) == ["0_0", "0_1", "1_0", "1_1"]
    assert tasks["0_0"].committed_offsets == tasks["0_0"].end_offsets == {("in", 0): 1}
    assert thread.thread_state == "RUNNING"
    assert streams.lag() == 0
    streams.close()
    (thread,) = streams.metadata_for_local_threads()
    assert (thread.thread_state, thread.active_tasks) == ("DEAD", frozenset())


class RecordingListener(StateRestoreListener):
    """Records all calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def on_restore_start(self, *arguments: Any) -> None:
        self.calls.append(("start", *arguments))

    def on_batch_restored(self, *arguments: Any) -> None:
        self.calls.append(("batch", *arguments))

    def on_restore_end(self, *arguments: Any) -> None:
        self.calls.append(("end", *arguments))


def test_listener_receives_restores_but_not_ordinary_updates(
    create_streams: CreateStreams, log: Log
) -> None:
    send(log, "a b c a")
    with create_streams(word_count()) as streams:
        streams.run_until_caught_up(PATIENCE_S)
    streams.clean_up()
    again = create_streams(word_count())
    listener = RecordingListener()
    again.set_global_state_restore_listener(listener)
    again.run_until_caught_up(PATIENCE_S)
    calls = list(listener.calls)
    assert sum(call[-1] for call in calls if call[0] == "end") == 3
    for partition, total in {call[1]: call[-1] for call in calls if call[0] == "end"}.items():
        about = [call for call in calls if call[1] == partition]
        assert about[0] == ("start", partition, "counts", 0, total)
        assert about[-1] == ("end", partition, "counts", total)
        batches = [call for call in about if call[0] == "batch"]
        assert sum(call[-1] for call in batches) == total
        assert batches[-1][3] == total
    for _ in range(3):
        send(log, "a b c")
        again.run_until_caught_up(PATIENCE_S)
    assert listener.calls == calls


def test_clean_up_is_refused_while_running(create_streams: CreateStreams, log: Log) -> None:
    streams = create_streams()
    streams.clean_up()
    streams.run_until_caught_up(PATIENCE_S)
    with pytest.raises(IllegalTransition, match="cannot be deleted"):
        streams.clean_up()
    streams.close()
    streams.clean_up()
