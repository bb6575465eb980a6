"""A processor that overrides `init` without `super().init()` still has `self.context`."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle
import pytest

from penstock import (
    FixedKeyProcessor,
    FixedKeyRecord,
    Processor,
    ProcessorContext,
    Record,
    Serdes,
    StreamsBuilder,
)
from penstock.testing import MockProcessorContext, TopologyTestDriver

TEXT = Serdes.string()


class Forward(Processor[str, str]):
    def init(self, context: ProcessorContext) -> None:
        self.at_init = self.context is context

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_value(f"{record.value} {self.at_init}"))


class ForwardValues(FixedKeyProcessor[str, str]):
    def init(self, context: ProcessorContext) -> None:
        self.at_init = self.context is context

    def process(self, record: FixedKeyRecord[str, str]) -> None:
        self.context.forward(record.with_value(f"{record.value} {self.at_init}"))


class Mixin:
    def init(self, context: ProcessorContext) -> None:
        self.at_init = context is not None


class Mixed(Mixin, Processor[str, str]):
    process = Forward.process  # type: ignore[assignment]


class Derived(Forward):
    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self.at_init = self.at_init and self.context is context


@pytest.mark.parametrize("supplier", [Forward, ForwardValues, Mixed, Derived])
def test_context_exists_without_super_init(supplier: Any) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=TEXT, value=TEXT)
    fixed = issubclass(supplier, FixedKeyProcessor)
    result = stream.process_values(supplier) if fixed else stream.process(supplier)
    result.to("out", key=TEXT, value=TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("a", "x")
        assert driver.create_output_topic("out", TEXT, TEXT).read_value() == "x True"


def test_class_without_init_is_unchanged() -> None:
    class Plain(Processor[str, str]):
        def process(self, record: Record[str, str]) -> None: ...

    assert "init" not in vars(Plain)


def test_context_exists_in_a_class_that_is_pickled_by_value() -> None:
    class Local(Processor[str, str]):
        def init(self, context: ProcessorContext) -> None:
            self.at_init = self.context is context

    processor = pickle.loads(cloudpickle.dumps(Local))()
    processor.init(MockProcessorContext())
    assert processor.at_init


def test_init_can_set_another_context() -> None:
    class Wrapped(Processor[str, str]):
        def init(self, context: ProcessorContext) -> None:
            other: Any = (context,)
            super().init(other)

    processor = Wrapped()
    processor.init(MockProcessorContext())
    assert isinstance(processor.context, tuple)
