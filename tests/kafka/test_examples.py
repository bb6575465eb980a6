"""Every example runs on Kafka as it is, by one option."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafka.cluster import clear
from penstock.broker.cluster import ClusterStatus

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DEMO = EXAMPLES / "orders" / "demo.py"


def run(*words: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """A program in a process of its own, as a user starts it in the folder of the examples."""
    return subprocess.run(
        [sys.executable, *map(str, words)], input=stdin, capture_output=True, text=True,
        timeout=300, check=False, cwd=EXAMPLES, env=dict(os.environ),
    )


@pytest.mark.spark
def test_the_demo_runs_on_kafka_and_once_more(penstock_broker: ClusterStatus) -> None:
    demo = (DEMO, "--seconds", 1, "--rate", 100, "--log", clear(penstock_broker.address))
    ran = run(*demo)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "  100 orders, " in ran.stdout
    assert "  The tables agree with a plain sum over the orders.\n" in ran.stdout
    # What it has written stays, so another one would count on.
    refused = run(*demo)
    assert refused.returncode == 1
    assert refused.stderr == (
        "Topic 'orders' already exists. The demo creates its own topics.\n"
        "Use another log, or delete the topics of an earlier demo with --again.\n"
    )
    again = run(*demo, "--again", "--master", "inline")
    assert (again.returncode, again.stderr) == (0, "")
    assert "  The tables agree with a plain sum over the orders.\n" in again.stdout


def test_its_topology_runs_on_kafka_from_the_command_line(
    penstock_broker: ClusterStatus, tmp_path: Path
) -> None:
    of_log = ("--log", clear(penstock_broker.address))
    command = ("-m", "penstock.cli")
    application = (
        *command, "run", "orders/topology.py", "--application-id", "orders", "--once", "--master",
        "inline", "--state-dir", tmp_path, *of_log,
    )
    first = run(*application, "--create-topics", 2)
    assert first.returncode == 0, first.stderr
    sent = run(*command, "produce", "orders", *of_log, stdin=ORDER * 3)
    assert sent.returncode == 0, sent.stderr
    second = run(*application, "--quiet")
    assert (second.returncode, second.stderr) == (0, "")
    count = run(
        *command, "consume", "orders-general_orders_count-changelog", "--value-type", "long",
        "--format", "key-value", "--key-separator", "=", *of_log,
    )
    assert count.stdout == "store_1234=3\n"


ORDER = (
    '{"orderId": 1, "locationId": "store_1234", "finalAmount": 27.00, "orderType": "GENERAL",'
    ' "orderLineItems": [], "orderedDateTime": "2022-12-05T08:55:27"}\n'
)


def test_without_a_broker_the_demo_says_so() -> None:
    ran = run(DEMO, "--log", "kafka://")
    assert ran.returncode == 1
    assert ran.stderr == "No broker in 'kafka://'. Write kafka://host:9092,host:9092.\n"
