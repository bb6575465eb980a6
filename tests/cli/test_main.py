"""Help, exit codes, and errors as people and scripts see them."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.cli import log_option as opening
from penstock.cli import main as entry
from penstock.cli.parsing import Parser, instant
from penstock.errors import ConfigException
from penstock.log import Log, open_log


def parsers(parser: argparse.ArgumentParser | None = None) -> list[Parser]:
    """The parser and all below it."""
    parser = parser or entry.parser()
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
    # argparse does not fold every usage.
    body = ran.out.partition("\n\n")[2]
    assert max(map(len, body.splitlines())) <= 100


def test_the_examples_can_be_parsed(penstock) -> None:
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
        assert entry.parser().parse_args(words[: min(ends, default=len(words))]).run


def test_the_version_is_that_of_the_package(penstock) -> None:
    from importlib.metadata import version

    assert penstock("--version") == (0, f"penstock {version('penstock')}\n", "")


@pytest.mark.parametrize("wrong", [
    (), ("nothing",), ("topics",), ("topics", "lst"), ("topics", "list", "--nothing"),
])
def test_wrong_usage_is_told_in_a_line_with_a_hint(penstock, wrong) -> None:
    ran = penstock(*wrong)
    assert (ran.code, ran.out) == (2, "")
    assert re.fullmatch(r"penstock: error: .*\nSee 'penstock.* --help'\.\n", ran.err)


def test_the_log_may_be_named_before_or_after_the_command(
    penstock, log: Log, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_LOG", "elsewhere.db")
    assert penstock("topics", "list").code == 1
    for words in (("--log", path, "topics", "list"), ("topics", "--log", path, "list"),
                  ("topics", "list", "--log", path), ("topics", "list", f"--log={path}")):
        assert penstock(*words).code == 0
    monkeypatch.delenv("PENSTOCK_LOG")
    ran = penstock("topics", "list")
    assert (ran.code, "No log was named. Give --log PATH or set PENSTOCK_LOG." in ran.err) == (
        2, True,
    )


def test_only_create_makes_a_log(penstock, path: Path) -> None:
    for words in (("topics", "list"), ("consume", "t"), ("produce", "t"), ("groups", "list"),
                  ("topics", "delete", "t"), ("topics", "clean")):
        ran = penstock(*words)
        assert (ran.code, ran.out) == (1, "")
        assert f"No log at '{path}'." in ran.err
    assert not path.exists()


def test_a_file_that_is_no_log_is_an_error(penstock, path: Path) -> None:
    path.write_text("hello " * 1000)
    for words in (("topics", "list"), ("topics", "create", "t")):
        ran = penstock(*words)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith("penstock: error: ")
        assert "Traceback" not in ran.err
    assert path.read_text() == "hello " * 1000
    assert penstock("topics", "list", "--log", path.parent).code == 1
    assert penstock("topics", "list", "--log", "kafka://").code == 1


def test_a_log_that_is_neither_a_path_nor_a_cluster_is_an_error(penstock) -> None:
    ran = penstock("topics", "list", "--log", "kakfa://localhost:9092")
    assert ran == (1, "", "penstock: error: Invalid log address 'kakfa://localhost:9092'. "
                   "An address is a path or kafka://HOST:PORT,HOST:PORT.\n")


@pytest.mark.parametrize(("given", "meant"), [
    ("localhost:9092", "kafka://localhost:9092"), ("a:1,b:2", "kafka://a:1,b:2"),
    ("[::1]:9092", "kafka://[::1]:9092"), ("kafka:localhost", "kafka://localhost:9092"),
    ("kafka:/host:9092", "kafka://host:9092"), ("Kafka://host:9092", "kafka://host:9092"),
])
def test_a_cluster_that_is_written_wrong_makes_no_file(
    penstock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, meant: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (("topics", "list"), ("topics", "create", "t"), ("produce", "t", "--create")):
        ran = penstock(*words, "--log", given)
        assert (ran.code, ran.out) == (1, "")
        said = f"penstock: error: Invalid log address '{given}'. Did you mean {meant}?"
        assert ran.err.startswith(said)
    with pytest.raises(ConfigException, match="Did you mean"):
        open_log(Path(given))
    assert list(tmp_path.iterdir()) == []


def test_a_file_may_have_the_name_of_a_host(penstock, tmp_path: Path) -> None:
    assert penstock("topics", "create", "t", "--log", f"{tmp_path}/localhost:9092").code == 0
    assert (tmp_path / "localhost:9092").exists()


def test_a_cluster_that_does_not_answer_is_waited_for_aloud(
    penstock, log: Log, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = threading.Event()
    say = opening._tell

    def tell(text: str) -> None:
        say(text)
        told.set()

    def open_slowly(address: str, **_: object) -> Log:
        assert told.wait(60), "nothing was said"
        return open_log(path)

    monkeypatch.setattr(opening, "TOLD_AFTER_S", 0.0)
    monkeypatch.setattr(opening, "_tell", tell)
    monkeypatch.setattr(opening, "open_log", open_slowly)
    ran = penstock("topics", "list", "--json", "--log", "kafka://127.0.0.1:1")
    assert ran.code == 0
    assert ran.err == "Waiting for Kafka at 127.0.0.1:1 ...\n"
    assert '"name":"words"' in ran.out


def test_nothing_is_said_of_a_cluster_that_answers_soon(
    penstock, log: Log, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "TOLD_AFTER_S", 3600.0)
    monkeypatch.setattr(opening, "open_log", lambda address, **_: open_log(path))
    ran = penstock("topics", "list", "--log", "kafka://127.0.0.1:1")
    assert (ran.code, ran.err) == (0, "")
    assert not [one for one in threading.enumerate() if isinstance(one, threading.Timer)]


def test_settings_of_a_file_are_texts_that_may_be_wrong(penstock, tmp_path: Path) -> None:
    settings = tmp_path / "kafka.properties"
    settings.write_text("timeout_ms=soon\n")
    ran = penstock("topics", "list", "--log", "kafka://127.0.0.1:1", "--log-config", settings)
    assert ran == (
        1, "", "penstock: error: timeout_ms must be a number of milliseconds, not 'soon'.\n"
    )
    settings.write_text("timeout_ms=1000\n")
    ran = penstock("topics", "list", "--log", "kafka://127.0.0.1:1", "--log-config", settings)
    assert ran.code == 1
    first = "penstock: error: No answer from Kafka at 127.0.0.1:1 within 1 s."
    assert ran.err.splitlines()[0] == first
    assert "Connection refused" in ran.err


def test_a_mistake_of_penstock_is_a_line_too(penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("oh")

    monkeypatch.setattr("penstock.cli.commands.topics.opened", broken)
    ran = penstock("topics", "list")
    assert (ran.code, ran.err) == (
        1, "penstock: error: RuntimeError: oh --debug shows where.\n",
    )
    ran = penstock("topics", "list", "--debug")
    assert ran.code == 1
    assert ran.err.startswith("Traceback")
    assert penstock("--debug", "topics", "list").err.startswith("Traceback")


def test_times() -> None:
    assert instant("5") == 5
    assert instant("1970-01-01T01:00:00+01:00") == 0
    assert instant("2026-01-31T12:00:00.5Z") == 1_769_860_800_500
    assert instant("now") - instant("90m") in range(5_400_000 - 50, 5_400_001)
    assert instant("99999999d") == 0
    for wrong in ("noon", "-5", "5 m", "1969-12-31T00:00:00Z", "5x"):
        with pytest.raises(argparse.ArgumentTypeError):
            instant(wrong)


@pytest.mark.parametrize(("words", "allowed"), [
    (("--help",), set()), (("topics", "list", "--help"), set()), (("--version",), set()),
    (("topics", "list"), {"pyarrow"}), (("topics", "create", "t"), {"pyarrow"}),
])
def test_heavy_packages_are_not_imported(tmp_path: Path, log: Log, path: Path, words, allowed
                                         ) -> None:
    heavy = {"pyspark", "pyarrow", "pandas", "lmdb", "confluent_kafka", "pydantic"} - allowed
    code = (
        "import sys\nfrom penstock.cli.main import main\nmain(sys.argv[1:])\n"
        f"sys.exit(','.join(sorted({heavy!r} & set(sys.modules))) or None)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False,
        env={**os.environ, "PENSTOCK_LOG": str(path)}, timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
