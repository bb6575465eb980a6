"""Errors about misspelled names suggest the right one, and commands in them can be pasted."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Serdes,
    Streams,
    StreamsBuilder,
    StreamsConfig,
    Topology,
)
from penstock.errors import MissingSourceTopicException
from penstock.log import Log, RecordColumns, TopicPartition, open_log
from penstock.log.errors import UnknownTopic
from penstock.suggestions import similar_name, user_topics_first
from penstock.testing import TopologyTestDriver

APP = '''
from penstock import Serdes, StreamsBuilder
serdes = {"key": Serdes.string(), "value": Serdes.string()}
def topology():
    builder = StreamsBuilder()
    builder.stream("ordres", **serdes).to("shouts", **serdes)
    builder.stream("prices", **serdes).to("prices-2", **serdes)
    return builder.build()
'''
RUN = ("run", "spelled.py", "--application-id", "app", "--master", "inline", "--once", "--quiet")
Penstock = Callable[..., Any]


@pytest.fixture(autouse=True)
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "spelled.py").write_text(APP)
    yield
    sys.modules.pop("spelled", None)


@pytest.fixture
def topics(path: Path) -> Iterator[Log]:
    with open_log(path) as log:
        for topic in ("a-tasks", "a-orders-changelog", "orders", "prices"):
            log.create_topic(topic)
        log.append("orders", 0, RecordColumns([None], [b"1"]))
        yield log


@pytest.mark.parametrize("command", [
    ("produce", "ordres"), ("consume", "ordres"), ("topics", "describe", "Orders"),
    ("topics", "delete", "oders", "--yes"), ("topics", "alter", "order", "--partitions", "2"),
])
def test_command_suggests_the_topic(penstock: Penstock, topics: Log, command: Any) -> None:
    result = penstock(*command)
    assert result.code == 1
    assert "does not exist. Did you mean 'orders'? Topics: 'orders', 'prices', 'a-" in result.err


def test_run_suggests_the_topic_before_it_advises_to_create_the_misspelled_one(
    penstock: Penstock, topics: Log
) -> None:
    result = penstock(*RUN)
    assert result.code == 1
    assert result.err.splitlines()[:3] == [
        "penstock: error: Topics 'ordres', 'shouts', 'prices-2' do not exist.",
        "Did you mean 'orders' instead of 'ordres'?",
        # 'prices-2' resembles 'prices', but the application uses that topic, too.
        "Otherwise create the missing topics with:",
    ]


def test_created_topic_is_compared_with_existing_ones(penstock: Penstock, topics: Log) -> None:
    words = [word for word in RUN if word != "--quiet"]
    result = penstock(*words, "--create-topics", "1")
    assert result.code == 0
    assert "Created topic 'ordres'. Topic 'orders' exists, too.\n" in result.err
    assert "Created topic 'shouts'.\n" in result.err


@pytest.mark.parametrize("exists", [False, True])
def test_suggested_commands_can_be_pasted(
    penstock: Penstock, tmp_path: Path, exists: bool
) -> None:
    log = tmp_path / "my log; $HOME.db"
    if exists:
        with open_log(log):
            pass
    result = penstock(*RUN, "--log", log)
    commands = [line for line in result.err.splitlines() if line.startswith("  penstock ")]
    assert len(commands) == 4
    for line in commands:
        assert penstock(*shlex.split(line)[1:]).code == 0
    assert penstock(*RUN, "--log", log).code == 0


def test_groups_applications_and_functions_are_suggested(penstock: Penstock, topics: Log) -> None:
    topics.commit_offsets("auditors", {TopicPartition("orders", 0): 1})
    assert "Did you mean 'auditors'?" in penstock("groups", "describe", "auditor").err
    topics.create_topic("shipping-tasks")
    assert "Did you mean 'shipping'?" in penstock("reset", "shiping", "--yes").err
    wrong = penstock("run", "spelled.py:topolgy", *RUN[2:])
    assert "'topolgy' does not exist in 'spelled.py'. Did you mean 'topology'?" in wrong.err


# ---- in Python -------------------------------------------------------------------------------


def copy(source: str) -> Topology:
    builder = StreamsBuilder()
    serdes: dict[str, Any] = {"key": Serdes.string(), "value": Serdes.string()}
    builder.stream(source, **serdes).to("prices", **serdes)
    return builder.build()


def test_streams_suggests_the_topic(topics: Log, path: Path, tmp_path: Path) -> None:
    config = StreamsConfig(application_id="app", log=str(path), state_dir=str(tmp_path))
    with (
        pytest.raises(MissingSourceTopicException, match="Did you mean 'orders'") as raised,
        Streams(copy("ordres"), config, master="inline") as streams,
    ):
        streams.run_until_caught_up(60)
    assert "Topics: orders, prices, a-orders-changelog" in str(raised.value)


def test_driver_suggests_the_topic() -> None:
    with (
        TopologyTestDriver(copy("orders")) as driver,
        pytest.raises(ValueError, match=r"Unknown topic: oders\. Did you mean 'orders'"),
    ):
        driver.pipe("oders", None, b"", 0)


def test_unlike_names_are_not_suggested() -> None:
    assert similar_name("payments", ["orders", "shouts"]) is None
    assert similar_name("ORDERS", ["orders"]) == "orders"
    assert str(UnknownTopic("a", ["orders"])) == "Topic 'a' does not exist. Topics: 'orders'."


def test_internal_topics_come_last() -> None:
    assert user_topics_first([
        "app-x-repartition", "__consumer_offsets", "tasks", "app-tasks", "words",
        "app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000010-topic", "changelog",
    ])[:3] == ["changelog", "tasks", "words"]
