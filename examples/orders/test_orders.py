"""The orders application in the test driver: totals, windows with grace, joined addresses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from orders.demo import CLOCK_SPEED
from orders.generate import OPENING, generated_orders
from orders.generate import STORES as ALL_STORES
from orders.model import (
    Address,
    Order,
    OrderLineItem,
    OrderType,
    Revenue,
    Store,
    TotalRevenue,
    TotalRevenueWithAddress,
)
from orders.topology import KINDS, ORDERS, STORES, build
from penstock import Serdes, Windowed
from penstock.testing import TopologyTestDriver
from penstock.windows import Window

STORE = Store(
    "store_1234", Address("1234 Street 1", "", "City1", "State1", "12345"), "1234567890"
)
MOMENT = datetime(2022, 12, 5, 8, 55, 27)


def general(moment: datetime = MOMENT) -> Order:
    return Order(
        12345, "store_1234", Decimal("27.00"), OrderType.GENERAL,
        (
            OrderLineItem("Bananas", 2, Decimal("2.00")),
            OrderLineItem("Iphone Charger", 1, Decimal("25.00")),
        ),
        moment,
    )


def restaurant(moment: datetime = MOMENT) -> Order:
    return Order(
        12345, "store_1234", Decimal("15.00"), OrderType.RESTAURANT,
        (
            OrderLineItem("Pizza", 2, Decimal("12.00")),
            OrderLineItem("Coffee", 1, Decimal("3.00")),
        ),
        moment,
    )


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(build()) as driver:
        yield driver


def feed(driver: TopologyTestDriver, *orders: Order) -> None:
    topic = driver.create_input_topic(ORDERS, Serdes.string(), Serdes.json(Order))
    topic.pipe_value_list(orders)


def feed_store(driver: TopologyTestDriver, store: Store = STORE) -> None:
    topic = driver.create_input_topic(STORES, Serdes.string(), Serdes.json(Store))
    topic.pipe_input(store.location_id, store)


def totals(driver: TopologyTestDriver, kind: str) -> tuple[int, Decimal]:
    count = driver.get_state_store(f"{kind}_orders_count")["store_1234"].value
    total = driver.get_state_store(f"{kind}_orders_revenue")["store_1234"].value
    assert total.running_order_count == count
    return count, total.running_revenue


def ms(hour: int, minute: int, second: int) -> int:
    return int(datetime(2022, 12, 5, hour, minute, second, tzinfo=UTC).timestamp() * 1000)


def at(hour: int, minute: int, second: int) -> datetime:
    return datetime(2022, 12, 5, hour, minute, second)


def test_one_order_of_each_type_is_counted(driver: TopologyTestDriver) -> None:
    feed(driver, general(), restaurant())
    assert totals(driver, "general") == (1, Decimal("27.00"))
    assert totals(driver, "restaurant") == (1, Decimal("15.00"))


def test_two_orders_of_each_type_are_counted(driver: TopologyTestDriver) -> None:
    feed(driver, general(), restaurant(), general(), restaurant())
    assert totals(driver, "general") == (2, Decimal("54.00"))
    assert totals(driver, "restaurant") == (2, Decimal("30.00"))


def test_orders_are_published_by_type_with_their_amount_only(driver: TopologyTestDriver) -> None:
    feed(driver, general(), restaurant(), restaurant())
    published = [
        driver.create_output_topic(topic, value=Serdes.json(Revenue)).read_values_to_list()
        for topic in ("general-orders", "restaurant-orders")
    ]
    assert published == [
        [Revenue("store_1234", Decimal("27.00"))], [Revenue("store_1234", Decimal("15.00"))] * 2
    ]


def test_orders_are_read_in_the_format_of_the_tills(driver: TopologyTestDriver) -> None:
    written = (
        b'{"orderId": 12345, "locationId": "store_1234", "finalAmount": 27.00,'
        b' "orderType": "GENERAL", "orderLineItems": ['
        b'{"item": "Bananas", "count": 2, "amount": 2.00},'
        b'{"item": "Iphone Charger", "count": 1, "amount": 25.00}],'
        b' "orderedDateTime": "2022-12-05T08:55:27"}'
    )
    assert Serdes.json(Order).deserialize(written) == general()
    driver.pipe(ORDERS, None, written, 0)
    (record,) = driver.create_output_topic(
        "general-orders", value=Serdes.json(Revenue)
    ).read_records_to_list()
    assert record.timestamp == ms(8, 55, 27)


def test_revenue_is_joined_with_the_address_of_the_store(driver: TopologyTestDriver) -> None:
    topic = driver.create_output_topic(
        "general-orders-revenue", Serdes.string(), Serdes.json(TotalRevenueWithAddress)
    )
    feed(driver, *[general()] * 3)
    assert topic.is_empty
    feed_store(driver)
    feed(driver, general())
    expected = [
        ("store_1234", TotalRevenueWithAddress(TotalRevenue("store_1234", count, amount), STORE))
        for count, amount in ((3, Decimal("81.00")), (4, Decimal("108.00")))
    ]
    assert topic.read_key_values_to_list() == expected


def test_changed_address_is_joined_again(driver: TopologyTestDriver) -> None:
    feed_store(driver)
    feed(driver, *[restaurant()] * 6)
    topic = driver.create_output_topic(
        "restaurant-orders-revenue", Serdes.string(), Serdes.json(TotalRevenueWithAddress)
    )
    newest = topic.read_key_values_to_map()["store_1234"]
    assert newest.total_revenue == TotalRevenue("store_1234", 6, Decimal("90.00"))
    moved = Store("store_1234", Address("5 New Street", "", "City1", "State1", "12345"), "1")
    feed_store(driver, moved)
    assert topic.read_values_to_list() == [TotalRevenueWithAddress(newest.total_revenue, moved)]


def test_late_order_is_counted_within_the_grace_period(
    driver: TopologyTestDriver,
) -> None:
    moments = [at(8, 0, 4), at(8, 0, 54), at(8, 1, 5), at(8, 0, 58), at(8, 1, 13)]
    feed(driver, *map(general, moments))
    store = driver.get_state_store("general_orders_count_window")
    first = Windowed("store_1234", Window(ms(8, 0, 0), ms(8, 1, 0)))
    second = Windowed("store_1234", Window(ms(8, 1, 0), ms(8, 2, 0)))
    assert {key: found.value for key, found in store.all()} == {first: 3, second: 2}


def test_order_after_the_grace_period_is_not_counted(
    driver: TopologyTestDriver,
) -> None:
    feed(driver, general(at(8, 0, 4)), general(at(8, 1, 15)))
    before = driver.metrics()["dropped-records-total"]
    feed(driver, general(at(8, 0, 58)))
    start = ms(8, 0, 0)
    count = driver.get_state_store("general_orders_count_window").fetch("store_1234", start)
    assert count.value == 1
    # Too late for the revenue window, too.
    assert driver.metrics()["dropped-records-total"] == before + 2
    assert totals(driver, "general") == (3, Decimal("81.00"))


def test_revenue_is_summed_in_windows_of_15_seconds(driver: TopologyTestDriver) -> None:
    moments = [at(8, 55, 0), at(8, 55, 14), at(8, 55, 15), at(8, 55, 27), at(8, 55, 44)]
    feed(driver, *map(restaurant, moments))
    store = driver.get_state_store("restaurant_orders_revenue_window")
    found = {key.window.start: row.value.running_revenue for key, row in store.all()}
    assert found == {
        ms(8, 55, 0): Decimal("30.00"),
        ms(8, 55, 15): Decimal("30.00"),
        ms(8, 55, 30): Decimal("15.00"),
    }


def test_each_type_has_one_repartition_topic(driver: TopologyTestDriver) -> None:
    feed(driver, general(), restaurant())
    hops = {name for name in driver.produced_topic_names() if name.endswith("-repartition")}
    assert hops == {
        "test-general-orders-by-store-repartition", "test-restaurant-orders-by-store-repartition"
    }


def test_generated_orders_depend_on_the_seed_only() -> None:
    assert list(generated_orders(50, 1)) == list(generated_orders(50, 1))
    assert list(generated_orders(50, 1)) != list(generated_orders(50, 2))
    assert {order.location_id for order in generated_orders(50, 1)} == {
        store.location_id for store in ALL_STORES
    }


@pytest.mark.parametrize("rate", [100, 500, 2000])
def test_clock_of_the_orders_in_the_demo_has_the_same_speed_at_each_rate(rate: int) -> None:
    orders = generated_orders(rate * 10, 2022, timedelta(seconds=CLOCK_SPEED / rate))
    latest = max(order.ordered_date_time for order in orders)
    assert (latest - OPENING).total_seconds() == pytest.approx(CLOCK_SPEED * 10, rel=0.05)


def test_stores_equal_a_plain_sum_of_generated_orders(
    driver: TopologyTestDriver,
) -> None:
    orders = list(generated_orders(300, 7))
    for store in ALL_STORES:
        feed_store(driver, store)
    feed(driver, *orders)
    counts: Counter[tuple[str, str]] = Counter()
    revenue: dict[tuple[str, str], Decimal] = {}
    for order in orders:
        key = (order.order_type.value.lower(), order.location_id)
        counts[key] += 1
        revenue[key] = revenue.get(key, Decimal("0.00")) + order.final_amount
    assert len(counts) == 2 * len(ALL_STORES)
    for kind, store in counts:
        assert driver.get_state_store(f"{kind}_orders_count")[store].value == counts[kind, store]
        total = driver.get_state_store(f"{kind}_orders_revenue")[store].value
        assert total == TotalRevenue(store, counts[kind, store], revenue[kind, store])
    # Some orders are 2 minutes late: running totals contain them, windows do not.
    in_windows = sum(
        found.value for kind in KINDS
        for _, found in driver.get_state_store(f"{kind}_orders_count_window").all()
    )
    assert 0 < in_windows < len(orders)
