"""The topology in the test driver, without Spark and Java: `python -m pytest product_views`."""

from __future__ import annotations

from penstock.testing import TopologyTestDriver
from product_views import topology as product_views


def test_one_alert_for_the_thousandth_view() -> None:
    with TopologyTestDriver(product_views.build()) as driver:
        views = driver.create_input_topic(product_views.VIEWS, int, str)
        out = driver.create_output_topic(product_views.ALERTS, int, str)
        views.pipe_key_value_list([(7, "browser")] * 999)
        assert out.is_empty
        views.pipe_key_value_list([(7, "browser")] * 2)
        assert out.read_key_values_to_list() == [
            (7, "To alerts@yourcompany.com: product 7 was viewed 1000 times")
        ]
