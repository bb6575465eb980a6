"""Every reference to a rule by its id has a row in docs/semantics.md."""

from __future__ import annotations

from collections import Counter

import pytest

from house import semantics


def test_ids_are_unique() -> None:
    counts = Counter(name for name, _ in semantics.rows())
    assert [name for name, count in counts.items() if count > 1] == []


def test_every_row_states_a_rule() -> None:
    assert len(semantics.rows()) > 150
    assert [name for name, rule in semantics.rows() if not rule.endswith(".")] == []


def test_ids_of_one_letter_are_numbered_without_gaps() -> None:
    ids = {name for name, _ in semantics.rows() if "-" not in name}
    numbers: dict[str, list[int]] = {}
    for name in ids:
        numbers.setdefault(name[0], []).append(int(name[1:]))
    gaps = {
        letter: sorted(found) for letter, found in numbers.items()
        if sorted(found) != list(range(min(found), min(found) + len(found)))
    }
    assert gaps == {}


def test_every_reference_has_a_row() -> None:
    known = {name for name, _ in semantics.rows()}
    references = semantics.references()
    assert len(references) > 10
    unknown = {
        path: sorted(ids - known) for path, ids in references.items() if ids - known
    }
    assert unknown == {}, "Add rows to docs/semantics.md, or correct the references."


@pytest.mark.parametrize(("source", "suffix", "ids"), [
    ('"""Waits for its turn (M3, M42)."""\n', ".py", {"M3", "M42"}),
    ("x = 1  # as in Kafka (Z9)\n", ".py", {"Z9"}),
    ('def f():\n    """The Processor API (A1-A3)."""\n', ".py", {"A1", "A2", "A3"}),
    ("# See F99 for the names.\n", ".py", {"F99"}),
    ('V2 = TypeVar("V2")\nM42 = "(M42)"\n', ".py", set()),
    ("import os  # noqa: E4\n", ".py", set()),
    ("/* partitions (F7) */ int V9;\n", ".c", {"F7"}),
    ("Wrappers (A7, KIP-1112), see N1 to N3.\n", ".md", {"A7", "KIP-1112", "N1", "N2", "N3"}),
    ("Pass `-O2`, `M42`.\n```\nM42\n```\nUTF-8, gpt-J6, J6-1\n", ".md", set()),
])
def test_references_are_found_in_prose_only(source: str, suffix: str, ids: set[str]) -> None:
    text = semantics.prose(source, suffix)
    assert semantics.ids_in(text, semantics.letters()) == ids


def test_an_invented_id_has_no_row() -> None:
    known = {name for name, _ in semantics.rows()}
    assert {"M42", "Z9", "F99", "KIP-9999"}.isdisjoint(known)
    assert {"M3", "F13", "J10", "KIP-1112"} <= known
