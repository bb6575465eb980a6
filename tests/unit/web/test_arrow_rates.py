"""Rates of the arrows between nodes."""

from __future__ import annotations

from penstock import KStream, StreamsBuilder
from penstock.web.arrow_rates import Arrow, arrow_rates
from penstock.web.graph import NodeGraph


def rates_of(builder: StreamsBuilder, **rates: float) -> dict[Arrow, float]:
    return arrow_rates(NodeGraph(builder.build().nodes), rates)


def read(builder: StreamsBuilder, name: str) -> KStream[str, str]:
    return builder.stream(f"topic-{name}", key=str, value=str, name=name)


def test_node_sends_its_results_to_all_children() -> None:
    builder = StreamsBuilder()
    kept = read(builder, "a").filter(lambda key, value: True, name="kept")
    kept.foreach(print, name="one")
    merged = kept.merge(
        read(builder, "b").filter(lambda key, value: True, name="other"), name="merged"
    )
    merged.foreach(print, name="two")
    found = rates_of(builder, a=10.0, b=9.0, kept=10.0, other=9.0, one=4.0, merged=7.0, two=7.0)
    assert found["a", "kept"] == 10.0
    assert found["kept", "one"] == found["kept", "merged"] == 4.0
    # The rest comes from the other input.
    assert found["other", "merged"] == 3.0


def test_unknown_inputs_are_left_out() -> None:
    builder = StreamsBuilder()
    one = read(builder, "a").filter(lambda key, value: True, name="one")
    one.merge(read(builder, "b").filter(lambda key, value: True, name="two"), name="merged")
    rates = {"a": 10.0, "b": 9.0, "one": 10.0, "two": 9.0}
    found = rates_of(builder, **rates, merged=7.0)
    assert found == {("a", "one"): 10.0, ("b", "two"): 9.0}
    # No record has passed.
    assert rates_of(builder, **rates, merged=0.0)["two", "merged"] == 0.0


def test_sources_send_what_they_read_if_the_sum_agrees() -> None:
    builder = StreamsBuilder()
    read(builder, "a").merge(read(builder, "b"), name="merged")
    assert rates_of(builder, a=3.0, b=4.0, merged=7.0) == {
        ("a", "merged"): 3.0, ("b", "merged"): 4.0,
    }
    # One of them has skipped records.
    assert rates_of(builder, a=3.0, b=4.0, merged=6.0) == {}


def test_branch_sends_a_record_to_one_child() -> None:
    builder = StreamsBuilder()
    split = read(builder, "a").split(name="by-")
    split.branch(lambda value: value > "m", "high")
    split.default_branch("low")
    found = rates_of(builder, **{"a": 9.0, "by-": 9.0, "by-high": 2.0, "by-low": 7.0})
    assert found["by-", "by-high"] == 2.0
    assert found["by-", "by-low"] == 7.0
