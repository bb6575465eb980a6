"""`help` shows whole signatures, and errors list the options of a method."""

from __future__ import annotations

import inspect
import pydoc
from collections.abc import Callable
from typing import Any

import pytest

from penstock import KGroupedStream, KStream, KTable, StreamsBuilder


@pytest.mark.parametrize("method", [KStream.join, KStream.left_join, KTable.join, KTable.left_join])
def test_help_shows_the_options_of_a_join(method: Callable[..., Any]) -> None:
    parameters = inspect.signature(method).parameters
    assert "options" not in parameters
    shown = pydoc.plain(pydoc.render_doc(method))
    for name in list(parameters)[1:]:
        assert f"{name}: " in shown


def test_help_of_stream_describes_the_timestamp_extractor() -> None:
    shown = pydoc.plain(pydoc.render_doc(StreamsBuilder.stream))
    assert "timestamp: A function of (record, partition_time)" in shown


@pytest.mark.parametrize("method", [StreamsBuilder.stream, KStream.to, KTable.filter, KStream.join])
def test_an_unknown_option_lists_the_known_ones(method: Callable[..., Any]) -> None:
    options = ", ".join(
        each.name for each in inspect.signature(method).parameters.values()
        if each.kind is each.KEYWORD_ONLY
    )
    message = (
        rf"^{method.__name__}\(\) has no option 'nam'\. Did you mean 'name'\? "
        rf"Options: {options}\.$"
    )
    with pytest.raises(TypeError, match=message):
        method(object(), nam="x")


@pytest.mark.parametrize("method", [KStream.to, KGroupedStream.count, KStream.repartition])
def test_an_option_without_its_name_lists_the_options(method: Callable[..., Any]) -> None:
    message = r"takes its options by name, but got 'counts' without one\. Options: .*\bname\b"
    with pytest.raises(TypeError, match=message):
        method(object(), *(["topic"] if method is KStream.to else []), "counts")


def test_an_option_of_another_kind_of_join_lists_those_of_this_kind() -> None:
    builder = StreamsBuilder()
    stream, table = builder.stream("s"), builder.table("t")
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'store_name'. Options: key"):
        stream.join(table, lambda a, b: a, store_name="x")  # type: ignore[call-overload]
