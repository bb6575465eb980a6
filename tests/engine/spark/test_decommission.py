"""An executor is decommissioned: its lane commits and ends, and another one runs its tasks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.spark]

_PROGRAM = """
import logging
import time

from pyspark.sql import SparkSession

from penstock import Streams, StreamsBuilder, StreamsConfig
from penstock.log import RecordColumns, open_log

PARTITIONS, TIMEOUT_S = 4, 120
lines = []

class Lines(logging.Handler):
    def emit(self, record):
        lines.append(record.getMessage())

logging.getLogger("penstock").addHandler(Lines())
logging.getLogger("penstock").setLevel(logging.INFO)
spark = (
    SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    .config("spark.decommission.enabled", "true").getOrCreate()
)
builder = StreamsBuilder()
builder.stream("words", key=str, value=str).group_by_key().count(store="counts")
# The session belongs to this program, so one slot would be left for its own jobs.
config = StreamsConfig(
    application_id="app", log="log.db", state_dir="/proc/self/cwd/state", execution="continuous",
    extra={"penstock.parallelism": "2"},
)

def wait(what, is_done):
    deadline = time.monotonic() + TIMEOUT_S
    while not is_done():
        assert time.monotonic() < deadline, (what, lines)
        time.sleep(0.1)

with open_log("log.db") as log:
    log.create_topic("words", PARTITIONS)

    def send():
        for number in range(PARTITIONS):
            log.append("words", number, RecordColumns([b"k%d" % number], [b"v"]))

    with Streams(builder.build(), config, spark=spark) as streams:
        send()
        streams.run_until_caught_up(TIMEOUT_S)
        wait("both lanes are ready", lambda: sum("is ready" in line for line in lines) == 2)
        jvm = spark._jvm
        scheduler = spark.sparkContext._jsc.sc().schedulerBackend()
        info = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo(
            "test", getattr(jvm.scala, "None$").__getattr__("MODULE$")
        )
        assert scheduler.decommissionExecutor("0", info, False, False)
        wait("its lane has ended", lambda: any("decommissioned" in line for line in lines))
        send()
        streams.run_until_caught_up(TIMEOUT_S)
        silent = [line for line in lines if "silent" in line or "closed its connection" in line]
        assert silent == [], silent
        counts = sorted(streams.store("counts").all())
        print("counts", counts)
        assert counts == [(f"k{number}", 2) for number in range(PARTITIONS)], counts
spark.stop()
"""


def test_lane_leaves_a_decommissioned_executor(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_PROGRAM)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, text=True, timeout=400, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stdout
    assert "counts [('k0', 2), ('k1', 2), ('k2', 2), ('k3', 2)]" in done.stdout
