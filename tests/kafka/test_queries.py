"""Instances, a standby and a query node serve the state of an application on a broker."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from engine.instances import PATIENCE_S, send, until, word_count
from kafka.cluster import clear
from penstock import Streams, StreamsConfig
from penstock.broker.cluster import ClusterStatus
from penstock.errors import StateStoreMigratedException
from penstock.log import Log, open_log
from penstock.queries import FailureReason, KeyQuery, PositionBound, StateQueryRequest
from penstock.queries.http import HttpSettings, Server, create_app
from penstock.queries.node import QueryNode

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

HTTP = HttpSettings(port=0, requests_per_second=None)
KEY = StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key("tea"))


@pytest.fixture
def log(penstock_broker: ClusterStatus) -> Iterator[Log]:
    with open_log(clear(penstock_broker.address)) as log:
        log.create_topic("in", 2)
        log.create_topic("out", 1)
        yield log


def get(url: str) -> Any:
    """The document at an address; None if the status is an error."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        error.close()
        return None


def value(url: str, key: str) -> int | None:
    found = get(f"{url}/stores/counts/keys/{key}")
    return None if found is None else int(found["value"])


@pytest.mark.parametrize("execution", ["batch", "continuous"])
def test_every_process_serves_committed_state(log: Log, tmp_path: Path, execution: str) -> None:
    with ExitStack() as stack:
        def config(name: str) -> StreamsConfig:
            return StreamsConfig(
                application_id="app", log=log.address, state_dir=tmp_path / name,
                execution=execution, num_standby_replicas=1,
                extra={"auto.offset.reset": "earliest"},
            )

        def serve(application: Any) -> str:
            return stack.enter_context(Server(create_app(application, HTTP), HTTP)).url

        active = Streams(word_count(), config("active"), master="inline")
        stack.callback(active.close, PATIENCE_S)
        send(log, "tea milk tea")
        active.run_until_caught_up(PATIENCE_S)
        standby = Streams(word_count(), config("standby"), master="inline")
        stack.callback(standby.close, PATIENCE_S)
        standby.start()
        until(lambda: standby.waits_for)
        node = stack.enter_context(QueryNode(word_count(), config("node")))
        urls = [serve(each) for each in (active, standby, node)]
        for url in urls:
            until(lambda url=url: get(f"{url}/ready"))
            until(lambda url=url: value(url, "tea") == 2)
        send(log, "tea", partition=1)
        active.run_until_caught_up(PATIENCE_S)
        # The active instance shows its commits at once, the others follow the log.
        assert value(urls[0], "tea") == 3
        for url in urls:
            until(lambda url=url: value(url, "tea") == 3)
            assert value(url, "milk") == 1
        # The position of a standby contains the end of a transaction, which a task does not know.
        for reader, other in ((active, standby), (standby, active)):
            bound = PositionBound.at(reader.query(KEY).position)
            found = other.query(KEY.with_position_bound(bound)).only_partition_result
            assert found is not None
            assert found.result == 3
        assert active.query(KEY.require_active()).only_partition_result is not None
        refused = standby.query(KEY.require_active()).partition_results.values()
        assert {each.failure_reason for each in refused} == {FailureReason.NOT_ACTIVE}
        with pytest.raises(StateStoreMigratedException):
            standby.store("counts")
        assert standby.store("counts", stale=True)["tea"] == 3
        # The standby takes over, and continues with the same counts.
        active.close(PATIENCE_S)
        send(log, "tea")
        until(lambda: value(urls[1], "tea") == 4)
        until(lambda: value(urls[2], "tea") == 4)
        assert standby.store("counts")["tea"] == 4
