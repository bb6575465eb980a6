"""Puts a task together: from the leaves up, every node becomes one function.

A node's function is called by its parents through a *forward*: it keeps `Current` in step with the
record (a record with another timestamp or other headers is the current one while its children
see it) and asks the processing handler about errors. Sinks and sources are not asked about: an
error in a sink is its parent's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.errors import ConfigException, StreamsException, WrongSerdeException
from penstock.native import core
from penstock.processors.base import Forward, OnError, PlainOperator
from penstock.record import Current, Headers
from penstock.task.blueprint import Blueprint
from penstock.task.collector import Collector
from penstock.task.error_handling import Failures, NodeFailed
from penstock.task.node import TaskNode, no_children
from penstock.task.runtime import Runtime
from penstock.topology.nodes import ProcessorNode, SinkNode, SourceNode


@dataclass(frozen=True)
class Entry:
    """How a parent calls a node. `watched` ones are asked about by whoever calls them."""

    name: str
    process: Forward
    watched: bool
    is_sink: bool = False


def assemble(
    blueprint: Blueprint, runtime: Runtime, collector: Collector, failures: Failures
) -> dict[str, Forward]:
    """Attach all nodes; answers for each source the function that takes its records."""
    entries: dict[str, Entry] = {}
    sources: dict[str, Forward] = {}
    for node in reversed(blueprint.nodes):
        children = [entries[name] for name in blueprint.children[node.name]]
        if isinstance(node, SinkNode):
            process = _sink(node, blueprint, runtime, collector, failures)
            entries[node.name] = Entry(node.name, process, watched=False, is_sink=True)
        elif isinstance(node, SourceNode):
            # The task has just made the record the current one.
            sources[node.name] = _unswitched(children, failures)
        else:
            entries[node.name] = _attached(node, children, blueprint, runtime, failures)
    return sources


def _attached(
    node: ProcessorNode, children: list[Entry], blueprint: Blueprint, runtime: Runtime,
    failures: Failures,
) -> Entry:
    context = TaskNode(node.name, runtime, blueprint.connected[node.name])
    operator = _operator(blueprint, node)
    current = runtime.current
    context.children = {
        child.name: _switching([child], current, failures) for child in children
    }
    makes_records = failures.needs_sources and not getattr(operator, "forwards_input", False)
    several_with_sink = len(children) > 1 and any(child.is_sink for child in children)
    if isinstance(operator, PlainOperator) and not several_with_sink:
        failed = failures.watcher(node.name)
        forward = _unswitched(children, failures)
        if children and children[0].is_sink:
            forward = _watched(forward, failed)
        if makes_records:
            forward = _unmarked(forward, current)
        return Entry(node.name, operator.attach(context, forward, failed), watched=False)
    forward = _switching(children, current, failures)
    if makes_records:
        forward = _unmarked(forward, current)
    return Entry(node.name, operator.attach(context, forward), watched=True)


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


def _unswitched(children: list[Entry], failures: Failures) -> Forward:
    """Calls all children in order, for a node that forwards what it was given."""
    if not children:
        return no_children
    calls = [
        _watched(child.process, failures.watcher(child.name)) if child.watched else child.process
        for child in children
    ]
    if len(calls) == 1:
        return calls[0]

    def forward(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        for call in calls:
            call(key, value, timestamp, headers)

    return forward


def _switching(children: list[Entry], current: Current, failures: Failures) -> Forward:
    """Calls all children in order, while the record that is forwarded is the current one."""
    if not children:
        return no_children
    to_all = _unswitched(children, failures)
    if core is not None:
        native: Forward = core.switching(to_all, current)
        return native

    def forward(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if timestamp == current.timestamp and headers is current.headers:
            to_all(key, value, timestamp, headers)
            return
        before = (current.timestamp, current.headers, current.sent)
        current.timestamp = timestamp
        current.headers = headers
        try:
            to_all(key, value, timestamp, headers)
        finally:
            current.timestamp, current.headers, current.sent = before

    return forward


def _watched(process: Forward, failed: OnError) -> Forward:
    """Asks about errors of a node."""

    def judge(error: Exception, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if isinstance(error, NodeFailed):
            raise error
        if isinstance(error, WrongSerdeException):
            # Not this node's handler is asked, but that of the node before it.
            raise StreamsException(str(error)) from error
        failed(error, key, value, timestamp, headers)

    if core is not None:
        native: Forward = core.guarded(process, judge)
        return native

    def watched(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            process(key, value, timestamp, headers)
        except Exception as error:
            judge(error, key, value, timestamp, headers)

    return watched


def _unmarked(forward: Forward, current: Current) -> Forward:
    """For a node that makes new records: that one of them was sent is not said of its source."""

    def unmarked(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        sent = current.sent
        try:
            forward(key, value, timestamp, headers)
        finally:
            current.sent = sent

    return unmarked
