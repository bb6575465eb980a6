"""The pytest plugin: fixtures for tests of topologies and a Kafka broker.

pytest loads this module in every run. It is outside of the package, which it imports only when a
test uses a fixture.
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
    """The configuration of `topology_driver`: string keys and values.

    Override it in a `conftest.py` to use another one.
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
    """Create drivers with `topology_driver(topology, **options)`; they are closed after the test.

    `config=` replaces `penstock_config`. A topology built with a configuration keeps its own.
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
    """A local Kafka broker, started once per session by the first test that uses it.

    Pass its `address` to `open_log` and its `bootstrap_servers` to Kafka clients.
    """
    from penstock.broker.cluster import LocalCluster
    from penstock.broker.properties import BrokerOptions

    cluster = LocalCluster(tmp_path_factory.mktemp("kafka"))
    with cluster.for_this_process(BrokerOptions(port=0, for_tests=True)) as status:
        yield status
