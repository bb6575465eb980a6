from __future__ import annotations

import json

import pytest

from penstock.engine import reset
from penstock.log import CommittedOffset, Log, TopicPartition

W0, W1 = TopicPartition("words", 0), TopicPartition("words", 1)


@pytest.fixture
def group(log: Log) -> Log:
    log.commit_offsets("g", {W0: CommittedOffset(1, "mark"), W1: 3})
    return log


def offsets(log: Log, name: str = "g") -> dict[TopicPartition, int]:
    return {at: offset.offset for at, offset in log.committed(name).items()}


def test_list_shows_the_lag(penstock, group: Log) -> None:
    ran = penstock("groups", "list")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "GROUP  MEMBERS  LAG  TOPICS\ng            0    2  words\n"
    assert json.loads(penstock("groups", "list", "--json").out) == {
        "group": "g", "members": 0, "lag": 2, "topics": ["words"],
    }


def test_describe_shows_every_partition_and_member(penstock, group: Log) -> None:
    member = group.join_group("g", ["words"], client_id="me", member_id="me-1")
    member.heartbeat([])
    ran = penstock("groups", "describe", "g")
    assert ran.out == (
        "Group:      g\n"
        "Generation: 1\n"
        "Members:    1\n"
        "TOPIC  PARTITION  COMMITTED  START  END  LAG  MEMBER\n"
        "words          0          1      0    3    2  me-1\n"
        "words          1          3      0    3    0  me-1\n"
    )
    row = json.loads(penstock("groups", "describe", "--json").out)
    assert row["members"] == [{
        "member_id": "me-1", "client_id": "me",
        "partitions": [{"topic": "words", "partition": 0}, {"topic": "words", "partition": 1}],
    }]
    assert row["partitions"][0] == {
        "topic": "words", "partition": 0, "committed": 1, "start": 0, "end": 3, "lag": 2,
        "member_id": "me-1", "metadata": "mark",
    }


def test_lag_excludes_removed_records(penstock, group: Log) -> None:
    group.delete_records("words", 0, 2)
    assert json.loads(penstock("groups", "list", "--json").out)["lag"] == 1


def test_unknown_group_fails_and_lists_the_groups(penstock, group: Log) -> None:
    for subcommand in ("describe", "delete"):
        ran = penstock("groups", subcommand, "gg")
        assert (ran.code, ran.err) == (
            1, "penstock: error: Group 'gg' does not exist. Groups: 'g'.\n"
        )


def test_reset_offsets_needs_execute_to_apply_the_change(penstock, group: Log) -> None:
    options = ("groups", "reset-offsets", "g", "--topic", "words", "--to-beginning")
    table = "TOPIC  PARTITION  BEFORE  AFTER\nwords          0       1      0\nwords          1  "\
            "     3      0\n"
    ran = penstock(*options)
    assert ran == (0, table, "Nothing was changed. Use --execute to apply this.\n")
    assert offsets(group) == {W0: 1, W1: 3}
    assert penstock(*options, "--execute") == (0, table, "Done.\n")
    assert offsets(group) == {W0: 0, W1: 0}


@pytest.mark.parametrize(("options", "expected"), [
    (("--all-topics", "--to-end"), {W0: 3, W1: 3}),
    (("--all-topics", "--to-offset", "2"), {W0: 2, W1: 2}),
    (("--all-topics", "--to-offset", "99"), {W0: 3, W1: 3}),
    (("--topic", "words:0", "--to-offset", "2"), {W0: 2, W1: 3}),
    (("--topic", "words:1,0", "--shift-by", "-2"), {W0: 0, W1: 1}),
    (("--topic", "words:0", "--topic", "words:1", "--shift-by", "+1"), {W0: 2, W1: 3}),
    (("--topic", "words", "--to-time", "30"), {W0: 1, W1: 1}),
    (("--topic", "words", "--to-time", "1970-01-01T00:00:00.055Z"), {W0: 3, W1: 2}),
])
def test_reset_target(penstock, group: Log, options, expected) -> None:
    ran = penstock("groups", "reset-offsets", "g", *options, "--execute", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert offsets(group) == expected
    for line in ran.out.splitlines():
        row = json.loads(line)
        assert row["executed"] is True
        assert row["after"] == expected[TopicPartition(row["topic"], row["partition"])]


def test_reset_offsets_creates_a_group(penstock, log: Log) -> None:
    ran = penstock("groups", "reset-offsets", "new", "--topic", "words:1", "--to-end", "--execute")
    assert (ran.code, offsets(log, "new")) == (0, {W1: 3})
    assert "words          1  -           3\n" in ran.out


@pytest.mark.parametrize(("options", "message"), [
    (("g", "--topic", "nothing", "--to-end"), "Topic 'nothing' does not exist"),
    (("g", "--topic", "words:7", "--to-end"), "has no partition 7"),
    (("new", "--all-topics", "--to-end"), "Group 'new' has no committed offsets"),
    (("new", "--topic", "words", "--shift-by", "1"),
     "--shift-by needs a committed offset, and 'words' [0] has none"),
])
def test_invalid_reset_fails(penstock, group: Log, options, message: str) -> None:
    ran = penstock("groups", "reset-offsets", *options, "--execute")
    assert (ran.code, ran.out) == (1, "")
    assert message in ran.err


@pytest.mark.parametrize("wrong", [
    (), ("--topic", "words"), ("--to-end",), ("--topic", "words", "--all-topics", "--to-end"),
    ("--topic", "words", "--to-end", "--to-beginning"), ("--topic", "words:x", "--to-end"),
    ("--topic", "words", "--to-offset", "-1"), ("--topic", "words", "--shift-by", "far"),
])
def test_invalid_options_are_wrong_usage(penstock, group: Log, wrong) -> None:
    assert penstock("groups", "reset-offsets", "g", *wrong, "--execute").code == 2
    assert offsets(group) == {W0: 1, W1: 3}


def test_group_with_members_cannot_be_reset_or_deleted(penstock, group: Log) -> None:
    group.join_group("g", ["words"], member_id="me").heartbeat([])
    reset = penstock(
        "groups", "reset-offsets", "g", "--all-topics", "--to-end", "--execute",
    )
    delete = penstock("groups", "delete", "g")
    for ran in (reset, delete):
        assert (ran.code, "Group 'g' has members: 'me'" in ran.err) == (1, True)
    assert offsets(group) == {W0: 1, W1: 3}


def test_group_is_deleted(penstock, group: Log) -> None:
    assert penstock("groups", "delete", "g") == (0, "", "Deleted group 'g'.\n")
    assert group.groups() == []


def test_offsets_of_a_running_application_cannot_be_reset(
    penstock, group: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reset, "DEFAULT_TIMEOUT_MS", 200)
    monkeypatch.setattr(reset, "ACQUIRE_TIMEOUT_MS", 100)
    group.create_topic("g-tasks")
    lease = group.take_lease("g", holder="an instance")
    options = ("groups", "reset-offsets", "g", "--all-topics", "--to-end", "--execute")
    ran = penstock(*options)
    assert ran.code == 1
    assert "Application 'g' is running" in ran.err
    assert offsets(group) == {W0: 1, W1: 3}
    lease.release()
    assert penstock(*options).code == 0
    assert offsets(group) == {W0: 3, W1: 3}
    # The lease was released.
    assert group.candidate("g").try_acquire() is not None
