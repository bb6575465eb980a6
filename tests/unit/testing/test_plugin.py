"""The pytest plugin: its fixtures, and no cost for runs that do not use them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from penstock import Serdes, StreamsBuilder, StreamsConfig, Topology
from penstock.testing import TopologyTestDriver


def copying(config: StreamsConfig | None = None) -> Topology:
    builder = StreamsBuilder(config)
    builder.stream("in").to("out")
    return builder.build()


def test_fixture_creates_drivers(topology_driver: Callable[..., TopologyTestDriver]) -> None:
    driver = topology_driver(copying(), partitions=2)
    driver.create_input_topic("in").pipe_input("k", "v")
    assert driver.create_output_topic("out").read_key_value() == ("k", "v")


def test_given_config_overrides_the_fixture(
    topology_driver: Callable[..., TopologyTestDriver], penstock_config: StreamsConfig
) -> None:
    numbers = penstock_config.with_(default_value_serde=Serdes.long())
    for driver in (topology_driver(copying(), numbers), topology_driver(copying(numbers))):
        driver.create_input_topic("in").pipe_input("k", 7)
        assert driver.create_output_topic("out").read_value() == 7


RUN = '''
import sys

def test_one(): pass

def test_penstock_is_not_imported():
    assert "penstock" not in sys.modules

drivers = []

def test_driver(topology_driver, request):
    from penstock import StreamsBuilder
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    drivers.append(topology_driver(builder.build()))
    assert not drivers[0]._closed

def test_driver_is_closed_after_its_test():
    assert drivers[0]._closed
'''


def test_pytest_loads_the_plugin_without_importing_penstock(tmp_path: Path) -> None:
    path = tmp_path / "test_run.py"
    path.write_text(RUN, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )
    assert "4 passed" in ran.stdout, ran.stdout + ran.stderr
