"""The compatibility table has every row once, and says "not yet" only while it is true."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import penstock
import penstock.testing
from penstock import ProcessorWrapper, Serdes, StreamsBuilder, StreamsConfig
from penstock.testing import TopologyTestDriver

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "compatibility.md").read_text("utf-8")
ROWS = dict(re.findall(r"^\| ([STGBPOWRALIED]\d+) \|[^|]*\| ([^|]*?) \|", TEXT, re.MULTILINE))
HOW_MANY = {
    "S": 15, "T": 8, "G": 7, "B": 4, "P": 7, "O": 15, "W": 7, "R": 16, "A": 10, "L": 6, "I": 4,
    "E": 6, "D": 3,
}


def test_every_row_is_there_once() -> None:
    ids = re.findall(r"^\| ([STGBPOWRALIED]\d+) \|", TEXT, re.MULTILINE)
    assert [row for row, times in Counter(ids).items() if times > 1] == []
    wanted = {f"{letter}{n}" for letter, last in HOW_MANY.items() for n in range(1, last + 1)}
    assert set(ids) == wanted


def test_every_row_has_a_state() -> None:
    assert set(ROWS.values()) <= {"yes", "partly", "not yet", "never"}


def test_what_is_partly_there_says_what_is_missing() -> None:
    lines = [line for line in TEXT.splitlines() if "| partly |" in line]
    assert [line for line in lines if len(line.rpartition("partly |")[2].strip(" |")) < 20] == []


def test_what_is_not_there_yet_is_not_there() -> None:
    assert (ROWS["L1"] == "not yet") == (not hasattr(penstock, "Streams"))
    assert (ROWS["I2"] == "not yet") == (not hasattr(penstock, "StateQueryRequest"))
    assert (ROWS["D3"] == "not yet") == (not hasattr(penstock.testing, "MockProcessorContext"))


def test_the_processor_wrapper_is_called_if_the_table_says_so() -> None:
    class Watching(ProcessorWrapper):
        names: list[str] = []  # noqa: RUF012

        def wrap_processor_supplier(self, name, supplier):  # type: ignore[no-untyped-def]
            self.names.append(name)
            return supplier

    config = StreamsConfig(application_id="test", processor_wrapper=Watching)
    builder = StreamsBuilder(config)
    text = Serdes.string()
    builder.stream("in", key=text, value=text).process(penstock.Processor, name="own")
    with TopologyTestDriver(builder.build(config), config):
        pass
    assert (ROWS["A7"] == "yes") == bool(Watching.names)


def test_a_list_that_ends_in_an_empty_element_is_read() -> None:
    serde = Serdes.list(Serdes.string())
    for elements in (["a", ""], [""], ["", "a"]):
        assert serde.deserialize(serde.serialize(elements)) == elements
