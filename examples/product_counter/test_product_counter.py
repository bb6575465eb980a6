"""The topology in the test driver, without Spark and Java: `python -m pytest product_counter`."""

from __future__ import annotations

import pytest
from showcase import START_MS

from penstock.testing import TopologyTestDriver
from product_counter import topology as product_counter


def test_all_counts_are_forwarded_every_second(capsys: pytest.CaptureFixture[str]) -> None:
    with TopologyTestDriver(product_counter.build()) as driver:
        logs = driver.create_input_topic(product_counter.LOGS, int, str)
        out = driver.create_output_topic(product_counter.COUNTS, int, int)
        logs.pipe_input(1, "browser", timestamp=START_MS)
        assert out.read_key_values_to_list() == [(1, 1)]
        logs.pipe_input(2, "browser", timestamp=START_MS + 500)
        assert out.is_empty
        logs.pipe_input(1, "browser", timestamp=START_MS + 1000)
        assert out.read_key_values_to_list() == [(1, 2), (2, 1)]
        assert capsys.readouterr().out == "product 1: 1\nproduct 1: 2\nproduct 2: 1\n"
