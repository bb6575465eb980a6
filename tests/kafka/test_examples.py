"""Every example runs on Kafka with one option."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kafka.cluster import clear
from penstock.broker.cluster import ClusterStatus

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DEMO = EXAMPLES / "orders" / "demo.py"


def run(
    *words: object, stdin: str = "", folder: Path = EXAMPLES
) -> subprocess.CompletedProcess[str]:
    """Run a program in its own process."""
    return subprocess.run(
        [sys.executable, *map(str, words)], input=stdin, capture_output=True, text=True,
        timeout=300, check=False, cwd=folder, env=dict(os.environ),
    )


@pytest.mark.spark
def test_demo_runs_on_kafka_and_can_be_repeated(penstock_broker: ClusterStatus) -> None:
    demo = (DEMO, "--seconds", 1, "--rate", 100, "--log", clear(penstock_broker.address))
    ran = run(*demo)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "  100 orders, " in ran.stdout
    assert "  The tables agree with a plain sum over the orders.\n" in ran.stdout
    # The topics of the first run exist, and a second run would add to them.
    rejected = run(*demo)
    assert rejected.returncode == 1
    assert rejected.stderr.startswith("These topics exist in the log: general-orders, ")
    # The advice, followed literally.
    advised = [
        line.split()[1:] for line in rejected.stderr.splitlines() if line.startswith("  penstock ")
    ]
    assert [each[0] for each in advised] == ["reset", "topics"]
    for arguments in advised:
        deleted = run("-m", "penstock", *arguments, "--yes")
        assert deleted.returncode == 0, deleted.stderr
    again = run(*demo, "--master", "inline")
    assert (again.returncode, again.stderr) == (0, "")
    assert "  The tables agree with a plain sum over the orders.\n" in again.stdout


@pytest.mark.parametrize(("name", "master", "heading"), [
    ("table_replication", "inline", "== table customers in SQLite\n"),
    ("fraud_scoring", "inline", "== topic alerts\n"),
    ("anomaly_detector", "inline", "== topic anomalies: 23 records\n"),
    pytest.param(
        "parquet_join", "local[2]", "== after 500 more orders\n", marks=pytest.mark.spark
    ),
])
def test_results_on_kafka_are_those_of_the_readme(
    penstock_broker: ClusterStatus, tmp_path: Path, name: str, master: str, heading: str
) -> None:
    readme = (EXAMPLES / name / "README.md").read_text(encoding="utf-8")
    expected = readme.partition(heading)[2].partition("```")[0]
    assert expected.count("\n") > 5
    ran = run(
        EXAMPLES / name / "demo.py", "--master", master, "--log", clear(penstock_broker.address),
        folder=tmp_path,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.partition(heading)[2] == expected


def test_log_shipping_runs_on_kafka(penstock_broker: ClusterStatus) -> None:
    demo = EXAMPLES / "log_shipping" / "demo.py"
    ran = run(demo, "--log", clear(penstock_broker.address))
    assert (ran.returncode, ran.stderr) == (0, "")
    # The group decides which consumer is idle.
    joined, _, rest = ran.stdout.partition("fails before it commits them\n")
    assert sorted(re.findall(r"consumer \d: (.+)", joined)) == [
        "idle", "partition 0", "partition 1",
    ]
    failed, _, rest = rest.partition("== the idle one takes over, and processes them again\n")
    assert failed.count("Partition=0") == 5
    assert (rest.count("of web-3"), rest.count("of web-4")) == (7 + 2, 7 + 2)


def test_topology_of_the_demo_runs_from_the_command_line(
    penstock_broker: ClusterStatus, tmp_path: Path
) -> None:
    log_option = ("--log", clear(penstock_broker.address))
    command = ("-m", "penstock.cli")
    application = (
        *command, "run", "orders/topology.py", "--application-id", "orders", "--once", "--master",
        "inline", "--state-dir", tmp_path, *log_option,
    )
    first = run(*application, "--create-topics", 2)
    assert first.returncode == 0, first.stderr
    sent = run(*command, "produce", "orders", *log_option, stdin=ORDER * 3)
    assert sent.returncode == 0, sent.stderr
    second = run(*application, "--quiet")
    assert (second.returncode, second.stderr) == (0, "")
    count = run(
        *command, "consume", "orders-general_orders_count-changelog", "--value-type", "long",
        "--format", "key-value", "--key-separator", "=", *log_option,
    )
    assert count.stdout == "store_1234=3\n"


ORDER = (
    '{"orderId": 1, "locationId": "store_1234", "finalAmount": 27.00, "orderType": "GENERAL",'
    ' "orderLineItems": [], "orderedDateTime": "2022-12-05T08:55:27"}\n'
)


def test_demo_reports_an_address_without_a_broker() -> None:
    ran = run(DEMO, "--log", "kafka://")
    assert ran.returncode == 1
    assert ran.stderr == "No broker in 'kafka://'. Write kafka://host:9092,host:9092.\n"
