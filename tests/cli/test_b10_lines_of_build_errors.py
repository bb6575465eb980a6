"""Errors of a topology show the line of the user's program that added the step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Processor, Serdes, StreamsBuilder, TopologyException

HEAD = '''
from penstock import *

text = Serdes.string()
serdes = {"key": text, "value": text}

class Ignoring(Processor):
    def process(self, record): pass

def topology():
    builder = StreamsBuilder()
'''
#: The steps of a function. The error belongs to the line with the comment.
STEPS = {
    "is not added yet": '''
    stream = builder.stream("a", **serdes)
    stream.process(Ignoring, "nowhere")  # here
    stream.to("b", **serdes)
''',
    "has already been registered": '''
    builder.stream("a", **serdes)
    builder.table("a", **serdes)  # here
    builder.stream("b", **serdes)
''',
    "overlapping but not equal": '''
    builder.stream("a", **serdes)
    builder.stream(["a", "b"], **serdes)  # here
''',
    "different offset reset": '''
    builder.stream("a", **serdes)
    builder.stream("a", offset_reset=AutoOffsetReset.latest(), **serdes)  # here
''',
    "A different StateStore": '''
    builder.table("a", store="rows", **serdes)
    (
        builder.table("b", store="rows", **serdes)  # here
        .to_stream()
        .to("c", **serdes)
    )
''',
    "ZeroDivisionError": '''
    sorted([1], key=lambda each: each / 0)  # here
''',
    "JSONDecodeError": '''
    __import__("json").loads("?")  # here
''',
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("lines", None)


@pytest.mark.parametrize("as_builder", [False, True])
@pytest.mark.parametrize("message", STEPS)
def test_command_shows_the_line_of_the_step(
    penstock: Callable[..., Any], message: str, as_builder: bool
) -> None:
    end = "    return builder" if as_builder else "    return builder.build()"
    source = f"{HEAD}{STEPS[message]}{end}\n"
    path = Path("lines.py").resolve()
    path.write_text(source)
    (line,) = [n for n, text in enumerate(source.splitlines(), 1) if text.endswith("# here")]
    shown = penstock("describe", "lines.py").err
    assert message in shown
    assert shown.rstrip().endswith(f"({path}, line {line})")


def test_exception_has_the_line_in_its_traceback() -> None:
    builder = StreamsBuilder()
    text = Serdes.string()
    stream = builder.stream("a", key=text, value=text)
    stream.process(Processor, "nowhere")
    with pytest.raises(TopologyException, match="nowhere") as raised:
        builder.build()
    (note,) = raised.value.__notes__
    line = test_exception_has_the_line_in_its_traceback.__code__.co_firstlineno + 4
    assert note == f"KSTREAM-PROCESSOR-0000000001 was added in {__file__}, line {line}."
