"""Assembles a task: from the leaves up, every node becomes one function.

Parents call the function of a node through a *forward*. It updates `CurrentRecord` (a record with
another timestamp or other headers is the current one while its children process it) and passes
errors to the processing handler. Errors of a sink count as errors of its parent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.errors import StreamsException, WrongSerdeException
from penstock.native import core
from penstock.processors.base import CallCounter, Forward, OnError, PlainOperator
from penstock.record import CurrentRecord, Headers
from penstock.task.blueprint import Blueprint
from penstock.task.collector import Collector
from penstock.task.error_handling import ExceptionHandlers, NodeFailed
from penstock.task.node import TaskNode, no_children
from penstock.task.node_meters import measured_end
from penstock.task.runtime import Runtime
from penstock.topology.nodes import ProcessorNode, SinkNode, SourceNode


@dataclass(frozen=True)
class NodeEntry:
    """How a parent calls a node. The caller must guard a node that is `guarded`."""

    name: str
    process: Forward
    guarded: bool
    is_sink: bool = False


def assemble(
    blueprint: Blueprint, runtime: Runtime, collector: Collector, handlers: ExceptionHandlers
) -> dict[str, Forward]:
    """Attach all nodes. Returns for each source the function that processes its records."""
    entries: dict[str, NodeEntry] = {}
    sources: dict[str, Forward] = {}
    for node in reversed(blueprint.nodes):
        children = [entries[name] for name in blueprint.children[node.name]]
        if isinstance(node, SinkNode):
            process = _sink(node, blueprint, runtime, collector, handlers)
            entries[node.name] = NodeEntry(node.name, process, guarded=False, is_sink=True)
        elif isinstance(node, SourceNode):
            # The task has already set the current record.
            sources[node.name] = _call_children(children, runtime, handlers)
        else:
            entries[node.name] = _attach_processor(node, children, blueprint, runtime, handlers)
    return sources


def _attach_processor(
    node: ProcessorNode, children: list[NodeEntry], blueprint: Blueprint, runtime: Runtime,
    handlers: ExceptionHandlers,
) -> NodeEntry:
    feeds = {plan.name: plan.feed.processor for plan in blueprint.stores if plan.feed is not None}
    context = TaskNode(node.name, runtime, blueprint.connected[node.name], feeds)
    operator = blueprint.operator(node)
    current = runtime.current
    context.children = {
        child.name: _call_children_with_context([child], runtime, handlers) for child in children
    }
    makes_records = handlers.needs_sources and not getattr(operator, "forwards_input", False)
    several_with_sink = len(children) > 1 and any(child.is_sink for child in children)
    if isinstance(operator, PlainOperator) and not several_with_sink:
        failed = handlers.error_callback(node.name)
        forward = _call_children(children, runtime, handlers)
        if children and children[0].is_sink:
            forward = _guarded(forward, failed, CallCounter())
        if makes_records:
            forward = _keep_sent_flag(forward, current)
        attached = operator.attach(context, forward, failed)
        attached = runtime.node_calls.counted(
            node.name, attached, None if attached is forward else context.calls
        )
        return NodeEntry(node.name, _measure(node, attached, children, runtime), guarded=False)
    forward = _call_children_with_context(children, runtime, handlers)
    if makes_records:
        forward = _keep_sent_flag(forward, current)
    attached = operator.attach(context, forward)
    return NodeEntry(node.name, _measure(node, attached, children, runtime), guarded=True)


def _measure(
    node: ProcessorNode, process: Forward, children: list[NodeEntry], runtime: Runtime
) -> Forward:
    measured = process if children else measured_end(node.name, process, runtime)
    return runtime.node_timer.timed(node.name, measured)


def _sink(
    node: SinkNode, blueprint: Blueprint, runtime: Runtime, collector: Collector,
    handlers: ExceptionHandlers,
) -> Forward:
    serdes = blueprint.serdes(node)
    topic = blueprint.topic(node.topic) if isinstance(node.topic, str) else None
    context = TaskNode(node.name, runtime, ())
    counter = CallCounter()
    process, counts = collector.attach_sink(
        node, topic, serdes, handlers, drop=context.drop, counter=counter
    )
    counted = runtime.node_calls.counted(node.name, process, counter if counts else None)
    return runtime.node_timer.timed(node.name, counted)


def _call_children(
    children: list[NodeEntry], runtime: Runtime, handlers: ExceptionHandlers
) -> Forward:
    """Calls all children in order, for a node that keeps timestamp and headers."""
    if not children:
        return no_children
    calls = [
        _guarded_child(child, runtime, handlers) if child.guarded else child.process
        for child in children
    ]
    if len(calls) == 1:
        return calls[0]

    def forward(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        for call in calls:
            call(key, value, timestamp, headers)

    return forward


def _call_children_with_context(
    children: list[NodeEntry], runtime: Runtime, handlers: ExceptionHandlers
) -> Forward:
    """Calls all children in order, with the forwarded record as the current one."""
    if not children:
        return no_children
    current = runtime.current
    to_all = _call_children(children, runtime, handlers)
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


def _guarded_child(child: NodeEntry, runtime: Runtime, handlers: ExceptionHandlers) -> Forward:
    counter = CallCounter()
    guarded = _guarded(child.process, handlers.error_callback(child.name), counter)
    return runtime.node_calls.counted(child.name, guarded, counter)


def _guarded(process: Forward, failed: OnError, counter: CallCounter) -> Forward:
    """Passes the errors of a node to the processing handler."""

    def judge(error: Exception, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if isinstance(error, NodeFailed):
            raise error
        if isinstance(error, WrongSerdeException):
            # The error belongs to the parent node.
            raise StreamsException(str(error)) from error
        failed(error, key, value, timestamp, headers)

    if core is not None:
        native: Forward = core.guarded(process, judge)
        return native

    def guarded(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        counter.calls += 1
        try:
            process(key, value, timestamp, headers)
        except Exception as error:
            judge(error, key, value, timestamp, headers)

    return guarded


def _keep_sent_flag(forward: Forward, current: CurrentRecord) -> Forward:
    """For a node that creates records: sending one does not mark the source record as sent."""

    def keep_sent_flag(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        sent = current.sent
        try:
            forward(key, value, timestamp, headers)
        finally:
            current.sent = sent

    return keep_sent_flag
