"""Runs the user's processors and transformers as operators."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.errors import StreamsException
from penstock.processors.base import Forward, NodeContext
from penstock.record import Headers, Record, fixed_key_record


def check_not_async(function: Any, what: str) -> None:
    """Raise if the function is an `async def`: a task would get a coroutine, not a result."""
    is_object = callable(function) and not isinstance(function, type)
    for each in (function, type(function).__call__ if is_object else None):
        if inspect.iscoroutinefunction(each) or inspect.isasyncgenfunction(each):
            raise TypeError(
                f"{what} is an async function: {_name(function)}. A task calls functions without "
                "an event loop. Use a plain `def`; it can call asyncio.run()."
            )


def supplied_stores(supplier: Any) -> tuple[Any, ...]:
    """The store builders of a supplier: its attribute or method `stores`."""
    stores = getattr(supplier, "stores", None)
    if callable(stores):
        if not _takes_nothing(stores):
            raise TypeError(
                f"{_name(supplier)}.stores cannot be called without arguments. "
                "If the supplier is a class, make it a static method or a list of builders."
            )
        stores = stores()
    if stores is None:
        return ()
    builders = tuple(stores) if isinstance(stores, Iterable) else (stores,)
    for builder in builders:
        if not hasattr(builder, "build") or not hasattr(builder, "name"):
            raise TypeError(
                f"{_name(supplier)}.stores must contain store builders, not {builder!r}. "
                "Stores.key_value_store_builder(supplier, key, value) creates one."
            )
    return builders


def _takes_nothing(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _name(thing: Any) -> str:
    name: str = getattr(thing, "__name__", type(thing).__name__)
    return name


def _check_supplier(supplier: Any, method: str, kind: str, step: str) -> None:
    """Raise unless `supplier` is a class with the method, or creates a new such object per call."""
    if not callable(supplier):
        raise TypeError(
            f"{step}: expected a class or a function without arguments that creates a {kind}, "
            f"not an instance of {type(supplier).__name__}. "
            f"Pass {type(supplier).__name__}, or lambda: {type(supplier).__name__}(...)."
        )
    if not _takes_nothing(supplier):
        raise TypeError(
            f"{step}: a {kind} is created without arguments, but {_name(supplier)} requires some. "
            f"Pass a function: lambda: {_name(supplier)}(...)."
            if isinstance(supplier, type) else
            f"{step}: a {kind} is created without arguments, but {_name(supplier)} requires some. "
            f"Pass a class with a method `{method}`, or a function that returns its instance."
        )
    check_not_async(supplier, f"{step}: the supplier of a {kind}")
    if isinstance(supplier, type):
        if not hasattr(supplier, method):
            raise TypeError(f"{step}: {supplier.__name__} has no method `{method}`.")
        _check_methods(supplier, method, step)
        return
    first, second = supplier(), supplier()
    if not hasattr(first, method):
        raise StreamsException(
            f"{step}: the supplier returned {first!r}, which has no method `{method}`."
        )
    _check_methods(first, method, step)
    if first is second:
        raise ValueError(
            f"{step}: {_name(supplier)} generates single reference. It must create a new {kind} "
            "for each call, because every task has its own."
        )


def _check_methods(processor: Any, method: str, step: str) -> None:
    for name in ("init", method, "close"):
        check_not_async(getattr(processor, name, None), f"{step}: {name}()")


@dataclass(frozen=True, slots=True)
class UserProcessor:
    """Runs the user's processor; a new one is created for every task and batch."""

    # Its context inspects each record that is forwarded.
    forwards_input = True

    supplier: Callable[[], Any]
    fixed_key: bool = False

    @classmethod
    def checked(
        cls, supplier: Callable[[], Any], *, step: str, fixed_key: bool = False
    ) -> UserProcessor:
        """Create the operator after checking the supplier."""
        _check_supplier(supplier, "process", "processor", step)
        return cls(supplier, fixed_key)

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        processor = self.supplier()
        if not hasattr(processor, "process"):
            raise StreamsException(
                f"{node.name}: the supplier returned {processor!r}, which has no method `process`."
            )
        context = node.user_context(forward, self.fixed_key)
        if hasattr(processor, "init"):
            node.at_start(lambda: processor.init(context))
        if hasattr(processor, "close"):
            node.at_close(processor.close)
        handle = processor.process
        fixed_key = self.fixed_key
        new_record: Any = fixed_key_record if fixed_key else Record

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            record = new_record(key, value, timestamp, headers)
            if not fixed_key:
                context.given = record
            handle(record)

        return process


def transformer_factory(
    supplier: Callable[[], Any], *, step: str
) -> Callable[[NodeContext], Callable[[Any, Any], Any]]:
    """The factory of the transforming function of `transform_values` in a task."""
    _check_supplier(supplier, "transform", "transformer", step)

    def make(node: NodeContext) -> Callable[[Any, Any], Any]:
        transformer = supplier()
        if not hasattr(transformer, "transform"):
            raise StreamsException(
                f"{step}: the supplier returned {transformer!r}, which has no method `transform`."
            )
        context = node.transformer_context(_reject_forward)
        if hasattr(transformer, "init"):
            node.at_start(lambda: transformer.init(context))
        if hasattr(transformer, "close"):
            node.at_close(transformer.close)
        transform: Callable[[Any, Any], Any] = transformer.transform
        return transform

    return make


def _reject_forward(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
    raise StreamsException(
        "A value transformer returns the new value; it cannot forward records."
    )
