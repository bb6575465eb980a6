"""`penstock run` shows, writes and formats the log of the application and what it prints."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.run_logging import JsonFormatter
from penstock.engine.worker import log_capture
from penstock.engine.worker.log_capture import LogCapture
from penstock.engine.worker.log_lines import STDOUT, LogLine, replay_log_lines
from penstock.log import Log, RecordColumns

APP = '''
import logging
from penstock import Serdes, StreamsBuilder

log = logging.getLogger("shop")
serdes = {"key": Serdes.string(), "value": Serdes.string()}

def shout(value):
    log.debug("debugging %s", value)
    log.info("shouting %s", value)
    print("printed", value)
    if value == "bad":
        raise ValueError("too bad")
    return value.upper()

def topology():
    builder = StreamsBuilder()
    builder.stream("in", **serdes).map_values(shout).to("out", **serdes)
    return builder.build()
'''
Penstock = Callable[..., Any]
#: Without and with Spark.
MASTERS = ["inline", pytest.param("local[2]", marks=pytest.mark.spark)]


@pytest.fixture(autouse=True)
def app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Log
) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("PYTHONPATH", "")
    (tmp_path / "noisy.py").write_text(APP)
    log.create_topic("in")
    log.create_topic("out")
    log.append("in", 0, RecordColumns([None], [b"tea"]))
    yield
    sys.modules.pop("noisy", None)


@pytest.fixture
def run(penstock: Penstock) -> Penstock:
    def start(*options: str, master: str = "inline") -> Any:
        return penstock("run", "noisy.py", "--application-id", "app", "--master", master,
                        "--once", *options)

    return start


@pytest.mark.parametrize("master", MASTERS)
def test_verbose_shows_the_log_of_user_code(run: Penstock, master: str) -> None:
    ran = run("--verbose", master=master)
    assert ran.code == 0
    assert "INFO shop: shouting tea\n" in ran.err
    assert "debugging" not in ran.err
    assert ran.out == "printed tea\n"


@pytest.mark.parametrize("master", MASTERS)
def test_lines_of_a_failed_batch_are_shown(run: Penstock, log: Log, master: str) -> None:
    log.append("in", 0, RecordColumns([None], [b"bad"]))
    ran = run("--log-level", "info", master=master)
    assert ran.code == 1
    assert ran.out == "printed tea\nprinted bad\n"
    assert "INFO shop: shouting bad\n" in ran.err
    assert "ValueError: too bad" in ran.err


def test_warnings_are_shown_by_default(run: Penstock) -> None:
    ran = run()
    assert "shouting" not in ran.err
    assert "app: RUNNING" in ran.err


def test_log_level_is_independent_of_the_status(run: Penstock) -> None:
    ran = run("--quiet", "--log-level", "debug")
    assert "DEBUG shop: debugging tea\n" in ran.err
    assert "app: RUNNING" not in ran.err


def test_log_file_gets_the_lines_with_their_time(run: Penstock, tmp_path: Path) -> None:
    ran = run("--log-file", "app.log", "--log-level", "info", "--quiet")
    assert (ran.code, ran.err) == (0, "")
    lines = (tmp_path / "app.log").read_text().splitlines()
    assert any(line.endswith(" INFO shop: shouting tea") for line in lines)
    assert any(line.endswith("Application 'app' is RUNNING.") for line in lines)
    assert all(line[:2] == "20" for line in lines)


def test_log_file_that_cannot_be_opened_is_reported(run: Penstock) -> None:
    ran = run("--log-file", "nowhere/app.log")
    assert ran.code == 1
    assert "nowhere/app.log: No such file or directory." in ran.err


@pytest.mark.parametrize("to_file", [False, True])
def test_json_lines_are_complete_objects(run: Penstock, tmp_path: Path, to_file: bool) -> None:
    ran = run("--log-format", "json", *(("--log-file", "app.log") if to_file else ()))
    text = (tmp_path / "app.log").read_text() if to_file else ran.err
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["message"] for row in rows if row["logger"] == "shop"] == ["shouting tea"]
    assert {"time", "level", "logger", "message"} == set(rows[0])
    assert "Application 'app' is RUNNING." in {row["message"] for row in rows}
    assert ran.out == "printed tea\n"
    # A person at the terminal still sees the status if the lines go to a file.
    assert ("app: RUNNING" in ran.err) == to_file


def test_json_lines_contain_the_failure(run: Penstock, log: Log) -> None:
    log.append("in", 0, RecordColumns([None], [b"bad"]))
    ran = run("--log-format", "json")
    assert ran.code == 1
    objects, _, message = ran.err.partition("penstock: error: ")
    rows = [json.loads(line) for line in objects.splitlines()]
    assert any(row["level"] == "ERROR" for row in rows)
    assert "ValueError: too bad" in message


def test_options_apply_to_an_application_that_configures_logging(
    run: Penstock, tmp_path: Path
) -> None:
    path = tmp_path / "noisy.py"
    path.write_text(f"{APP}\nlogging.getLogger('nobody').addHandler(logging.NullHandler())\n")
    assert "shouting tea" in run("--verbose").err
    before = list(logging.getLogger().handlers)
    try:
        path.write_text(f"{APP}\nlogging.getLogger().addHandler(logging.NullHandler())\n")
        sys.modules.pop("noisy", None)
        assert "shouting" not in run("--verbose").err
    finally:
        logging.getLogger().handlers[:] = before


def test_level_of_the_loggers_is_restored(run: Penstock) -> None:
    before = logging.getLogger().level, logging.getLogger("py4j").level
    run("--log-level", "debug")
    assert (logging.getLogger().level, logging.getLogger("py4j").level) == before


# ---- in a worker -----------------------------------------------------------------------------


def test_worker_captures_logs_and_prints_in_order() -> None:
    before = sys.stdout
    with LogCapture(logging.INFO) as capture:
        print("one")
        logging.getLogger("shop").info("two")
        print("three", end="")
    assert sys.stdout is before
    assert [(line.logger, line.text) for line in capture.lines()] == [
        (STDOUT, "one"), ("shop", "two"), (STDOUT, "three"),
    ]


def test_worker_limits_printed_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_capture, "MAX_PRINTED_LINES", 2)
    with LogCapture(logging.INFO) as capture:
        for number in range(5):
            print(number)
    *lines, last = capture.lines()
    assert [line.text for line in lines] == ["0", "1"]
    assert last.text == "3 more printed lines of this task are omitted."


def test_driver_logs_a_captured_line_with_its_time_and_traceback(
    caplog: pytest.LogCaptureFixture
) -> None:
    replay_log_lines([LogLine(30, "shop", "bad", 1000.5, "Traceback", "worker1", 7, "0_1")], 3)
    (record,) = caplog.records
    assert json.loads(JsonFormatter().format(record)) == {
        "time": "1970-01-01T00:16:40.500Z", "level": "WARNING", "logger": "shop",
        "message": "bad", "exception": "Traceback", "host": "worker1", "process": 7, "lane": 3,
        "task": "0_1",
    }
    assert logging.Formatter("%(msecs)03d %(message)s").format(record) == "500 bad\nTraceback"


def test_line_that_has_not_ended_is_kept() -> None:
    with LogCapture(logging.INFO) as capture:
        print("one\ntwo", end="")
        assert [line.text for line in capture.take_lines(end_line=False)] == ["one"]
        print(" three")
        assert [line.text for line in capture.take_lines(end_line=False)] == ["two three"]
