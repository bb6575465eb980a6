"""`penstock run`: in this process, as a process, and on Spark."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.commands import run as command_run
from penstock.cli.parsing import spark_master
from penstock.cli.status_line import StatusLine
from penstock.cli.terminal import Terminal
from penstock.config import StreamsConfig
from penstock.engine.continuous.lane_pool import SILENCE_S
from penstock.engine.lifecycle import State
from penstock.log import Log, RecordColumns

APP = '''
import json
from penstock import Serdes, StreamsBuilder, StreamsConfig
from neighbour import shout

text = Serdes.string()
config = StreamsConfig(
    application_id="app", default_key_serde=text, default_value_serde=text,
    extra={"session.timeout.ms": "1000"},
)
builder = StreamsBuilder()
values = builder.stream("in")
values.map_values(lambda value: shout(value), name="shouted").to("out")
'''
NEIGHBOUR = '''
def shout(value):
    if value == "bad":
        raise ValueError("too bad to shout")
    return value.upper()
'''
Command = Callable[..., subprocess.Popen[bytes]]
#: Without and with Spark.
MASTERS = ["inline", pytest.param("local[2]", marks=pytest.mark.spark)]


@pytest.fixture(autouse=True)
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "neighbour.py").write_text(NEIGHBOUR)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    # Restored after the test.
    monkeypatch.setenv("PYTHONPATH", "")
    yield
    for name in ("app", "app2", "neighbour", "printing", "refused", "wrong"):
        sys.modules.pop(name, None)


@pytest.fixture
def topics(log: Log) -> Log:
    log.create_topic("in")
    log.create_topic("out")
    return log


def send(log: Log, *values: str) -> None:
    raw = [value.encode() for value in values]
    log.append("in", 0, RecordColumns([None] * len(raw), raw))


def received(log: Log) -> list[Any]:
    return [value for batch in log.read("out", 0, 0) for value in batch.columns().values]


def until(condition: Callable[[], object], seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


def once(penstock: Any, *arguments: object) -> Any:
    return penstock("run", "app.py", "--once", "--master", "inline", *arguments)


def test_once_processes_existing_records_and_stops(penstock, topics: Log) -> None:
    send(topics, "a", "b")
    ran = once(penstock)
    assert (ran.code, ran.out) == (0, "")
    assert received(topics) == [b"A", b"B"]
    assert "app: RUNNING\n" in ran.err
    assert ran.err.endswith("app: stopped after 1 batch, 2 records.\n")
    # The first batch of an instance runs all tasks, even without input.
    assert once(penstock).err.endswith("app: stopped after 1 batch, 0 records.\n")
    assert received(topics) == [b"A", b"B"]


def test_once_runs_batches_unless_the_mode_is_given(penstock, topics: Log) -> None:
    send(topics, "a")
    ran = once(penstock, "--execution", "continuous")
    assert ran.err.endswith("app: stopped after 1 commit, 1 record.\n")
    send(topics, "b")
    assert once(penstock).err.endswith("app: stopped after 1 batch, 1 record.\n")
    assert received(topics) == [b"A", b"B"]


def test_b12_summary_counts_input_records_once(penstock, topics: Log, tmp_path: Path) -> None:
    (tmp_path / "app2.py").write_text(APP.replace(
        'values.map_values(lambda value: shout(value), name="shouted").to("out")',
        "values.group_by(lambda key, value: value).count(store='counts')",
    ))
    topics.append("in", 0, RecordColumns([b"k", b"k"], [b"a", b"b"]))
    ran = penstock("run", "app2.py", "--once", "--master", "inline")
    assert (ran.code, ran.err.splitlines()[-1]) == (0, "app: stopped after 1 batch, 2 records.")


def test_quiet_writes_nothing_and_verbose_shows_every_batch(penstock, topics: Log) -> None:
    send(topics, "a")
    ran = once(penstock, "--quiet")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    send(topics, "b")
    ran = once(penstock, "--verbose")
    line = r"^app: RUNNING, batch 2, 1 record, [\d,]+/s, lag 0, [\d,]+ ms$"
    assert re.search(line, ran.err, re.MULTILINE)
    assert "INFO penstock.engine.stream_thread: This instance runs application 'app'" in ran.err
    assert once(penstock, "--quiet", "--verbose").code == 2


def test_missing_log_fails_with_advice(penstock, path: Path) -> None:
    ran = once(penstock)
    assert (ran.code, ran.err) == (1, (
        f"penstock: error: The log '{path}' does not exist. Create it with its topics:\n"
        f"  penstock topics create in --log {path}\n"
        f"  penstock topics create out --log {path}\n"
    ))
    assert not path.exists()


def test_missing_topic_fails_with_advice(penstock, log: Log, path: Path) -> None:
    log.create_topic("in")
    ran = once(penstock)
    assert (ran.code, ran.err) == (1, (
        "penstock: error: Topic 'out' does not exist. Create it with:\n"
        f"  penstock topics create out --log {path}\n"
    ))
    assert penstock("topics", "create", "out", "--log", path).code == 0
    assert once(penstock).code == 0


def test_create_topics_creates_missing_topics(penstock, path: Path) -> None:
    ran = once(penstock, "--create-topics", 3)
    assert ran.code == 0
    assert "Created topic 'in'.\nCreated topic 'out'.\n" in ran.err
    listed = [line.split()[:2] for line in penstock("topics", "list").out.splitlines()]
    assert ["in", "3"] in listed
    assert ["out", "3"] in listed


def test_error_in_a_lambda_names_the_record_and_shows_the_users_traceback(
    penstock, topics: Log, tmp_path: Path
) -> None:
    send(topics, "good", "bad")
    ran = once(penstock)
    assert ran.code == 1
    message = ran.err[ran.err.index("penstock: error:") :]
    # The underlines in tracebacks differ between versions of Python.
    message = "\n".join(
        line for line in message.splitlines() if set(line.strip()) - set("^~")
    )
    assert message == (
        "penstock: error: Application 'app' failed: ValueError: too bad to shout\n"
        "  processor: shouted\n  task:      0_0\n  topic:     in\n  partition: 0\n  offset:    1\n"
        "Traceback (most recent call last):\n"
        f'  File "{tmp_path}/app.py", line 13, in <lambda>\n'
        '    values.map_values(lambda value: shout(value), name="shouted").to("out")\n'
        f'  File "{tmp_path}/neighbour.py", line 4, in shout\n'
        '    raise ValueError("too bad to shout")\n'
        "ValueError: too bad to shout\n"
        "The batch was not committed. To skip records like this one, set "
        "processing.exception.handler=continue."
    )
    assert ran.err.count("too bad to shout") == 3
    assert received(topics) == []
    assert once(penstock, "--set", "processing.exception.handler=continue").code == 0
    assert received(topics) == [b"GOOD"]


def test_deserialization_error_names_its_handler(penstock, topics: Log) -> None:
    topics.append("in", 0, RecordColumns([b"no long"], [b"a"]))
    as_long = ("--set", "default.key.serde=long")
    ran = once(penstock, *as_long)
    assert ran.code == 1
    assert "offset:    0" in ran.err
    assert "set deserialization.exception.handler=continue." in ran.err
    skip = ("--set", "deserialization.exception.handler=continue")
    assert once(penstock, *as_long, *skip).code == 0


@pytest.mark.parametrize("step", ["", ".map_values(str.upper)"], ids=["source", "after a step"])
def test_rejected_result_names_its_record_and_the_production_handler(
    penstock, topics: Log, step: str
) -> None:
    topics.create_topic("small", 1, {"max.message.bytes": "10"})
    Path("refused.py").write_text(
        "from penstock import Serdes, StreamsBuilder\n"
        "text = Serdes.string()\n"
        "builder = StreamsBuilder()\n"
        f'builder.stream("in", key=text, value=text){step}.to("small", key=text, value=text)\n'
    )
    topics.append("in", 0, RecordColumns([b"a", b"b"], [b"1", b"2" * 100]))
    words = ("run", "refused.py", "--once", "--master=inline", "--application-id=r")
    ran = penstock(*words)
    assert ran.code == 1
    assert "max.message.bytes" in ran.err
    assert "  topic:     in\n  partition: 0\n  offset:    1\n  key:       " in ran.err
    assert ran.err.endswith("set production.exception.handler=continue.\n")
    assert penstock(*words, "--set", "production.exception.handler=continue").code == 0
    assert [b.columns().values for b in topics.read("small", 0, 0)] == [[b"1"]]


def test_print_steps_write_to_standard_output(penstock, topics: Log) -> None:
    Path("printing.py").write_text(
        "from penstock import Printed, Serdes, StreamsBuilder\n"
        "text = Serdes.string()\n"
        "builder = StreamsBuilder()\n"
        'builder.stream("in", key=text, value=text).print(Printed.to_sys_out("seen"))\n'
    )
    send(topics, "a", "b")
    ran = penstock("run", "printing.py", "--once", "--master=inline", "--application-id=p")
    assert (ran.code, ran.out) == (0, "[seen]: null, a\n[seen]: null, b\n")


def test_settings_come_from_the_file_properties_and_options(penstock, topics: Log) -> None:
    Path("app2.py").write_text(
        'from app import builder\n'
        'CONFIG = {"default.key.serde": "string", "default.value.serde": "string"}\n'
    )
    ran = penstock("run", "app2.py", "--once", "--master=inline")
    assert (ran.code, ran.err) == (2, (
        "penstock: error: The application has no id. Use --application-id NAME, or set "
        "application.id in the configuration in 'app2.py'. The id is the prefix of internal topics "
        "and the consumer group id, and must not change between runs.\n"
        "See 'penstock run --help'.\n"
    ))
    Path("streams.properties").write_text("application.id = from-file\nstate.dir = kept\n")
    words = ("run", "app2.py", "--once", "--master=inline", "--config", "streams.properties")
    assert penstock(*words).code == 0
    assert "from-file-tasks" in {topic.name for topic in topics.topics()}
    assert penstock(*words, "--set", "application.id=from-set").code == 0
    assert "from-set-tasks" in {topic.name for topic in topics.topics()}
    assert penstock(*words, "--set", "application.id=x", "--application-id=from-option").code == 0
    assert {"from-option-tasks"} == {
        topic.name for topic in topics.topics() if topic.name in {"x-tasks", "from-option-tasks"}
    }


@pytest.mark.parametrize(("lines", "arguments", "code", "message"), [
    ("config = 7", (), 1, "The configuration in 'wrong.py' has the type int. It must be a "),
    ("", ("--set", "application.id=a b"), 1, "application_id"),
    ("", ("--set", "poll.ms=soon", "--set", "application.id=a"), 1, "poll.ms must be an integer"),
    ("", ("--config", "nothing.properties"), 1, "'nothing.properties' cannot be read"),
])
def test_invalid_configuration_fails(
    penstock, topics: Log, lines: str, arguments: tuple[str, ...], code: int, message: str
) -> None:
    Path("wrong.py").write_text(f"from app import builder\n{lines}\n")
    ran = penstock("run", "wrong.py", "--once", "--master=inline", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(("given", "meant"), [
    ("Inline", "; did you mean inline?"), ("loca", "; did you mean local?"),
    ("Local[2]", "; did you mean local?"), ("mesos://host:5050", "."),
])
def test_invalid_master_is_wrong_usage(penstock, given: str, meant: str) -> None:
    ran = penstock("run", "app.py", "--master", given)
    assert (ran.code, ran.out) == (2, "")
    assert f"'{given}' is not a Spark master{meant} Use inline, local, " in ran.err


@pytest.mark.parametrize("given", [
    "inline", "local", "local[*]", "local[2,3]", "local-cluster[2,1,1024]", "spark://host:7077",
    "yarn", "k8s://https://host:6443",
])
def test_valid_masters(given: str) -> None:
    assert spark_master(given) == given


def test_misspelled_cluster_address_creates_no_file(penstock, tmp_path: Path) -> None:
    ran = once(penstock, "--log", "localhost:9092", "--create-topics", 1)
    assert (ran.code, "Did you mean kafka://localhost:9092?" in ran.err) == (1, True)
    assert not (tmp_path / "localhost:9092").exists()


def test_missing_log_option_is_wrong_usage(penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_LOG")
    ran = penstock("run", "app.py")
    assert (ran.code, "No log is given. Use --log PATH, set PENSTOCK_LOG" in ran.err) == (2, True)


class FakeStreams:
    """An application in a given state that receives Ctrl-C."""

    def __init__(
        self, state: State, waits_for: str | None = None, execution: str | None = None
    ) -> None:
        self.config = StreamsConfig(application_id="app", execution=execution)
        self.state = state
        self.waits_for = waits_for
        self.is_closed = False

    def start(self) -> None:
        pass

    def wait(self, timeout: float) -> bool:
        raise KeyboardInterrupt

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(("streams", "pending"), [
    (FakeStreams(State.RUNNING), "waiting for the last commit to finish; "),
    (FakeStreams(State.RUNNING, execution="batch"), "waiting for the running batch to finish; "),
    (FakeStreams(State.REBALANCING), "waiting for the startup to finish; "),
    (FakeStreams(State.REBALANCING, "process 7"), ""),
])
def test_ctrl_c_shows_the_pending_work(streams: FakeStreams, pending: str) -> None:
    err = StringIO()
    status = StatusLine(Terminal(BytesIO(), err, BytesIO()), "app")
    with pytest.raises(KeyboardInterrupt):
        command_run._run(streams, status, once=False)  # type: ignore[arg-type]
    assert err.getvalue() == f"app: STOPPING, {pending}press Ctrl-C again to stop at once\n"
    assert streams.is_closed


def test_start_of_spark_is_shown() -> None:
    err = StringIO()
    status = StatusLine(Terminal(BytesIO(), err, BytesIO()), "app")
    start = "starting Spark"
    command_run._show_state(status, State.REBALANCING, State.CREATED, start)
    command_run._show_state(status, State.RUNNING, State.REBALANCING, start)
    command_run._show_state(status, State.REBALANCING, State.RUNNING, start)
    assert err.getvalue() == (
        "app: REBALANCING, starting Spark\napp: RUNNING\napp: REBALANCING\n"
    )


@pytest.mark.parametrize("master", MASTERS)
def test_ctrl_c_finishes_the_batch_and_stops(command: Command, topics: Log, master: str) -> None:
    send(topics, "a")
    process = command("run", "app.py", "--master", master, start_new_session=True)
    until(lambda: received(topics) == [b"A"])
    # A terminal sends the signal to all processes of the group.
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=180)
    assert (process.returncode, out) == (130, b"")
    assert b"Traceback" not in err
    lease = topics.candidate("app", timeout_ms=600_000).try_acquire()
    assert lease is not None, "The lease was not released."
    assert topics.committed("app")[("in", 0)].offset == 1  # type: ignore[index]


@pytest.mark.parametrize("master", MASTERS)
def test_standby_takes_over_from_a_killed_instance(
    command: Command, topics: Log, master: str, tmp_path: Path
) -> None:
    words = ("run", "app.py", "--master", master)
    send(topics, "a")
    with open(tmp_path / "first", "wb") as one, open(tmp_path / "second", "wb") as two:
        first = command(*words, stderr=one, start_new_session=True)
        until(lambda: received(topics) == [b"A"])
        second = command(*words, stderr=two, start_new_session=True)
        second_output = (tmp_path / "second").read_text
        until(lambda: f"process {first.pid} runs the application; this instance takes over"
              in second_output())
        first.kill()
        send(topics, "b")
        until(lambda: received(topics) == [b"A", b"B"])
        # A lane may commit before all tasks run.
        until(lambda: "app: RUNNING" in second_output())
        second.send_signal(signal.SIGTERM)
        assert second.wait(180) == 143


@pytest.mark.full
def test_application_that_was_suspended_keeps_its_lanes(
    command: Command, topics: Log, tmp_path: Path
) -> None:
    """For example while its container is paused."""
    with open(tmp_path / "output", "wb") as output:
        process = command(
            "run", "app.py", "--master", "inline", "--set", "session.timeout.ms=60000",
            "--verbose", stderr=output,
        )
        send(topics, "a")
        until(lambda: received(topics) == [b"A"])
        process.send_signal(signal.SIGSTOP)
        time.sleep(SILENCE_S + 1)
        process.send_signal(signal.SIGCONT)
        send(topics, "b")
        until(lambda: received(topics) == [b"A", b"B"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(180) == 143
    lines = (tmp_path / "output").read_text()
    assert "Granted to lane" in lines
    assert "silent" not in lines


@pytest.mark.spark
def test_once_on_spark(command: Command, topics: Log) -> None:
    send(topics, "a", "b")
    process = command("run", "app.py", "--once")
    out, err = process.communicate(timeout=180)
    assert (process.returncode, out, b"Traceback" in err) == (0, b"", False), err.decode()
    assert received(topics) == [b"A", b"B"]


@pytest.mark.spark
def test_error_on_spark_shows_only_the_users_traceback(command: Command, topics: Log) -> None:
    send(topics, "bad")
    process = command("run", "app.py", "--once", "--quiet")
    out, err = process.communicate(timeout=180)
    assert (process.returncode, out) == (1, b"")
    message = err.decode()
    assert message.startswith(
        "penstock: error: Application 'app' failed: ValueError: too bad to shout\n"
    )
    assert "neighbour.py\", line 4, in shout" in message
    for internal in ("py4j", "pyspark", "org.apache.spark", "penstock/engine"):
        assert internal not in message


def test_closed_pipe_of_printed_lines_stops_the_application(
    command: Command, topics: Log
) -> None:
    Path("printing.py").write_text(
        "from penstock import Printed, Serdes, StreamsBuilder\n"
        "text = Serdes.string()\n"
        "builder = StreamsBuilder()\n"
        'builder.stream("in", key=text, value=text).print(Printed.to_sys_out("seen"))\n'
    )
    send(topics, "a")
    process = command("run", "printing.py", "--master=inline", "--application-id=p")
    assert process.stdout.readline() == b"[seen]: null, a\n"
    process.stdout.close()
    send(topics, "b")
    assert process.wait(60) == 141
    assert b"Traceback" not in process.stderr.read()


def test_status_line_on_a_terminal(command: Command, topics: Log) -> None:
    send(topics, "a", "b")
    reader, writer = pty.openpty()
    process = command("run", "app.py", "--once", "--master=inline", stderr=writer)
    os.close(writer)
    seen = b""
    while True:
        try:
            data = os.read(reader, 4096)
        except OSError:
            break
        if not data:
            break
        seen += data
    os.close(reader)
    assert process.wait(60) == 0
    text = seen.decode()
    assert re.search(r"\r\x1b\[2Kapp: [A-Z_]+, batch 1, 2 records, [\d,]+/s, lag 0, \d+ ms", text)
    # The line is removed before the summary.
    assert text.endswith("\x1b[2Kapp: stopped after 1 batch, 2 records.\r\n")
