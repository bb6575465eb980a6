"""The topology in the test driver, without Spark and Java: `python -m pytest table_replication`."""

from __future__ import annotations

from penstock.testing import TopologyTestDriver
from table_replication.topology import (
    CHANGES,
    CUSTOMERS,
    Change,
    Customer,
    CustomerKey,
    build,
)

KEY = CustomerKey(1001)
SALLY = Customer(1001, "Sally Thomas", "sally@example.com", "Oslo")
MOVED = Customer(1001, "Sally Thomas", "sally@example.com", "Turin")


def test_row_follows_its_changes() -> None:
    with TopologyTestDriver(build()) as driver:
        changes = driver.create_input_topic(CHANGES, CustomerKey, Change)
        out = driver.create_output_topic(CUSTOMERS, CustomerKey, Customer)
        for change in (
            Change("c", None, SALLY, 1), Change("u", SALLY, MOVED, 2), Change("d", MOVED, None, 3),
            None,
        ):
            changes.pipe_input(KEY, change)
        assert out.read_key_values_to_list() == [
            (KEY, SALLY), (KEY, MOVED), (KEY, None), (KEY, None)
        ]


def test_envelope_of_debezium_is_read() -> None:
    key = b'{"id":1001}'
    row = b'{"id":1001,"name":"Sally Thomas","email":"sally@example.com","city":"Oslo","vip":true}'
    source = b'{"connector":"postgresql","table":"customers","lsn":24023128}'
    value = b'{"before":null,"after":%b,"source":%b,"op":"c","ts_ms":1}' % (row, source)
    with TopologyTestDriver(build()) as driver:
        driver.create_input_topic(CHANGES, bytes, bytes).pipe_input(key, value)
        store = driver.get_key_value_store("customers")
        assert dict(store.all()) == {KEY: SALLY}
