"""The names of all client settings: aliases, settings with an effect, settings without one."""

from __future__ import annotations

from collections.abc import Mapping

#: Alternative names, of librdkafka and of older Kafka versions, and the name that is used here.
ALIASES: Mapping[str, str] = {
    "metadata.broker.list": "bootstrap.servers",
    "request.required.acks": "acks",
    "message.send.max.retries": "retries",
    "queue.buffering.max.ms": "linger.ms",
    "message.timeout.ms": "delivery.timeout.ms",
    "max.request.size": "message.max.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "metadata.max.age.ms": "topic.metadata.refresh.interval.ms",
    "partitioner.class": "partitioner",
}

#: Settings that are functions or objects. As keyword arguments they keep their underscores.
CALLBACKS = frozenset((
    "background_event_cb", "error_cb", "log_cb", "logger", "oauth_cb", "on_commit", "on_delivery",
    "rebalance_cb", "stats_cb", "throttle_cb",
))

#: Settings that at least one client uses. The other clients accept and ignore them, so that clients
#: can share a configuration.
EFFECTIVE = frozenset((
    "acks", "auto.commit.interval.ms", "auto.offset.reset", "batch.num.messages", "batch.size",
    "bootstrap.servers", "buffer.memory", "delivery.timeout.ms", "enable.auto.commit",
    "enable.auto.offset.store", "enable.idempotence", "enable.partition.eof", "fetch.max.bytes",
    "fetch.message.max.bytes", "fetch.min.bytes", "fetch.wait.max.ms", "group.id",
    "group.instance.id", "heartbeat.interval.ms", "isolation.level", "key.deserializer",
    "key.serializer", "linger.ms", "log", "max.block.ms", "max.poll.interval.ms",
    "max.poll.records", "message.max.bytes", "partition.assignment.strategy", "partitioner",
    "queue.buffering.max.kbytes", "queue.buffering.max.messages", "retries", "session.timeout.ms",
    "transactional.id", "value.deserializer", "value.serializer",
))

#: Prefixes of settings about connections, brokers, compression and similar.
WITHOUT_EFFECT_PREFIX = (
    "broker.", "client.dns", "sasl.", "security.", "socket.", "ssl.", "reconnect.", "metrics.",
    "interceptor.", "compression.", "log_level", "statistics.", "https.", "plugin.",
)
#: The subset of these that is passed to connections to Kafka.
CONNECTION_PREFIX = (
    "broker.", "client.dns", "compression.", "https.", "reconnect.", "sasl.", "security.",
    "socket.", "ssl.",
)
CONNECTION = frozenset((
    "client.id", "client.rack", "connections.max.idle.ms", "enable.sasl.oauthbearer.unsecure.jwt",
    "enable.ssl.certificate.verification", "oauth_cb",
))
#: Settings of Kafka and librdkafka that are accepted and ignored.
WITHOUT_EFFECT = frozenset((
    "allow.auto.create.topics", "api.version.fallback.ms", "api.version.request",
    "api.version.request.timeout.ms", "builtin.features", "check.crcs", "client.id", "client.rack",
    "connections.max.idle.ms", "consume.callback.max.messages", "coordinator.query.interval.ms",
    "debug", "default.api.timeout.ms", "delivery.report.only.error", "enable.gapless.guarantee",
    "enable.metrics.push", "enable.random.seed", "enable.sasl.oauthbearer.unsecure.jwt",
    "enable.ssl.certificate.verification", "exclude.internal.topics", "fetch.error.backoff.ms",
    "fetch.queue.backoff.ms", "group.protocol", "group.protocol.type", "group.remote.assignor",
    "internal.termination.signal", "log.connection.close", "log.queue", "log.thread.name",
    "max.in.flight", "max.in.flight.requests.per.connection", "message.copy.max.bytes",
    "metadata.recovery.strategy", "msg_order_cmp", "offset.store.method", "opaque", "open_cb",
    "produce.offset.report", "queue.buffering.backpressure.threshold", "queued.max.messages.kbytes",
    "queued.min.messages", "queuing.strategy", "receive.buffer.bytes", "receive.message.max.bytes",
    "request.timeout.ms", "retry.backoff.max.ms", "retry.backoff.ms", "send.buffer.bytes",
    "sticky.partitioning.linger.ms", "topic.blacklist", "topic.metadata.propagation.max.ms",
    "topic.metadata.refresh.fast.interval.ms", "topic.metadata.refresh.interval.ms",
    "topic.metadata.refresh.sparse", "transaction.timeout.ms",
))
