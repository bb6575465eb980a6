from __future__ import annotations

import json
from pathlib import Path

from penstock.cli.terminal import Terminal
from penstock.log import Log, RecordColumns, TopicPartition, open_log


def test_list_prints_a_table(penstock, log: Log) -> None:
    log.create_topic("prices", config={"cleanup.policy": "compact"})
    ran = penstock("topics", "list")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "TOPIC   PARTITIONS  OFFSETS  CLEANUP\n"
        "prices           1        0  compact\n"
        "words            2        6  delete\n"
    )


def test_list_prints_json(penstock, log: Log) -> None:
    ran = penstock("topics", "list", "--json")
    assert [json.loads(line) for line in ran.out.splitlines()] == [
        {"name": "words", "partitions": 2, "offsets": 6, "cleanup_policy": "delete"}
    ]


def test_create_creates_the_log_and_the_topics(penstock, path: Path) -> None:
    ran = penstock("topics", "create", "a", "b", "--partitions", 3, "--config", "retention.ms=-1")
    assert (ran.code, ran.out) == (0, "")
    with open_log(path, create=False) as log:
        assert [(t.name, t.partitions, dict(t.config)) for t in log.topics()] == [
            ("a", 3, {"retention.ms": "-1"}), ("b", 3, {"retention.ms": "-1"}),
        ]


def test_existing_topic_fails_without_if_not_exists(penstock, log: Log) -> None:
    ran = penstock("topics", "create", "words")
    assert (ran.code, ran.err) == (1, "penstock: error: Topic 'words' already exists.\n")
    assert penstock("topics", "create", "words", "--if-not-exists").code == 0
    assert log.topic("words").partitions == 2


def test_invalid_setting_or_name_fails_and_lists_the_settings(penstock, log: Log) -> None:
    ran = penstock("topics", "create", "new", "--config", "retention=1")
    assert ran.code == 1
    assert "Unknown topic setting 'retention'. Settings: cleanup.policy" in ran.err
    assert penstock("topics", "create", "a/b").code == 1
    assert penstock("topics", "create", "new", "--config", "retention.ms").code == 2
    assert penstock("topics", "create", "new", "--partitions", 0).code == 2
    assert [topic.name for topic in log.topics()] == ["words"]


def test_describe_shows_settings_and_offsets(penstock, log: Log) -> None:
    log.alter_topic("words", {"retention.ms": 5})
    log.delete_records("words", 1, 2)
    ran = penstock("topics", "describe", "words")
    assert ran.out == (
        "Topic:      words\n"
        f"Id:         {log.topic('words').id}\n"
        "Partitions: 2\n"
        "SETTING       VALUE\n"
        "retention.ms  5\n"
        "PARTITION  START  END\n"
        "        0      0    3\n"
        "        1      2    3\n"
    )
    full = penstock("topics", "describe", "words", "--all-settings").out
    assert "cleanup.policy                   delete\n" in full
    (row,) = map(json.loads, penstock("topics", "describe", "--json").out.splitlines())
    assert row["config"] == {"retention.ms": "5"}
    assert row["partitions"][1] == {
        "partition": 1, "start": 2, "end": 3, "tombstones_removed_to": 0,
    }


def test_describe_of_an_unknown_topic_lists_the_topics(penstock, log: Log) -> None:
    ran = penstock("topics", "describe", "wrods")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        "penstock: error: Topic 'wrods' does not exist. Did you mean 'words'? Topics: 'words'.\n"
    )


def test_alter_changes_settings_and_adds_partitions(penstock, log: Log) -> None:
    assert penstock("topics", "alter", "words", "--config", "retention.ms=9").code == 0
    assert log.topic("words").config == {"retention.ms": "9"}
    assert penstock("topics", "alter", "words", "--unset", "retention.ms", "--partitions", 4
                    ).code == 0
    assert (log.topic("words").config, log.topic("words").partitions) == ({}, 4)
    assert penstock("topics", "alter", "words", "--partitions", 3).code == 1


def test_alter_without_a_change_is_wrong_usage(penstock, log: Log) -> None:
    ran = penstock("topics", "alter", "words")
    assert ran.code == 2
    assert "Use --config, --unset or --partitions.\nSee 'penstock topics alter --help'." in ran.err
    both = ("--config", "retention.ms=1", "--unset", "retention.ms")
    assert penstock("topics", "alter", "words", *both).code == 2


def test_settings_that_a_file_ignores_are_reported(penstock, log: Log) -> None:
    ran = penstock(
        "topics", "create", "new", "--replication-factor", "3", "--config", "segment.bytes=1000000"
    )
    assert (ran.code, ran.err.splitlines()) == (0, [
        "The setting replication.factor has no effect: the embedded log is one file without "
        "replicas.",
        "The setting segment.bytes has no effect: the embedded log has no segments, replicas or "
        "compression.",
        "Created topic 'new'.",
    ])
    ran = penstock("topics", "alter", "new", "--config", "flush.ms=5")
    assert "The setting flush.ms has no effect" in ran.err


def test_delete_checks_all_topics_first(penstock, log: Log) -> None:
    assert penstock("topics", "delete", "words", "nothing").code == 1
    assert [topic.name for topic in log.topics()] == ["words"]
    assert penstock("topics", "delete", "words", "nothing", "--if-exists", "--yes").code == 0
    assert log.topics() == []


def test_delete_asks_for_confirmation(penstock, log: Log, monkeypatch) -> None:
    questions = []

    def confirm(self: Terminal, question: str) -> bool:
        questions.append(question)
        return False

    monkeypatch.setattr(Terminal, "confirm", confirm)
    ran = penstock("topics", "delete", "words")
    assert (ran.code, ran.err) == (1, "penstock: error: Nothing was deleted.\n")
    assert questions == ["Delete 'words' permanently?"]
    assert penstock("topics", "delete", "words", "--yes").code == 0
    assert len(questions) == 1


def test_clean_compacts_and_reports(penstock, log: Log) -> None:
    log.create_topic("prices", config={"cleanup.policy": "compact"})
    for price in range(5):
        log.append("prices", 0, RecordColumns([b"tea", b"%d" % price], [b"%d" % price] * 2))
    (row,) = map(json.loads, penstock("topics", "clean", "prices", "--force", "--json"
                                      ).out.splitlines())
    assert (row["name"], row["records_compacted"]) == ("prices", 4)
    assert log.offsets([TopicPartition("prices", 0)])[TopicPartition("prices", 0)].end == 10
    table = penstock("topics", "clean").out.splitlines()
    assert table[0].split("  ")[0] == "TOPIC"
    assert [line.split()[0] for line in table[1:]] == ["prices", "words"]
