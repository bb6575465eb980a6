"""The JVM that penstock starts without spark-submit, and the daemon of the Python workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import SparkConf

from engine.harness import config_of
from penstock.engine.spark.jvm import MAIN_CLASS, SUBMIT_VARIABLES, command_line, needs_spark_submit
from penstock.engine.spark.pyspark_internals import pyspark_directory
from penstock.engine.spark.settings import build_conf
from penstock.java import find_java

#: For the vectors of Spark's MLlib, which penstock does not use.
NOT_NEEDED = {"--add-modules=jdk.incubator.vector"}
THREADS = """
import os
from penstock.engine.spark import daemon
daemon.import_modules()
tasks = os.listdir("/proc/self/task")
print(*sorted(open(f"/proc/self/task/{task}/comm").read().strip() for task in tasks), sep=",")
"""


def test_command_line_is_that_of_spark_submit() -> None:
    java = find_java("Spark", RuntimeError)
    conf = build_conf(config_of(), "local[2]")
    ours = command_line(java, (), conf)
    theirs = _command_of_spark_submit(java, conf)
    assert _jars(theirs) == _jars(ours)
    end = theirs.index("org.apache.spark.deploy.SparkSubmit")
    options = {each for each in theirs[:end] if each.startswith("-")}
    assert options - set(ours) == NOT_NEEDED
    # The settings, which spark-submit gets as arguments.
    properties = set(ours[:ours.index(MAIN_CLASS)]) - options - {ours[0], ours[2]}
    settings = {f"-D{name}={value}" for name, value in conf.getAll()}
    assert properties == settings | {"-Dspark.submit.deployMode=client"}


def _command_of_spark_submit(java: Path, conf: SparkConf) -> list[str]:
    jars = Path(pyspark_directory(), "jars")
    settings = [part for each in conf.getAll() for part in ("--conf", "=".join(each))]
    printed = subprocess.run(
        [java, "-cp", f"{jars}/*", "org.apache.spark.launcher.Main",
         "org.apache.spark.deploy.SparkSubmit", *settings, "pyspark-shell"],
        env={**os.environ, "SPARK_HOME": pyspark_directory(), "SPARK_SCALA_VERSION": "2.13"},
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout
    return printed.strip().strip("\0").strip().split("\0")


def _jars(command: list[str]) -> set[str]:
    """Return the names of the jars of a class path. A directory contributes all of its jars."""
    found: set[str] = set()
    for entry in command[command.index("-cp") + 1].split(os.pathsep):
        is_directory = entry.endswith("*")
        jars = Path(entry[:-1]).glob("*.jar") if is_directory else [Path(entry)]
        found |= {jar.name for jar in jars if jar.suffix == ".jar"}
    return found


def test_jvm_starts_without_spark_submit_unless_something_is_configured() -> None:
    assert not needs_spark_submit({"auto.offset.reset": "earliest"}, {"PATH": "/bin"})
    assert needs_spark_submit({"spark.driver.memory": "4g"}, {})


@pytest.mark.parametrize("name", sorted(SUBMIT_VARIABLES))
def test_variable_of_spark_submit_is_left_to_it(name: str) -> None:
    assert needs_spark_submit({}, {name: ""})


def test_unknown_version_of_spark_is_left_to_spark_submit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.9.0")
    assert needs_spark_submit({}, {})


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_daemon_starts_no_thread_that_a_fork_would_lose() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", THREADS], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    # jemalloc restarts its thread in the child of a fork.
    assert set(printed.strip().split(",")) - {"jemalloc_bg_thd"} == {"python"}
