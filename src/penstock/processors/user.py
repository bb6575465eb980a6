"""Processors and transformers of the user, run as operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.errors import StreamsException
from penstock.processors.base import Forward, NodeContext
from penstock.record import FixedKeyRecord, Headers, Record


def brought_stores(supplier: Any) -> tuple[Any, ...]:
    """The store builders a supplier brings along as `stores`, an attribute or a method."""
    stores = getattr(supplier, "stores", None)
    if callable(stores):
        stores = stores()
    return tuple(stores) if isinstance(stores, Iterable) else ()


@dataclass(frozen=True, slots=True)
class UserProcessor:
    """Runs a processor of the user; a new one for every task and batch."""

    supplier: Callable[[], Any]
    fixed_key: bool = False

    @classmethod
    def checked(
        cls, supplier: Callable[[], Any], *, step: str, fixed_key: bool = False
    ) -> UserProcessor:
        """Refuses what is no supplier of processors."""
        if not callable(supplier):
            raise TypeError(
                f"{step}: a processor is given by what makes it, a class or a function without "
                f"arguments, not by {type(supplier).__name__}."
            )
        return cls(supplier, fixed_key)

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        processor = self.supplier()
        if not hasattr(processor, "process"):
            raise StreamsException(
                f"{node.name}: the supplier made {processor!r}, which has no method `process`."
            )
        context = node.user_context(forward)
        if hasattr(processor, "init"):
            node.at_start(lambda: processor.init(context))
        if hasattr(processor, "close"):
            node.at_close(processor.close)
        handle = processor.process
        shape: Any = FixedKeyRecord if self.fixed_key else Record

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            handle(shape(key, value, timestamp, headers))

        return process


def transformer_factory(
    supplier: Callable[[], Any], *, step: str
) -> Callable[[NodeContext], Callable[[Any, Any], Any]]:
    """What makes the transforming function of `transform_values` in a task."""
    if not callable(supplier):
        raise TypeError(f"{step}: a transformer is given by what makes it, not {supplier!r}.")

    def make(node: NodeContext) -> Callable[[Any, Any], Any]:
        transformer = supplier()
        if not hasattr(transformer, "transform"):
            raise StreamsException(
                f"{step}: the supplier made {transformer!r}, which has no method `transform`."
            )
        context = node.user_context(_forwards_nothing)
        if hasattr(transformer, "init"):
            node.at_start(lambda: transformer.init(context))
        if hasattr(transformer, "close"):
            node.at_close(transformer.close)
        transform: Callable[[Any, Any], Any] = transformer.transform
        return transform

    return make


def _forwards_nothing(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
    raise StreamsException(
        "A value transformer answers the new value; it cannot forward records."
    )
