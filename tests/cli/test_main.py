"""Help, exit codes and errors."""

from __future__ import annotations

import argparse
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock import native
from penstock.cli import log_option
from penstock.cli import main as entry
from penstock.cli.parsing import Parser, timestamp_ms
from penstock.errors import ConfigException
from penstock.log import Log, open_log


def parsers(parser: argparse.ArgumentParser | None = None) -> list[Parser]:
    """Return the parser and all its subparsers."""
    parser = parser or entry.build_parser()
    found = [parser]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                found += parsers(inner)
    return found  # type: ignore[return-value]


@pytest.mark.parametrize("prog", [parser.prog for parser in parsers()])
def test_every_command_has_help_with_examples(penstock, prog: str) -> None:
    ran = penstock(*prog.split()[1:], "--help")
    assert (ran.code, ran.err) == (0, "")
    assert "\nexamples:\n  " in ran.out
    # argparse does not wrap every usage line.
    body = ran.out.partition("\n\n")[2]
    assert max(map(len, body.splitlines())) <= 100


def test_examples_in_the_help_are_valid(penstock) -> None:
    commands = [
        line.split("penstock ", 1)[1]
        for parser in parsers()
        for line in (parser.epilog or "").splitlines() if re.match(r"  .*penstock ", line)
    ]
    assert len(commands) > 40
    import shlex

    for command in commands:
        words = shlex.split(command)
        ends = [words.index(end) for end in ("|", "<") if end in words]
        assert entry.build_parser().parse_args(words[: min(ends, default=len(words))]).run


def test_version_is_that_of_the_package(penstock) -> None:
    from importlib.metadata import version

    shown = f"penstock {version('penstock')}, core: {native.in_use()}\n"
    assert penstock("--version") == (0, shown, "")


@pytest.mark.parametrize("wrong", [
    (), ("nothing",), ("topics",), ("topics", "lst"), ("topics", "list", "--nothing"),
])
def test_wrong_usage_prints_one_line_and_a_hint(penstock, wrong) -> None:
    ran = penstock(*wrong)
    assert (ran.code, ran.out) == (2, "")
    assert re.fullmatch(r"penstock: error: .*\nSee 'penstock.* --help'\.\n", ran.err)


def test_log_option_is_accepted_before_and_after_the_command(
    penstock, log: Log, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_LOG", "elsewhere.db")
    assert penstock("topics", "list").code == 1
    for words in (("--log", path, "topics", "list"), ("topics", "--log", path, "list"),
                  ("topics", "list", "--log", path), ("topics", "list", f"--log={path}")):
        assert penstock(*words).code == 0
    monkeypatch.delenv("PENSTOCK_LOG")
    ran = penstock("topics", "list")
    assert (ran.code, "No log is given. Use --log PATH or set PENSTOCK_LOG." in ran.err) == (
        2, True,
    )


def test_only_create_creates_a_log(penstock, path: Path) -> None:
    for words in (("topics", "list"), ("consume", "t"), ("produce", "t"), ("groups", "list"),
                  ("topics", "delete", "t"), ("topics", "clean")):
        ran = penstock(*words)
        assert (ran.code, ran.out) == (1, "")
        assert f"The log '{path}' does not exist." in ran.err
    assert not path.exists()


def test_file_that_is_not_a_log_fails(penstock, path: Path) -> None:
    path.write_text("hello " * 1000)
    for words in (("topics", "list"), ("topics", "create", "t")):
        ran = penstock(*words)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith("penstock: error: ")
        assert "Traceback" not in ran.err
    assert path.read_text() == "hello " * 1000
    assert penstock("topics", "list", "--log", path.parent).code == 1
    assert penstock("topics", "list", "--log", "kafka://").code == 1


def test_unknown_log_scheme_fails(penstock) -> None:
    ran = penstock("topics", "list", "--log", "kakfa://localhost:9092")
    assert ran == (1, "", "penstock: error: Invalid log address 'kakfa://localhost:9092'. "
                   "An address is a path or kafka://HOST:PORT,HOST:PORT.\n")


@pytest.mark.parametrize(("given", "meant"), [
    ("localhost:9092", "kafka://localhost:9092"), ("a:1,b:2", "kafka://a:1,b:2"),
    ("[::1]:9092", "kafka://[::1]:9092"), ("kafka:localhost", "kafka://localhost:9092"),
    ("kafka:/host:9092", "kafka://host:9092"), ("Kafka://host:9092", "kafka://host:9092"),
])
def test_misspelled_cluster_address_creates_no_file(
    penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, meant: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (("topics", "list"), ("topics", "create", "t"), ("produce", "t", "--create")):
        ran = penstock(*words, "--log", given)
        assert (ran.code, ran.out) == (1, "")
        message = f"penstock: error: Invalid log address '{given}'. Did you mean {meant}?"
        assert ran.err.startswith(message)
    with pytest.raises(ConfigException, match="Did you mean"):
        open_log(Path(given))
    assert list(tmp_path.iterdir()) == []


def test_log_file_may_have_the_name_of_a_host(penstock, tmp_path: Path) -> None:
    assert penstock("topics", "create", "t", "--log", f"{tmp_path}/localhost:9092").code == 0
    assert (tmp_path / "localhost:9092").exists()


def test_slow_cluster_is_reported(
    penstock, log: Log, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported = threading.Event()
    write = log_option._write_stderr

    def report(text: str) -> None:
        write(text)
        reported.set()

    def open_slowly(address: str, **_: object) -> Log:
        assert reported.wait(60), "nothing was reported"
        return open_log(path)

    monkeypatch.setattr(log_option, "SLOW_CONNECTION_S", 0.0)
    monkeypatch.setattr(log_option, "_write_stderr", report)
    monkeypatch.setattr(log_option, "open_log", open_slowly)
    monkeypatch.setattr(log_option, "wait_while_refused", lambda *arguments: None)
    ran = penstock("topics", "list", "--json", "--log", "kafka://127.0.0.1:1")
    assert ran.code == 0
    assert ran.err == "Waiting for Kafka at 127.0.0.1:1 ...\n"
    assert '"name":"words"' in ran.out


def test_fast_cluster_is_not_reported(
    penstock, log: Log, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_option, "SLOW_CONNECTION_S", 3600.0)
    monkeypatch.setattr(log_option, "wait_while_refused", lambda *arguments: None)
    monkeypatch.setattr(log_option, "open_log", lambda address, **_: open_log(path))
    ran = penstock("topics", "list", "--log", "kafka://127.0.0.1:1")
    assert (ran.code, ran.err) == (0, "")
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]


def test_invalid_setting_in_a_file_fails(penstock, tmp_path: Path) -> None:
    settings = tmp_path / "kafka.properties"
    settings.write_text("timeout_ms=soon\n")
    # This server accepts connections, so that the settings are read.
    with socket.create_server(("127.0.0.1", 0)) as server:
        log = f"kafka://127.0.0.1:{server.getsockname()[1]}"
        ran = penstock("topics", "list", "--log", log, "--log-config", settings)
        assert ran == (
            1, "", "penstock: error: timeout_ms must be a number of milliseconds, not 'soon'.\n"
        )
        settings.write_text("timeout_ms=1000\n")
        ran = penstock("topics", "list", "--log", log, "--log-config", settings)
    assert ran.code == 1
    first = f"penstock: error: Kafka at {log.removeprefix('kafka://')} did not respond within 1 s."
    assert ran.err.splitlines()[0] == first


def test_bug_in_penstock_prints_one_line(penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("oh")

    monkeypatch.setattr("penstock.cli.commands.topics.open_log_option", broken)
    ran = penstock("topics", "list")
    assert (ran.code, ran.err) == (
        1, "penstock: error: RuntimeError: oh Use --debug for the traceback.\n",
    )
    ran = penstock("topics", "list", "--debug")
    assert ran.code == 1
    assert ran.err.startswith("Traceback")
    assert penstock("--debug", "topics", "list").err.startswith("Traceback")


def test_time_formats() -> None:
    assert timestamp_ms("5") == 5
    assert timestamp_ms("1970-01-01T01:00:00+01:00") == 0
    assert timestamp_ms("2026-01-31T12:00:00.5Z") == 1_769_860_800_500
    assert timestamp_ms("now") - timestamp_ms("90m") in range(5_400_000 - 50, 5_400_001)
    assert timestamp_ms("99999999d") == 0
    for wrong in ("noon", "-5", "5 m", "1969-12-31T00:00:00Z", "5x"):
        with pytest.raises(argparse.ArgumentTypeError):
            timestamp_ms(wrong)


@pytest.mark.parametrize(("words", "allowed"), [
    (("--help",), set()), (("topics", "list", "--help"), set()), (("--version",), set()),
    (("topics", "list"), {"pyarrow"}), (("topics", "create", "t"), {"pyarrow"}),
])
def test_heavy_packages_are_not_imported(
    tmp_path: Path, log: Log, path: Path, words, allowed
) -> None:
    heavy = {
        "pyspark", "pyarrow", "pandas", "lmdb", "confluent_kafka", "pydantic", "rich.console",
    } - allowed
    code = (
        "import sys\nfrom penstock.cli.main import main\nmain(sys.argv[1:])\n"
        f"sys.exit(','.join(sorted({heavy!r} & set(sys.modules))) or None)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False,
        env={**os.environ, "PENSTOCK_LOG": str(path)}, timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
