"""Settings of Kafka Streams that are no fields of `StreamsConfig`, or that have no effect here.

Every setting of Kafka Streams 4.3.0 is a field of `StreamsConfig`, is listed in one of the tables
below, or both: then the field is validated, but has no effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

#: Settings that have an effect and are read from `StreamsConfig.extra`.
OTHER_SETTINGS = frozenset((
    "auto.offset.reset", "bootstrap.servers", "metadata.max.age.ms", "metrics.num.samples",
    "metrics.sample.window.ms", "penstock.batch.max.bytes", "penstock.batch.max.records",
    "penstock.batch.target.ms", "penstock.driver.port", "penstock.otlp.endpoint",
    "penstock.otlp.interval.ms", "penstock.parallelism", "security.protocol", "session.timeout.ms",
))
#: The settings of a `ListSerde` as the default serde. The type of a list is always `list`.
LIST_SERDE_SETTINGS = frozenset((
    "default.list.key.serde.inner", "default.list.key.serde.type",
    "default.list.value.serde.inner", "default.list.value.serde.type",
))
#: Settings of the connections to Kafka, and librdkafka's names for them.
CONNECTION_SETTINGS: Mapping[str, str] = {
    "connections.max.idle.ms": "connections.max.idle.ms",
    "enable.metrics.push": "enable.metrics.push",
    "metadata.recovery.rebootstrap.trigger.ms": "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy": "metadata.recovery.strategy",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
    "reconnect.backoff.ms": "reconnect.backoff.ms",
    "request.timeout.ms": "socket.timeout.ms",
    "retry.backoff.max.ms": "retry.backoff.max.ms",
    "retry.backoff.ms": "retry.backoff.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
#: The prefixes of further settings of connections, which have librdkafka's names.
CONNECTION_PREFIXES = ("security.", "sasl.", "ssl.", "socket.", "enable.ssl.", "broker.address.")
#: Client settings that have an effect with and without their prefixes.
_PREFIXED_SETTINGS = frozenset(("auto.offset.reset", "session.timeout.ms"))
_EFFECTIVE_PREFIXES = ("main.consumer.", "consumer.")
_CLIENT_PREFIXES = (*_EFFECTIVE_PREFIXES, "restore.consumer.", "global.consumer.", "producer.",
                    "admin.")


class NoEffect(NamedTuple):
    """Why a setting has no effect."""

    reason: str
    #: Values, in lower case, with which an application behaves in the same way as here.
    harmless: tuple[str, ...] = ("", "none", "null")


_SPARK_ASSIGNS = "Spark assigns tasks to its executors"
_NO_WARMUP = "a standby takes over at once and restores what its stores lack"
_NO_CLEANUP = "local state is deleted with Streams.clean_up() or `penstock reset --state-dir`"
_WINDOWED = "give the serde and the window size to WindowedSerdes.time_windowed()"

NO_EFFECT: Mapping[str, NoEffect] = {
    "acceptable.recovery.lag": NoEffect(_NO_WARMUP, ("10000",)),
    "allow.os.group.write.access": NoEffect(
        "the umask of the process decides about the permissions of local state", ("false",)
    ),
    "buffered.records.per.partition": NoEffect(
        "a lane queues at most about 10,000 records of a partition and 64 MB in all; a batch is "
        "limited by penstock.batch.max.records and penstock.batch.max.bytes", ("1000",)
    ),
    "built.in.metrics.version": NoEffect("the metrics have one version", ("latest",)),
    "config.providers": NoEffect("values are used as they are written"),
    "default.client.supplier": NoEffect("penstock creates the clients of its log"),
    "group.protocol": NoEffect(
        "instances compete for a lease, and Spark assigns the tasks", ("classic",)
    ),
    "log.summary.interval.ms": NoEffect(
        "`penstock run` shows the progress; in Python use on_batch= or metrics()", ("120000",)
    ),
    "max.warmup.replicas": NoEffect(_NO_WARMUP, ("2",)),
    "metric.reporters": NoEffect("read the metrics with Streams.metrics()"),
    "poll.ms": NoEffect("the log wakes the application when records arrive", ("100",)),
    "probing.rebalance.interval.ms": NoEffect(_NO_WARMUP, ("600000",)),
    "rack.aware.assignment.non_overlap_cost": NoEffect(_SPARK_ASSIGNS),
    "rack.aware.assignment.strategy": NoEffect(_SPARK_ASSIGNS),
    "rack.aware.assignment.tags": NoEffect(_SPARK_ASSIGNS),
    "rack.aware.assignment.traffic_cost": NoEffect(_SPARK_ASSIGNS),
    "rocksdb.config.setter": NoEffect("persistent stores are in LMDB, not in RocksDB"),
    "state.cleanup.delay.ms": NoEffect(_NO_CLEANUP, ("600000",)),
    "state.cleanup.dir.max.age.ms": NoEffect(_NO_CLEANUP, ("-1",)),
    "task.assignor.class": NoEffect(_SPARK_ASSIGNS),
    "upgrade.from": NoEffect("one instance runs the application, so a new version needs no steps"),
    "window.size.ms": NoEffect(_WINDOWED),
    "windowed.inner.class.serde": NoEffect(_WINDOWED),
}


def settings_without_effect(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the settings whose values have no effect, by name, each with the reason."""
    for name, value in sorted(settings.items()):
        reason = _reason(name)
        if reason is not None and str(value).strip().lower() not in reason.harmless:
            yield name, reason.reason


def _reason(name: str) -> NoEffect | None:
    if name.startswith("client.tag."):
        return NoEffect(_SPARK_ASSIGNS, ())
    prefix = next((each for each in _CLIENT_PREFIXES if name.startswith(each)), None)
    if prefix is None:
        return NO_EFFECT.get(name)
    if prefix in _EFFECTIVE_PREFIXES and name.removeprefix(prefix) in _PREFIXED_SETTINGS:
        return None
    return NoEffect("penstock chooses the settings of its clients", ())
