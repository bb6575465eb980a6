"""Operators on streams that remember nothing: filter, map, flat_map, branch, print and so on.

None of them looks at nulls: a null key or value is handed to the user's function as it is. All
keep the timestamp and the headers of the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from penstock.native import core
from penstock.processors.base import Failed, Forward, NodeContext, PlainOperator, raise_it
from penstock.record import Headers

_NULL_RESULT = "The provided KeyValueMapper returned null which is not allowed."


@dataclass(frozen=True, slots=True)
class Filter(PlainOperator):
    """Passes on what the predicate accepts, or with `negate` what it refuses."""

    forwards_the_same = True

    predicate: Callable[[Any, Any], bool]
    negate: bool = False

    def attach(
        self, node: NodeContext, forward: Forward, failed: Failed = raise_it
    ) -> Forward:
        predicate, negate = self.predicate, self.negate
        if core is not None:
            native: Forward = core.filtering(predicate, forward, failed, negate)
            return native

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                if negate if predicate(key, value) else not negate:
                    return
            except Exception as error:
                failed(error, key, value, timestamp, headers)
                return
            forward(key, value, timestamp, headers)

        return process


@dataclass(frozen=True, slots=True)
class Map:
    """A new key and a new value from both."""

    mapper: Callable[[Any, Any], Any]

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        mapper = self.mapper

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            pair = mapper(key, value)
            try:
                new_key, new_value = pair
            except (TypeError, ValueError):
                _refuse_pair(node, pair)
            forward(new_key, new_value, timestamp, headers)

        return process


@dataclass(frozen=True, slots=True)
class SelectKey(PlainOperator):
    """A new key; the value stays."""

    selector: Callable[[Any, Any], Any]

    def attach(
        self, node: NodeContext, forward: Forward, failed: Failed = raise_it
    ) -> Forward:
        selector = self.selector
        if core is not None:
            native: Forward = core.selecting_key(selector, forward, failed)
            return native

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                new_key = selector(key, value)
            except Exception as error:
                failed(error, key, value, timestamp, headers)
                return
            forward(new_key, value, timestamp, headers)

        return process


@dataclass(frozen=True, slots=True)
class MapValues(PlainOperator):
    """A new value; `with_key` tells whether the function wants the key before it."""

    mapper: Callable[..., Any]
    with_key: bool = False

    def attach(
        self, node: NodeContext, forward: Forward, failed: Failed = raise_it
    ) -> Forward:
        mapper, with_key = self.mapper, self.with_key
        if core is not None:
            native: Forward = core.mapping_values(mapper, forward, failed, with_key)
            return native

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                new_value = mapper(key, value) if with_key else mapper(value)
            except Exception as error:
                failed(error, key, value, timestamp, headers)
                return
            forward(key, new_value, timestamp, headers)

        return process


@dataclass(frozen=True, slots=True)
class FlatMap:
    """Any number of pairs from a record; each one is passed on before the next is asked for."""

    mapper: Callable[[Any, Any], Iterable[Any]]

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        mapper = self.mapper

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            pairs = mapper(key, value)
            if pairs is None:
                raise TypeError(_NULL_RESULT)
            for pair in pairs:
                try:
                    new_key, new_value = pair
                except (TypeError, ValueError):
                    _refuse_pair(node, pair)
                forward(new_key, new_value, timestamp, headers)

        return process


@dataclass(frozen=True, slots=True)
class FlatMapValues:
    """Any number of values from a record, all with its key."""

    mapper: Callable[..., Iterable[Any]]
    with_key: bool = False

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        mapper = self.mapper

        def map_value(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            for new_value in _iterable(node, mapper(value)):
                forward(key, new_value, timestamp, headers)

        def map_with_key(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            for new_value in _iterable(node, mapper(key, value)):
                forward(key, new_value, timestamp, headers)

        return map_with_key if self.with_key else map_value


@dataclass(frozen=True, slots=True)
class Peek:
    """Shows each record to a function, then passes it on."""

    forwards_the_same = True

    action: Callable[[Any, Any], object]

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        action = self.action

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            action(key, value)
            forward(key, value, timestamp, headers)

        return process


@dataclass(frozen=True, slots=True)
class Foreach:
    """Shows each record to a function; the end of a stream."""

    action: Callable[[Any, Any], object]

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        action = self.action

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            action(key, value)

        return process


def key_and_value(key: Any, value: Any) -> str:
    """How `Print` writes a record unless told otherwise."""
    return f"{_text(key)}, {_text(value)}"


@dataclass(frozen=True, slots=True)
class Print:
    """Adds one line for each record to what the task prints; the end of a stream."""

    label: str
    mapper: Callable[[Any, Any], Any] = key_and_value
    file: str | None = None

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        mapper, file = self.mapper, self.file
        prefix = f"[{self.label}]: "
        print_line = node.print_line

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            print_line(prefix + _text(mapper(key, value)), file)

        return process


@dataclass(frozen=True, slots=True)
class Branch:
    """Passes each record to the child of the first predicate that accepts it.

    One child more than predicates: the last one takes the rest; otherwise the rest ends here.
    """

    forwards_the_same = True

    predicates: tuple[Callable[[Any, Any], bool], ...]
    children: tuple[str, ...]

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        to_children = [node.forward_to(child) for child in self.children]
        choices = tuple(zip(self.predicates, to_children, strict=False))
        has_default = len(to_children) > len(self.predicates)
        to_default = to_children[len(self.predicates)] if has_default else None

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            for predicate, to_child in choices:
                if predicate(key, value):
                    to_child(key, value, timestamp, headers)
                    return
            if to_default is not None:
                to_default(key, value, timestamp, headers)

        return process


@dataclass(frozen=True, slots=True)
class PassThrough(PlainOperator):
    """Passes everything on: merge, the children of a branch, the result of a cogroup."""

    forwards_the_same = True

    def attach(
        self, node: NodeContext, forward: Forward, failed: Failed = raise_it
    ) -> Forward:
        return forward


@dataclass(frozen=True, slots=True)
class NullKeyFilter(PlainOperator):
    """Stands before a topic that brings equal keys together: records without a key need not go.

    Unless a join behind the topic wants to see them: then it does not drop any.
    """

    forwards_the_same = True

    drops: bool

    def attach(
        self, node: NodeContext, forward: Forward, failed: Failed = raise_it
    ) -> Forward:
        if not self.drops:
            return forward
        if core is not None:
            native: Forward = core.null_key_filter(forward)
            return native

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is not None:
                forward(key, value, timestamp, headers)

        return process


def _iterable(node: NodeContext, values: Iterable[Any] | None) -> Iterable[Any]:
    if values is None:
        raise TypeError(
            f"The function of '{node.name}' returned null instead of an iterable of values. "
            "Return an empty list to pass nothing on."
        )
    return values


def _refuse_pair(node: NodeContext, pair: Any) -> NoReturn:
    if pair is None:
        raise TypeError(_NULL_RESULT) from None
    raise TypeError(
        f"The function of '{node.name}' must give pairs of a key and a value, "
        f"but gave {type(pair).__name__}: {pair!r}."
    ) from None


def _text(part: Any) -> str:
    return "null" if part is None else str(part)
