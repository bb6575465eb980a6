"""Where a source partition is read from: its committed offset or, without one, what its source
says. An offset that was there once and is not any more is an error, never a silent reset."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import timedelta

from penstock.config import StreamsConfig
from penstock.engine.layout.execution_graph import ExecutionGraph
from penstock.engine.plan.task_records import BatchRecord
from penstock.errors import ConfigException, StreamsException
from penstock.log.base import Log
from penstock.log.types import PartitionOffsets, TopicPartition
from penstock.topology.nodes import SourceNode
from penstock.topology.offset_reset import AutoOffsetReset
from penstock.topology.topology import Topology

log = logging.getLogger(__name__)

#: Later ones count only where the earlier are not given.
_DEFAULT_RESET = (
    "main.consumer.auto.offset.reset", "consumer.auto.offset.reset", "auto.offset.reset",
)
_ISO_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


class StartOffsets:
    """Knows the reset policy of every source topic of an application."""

    def __init__(
        self, source_log: Log, topology: Topology, config: StreamsConfig, graph: ExecutionGraph
    ) -> None:
        self._log = source_log
        self._application_id = config.application_id
        self._graph = graph
        default = default_reset(config)
        sources = {node.name: node for node in topology.nodes if isinstance(node, SourceNode)}
        self._policies: dict[str, AutoOffsetReset] = {
            topic: sources[source].offset_reset or default
            for each in graph.subtopologies.values() for source, topic in each.reads
        }
        # What the application sends itself is never to be skipped.
        for topic in graph.repartition_topics:
            self._policies[topic] = AutoOffsetReset.earliest()

    def offsets(self, batch: BatchRecord | None, now: int) -> dict[TopicPartition, int]:
        """Where every source partition is to be read on, at the start of a planner."""
        partitions = [
            TopicPartition(topic, number)
            for topic, count in self._graph.source_topics.items() for number in range(count)
        ]
        committed = self._log.committed(self._application_id, partitions)
        known: Mapping[str, int] = {} if batch is None else batch.sources
        missing = [at for at in partitions if at not in committed]
        lost = [at for at in missing if at.partition < known.get(at.topic, 0)]
        if lost and batch is not None:
            raise self._lost(lost, batch)
        bounds = self._log.offsets(missing)
        found = {}
        for at in partitions:
            if at in committed:
                found[at] = committed[at].offset
            elif at.topic in known:
                # The topic has got more partitions since: all of their records are new.
                found[at] = bounds[at].start
            else:
                found[at] = self._by_policy(at, bounds[at], now, "has no committed offset")
        return found

    def overtaken(
        self, at: TopicPartition, offset: int, bounds: PartitionOffsets, now: int
    ) -> int:
        """Where to go on when the partition does not have the offset any more."""
        if offset > bounds.end:
            raise StreamsException(
                f"The committed offset {offset} of '{at.topic}' [{at.partition}] is beyond its "
                f"end, {bounds.end}. Records that were read once are not in the log any more: "
                "the topic was made again, or the log was put back to an earlier state. "
                f"Start anew with 'penstock reset {self._application_id}', or set the offset "
                f"with 'penstock groups reset-offsets {self._application_id}'."
            )
        chosen = self._by_policy(
            at, bounds, now, f"was to be read on from {offset}, but starts at {bounds.start}"
        )
        log.warning(
            "'%s' [%d] starts at %d, behind the committed offset %d: retention has removed "
            "records before they were read. Reading goes on at %d (%s).",
            at.topic, at.partition, bounds.start, offset, chosen,
            self._policies[at.topic].strategy,
        )
        return chosen

    def _by_policy(
        self, at: TopicPartition, bounds: PartitionOffsets, now: int, why: str
    ) -> int:
        policy = self._policies[at.topic]
        if policy.strategy == "earliest":
            return bounds.start
        if policy.strategy == "latest":
            return bounds.end
        if policy.strategy == "by_duration":
            assert policy.duration_ms is not None
            found = self._log.offset_for_time(*at, max(0, now - policy.duration_ms))
            return bounds.end if found is None else found.offset
        raise StreamsException(
            f"'{at.topic}' [{at.partition}] {why}, and its offset reset is 'none'. Set the "
            f"offset with 'penstock groups reset-offsets {self._application_id} --topic "
            f"{at.topic}:{at.partition}', or choose another offset_reset= for the source."
        )

    def _lost(self, lost: list[TopicPartition], batch: BatchRecord) -> StreamsException:
        shown = ", ".join(f"'{at.topic}' [{at.partition}]" for at in lost[:5])
        more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
        return StreamsException(
            f"The committed offset of {shown}{more} is missing. Batch {batch.number} of "
            f"'{self._application_id}' has committed one: since then the topic was made again, or "
            "the offset was deleted or has expired. Set it with 'penstock groups reset-offsets "
            f"{self._application_id} --topic {lost[0].topic} ...', or start anew with "
            f"'penstock reset {self._application_id}'."
        )


def default_reset(config: StreamsConfig) -> AutoOffsetReset:
    """What `auto.offset.reset` says; Kafka Streams' own default is earliest."""
    for name in _DEFAULT_RESET:
        if name in config.extra:
            return _parsed(name, str(config.extra[name]).strip())
    return AutoOffsetReset.earliest()


def _parsed(name: str, text: str) -> AutoOffsetReset:
    if text in {"earliest", "latest", "none"}:
        return AutoOffsetReset(text)  # type: ignore[arg-type]
    kind, _, duration = text.partition(":")
    milliseconds = iso_duration_ms(duration)
    if kind != "by_duration" or milliseconds is None:
        raise ConfigException(
            f"{name} cannot be '{text}'. It is earliest, latest, none, or by_duration: with an "
            "ISO duration, as in by_duration:PT1H."
        )
    return AutoOffsetReset.by_duration(milliseconds)


def iso_duration_ms(text: str) -> int | None:
    """The milliseconds of an ISO 8601 duration of days and less, as PT1H30M; None: it is none."""
    found = _ISO_DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    duration = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    return duration // timedelta(milliseconds=1)
