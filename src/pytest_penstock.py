"""The pytest plugin: fixtures for tests of topologies, and a real broker.

pytest loads this module whenever it runs, so it stands outside of the package, which it imports
only for a test that uses a fixture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock import StreamsConfig, Topology
    from penstock.broker.cluster import ClusterStatus
    from penstock.testing import TopologyTestDriver


@pytest.fixture
def penstock_config() -> StreamsConfig:
    """The configuration that `topology_driver` uses: texts as keys and values.

    Override it in a `conftest.py` to test with another one.
    """
    from penstock import Serdes, StreamsConfig

    return StreamsConfig(
        application_id="test", default_key_serde=Serdes.string(),
        default_value_serde=Serdes.string(),
    )


@pytest.fixture
def topology_driver(
    penstock_config: StreamsConfig,
) -> Iterator[Callable[..., TopologyTestDriver]]:
    """Makes drivers, `topology_driver(topology, **options)`, and closes them after the test.

    `config=` takes the place of `penstock_config`; a topology that was built with a configuration
    keeps its own.
    """
    from penstock.testing import TopologyTestDriver

    drivers: list[TopologyTestDriver] = []

    def make(
        topology: Topology, config: StreamsConfig | None = None, **options: Any
    ) -> TopologyTestDriver:
        driver = TopologyTestDriver(
            topology, config or topology.config or penstock_config, **options
        )
        drivers.append(driver)
        return driver

    yield make
    for driver in reversed(drivers):
        driver.close()


@pytest.fixture(scope="session")
def penstock_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterStatus]:
    """A real Kafka for the whole session, started by the first test that asks for it.

    Its `address` is what `open_log` takes, its `bootstrap_servers` what Kafka's clients take.
    """
    from penstock.broker.cluster import LocalCluster
    from penstock.broker.properties import BrokerOptions

    cluster = LocalCluster(tmp_path_factory.mktemp("kafka"))
    with cluster.for_this_process(BrokerOptions(port=0, for_tests=True)) as status:
        yield status
