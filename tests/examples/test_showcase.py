"""The frame of the small examples: their data, their topics, and a run in this process."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
import showcase
from clients.demo import CLIENTS_DEMO
from fraud_scoring.demo import fraud_scoring_demo
from log_shipping.demo import PARTITIONS
from orders.demo import topic_names
from product_counter.demo import PRODUCT_COUNTER_DEMO
from showcase import Input, Showcase

from examples.conftest import EXAMPLES
from penstock.log import open_log

#: 2020-01-01T00:00:00Z
RECENT_MS = 1_577_836_800_000


def showcases() -> list[Showcase]:
    modules = [
        import_module(f"{path.parent.name}.demo") for path in sorted(EXAMPLES.glob("*/demo.py"))
    ]
    found = [each for module in modules for each in vars(module).values()
             if isinstance(each, Showcase)]
    return [*found, fraud_scoring_demo(Path())]


def run(example: Showcase, folder: Path) -> str:
    """Run an example in this process. Returns the path of its log."""
    path = str(folder / "log.db")
    with open_log(path) as log:
        showcase.create_topics(
            log, example.application_id, example.topics(), example.partitions
        )
        showcase.run(example, log, "inline", folder)
    return path


@pytest.mark.spark
def test_records_have_times_of_our_days() -> None:
    examples = showcases()
    assert len(examples) > 10
    for example in examples:
        assert min(record.timestamp for record in example.inputs()) > RECENT_MS, example.title


@pytest.mark.spark
def test_two_examples_that_share_a_topic_are_those_of_the_readmes() -> None:
    topics = Counter(topic for example in showcases() for topic in example.topics())
    topics.update([*topic_names(), *PARTITIONS])
    assert [topic for topic, count in topics.items() if count > 1] == ["logs"]
    for name, other in (("log_shipping", "product-counter"), ("product_counter", "log-shipping")):
        readme = (EXAMPLES / name / "README.md").read_text(encoding="utf-8")
        assert f"The demo `{other}` has a topic `logs`, too." in readme


def test_record_without_a_time_is_rejected(tmp_path: Path) -> None:
    with open_log(tmp_path / "log.db") as log:
        log.create_topic("words")
        with pytest.raises(ValueError, match="topic 'words' has the timestamp 0"):
            showcase.send(log, [Input("words", "A", "Apple", 0)])


def test_counts_are_forwarded_by_stream_time_and_can_be_queried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(PRODUCT_COUNTER_DEMO, tmp_path)
    printed = capsys.readouterr().out
    assert "== store Counts\n  1: 5\n  2: 4\n  3: 4\n" in printed
    forwarded = printed.partition("== topic counter_topic\n")[2].split("\n")
    assert [line for line in forwarded if line.startswith("  1:")] == [
        "  1: 1", "  1: 2", "  1: 4", "  1: 5",
    ]


def test_stores_of_clients_have_changelogs_with_four_partitions(tmp_path: Path) -> None:
    with open_log(run(CLIENTS_DEMO, tmp_path)) as log:
        changelogs = {
            topic.name: topic.partitions for topic in log.topics()
            if topic.name.endswith("-changelog")
        }
    assert changelogs == {
        "streams-tp_prospects-state-store-changelog": 4,
        "streams-tp_accounts-state-store-changelog": 4,
        "streams-tp_enrichment_accounts-state-store-changelog": 4,
    }


def advice(example: Showcase, path: str) -> list[str]:
    """The commands that an example advises when its topics exist."""
    with open_log(path) as log, pytest.raises(SystemExit) as exit_:
        showcase.reject_existing(log, example.application_id, example.topics())
    return [
        line.split(" --log")[0] for line in str(exit_.value).splitlines()
        if line.startswith("  penstock")
    ]


def test_topics_of_an_earlier_run_are_rejected_with_the_reset_of_the_application(
    tmp_path: Path,
) -> None:
    path = run(CLIENTS_DEMO, tmp_path)
    assert advice(CLIENTS_DEMO, path) == [
        "  penstock reset streams",
        "  penstock topics delete tp_accounts tp_clients tp_enrichment_accounts tp_prospects",
    ]


def test_application_that_has_not_run_need_not_be_reset(tmp_path: Path) -> None:
    path = str(tmp_path / "log.db")
    with open_log(path) as log:
        log.create_topic("logs", 2)
    assert advice(PRODUCT_COUNTER_DEMO, path) == ["  penstock topics delete logs"]


def test_missing_package_is_reported_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.db"
    example = replace(PRODUCT_COUNTER_DEMO, packages=("no_such_package",))
    assert showcase.main(example, ["--log", str(path), "--master", "inline"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        "The package 'no_such_package' is not installed. Install it with "
        "`pip install 'penstock[examples]'`.\n"
    )
    assert not path.exists()
