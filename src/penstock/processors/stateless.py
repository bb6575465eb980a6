"""Stateless stream operators: filter, map, flat_map, branch, print and others.

None of them treats nulls specially: the user's function receives null keys and values. All keep
the timestamp and headers of the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from penstock.native import core
from penstock.processors.base import Forward, NodeContext, OnError, PlainOperator, raise_error
from penstock.record import Headers

_NULL_RESULT = "The provided KeyValueMapper returned null which is not allowed."


@dataclass(frozen=True, slots=True)
class Filter(PlainOperator):
    """Forwards the records that the predicate accepts, or with `negate` those it rejects."""

    predicate: Callable[[Any, Any], bool]
    negate: bool = False

    def attach(
        self, node: NodeContext, forward: Forward, failed: OnError = raise_error
    ) -> Forward:
        predicate, negate = self.predicate, self.negate
        if core is not None:
            native: Forward = core.filtering(predicate, forward, failed, negate)
            return native
        counter = node.calls

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            counter.calls += 1
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
    """Replaces key and value."""

    mapper: Callable[[Any, Any], Any]

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        mapper = self.mapper

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            pair = mapper(key, value)
            try:
                new_key, new_value = pair
            except (TypeError, ValueError):
                _raise_not_a_pair(node, pair)
            forward(new_key, new_value, timestamp, headers)

        return process


@dataclass(frozen=True, slots=True)
class SelectKey(PlainOperator):
    """Replaces the key and keeps the value."""

    selector: Callable[[Any, Any], Any]

    def attach(
        self, node: NodeContext, forward: Forward, failed: OnError = raise_error
    ) -> Forward:
        selector = self.selector
        if core is not None:
            native: Forward = core.selecting_key(selector, forward, failed)
            return native
        counter = node.calls

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            counter.calls += 1
            try:
                new_key = selector(key, value)
            except Exception as error:
                failed(error, key, value, timestamp, headers)
                return
            forward(new_key, value, timestamp, headers)

        return process


@dataclass(frozen=True, slots=True)
class MapValues(PlainOperator):
    """Replaces the value; with `with_key` the function receives the key first."""

    mapper: Callable[..., Any]
    with_key: bool = False

    def attach(
        self, node: NodeContext, forward: Forward, failed: OnError = raise_error
    ) -> Forward:
        mapper, with_key = self.mapper, self.with_key
        if core is not None:
            native: Forward = core.mapping_values(mapper, forward, failed, with_key)
            return native
        counter = node.calls

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            counter.calls += 1
            try:
                new_value = mapper(key, value) if with_key else mapper(value)
            except Exception as error:
                failed(error, key, value, timestamp, headers)
                return
            forward(key, new_value, timestamp, headers)

        return process


@dataclass(frozen=True, slots=True)
class FlatMap:
    """Maps a record to any number of pairs, each forwarded before the next one is computed."""

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
                    _raise_not_a_pair(node, pair)
                forward(new_key, new_value, timestamp, headers)

        return process


@dataclass(frozen=True, slots=True)
class FlatMapValues:
    """Maps a record to any number of values with the same key."""

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
    """Calls a function for each record, then forwards the record."""

    action: Callable[[Any, Any], object]

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        action = self.action

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            action(key, value)
            forward(key, value, timestamp, headers)

        return process


@dataclass(frozen=True, slots=True)
class Foreach:
    """Calls a function for each record; forwards nothing."""

    action: Callable[[Any, Any], object]

    def attach(self, node: NodeContext, forward: Forward) -> Forward:
        action = self.action

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            action(key, value)

        return process


def key_and_value(key: Any, value: Any) -> str:
    """The default text of a printed record."""
    return f"{_text(key)}, {_text(value)}"


@dataclass(frozen=True, slots=True)
class Print:
    """Prints one line per record; forwards nothing."""

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
    """Forwards each record to the child of the first predicate that accepts it.

    If there is one more child than predicates, it receives the other records. Otherwise they are
    not forwarded.
    """

    forwards_input = True

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
    """Forwards every record: merge, the children of a branch, the result of a cogroup."""

    forwards_input = True

    def attach(
        self, node: NodeContext, forward: Forward, failed: OnError = raise_error
    ) -> Forward:
        return forward


@dataclass(frozen=True, slots=True)
class NullKeyFilter(PlainOperator):
    """Drops records without a key before a repartition topic.

    With `drops` false it forwards them: a left or outer join behind the topic needs them.
    """

    drops: bool

    def attach(
        self, node: NodeContext, forward: Forward, failed: OnError = raise_error
    ) -> Forward:
        if not self.drops:
            return forward
        if core is not None:
            native: Forward = core.null_key_filter(forward)
            return native
        counter = node.calls

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            counter.calls += 1
            if key is not None:
                forward(key, value, timestamp, headers)

        return process


def _iterable(node: NodeContext, values: Iterable[Any] | None) -> Iterable[Any]:
    if values is None:
        raise TypeError(
            f"The function of '{node.name}' returned null instead of an iterable of values. "
            "Return an empty list to forward nothing."
        )
    return values


def _raise_not_a_pair(node: NodeContext, pair: Any) -> NoReturn:
    if pair is None:
        raise TypeError(_NULL_RESULT) from None
    raise TypeError(
        f"The function of '{node.name}' must return pairs of a key and a value, "
        f"but returned {type(pair).__name__}: {pair!r}."
    ) from None


def _text(part: Any) -> str:
    return "null" if part is None else str(part)
