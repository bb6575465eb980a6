"""Three brokers with three replicas of everything: one may fail at any time."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker.cluster import LocalCluster
from penstock.broker.properties import BrokerOptions
from penstock.log import RecordColumns, TopicPartition, open_log

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

P0 = TopicPartition("orders", 0)


def test_transactions_survive_the_loss_and_return_of_a_broker(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path)
    options = BrokerOptions(port=0, brokers=3, heap_mb=256, for_tests=True)
    with cluster.for_this_process(options) as status, open_log(status.address) as log:
        assert [node.running for node in status.nodes] == [True] * 3
        log.create_topic("orders", 3)
        lease = log.take_lease("app")
        written = 0

        def write(count: int) -> None:
            nonlocal written
            for _ in range(count):
                with log.transaction(lease) as transaction:
                    for partition in range(3):
                        records = RecordColumns([None], [b"%d" % written])
                        transaction.append("orders", partition, records)
                    transaction.commit_offsets("group", {P0: written})
                written += 1

        write(5)
        killed = cluster.stop(node=2, kill=True)
        assert [node.running for node in killed.nodes] == [True, False, True]
        write(10)
        # The broker restarts with its data and the same address.
        restarted = cluster.start(options)
        assert restarted.running
        assert restarted.bootstrap_servers == status.bootstrap_servers
        cluster.stop(node=1, kill=True)
        write(10)
        for partition in range(3):
            found = [
                value for batch in log.read("orders", partition, 0)
                for value in batch.columns().values
            ]
            assert found == [b"%d" % n for n in range(written)]
        assert log.committed("group") == {P0: (written - 1, "")}
