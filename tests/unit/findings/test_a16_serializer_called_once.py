"""A sink calls a failing serializer once, then asks the production handler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Response, Serde, Serdes, StreamsBuilder, StreamsConfig, WindowedSerdes
from penstock.testing import TopologyTestDriver
from penstock.windows import Window, Windowed

TEXT = Serdes.string()


class Flaky:
    """A serializer that fails at its first call only."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, value: str) -> bytes:
        self.calls += 1
        if self.calls == 1:
            raise ValueError(f"call {self.calls} failed")
        return value.encode()


class Handler:
    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def handle_error(self, *_: Any) -> Response:
        return Response.fail()

    def handle_serialization_error(
        self, context: Any, record: Any, exception: Exception, origin: Any
    ) -> Response:
        self.asked.append((origin.value, str(exception)))
        return Response.resume()


def run(
    key: Serde[Any], value: Serde[Any], mapper: Callable[..., Any] = lambda k, v: (k, v)
) -> tuple[Handler, list[tuple[bytes | None, bytes | None]]]:
    handler = Handler()
    builder = StreamsBuilder()
    builder.stream("in", key=TEXT, value=TEXT).map(mapper).to("out", key=key, value=value)
    config = StreamsConfig(application_id="test", production_exception_handler=handler)
    with TopologyTestDriver(builder.build(), config) as driver:
        topic = driver.create_input_topic("in", TEXT, TEXT)
        topic.pipe_input("a", "x")
        topic.pipe_input("b", "y")
        return handler, [(output.key, output.value) for output in driver.read_raw("out")]


def test_failing_value_serializer_is_called_once() -> None:
    flaky, keys = Flaky(), []
    handler, sent = run(Serde.of(lambda key: keys.append(key) or key.encode(), bytes.decode),
                        Serde.of(flaky, bytes.decode))
    assert handler.asked == [("value", "call 1 failed")]
    assert sent == [(b"b", b"y")]
    assert (flaky.calls, keys) == (2, ["a", "b"])


def test_failing_key_serializer_is_called_once() -> None:
    flaky = Flaky()
    handler, sent = run(Serde.of(flaky, bytes.decode), TEXT)
    assert handler.asked == [("key", "call 1 failed")]
    assert sent == [(b"b", b"y")]
    assert flaky.calls == 2


@pytest.mark.parametrize("key", [
    lambda flaky: WindowedSerdes.time_windowed(Serde.of(flaky, bytes.decode), 10),
    lambda flaky: WindowedSerdes.session_windowed(Serde.of(flaky, bytes.decode)),
], ids=["time windows", "sessions"])
def test_failing_serializer_of_a_windowed_key_is_called_once(key: Any) -> None:
    flaky = Flaky()
    handler, sent = run(key(flaky), TEXT, lambda k, v: (Windowed(k, Window(0, 10)), v))
    assert handler.asked == [("key", "call 1 failed")]
    assert [value for _, value in sent] == [b"y"]
    assert flaky.calls == 2


def test_null_key_is_not_taken_for_a_failure() -> None:
    flaky = Flaky()
    handler, sent = run(TEXT, Serde.of(flaky, bytes.decode), lambda k, v: (None, v))
    assert handler.asked == [("value", "call 1 failed")]
    assert sent == [(None, b"y")]
