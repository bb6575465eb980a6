"""Without a terminal, commands that delete or move data require `--yes`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.log import Log, RecordColumns

APPLICATION = """
from penstock import Serdes, StreamsBuilder

def topology():
    builder = StreamsBuilder()
    words = builder.stream("words", key=Serdes.string(), value=Serdes.string())
    {extra}
    words.group_by_key().count()
    return builder.build()
"""
OPTIONS = ("unconfirmed_app.py", "--application-id", "app")


def write(tmp_path: Path, extra: str = "") -> None:
    (tmp_path / "unconfirmed_app.py").write_text(APPLICATION.format(extra=extra))


@pytest.fixture
def state(
    tmp_path: Path, log: Log, penstock: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Any]:
    """An application that has run, and then gets another step. Returns its state in the log."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path)
    log.append("words", 0, RecordColumns([b"a"], [b"v"]))
    assert penstock("run", *OPTIONS, "--once", "--quiet", "--master", "inline").code == 0
    write(tmp_path, "words.filter(lambda value: True)")

    def read() -> Any:
        names = [topic.name for topic in log.topics()]
        return names, [
            [batch.columns() for batch in log.read(name, 0, 0)] for name in names
        ], log.committed("app")

    return read


@pytest.mark.parametrize(("command", "question"), [
    (("upgrade", *OPTIONS), "Upgrade application 'app'?"),
    (("upgrade", *OPTIONS, "--json"), "Upgrade application 'app'?"),
    (("reset", "app"), "Reset application 'app'?"),
    (("reset", "app", "--json"), "Reset application 'app'?"),
    (("reset", "app", "--force"), "Reset application 'app'?"),
    (("topics", "delete", "app-tasks"), "Delete 'app-tasks' permanently?"),
])
def test_command_changes_nothing_without_yes(
    penstock: Callable[..., Any], state: Callable[[], Any], command: tuple[str, ...],
    question: str,
) -> None:
    before = state()
    ran = penstock(*command)
    assert ran.code == 2
    assert f"{question} There is no terminal for the question. Nothing was changed." in ran.err
    assert "Use --yes" in ran.err
    assert state() == before
    # A reply in a pipe is not a confirmation.
    assert penstock(*command, stdin="y\n").code == 2
    assert penstock(*command, "--yes").code == 0
    assert state() != before
