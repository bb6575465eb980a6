"""`penstock query`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Penstock
from penstock import Processor, Record, Stores, Streams, StreamsBuilder, StreamsConfig
from penstock.log import RecordColumns, open_log
from penstock.partitioning import partition_of
from unit.queries.kinds_of_stores import EVENTS, TOPICS, all_kinds


@pytest.fixture(params=["batch", "continuous"])
def state_dir(request: pytest.FixtureRequest, path: Path, tmp_path: Path) -> Path:
    """The state directory of an application that has run."""
    with open_log(path) as log:
        for topic in TOPICS:
            log.create_topic(topic, 3, {"retention.ms": "-1"})
        for topic, key, value, timestamp in EVENTS:
            records = RecordColumns([key.encode()], [value.encode()], [timestamp])
            log.append(topic, partition_of(key.encode(), 3), records)
    config = StreamsConfig(
        application_id="shop", log=path, state_dir=tmp_path / "state", execution=request.param
    )
    with Streams(all_kinds(), config, master="inline") as streams:
        streams.run_until_caught_up(240)
    return tmp_path / "state"


@pytest.mark.parametrize("has_replica", [True, False], ids=["replica", "log only"])
def test_rows_of_all_kinds_of_stores(
    penstock: Penstock, state_dir: Path, tmp_path: Path, has_replica: bool
) -> None:
    directory = state_dir if has_replica else tmp_path / "none"

    def ask(*arguments: object, code: int = 0) -> list[str]:
        result = penstock("query", "shop", *arguments, "--state-dir", directory)
        assert result.code == code, result.err
        return sorted(result.out.splitlines())

    assert ask("counts") == ["milk\t1", "tea\t3"]
    assert ask("counts", "tea") == ["3"]
    assert ask("counts", "--range", "a", "n") == ["milk\t1"]
    assert ask("counts", "--prefix", "te") == ["tea\t3"]
    assert ask("plain", "ann") == ["tea"]
    assert ask("names") == ["1\tone"]
    assert ask("names", "1") == ["one"]
    assert ask("windows", "ann") == ["ann@0/10000\t2"]
    assert ask("windows", "--from", "30000") == ["eve@30000/40000\t1"]
    assert ask("windows", "--to", "10000") == ["ann@0/10000\t2", "bob@0/10000\t1"]
    assert ask("windows", "--window", "30000", "40000") == ["eve@30000/40000\t1"]
    assert ask("windows", "--prefix", "an") == ["ann@0/10000\t2"]
    assert ask("windows", "--range", "b", "c") == ["bob@0/10000\t1"]
    assert ask("sessions", "ann") == ["ann@1000/2000\t2"]
    assert ask("sessions", "--prefix", "e") == ["eve@31000/31000\t1"]
    assert ask("sessions", "--from", "2000") == ["ann@1000/2000\t2", "eve@31000/31000\t1"]
    assert ask("sessions", "--from", "1600", "--to", "1700") == ["ann@1000/2000\t2"]
    assert ask("sessions", "ann", "--to", "999", code=1) == []
    assert ask("prices", "tea") == ["4"]
    assert ask("prices", "tea", "--as-of", "1500") == ["3"]
    assert ask("prices", "tea", "--from", "0") == ["tea@1000/2000\t3", "tea@2000/\t4"]
    assert len(ask("counts", "--max", "1")) == 1
    (row,) = ask("counts", "tea", "--json")
    assert json.loads(row) == {"key": "tea", "value": 3, "timestamp": 31_000}
    (row,) = ask("windows", "eve", "--json")
    assert json.loads(row) == {
        "key": "eve", "value": 1, "timestamp": 31_000, "start": 30_000, "end": 40_000,
    }


@dataclass
class Order:
    """A value with its own class."""

    name: str
    amount: int


def test_objects_are_printed_as_json(penstock: Penstock, path: Path, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.table("orders", key=str, value=Order, store="latest")
    with open_log(path) as log:
        log.create_topic("orders", 1)
        log.append("orders", 0, RecordColumns([b"a"], [b'{"name": "ann", "amount": 3}'], [5]))
    config = StreamsConfig(application_id="shop", log=path, state_dir=tmp_path / "state")
    with Streams(builder.build(), config, master="inline") as streams:
        streams.run_until_caught_up(240)
    (row,) = penstock("query", "shop", "latest", "--json").out.splitlines()
    assert json.loads(row) == {"key": "a", "value": {"name": "ann", "amount": 3}, "timestamp": 5}
    assert penstock("query", "shop", "latest", "a").out == '{"name":"ann","amount":3}\n'


def test_stores_of_an_application_are_listed(penstock: Penstock, state_dir: Path) -> None:
    result = penstock("query", "shop")
    assert result.code == 0, result.err
    assert "counts timestamped key value 3 string long" in " ".join(result.out.split())
    names = [json.loads(line)["name"] for line in
             penstock("query", "shop", "--json").out.splitlines()]
    assert names == ["counts", "names", "plain", "prices", "sessions", "windows"]
    assert "names global timestamped key value 3 string string" in " ".join(result.out.split())


def test_errors_name_the_alternatives(penstock: Penstock, state_dir: Path) -> None:
    for arguments, code, message in (
        (("shop", "count"), 1, "Did you mean 'counts'? Stores: 'counts', 'names', 'plain'"),
        (("shopp", "counts"), 1, "Did you mean 'shop'? Applications: "),
        (("shop", "counts", "coffee"), 1, "Store 'counts' has no key 'coffee'."),
        (("shop", "prices"), 2, "Store 'prices' is versioned: give a KEY."),
        (("shop", "counts", "--from", "0"), 2, "Store 'counts' has no windows."),
        (("shop", "counts", "tea", "--as-of", "0"), 2, "--as-of is for versioned stores."),
        (("shop", "counts", "--as-of", "0"), 2, "it supports KEY, --range and --prefix."),
        (("shop", "windows", "--as-of", "0"), 2, "it supports --from and --to."),
        (("shop", "prices", "--prefix", "t"), 2, "Store 'prices' is versioned: give a KEY."),
        (("shop", "prices", "tea", "--as-of", "0", "--from", "0"), 2, "--as-of cannot be combined"),
        (("shop", "prices", "tea", "--as-of", "0", "--window", "0", "9"), 2, "--as-of cannot be"),
        (("shop", "windows", "--to", "0", "--window", "0", "9"), 2, "--to and --window cannot be"),
        (("shop", "sessions", "ann", "--to", "1"), 1, "has no key 'ann' at this time."),
        (("shop", "counts", "--prefix", "t", "--key-type", "long"), 2,
         "Store 'counts' has keys of type long: use KEY or --range."),
        (("shop", "counts", "tea", "--prefix", "t"), 2, "error: KEY and --prefix cannot be"),
        (("shop", "counts", "--partition", "9"), 1, "partition 9 for store counts does not exist"),
        (("shop", "names", "--partition", "0"), 2, "Store 'names' is global"),
        (("shop", "counts", "--value-type", "uuid"), 1, ""),
    ):
        result = penstock("query", *arguments, "--state-dir", state_dir)
        assert (result.code, message in result.err) == (code, True), result


def test_query_reads_the_replica_of_a_running_application(
    penstock: Penstock, path: Path, tmp_path: Path
) -> None:
    with open_log(path) as log:
        for topic in TOPICS:
            log.create_topic(topic, 1)
        config = StreamsConfig(application_id="shop", log=path, state_dir=tmp_path / "state")
        with Streams(all_kinds(), config, master="inline") as streams:
            for number in range(1, 4):
                log.append("words", 0, RecordColumns([b"ann"], [b"tea"]))
                streams.run_until_caught_up(240)
                directory = tmp_path / "state"
                found = penstock("query", "shop", "counts", "tea", "--state-dir", directory)
                assert found.out == f"{number}\n", found.err


def test_rows_of_several_partitions_are_in_the_order_of_keys(
    penstock: Penstock, path: Path, tmp_path: Path
) -> None:
    names = [f"n{number:02}" for number in range(20)]
    with open_log(path) as log:
        for topic in TOPICS:
            log.create_topic(topic, 3, {"retention.ms": "-1"})
        # Windows of two segments.
        for number, name in enumerate(reversed(names)):
            key = name.encode()
            records = RecordColumns([key, key], [key, key], [1_000 * number, 60_000])
            log.append("words", partition_of(key, 3), records)
    config = StreamsConfig(application_id="shop", log=path, state_dir=tmp_path / "state")
    with Streams(all_kinds(), config, master="inline") as streams:
        streams.run_until_caught_up(240)

    def keys(*arguments: object) -> list[str]:
        result = penstock("query", "shop", *arguments, "--state-dir", tmp_path / "state")
        assert result.code == 0, result.err
        return [re.split("[\t@]", line)[0] for line in result.out.splitlines()]

    assert keys("counts") == keys("plain") == names
    assert keys("plain", "--range", "n03", "n08", "--max", "3") == names[3:6]
    assert keys("plain", "--prefix", "n1") == names[10:]
    assert list(dict.fromkeys(keys("windows"))) == list(dict.fromkeys(keys("sessions"))) == names
    assert keys("windows", "--max", "4") == ["n00", "n00", "n01", "n01"]


class Uppercase(Processor[str, str, None, None]):
    """Writes the values of a topic to the global store 'shouts'."""

    def init(self, context: Any) -> None:
        self._store = context.get_state_store("shouts")

    def process(self, record: Record[str, str]) -> None:
        self._store.put(record.key, record.value.upper())


def test_global_store_of_a_processor_is_not_read_from_its_topic(
    penstock: Penstock, path: Path, tmp_path: Path
) -> None:
    with open_log(path) as log:
        for topic in ("words", "names"):
            log.create_topic(topic, 1)
    builder = StreamsBuilder()
    builder.stream("words", key=str, value=str).to("names")
    store = Stores.key_value_store_builder(Stores.in_memory_key_value_store("shouts"), str, str)
    builder.add_global_store(store, "names", Uppercase, key=str, value=str)
    config = StreamsConfig(application_id="shop", log=path, state_dir=tmp_path / "state")
    with Streams(builder.build(), config, master="inline") as streams:
        streams.run_until_caught_up(240)
    result = penstock("query", "shop", "shouts")
    assert result.code == 1
    assert "a processor fills it from topic 'names'" in result.err
