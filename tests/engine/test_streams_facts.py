"""What `Streams` tells: printed lines, metrics, tasks and their positions, restores."""

from __future__ import annotations

import sys
import threading
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from engine.living import PATIENCE_S, TEXT, Made, received, send, word_count
from penstock import Printed, StateRestoreListener, StreamsBuilder, Topology, TopologyException
from penstock.engine.lifecycle import IllegalTransition
from penstock.engine.observe.printer import Printer, write_to_stdout
from penstock.log import Log


def test_printed_lines_are_shown_once_after_the_commit(
    made: Made, log: Log, tmp_path: Path
) -> None:
    lines: list[str] = []
    file = tmp_path / "printed.txt"
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT)
    stream.print(Printed.to_sys_out("seen"))
    stream.print(Printed.to_file(str(file), "kept"))
    send(log, "a", "b")
    with made(builder.build(), out=lines.extend) as streams:
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


def test_a_file_that_cannot_be_opened_is_named_before_anything_is_printed(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.txt", tmp_path / "nowhere" / "bad.txt"
    printer = Printer()
    with pytest.raises(TopologyException, match="The step 'printer-1' cannot print") as caught:
        printer.open_files(printing(good, bad))
    assert f"'{bad}'" in str(caught.value)
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    printer.close()


def test_files_that_were_opened_before_are_those_that_are_written(tmp_path: Path) -> None:
    # The name is no UTF-8: it comes back from the workers in another form.
    file = tmp_path / b"caf\xe9".decode("utf-8", "surrogateescape")
    file.write_text("of an earlier life", "utf-8")
    printer = Printer()
    for _ in range(2):
        printer.open_files(printing(file))
        assert file.read_text("utf-8") == ""
    printer.show([(f"{tmp_path}/caf\\udce9", "line")])
    printer.open_files(printing(file))
    printer.close()
    assert file.read_text("utf-8") == "line\n"
    assert list(tmp_path.iterdir()) == [file]


def test_a_line_with_what_utf8_cannot_write_is_printed_with_an_escape(
    made: Made, log: Log, tmp_path: Path
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
    with made(builder.build(), out=lines.extend) as streams:
        streams.run_until_caught_up(PATIENCE_S)
    assert lines == ["[seen]: null, caf\\udce9"]
    assert file.read_text("utf-8") == "[kept]: null, caf\\udce9\n"


def test_what_standard_output_cannot_write_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(written, encoding="ascii"))
    write_to_stdout(["plain", "caf\u00e9"])
    assert written.getvalue() == b"plain\ncaf\\xe9\n"


def test_without_spark_too_a_function_that_does_not_travel_is_named(made: Made, log: Log) -> None:
    lock = threading.Lock()

    def guarded(value: str) -> str:
        with lock:
            return value

    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).map_values(guarded, name="locked").to("out")
    streams = made(builder.build())
    with pytest.raises(TopologyException) as caught:
        streams.run_until_caught_up(PATIENCE_S)
    assert str(caught.value).startswith("The step 'locked' cannot be sent to a worker.")
    assert "guarded (test_streams_facts.py:" in str(caught.value)
    assert received(log) == []


def test_metrics_have_kafkas_names(made: Made, log: Log) -> None:
    send(log, "a b", "c")
    with made(word_count()) as streams:
        streams.run_until_caught_up(PATIENCE_S)
        found = streams.metrics()
    by_name = {(name.group, name.name): value for name, value in found.items()}
    assert by_name["stream-metrics", "state"] == "RUNNING"
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


def test_the_text_names_tasks_stores_and_positions(made: Made, log: Log) -> None:
    send(log, "a b")
    with made(word_count()) as streams:
        streams.run_until_caught_up(PATIENCE_S)
        text = str(streams)
    assert text.startswith(f"Application 'app' on {streams.config.log}: RUNNING\nTopologies:\n")
    for line in (
        "  Task 0_0 (stage 0)", "    reads in [0] at 1, 0 to go",
        "  Task 1_1 (stage 1)", "    reads app-counts-repartition [1], from other tasks",
    ):
        assert line in text.splitlines()
    ends = log.offsets([("app-counts-changelog", n) for n in (0, 1)])  # type: ignore[list-item]
    for (topic, partition), bounds in ends.items():
        assert f"    keeps counts, {topic} [{partition}] at {bounds.end}" in text.splitlines()


def test_threads_tell_their_tasks(made: Made, log: Log) -> None:
    send(log, "a b")
    streams = made(word_count())
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


class LogCapture(StateRestoreListener):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def on_restore_start(self, *facts: Any) -> None:
        self.heard.append(("start", *facts))

    def on_batch_restored(self, *facts: Any) -> None:
        self.heard.append(("batch", *facts))

    def on_restore_end(self, *facts: Any) -> None:
        self.heard.append(("end", *facts))


def test_a_restore_is_heard_of_and_following_the_changelog_is_not(
    made: Made, log: Log
) -> None:
    send(log, "a b c a")
    with made(word_count()) as streams:
        streams.run_until_caught_up(PATIENCE_S)
    streams.clean_up()
    again = made(word_count())
    listener = LogCapture()
    again.set_global_state_restore_listener(listener)
    again.run_until_caught_up(PATIENCE_S)
    heard = list(listener.heard)
    assert sum(facts[-1] for facts in heard if facts[0] == "end") == 3
    for partition, total in {facts[1]: facts[-1] for facts in heard if facts[0] == "end"}.items():
        about = [facts for facts in heard if facts[1] == partition]
        assert about[0] == ("start", partition, "counts", 0, total)
        assert about[-1] == ("end", partition, "counts", total)
        batches = [facts for facts in about if facts[0] == "batch"]
        assert sum(facts[-1] for facts in batches) == total
        assert batches[-1][3] == total
    for _ in range(3):
        send(log, "a b c")
        again.run_until_caught_up(PATIENCE_S)
    assert listener.heard == heard


def test_the_state_is_not_removed_while_it_runs(made: Made, log: Log) -> None:
    streams = made()
    streams.clean_up()
    streams.run_until_caught_up(PATIENCE_S)
    with pytest.raises(IllegalTransition, match="cannot be removed"):
        streams.clean_up()
    streams.close()
    streams.clean_up()
