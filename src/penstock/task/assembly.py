"""Puts a task together: from the leaves up, every node becomes one function.

A node's function is called by its parents through a *forward*: it keeps `Current` in step with the
record (a record with another timestamp or other headers is the current one while its children
see it) and asks the processing handler about errors. Sinks and sources are not asked about: an
error in a sink is its parent's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import ConfigException, StreamsException
from penstock.processors.base import Forward
from penstock.record import Current, Headers
from penstock.task.blueprint import Blueprint
from penstock.task.collector import Collector
from penstock.task.failures import Failures, NodeFailed, record_of
from penstock.task.node import TaskNode, no_children
from penstock.task.runtime import Runtime
from penstock.topology.nodes import ProcessorNode, SinkNode, SourceNode

#: Asks what to do about an error of a node: (node, error, key, value, timestamp, headers).
Failed = Callable[[str, Exception, Any, Any, int, Headers], None]


def assemble(
    blueprint: Blueprint, runtime: Runtime, collector: Collector, failures: Failures
) -> dict[str, Forward]:
    """Attach all nodes; answers for each source the function that takes its records."""

    def failed(
        name: str, error: Exception, key: Any, value: Any, timestamp: int, headers: Headers
    ) -> None:
        failures.not_processed(name, error, record_of(key, value, timestamp, headers))

    entries: dict[str, tuple[Forward, str | None]] = {}
    sources: dict[str, Forward] = {}
    current = runtime.current
    for node in reversed(blueprint.nodes):
        children = [(name, *entries[name]) for name in blueprint.children[node.name]]
        if isinstance(node, SinkNode):
            entries[node.name] = (_sink(node, blueprint, runtime, collector, failures), None)
            continue
        forward = _forward([entry[1:] for entry in children], current, failed)
        if isinstance(node, SourceNode):
            sources[node.name] = forward
            continue
        context = TaskNode(node.name, runtime, blueprint.connected[node.name])
        context.children = {
            name: _forward([(entry, guard)], current, failed) for name, entry, guard in children
        }
        process = _operator(blueprint, node).attach(context, forward)
        entries[node.name] = (process, node.name)
    return sources


def _operator(blueprint: Blueprint, node: ProcessorNode) -> Any:
    try:
        return blueprint.operator(node)
    except ConfigException as error:
        raise StreamsException(f"Failed to initialize serdes for {node.name}: {error}") from error


def _sink(
    node: SinkNode, blueprint: Blueprint, runtime: Runtime, collector: Collector,
    failures: Failures,
) -> Forward:
    try:
        serdes = blueprint.serdes(node)
    except ConfigException as error:
        raise StreamsException(
            f"Failed to initialize serdes for sink node {node.name}: {error}"
        ) from error
    topic = blueprint.topic(node.topic) if isinstance(node.topic, str) else None
    return collector.attach_sink(node, topic, serdes, failures, runtime.drop)


def _forward(
    children: list[tuple[Forward, str | None]], current: Current, failed: Failed
) -> Forward:
    """One function that calls all children in order. A child's name is None if it is a sink."""
    if not children:
        return no_children
    if len(children) == 1:
        process, name = children[0]
        return _to_sink(process, current) if name is None else _to_one(
            process, name, current, failed
        )
    return _to_several([_guarded(process, name, failed) for process, name in children], current)


def _guarded(process: Forward, name: str | None, failed: Failed) -> Forward:
    if name is None:
        return process

    def guarded(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            process(key, value, timestamp, headers)
        except NodeFailed:
            raise
        except Exception as error:
            failed(name, error, key, value, timestamp, headers)

    return guarded


def _to_one(process: Forward, name: str, current: Current, failed: Failed) -> Forward:
    def switched(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        _switch(guarded, current, key, value, timestamp, headers)

    guarded = _guarded(process, name, failed)

    def forward(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if timestamp != current.timestamp or headers is not current.headers:
            return switched(key, value, timestamp, headers)
        try:
            process(key, value, timestamp, headers)
        except NodeFailed:
            raise
        except Exception as error:
            failed(name, error, key, value, timestamp, headers)
        return None

    return forward


def _to_sink(process: Forward, current: Current) -> Forward:
    def forward(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if timestamp != current.timestamp or headers is not current.headers:
            _switch(process, current, key, value, timestamp, headers)
        else:
            process(key, value, timestamp, headers)

    return forward


def _to_several(children: list[Forward], current: Current) -> Forward:
    def to_all(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        for child in children:
            child(key, value, timestamp, headers)

    def forward(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if timestamp != current.timestamp or headers is not current.headers:
            _switch(to_all, current, key, value, timestamp, headers)
            return
        for child in children:
            child(key, value, timestamp, headers)

    return forward


def _switch(
    process: Forward, current: Current, key: Any, value: Any, timestamp: int, headers: Headers
) -> None:
    """Process a record as the current one, and put the former one back."""
    before = (current.timestamp, current.headers, current.source)
    current.timestamp = timestamp
    current.headers = headers
    try:
        process(key, value, timestamp, headers)
    finally:
        current.timestamp, current.headers, current.source = before
