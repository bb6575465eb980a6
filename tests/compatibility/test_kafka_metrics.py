"""docs/metrics.md names all metrics of Kafka Streams: those that exist, and those that do not.

`MetricNames.java` has printed the list of Kafka's names.
"""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
LISTED = Path(__file__).with_name("kafka-streams-metrics-4.3.0.txt")


def in_tables(text: str) -> set[tuple[str, str]]:
    """Return group and name of the metrics in tables below a line with their group."""
    found, group = set(), ""
    for line in text.splitlines():
        if named := re.match(r"Group `([\w-]+)`", line):
            group = named[1]
        elif line.startswith("| `"):
            found |= {(group, name) for name in re.findall(r"`([\w-]+)`", line.split(" | ")[0])}
    return found


def missing(text: str) -> list[tuple[str, str, str]]:
    """Return group, pattern of names, and a limit such as "in batch mode" of each row."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return [
        (group.strip("`"), pattern, names.rpartition("`")[2].strip())
        for group, names, _ in rows for pattern in re.findall(r"`([\w*-]+)`", names)
    ]


def test_every_metric_of_kafka_streams_exists_or_is_named_as_missing() -> None:
    existing_part, _, missing_part = PAGE.read_text(encoding="utf-8").partition("## Missing")
    existing, absent = in_tables(existing_part), missing(missing_part)
    kafkas = [(group, name) for group, name in map(str.split, LISTED.read_text().splitlines())]
    assert len(kafkas) > 100
    never = {
        (group, name) for group, name in kafkas for of, pattern, limit in absent
        if not limit and group == of and fnmatch.fnmatch(name, pattern)
    }
    assert set(kafkas) - existing - never == set()
    assert existing & never == set()
    # Groups of Kafka's own clients, and names that Kafka does not register, are not in its list.
    groups = {group for group, _ in kafkas}
    unknown = {
        (of, pattern) for of, pattern, _ in absent if of in groups and not any(
            group == of and fnmatch.fnmatch(name, pattern) for group, name in kafkas
        )
    }
    assert unknown == {("stream-processor-node-metrics", "idempotent-update-skip-*")}
