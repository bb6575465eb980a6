"""`from penstock import` of a Java class that does not exist says what to use in Python."""

from __future__ import annotations

import pytest

import penstock
from compatibility.java_api import LISTED
from penstock.java_classes import HINTS

JAVA_CLASSES = sorted({
    line.partition(":")[0].rpartition(".")[2]
    for line in LISTED.read_text().splitlines() if not line.startswith("#")
})


@pytest.mark.parametrize(("name", "hint"), [
    ("Consumed", "In Python, use the keywords key=, value=, timestamp=, offset_reset= and name= of "
                 "StreamsBuilder.stream() and table()."),
    ("Named", "In Python, use the keyword name= of the method."),
    ("KafkaStreams", "In Python, use Streams."),
    ("KeyValueMapper", "In Python, use a function or a lambda of (key, value), or of the value "
                       "alone."),
    ("TopologyTestDriver", "It is in penstock.testing."),
    ("KStraem", "Did you mean 'KStream'?"),
])
def test_import_names_the_python_way(name: str, hint: str) -> None:
    with pytest.raises(ImportError) as caught:
        exec(f"from penstock import {name}")
    assert str(caught.value) == f"cannot import name '{name}' from 'penstock'. {hint}"
    with pytest.raises(AttributeError) as missing:
        getattr(penstock, name)
    assert str(missing.value) == f"module 'penstock' has no attribute '{name}'. {hint}"


@pytest.mark.parametrize("name", JAVA_CLASSES)
def test_every_class_of_kafka_streams_exists_or_has_a_hint(name: str) -> None:
    assert (name in penstock.__all__) != (name in HINTS)


def test_hints_name_what_exists() -> None:
    import penstock.clients
    import penstock.testing

    for name, hint in HINTS.items():
        if "penstock.clients." in hint:
            assert hasattr(penstock.clients, hint.rstrip(".").rpartition(".")[2])
        if hint == "It is in penstock.testing.":
            assert hasattr(penstock.testing, name)


def test_other_names_are_plain_errors() -> None:
    assert not hasattr(penstock, "Consumed")
    assert getattr(penstock, "nonsense", None) is None
    with pytest.raises(ImportError, match=r"^cannot import name 'nonsense' from 'penstock'\."):
        exec("from penstock import nonsense")
    from penstock import windows

    assert windows.TimeWindows is penstock.TimeWindows
