"""The compatibility table covers every row of the semantics once, and its states are true."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from house import semantics
from penstock import Serdes

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "compatibility.md").read_text("utf-8")
ROWS = dict(re.findall(r"^\| ([A-Z]\d+) \|[^|]*\| ([^|]*?) \|", TEXT, re.MULTILINE))
#: A row of rules: one id or a range, and what it is about.
RULES = re.findall(r"^\| ([A-Z]\d+(?:-[A-Z]\d+)?) [^|]+\| ([^|]*?) \|", TEXT, re.MULTILINE)


def test_every_row_of_the_semantics_is_covered_once() -> None:
    ids = re.findall(r"^\| ([A-Z]\d+) \|", TEXT, re.MULTILINE)
    for span, _ in RULES:
        ids += semantics.ids_in(span, "[A-Z]")
    assert [row for row, times in Counter(ids).items() if times > 1] == []
    assert set(ids) == {name for name, _ in semantics.rows() if "-" not in name}


def test_every_row_has_a_state() -> None:
    states = {*ROWS.values(), *(state for _, state in RULES)}
    assert states == {"yes", "partly", "never"}


def test_partly_supported_rows_say_what_is_missing() -> None:
    lines = [line for line in TEXT.splitlines() if "| partly |" in line]
    assert [line for line in lines if len(line.rpartition("partly |")[2].strip(" |")) < 20] == []


def test_list_with_an_empty_last_element_is_read() -> None:
    serde = Serdes.list(Serdes.string())
    for elements in (["a", ""], [""], ["", "a"]):
        assert serde.deserialize(serde.serialize(elements)) == elements
